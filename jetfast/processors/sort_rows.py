"""Sorts all rows of a bounded input: they leave when it has ended."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from jetfast.core.batch import Batch, batches_from_arrow, concatenate
from jetfast.core.items import Output
from jetfast.core.processor import BROADCAST, Processor, ProcessorContext, StateBatch

Order = Literal["ascending", "descending"]


class SortRows(Processor):
    """Keeps all rows, and the watermark with them. Nulls come last, NaN before them; equal rows as they came.

    There is one such processor, since rows of several would have to be merged by one anyway.

    Parameters
    ----------
    schema : of the rows
    by : columns, and the order of each
    """

    forwards_watermark = False

    def __init__(self, schema: pa.Schema, by: Sequence[tuple[str, Order]]) -> None:
        self.schema = schema
        self.by = list(by)

    def open(self, context: ProcessorContext) -> None:
        self.held: list[Batch] = []

    def process(self, ordinal: int, batch: Batch) -> Iterable[Output]:
        self.held.append(batch)
        return ()

    def complete(self) -> Iterator[Output]:
        held, self.held = self.held, []
        rows = pa.Table.from_batches([batch.to_arrow() for batch in held], self.schema)
        order = pc.sort_indices(rows, sort_keys=self.by)  # nulls at the end
        yield from batches_from_arrow(rows.take(order))

    def save_snapshot(self) -> Iterable[StateBatch]:
        if self.held:
            self.held = [concatenate(self.held)]
            yield StateBatch(BROADCAST, "rows", self.held[0].to_arrow())

    def restore_snapshot(self, state: StateBatch) -> None:
        self.held.append(Batch.from_arrow(state.rows))
