# Declares csrc/jetfast/barrier_aligner.hpp.
from libc.stdint cimport int64_t
from libcpp cimport bool as cpp_bool


cdef extern from "jetfast/barrier_aligner.hpp" namespace "jetfast::BarrierAligner" nogil:
    enum class Outcome(unsigned char):
        waiting
        aligned
        error_done
        error_repeated
        error_id
        error_terminal
        error_phase


cdef extern from "jetfast/barrier_aligner.hpp" namespace "jetfast" nogil:
    cppclass BarrierAligner:
        BarrierAligner(size_t queue_count, cpp_bool exactly_once) except +
        size_t queue_count()
        cpp_bool is_aligning()
        int64_t snapshot_id()
        int64_t expected_id()
        cpp_bool is_done(size_t queue)
        cpp_bool is_missing(size_t queue)
        Outcome observe_barrier(size_t queue, int64_t snapshot_id, cpp_bool terminal) noexcept
        Outcome observe_done(size_t queue) noexcept
        cpp_bool is_blocked(size_t queue) noexcept
        cpp_bool release() noexcept
