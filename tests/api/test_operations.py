"""Stateless steps on batches: what is kept, what is copied, and what is said when a row fails."""

import pickle
from collections.abc import Callable

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetfast.api.expressions import as_expression, col, lit, when
from jetfast.api.operations import AsNullable, Drop, Operation, Rename, Select, Where, WithColumns
from jetfast.core.batch import Batch
from jetfast.errors import JobDefinitionError, JobFailedError

ROWS = pa.record_batch(
    {"a": pa.array([1, 2, None, 4], pa.int64()), "b": pa.array([1, 0, 3, 4], pa.int64()), "s": list("wxyz")}
)


def apply(operation: Operation, rows: pa.RecordBatch = ROWS) -> pa.RecordBatch:
    """Bind, travel to a member, call."""
    bound = pickle.loads(pickle.dumps(operation.bind(rows.schema, "step")))
    result = bound(Batch.from_arrow(rows)).to_arrow()
    assert result.schema.equals(bound.schema)
    return result


def outputs(**expressions: object) -> tuple[tuple[str, object], ...]:
    return tuple((name, as_expression(expression)) for name, expression in expressions.items())


def test_select_keeps_the_order_given_and_computes() -> None:
    result = apply(Select(outputs(s=col("s"), next=col("a") + 1, again=col("a"), one=lit(1))))
    assert result.to_pydict() == {"s": list("wxyz"), "next": [2, 3, None, 5], "again": [1, 2, None, 4], "one": [1] * 4}


def test_a_computed_column_may_take_the_name_of_one_that_is_passed_on() -> None:
    result = apply(Select(outputs(a=col("a") + col("b"), old=col("a"))))
    assert result.to_pydict() == {"a": [2, 2, None, 8], "old": [1, 2, None, 4]}


def test_with_columns_replaces_in_place_and_appends_and_sees_the_columns_as_they_were() -> None:
    result = apply(WithColumns(outputs(a=col("a") * 10, c=col("a") + 1, d=col("b"))))
    assert result.to_pydict() == {
        "a": [10, 20, None, 40], "b": [1, 0, 3, 4], "s": list("wxyz"), "c": [2, 3, None, 5], "d": [1, 0, 3, 4],
    }  # fmt: skip


def test_drop_and_rename_keep_the_order() -> None:
    assert apply(Drop(("b",))).schema.names == ["a", "s"]
    assert apply(Rename({"a": "b", "b": "a"})).to_pydict() == {
        "b": [1, 2, None, 4],
        "a": [1, 0, 3, 4],
        "s": list("wxyz"),
    }


def test_columns_that_are_passed_on_are_not_copied() -> None:
    batch = Batch.from_arrow(ROWS)
    address = batch.to_arrow().column("b").buffers()[1].address
    for operation in (
        Select(outputs(b=col("b"), c=col("a") + 1)),
        Drop(("a",)),
        Rename({"a": "c"}),
        WithColumns(outputs(a=lit(1))),
    ):
        result = operation.bind(ROWS.schema, "step")(batch).to_arrow()
        assert result.column("b").buffers()[1].address == address


def test_where_keeps_what_is_true_only() -> None:
    assert apply(Where(col("a") > 1)).to_pydict() == {"a": [2, 4], "b": [0, 4], "s": ["x", "z"]}


def test_where_returns_the_batch_itself_if_all_rows_stay() -> None:
    batch = Batch.from_arrow(ROWS)
    assert Where(col("b") >= 0).bind(ROWS.schema, "step")(batch) is batch
    assert len(Where(col("b") > 9).bind(ROWS.schema, "step")(batch)) == 0


def test_what_is_made_of_a_batch_knows_its_source_partition() -> None:
    batch = Batch.from_arrow(ROWS).with_origin("file.csv", 100)
    select, filtered = Select(outputs(b=col("b"), c=col("a") + 1)), Where(col("b") > 0)
    for operation in (
        select,
        filtered,
        WithColumns(outputs(a=lit(1))),
        Drop(("a",)),
        Rename({"a": "c"}),
        AsNullable(ROWS.schema),
    ):
        assert operation.bind(ROWS.schema, "step")(batch).origin == ("file.csv", 100)


def test_more_rows_than_arrow_takes_at_once_stay_in_order() -> None:
    rows = pa.record_batch({"a": np.arange(65536)})
    result = apply(WithColumns(outputs(b=col("a") * 2)), rows)
    assert result.column("b").to_numpy().tolist() == (np.arange(65536) * 2).tolist()
    assert apply(Where(col("a") % 2 == 1), rows).num_rows == 32768


def test_a_row_that_fails_is_named_with_step_and_column() -> None:
    message = r"step 'step', column 'ratio', row 1 of a batch of 4: divide by zero; the row has \{'a': 2, 'b': 0\}"
    with pytest.raises(JobFailedError, match=message):
        apply(Select(outputs(sum=col("a") + col("b"), ratio=col("a") / col("b"))))
    with pytest.raises(JobFailedError, match=r"row 1 of a batch of 4: divide by zero"):
        apply(Where(col("a") / col("b") > 0))
    rows = pa.record_batch({"a": np.r_[np.zeros(5000, np.int64), 2**63 - 1, np.zeros(3000, np.int64)]})
    with pytest.raises(
        JobFailedError, match=r"column 'c', row 5000 of a batch of 8001: overflow; the row has .*\"null\""
    ):
        apply(WithColumns(outputs(c=col("a") + 1)), rows)


def test_on_error_null_gives_null_for_the_rows_that_fail_and_no_others() -> None:
    assert apply(Select(outputs(r=col("a") / col("b")), "null")).to_pydict() == {"r": [1.0, None, None, 1.0]}
    assert apply(Where(col("a") / col("b") >= 1, "null")).to_pydict()["a"] == [1, 4]
    texts = pa.record_batch({"t": ["1", "two", None, "4", "5.5"], "n": pa.array([1, 2, 3, 2**62, 5])})
    operation = WithColumns(outputs(t=col("t").cast("bigint"), n=col("n") * 4, m=col("n") + 1), "null")
    assert apply(operation, texts).to_pydict() == {
        "t": [1, None, None, 4, None],
        "n": [4, 8, 12, None, 20],
        "m": [2, 3, 4, 2**62 + 1, 6],
    }


INTEGER_TYPES = {pa.int8(): 8, pa.int16(): 16, pa.int32(): 32, pa.int64(): 64}


@settings(max_examples=40)
@given(data=st.data(), data_type=st.sampled_from(list(INTEGER_TYPES)))
def test_on_error_null_gives_what_python_gives_where_it_fits(data: st.DataObject, data_type: pa.DataType) -> None:
    bits = INTEGER_TYPES[data_type]
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    edges = st.sampled_from([low, low + 1, -2, -1, 0, 1, 2, high - 1, high, 2 ** (bits // 2)])
    values = st.one_of(st.none(), edges, st.integers(low, high))
    pairs = data.draw(st.lists(st.tuples(values, values), min_size=1, max_size=20))
    rows = pa.record_batch(
        {name: pa.array(column, data_type) for name, column in zip("ab", zip(*pairs, strict=True), strict=True)}
    )
    a, b = col("a"), col("b")
    result = apply(
        Select(outputs(add=a + b, subtract=a - b, multiply=a * b, minus=-a, positive=abs(a), rest=a % b), "null"), rows
    )

    def fitting(value: int) -> int | None:
        return value if low <= value <= high else None

    for (x, y), row in zip(pairs, result.to_pylist(), strict=True):
        both = x is not None and y is not None
        assert row == {
            "add": fitting(x + y) if both else None,
            "subtract": fitting(x - y) if both else None,
            "multiply": fitting(x * y) if both else None,
            "minus": None if x is None else fitting(-x),
            "positive": None if x is None else fitting(abs(x)),
            "rest": (abs(x) % abs(y) * (1 if x >= 0 else -1)) if both and y != 0 else None,
        }


def test_on_error_null_gives_null_for_what_cannot_be_cast() -> None:
    rows = pa.record_batch(
        {
            "text": ["12", "-3", "x", "", "300", "9" * 30, None, "1.5"],
            "number": [1.5, -2.9, float("nan"), 3e9, 128.0, -129.0, None, 127.9],
            "day": ["2013-01-01", "2013-13-01", "soon", "", "2013-02-28", None, "2013-02-30", "1"],
        }
    )
    result = apply(
        Select(
            outputs(
                i=col("text").cast("int"),
                f=col("text").cast("double"),
                b=col("number").cast("tinyint"),
                d=col("day").cast("date"),
            ),
            "null",
        ),
        rows,
    ).to_pydict()
    assert result["i"] == [12, -3, None, None, 300, None, None, None]
    assert result["f"] == [12.0, -3.0, None, None, 300.0, 1e30, None, 1.5]
    assert result["b"] == [1, -2, None, None, None, None, None, 127]
    assert [day and str(day) for day in result["d"]] == ["2013-01-01", None, None, None, "2013-02-28", None, None, None]


def test_many_bad_rows_cost_no_more_than_good_ones() -> None:
    rows = pa.record_batch({"x": pa.array([2**63 - 1] * 65536), "t": ["x"] * 65536})
    operation = Select(outputs(y=col("x") + 1, z=col("t").cast("int"), w=col("x") / 0), "null")
    bound = operation.bind(rows.schema, "step")
    assert all(column.null_count == 65536 for column in bound(Batch.from_arrow(rows)).to_arrow().columns)


def test_errors_at_build_name_step_column_and_what_there_is() -> None:
    for operation, message in (
        (
            Select(outputs(x=col("aa"))),
            r"step 'step': there is no column 'aa'; did you mean 'a'\? The columns are: a, b, s",
        ),
        (Where(col("q") > 1), r"no column 'q' \(in \(q > 1\)\)\. The columns are: a, b, s"),
        (WithColumns(outputs(x=col("s") + 1)), r"step 'step', column 'x': \(s \+ 1\) does not fit .*s: string"),
        (Where(col("a") + 1), r"where needs a condition \(bool\), but \(a \+ 1\) is int64"),
        (Rename({"a": "b"}), r"two columns of the result are named 'b'"),
    ):
        with pytest.raises(JobDefinitionError, match=message):
            operation.bind(ROWS.schema, "step")


def test_only_what_is_read_below_is_needed_above() -> None:
    schema = ROWS.schema
    assert Select(outputs(x=col("a") + 1, s=col("s"))).needed(schema, {"s"}) == {"a", "s"}  # a row that fails must fail
    assert WithColumns(outputs(a=col("b"))).needed(schema, {"a"}) == {"b"}
    assert Where(col("a") > 1).needed(schema, {"s"}) == {"a", "s"}
    assert Drop(("a",)).needed(schema, {"s"}) == {"s"}
    assert Rename({"a": "x"}).needed(schema, {"x", "s"}) == {"a", "s"}


COLUMN = st.lists(st.one_of(st.none(), st.integers(-100, 100)), min_size=0, max_size=30)


@settings(max_examples=30)
@given(column=COLUMN)
def test_random_rows_are_filtered_and_computed_as_polars_does(column: list[int | None]) -> None:
    rows = pa.record_batch({"a": pa.array(column, pa.int64())})
    filtered = apply(Where(col("a") > 0), rows)
    computed = apply(WithColumns(outputs(b=when(filtered_condition(col), col("a") * 2).otherwise(0))), filtered)
    frame = pl.DataFrame({"a": column}, schema={"a": pl.Int64}).filter(pl.col("a") > 0)
    expected = frame.with_columns(b=pl.when(filtered_condition(pl.col)).then(pl.col("a") * 2).otherwise(0))
    assert computed.to_pydict() == expected.to_dict(as_series=False)


def filtered_condition(column: Callable[[str], object]) -> object:
    return column("a") > 50  # type: ignore[operator]
