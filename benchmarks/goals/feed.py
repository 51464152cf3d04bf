"""Rows into a window table and results out of it, as the engine does it."""

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
import pyarrow as pa

from benchmarks.suite.batches import BATCH_ROWS, DISORDER_US, SCHEMA, Events, make_events
from jetfast.kernels.columns import Batch
from jetfast.kernels.windows import WindowTable

COUNT_AND_MEAN = (("count", "count", None), ("mean", "mean", "value"))
ZIPF = 1.1
cached_events = lru_cache(maxsize=2)(make_events)


def watermarks_of(events: Events, batch_rows: int = BATCH_ROWS) -> list[int]:
    """The watermark after each batch: the greatest time so far less the disorder."""
    tops = np.maximum.reduceat(events.times, np.arange(0, len(events), batch_rows))
    return (np.maximum.accumulate(tops) - DISORDER_US).tolist()


def engine_batches(events: Events) -> list[Batch]:
    """Batches made beforehand."""
    return [Batch.from_arrow(batch) for batch in events.record_batches()]


class WindowFeed:
    """One window table. Results are dropped as they come, so that their memory is used again."""

    def __init__(
        self,
        aggregates: Sequence[tuple[str, str, str | None]],
        size_us: int,
        slide_us: int,
        schema: pa.Schema = SCHEMA,
        keys: Sequence[str] = ("key",),
    ) -> None:
        self.table = WindowTable(schema, list(keys), "time", list(aggregates), size_us, slide_us)
        self.results = 0

    def feed(
        self, batches: Sequence[Batch], watermarks: Sequence[int], check: Callable[[Batch], None] | None = None
    ) -> None:
        """Rows, then the watermark behind them, then what it closes."""
        table = self.table
        for batch, watermark in zip(batches, watermarks, strict=True):
            table.accumulate(batch)
            table.advance(watermark)
            while (result := table.emit()) is not None:
                self.results += result.row_count
                if check is not None:
                    check(result)
