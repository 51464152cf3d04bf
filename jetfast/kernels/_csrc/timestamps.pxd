# Declarations of csrc/jetfast/timestamps.hpp
from libc.stdint cimport int64_t, uint8_t
from libcpp cimport bool as cbool

from jetfast.kernels._csrc.column_view cimport ColumnView, Kind


cdef extern from "jetfast/timestamps.hpp" namespace "jetfast" nogil:
    cbool is_time_kind(Kind kind) noexcept
    int64_t convert_to_microseconds(const ColumnView& view, int64_t* target) noexcept
    void expand_validity(const ColumnView& view, uint8_t* target) noexcept
    cbool time_range(const ColumnView& view, int64_t* least, int64_t* greatest) noexcept
