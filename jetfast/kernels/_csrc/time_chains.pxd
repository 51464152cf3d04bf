# Declarations of csrc/jetfast/time_chains.hpp
from libc.stdint cimport int32_t, int64_t, uint32_t, uint8_t


cdef extern from "jetfast/time_chains.hpp" namespace "jetfast" nogil:
    cdef cppclass TimeChains:
        int64_t size() noexcept
        const int64_t* times() noexcept
        const uint8_t* matched() noexcept
        int64_t bytes() noexcept
        void append(const uint32_t* slots, const int64_t* times, const uint8_t* matched, int64_t count,
                    uint32_t slot_limit) except +
        void probe(const uint32_t* slots, const int64_t* times, int64_t count, int64_t lower, int64_t upper,
                   uint8_t* found) noexcept
        int64_t next(int64_t rows_max, int32_t* probed, int32_t* rows) noexcept
        void find_latest(const uint32_t* slots, const int64_t* times, int64_t count, int64_t reach,
                         int32_t* rows) noexcept
        int64_t expire(int64_t bound, int32_t* rows) noexcept
        int64_t count_before(int64_t bound) noexcept
        int64_t keep(int64_t bound, int64_t floor, int32_t* rows) except +
