"""A run of batches is a sequence of them, whatever it was cut from or put together of."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetfast.kernels.columns import Batch, BatchRun, concatenate


def batch_of(*values: int) -> Batch:
    return Batch.from_arrow(pa.record_batch({"a": pa.array(values, pa.int64())}))


def values_of(batches: BatchRun) -> list[list[int]]:
    return [batch.to_arrow()["a"].to_pylist() for batch in batches]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.integers(0, 9), max_size=4), min_size=1, max_size=6), st.data())
def test_cuts_of_a_run_are_those_of_a_list(values: list[list[int]], data: st.DataObject) -> None:
    run = BatchRun.of([batch_of(*part) for part in values]).with_origin("p", 100)
    start = data.draw(st.integers(0, len(values)))
    end = data.draw(st.integers(start, len(values)))
    cut = run.slice(start, end)
    assert values_of(run) == values
    assert values_of(cut) == values[start:end]
    assert (len(cut), cut.row_count) == (end - start, sum(map(len, values[start:end])))
    assert cut.nbytes == 8 * cut.row_count
    firsts = [100 + sum(map(len, values[:index])) for index in range(start, end)]
    assert [batch.origin for batch in cut] == [cut[index].origin for index in range(len(cut))]
    assert [batch.origin for batch in cut] == [("p", first) for first in firsts]
    if cut:
        assert values_of(BatchRun.of([cut, cut[0], run])) == [*values[start:end], values[start], *values]
        assert concatenate(cut).to_arrow()["a"].to_pylist() == [value for part in values[start:end] for value in part]


def test_a_run_is_cut_before_a_batch_of_another_size_and_when_it_has_rows_enough() -> None:
    whole = batch_of(*range(8))
    run = BatchRun.of([whole.slice(0, count) for count in (3, 4, 5, 2, 8)])
    taken = [(0, 3, 5, 100), (3, 3, 5, 100), (0, 3, 5, 7), (0, 3, 5, 8), (5, 1, 8, 100)]
    counts = [[batch.row_count for batch in run.take_sized(*arguments)] for arguments in taken]
    assert counts == [[3, 4, 5], [], [3, 4], [3, 4, 5], []]


def test_a_run_lives_on_when_what_it_was_made_of_is_gone() -> None:
    cut = BatchRun.of([batch_of(1, 2), batch_of(3)]).slice(1)
    last = cut[-1]
    del cut
    assert last.to_arrow()["a"].to_pylist() == [3]


def test_bytes_of_nested_columns_count_too() -> None:
    nested = Batch.from_arrow(pa.record_batch({"a": [[1, 2], [3]]}))
    assert BatchRun.of([nested, nested]).nbytes == 2 * nested.nbytes > 0


def test_what_is_not_in_a_run_or_does_not_fit_together_is_refused() -> None:
    run = BatchRun.of([batch_of(1)])
    with pytest.raises(IndexError, match="batch 1 of a run of 1"):
        run[1]
    with pytest.raises(ValueError, match=r"batches \[1, 3\) are not in a run of 1"):
        run.slice(1, 3)
    with pytest.raises(ValueError, match="one batch at least"):
        BatchRun.of([])
    with pytest.raises(ValueError, match="must have one schema"):
        BatchRun.of([run, Batch.from_arrow(pa.record_batch({"b": [1]}))])
    with pytest.raises(TypeError, match="BatchRun.of"):
        BatchRun()
