# Declarations of csrc/jetfast/window_table.hpp
from libc.stdint cimport int64_t
from libcpp cimport bool as cbool
from libcpp.vector cimport vector

from jetfast.kernels._csrc.accumulators cimport Field
from jetfast.kernels._csrc.arena cimport Arena
from jetfast.kernels._csrc.keyed_frames cimport MemoryUse, PartialColumns, TableSpec
from jetfast.kernels._csrc.keyed_results cimport KeyedResults


cdef extern from "jetfast/window_table.hpp" namespace "jetfast" nogil:
    cdef cppclass TopSpec:
        int aggregate
        int64_t count
        cbool ascending
        vector[int] group_keys

    cdef cppclass WindowTable(KeyedResults):
        WindowTable(TableSpec spec, Arena& arena) except +
        MemoryUse memory() except +
        void accumulate_partials(const PartialColumns& batch) except +
        void accumulate_frame(const PartialColumns& batch) except +
        const vector[Field]& fields() noexcept
        void keep_top(TopSpec spec) except +
        void advance(int64_t watermark) except +
        void restore(const PartialColumns& batch) except +
