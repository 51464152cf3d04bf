"""Joins a stream with a bounded side that was read before: a table by key."""

from collections.abc import Iterator

import pyarrow as pa

from jetfast.core.batch import Batch, concatenate
from jetfast.core.items import Output
from jetfast.core.joins import LATE_PORTS, LEFT, RIGHT, SIDE_KINDS, Join
from jetfast.core.processor import Processor, ProcessorContext, StateBatch
from jetfast.kernels.joins import SlotMatches
from jetfast.processors.join_keys import KeySlots
from jetfast.processors.joined_rows import JoinedRows
from jetfast.processors.keyed_rows import KeyedRows
from jetfast.types import BATCH_ROWS_MAX


class HashJoinProcessor(Processor):
    """Each row of the left side meets the rows of the right side that have its keys: those are all there before.

    The right edge is read to its end first. Its rows are the state, the same in every snapshot.

    Parameters
    ----------
    join : an inner or a left join
    """

    def __init__(self, join: Join) -> None:
        self.join = join
        self.keeps_left = join.join_type.keeps[LEFT]

    def open(self, context: ProcessorContext) -> None:
        self.table_input = KeyedRows(self.join.sides[RIGHT], LATE_PORTS[RIGHT], SIDE_KINDS[RIGHT], context)
        self.result = JoinedRows(self.join)
        self.held: list[Batch] = []
        """Of the right side, as they came."""
        self.restored: list[pa.RecordBatch] = []
        self.table: Batch | None = None
        """What the result needs of the right side, once that is complete."""
        self.saved: list[StateBatch] | None = None

    def process(self, ordinal: int, batch: Batch) -> Iterator[Output] | tuple[Output, ...]:
        if ordinal == LEFT:
            return self.join_rows(batch)
        self.held.append(batch)
        self.table = self.saved = None
        return ()

    def join_rows(self, batch: Batch) -> Iterator[Output]:
        if self.table is None:
            self.table = self.make_table()
        self.matches.probe(self.keys.find(LEFT, batch))
        part = self.result.left_part(batch)
        while (pairs := self.matches.next(BATCH_ROWS_MAX, self.keeps_left)) is not None:
            left_rows, right_rows = pairs
            yield self.result.pairs(part.take(left_rows), self.table.take(right_rows))

    def make_table(self) -> Batch:
        """Index all rows of the right side."""
        side = self.join.sides[RIGHT]
        rows = concatenate(self.held) if self.held else Batch.empty(side.schema)
        self.held = [rows]
        self.keys = KeySlots(self.join)
        slots = self.keys.of_rows(RIGHT, rows)
        self.matches = SlotMatches(slots, self.keys.limit)
        part = self.result.right_part(rows)
        return self.result.nulls[RIGHT].behind(part) if self.keeps_left else part

    def save_snapshot(self) -> list[StateBatch]:
        if self.saved is None:
            self.saved = self.table_input.saved(concatenate(self.held)) if self.held else []
        return self.saved

    def restore_snapshot(self, state: StateBatch) -> None:
        assert state.kind == SIDE_KINDS[RIGHT]
        self.restored.append(state.rows)

    def finish_restore(self) -> None:
        rows = self.table_input.joined(self.restored)
        self.restored = []
        if rows is not None:
            self.held.append(rows)
