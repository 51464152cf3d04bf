# Declarations of csrc/jetfast/frame_table.hpp
from libc.stdint cimport int64_t
from libcpp.vector cimport vector

from jetfast.kernels._csrc.accumulators cimport Field
from jetfast.kernels._csrc.arena cimport Arena
from jetfast.kernels._csrc.batch cimport Rows
from jetfast.kernels._csrc.keyed_frames cimport BatchColumns, MemoryUse, Places, TableSpec


cdef extern from "jetfast/frame_table.hpp" namespace "jetfast" nogil:
    cdef cppclass FrameTable:
        FrameTable(TableSpec spec, Arena& arena) except +
        int64_t rows
        int64_t rejected_rows
        Places* places
        const vector[Field]& fields() noexcept
        MemoryUse memory() except +
        void accumulate(const BatchColumns& batch) except +
        void advance(int64_t watermark) noexcept
        void flush() noexcept
        Rows take_partials(int64_t rows_max) except +
