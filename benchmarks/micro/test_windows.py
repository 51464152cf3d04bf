"""The price of 8192 rows in a window table that stands at its working size."""

import pytest

from benchmarks.suite.batches import BATCH_ROWS, SCHEMA, make_events
from jetfast.kernels.columns import Batch
from jetfast.kernels.windows import WindowTable

AGGREGATES = [("count", "count", None), ("mean", "mean", "value")]


@pytest.mark.parametrize("key_count", [100, 10_000, 1_000_000])
def test_accumulate(benchmark, key_count):
    batches = [Batch.from_arrow(batch) for batch in make_events(64 * BATCH_ROWS, key_count).record_batches()]
    table = WindowTable(SCHEMA, ["key"], "time", AGGREGATES, 10_000_000, 100_000)
    for batch in batches:
        table.accumulate(batch)

    def again() -> None:
        for batch in batches:
            table.accumulate(batch)

    benchmark(again)
    assert table.late_rows == 0
