"""What joins of two streams have in common: doors of both sides, how far lateness was judged, and what comes back."""

from abc import abstractmethod
from collections.abc import Sequence

import pyarrow as pa

from jetfast.core.batch import Batch
from jetfast.core.joins import LATE_PORTS, SIDE_KINDS, Join
from jetfast.core.processor import Processor, ProcessorContext, StateBatch
from jetfast.processors import partition_bounds
from jetfast.processors.joined_rows import JoinedRows
from jetfast.processors.keyed_rows import KeyedRows
from jetfast.processors.partition_bounds import PartitionBounds


class StreamJoin(Processor):
    """A join whose state are rows of both sides. Late rows go to the late port of their side."""

    def __init__(self, join: Join) -> None:
        self.join = join

    def open(self, context: ProcessorContext) -> None:
        self.inputs = [
            KeyedRows(side, port, kind, context)
            for side, port, kind in zip(self.join.sides, LATE_PORTS, SIDE_KINDS, strict=True)
        ]
        self.result = JoinedRows(self.join)
        self.bounds = PartitionBounds(context)
        """What is before them is late."""
        self.restored: tuple[list[pa.RecordBatch], list[pa.RecordBatch]] = ([], [])

    def restore_snapshot(self, state: StateBatch) -> None:
        if state.kind == partition_bounds.KIND:
            self.bounds.restore(state)
        else:
            self.restored[SIDE_KINDS.index(state.kind)].append(state.rows)

    def finish_restore(self) -> None:
        for ordinal, (side, states) in enumerate(zip(self.inputs, self.restored, strict=True)):
            rows = side.joined(states)
            if rows is not None:
                self.take_back(ordinal, rows, states)
        self.restored = ([], [])
        self.bounds.finish_restore()

    @abstractmethod
    def take_back(self, ordinal: int, rows: Batch, states: Sequence[pa.RecordBatch]) -> None:
        """Keep the rows of one side that were saved; `states` as they were, with columns of the join itself."""
