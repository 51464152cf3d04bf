# distutils: language = c++
"""How much of a thread's CPU time is spent in kernels, and how much in Python around them."""

from libc.stdint cimport int64_t

from jetfast.kernels._csrc.kernel_clock cimport KernelClock

cdef extern from *:
    """
    #include "jetfast/kernel_clock.hpp"
    static inline jetfast::KernelClock* clock_of_this_thread() {
      static thread_local jetfast::KernelClock clock;
      return &clock;
    }
    """
    KernelClock* clock_of_this_thread() noexcept nogil


cdef KernelClock* kernel_clock() noexcept nogil:
    return clock_of_this_thread()


cdef class CpuSampler:
    """Adds up the CPU time of samples of one thread, and the part of it in kernels while they do not hold the GIL.

    `begin` and `end` are called by that thread, around the same work; samples of one thread do not overlap. The totals may
    be read by any thread. What the measuring itself takes is deducted.
    """

    cdef readonly int64_t cpu_ns
    cdef readonly int64_t kernel_ns
    cdef KernelClock* clock

    def begin(self):
        self.clock = kernel_clock()
        self.clock.begin_sample()

    def end(self):
        """Add this sample. ValueError if none was begun."""
        cdef int64_t cpu_ns = 0, kernel_ns = 0
        if self.clock is NULL:
            raise ValueError("end() needs a begin() before it")
        self.clock.end_sample(&cpu_ns, &kernel_ns)
        self.clock = NULL
        self.cpu_ns += cpu_ns
        self.kernel_ns += kernel_ns
