"""Where rows come from travels with a batch, so that an error far downstream can name it."""

import numpy as np
import pyarrow as pa

from jetfast.kernels.columns import Batch


def test_origin_is_kept_by_everything_that_keeps_rows():
    batch = Batch.from_arrow(pa.record_batch({"a": [1, 2, 3], "b": [4, 5, 6]}))
    assert batch.origin is None
    assert batch.slice(1).origin is None
    known = batch.with_origin("flights/jfk.csv", 100)
    assert batch.origin is None
    assert known.to_arrow() == batch.to_arrow()
    assert known.slice(2).origin == ("flights/jfk.csv", 102)
    assert known.select(["b"]).origin == ("flights/jfk.csv", 100)
    assert known.take(np.array([1], dtype=np.int32)).origin == ("flights/jfk.csv", 100)
    assert known.with_columns(batch.select(["a"], ["c"])).origin == ("flights/jfk.csv", 100)
