# Declares csrc/jetfast/byte_ring.hpp.
from libc.stdint cimport int64_t, uint8_t


cdef extern from "jetfast/byte_ring.hpp" namespace "jetfast" nogil:
    const int64_t kRingHeadBytes
    const int64_t kRingBroken

    cppclass RingWriter:
        RingWriter(uint8_t* memory, int64_t capacity) noexcept
        int64_t room(int64_t wanted) noexcept
        void put(const uint8_t* bytes, int64_t count) noexcept
        void publish() noexcept

    cppclass RingReader:
        RingReader(uint8_t* memory, int64_t capacity) noexcept
        int64_t readable() noexcept
        void take(uint8_t* bytes, int64_t count) noexcept
