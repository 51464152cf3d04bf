"""Expressions mean what Spark's do: values by hand, and random data against DuckDB and Polars."""

import pickle
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import reduce

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetfast.api.expressions import Expression, as_expression, coalesce, col, lit, when
from jetfast.api.lowering import ExpressionTypeError, UnknownColumnError, Way, lower
from jetfast.errors import JobDefinitionError

DAY, NEXT_DAY = date(1970, 1, 1), date(1970, 1, 2)

ROWS = pa.record_batch(
    {
        "i": pa.array([7, -7, 0, None], pa.int32()),
        "j": pa.array([2, 0, 3, 4], pa.int64()),
        "f": pa.array([1.5, -5.3, float("nan"), None], pa.float64()),
        "r": pa.array([0.5, 2.0, 1.0, 1.0], pa.float32()),
        "s": pa.array(["a", "b", None, "d"]),
        "b": pa.array([True, False, None, True]),
        "t": pa.array([0, 86_400_000_000, None, 1], pa.timestamp("us")),
        "d": pa.array([Decimal("1.50"), Decimal("2.25"), None, Decimal("0.10")], pa.decimal128(10, 2)),
    }
)


def evaluate(expression: object, null_on_error: bool = False, rows: pa.RecordBatch = ROWS) -> pa.Array:
    """Evaluate after a round trip through pickle, as members do."""
    travelled = pickle.loads(pickle.dumps(as_expression(expression)))
    lowered = lower(travelled, rows.schema, null_on_error)
    if null_on_error:
        return lowered.evaluate(rows, Way.FORGIVING)
    result = lowered.evaluate(rows, Way.CAREFUL)
    try:
        assert lowered.evaluate(rows, Way.QUICK).equals(result)
    except pa.ArrowInvalid:  # a row that does not matter failed
        assert lowered.careful is not None
    return result


def values(expression: object, null_on_error: bool = False) -> list[object]:
    return evaluate(expression, null_on_error).to_pylist()


@pytest.mark.parametrize(
    ("expression", "expected", "data_type"),
    [
        (col("i") + 1, [8, -6, 1, None], pa.int32()),
        (col("i") + 2**40, [7 + 2**40, -7 + 2**40, 2**40, None], pa.int64()),
        (1 - col("i"), [-6, 8, 1, None], pa.int32()),
        (col("i") * col("j"), [14, 0, 0, None], pa.int64()),
        (2 * col("i"), [14, -14, 0, None], pa.int32()),
        (-col("i"), [-7, 7, 0, None], pa.int32()),
        (+col("i"), [7, -7, 0, None], pa.int32()),
        (abs(col("i")), [7, 7, 0, None], pa.int32()),
        (col("i") / 2, [3.5, -3.5, 0.0, None], pa.float64()),
        (1 / col("r"), [2.0, 0.5, 1.0, 1.0], pa.float64()),
        (col("i") % 3, [1, -1, 0, None], pa.int32()),
        (col("i") % -3, [1, -1, 0, None], pa.int32()),
        (7 % col("r"), [0.0, 1.0, 0.0, 0.0], pa.float64()),
        (col("i") + col("r"), [7.5, -5.0, 1.0, None], pa.float64()),
        (col("i") > 0, [True, False, False, None], pa.bool_()),
        (lit(0) < col("i"), [True, False, False, None], pa.bool_()),
        (col("i") == 7, [True, False, False, None], pa.bool_()),
        (col("i") != 7, [False, True, True, None], pa.bool_()),
        (col("i") >= col("j"), [True, False, False, None], pa.bool_()),
        (col("i").between(-7, 0), [False, True, True, None], pa.bool_()),
        (col("i").isin(7, 8), [True, False, False, None], pa.bool_()),
        (col("i").isin([7, None]), [True, None, None, None], pa.bool_()),
        (~col("i").isin(7), [False, True, True, None], pa.bool_()),
        (col("s").isin("a", "d"), [True, False, None, True], pa.bool_()),
        (col("i").is_null(), [False, False, False, True], pa.bool_()),
        (col("i").is_valid(), [True, True, True, False], pa.bool_()),
        (col("f").is_nan(), [False, False, True, None], pa.bool_()),
        (col("b") & False, [False, False, False, False], pa.bool_()),
        (True & col("b"), [True, False, None, True], pa.bool_()),
        (col("b") | True, [True, True, True, True], pa.bool_()),
        (False | col("b"), [True, False, None, True], pa.bool_()),
        (~col("b"), [False, True, None, False], pa.bool_()),
        (col("t") >= "1970-01-02", [False, True, None, False], pa.bool_()),
        (col("t").cast(pa.timestamp("us", "UTC")) >= "1970-01-02", [False, True, None, False], pa.bool_()),
        (col("t").cast(pa.timestamp("us", "UTC")) >= "1970-01-02 01:00+01:00", [False, True, None, False], pa.bool_()),
        (col("t") < datetime(1970, 1, 2), [True, False, None, True], pa.bool_()),
        (lit(3), [3, 3, 3, 3], pa.int32()),
        (lit(2**31), [2**31] * 4, pa.int64()),
        (lit("x"), ["x"] * 4, pa.string()),
        (coalesce(col("i"), 5), [7, -7, 0, 5], pa.int32()),
        (coalesce(col("i"), col("j")), [7, -7, 0, 4], pa.int64()),
        (when(col("i") > 0, "up").when(col("i") < 0, "down").otherwise("level"), ["up", "down", "level", "level"],
         pa.string()),
        (when(col("i") > 0, 1), [1, None, None, None], pa.int32()),
        (when(col("i") > 0, None).otherwise(2.5), [None, 2.5, 2.5, 2.5], pa.float64()),
        (col("i").cast("bigint"), [7, -7, 0, None], pa.int64()),
        (col("i").cast("string"), ["7", "-7", "0", None], pa.string()),
        (col("d") + col("d"), [Decimal("3.00"), Decimal("4.50"), None, Decimal("0.20")], pa.decimal128(11, 2)),
        (col("d") + 1, [Decimal("2.50"), Decimal("3.25"), None, Decimal("1.10")], pa.decimal128(11, 2)),
        (col("d") * col("i"), [Decimal("10.50"), Decimal("-15.75"), None, None], pa.decimal128(21, 2)),
        (col("d") + col("f"), [3.0, -3.05, None, None], pa.float64()),
        (col("d") > 1, [True, True, None, False], pa.bool_()),
        (col("d") == 1.5, [True, False, None, False], pa.bool_()),
        (col("d") / col("d"), [Decimal(1), Decimal(1), None, Decimal(1)], pa.decimal128(23, 13)),
        (col("d") % 1, [Decimal("0.50"), Decimal("0.25"), None, Decimal("0.10")], pa.decimal128(3, 2)),
        (col("d").cast("double"), [1.5, 2.25, None, 0.1], pa.float64()),
        (col("t").cast("date"), [DAY, NEXT_DAY, None, DAY], pa.date32()),
        (col("t") + timedelta(days=1), [datetime(1970, 1, 2), datetime(1970, 1, 3), None,
                                        datetime(1970, 1, 2, microsecond=1)], pa.timestamp("us")),
        (pc.field("i") + 1, [8, -6, 1, None], pa.int32()),
        (col("j") + pc.field("i"), [9, -7, 3, None], pa.int64()),
        (lit(pc.field("i")) > col("j"), [True, False, False, None], pa.bool_()),
    ],
    ids=str,
)  # fmt: skip
def test_expression_gives_sparks_values_and_type(
    expression: Expression, expected: list[object], data_type: pa.DataType
) -> None:
    result = evaluate(expression)
    assert result.to_pylist() == expected
    assert result.type == data_type


def test_division_by_zero_is_an_error_of_the_row_and_null_if_asked() -> None:
    for expression in (col("i") / col("j"), col("f") / col("j"), col("i") % col("j"), col("f") % col("j")):
        with pytest.raises(pa.ArrowInvalid, match="divide by zero"):
            values(expression)
        assert values(expression, null_on_error=True)[1] is None
        assert values(expression, null_on_error=True)[0] is not None


def test_on_error_null_makes_the_part_null_that_fails_and_what_reads_it_sees_a_null() -> None:
    assert values(coalesce(col("j") / col("j"), 5), null_on_error=True) == [1.0, 5.0, 1.0, 1.0]
    assert values(coalesce(col("s").cast("double"), -1.0), null_on_error=True) == [-1.0, -1.0, -1.0, -1.0]
    assert values((col("i") / col("j")).is_null(), null_on_error=True) == [False, True, False, True]
    assert values((col("i") / col("j") > 1) | (col("j") == 0), null_on_error=True) == [True, True, False, None]
    far = pa.record_batch({"t": pa.array([2**63 - 1, 0], pa.timestamp("us"))})
    later = coalesce(col("t") + timedelta(days=1), datetime(1970, 1, 1))
    assert evaluate(later, True, far).to_pylist() == [datetime(1970, 1, 1), datetime(1970, 1, 2)]


def test_try_cast_gives_null_without_on_error() -> None:
    number = coalesce(col("s").try_cast("double"), -1.0)
    assert values(number) == [-1.0, -1.0, -1.0, -1.0]
    assert values(col("f").try_cast("int")) == [1, -5, None, None]
    assert values((col("j") * 100).try_cast("tinyint")) == [None, 0, None, None]
    assert str(col("f").try_cast("int").node) == "try_cast(f as int32)"
    assert col("f").try_cast("int").name == "f"
    with pytest.raises(pa.ArrowInvalid, match="divide by zero"):
        values((1 / col("j")).try_cast("int"))


def test_conditions_guard_what_follows_them() -> None:
    ratio = col("i") / col("j")
    assert values((col("j") != 0) & (ratio > 1)) == [True, False, False, None]
    assert values((col("j") == 0) | (ratio > 1)) == [True, True, False, None]
    assert values(when(col("j") != 0, ratio).otherwise(-1.0)) == [3.5, -1.0, 0.0, None]
    assert values(when(col("j") == 0, 0.0).otherwise(ratio)) == [3.5, 0.0, 0.0, None]
    assert values(when(col("j") != 0, col("i") % col("j"))) == [1, None, 0, None]
    assert values(when(col("s") == "x", col("s").cast("int"))) == [None] * 4
    assert values(when(col("j") == 0, 0.0).otherwise(when(ratio > 0, 1.0).otherwise(2.0)), True) == [1.0, 0.0, 2.0, 2.0]


@pytest.mark.parametrize("way", [Way.CAREFUL, Way.FORGIVING])
def test_long_chains_of_conditions_stay_small(way: Way) -> None:
    conditions = [(col("i") + number) / col("j") > number - 30 for number in range(20)]
    everything = reduce(lambda left, right: left & right, conditions)
    case = when(col("i") / col("j") > 100, -1)
    for number in range(20):
        case = case.when((col("i") + number) / (col("j") - 3) > 20, number)
    for expression in (everything, case.otherwise(99)):
        rows = ROWS.slice(0, 1)
        assert (
            lower(expression, ROWS.schema, True).evaluate(rows, way).to_pylist()
            == lower(expression, ROWS.schema).evaluate(rows, Way.QUICK).to_pylist()
        )


def test_overflow_is_an_error_not_a_wrapped_value() -> None:
    rows = pa.record_batch({"x": pa.array([2**63 - 1, -(2**63)], pa.int64())})
    for expression in (col("x") + 1, col("x") * 2, -col("x"), abs(col("x")), col("x") - 1):
        with pytest.raises(pa.ArrowInvalid, match="overflow"):
            evaluate(expression, rows=rows)
    small = pa.record_batch({"x": pa.array([2**31 - 1], pa.int32())})
    with pytest.raises(pa.ArrowInvalid, match="overflow"):
        evaluate(col("x") + 1, rows=small)


def test_remainder_of_the_smallest_integer_by_minus_one_is_zero() -> None:
    rows = pa.record_batch({"x": pa.array([-(2**63)], pa.int64()), "y": pa.array([-1], pa.int64())})
    assert evaluate(col("x") % col("y"), rows=rows).to_pylist() == [0]


def test_remainder_of_floats_is_exact() -> None:
    rows = pa.record_batch({"x": [1e20, 5.3, -0.3], "y": [3.0, 0.1, 0.1]})
    expected = np.fmod([1e20, 5.3, -0.3], [3.0, 0.1, 0.1]).tolist()
    assert evaluate(col("x") % col("y"), rows=rows).to_pylist() == expected


def test_large_integers_divide_and_cast_to_float_by_rounding() -> None:
    rows = pa.record_batch({"x": pa.array([2**53 + 1], pa.int64())})
    assert evaluate(col("x") / 1, rows=rows).to_pylist() == [float(2**53 + 1)]
    assert evaluate(col("x").cast("double"), rows=rows).to_pylist() == [float(2**53 + 1)]


def test_cast_cuts_the_fraction_off_and_refuses_what_does_not_fit() -> None:
    rows = pa.record_batch({"x": [1.9, -1.9, None]})
    assert evaluate(col("x").cast("int"), rows=rows).to_pylist() == [1, -1, None]
    for value in (3e9, float("nan")):
        with pytest.raises(pa.ArrowInvalid):
            evaluate(col("x").cast("int"), rows=pa.record_batch({"x": [value]}))
    with pytest.raises(pa.ArrowInvalid, match=r"cannot cast 'a' \(string\) to int32"):
        values(col("s").cast("int"))


def test_unknown_column_is_found_also_inside_arrows_own_expressions() -> None:
    for expression in (col("nope") + 1, pc.field("nope") + 1, col("i") + pc.field("nope"), pc.year(pc.field("nope"))):
        with pytest.raises(UnknownColumnError, match="nope"):
            lower(as_expression(expression), ROWS.schema)


@pytest.mark.parametrize(
    "expression",
    [
        col("i") + "x", col("s") / 2, col("t") % 2, col("i") & True, ~col("i"), col("i").isin("x"), col("t") > "soon",
        when(col("i"), 1).otherwise(2), when(col("b"), "x").otherwise(2), col("s") > 1,
    ],
    ids=str,
)  # fmt: skip
def test_types_that_do_not_fit_are_an_error_at_build(expression: Expression) -> None:
    with pytest.raises(ExpressionTypeError):
        lower(expression, ROWS.schema)


def test_the_columns_read_are_known() -> None:
    expression = when(col("b"), col("i") + 1).otherwise(pc.field("j") * 2) + coalesce(col("f"), 0)
    assert lower(expression, ROWS.schema).columns == ("i", "j", "f", "b")
    assert lower(lit(1), ROWS.schema).columns == ()


BERLIN = pa.timestamp("us", "Europe/Berlin")
TIMES = pa.record_batch(
    {
        "zoned": pa.array([0, 1616895000_000000, 1635640200_000000], BERLIN),
        "naive": pa.array([0, 1616895000_000000, 1635640200_000000], pa.timestamp("us")),
        "seconds": pa.array([0, 1, 2], pa.timestamp("s")),
        "nanos": pa.array([0, 1, None], pa.timestamp("ns")),
        "day": pa.array([0, 1, None], pa.date32()),
    }
)


@pytest.mark.parametrize(
    "expression",
    [
        col("zoned") < col("naive"), col("naive") == col("zoned"), col("zoned") > col("day"),
        col("zoned") - col("naive"),
        col("naive") < datetime(2020, 1, 1, tzinfo=UTC), col("naive").isin(datetime(2020, 1, 1, tzinfo=UTC)),
        coalesce(col("zoned"), col("naive")), when(col("naive") > col("day"), col("zoned")).otherwise(col("day")),
        col("day").between(datetime(2020, 1, 1, tzinfo=UTC), None),
    ],
    ids=str,
)  # fmt: skip
def test_a_time_with_a_zone_beside_a_column_without_one_is_refused_at_build(expression: Expression) -> None:
    with pytest.raises(ExpressionTypeError, match="zone|have types"):
        lower(expression, TIMES.schema)


def test_text_dates_and_naive_literals_mean_local_time_in_the_zone_of_the_column() -> None:
    local = datetime(2021, 3, 28, 2, 30)  # the clock skips it: 03:30 in summer time
    for literal in ("2021-03-28 02:30:00", local):
        assert evaluate(col("zoned") == literal, rows=TIMES).to_pylist() == [False, True, False]
        assert evaluate(lit(literal) <= col("zoned"), rows=TIMES).to_pylist() == [False, True, True]
        assert evaluate(col("zoned").isin(literal), rows=TIMES).to_pylist() == [False, True, False]
    assert evaluate(col("zoned").between(date(1970, 1, 1), "1970-01-01"), rows=TIMES).to_pylist() == [False] * 3
    assert evaluate(col("zoned") > date(1970, 1, 1), rows=TIMES).to_pylist() == [True] * 3
    with_zone = datetime(2021, 3, 28, 1, 30, tzinfo=UTC)
    assert evaluate(col("zoned") == with_zone, rows=TIMES).to_pylist() == [False, True, False]


def test_a_literal_that_the_unit_of_a_column_cannot_express_is_not_cut() -> None:
    later = datetime(1970, 1, 1, 0, 0, 1, 500_000)
    assert evaluate(col("seconds") < later, rows=TIMES).to_pylist() == [True, True, False]
    assert evaluate(col("seconds").isin(later, datetime(1970, 1, 1)), rows=TIMES).to_pylist() == [True, False, False]
    assert evaluate(col("day").isin(later, datetime(1970, 1, 2)), rows=TIMES).to_pylist() == [False, True, None]
    assert evaluate(col("day") < later, rows=TIMES).to_pylist() == [True, False, None]
    assert evaluate(col("nanos") < datetime(9999, 12, 31), rows=TIMES).to_pylist() == [True, True, None]
    assert evaluate(lit(datetime(1, 1, 1)) > col("nanos"), rows=TIMES).to_pylist() == [False, False, None]
    assert evaluate(col("nanos") != datetime(1, 1, 1), rows=TIMES).to_pylist() == [True, True, None]
    assert evaluate(col("nanos").isin(datetime(9999, 12, 31)), rows=TIMES).to_pylist() == [False, False, None]
    shifted = evaluate(col("seconds") + timedelta(microseconds=5), rows=TIMES)
    assert shifted.type == pa.timestamp("us")
    assert shifted[0].as_py() == datetime(1970, 1, 1, 0, 0, 0, 5)


def test_nulls_without_a_type_are_computed_with() -> None:
    for expression in (lit(None) + None, lit(None) / lit(None), lit(None) == None, -lit(None), lit(None) % 2):  # noqa: E711
        assert values(expression) == [None] * 4
    assert values(lit(None) + 1) == [None] * 4
    assert values(col("t") - None) == [None] * 4


def test_python_and_or_not_are_refused() -> None:
    with pytest.raises(TypeError, match=r"combine conditions with & \| ~"):
        bool(col("i") > 0 and col("j") > 0)


def test_names_come_from_columns_and_aliases() -> None:
    assert col("i").name == "i"
    assert (col("i") + 1).name is None
    assert (col("i") + 1).alias("next").name == "next"
    assert col("i").cast("bigint").name == "i"
    assert when(col("b"), 1).alias("one").name == "one"
    assert str((col("i") + 1).alias("next")) == "(i + 1) as next"


def test_what_is_no_literal_and_no_type_is_refused() -> None:
    with pytest.raises(TypeError, match="neither a column expression nor a literal"):
        lit(object())
    with pytest.raises(TypeError, match="named by text"):
        col(3)  # type: ignore[arg-type]
    with pytest.raises(JobDefinitionError, match="no type is named 'integr'"):
        col("i").cast("integr")
    with pytest.raises(TypeError, match="at least one"):
        coalesce()


INTEGERS = st.one_of(st.none(), st.integers(-(2**20), 2**20))
FLOATS = st.one_of(st.none(), st.floats(-1e6, 1e6, allow_subnormal=False))

# (ours, the same in SQL of DuckDB, the same in Polars)
EXPRESSIONS = [
    (col("a") + col("b") * 3 - 1, "a + b * 3 - 1", pl.col("a") + pl.col("b") * 3 - 1),
    (col("a") / 7, "a / 7", pl.col("a") / 7),
    (col("x") * col("y"), "x * y", pl.col("x") * pl.col("y")),
    (col("a") % 7, "a % 7", None),  # the remainder of Polars has the sign of the divisor
    (col("x") % 7.5, "x % 7.5", None),
    ((col("a") > col("b")) & ~(col("x") < 0), "a > b and not x < 0", (pl.col("a") > pl.col("b")) & ~(pl.col("x") < 0)),
    ((col("a") > 0) | (col("y") < 5), "a > 0 or y < 5", (pl.col("a") > 0) | (pl.col("y") < 5)),
    (col("a").isin(1, 2, 3), "a in (1, 2, 3)", pl.col("a").is_in([1, 2, 3])),
    (col("a").between(-5, 5), "a between -5 and 5", pl.col("a").is_between(-5, 5)),
    (
        when(col("b") != 0, col("a") / col("b")).otherwise(col("x")),
        "case when b != 0 then a / b else x end",
        pl.when(pl.col("b") != 0).then(pl.col("a") / pl.col("b")).otherwise(pl.col("x")),
    ),
    (coalesce(col("a"), col("b"), 0), "coalesce(a, b, 0)", pl.coalesce(pl.col("a"), pl.col("b"), 0)),
    (abs(col("x")) - (-col("y")), "abs(x) - (-y)", pl.col("x").abs() - (-pl.col("y"))),
]


@pytest.fixture(scope="module")
def connection() -> duckdb.DuckDBPyConnection:
    return duckdb.connect()


@settings(max_examples=25, deadline=None)
@given(data=st.lists(st.tuples(INTEGERS, INTEGERS, FLOATS, FLOATS), min_size=1, max_size=20))
def test_random_rows_give_what_duckdb_and_polars_give(
    connection: duckdb.DuckDBPyConnection, data: list[tuple[object, ...]]
) -> None:
    a, b, x, y = (list(column) for column in zip(*data, strict=True))
    rows = pa.record_batch(
        {
            "a": pa.array(a, pa.int64()),
            "b": pa.array(b, pa.int64()),
            "x": pa.array(x, pa.float64()),
            "y": pa.array(y, pa.float64()),
        }
    )
    table = pa.Table.from_batches([rows])
    connection.register("t", table)
    statement = f"select {', '.join(sql for _, sql, _ in EXPRESSIONS)} from t"
    from_duckdb = list(zip(*connection.execute(statement).fetchall(), strict=True))
    frame = pl.from_arrow(table)
    for index, (ours, sql, in_polars) in enumerate(EXPRESSIONS):
        result = evaluate(ours, rows=rows).to_pylist()
        same(result, list(from_duckdb[index]), sql)
        if in_polars is not None:
            same(result, frame.select(r=in_polars)["r"].to_list(), sql)


def same(ours: list[object], theirs: list[object], what: str) -> None:
    for one, other in zip(ours, theirs, strict=True):
        if isinstance(one, float) and other is not None:
            assert one == pytest.approx(float(other), rel=1e-12, abs=1e-12), what
        else:
            assert one == other, what
