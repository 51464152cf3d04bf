"""Windows by key: a table of open windows that rows enter, watermarks make emit, and snapshots save."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, TypeVar

import pyarrow as pa

from jetfast.core.aggregate import AggregateColumn, AnyAggregateColumn
from jetfast.core.batch import Batch
from jetfast.core.items import Emit, Output
from jetfast.core.processor import BY_KEYS, Processor, ProcessorContext, StateBatch
from jetfast.core.windows import SessionWindow, Window
from jetfast.kernels.sessions import SessionTable
from jetfast.kernels.windows import WindowTable
from jetfast.processors import partition_bounds
from jetfast.processors.batch_tables import BatchSessionTable, BatchWindowTable
from jetfast.processors.partition_bounds import RestoredBounds, save_bounds
from jetfast.types import MAX_TIME

LATE_PORT = 1
"""Rows that missed a window: the input's columns and `missed_until`, the end of the last window missed."""

Definition = TypeVar("Definition", Window, SessionWindow)
Table = TypeVar("Table", WindowTable | BatchWindowTable, SessionTable | BatchSessionTable)


class KeyedWindow(Processor, Generic[Definition, Table]):
    """What windows of every kind have in common: a table that watermarks make emit, saved and restored.

    Parameters
    ----------
    schema : of the rows (of the first stage's input, if there are two)
    keys : columns to group by; none: all rows together
    time : event-time column (timestamp or date)
    aggregates : result columns
    window : its definition
    """

    state_kind = "windows"

    def __init__(
        self,
        schema: pa.Schema,
        keys: Sequence[str],
        time: str,
        aggregates: Sequence[AnyAggregateColumn],
        window: Definition,
    ) -> None:
        self.schema = schema
        self.keys = tuple(keys)
        self.time = time
        self.aggregates = tuple(aggregates)
        self.window: Definition = window

    def open(self, context: ProcessorContext) -> None:
        self.context = context
        self.counters = context.counters
        self.restored_bounds = RestoredBounds(context)
        self.collect_late = LATE_PORT in context.connected_ports
        self.table: Table = self.make_table(context)
        self.count_rows()

    def make_table(self, context: ProcessorContext) -> Table:
        """Make the table for this kind of window."""
        raise NotImplementedError

    def table_arguments(self) -> tuple[pa.Schema, Sequence[str], str, list[tuple[str, str, str | None]]]:
        """What every kind of table takes first: schema, keys, time, aggregates."""
        return self.schema, self.keys, self.time, kernel_aggregates(self.aggregates)

    @property
    def has_batch_aggregates(self) -> bool:
        """Are there aggregates that the kernel's table does not compute?"""
        return not all(isinstance(aggregate, AggregateColumn) for aggregate in self.aggregates)

    def process(self, ordinal: int, batch: Batch) -> tuple[Output, ...]:
        """Take in rows; those that missed a window go to port 1 if somebody reads it."""
        late = self.table.accumulate(batch, self.collect_late)
        self.count_rows()
        return () if late is None else (Emit(LATE_PORT, late),)

    def process_watermark(self, watermark: int) -> Iterable[Output]:
        # Most watermarks end no window.
        return self.emit() if self.table.advance(watermark) else ()

    def emit(self) -> Iterator[Output]:
        """The results that are due."""
        emit_run = self.table.emit_run
        while results := emit_run():
            yield results

    def complete(self) -> Iterable[Output]:
        return self.process_watermark(MAX_TIME)

    def save_snapshot(self) -> Iterator[StateBatch]:
        for rows in self.table.save():
            yield StateBatch(BY_KEYS, self.state_kind, rows, self.keys)
        yield from save_bounds(self.context.partition_count, self.table.bounds())

    def restore_snapshot(self, state: StateBatch) -> None:
        if state.kind == partition_bounds.KIND:
            self.restored_bounds.add(state)
        elif state.kind == self.state_kind:
            self.table.restore(state.rows)
        else:
            raise ValueError(f"this step saves {self.state_kind} and {partition_bounds.KIND}, not {state.kind!r}")

    def finish_restore(self) -> None:
        for partition, bound in self.restored_bounds.by_partition().items():
            self.table.restore_bound(partition, bound)
        self.table.finish_restore()
        self.count_rows()

    def count_rows(self) -> None:
        """Every row is in exactly one of these."""
        counters = self.counters
        (
            counters["on_time_rows"],
            counters["late_rows"],
            counters["partly_late_rows"],
            counters["rejected_rows"],
        ) = self.table.row_counts()


def kernel_aggregates(aggregates: Sequence[AnyAggregateColumn]) -> list[tuple[str, str, str | None]]:
    """Those of the aggregates that the kernel's table computes."""
    return [(each.name, each.kind.value, each.column) for each in aggregates if isinstance(each, AggregateColumn)]
