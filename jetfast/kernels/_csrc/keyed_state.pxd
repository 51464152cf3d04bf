# Declarations of csrc/jetfast/keyed_state.hpp
from libc.stdint cimport int32_t, int64_t, uint32_t, uint8_t
from libcpp cimport bool as cbool


cdef extern from "jetfast/keyed_state.hpp" namespace "jetfast" nogil:
    cdef const int64_t kNeverSeen
    void note_times(const uint32_t* slots, const int64_t* times, int64_t count, int64_t* seen) noexcept
    int64_t keep_first(const uint32_t* slots, const int64_t* times, int64_t count, int64_t horizon, int64_t* seen,
                       int32_t* rows) noexcept
    int64_t number_states(const uint32_t* slots, const int64_t* times, int64_t count, int64_t ttl, int64_t* seen,
                          int32_t* group_of_slot, int64_t* groups, uint32_t* slots_of, int32_t* before,
                          int64_t* ended) noexcept
    void run_counts(const uint32_t* slots, const uint8_t* valid, int64_t count, int64_t* counts,
                    int64_t* results) noexcept
    int64_t run_sums(const uint32_t* slots, const int64_t* values, const uint8_t* valid, int64_t count, int64_t* sums,
                     int64_t* results) noexcept
    void run_extremes(const uint32_t* slots, const int64_t* values, const uint8_t* valid, int64_t count, cbool greatest,
                      int64_t* counts, int64_t* extremes, int64_t* results) noexcept
    int64_t run_sums(const uint32_t* slots, const double* values, const uint8_t* valid, int64_t count, double* sums,
                     double* results) noexcept
    void run_extremes(const uint32_t* slots, const double* values, const uint8_t* valid, int64_t count, cbool greatest,
                      int64_t* counts, double* extremes, double* results) noexcept
