# Declarations of csrc/jetfast/keyed_results.hpp
from libc.stdint cimport int32_t, int64_t, uint32_t
from libcpp cimport bool as cbool
from libcpp.vector cimport vector

from jetfast.kernels._csrc.accumulators cimport Field
from jetfast.kernels._csrc.batch cimport Rows
from jetfast.kernels._csrc.key_index cimport KeyIndex
from jetfast.kernels._csrc.keyed_frames cimport BatchColumns, Places


cdef extern from "jetfast/keyed_results.hpp" namespace "jetfast" nogil:
    cdef cppclass LateRows:
        vector[int32_t] rows
        vector[int64_t] missed_until

    cdef struct Overflow "jetfast::KeyedResults::Overflow":
        int aggregate
        uint32_t slot
        int64_t window_start
        int64_t window_end

    cdef cppclass KeyedResults:
        int64_t rows
        int64_t rejected_rows
        int64_t late_rows
        int64_t partly_late_rows
        Overflow overflow
        Places* places
        const vector[Field]& partial_fields() noexcept
        KeyIndex& keys() noexcept
        cbool is_emitting() noexcept
        void accumulate(const BatchColumns& batch, LateRows* late) except +
        Rows emit(int64_t rows_max) except +
        Rows save(int64_t& cursor, int64_t rows_max) except +
        int64_t bound(int32_t partition) noexcept
        void restore_bound(int32_t partition, int64_t bound) except +
        void finish_restore() except +
        void check_invariants() except +
