"""The price of one batch of 8192 rows at each door."""

import numpy as np
import pytest

from benchmarks.suite.batches import BATCH_ROWS, make_events
from jetfast.kernels.columns import Batch, concatenate


@pytest.fixture(scope="module")
def record_batch():
    return make_events(BATCH_ROWS, 1000).record_batches()[0]


@pytest.fixture(scope="module")
def batch(record_batch):
    return Batch.from_arrow(record_batch)


def test_from_arrow(benchmark, record_batch):
    assert benchmark(Batch.from_arrow, record_batch).row_count == BATCH_ROWS


def test_to_arrow(benchmark, batch):
    assert benchmark(batch.to_arrow).num_rows == BATCH_ROWS


def test_slice(benchmark, batch):
    assert benchmark(batch.slice, 100, 1000).row_count == 1000


def test_take_half(benchmark, batch):
    rows = np.arange(0, BATCH_ROWS, 2, dtype=np.int32)
    assert benchmark(batch.take, rows).row_count == BATCH_ROWS // 2


def test_concatenate_eight(benchmark, batch):
    pieces = [batch.slice(start, 1024) for start in range(0, BATCH_ROWS, 1024)]
    assert benchmark(concatenate, pieces).row_count == BATCH_ROWS


def test_encode_and_decode(benchmark, batch):
    def there_and_back() -> Batch:
        return Batch.decode(batch.schema, b"".join(batch.encode()))

    assert benchmark(there_and_back).row_count == BATCH_ROWS
