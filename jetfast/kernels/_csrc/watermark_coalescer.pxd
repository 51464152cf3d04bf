# Declares csrc/jetfast/watermark_coalescer.hpp.
from libc.stdint cimport int64_t
from libcpp cimport bool as cpp_bool


cdef extern from "jetfast/watermark_coalescer.hpp" namespace "jetfast::WatermarkCoalescer" nogil:
    cppclass Forwarded:
        cpp_bool active
        cpp_bool has_watermark
        cpp_bool idle
        int64_t watermark


cdef extern from "jetfast/watermark_coalescer.hpp" namespace "jetfast" nogil:
    cppclass WatermarkCoalescer:
        WatermarkCoalescer(size_t input_count) except +
        size_t input_count()
        int64_t watermark()
        cpp_bool idle()
        int64_t input_watermark(size_t input)
        cpp_bool is_idle(size_t input)
        cpp_bool is_done(size_t input)
        Forwarded observe_watermark(size_t input, int64_t value) noexcept
        Forwarded observe_idle(size_t input) noexcept
        Forwarded observe_active(size_t input) noexcept
        Forwarded observe_done(size_t input) noexcept
