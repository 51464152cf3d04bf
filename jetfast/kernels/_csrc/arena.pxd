# Declarations of csrc/jetfast/arena.hpp
from libc.stdint cimport int64_t, uint8_t
from libcpp.memory cimport shared_ptr


cdef extern from "jetfast/arena.hpp" namespace "jetfast" nogil:
    cdef struct ArenaStatistics:
        int64_t bytes_in_use
        int64_t bytes_pooled
        int64_t allocations
        int64_t reuses

    ctypedef shared_ptr[uint8_t] Block

    int64_t aligned_bytes(int64_t bytes) noexcept

    cdef cppclass Arena:
        Arena() except +
        Arena(int64_t pooled_bytes_max) except +
        Block allocate(int64_t bytes) except +
        ArenaStatistics statistics() noexcept
        void set_pooled_bytes_max(int64_t bytes) noexcept
        void release_pooled() except +
