# Declares csrc/jetfast/kernel_clock.hpp.
from libc.stdint cimport int64_t

from jetfast.kernels._csrc.python_turn cimport PythonTurn


cdef extern from "jetfast/kernel_clock.hpp" namespace "jetfast" nogil:
    cppclass KernelClock:
        PythonTurn turn
        void enter() noexcept
        void leave() noexcept
        void begin_sample() noexcept
        void end_sample(int64_t* cpu_ns, int64_t* kernel_ns) noexcept
