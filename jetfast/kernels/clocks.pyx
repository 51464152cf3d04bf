# distutils: language = c++
"""What stands at both ends of each kernel: how much CPU time is spent in it and around it, and whose turn it is to run Python."""

from libc.stdint cimport int64_t

from jetfast.kernels._csrc.kernel_clock cimport KernelClock

cdef extern from *:
    """
    #include "jetfast/kernel_clock.hpp"
    static inline jetfast::KernelClock* clock_of_this_thread() {
      static std::atomic<bool> turn_taken{false};
      static thread_local jetfast::KernelClock clock(&turn_taken);
      return &clock;
    }
    """
    KernelClock* clock_of_this_thread() noexcept nogil


cdef KernelClock* kernel_clock() noexcept nogil:
    return clock_of_this_thread()


def join_turns():
    """Let the calling thread take turns with others in running Python, see csrc/jetfast/python_turn.hpp.

    For threads that call kernels most of the time and otherwise sleep nowhere, unless they call `give_turn` before.
    """
    kernel_clock().turn.join()


def give_turn():
    """The calling thread is going to sleep: another one may run Python. It takes its next turn after its next kernel."""
    kernel_clock().turn.give()


def leave_turns():
    """The calling thread takes no turns any more."""
    kernel_clock().turn.leave()


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
