# Declarations of csrc/jetfast/batch.hpp
from libc.stdint cimport int32_t, int64_t, uint8_t
from libcpp cimport bool as cbool
from libcpp.memory cimport shared_ptr
from libcpp.vector cimport vector

from jetfast.kernels._csrc.arena cimport Arena
from jetfast.kernels._csrc.column_view cimport ColumnView, Kind, TimeUnit


cdef extern from "jetfast/batch.hpp" namespace "jetfast" nogil:
    cdef cppclass Column:
        Column() except +
        ColumnView view
        shared_ptr[const void] owner
        cbool comes_again

    cdef cppclass Rows:
        Rows() except +
        int64_t row_count
        vector[Column] columns

    ColumnView type_of(const ColumnView& view) noexcept
    ColumnView fixed_type(Kind kind, int32_t width, TimeUnit unit) noexcept
    Column slice_column(const Column& column, int64_t start, int64_t row_count) except +
    Rows slice_rows(const Rows& rows, int64_t start, int64_t row_count) except +
    int64_t column_bytes(const ColumnView& view) noexcept
    Column allocate_fixed(Arena& arena, const ColumnView& type, int64_t row_count, cbool with_validity) except +
    Column allocate_strings(Arena& arena, const ColumnView& type, int64_t row_count, int64_t byte_count,
                            cbool with_validity) except +
    Column null_column(int64_t row_count) except +
    void settle_nulls(ColumnView& view) noexcept
