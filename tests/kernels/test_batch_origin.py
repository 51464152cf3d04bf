"""Where rows come from travels with a batch, so that an error far downstream can name it."""

import numpy as np
import pyarrow as pa

from jetfast.kernels.columns import Batch, batches_with_origin


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


def test_record_batches_of_a_partition_are_numbered_through() -> None:
    dictionary = pa.array(["x", "y"]).dictionary_encode()
    for column in (pa.array([1, 2]), dictionary, pa.RunEndEncodedArray.from_arrays(pa.array([2]), pa.array([7]))):
        pieces = [pa.record_batch({"a": column}), pa.record_batch({"a": column}).slice(1)]
        batches = batches_with_origin(pieces, 0, 100, "flights/jfk.csv", 100)
        assert [batch.origin for batch in batches] == [("flights/jfk.csv", 100), ("flights/jfk.csv", 102)]
        assert [batch.to_arrow() for batch in batches] == [Batch.from_arrow(piece).to_arrow() for piece in pieces]


def test_record_batches_are_taken_in_up_to_something_else_or_to_so_many_rows() -> None:
    pieces = [pa.record_batch({"a": pa.array([7] * count, pa.int64())}) for count in (2, 1, 3, 0, 1)]
    taken = [len(batches_with_origin(pieces, start, rows_max, "0", 0)) for start, rows_max in ((0, 2), (0, 3), (1, 99))]
    assert taken == [1, 2, 2]  # of as many rows as the first
    assert len(batches_with_origin((pieces[0], pieces[1], "a crash", pieces[2]), 0, 99, "0", 0)) == 2
