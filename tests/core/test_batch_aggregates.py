"""Each aggregate over batches by itself: types, extremes, nulls, the error it promises, and any cutting of its rows."""

import math
from datetime import timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jetfast as jf
from jetfast.core.aggregate import BatchAggregateColumn
from jetfast.core.batch_aggregate import EVENT_TIME, BoundAggregate, plain_array
from jetfast.errors import JobFailedError

LONG = 2**63 - 1


def bound(aggregate: Any, *types: pa.DataType) -> BoundAggregate:
    """An aggregate over columns c0, c1, ... of these types."""
    names = [f"c{number}" for number in range(len(types))]
    column = BatchAggregateColumn("result", aggregate.function, tuple(names))
    return BoundAggregate(column, pa.schema(list(zip(names, types, strict=True))))


def states_of(
    aggregate: BoundAggregate, columns: list[pa.Array], groups: Any, times: Any, group_count: int
) -> pa.Array:
    arrays, names = [plain_array(column) for column in columns], list(aggregate.names)
    if aggregate.aggregate.takes_time:
        arrays.append(pa.array(times, pa.int64()).cast(pa.timestamp("us")))
        names.append(EVENT_TIME)
    rows = pa.record_batch(arrays, names=names)
    return aggregate.accumulate(rows, np.array(groups, np.int64), group_count)


def result_of(aggregate: Any, *columns: pa.Array, times: Any = None) -> Any:
    """The result over all rows as one group, cut in two and combined in every possible place, which must not matter."""
    made = bound(aggregate, *(column.type for column in columns))
    count = len(columns[0])
    times = range(count) if times is None else times
    results = []
    for cut in range(count):
        parts = [(0, cut), (cut, count)] if cut else [(0, count)]
        states = pa.concat_arrays(
            [
                states_of(
                    made, [c.slice(first, end - first) for c in columns], [0] * (end - first), times[first:end], 1
                )
                for first, end in parts
            ]
        )
        combined = made.combine(states, np.zeros(len(states), np.int64), 1)
        results.append(made.export(combined).to_pylist()[0])
    assert all(repr(result) == repr(results[0]) for result in results)
    return results[0]


VALUES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int8(), [3, -128, 127, None, 3]),
    (pa.int64(), [0, -LONG - 1, LONG, None, LONG]),
    (pa.uint64(), [1, 2**64 - 1, 2**63, None, 1]),
    (pa.float16(), [np.float16(1.5), np.float16(-2), None, np.float16(1.5)]),
    (pa.float32(), [1.5, -math.inf, math.inf, None, 1.5]),
    (pa.bool_(), [True, False, None, True]),
    (pa.string(), ["b", "", "aa", None, "ä", "b"]),
    (pa.large_string(), ["b", None, "a", "b"]),
    (pa.string_view(), ["b", None, "a longer text than twelve", "b"]),
    (pa.binary(), [b"b", b"", None, b"\xff", b"b"]),
    (pa.binary(2), [b"bb", None, b"ab", b"bb"]),
    (pa.decimal128(10, 2), [Decimal("-1.50"), Decimal("2.25"), None, Decimal("2.25")]),
    (pa.decimal256(50, 2), [Decimal("-1.50"), Decimal("2.25"), None, Decimal("2.25")]),
    (pa.decimal64(10, 2), [Decimal("-1.50"), Decimal("2.25"), None, Decimal("2.25")]),
    (pa.date32(), [0, -5, None, 9, 9]),
    (pa.timestamp("ns", "Europe/Berlin"), [0, -5, None, 9, 9]),
    (pa.time32("s"), [0, 5, None, 9, 9]),
    (pa.duration("ms"), [0, -5, None, 9, 9]),
]


def array_of(values: list[Any], data_type: pa.DataType) -> pa.Array:
    """An array that is a slice of a longer one."""
    if pa.types.is_temporal(data_type):
        storage = pa.array([1, *values], pa.int32() if data_type.bit_width == 32 else pa.int64())
        return storage.view(data_type).slice(1)
    return pa.array([values[0], *values], data_type).slice(1)


def plain(values: list[Any], data_type: pa.DataType) -> list[Any]:
    return array_of(values, data_type).to_pylist()


@pytest.mark.parametrize("encoded", [False, True], ids=["plain", "dictionary"])
@pytest.mark.parametrize(("data_type", "values"), VALUES, ids=[str(data_type) for data_type, _ in VALUES])
def test_values_of_every_sortable_type(data_type, values, encoded):
    array = array_of(values, data_type)
    if encoded:
        if data_type in (pa.float16(), pa.string_view(), pa.decimal64(10, 2)):
            array = pa.DictionaryArray.from_arrays(pa.array(range(len(array)), pa.int8()), array)
        else:
            array = array.dictionary_encode()
    known = [value for value in plain(values, data_type) if value is not None]
    ascending = sorted(known)
    assert result_of(jf.count_distinct("x"), array) == len(set(known))
    assert result_of(jf.collect_set("x"), array) == sorted(set(known))
    assert result_of(jf.top_n("x", 2), array) == ascending[::-1][:2]
    assert result_of(jf.bottom_n("x", 3), array) == ascending[:3]
    assert result_of(jf.collect_list("x"), array) == known
    assert result_of(jf.first("x"), array) == plain(values, data_type)[0]
    assert result_of(jf.last("x"), array) == plain(values, data_type)[-1]
    numbers = pa.array(range(len(array)))
    least = result_of(jf.bottom_n(["x", "n"], 1, by="x"), array, numbers, array)
    assert least == [{"c0": ascending[0], "c1": plain(values, data_type).index(ascending[0])}]


NESTED = pa.array([[1], None, [2, 3]], pa.list_(pa.int64()))


def test_values_of_any_type_have_a_first_a_last_and_a_list():
    assert result_of(jf.first("x"), NESTED) == [1]
    assert result_of(jf.last("x", ignore_nulls=True), NESTED, times=[5, 6, 4]) == [1]
    assert result_of(jf.collect_list("x"), NESTED, times=[5, 6, 4]) == [[2, 3], [1]]
    assert result_of(jf.top_n("x", 2, by="y"), NESTED, pa.array([1, 3, 2])) == [None, [2, 3]]


def test_nan_is_one_value_and_the_greatest_and_there_is_one_zero():
    other_nan = np.array([0x7FF0000000000001, 0xFFF8000000000000], np.uint64).view(np.float64)
    array = pa.array(np.concatenate([[0.0, -0.0, math.inf, -math.inf, math.nan], other_nan]))
    assert result_of(jf.count_distinct("x"), array) == 4
    assert repr(result_of(jf.collect_set("x"), array)) == "[-inf, 0.0, inf, nan]"
    assert repr(result_of(jf.top_n("x", 4), array)) == "[nan, nan, nan, inf]"
    assert repr(result_of(jf.bottom_n("x", 3), array)) == "[-inf, 0.0, 0.0]"
    assert repr(result_of(jf.quantiles("x", [0, 0.5, 1]), array)) == "[-inf, inf, nan]"
    assert result_of(jf.approx_count_distinct("x", error=0.01), array) == 4


def test_only_nulls_give_what_sql_gives():
    nulls = pa.nulls(3, pa.float64())
    texts = pa.nulls(3, pa.string())
    for aggregate, wanted in (
        (jf.first("x"), None), (jf.last("x", ignore_nulls=True), None),
        (jf.top_n("x", 2), []), (jf.bottom_n("x", 2), []),
        (jf.count_distinct("x"), 0), (jf.approx_count_distinct("x"), 0), (jf.quantile("x", 0.5), None),
        (jf.quantiles("x", [0.5]), None), (jf.linear_trend("x"), None),
        (jf.collect_list("x"), []), (jf.collect_set("x"), []),
    ):  # fmt: skip
        assert result_of(aggregate, nulls) == wanted, aggregate
    assert result_of(jf.concat("x"), texts) is None
    assert result_of(jf.concat("x", ", "), pa.array(["", None, ""])) == ", "


def test_of_equal_times_the_first_row_is_first_and_the_last_one_last():
    array = pa.array(["a", "b", "c", "d"])
    assert result_of(jf.first("x"), array, times=[3, 2, 2, 3]) == "b"
    assert result_of(jf.last("x"), array, times=[3, 2, 2, 3]) == "d"
    assert result_of(jf.collect_list("x"), array, times=[3, 2, 2, 3]) == ["b", "c", "a", "d"]
    assert result_of(jf.concat("x"), array, times=[3, 2, 2, 3]) == "bcad"
    assert result_of(jf.top_n("x", 3, by="y"), array, pa.array([1, 1, 2, 1]), times=[3, 2, 2, 3]) == ["c", "b", "a"]


def test_first_and_last_reach_to_the_ends_of_time():
    array = pa.array([1, 2, 3])
    assert result_of(jf.first("x"), array, times=[LONG, -LONG - 1, 0]) == 2
    assert result_of(jf.last("x"), array, times=[LONG, -LONG - 1, 0]) == 1
    assert result_of(jf.first("x"), array, times=[LONG, LONG, LONG]) == 1
    assert result_of(jf.last("x"), array, times=[-LONG - 1] * 3) == 3


floats = st.floats(allow_nan=False, allow_infinity=False)


@settings(max_examples=40, deadline=None)
@given(st.lists(floats, min_size=1, max_size=60), st.floats(0, 1), st.sampled_from([1e-6, 0.001, 0.01, 0.3, 0.5]))
def test_a_quantile_is_within_its_error_of_the_exact_one(values, q, error):
    made = bound(jf.quantile("x", q, error=error), pa.float64())
    states = states_of(made, [pa.array(values)], [0] * len(values), range(len(values)), 1)
    found = made.export(states).to_pylist()[0]
    exact = sorted(values)[max(math.ceil(round(q * len(values), 9)), 1) - 1]
    assert abs(found - exact) <= abs(exact) * error * (1 + 1e-6) + 2.3e-308


def test_quantiles_of_whole_and_decimal_numbers_are_floats():
    assert result_of(jf.quantile("x", 1), pa.array([0, 0])) == 0.0
    assert math.isclose(result_of(jf.quantile("x", 1), pa.array([-LONG - 1], pa.int64())), -(2**63), rel_tol=0.01)
    decimals = pa.array([Decimal("2.50"), None], pa.decimal128(9, 2))
    assert math.isclose(result_of(jf.quantile("x", 0.5, error=1e-4), decimals), 2.5, rel_tol=1e-4)


@pytest.mark.parametrize("error", [0.26, 0.05, 0.01])
@pytest.mark.parametrize("count", [1, 10, 1000, 40_000])
def test_an_approximate_distinct_count_is_within_its_error(count, error):
    # Three standard deviations; the values are fixed, so this does not depend on luck.
    for start in (0, 10**12):
        values = pa.array(np.arange(start, start + count).repeat(2))
        made = bound(jf.approx_count_distinct("x", error=error), pa.int64())
        half = states_of(made, [values], [0, 1] * count, range(2 * count), 2)
        found = made.export(made.combine(half, np.zeros(2, np.int64), 1)).to_pylist()[0]
        assert abs(found - count) <= 3 * error * count + 0.5


def test_an_approximate_distinct_count_takes_the_memory_that_it_says():
    made = bound(jf.approx_count_distinct("x"), pa.int64())
    states = states_of(made, [pa.array(range(100_000))], [0] * 100_000, range(100_000), 1)
    assert len(states[0]) <= 512
    assert states.type == pa.list_(pa.int32())


def test_a_trend_is_as_exact_far_from_zero_as_near_to_it():
    x = np.array([0, 1, 2, 3])
    for origin in (0, -LONG - 1, LONG - 3, 1_700_000_000_000_000):
        far = pa.array([int(origin) + int(step) for step in x])
        assert result_of(jf.linear_trend("y", "x"), pa.array([1.0, 3.0, 5.0, 7.0]), far) == 2.0
    times = [1_700_000_000_000_000 + int(step) * 1000 for step in x]
    slope = result_of(jf.linear_trend("y"), pa.array([0.0, 0.001, 0.002, 0.003]), times=times)
    assert math.isclose(slope, 1.0, rel_tol=1e-12)


def test_a_trend_needs_two_different_points():
    assert result_of(jf.linear_trend("y", "x"), pa.array([1.0, 2.0]), pa.array([5, 5])) is None
    assert result_of(jf.linear_trend("y", "x"), pa.array([1.0, None, 2.0]), pa.array([5, 6, None])) is None
    assert result_of(jf.linear_trend("y", "x"), pa.array([1.0, math.nan]), pa.array([5, 6])) != 0


@settings(max_examples=50, deadline=None)
@given(st.decimals(-9999999, 9999999, places=2), st.integers(2, 12))
def test_a_trend_over_equal_fractions_is_null_and_one_of_them_is_flat(value, count):
    others = pa.array(range(count))
    for equal in (
        pa.array([value] * count, pa.decimal128(9, 2)),
        pa.array([value] * count, pa.decimal32(9, 2)),
        pa.array([float(value)] * count),
    ):
        assert result_of(jf.linear_trend("y", "x"), equal, equal) is None
        assert result_of(jf.linear_trend("y", "x"), others, equal) is None
        assert result_of(jf.linear_trend("y", "x"), equal, others) == 0.0


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_any_cutting_and_combining_of_any_groups_gives_the_same(data):
    count = data.draw(st.integers(1, 30))
    group_count = data.draw(st.integers(1, 5))
    numbers = st.lists(st.none() | st.integers(-3, 3).map(float), min_size=count, max_size=count)
    x, y = pa.array(data.draw(numbers), pa.float64()), pa.array(data.draw(numbers), pa.float64())
    groups = np.array(data.draw(st.lists(st.integers(0, group_count - 1), min_size=count, max_size=count)))
    times = data.draw(st.lists(st.integers(-5, 5), min_size=count, max_size=count))
    cuts = sorted(data.draw(st.lists(st.integers(0, count), max_size=4)))
    for aggregate, columns in (
        (jf.first("x"), [x]), (jf.last("x", ignore_nulls=True), [x]),
        (jf.top_n("x", 2), [x]), (jf.top_n("x", 2, by="y"), [x, y]),
        (jf.count_distinct("x"), [x]), (jf.approx_count_distinct("x"), [x]), (jf.quantile("x", 0.4), [x]),
        (jf.collect_list("x"), [x]), (jf.collect_set("x"), [x]),
    ):  # fmt: skip
        made = bound(aggregate, *(column.type for column in columns))
        present, whole_groups = np.unique(groups, return_inverse=True)
        whole = states_of(made, columns, whole_groups, times, len(present))
        parts, part_groups = [], []
        for first, end in zip([0, *cuts], [*cuts, count], strict=True):
            if end > first:
                own, own_groups = np.unique(groups[first:end], return_inverse=True)
                pieces = [column.slice(first, end - first) for column in columns]
                parts.append(states_of(made, pieces, own_groups, times[first:end], len(own)))
                part_groups.append(np.searchsorted(present, own))
        combined = made.combine(pa.concat_arrays(parts), np.concatenate(part_groups), len(present))
        assert made.export(combined).to_pylist() == made.export(whole).to_pylist()


@pytest.mark.parametrize("aggregate", [jf.count_distinct("x"), jf.quantile("x", 0.5), jf.collect_list("x")])
def test_what_is_deducted_was_never_there(aggregate):
    made = bound(aggregate, pa.float64())
    old, new = pa.array([1.0, 2.0, None, 2.0, 7.0]), pa.array([2.0, 3.0, None])
    first = states_of(made, [old], [0, 0, 0, 0, 1], range(5), 2)
    second = states_of(made, [new], [0, 0, 1], range(5, 8), 2)
    both = made.combine(pa.concat_arrays([first, second]), np.array([0, 1, 0, 1]), 2)
    assert made.deducts
    assert made.deduct(both, first).to_pylist() == second.to_pylist()


class Wrong(jf.BatchAggregate):
    """Returns what the test gives it."""

    def __init__(self, made: Any) -> None:
        self.made = made

    def state_type(self, inputs: pa.Schema) -> pa.DataType:
        return pa.int64()

    def result_type(self, inputs: pa.Schema) -> pa.DataType:
        return pa.int64()

    def accumulate(self, rows: pa.RecordBatch, groups: Any, group_count: int) -> Any:
        return self.made


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (pa.array([1.0]), "TypeError: it returned double, declared is int64"),
        (pa.array([1, 2]), "ValueError: it returned 2 rows, 1 are needed"),
        (None, "TypeError"),
    ],
)
def test_what_a_user_returns_is_checked(made, message):
    aggregate = bound(Wrong(made).over("x"), pa.int64())
    with pytest.raises(JobFailedError, match=f"aggregate 'result': Wrong.accumulate failed: {message}"):
        states_of(aggregate, [pa.array([1])], [0], [0], 1)


def test_numpy_arrays_and_lists_are_taken_as_well():
    for made in (np.array([3]), [3], pa.chunked_array([[3]])):
        aggregate = bound(Wrong(made).over("x"), pa.int64())
        assert states_of(aggregate, [pa.array([1])], [0], [0], 1).to_pylist() == [3]


def test_a_method_that_is_missing_is_named():
    aggregate = bound(Wrong(None).over("x"), pa.int64())
    with pytest.raises(JobFailedError, match=r"Wrong.combine failed: NotImplementedError: Wrong needs combine\(states"):
        aggregate.combine(pa.array([1]), np.zeros(1, np.int64), 1)


def failing(window: Any, at: float) -> str:
    """The message of a job whose aggregate fails at a value."""

    def accumulate(state: float, rows: pa.RecordBatch) -> float:
        if at in rows["x"].to_pylist():
            raise ZeroDivisionError("no such mean")
        return state

    table = pa.table({"time": pa.array([0, 61, 62], pa.timestamp("s")), "x": [1.0, 2.0, 3.0]})
    pipeline = jf.Pipeline("failing")
    rows = pipeline.read(jf.memory(table, batch_rows=1), name="rows").with_event_time("time")
    own = jf.aggregate("x", create=lambda: 0.0, accumulate=accumulate, combine=max, state=pa.float64())
    rows.window(window).agg(own=own, name="means").collect()
    with pytest.raises(JobFailedError) as failure:
        jf.LocalCluster().submit(pipeline, progress=False).wait()
    return str(failure.value)


def test_an_error_of_a_user_names_step_function_and_window():
    message = failing(jf.tumbling("1m"), 2.0)
    assert "step 'means'" in message
    assert "aggregate 'own': accumulate=failing.<locals>.accumulate failed" in message
    assert "in the window [1970-01-01T00:01:00+00:00, 1970-01-01T00:02:00+00:00)" in message
    assert "ZeroDivisionError: no such mean" in message
    assert "in the window [1970-01-01T00:01:01+00:00" in failing(jf.session(timedelta(seconds=5)), 2.0)
