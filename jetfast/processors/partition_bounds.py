"""How far a step has judged lateness, for each partition of keys: by the watermark, or further before a restart."""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from jetfast.core.processor import BROADCAST, ProcessorContext, StateBatch
from jetfast.errors import JobDefinitionError
from jetfast.kernels.partitioning import assign_partitions
from jetfast.types import MIN_TIME

KIND = "bounds"
_SCHEMA = pa.schema([("partition_count", pa.int32()), ("partition", pa.int32()), ("bound", pa.int64())])


def save_bounds(partition_count: int, bounds: Mapping[int, int]) -> list[StateBatch]:
    """Return the bounds of one processor's partitions as its state; nothing if there are none."""
    if not bounds:
        return []
    columns = [[partition_count] * len(bounds), list(bounds), list(bounds.values())]
    rows = [pa.array(column, field.type) for column, field in zip(columns, _SCHEMA, strict=True)]
    return [StateBatch(BROADCAST, KIND, pa.record_batch(rows, schema=_SCHEMA))]


class RestoredBounds:
    """Collects the bounds that all processors of a step have saved, for one that is restored."""

    def __init__(self, context: ProcessorContext) -> None:
        self.vertex = context.vertex
        self.partition_count = self.saved_count = context.partition_count
        self.saved: dict[int, int] = {}

    def add(self, state: StateBatch) -> None:
        """Take in what one processor has saved."""
        for count, partition, bound in zip(*(column.to_pylist() for column in state.rows.columns), strict=True):
            self.saved_count = count
            self.saved[partition] = max(bound, self.saved.get(partition, bound))

    def by_partition(self) -> dict[int, int]:
        """Return the bound of each partition that has one.

        If the snapshot was taken with another number of partitions, each of today holds keys of several of then: that
        can be only if all had the same bound. Raises JobDefinitionError if they had not: some results would be lost, or
        given twice.
        """
        if self.saved_count == self.partition_count:
            return self.saved
        bounds = set(self.saved.values())
        if len(bounds) > 1 or len(self.saved) < self.saved_count:
            raise JobDefinitionError(
                f"step {self.vertex!r} cannot be restored with {self.partition_count} key partitions: its snapshot "
                f"has {self.saved_count}, and not all of them had given their results up to the same time. Start the "
                f"cluster with partition_count={self.saved_count}, and take a snapshot while no input is idle"
            )
        return dict.fromkeys(range(self.partition_count), bounds.pop())


class PartitionBounds:
    """The watermark of a processor, and the greater ones that its partitions had when they were saved.

    Processors may differ legally when inputs were idle: who owns partitions of several treats each by its own bound
    until the watermark has passed the greatest.
    """

    def __init__(self, context: ProcessorContext) -> None:
        self.partition_count = context.partition_count
        self.owned = range(context.partition_count) if context.partitions is None else context.partitions
        self.watermark = MIN_TIME
        self.coming_back = RestoredBounds(context)
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

    def save(self) -> list[StateBatch]:
        """State that `restore` takes back."""
        bounds = {partition: max(self.watermark, self.restored.get(partition, MIN_TIME)) for partition in self.owned}
        return save_bounds(self.partition_count, {home: bound for home, bound in bounds.items() if bound > MIN_TIME})

    def restore(self, state: StateBatch) -> None:
        """Take back what `save` gave of one processor."""
        self.coming_back.add(state)

    def finish_restore(self) -> None:
        """All has come back. Errors as of `RestoredBounds.by_partition`."""
        bounds = self.coming_back.by_partition()
        self.restored = {partition: bounds[partition] for partition in self.owned if partition in bounds}
