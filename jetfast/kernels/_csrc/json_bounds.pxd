# Declarations of csrc/jetfast/json_bounds.hpp
from libc.stdint cimport int64_t, uint8_t


cdef extern from "jetfast/json_bounds.hpp" namespace "jetfast" nogil:
    cdef cppclass JsonBounds:
        @staticmethod
        int64_t find_too_deep(const uint8_t* text, int64_t size, int64_t depth_max) noexcept

        @staticmethod
        int64_t count_open(const uint8_t* text, int64_t size) noexcept

        @staticmethod
        int64_t count_columns(const uint8_t* text, int64_t size, int64_t columns_max) except +
