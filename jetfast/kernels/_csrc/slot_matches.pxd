# Declarations of csrc/jetfast/slot_matches.hpp
from libc.stdint cimport int32_t, int64_t, uint32_t
from libcpp cimport bool as cbool


cdef extern from "jetfast/slot_matches.hpp" namespace "jetfast" nogil:
    cdef const uint32_t kJoinsNothing

    cdef cppclass SlotMatches:
        SlotMatches(const uint32_t* slots, int64_t count, uint32_t slot_limit) except +
        int64_t right_count() noexcept
        void probe(const uint32_t* slots, int64_t count) noexcept
        int64_t count_next(int64_t rows_max, cbool keep_left) noexcept
        int64_t next(int64_t rows_max, cbool keep_left, int32_t missing, int32_t* left, int32_t* right) noexcept
        int64_t unmatched(int32_t* rows) noexcept
