"""Types of clocks.pyx: CPU time in kernels and outside of them."""

class CpuSampler:
    """Adds up samples of one thread's CPU time, nanoseconds."""

    cpu_ns: int
    kernel_ns: int  # of which in kernels, without the GIL
    def begin(self) -> None: ...
    def end(self) -> None: ...  # ValueError without begin
