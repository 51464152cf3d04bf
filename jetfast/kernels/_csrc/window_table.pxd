# Declarations of csrc/jetfast/window_table.hpp and of what it takes from frame.hpp
from libc.stdint cimport int32_t, int64_t, uint32_t
from libcpp cimport bool as cbool
from libcpp.vector cimport vector

from jetfast.kernels._csrc.arena cimport Arena
from jetfast.kernels._csrc.batch cimport Rows
from jetfast.kernels._csrc.column_view cimport ColumnView
from jetfast.kernels._csrc.key_index cimport KeyIndex


cdef extern from "jetfast/frame.hpp" namespace "jetfast" nogil:
    cdef cppclass WindowShape:
        int64_t size
        int64_t slide
        int64_t offset
        int64_t floor(int64_t time) noexcept
        int64_t frame_of(int64_t time) noexcept
        int64_t last_window_of_frame(int64_t frame) noexcept


cdef extern from "jetfast/accumulators.hpp" namespace "jetfast" nogil:
    cdef enum class FieldKind "jetfast::FieldKind":
        rows
        nulls
        sum128
        sum192
        sum_float
        minimum
        maximum
        moments

    cdef enum class ValueClass "jetfast::ValueClass":
        i64
        u64
        f64
        i128

    cdef cppclass Field:
        FieldKind kind
        ValueClass value_class
        int column
        int32_t width


cdef extern from "jetfast/window_table.hpp" namespace "jetfast" nogil:
    cdef enum class AggregateKind "jetfast::AggregateKind":
        count
        count_values
        sum
        mean
        minimum
        maximum
        var_samp
        var_pop
        stddev_samp
        stddev_pop

    cdef cppclass AggregateSpec:
        AggregateKind kind
        int column
        ColumnView result_type

    cdef cppclass TableSpec:
        WindowShape shape
        vector[ColumnView] key_types
        vector[ColumnView] value_types
        vector[AggregateSpec] aggregates
        int32_t partition_count

    cdef cppclass BatchColumns:
        int64_t row_count
        vector[ColumnView] keys
        ColumnView time
        vector[ColumnView] values

    cdef cppclass PartialColumns:
        int64_t row_count
        vector[ColumnView] keys
        ColumnView frame
        vector[ColumnView] fields

    cdef struct MemoryUse:
        int64_t keys
        int64_t frames
        int64_t entries
        int64_t key_bytes
        int64_t frame_bytes

    cdef cppclass LateRows:
        vector[int32_t] rows
        vector[int64_t] missed_until

    cdef struct Overflow "jetfast::WindowTable::Overflow":
        int aggregate
        uint32_t slot
        int64_t window_end

    cdef cppclass FrameTable:
        FrameTable(TableSpec spec, Arena& arena) except +
        int64_t rows
        int64_t rejected_rows
        const vector[Field]& fields() noexcept
        MemoryUse memory() except +
        void accumulate(const BatchColumns& batch) except +
        void advance(int64_t watermark) noexcept
        void flush() noexcept
        Rows take_partials(int64_t rows_max) except +

    cdef cppclass WindowTable:
        WindowTable(TableSpec spec, Arena& arena) except +
        int64_t rows
        int64_t rejected_rows
        int64_t late_rows
        int64_t partly_late_rows
        Overflow overflow
        const vector[Field]& fields() noexcept
        KeyIndex& keys() noexcept
        MemoryUse memory() except +
        int64_t watermark() noexcept
        cbool is_emitting() noexcept
        void accumulate(const BatchColumns& batch, LateRows* late) except +
        void accumulate_partials(const PartialColumns& batch) except +
        void advance(int64_t watermark) except +
        Rows emit(int64_t rows_max) except +
        Rows save(int64_t& after_frame, int64_t rows_max, vector[int64_t]& offsets) except +
        int64_t bound(int32_t partition) noexcept
        void add_counters(int64_t rows, int64_t rejected, int64_t late, int64_t partly_late) noexcept
        void restore_bound(int32_t partition, int64_t bound) except +
        void restore(const PartialColumns& batch, int32_t partition) except +
