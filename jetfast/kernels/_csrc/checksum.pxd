# Declarations of csrc/jetfast/checksum.hpp
from libc.stdint cimport int64_t, uint8_t, uint32_t


cdef extern from "jetfast/checksum.hpp" namespace "jetfast" nogil:
    cdef cppclass Crc32c:
        @staticmethod
        uint32_t extend(uint32_t crc, const uint8_t* bytes, int64_t count) noexcept
