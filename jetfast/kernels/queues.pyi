"""Types of queues.pyx: the bounded queue between two tasklets, and the memory budget that all queues of a job share."""

import pyarrow as pa

from jetfast.kernels.columns import Batch, BatchRun

class MemoryBudget:
    """Bytes that wait in all channels of a job, against a limit. Any thread."""

    def __init__(self, limit_bytes: int) -> None: ...
    @property
    def limit_bytes(self) -> int: ...
    @property
    def used_bytes(self) -> int: ...
    @property
    def peak_bytes(self) -> int: ...

class SpscQueue:
    """Bounded queue of Python objects, one producer thread and one consumer thread, without locks (cached indexes).

    With a budget: an empty queue always takes one item, more only while the budget's total is below its limit.
    A BatchRun has room while at most a quarter of the capacity is taken.
    """

    def __init__(self, capacity: int, budget: MemoryBudget | None = None) -> None: ...
    def offer(self, item: object, nbytes: int = 0) -> bool: ...  # producer; False: no room now
    def poll(self) -> object | None: ...  # consumer
    def poll_batches(self, rows_max: int, schema: pa.Schema) -> list[Batch | BatchRun]: ...  # consumer
    def peek(self) -> object | None: ...  # consumer
    def __len__(self) -> int: ...
    @property
    def capacity(self) -> int: ...
