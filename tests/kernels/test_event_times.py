"""How far the times of a batch reach, against the times one by one."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetfast.core.batch import Batch
from jetfast.kernels.event_times import time_ranges

TYPES = [pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")] + [pa.date32(), pa.date64()]


def batch_of(values: list[int | None], data_type: pa.DataType) -> Batch:
    width = pa.int32() if pa.types.is_date32(data_type) else pa.int64()
    return Batch.from_arrow(pa.record_batch({"x": [0] * len(values), "t": pa.array(values, width).view(data_type)}))


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(TYPES),
    st.lists(st.integers(-(10**8), 10**8), min_size=1, max_size=70),
    st.integers(0, 3),
)
def test_the_range_is_that_of_the_single_times(data_type: pa.DataType, values: list[int], start: int) -> None:
    if pa.types.is_date64(data_type):
        values = [value * 86_400_000 for value in values]
    batch = batch_of(values, data_type).slice(min(start, len(values) - 1))
    times, validity = batch.timestamps("t")
    assert validity is None
    assert time_ranges([batch], 1)[0] == (times.min(), times.max())


@pytest.mark.parametrize("values", [[2**63 - 1, -(2**63), 0] * 11, [-(2**63)], [2**63 - 1]])
def test_the_ends_of_int64_are_times(values: list[int]) -> None:
    assert time_ranges([batch_of(values, pa.timestamp("us"))], 1)[0] == (min(values), max(values))


def test_no_rows_nulls_and_times_that_do_not_fit_have_no_range() -> None:
    assert time_ranges([batch_of([], pa.timestamp("us"))], 1)[0] is None
    assert time_ranges([batch_of([1, None], pa.timestamp("us"))], 1)[0] is None
    assert time_ranges([batch_of([0, 2**62], pa.timestamp("ms"))], 1)[0] is None
    assert time_ranges([batch_of([0, -(2**62)], pa.timestamp("s"))], 1)[0] is None


def test_each_batch_has_its_own_range() -> None:
    batches = [batch_of(values, pa.timestamp("us")) for values in ([3, 1], [], [7], [None])]
    assert time_ranges(batches, 1) == [(1, 3), None, (7, 7), None]
    assert time_ranges([], 1) == []


def test_only_dates_and_timestamps_have_a_range() -> None:
    with pytest.raises(ValueError, match="column 0 must be a date or timestamp, it is int64"):
        time_ranges([batch_of([1], pa.timestamp("us"))], 0)[0]
    with pytest.raises(IndexError, match="there is no column 2"):
        time_ranges([batch_of([1], pa.timestamp("us"))], 2)[0]
