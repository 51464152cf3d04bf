"""The price of 8192 keys that are known, to slots."""

import pytest

from benchmarks.suite.batches import BATCH_ROWS, make_events
from benchmarks.suite.inputs import KINDS, make_input
from jetfast.kernels.columns import Batch
from jetfast.kernels.keys import KeyIndex


@pytest.mark.parametrize("key_count", [100, 10_000, 1_000_000])
@pytest.mark.parametrize("kind", KINDS)
def test_assign_slots(benchmark, kind, key_count):
    made = make_input(make_events(BATCH_ROWS, key_count), kind)
    index = KeyIndex(made.schema, made.keys)
    index.reserve(key_count)
    batch = Batch.from_arrow(made.batches[0])
    index.assign_slots(batch)
    assert len(benchmark(index.assign_slots, batch)) == BATCH_ROWS
