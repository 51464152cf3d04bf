# Declarations of csrc/jetfast/column_view.hpp
from libc.stdint cimport int32_t, int64_t, uint8_t
from libcpp cimport bool as cbool


cdef extern from "jetfast/column_view.hpp" namespace "jetfast" nogil:
    cdef enum class Kind "jetfast::Kind":
        null
        boolean
        int8
        int16
        int32
        int64
        uint8
        uint16
        uint32
        uint64
        float16
        float32
        float64
        decimal32
        decimal64
        decimal128
        decimal256
        date32
        date64
        time32
        time64
        timestamp
        duration
        string
        binary
        fixed_binary
        nested

    cdef enum class Layout "jetfast::Layout":
        none
        bits
        fixed
        offsets32
        offsets64
        views
        dictionary
        opaque

    cdef enum class TimeUnit "jetfast::TimeUnit":
        second
        milli
        micro
        nano

    cdef cppclass ColumnView:
        Kind kind
        Layout layout
        TimeUnit unit
        cbool code_unsigned
        int32_t width
        int32_t precision
        int32_t scale
        int64_t row_count
        int64_t null_count
        const uint8_t* validity
        int64_t validity_offset
        const void* values
        int64_t bits_offset
        const void* offsets
        const uint8_t* bytes
        const uint8_t** view_buffers
        const ColumnView* dictionary
        cbool is_valid(int64_t row) noexcept
