# Declarations of csrc/jetfast/session_table.hpp
from libc.stdint cimport int32_t, int64_t
from libcpp cimport bool as cbool
from libcpp.vector cimport vector

from jetfast.kernels._csrc.accumulators cimport Field
from jetfast.kernels._csrc.arena cimport Arena
from jetfast.kernels._csrc.batch cimport Rows
from jetfast.kernels._csrc.column_view cimport ColumnView
from jetfast.kernels._csrc.key_index cimport KeyIndex
from jetfast.kernels._csrc.keyed_frames cimport BatchColumns, MemoryUse, TableSpec
from jetfast.kernels._csrc.keyed_results cimport LateRows, Overflow


cdef extern from "jetfast/session_table.hpp" namespace "jetfast" nogil:
    cdef cppclass SessionColumns:
        int64_t row_count
        vector[ColumnView] keys
        ColumnView first
        ColumnView last
        vector[ColumnView] fields

    cdef cppclass SessionTable:
        SessionTable(TableSpec spec, int64_t timeout, Arena& arena) except +
        int64_t rows
        int64_t rejected_rows
        int64_t late_rows
        Overflow overflow
        const vector[Field]& fields() noexcept
        KeyIndex& keys() noexcept
        MemoryUse memory() except +
        int64_t watermark() noexcept
        cbool is_emitting() noexcept
        void accumulate(const BatchColumns& batch, LateRows* late) except +
        void advance(int64_t watermark) except +
        Rows emit(int64_t rows_max) except +
        Rows save(int64_t& next_entry, int64_t rows_max, vector[int64_t]& offsets) except +
        int64_t bound(int32_t partition) noexcept
        void add_counters(int64_t rows, int64_t rejected, int64_t late, int64_t partly_late) noexcept
        void restore_bound(int32_t partition, int64_t bound) except +
        void restore(const SessionColumns& batch) except +
