"""Windowed aggregation by key, with emission."""

import numpy as np

from jetfast.kernels.columns import Batch
from jetfast.kernels.windows import WindowTable

from .batches import BATCH_ROWS, DISORDER_US, SCHEMA, make_events

AGGREGATES = {
    "count": [("count", "count", None)],
    "count+mean": [("count", "count", None), ("mean", "mean", "value")],
    "min+max": [("min", "min", "value"), ("max", "max", "value")],
}
SECOND_US = 1_000_000


class Sliding:
    """10 s by 100 ms: 4 M rows a call, and every window that they close."""

    params = [[100, 10_000], list(AGGREGATES)]
    param_names = ["keys", "aggregates"]
    size_us = 10 * SECOND_US
    slide_us = SECOND_US // 10

    def setup(self, keys: int, aggregates: str) -> None:
        events = make_events(4_000_000, keys)
        self.batches = [Batch.from_arrow(batch) for batch in events.record_batches()]
        tops = np.maximum.reduceat(events.times, np.arange(0, len(events), BATCH_ROWS))
        self.watermarks = (np.maximum.accumulate(tops) - DISORDER_US).tolist()

    def _run(self, aggregates: str) -> WindowTable:
        table = WindowTable(SCHEMA, ["key"], "time", AGGREGATES[aggregates], self.size_us, self.slide_us)
        for batch, watermark in zip(self.batches, self.watermarks, strict=True):
            table.accumulate(batch)
            table.advance(watermark)
            while table.emit() is not None:
                pass
        return table

    def time_windows(self, keys: int, aggregates: str) -> None:
        self._run(aggregates)

    def track_bytes_per_key(self, keys: int, aggregates: str) -> float:
        return float(self._run(aggregates).memory()["bytes_per_key"])

    track_bytes_per_key.unit = "bytes"


class Tumbling(Sliding):
    """The same rows in windows of 1 s."""

    size_us = slide_us = SECOND_US
