"""How far a step has judged lateness, for each partition of keys: by the watermark, or further before a restart."""

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from jetfast.core.processor import ProcessorContext, StateBatch
from jetfast.kernels.partitioning import assign_partitions
from jetfast.types import MIN_TIME

KIND = "bounds"


class PartitionBounds:
    """The watermark of a processor, and the greater ones that its partitions had when they were saved.

    Processors may differ legally when inputs were idle: who owns partitions of several treats each by its own bound
    until the watermark has passed the greatest.
    """

    def __init__(self, context: ProcessorContext) -> None:
        self.partition_count = context.partition_count
        self.owned = range(context.partition_count) if context.partitions is None else context.partitions
        self.watermark = MIN_TIME
        self.restored: dict[int, int] = {}
        """By partition; empty once the watermark has passed them."""

    def advance(self, watermark: int) -> None:
        """Event time has reached a watermark."""
        self.watermark = max(self.watermark, watermark)
        if self.restored and self.watermark >= max(self.restored.values()):
            self.restored = {}

    @property
    def is_open(self) -> bool:
        """Can no row be late yet?"""
        return self.watermark == MIN_TIME and not self.restored

    def of_rows(self, rows: pa.RecordBatch, keys: Sequence[str]) -> int | npt.NDArray[np.int64]:
        """The bound of each row by its keys, shape (rows,), or the one that all have."""
        if not self.restored:
            return self.watermark
        bounds = np.full(self.partition_count, self.watermark, np.int64)
        for partition, bound in self.restored.items():
            bounds[partition] = max(bound, self.watermark)
        if not keys:
            return int(bounds[0])
        by_row: npt.NDArray[np.int64] = bounds[
            assign_partitions([rows.column(key) for key in keys], self.partition_count)
        ]
        return by_row

    def save(self) -> Iterator[StateBatch]:
        """State that `restore` takes back."""
        saved: dict[int, pa.RecordBatch] = {}
        for partition in self.owned:
            bound = max(self.watermark, self.restored.get(partition, MIN_TIME))
            if bound == MIN_TIME:
                continue
            if bound not in saved:  # nearly always all have the same
                saved[bound] = pa.record_batch({"bound": [bound]})
            yield StateBatch(partition, KIND, saved[bound])

    def restore(self, state: StateBatch) -> None:
        """Take back what `save` gave of one partition."""
        bound = state.rows["bound"][0].as_py()
        self.restored[state.partition] = max(bound, self.restored.get(state.partition, MIN_TIME))
