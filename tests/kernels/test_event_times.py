"""How far the times of a batch reach, against the times one by one."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetfast.core.batch import Batch, BatchRun
from jetfast.kernels.event_times import reached_times

TYPES = [pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")] + [pa.date32(), pa.date64()]


def batch_of(values: list[int | None], data_type: pa.DataType) -> Batch:
    width = pa.int32() if pa.types.is_date32(data_type) else pa.int64()
    return Batch.from_arrow(pa.record_batch({"x": [0] * len(values), "t": pa.array(values, width).view(data_type)}))


def greatest_of(
    *batches: Batch, column: int = 1, rows_max: int = 100, small_rows: int = 100, span_us: int = 0
) -> list[int] | None:
    """The greatest time of each batch, one by one; None if one must be cut."""
    reached = [reached_times((batch,), column, rows_max, small_rows, span_us, 0) for batch in batches]
    together = reached_times(batches, column, rows_max, small_rows, span_us, 0)
    assert (together is None) == (None in reached)
    return None if None in reached else [greatest for _, [(_, greatest)] in reached]


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(TYPES),
    st.lists(st.integers(-(10**8), 10**8), min_size=1, max_size=70),
    st.integers(0, 3),
)
def test_the_greatest_time_and_the_span_are_those_of_the_single_times(
    data_type: pa.DataType, values: list[int], start: int
) -> None:
    if pa.types.is_date64(data_type):
        values = [value * 86_400_000 for value in values]
    batch = batch_of(values, data_type).slice(min(start, len(values) - 1))
    times, validity = batch.timestamps("t")
    assert validity is None
    assert greatest_of(batch) == [times.max()]
    span_us = int(times.max() - times.min())
    assert greatest_of(batch, small_rows=0, span_us=span_us) == [times.max()]
    if span_us:
        assert greatest_of(batch, small_rows=0, span_us=span_us - 1) is None


@pytest.mark.parametrize("values", [[2**63 - 1, -(2**63), 0] * 11, [-(2**63)], [2**63 - 1]])
def test_the_ends_of_int64_are_times(values: list[int]) -> None:
    batch = batch_of(values, pa.timestamp("us"))
    assert greatest_of(batch) == [max(values)]
    assert greatest_of(batch, small_rows=0, span_us=2**63 - 1) == (None if len(values) > 1 else values)


def test_no_rows_nulls_and_times_that_do_not_fit_have_no_greatest_time() -> None:
    assert greatest_of(batch_of([], pa.timestamp("us"))) is None
    assert greatest_of(batch_of([1, None], pa.timestamp("us"))) is None
    assert greatest_of(batch_of([0, 2**62], pa.timestamp("ms"))) is None
    assert greatest_of(batch_of([0, -(2**62)], pa.timestamp("s"))) is None


def test_each_batch_has_its_own_greatest_time_unless_one_must_be_looked_at() -> None:
    batches = [batch_of(values, pa.timestamp("us")) for values in ([3, 1], [7], [5, 4, 6])]
    assert greatest_of(*batches) == [3, 7, 6]
    assert greatest_of() == []
    assert greatest_of(*batches, batch_of([None], pa.timestamp("us"))) is None


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 50), min_size=1, max_size=12), st.integers(0, 60))
def test_batches_belong_together_as_long_as_none_is_far_above_the_first(tops: list[int], part_span_us: int) -> None:
    expected: list[tuple[int, int]] = []
    first = 0
    for index, top in enumerate(tops):
        if not expected or top - first > part_span_us:
            first = top
            expected.append((index + 1, top))
        else:
            expected[-1] = index + 1, max(top, expected[-1][1])
    run = BatchRun.of([batch_of([top], pa.timestamp("us")) for top in tops])
    assert reached_times(run, 1, 100, 100, 0, part_span_us) == (tops[-1] - tops[0], expected)
    assert reached_times((), 1, 100, 100, 0, part_span_us) == (0, [])


def test_a_batch_of_too_many_rows_or_one_that_is_not_small_and_spans_too_much_must_be_cut() -> None:
    batches = [batch_of(values, pa.timestamp("us")) for values in ([3, 1], [7], [5, 4, 6])]
    assert greatest_of(*batches, rows_max=3, small_rows=2, span_us=2) == [3, 7, 6]
    assert greatest_of(*batches, rows_max=2) is None
    assert greatest_of(*batches, small_rows=2, span_us=1) is None
    assert greatest_of(*batches, small_rows=3, span_us=1) == [3, 7, 6]


def test_only_dates_and_timestamps_have_a_greatest_time() -> None:
    with pytest.raises(ValueError, match="column 0 must be a date or timestamp, it is int64"):
        greatest_of(batch_of([1], pa.timestamp("us")), column=0)
    with pytest.raises(IndexError, match="there is no column 2"):
        greatest_of(batch_of([1], pa.timestamp("us")), column=2)
