"""The data of all benchmarks: keyed events in Arrow batches, 1 M rows a second of event time, a little out of order."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

ROWS_PER_SECOND = 1_000_000
DISORDER_US = 50_000
BATCH_ROWS = 8192
SCHEMA = pa.schema([("key", pa.int64()), ("time", pa.timestamp("us")), ("value", pa.float64())])


@dataclass(frozen=True)
class Events:
    """Events in order of arrival; arrays of shape (rows,). Values are k/64: their sums are exact in any order."""

    keys: np.ndarray  # int64, [0, key_count)
    times: np.ndarray  # int64 microseconds
    values: np.ndarray  # float64

    def __len__(self) -> int:
        return len(self.keys)

    def table(self) -> pa.Table:
        """All rows in one chunk."""
        return pa.table(
            {"key": self.keys, "time": pa.array(self.times).cast(pa.timestamp("us")), "value": self.values},
            schema=SCHEMA,
        )

    def record_batches(self, batch_rows: int = BATCH_ROWS) -> list[pa.RecordBatch]:
        """The table cut into batches (zero-copy)."""
        return self.table().to_batches(max_chunksize=batch_rows)

    def __getitem__(self, rows: slice) -> "Events":
        return Events(self.keys[rows], self.times[rows], self.values[rows])


def make_events(rows: int, key_count: int, *, zipf: float | None = None, seed: int = 1) -> Events:
    """Seeded events; keys are uniform, or Zipf with the given exponent. The k-th arrives at k microseconds."""
    random = np.random.default_rng(seed)
    if zipf is None:
        keys = random.integers(0, key_count, rows, dtype=np.int64)
    else:
        weights = np.arange(1, key_count + 1, dtype=np.float64) ** -zipf
        keys = np.searchsorted(np.cumsum(weights) / weights.sum(), random.random(rows)).astype(np.int64)
    step_us = 1_000_000 // ROWS_PER_SECOND
    times = np.arange(rows, dtype=np.int64) * step_us + DISORDER_US
    times -= random.integers(0, DISORDER_US + 1, rows, dtype=np.int64)
    values = random.integers(0, 64_000, rows).astype(np.float64) / 64
    return Events(keys, times, values)
