# What every kernel cimports from clocks.pyx: the clock of the calling thread, to enter and leave.
from jetfast.kernels._csrc.kernel_clock cimport KernelClock


cdef KernelClock* kernel_clock() noexcept nogil
