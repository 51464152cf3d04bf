# Declarations of csrc/jetfast/session_table.hpp
from libc.stdint cimport int64_t
from libcpp.vector cimport vector

from jetfast.kernels._csrc.arena cimport Arena
from jetfast.kernels._csrc.column_view cimport ColumnView
from jetfast.kernels._csrc.keyed_frames cimport MemoryUse, TableSpec
from jetfast.kernels._csrc.keyed_results cimport KeyedResults


cdef extern from "jetfast/session_table.hpp" namespace "jetfast" nogil:
    cdef cppclass SessionColumns:
        int64_t row_count
        vector[ColumnView] keys
        ColumnView first
        ColumnView last
        vector[ColumnView] fields

    cdef cppclass SessionTable(KeyedResults):
        SessionTable(TableSpec spec, int64_t timeout, Arena& arena) except +
        MemoryUse memory() except +
        void advance(int64_t watermark) except +
        void restore(const SessionColumns& batch) except +
