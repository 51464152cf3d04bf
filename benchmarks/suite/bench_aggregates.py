"""Aggregates over batches: what rows and results cost beside the table that counts them."""

import jetfast as jf
from jetfast.core.aggregate import BatchAggregateColumn
from jetfast.core.batch import Batch
from jetfast.core.windows import Window
from jetfast.kernels.windows import WindowTable
from jetfast.processors.batch_tables import BatchWindowTable

from .batches import SCHEMA, make_events
from .bench_windows import SECOND_US, watermarks_of

AGGREGATES = {
    "last": jf.last("value"),
    "top_n": jf.top_n("value", 3),
    "count_distinct": jf.count_distinct("value"),
    "approx_count_distinct": jf.approx_count_distinct("key"),
    "quantile": jf.quantile("value", 0.99),
    "linear_trend": jf.linear_trend("value"),
    "collect_list": jf.collect_list("value"),
}


class Tumbling:
    """100 ms: 400 k rows a call, and every window that they close."""

    params = [[100, 10_000], list(AGGREGATES)]
    param_names = ["keys", "aggregate"]
    timeout = 300
    window = Window(SECOND_US // 10, SECOND_US // 10)

    def setup(self, keys: int, aggregate: str) -> None:
        events = make_events(400_000, keys)
        self.batches = [Batch.from_arrow(batch) for batch in events.record_batches()]
        self.watermarks = watermarks_of(events.times)

    def time_windows(self, keys: int, aggregate: str) -> None:
        chosen = AGGREGATES[aggregate]
        column = BatchAggregateColumn("result", chosen.function, chosen.columns)
        plain = WindowTable(SCHEMA, ["key"], "time", [], self.window.size_us, self.window.slide_us)
        table = BatchWindowTable(plain, SCHEMA, 1, "time", [column], self.window)
        for batch, watermark in zip(self.batches, self.watermarks, strict=True):
            table.accumulate(batch)
            table.advance(watermark)
            while table.emit() is not None:
                pass


class Sliding(Tumbling):
    """1 s by 100 ms."""

    window = Window(SECOND_US, SECOND_US // 10)
