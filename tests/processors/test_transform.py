"""The chain of stateless steps, verified in every mode."""

import numpy as np
import pyarrow as pa

from jetfast.core.batch import Batch
from jetfast.core.items import IDLE, Watermark
from jetfast.processors.transform import Transform
from jetfast.testing import OnEdge, verify_processor


def rows(*values):
    return pa.record_batch({"value": pa.array(values, pa.int64())})


def double(batch):
    doubled = pa.array([value * 2 for value in batch.to_arrow().column("value").to_pylist()], pa.int64())
    return batch.with_columns(Batch.from_arrow(pa.record_batch({"doubled": doubled})))


def only_even(batch):
    values = batch.to_arrow().column("value").to_numpy()
    return batch.take(np.flatnonzero(values % 2 == 0).astype(np.int32))


def test_functions_apply_one_after_the_other():
    verify_processor(
        lambda: Transform([only_even, double]),
        [rows(1, 2), Watermark(5), OnEdge(1, rows(4, 5, 6)), IDLE, rows(7)],
        [
            {"value": 2, "doubled": 4},
            Watermark(5),
            {"value": 4, "doubled": 8},
            {"value": 6, "doubled": 12},
            IDLE,
        ],
    )


def test_the_chain_ends_when_no_row_is_left():
    def never(batch):
        raise AssertionError("called with no rows")

    verify_processor(lambda: Transform([only_even, never]), [rows(1, 3)], [])
