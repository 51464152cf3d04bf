"""The price of hashing and splitting one batch of 8192 rows and 3 columns."""

import pytest

from benchmarks.suite.batches import BATCH_ROWS, make_events
from benchmarks.suite.inputs import KINDS, make_input
from jetfast.core.routing import partition_owners
from jetfast.kernels.columns import Batch
from jetfast.kernels.partitioning import Splitter, hash_columns


@pytest.mark.parametrize("kind", KINDS)
def test_hash(benchmark, kind):
    made = make_input(make_events(BATCH_ROWS, 10_000), kind)
    columns = [made.batches[0].column(name) for name in made.keys]
    assert len(benchmark(hash_columns, columns)) == BATCH_ROWS


@pytest.mark.parametrize("parts", [2, 8, 64])
@pytest.mark.parametrize("kind", KINDS)
def test_split(benchmark, kind, parts):
    made = make_input(make_events(BATCH_ROWS, 10_000), kind)
    splitter = Splitter(made.schema, made.keys, partition_owners(271, 1, parts), parts)
    split = benchmark(splitter.split, Batch.from_arrow(made.batches[0]))
    assert sum(piece.row_count for piece in split if piece is not None) == BATCH_ROWS
