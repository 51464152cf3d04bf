"""Expressions against Spark itself (ANSI mode, its default): values, types, and which rows are errors."""

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jetfast.api.expressions import as_expression, coalesce, col, lit, when
from jetfast.api.lowering import ExpressionTypeError, Way, lower

pytestmark = pytest.mark.spark

ROWS = pa.record_batch(
    {
        "y": pa.array([1, -7, 127, None, 0], pa.int8()),
        "i": pa.array([7, -7, 0, None, 2**31 - 1], pa.int32()),
        "j": pa.array([2, -3, 3, 4, 2**53 + 1], pa.int64()),
        "r": pa.array([0.5, 2.0, -1.0, 1.0, 3.0], pa.float32()),
        "f": pa.array([1.5, -5.3, 1e20, None, 0.3], pa.float64()),
        "s": pa.array(["a", "b", None, "7", ""]),
        "n": pa.array(["1", "-2", None, "7", "0"]),
        "b": pa.array([True, False, None, True, False]),
        "t": pa.array([0, 86_400_000_001, None, 1, -1], pa.timestamp("us", "UTC")),
        "d": pa.array([datetime.date(2013, 1, 1), None, *[datetime.date(1969, 12, 31)] * 3], pa.date32()),
        "m": pa.array(
            [Decimal("1.50"), Decimal("2.25"), None, Decimal("0.10"), Decimal("-3.00")], pa.decimal128(10, 2)
        ),
    }
)

EXPRESSIONS: list[tuple[object, str]] = [
    (col("j") + col("y"), "j + y"),
    (col("y") + col("y").cast("int"), "y + cast(y as int)"),
    (col("i") - 1, "i - 1"),
    (col("y") - 1, "y - 1"),
    (col("y") % 5, "y % 5"),
    (col("r") + 1.5, "r + 1.5D"),
    (col("y") + 0.5, "y + 0.5D"),
    (when(col("b"), col("y")).otherwise(300), "case when b then y else 300 end"),
    (when(col("b"), col("y")).otherwise(0.5), "case when b then y else 0.5D end"),
    (col("j") * 2, "j * 2"),
    (col("i") / 2, "i / 2"),
    (col("i") / col("j"), "i / j"),
    (col("j") / 1, "j / 1"),
    (col("r") / 3, "r / 3"),
    (col("f") / col("j"), "f / j"),
    (col("i") % 3, "i % 3"),
    (col("j") % -2, "j % -2"),
    (col("f") % 0.7, "f % 0.7D"),
    (col("f") % col("j"), "f % j"),
    (col("i") + col("r"), "i + r"),
    (col("j") * col("r"), "j * r"),
    (col("r") + col("r"), "r + r"),
    (col("y") + col("r"), "y + r"),
    (-col("j"), "-j"),
    (abs(col("j")), "abs(j)"),
    (col("i") > col("j"), "i > j"),
    (col("i") == col("r"), "i = r"),
    (col("i") != 7, "i != 7"),
    (col("s") == "a", "s = 'a'"),
    (col("t") >= "1970-01-02", "t >= '1970-01-02'"),
    (col("d") < datetime.date(2000, 1, 1), "d < date'2000-01-01'"),
    (col("b") & (col("i") > 0), "b and i > 0"),
    (col("b") | col("s").is_null(), "b or s is null"),
    (~col("b"), "not b"),
    (col("i").isin(7, 0), "i in (7, 0)"),
    (col("i").isin(7, None), "i in (7, null)"),
    (~col("s").isin("a", "b"), "s not in ('a', 'b')"),
    (col("i").between(-7, 0), "i between -7 and 0"),
    (col("i").is_null(), "i is null"),
    (col("f").is_valid(), "f is not null"),
    (coalesce(col("i"), col("j")), "coalesce(i, j)"),
    (coalesce(col("y"), 5), "coalesce(y, 5)"),
    (when(col("i") > 0, "up").when(col("i") < 0, "down").otherwise("level"),
     "case when i > 0 then 'up' when i < 0 then 'down' else 'level' end"),
    (when(col("i") > 0, col("i")), "case when i > 0 then i end"),
    (when(col("i") != 0, col("j") / col("i")).otherwise(0.0), "case when i != 0 then j / i else 0.0D end"),
    ((col("i") != 0) & (col("j") / col("i") > 1), "i != 0 and j / i > 1"),
    (col("f").cast("float"), "cast(f as float)"),
    (col("r").cast("int"), "cast(r as int)"),
    (col("j").cast("double"), "cast(j as double)"),
    (col("n").cast("bigint"), "cast(n as bigint)"),
    (col("i").cast("string"), "cast(i as string)"),
    (col("m").cast("double"), "cast(m as double)"),
    (col("b").cast("int"), "cast(b as int)"),
    (col("m") + col("m"), "m + m"),
    (col("m") * col("m"), "m * m"),
    (col("m") > 1, "m > 1"),
    (lit(3), "3"),
    (lit(2**40), "1099511627776"),
    (lit("x"), "'x'"),
]  # fmt: skip

FAILING = [
    (col("i") + 1, "i + 1"),
    (col("y") + col("y"), "y + y"),
    (col("i") / col("i"), "i / i"),
    (col("j") % col("y"), "j % y"),
    (col("f") / col("y"), "f / y"),
    (col("s").cast("int"), "cast(s as int)"),
    (col("f").cast("bigint"), "cast(f as bigint)"),
    (col("j").cast("int"), "cast(j as int)"),
]


@pytest.fixture(scope="module")
def frame(make_spark_session: Any) -> Any:
    return make_spark_session("local[4]").createDataFrame(pa.Table.from_batches([ROWS]))


def test_values_and_types_equal_sparks(frame: Any) -> None:
    result = (
        frame.coalesce(1).selectExpr(*(f"{sql} as c{index}" for index, (_, sql) in enumerate(EXPRESSIONS))).toArrow()
    )
    wrong = []
    for index, (ours, sql) in enumerate(EXPRESSIONS):
        column = lower(as_expression(ours), ROWS.schema).evaluate(ROWS, Way.CAREFUL)
        theirs = result.column(index)
        if column.type != theirs.type:
            wrong.append(f"{sql}: {column.type} instead of {theirs.type}")
        elif column.to_pylist() != theirs.to_pylist():
            wrong.append(f"{sql}: {column.to_pylist()} instead of {theirs.to_pylist()}")
    assert "\n".join(wrong) == ""


def test_rows_that_are_errors_in_spark_are_errors_here(frame: Any) -> None:
    for ours, sql in FAILING:
        with pytest.raises(pa.ArrowInvalid):
            lower(as_expression(ours), ROWS.schema).evaluate(ROWS, Way.CAREFUL)
        with pytest.raises(Exception, match=r"OVERFLOW|DIVIDE_BY_ZERO|REMAINDER_BY_ZERO|CAST_INVALID_INPUT"):
            frame.selectExpr(sql).toArrow()


def test_on_error_null_gives_what_sparks_try_functions_give(frame: Any) -> None:
    pairs = [
        (col("i") + 1, "try_add(i, 1)"),
        (col("j") / col("y"), "try_divide(j, y)"),
        (col("s").cast("int"), "try_cast(s as int)"),
        (col("j").cast("int"), "try_cast(j as int)"),
        (col("f").cast("bigint"), "try_cast(f as bigint)"),
    ]
    result = frame.coalesce(1).selectExpr(*(f"{sql} as c{index}" for index, (_, sql) in enumerate(pairs))).toArrow()
    for index, (ours, sql) in enumerate(pairs):
        column = lower(ours, ROWS.schema, null_on_error=True).evaluate(ROWS, Way.FORGIVING)
        assert column.to_pylist() == result.column(index).to_pylist(), sql


DECIMALS = {
    "a": pa.array([Decimal("1.500"), Decimal("2.345"), Decimal("-7.001")], pa.decimal128(10, 3)),
    "b": pa.array([Decimal(7), Decimal(3), Decimal(-2)], pa.decimal128(38, 0)),
    "c": pa.array([Decimal("0.3"), Decimal("0.7"), Decimal("-1.25")], pa.decimal128(38, 18)),
    "d": pa.array([Decimal("1.1"), Decimal("2.2"), Decimal("-3.3")], pa.decimal128(10, 1)),
    "e": pa.array([Decimal("0.3"), Decimal("0.7"), Decimal("-0.5")], pa.decimal128(38, 38)),
    "y": pa.array([1, 2, -3], pa.int8()),
    "g": pa.array([1, 2, -3], pa.int64()),
    "r": pa.array([1.5, 2.0, -3.25], pa.float32()),
    "f": pa.array([1.5, 2.0, -3.25]),
}


def test_numbers_of_two_types_have_sparks_values_and_types(make_spark_session: Any) -> None:
    rows = pa.record_batch(DECIMALS)
    pairs: list[tuple[object, str]] = []
    for left in rows.schema.names:
        for right in rows.schema.names:
            one, other = col(left), col(right)
            pairs += [
                (one + other, f"{left} + {right}"),
                (one - other, f"{left} - {right}"),
                (one * other, f"{left} * {right}"),
                (one / other, f"{left} / {right}"),
                (one % other, f"{left} % {right}"),
                (coalesce(one, other), f"coalesce({left}, {right})"),
            ]
            if {left, right} not in ({"b", "e"}, {"b", "c"}):  # compared exactly here: see below
                pairs += [(one < other, f"{left} < {right}"), (one == other, f"{left} = {right}")]
        pairs += [
            (col(left) * 2, f"{left} * 2"),
            (300 - col(left), f"300 - {left}"),
            (col(left) > 1.5, f"{left} > 1.5D"),
            (col(left).isin(1.5, 2), f"{left} in (1.5D, 2)"),
            (col(left).isin(Decimal("1.5")), f"{left} in (1.5)"),
            (-col(left), f"-{left}"),
        ]
    compare_with_spark(make_spark_session, rows, pairs)


def test_unsigned_integers_count_as_spark_reads_them_from_parquet(make_spark_session: Any, tmp_path: Any) -> None:
    types = {"u": pa.uint8(), "v": pa.uint16(), "w": pa.uint32(), "x": pa.uint64()}
    rows = pa.record_batch({name: pa.array([2**kind.bit_width - 1, 0, 7], kind) for name, kind in types.items()})
    pq.write_table(pa.Table.from_batches([rows]), tmp_path / "unsigned.parquet")
    frame = make_spark_session("local[4]").read.parquet(str(tmp_path / "unsigned.parquet"))
    frame.createOrReplaceTempView("unsigned")
    pairs: list[tuple[object, str]] = []
    for left in types:
        for right in types:
            pairs += [(col(left) > col(right), f"{left} > {right}"), (col(left) == col(right), f"{left} = {right}")]
            if left != right:
                pairs.append((coalesce(col(left), col(right)), f"coalesce({left}, {right})"))
        pairs += [
            (col(left) / 2, f"{left} / 2"),
            (col(left) - 1.5, f"{left} - 1.5D"),
            (col(left) > 9223372036854775808, f"{left} > 9223372036854775808"),
            (col("x") * 2 - col(left), f"x * 2 - {left}"),
            (-col(left), f"-{left}"),
        ]
    compare_with_spark(make_spark_session, rows, pairs, frame)


def compare_with_spark(
    make_session: Any, rows: pa.RecordBatch, pairs: list[tuple[object, str]], frame: Any = None
) -> None:
    if frame is None:
        frame = make_session("local[4]").createDataFrame(pa.Table.from_batches([rows]))
    result = frame.coalesce(1).selectExpr(*(f"{sql} as c{index}" for index, (_, sql) in enumerate(pairs))).toArrow()
    wrong = []
    for index, (ours, sql) in enumerate(pairs):
        column = lower(as_expression(ours), rows.schema).evaluate(rows, Way.CAREFUL)
        theirs = result.column(index)
        if column.type != theirs.type or column.to_pylist() != theirs.to_pylist():
            wrong.append(f"{sql}: {column.type} {column.to_pylist()}, in Spark {theirs.type} {theirs.to_pylist()}")
    assert "\n".join(wrong) == ""


def test_what_operators_do_otherwise_than_spark(make_spark_session: Any) -> None:
    """Each entry of the list in docs/expressions.md, "Operators": ours, then Spark's."""
    rows = pa.record_batch(
        {
            "nan": pa.array([float("nan")]),
            "b": pa.array([Decimal(1)], pa.decimal128(38, 0)),
            "e": pa.array([Decimal("0.7")], pa.decimal128(38, 38)),
            "j": pa.array([2**53], pa.int64()),
            "d": pa.array([datetime.date(2020, 1, 1)]),
            "z": pa.array([datetime.datetime(2020, 1, 1)], pa.timestamp("us", "UTC")),
            "s": pa.array(["1"]),
        }
    )
    frame = make_spark_session("local[4]").createDataFrame(pa.Table.from_batches([rows]))
    for ours, our_value, sql, their_value in (
        (col("nan") == col("nan"), False, "nan = nan", True),
        (col("nan") > 1, False, "nan > 1", True),
        (col("b") > col("e"), True, "b > e", False),
        (col("j").isin(2**53 + 1, 2.5), False, "j in (9007199254740993, 2.5D)", True),
    ):
        assert lower(ours, rows.schema).evaluate(rows, Way.QUICK).to_pylist() == [our_value], str(ours)
        assert frame.selectExpr(sql).toArrow().column(0).to_pylist() == [their_value], sql
    for refused, sql in ((col("d") < col("z"), "d < z"), (col("s") == 1, "s = 1")):
        with pytest.raises(ExpressionTypeError):
            lower(refused, rows.schema)
        assert frame.selectExpr(sql).toArrow().num_rows == 1
