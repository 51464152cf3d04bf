"""Types of clocks.pyx: CPU time in kernels and outside of them, and turns in running Python."""

def join_turns() -> None: ...  # this thread waits for others, awake, before it asks for the GIL after a kernel
def give_turn() -> None: ...  # this thread is going to sleep
def leave_turns() -> None: ...

class CpuSampler:
    """Adds up samples of one thread's CPU time, nanoseconds."""

    cpu_ns: int
    kernel_ns: int  # of which in kernels, without the GIL
    def begin(self) -> None: ...
    def end(self) -> None: ...  # ValueError without begin
