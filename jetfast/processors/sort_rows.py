"""Sorts all rows of a bounded input: they leave when it has ended."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jetfast.core.batch import Batch, batches_from_arrow, concatenate
from jetfast.core.batch_aggregate import plain_array, plain_type
from jetfast.core.items import Output
from jetfast.core.processor import BROADCAST, Processor, ProcessorContext, StateBatch
from jetfast.types import BATCH_ROWS_MAX

Order = Literal["ascending", "descending"]
SortKey = tuple[str, Order]


def order_of(rows: pa.Table, by: Sequence[SortKey]) -> pa.Array:
    """Indices of the rows in order, nulls at the end. TypeError names a column of a type that has no order."""
    keys = []
    for name, _ in by:
        column = rows.column(name)
        if pa.types.is_nested(plain_type(column.type)) or column.type == pa.month_day_nano_interval():
            raise TypeError(f"column {name!r} of type {column.type} has no order")
        keys.append(pa.chunked_array([_sortable(chunk) for chunk in column.chunks], _sortable_type(column.type)))
    numbered = [(str(number), order) for number, (_, order) in enumerate(by)]
    return pc.sort_indices(pa.table(keys, [name for name, _ in numbered]), sort_keys=numbered)


def _sortable_type(data_type: pa.DataType) -> pa.DataType:
    """Arrow sorts by no dictionaries, views and half floats: what they are sorted by. Text is large: chunks add up."""
    plain = plain_type(data_type)
    if plain != data_type or is_view(data_type):
        large = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}
        return large.get(plain, plain)
    return pa.float32() if data_type == pa.float16() else data_type


def _sortable(array: pa.Array) -> pa.Array:
    return plain_array(array).cast(_sortable_type(array.type))


def is_view(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_string_view(data_type) or pa.types.is_binary_view(data_type))


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
