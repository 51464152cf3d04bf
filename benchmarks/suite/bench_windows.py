"""Windowed aggregation by key, with emission."""

import time

import numpy as np
import pyarrow as pa

from jetfast.kernels.columns import Batch
from jetfast.kernels.windows import FrameTable, WindowTable

from .batches import BATCH_ROWS, DISORDER_US, SCHEMA, make_events
from .inputs import KINDS, Input, make_input

AGGREGATES = {
    "count": [("count", "count", None)],
    "count+mean": [("count", "count", None), ("mean", "mean", "value")],
    "min+max": [("min", "min", "value"), ("max", "max", "value")],
}
SECOND_US = 1_000_000
SIZE_US = 10 * SECOND_US
SLIDE_US = SECOND_US // 10


def watermarks_of(times: np.ndarray) -> list[int]:
    """The watermark after each batch: the greatest time so far less the disorder."""
    tops = np.maximum.reduceat(times, np.arange(0, len(times), BATCH_ROWS))
    return (np.maximum.accumulate(tops) - DISORDER_US).tolist()


class Sliding:
    """10 s by 100 ms: 4 M rows a call, and every window that they close."""

    params = [[100, 10_000, 1_000_000], list(AGGREGATES)]
    param_names = ["keys", "aggregates"]
    timeout = 300
    size_us = SIZE_US
    slide_us = SLIDE_US

    def setup(self, keys: int, aggregates: str) -> None:
        events = make_events(4_000_000, keys)
        self.batches = [Batch.from_arrow(batch) for batch in events.record_batches()]
        self.watermarks = watermarks_of(events.times)

    def run(self, aggregates: str) -> WindowTable:
        table = WindowTable(SCHEMA, ["key"], "time", AGGREGATES[aggregates], self.size_us, self.slide_us)
        for batch, watermark in zip(self.batches, self.watermarks, strict=True):
            table.accumulate(batch)
            table.advance(watermark)
            while table.emit() is not None:
                pass
        return table

    def time_windows(self, keys: int, aggregates: str) -> None:
        self.run(aggregates)

    def peakmem_windows(self, keys: int, aggregates: str) -> None:
        self.run(aggregates)

    def track_bytes_per_key(self, keys: int, aggregates: str) -> float:
        return float(self.run(aggregates).memory()["bytes_per_key"])

    track_bytes_per_key.unit = "bytes"

    def track_bytes_per_key_and_frame(self, keys: int, aggregates: str) -> float:
        return float(self.run(aggregates).memory()["bytes_per_key_and_frame"])

    track_bytes_per_key_and_frame.unit = "bytes"


class Tumbling(Sliding):
    """The same rows in windows of 1 s."""

    size_us = slide_us = SECOND_US


class HotKeys(Tumbling):
    """Rows of one key close to each other: one key alone, half of all rows of one key, keys in runs of 64 rows."""

    params = [["one", "zipf 2.0", "runs"], list(AGGREGATES)]

    def setup(self, keys: str, aggregates: str) -> None:
        events = make_events(4_000_000, 1 if keys == "one" else 10_000, zipf=2.0 if keys == "zipf 2.0" else None)
        if keys == "runs":
            events.keys[:] = np.repeat(events.keys[::64], 64)
        self.batches = [Batch.from_arrow(batch) for batch in events.record_batches()]
        self.watermarks = watermarks_of(events.times)


class Top:
    """The ten best results of each window, kept while the table emits: windows of 100 frames that are all due."""

    params = [[10_000, 1_000_000], ["count", "mean"]]
    param_names = ["keys", "by"]
    timeout = 300
    results = 0

    def closing_ns(self, keys: int, by: str, top: int) -> float:
        """CPU time to close all windows, for each of their results; `top` 0: all are emitted."""
        random = np.random.default_rng(0)
        table = WindowTable(SCHEMA, ["key"], "time", [(by, by, None if by == "count" else "value")], SIZE_US, SLIDE_US)
        for frame in range(SIZE_US // SLIDE_US):
            rows = keys if frame == 0 else max(BATCH_ROWS, keys // 20)
            columns = [
                np.arange(keys) if frame == 0 else random.integers(0, keys, rows),
                np.full(rows, frame * SLIDE_US, "datetime64[us]"),
                random.random(rows),
            ]
            table.accumulate(Batch.from_arrow(pa.record_batch(columns, schema=SCHEMA)))
        if top:
            table.keep_top(by, top)
        start = time.process_time()
        table.advance(SIZE_US)  # the first window holds every key, as do the 99 before it
        results = 0
        while (batch := table.emit()) is not None:
            results += batch.row_count
        if not top:
            self.results = results
        return (time.process_time() - start) / self.results * 1e9

    def track_ns_per_result(self, keys: int, by: str) -> float:
        """Of all results, when ten of each window are kept."""
        self.closing_ns(keys, by, 0)
        return min(self.closing_ns(keys, by, 10) for _ in range(5))

    track_ns_per_result.unit = "ns"

    def track_gain(self, keys: int, by: str) -> float:
        """CPU time to emit all results over that to keep ten."""
        pairs = [(self.closing_ns(keys, by, 0), self.closing_ns(keys, by, 10)) for _ in range(5)]
        return min(every for every, _ in pairs) / min(best for _, best in pairs)

    track_gain.unit = "times"


class FirstStage:
    """Partials per key and frame for two processors of the second stage: 4 M rows a call."""

    params = [100, 10_000]
    param_names = ["keys"]

    def setup(self, keys: int) -> None:
        events = make_events(4_000_000, keys)
        self.batches = [Batch.from_arrow(batch) for batch in events.record_batches()]
        self.watermarks = watermarks_of(events.times)

    def run(self) -> int:
        table = FrameTable(SCHEMA, ["key"], "time", AGGREGATES["count+mean"], SIZE_US, SLIDE_US)
        table.set_owners(np.arange(271, dtype=np.int32) % 2, 2)
        partial_rows = 0
        for batch, watermark in zip(self.batches, self.watermarks, strict=True):
            table.accumulate(batch)
            table.advance(watermark)
            while (partials := table.take_partials()) is not None:
                partial_rows += partials.row_count
        return partial_rows

    def time_partials(self, keys: int) -> None:
        self.run()

    def track_rows_per_partial(self, keys: int) -> float:
        """By how much the first stage thins what crosses."""
        return 4_000_000 / self.run()

    track_rows_per_partial.unit = "rows"


class InputKinds:
    """12 % NULLs in key and in value, text keys and two key columns beside int64: 2 M rows, 10k keys, sliding."""

    params = list(KINDS)
    param_names = ["input"]
    timeout = 300

    def setup(self, kind: str) -> None:
        events = make_events(2_000_000, 10_000)
        self.watermarks = watermarks_of(events.times)
        self.input = make_input(events, kind)
        self.batches = [Batch.from_arrow(batch) for batch in self.input.batches]
        self.int64 = make_input(events, "int64")
        self.int64_batches = [Batch.from_arrow(batch) for batch in self.int64.batches]

    def run(self, made: Input, batches: list[Batch]) -> WindowTable:
        table = WindowTable(made.schema, made.keys, "time", AGGREGATES["count+mean"], SIZE_US, SLIDE_US)
        for batch, watermark in zip(batches, self.watermarks, strict=True):
            table.accumulate(batch)
            table.advance(watermark)
            while table.emit() is not None:
                pass
        return table

    def time_windows(self, kind: str) -> None:
        self.run(self.input, self.batches)

    def track_cost_beside_int64(self, kind: str) -> float:
        """CPU time over that of int64 keys, interleaved, best of seven each."""
        costs: dict[str, list[float]] = {kind: [], "": []}
        for _ in range(7):
            for name, made, batches in ((kind, self.input, self.batches), ("", self.int64, self.int64_batches)):
                start = time.process_time()
                self.run(made, batches)
                costs[name].append(time.process_time() - start)
        return min(costs[kind]) / min(costs[""])

    track_cost_beside_int64.unit = "times"

    def track_bytes_per_key(self, kind: str) -> float:
        return float(self.run(self.input, self.batches).memory()["bytes_per_key"])

    track_bytes_per_key.unit = "bytes"
