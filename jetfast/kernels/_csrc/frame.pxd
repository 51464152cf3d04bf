# Declarations of csrc/jetfast/frame.hpp
from libc.stdint cimport int64_t


cdef extern from "jetfast/frame.hpp" namespace "jetfast" nogil:
    cdef cppclass WindowShape:
        int64_t size
        int64_t slide
        int64_t offset
        int64_t floor(int64_t time) noexcept
        int64_t frame_of(int64_t time) noexcept
        int64_t last_window_of_frame(int64_t frame) noexcept
