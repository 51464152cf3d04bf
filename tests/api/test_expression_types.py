"""What passes the build does not fail by its types: every operator and cast over every pair of Arrow types."""

import datetime
import itertools
from collections.abc import Callable
from decimal import Decimal

import pyarrow as pa
import pytest

from jetfast.api.expressions import Expression, coalesce, col, lit, when
from jetfast.api.lowering import ExpressionTypeError, Way, lower

DAY, TIME = datetime.date(2020, 6, 1), datetime.datetime(2020, 6, 1, 12, 30)
ARRAYS: list[pa.Array] = [
    pa.nulls(2),
    pa.array([True, None]),
    *(pa.array([3, None], t) for t in (pa.int8(), pa.int16(), pa.int32(), pa.int64())),
    *(pa.array([3, None], t) for t in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())),
    *(pa.array([1.5, None], t) for t in (pa.float16(), pa.float32(), pa.float64())),
    *(pa.array([Decimal("1.5"), None], t) for t in (pa.decimal32(5, 1), pa.decimal64(12, 3), pa.decimal128(10, 2))),
    *(pa.array([Decimal("1.5"), None], t) for t in (pa.decimal128(38, 18), pa.decimal256(38, 2), pa.decimal256(60, 2))),
    pa.array([Decimal(100), None], pa.decimal128(5, -2)),
    *(pa.array(["2020-06-01", None], t) for t in (pa.string(), pa.large_string(), pa.string_view())),
    *(pa.array([b"abc", None], t) for t in (pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(3))),
    *(pa.array([DAY, None], t) for t in (pa.date32(), pa.date64())),
    *(pa.array([TIME, None], pa.timestamp(unit)) for unit in ("s", "ms", "us", "ns")),
    *(pa.array([TIME, None], pa.timestamp(unit, zone)) for unit in ("s", "us") for zone in ("UTC", "Europe/Berlin")),
    *(pa.array([TIME.time(), None], t) for t in (pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns"))),
    *(pa.array([datetime.timedelta(hours=1), None], pa.duration(unit)) for unit in ("s", "ms", "us", "ns")),
    pa.array(["a", None]).dictionary_encode(),
    pa.array([3, None], pa.int64()).dictionary_encode(),
    pa.array([DAY, None]).dictionary_encode(),
    pa.array([TIME, None]).dictionary_encode(),
    pa.array([Decimal("1.5"), None]).dictionary_encode(),
    pa.array([[1], None]),
    pa.array([{"a": 1}, None]),
]  # fmt: skip
LITERALS = [1, 2**63, 1.5, Decimal("1.5"), "2020-06-01", b"abc", DAY, TIME, TIME.replace(tzinfo=datetime.UTC), True]
LITERALS += [datetime.timedelta(hours=1), TIME.time()]

BY_PAIR: dict[str, Callable[[object, object], Expression]] = {
    "+": lambda a, b: lit(a) + b,
    "-": lambda a, b: lit(a) - b,
    "*": lambda a, b: lit(a) * b,
    "/": lambda a, b: lit(a) / b,
    "%": lambda a, b: lit(a) % b,
    "==": lambda a, b: lit(a) == b,
    "<": lambda a, b: lit(a) < b,
    "coalesce": lambda a, b: coalesce(a, b),
    "when": lambda a, b: when(lit(a).is_null(), b).otherwise(a),
    "between": lambda a, b: lit(a).between(b, b),
}


BY_VALUE = (
    "overflow",
    "divide by zero",
    "cannot cast",
    "out of bounds",
    "acceptable range",
    "Invalid UTF8",
    "not a valid",
    "widths",
)


def works_or_is_refused(expression: Expression, rows: pa.RecordBatch) -> bool:
    """Evaluate in each way what is not refused, and return whether it was not; rows may fail by their values only."""
    try:
        lowered = lower(expression, rows.schema, null_on_error=True)
    except ExpressionTypeError:
        return False
    for way in Way:
        for part in (rows, rows.slice(1, 1)):
            try:
                result = lowered.evaluate(part, way)
            except pa.ArrowInvalid as error:
                # What fails by its values says so in these words; the rest would fail for any values.
                if way is Way.FORGIVING or not any(words in str(error) for words in BY_VALUE):
                    pytest.fail(f"{expression} of {rows.schema.types}: {error}")
            else:
                assert result.type == lowered.data_type, f"{expression} of {rows.schema.types}: {result.type}"
                assert len(result) == part.num_rows
    return True


@pytest.mark.parametrize("name", BY_PAIR)
def test_two_columns_of_any_types_work_or_are_refused_at_build(name: str) -> None:
    worked = 0
    for left, right in itertools.product(ARRAYS, repeat=2):
        rows = pa.record_batch({"a": left, "b": right})
        worked += works_or_is_refused(BY_PAIR[name](col("a"), col("b")), rows)
    assert worked > 100


@pytest.mark.parametrize("name", [*BY_PAIR, "isin"])
def test_a_literal_beside_a_column_of_any_type_works_or_is_refused_at_build(name: str) -> None:
    worked = 0
    for array, literal in itertools.product(ARRAYS, LITERALS):
        rows = pa.record_batch({"a": array})
        if name == "isin":
            worked += works_or_is_refused(col("a").isin(literal, None), rows)
            continue
        worked += works_or_is_refused(BY_PAIR[name](col("a"), literal), rows)
        worked += works_or_is_refused(BY_PAIR[name](literal, col("a")), rows)
    assert worked > 50


def test_a_cast_of_any_type_to_any_other_works_or_is_refused_at_build() -> None:
    worked = 0
    for source, target in itertools.product(ARRAYS, repeat=2):
        rows = pa.record_batch({"a": source})
        for cast in (col("a").cast(target.type), col("a").try_cast(target.type)):
            worked += works_or_is_refused(cast, rows)
    assert worked > 1000


FUNCTIONS: dict[str, Callable[[Expression], Expression]] = {
    "minus": lambda a: -a,
    "abs": abs,
    "not": lambda a: ~a,
    "is_nan": lambda a: a.is_nan(),
    "is_null": lambda a: a.is_null(),
    "and": lambda a: a & True,
    "or": lambda a: True | a,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_one_column_work_or_are_refused_at_build(name: str) -> None:
    assert sum(works_or_is_refused(FUNCTIONS[name](col("a")), pa.record_batch({"a": array})) for array in ARRAYS) > 0


def test_columns_that_an_expression_does_not_read_do_not_matter() -> None:
    rows = pa.record_batch({"x": pa.array([1, 2]), **{f"c{index}": array for index, array in enumerate(ARRAYS)}})
    lowered = lower(col("x") + 1, rows.schema, null_on_error=True)
    assert lowered.evaluate(rows.select(["x"]), Way.QUICK).to_pylist() == [2, 3]
