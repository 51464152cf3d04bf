"""Sorts all rows of a bounded input: they leave when it has ended."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from jetfast.core.batch import Batch, batches_from_arrow, concatenate
from jetfast.core.items import Output
from jetfast.core.processor import BROADCAST, Processor, ProcessorContext, StateBatch
from jetfast.core.sort_order import SortKey, is_view, order_of
from jetfast.types import BATCH_ROWS_MAX


class SortRows(Processor):
    """Keeps all rows, and the watermark with them. Nulls come last, NaN before them; equal rows as they came.

    There is one such processor, since rows of several would have to be merged by one anyway.

    Parameters
    ----------
    schema : of the rows
    by : columns, and the order of each
    """

    forwards_watermark = False

    def __init__(self, schema: pa.Schema, by: Sequence[SortKey]) -> None:
        self.schema = schema
        self.by = list(by)

    def open(self, context: ProcessorContext) -> None:
        self.held: list[Batch] = []

    def process(self, ordinal: int, batch: Batch) -> Iterable[Output]:
        self.held.append(batch)
        return ()

    def complete(self) -> Iterator[Output]:
        held, self.held = self.held, []
        batches = [batch.to_arrow() for batch in held]
        order = order_of(pa.Table.from_batches(batches, self.schema), self.by)
        if not any(map(is_view, self.schema.types)):
            yield from batches_from_arrow(pa.Table.from_batches(batches, self.schema).take(order))
        elif held:  # Arrow takes no views
            rows = concatenate(held)
            for start in range(0, rows.row_count, BATCH_ROWS_MAX):
                yield rows.take(order.slice(start, BATCH_ROWS_MAX).to_numpy().astype(np.int32))

    def save_snapshot(self) -> Iterable[StateBatch]:
        if self.held:
            self.held = [concatenate(self.held)]
            yield StateBatch(BROADCAST, "rows", self.held[0].to_arrow())

    def restore_snapshot(self, state: StateBatch) -> None:
        self.held.append(Batch.from_arrow(state.rows))
