"""The best results of each window: of those that come to one processor, and of all."""

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jetfast.core.batch import Batch
from jetfast.core.items import Output
from jetfast.core.processor import BY_KEYS, Processor, ProcessorContext, StateBatch
from jetfast.core.sort_order import take_rows
from jetfast.core.top_results import RANK, WINDOW_END, TopResults
from jetfast.kernels.columns import batches_from_arrow
from jetfast.processors.partition_bounds import PartitionBounds
from jetfast.types import MAX_TIME

COMPACT_ROWS = 32_768
"""So many results more than were kept last are held before those that are not among the best are thrown away."""


class LocalTopOfWindows(Processor):
    """Of the results that come here, keeps the best of each window: fewer of them cross to where all meet.

    Judges nothing and saves nothing: what it holds leaves ahead of a watermark that ends its window, a barrier, I
    and the end.

    Parameters
    ----------
    schema : of the results of a window
    top : which of them are kept
    """

    def __init__(self, schema: pa.Schema, top: TopResults) -> None:
        self.schema = schema
        self.top = top

    def open(self, context: ProcessorContext) -> None:
        self.held: list[pa.RecordBatch] = []
        self.row_limit = COMPACT_ROWS
        self.row_count = 0
        self.next_end = MAX_TIME
        """The least window end that is held."""

    def process(self, ordinal: int, batch: Batch) -> tuple[Output, ...]:
        self.hold(batch.to_arrow())
        if self.row_count > self.row_limit:
            best, _ = self.top.choose(self.take_held())
            self.hold_all(best)
            self.row_limit = self.row_count + COMPACT_ROWS
        return ()

    def process_watermark(self, watermark: int) -> Iterable[Output]:
        return self.give(watermark) if self.next_end <= watermark else ()

    def process_idle(self) -> Iterable[Output]:
        return self.give(MAX_TIME)

    def process_barrier(self) -> Iterable[Output]:
        return self.give(MAX_TIME)

    def complete(self) -> Iterable[Output]:
        return self.give(MAX_TIME)

    def give(self, watermark: int) -> Iterator[Output]:
        """The best results of the windows that end at or before a watermark; the others stay."""
        if not self.held:
            return
        results = self.take_held()
        due = times_of(results).to_numpy() <= watermark
        self.hold_all(take_rows(results, pa.array(np.flatnonzero(~due))))
        yield from batches_from_arrow(
            self.finished(*self.top.choose(take_rows(results, pa.array(np.flatnonzero(due)))))
        )

    def finished(self, best: pa.Table, ranks: np.ndarray) -> pa.Table:
        """What leaves of the best results."""
        return best

    def hold(self, rows: pa.RecordBatch) -> None:
        """Keep results until their window ends."""
        if rows.num_rows:
            self.held.append(rows)
            self.row_count += rows.num_rows
            self.next_end = min(self.next_end, pc.min(times_of(rows)).as_py())

    def hold_all(self, results: pa.Table) -> None:
        for batch in results.to_batches():
            self.hold(batch)

    def take_held(self) -> pa.Table:
        """Let go of all results that are held."""
        results = pa.Table.from_batches(self.held, self.held[0].schema)
        self.held, self.row_count, self.next_end = [], 0, MAX_TIME
        return results


class TopOfWindows(LocalTopOfWindows):
    """Of all results of a window, or of those of its groups, gives the best with their `rank`, when the window ends.

    Results of windows that were given already are late: dropped, and counted as late_rows.
    """

    def open(self, context: ProcessorContext) -> None:
        super().open(context)
        self.counters = context.counters
        self.counters["late_rows"] = 0
        self.bounds = PartitionBounds(context)
        """Windows that end at or before them were given."""

    def process(self, ordinal: int, batch: Batch) -> tuple[Output, ...]:
        if not self.bounds.is_open:
            rows = batch.to_arrow()
            on_time = times_of(rows).to_numpy() > self.bounds.of_rows(rows, self.top.per)
            late = len(on_time) - int(np.count_nonzero(on_time))
            if late:
                self.counters["late_rows"] += late
                batch = batch.take(np.flatnonzero(on_time).astype(np.int32))
        return super().process(ordinal, batch) if batch.row_count else ()

    def process_watermark(self, watermark: int) -> Iterable[Output]:
        self.bounds.advance(watermark)
        return super().process_watermark(watermark)

    def process_idle(self) -> Iterable[Output]:
        return ()

    def process_barrier(self) -> Iterable[Output]:
        return ()

    def finished(self, best: pa.Table, ranks: np.ndarray) -> pa.Table:
        return best.append_column(RANK, pa.array(ranks, pa.int64()))

    def save_snapshot(self) -> Iterator[StateBatch]:
        for rows in self.held:
            yield StateBatch(BY_KEYS, "results", rows, self.top.per)
        yield from self.bounds.save()

    def restore_snapshot(self, state: StateBatch) -> None:
        if state.kind == "results":
            self.hold(state.rows)
        else:
            self.bounds.restore(state)

    def finish_restore(self) -> None:
        self.bounds.finish_restore()


def times_of(results: pa.Table | pa.RecordBatch) -> pa.Array:
    """Window ends, int64 microseconds."""
    return results[WINDOW_END].cast(pa.int64())
