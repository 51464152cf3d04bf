# Declarations of csrc/jetfast/frame_table.hpp
from libc.stdint cimport int32_t, int64_t
from libcpp.vector cimport vector

from jetfast.kernels._csrc.accumulators cimport Field
from jetfast.kernels._csrc.arena cimport Arena
from jetfast.kernels._csrc.batch cimport Rows
from jetfast.kernels._csrc.key_index cimport KeyIndex
from jetfast.kernels._csrc.keyed_frames cimport BatchColumns, MemoryUse, Places, TableSpec
from jetfast.kernels._csrc.keyed_results cimport LateRows


cdef extern from "jetfast/frame_table.hpp" namespace "jetfast" nogil:
    cdef cppclass FrameTable:
        FrameTable(TableSpec spec, Arena& arena) except +
        int64_t rows
        int64_t rejected_rows
        Places* places
        int64_t partials
        int64_t partial_rows
        int64_t frames_left
        int32_t owner
        bint is_frame
        KeyIndex& keys() noexcept
        const vector[Field]& partial_fields() noexcept
        MemoryUse memory() except +
        void set_owners(vector[int32_t] owners, int32_t owner_count) except +
        void share_frames() noexcept
        const vector[Field]& fields() noexcept
        void accumulate(const BatchColumns& batch, LateRows* late) except +
        void advance(int64_t watermark) noexcept
        void flush() noexcept
        bint has_due() noexcept
        void forget_keys() except +
        void check_invariants() except +
        Rows emit(int64_t rows_max) except +
