"""First stage of a window in two: near the source, makes one partial per key and frame out of many rows."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import pyarrow as pa

from jetfast.core.aggregate import AggregateColumn, AnyAggregateColumn
from jetfast.core.batch import Batch, BatchRun
from jetfast.core.items import MAIN_PORT, Emit, EmitRun, Output
from jetfast.core.processor import Processor, ProcessorContext
from jetfast.core.windows import Window
from jetfast.kernels.windows import FrameTable
from jetfast.processors.batch_tables import BatchFrameTable
from jetfast.processors.keyed_window import kernel_aggregates

SHARED_ROWS_AT_ONCE = 1 << 20
"""Frames that leave as they lie leave all together, for nothing is copied."""


class AccumulateByFrame(Processor):
    """Accumulates by key and frame, judges nothing, and saves nothing: what it holds leaves ahead of a barrier.

    Partials leave when the watermark passes the end of their frame, when all inputs turn idle, at a barrier and at
    the end; a row of a frame that has left opens a new partial. Parameters as of `SlidingWindowProcessor`.
    """

    port = MAIN_PORT
    """Where partials leave."""

    def __init__(
        self,
        schema: pa.Schema,
        keys: Sequence[str],
        time: str,
        aggregates: Sequence[AnyAggregateColumn],
        window: Window,
    ) -> None:
        table = FrameTable(
            schema,
            tuple(keys),
            time,
            kernel_aggregates(aggregates),
            window.size_us,
            window.slide_us,
            window.offset_us,
        )
        self.frames = table
        only_kernel = all(isinstance(aggregate, AggregateColumn) for aggregate in aggregates)
        self.table: FrameTable | BatchFrameTable = (
            table if only_kernel else BatchFrameTable(table, schema, len(keys), time, aggregates, window)
        )

    @property
    def partial_schema(self) -> pa.Schema:
        """Schema of what leaves."""
        return self.table.partial_schema

    def open(self, context: ProcessorContext) -> None:
        self.counters = context.counters
        self.counters["rejected_rows"] = 0
        owners = context.partition_owners.get(self.port)
        self.knows_owners = owners is not None and self.table is self.frames
        self.take_partial_run: Callable[[], list[tuple[int, BatchRun]]] = self.table.take_partial_run
        if owners is not None and self.knows_owners:
            self.frames.set_owners(owners, int(owners.max()) + 1)
            self.frames.share_frames()
            self.take_partial_run = partial(self.frames.take_partial_run, SHARED_ROWS_AT_ONCE)

    def process(self, ordinal: int, batch: Batch) -> Iterable[Output]:
        return self.accumulate((batch,))

    def process_batches(self, ordinal: int, batches: BatchRun) -> Iterable[Output]:
        return self.accumulate(batches)

    def accumulate(self, batches: BatchRun | tuple[Batch]) -> Iterable[Output]:
        """Take in rows."""
        table = self.table
        table.accumulate_all(batches)
        self.counters["rejected_rows"] = table.rejected_rows
        return ()

    def process_watermark(self, watermark: int) -> Iterable[Output]:
        self.table.advance(watermark)
        return self.take_partials()

    def process_idle(self) -> Iterable[Output]:
        return self.flush()

    def process_barrier(self) -> Iterable[Output]:
        return self.flush()

    def complete(self) -> Iterable[Output]:
        return self.flush()

    def flush(self) -> Iterator[Output]:
        """Give every partial, of any frame."""
        self.table.flush()
        return self.take_partials()

    def take_partials(self) -> Iterator[Output]:
        """Give the partials that are due."""
        while run := self.take_partial_run():
            for owner, partials in run:
                if self.knows_owners:
                    yield EmitRun(self.port, partials, owner)
                elif self.port == MAIN_PORT:
                    yield partials
                else:
                    yield from (Emit(self.port, each) for each in partials)
