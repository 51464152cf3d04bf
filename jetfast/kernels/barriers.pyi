"""Types of barriers.pyx: waiting until a snapshot barrier has come on every queue."""

class BarrierAligner:
    """SEMANTICS 3. Queues 0 .. queue_count-1 over all inbound edges of one processor."""

    def __init__(self, queue_count: int, exactly_once: bool) -> None: ...
    def observe_barrier(self, queue: int, snapshot_id: int, terminal: bool = False) -> bool: ...  # True: aligned
    def observe_done(self, queue: int) -> bool: ...  # True: this completed an alignment
    def is_blocked(self, queue: int) -> bool: ...  # nothing may be read from it now
    def is_missing(self, queue: int) -> bool: ...  # its barrier is waited for; any thread
    @property
    def aligning(self) -> int | None: ...  # the snapshot id that is being aligned
    def release(self) -> None: ...  # state saved, barrier forwarded: read again (after a terminal one: never)
