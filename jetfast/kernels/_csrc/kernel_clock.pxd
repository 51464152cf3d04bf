# Declares csrc/jetfast/kernel_clock.hpp.
from libc.stdint cimport int64_t


cdef extern from "jetfast/kernel_clock.hpp" namespace "jetfast" nogil:
    cppclass KernelClock:
        void enter() noexcept
        void leave() noexcept
        void begin_sample() noexcept
        void end_sample(int64_t* cpu_ns, int64_t* kernel_ns) noexcept
