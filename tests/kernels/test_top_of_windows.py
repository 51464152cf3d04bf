"""The best results of each window are those that a sort of all results puts first; the others are never made."""

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetfast.kernels.columns import Batch
from jetfast.kernels.windows import WindowTable
from jetfast.types import MAX_TIME

SCHEMA = pa.schema(
    [
        ("word", pa.string()),
        ("number", pa.float64()),
        ("time", pa.timestamp("us")),
        ("f", pa.float64()),
        ("i", pa.int8()),
        ("u", pa.uint64()),
        ("b", pa.bool_()),
        ("at", pa.date32()),
        ("d", pa.decimal128(9, 2)),
    ]
)
AGGREGATES = [
    ("rows", "count", None),
    ("values", "count_values", "f"),
    ("f_sum", "sum", "f"),
    ("f_mean", "mean", "f"),
    ("f_max", "max", "f"),
    ("f_var", "var_samp", "f"),
    ("i_sum", "sum", "i"),
    ("i_min", "min", "i"),
    ("u_max", "max", "u"),
    ("b_max", "max", "b"),
    ("at_min", "min", "at"),
    ("d_sum", "sum", "d"),
]
RANKED = [name for name, _, _ in AGGREGATES if name != "d_sum"]
FLOATS = st.sampled_from([None, math.nan, math.inf, -math.inf, 0.0, -0.0, 1.5, -2.25, 7.0])
ROWS = st.lists(
    st.tuples(
        st.sampled_from([None, "", "a", "b", "a long word that is not stored inline", "é"]),
        st.sampled_from([None, math.nan, -0.0, 0.0, -1.0, 2.0]),
        st.integers(-12, 12),
        FLOATS,
        st.one_of(st.none(), st.integers(-3, 3)),
        st.sampled_from([None, 0, 2**63, 2**64 - 1]),
        st.sampled_from([None, True, False]),
        st.one_of(st.none(), st.integers(-2, 2)),
        st.none(),
    ),
    max_size=60,
)


def comes_before(value: Any) -> tuple[bool, bool, Any]:
    """Ascending, NaN behind all numbers, null last."""
    if value is None:
        return (True, False, 0)
    if isinstance(value, float) and math.isnan(value):
        return (False, True, 0)
    return (False, False, value.encode() if isinstance(value, str) else value)


def reversed_order(value: Any) -> tuple[bool, bool, Any]:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return (value is None, False, 0)
    number = value if isinstance(value, float | int) else value.toordinal()
    return (False, True, -number)


def slow_top(rows: list[dict[str, Any]], by: str, count: int, ascending: bool, per: list[str]) -> list[dict[str, Any]]:
    groups: dict[Any, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["window_end"], *(comes_before(row[key]) for key in per)), []).append(row)
    best = []
    for group in groups.values():
        value_order = comes_before if ascending else reversed_order
        group.sort(key=lambda row: (value_order(row[by]), comes_before(row["word"]), comes_before(row["number"])))
        best += group[:count]
    return best


def results(table: WindowTable, rows_max: int = 65536) -> list[dict[str, Any]]:
    found = []
    while (batch := table.emit(rows_max)) is not None:
        assert batch.row_count <= rows_max
        found += batch.to_arrow().to_pylist()
    return found


def ordered(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(repr(row) for row in rows)


def table(slide: int = 2) -> WindowTable:
    return WindowTable(SCHEMA, ["word", "number"], "time", AGGREGATES, 6, slide)


def batch_of(rows: list[tuple[Any, ...]]) -> Batch:
    columns = list(zip(*rows, strict=True)) or [()] * len(SCHEMA)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    return Batch.from_arrow(pa.record_batch(arrays, schema=SCHEMA))


@settings(max_examples=40, deadline=None)
@given(
    rows=st.lists(ROWS, min_size=1, max_size=3),
    slide=st.sampled_from([2, 6]),
    by=st.sampled_from(RANKED),
    count=st.integers(1, 4),
    ascending=st.booleans(),
    per=st.sampled_from([[], ["word"], ["number"], ["number", "word"]]),
    rows_max=st.sampled_from([1, 3, 65536]),
)
def test_the_best_results_of_a_window_are_those_that_a_sort_of_all_puts_first(
    rows: list[list[Any]], slide: int, by: str, count: int, ascending: bool, per: list[str], rows_max: int
) -> None:
    everything, best = table(slide), table(slide)
    best.keep_top(by, count, ascending, per)
    for watermark, part in enumerate(rows):
        for one in (everything, best):
            one.accumulate(batch_of(part))
            one.advance(watermark * 3 if watermark + 1 < len(rows) else MAX_TIME)
        wanted = slow_top(results(everything), by, count, ascending, per)
        assert ordered(results(best, rows_max)) == ordered(wanted)


@pytest.mark.parametrize("per", [[], ["word"]])
@pytest.mark.parametrize("values", ["equal", "random"])
def test_of_many_results_with_equal_values_those_with_the_least_keys_are_kept(per: list[str], values: str) -> None:
    count, random = 70_000, np.random.default_rng(5)
    schema = pa.schema([("word", pa.string()), ("number", pa.int64()), ("time", pa.timestamp("us")), ("v", pa.int64())])
    numbers = random.permutation(count)
    words = numbers % 3
    value = np.ones(count, np.int64) if values == "equal" else random.integers(0, 1000, count)
    rows = pa.record_batch(
        [
            pa.array(words.astype(str)),
            pa.array(numbers),
            pa.array(np.zeros(count, np.int64), pa.timestamp("us")),
            value,
        ],
        schema=schema,
    )
    found = WindowTable(schema, ["word", "number"], "time", [("v", "sum", "v")], 6, 6)
    found.keep_top("v", 5, per=per)
    found.accumulate(Batch.from_arrow(rows))
    found.advance(MAX_TIME)
    order = np.lexsort([numbers, words, -value])
    kept = [order[:5]] if not per else [order[words[order] == word][:5] for word in range(3)]
    wanted = {int(numbers[row]) for part in kept for row in part}
    assert {row["number"] for row in results(found)} == wanted


def test_a_restored_table_keeps_the_best_of_what_was_not_emitted() -> None:
    rows = [("a", 1.0, 1, 1.0, 1, 1, True, 0, None), ("b", 1.0, 1, 1.0, 2, 1, True, 0, None)]
    before = table(6)
    before.accumulate(batch_of(rows))
    after = table(6)
    after.keep_top("i_sum", 1)
    for saved in before.save():
        after.restore(saved)
    after.restore_bound(0, 3)
    after.finish_restore()
    after.advance(MAX_TIME)
    assert [row["word"] for row in results(after)] == ["b"]


def test_a_sum_that_does_not_fit_is_an_error_also_among_results_that_are_not_kept() -> None:
    schema = pa.schema([("k", pa.string()), ("time", pa.timestamp("us")), ("v", pa.int64())])
    rows = pa.record_batch([["a", "b", "b"], pa.array([0, 0, 0], pa.timestamp("us")), [1, 2**63 - 1, 1]], schema=schema)
    found = WindowTable(schema, ["k"], "time", [("v", "sum", "v")], 6, 2)
    found.keep_top("v", 1, ascending=True)
    found.accumulate(Batch.from_arrow(rows))
    found.advance(MAX_TIME)
    with pytest.raises(OverflowError, match="does not fit int64 for key k='b'"):
        found.emit()


def test_what_cannot_be_ranked_is_an_error() -> None:
    with pytest.raises(TypeError, match="not ranked by 'd_sum': decimal128"):
        table().keep_top("d_sum", 1)
    with pytest.raises(ValueError, match="no aggregate 'x'; there are rows, values"):
        table().keep_top("x", 1)
    with pytest.raises(ValueError, match="no key 'rows'; there are word, number"):
        table().keep_top("rows", 1, per=["rows"])
    with pytest.raises(ValueError, match="count must be at least 1, got 0"):
        table().keep_top("rows", 0)
