"""Numbers of every pair of types: compared and computed with exactly, as Python's int, Fraction and Decimal do.

The types of results are Spark's, written down here a second time; test_expressions_spark.py asks Spark itself.
"""

import math
import operator
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from itertools import product

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetfast.api.expressions import Expression, coalesce, col, lit, when
from jetfast.api.lowering import Way, lower

INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
FLOATS = [pa.float16(), pa.float32(), pa.float64()]
DECIMALS = [
    pa.decimal128(5, 0), pa.decimal128(10, 2), pa.decimal128(18, 18), pa.decimal128(20, 0), pa.decimal128(38, 0),
    pa.decimal128(38, 18), pa.decimal128(38, 38), pa.decimal32(7, 3), pa.decimal64(15, 4), pa.decimal256(30, 7),
]  # fmt: skip
TYPES = INTEGERS + FLOATS + DECIMALS

Number = int | float | Decimal
COMPARISONS: dict[str, Callable[[object, object], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
OPERATORS: dict[str, Callable[[object, object], Expression]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "%": operator.mod, **COMPARISONS,
}  # fmt: skip


def is_decimal(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_decimal(data_type))


def is_float(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_floating(data_type))


def bounds(data_type: pa.DataType) -> tuple[int, int]:
    bits = data_type.bit_width
    return (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if pa.types.is_signed_integer(data_type) else (0, 2**bits - 1)


def numbers(data_type: pa.DataType) -> st.SearchStrategy[Number]:
    if is_float(data_type):
        edges = [0.0, -0.0, 1.0, -1.5, 0.1, 2.0**24 + 2, 2.0**53, -(2.0**63), 2.0**64, math.inf, -math.inf, math.nan]
        width = data_type.bit_width
        kept = [max(-65504.0, min(edge, 65504.0)) if width == 16 and math.isfinite(edge) else edge for edge in edges]
        edges = [float(np.dtype(f"f{width // 8}").type(edge)) for edge in kept]
        return st.one_of(st.sampled_from(edges), st.floats(width=width))
    if is_decimal(data_type):
        limit = 10**data_type.precision - 1
        near = [0, 1, -1, 5, 10**data_type.scale, limit, -limit, limit // 2]
        whole = st.one_of(st.sampled_from([n for n in near if abs(n) <= limit]), st.integers(-limit, limit))
        return whole.map(lambda value: exact_decimal(value, data_type.scale))
    low, high = bounds(data_type)
    near = [low, low + 1, -1, 0, 1, 2, 7, 2**24 + 1, 2**53 - 1, 2**53, 2**53 + 1, 2**63 - 1, 2**63, high - 1, high]
    return st.one_of(st.sampled_from([n for n in near if low <= n <= high]), st.integers(low, high))


def exact_decimal(unscaled: int, scale: int) -> Decimal:
    return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))


def as_in_spark(data_type: pa.DataType) -> pa.DataType:
    """Spark's type of a column of a Parquet file."""
    unsigned = {
        pa.uint8(): pa.int16(),
        pa.uint16(): pa.int32(),
        pa.uint32(): pa.int64(),
        pa.uint64(): pa.decimal128(20),
    }
    if is_decimal(data_type):
        return pa.decimal128(data_type.precision, data_type.scale)
    return pa.float32() if pa.types.is_float16(data_type) else unsigned.get(data_type, data_type)


DIGITS = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 20}


def beside_decimal(data_type: pa.DataType, literal: Number | None) -> pa.DataType:
    if is_decimal(data_type):
        return data_type
    return pa.decimal128(DIGITS[data_type] if literal is None else len(str(abs(int(literal)))), 0)


def result_type(
    symbol: str, left: pa.DataType, right: pa.DataType, literals: tuple[Number | None, Number | None] = (None, None)
) -> pa.DataType:
    if symbol in COMPARISONS:
        return pa.bool_()
    left, right = as_in_spark(left), as_in_spark(right)
    if is_float(left) or is_float(right):
        return pa.float32() if left == right == pa.float32() and symbol != "/" else pa.float64()
    if not is_decimal(left) and not is_decimal(right):
        return pa.float64() if symbol == "/" else max(left, right, key=lambda data_type: data_type.bit_width)
    left, right = beside_decimal(left, literals[0]), beside_decimal(right, literals[1])
    p1, s1, p2, s2 = left.precision, left.scale, right.precision, right.scale
    scale = max(s1, s2)
    precision = max(p1 - s1, p2 - s2) + scale + 1
    if symbol == "*":
        precision, scale = p1 + p2 + 1, s1 + s2
    if symbol == "/":
        scale = max(6, s1 + p2 + 1)
        precision = p1 - s1 + s2 + scale
    if symbol == "%":
        precision = min(p1 - s1, p2 - s2) + scale
    if precision > 38:
        precision, scale = 38, max(38 - (precision - scale), min(scale, 6))
    return pa.decimal128(precision, scale)


def half_up(value: Fraction, scale: int) -> Decimal:
    scaled = abs(value) * 10**scale
    whole = (2 * scaled.numerator + scaled.denominator) // (2 * scaled.denominator)
    return exact_decimal(whole if value >= 0 else -whole, scale)


def exactly(
    symbol: str, left: Number, right: Number, types: tuple[pa.DataType, pa.DataType], result: pa.DataType
) -> object:
    """What Python gives; None where the row must fail."""
    if symbol in COMPARISONS:
        if any(map(is_float, types)):
            return COMPARISONS[symbol](float(left), float(right))  # Spark: as doubles
        return COMPARISONS[symbol](Fraction(left), Fraction(right))
    if is_float(result):
        first, second = float(left), float(right)
        if symbol in "/%" and second == 0:
            return None
        with np.errstate(all="ignore"):
            number = result.to_pandas_dtype()
            functions = {"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide, "%": np.fmod}
            return float(functions[symbol](number(first), number(second)))
    first_exact, second_exact = Fraction(left), Fraction(right)
    if symbol in "/%" and second_exact == 0:
        return None
    if symbol == "%":
        rest = abs(first_exact) % abs(second_exact)
        value = rest if first_exact >= 0 else -rest
    else:
        value = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}[symbol](
            first_exact, second_exact
        )
    if is_decimal(result):
        rounded = half_up(value, result.scale)
        return rounded if abs(Fraction(rounded)) < 10 ** (result.precision - result.scale) else None
    low, high = bounds(result)
    return int(value) if low <= value <= high else None


def same(one: object, other: object) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    return one == other and type(one) is type(other)


def check(expression: Expression, rows: pa.RecordBatch, expected: list[object], data_type: pa.DataType) -> None:
    lowered = lower(expression, rows.schema, null_on_error=True)
    assert lowered.data_type == data_type, str(expression)
    result = lowered.evaluate(rows, Way.FORGIVING)
    assert result.type == data_type
    for value, wanted, row in zip(result.to_pylist(), expected, rows.to_pylist(), strict=True):
        assert same(value, wanted), f"{expression} of {row}: {value!r} instead of {wanted!r}"
    for way in (Way.QUICK, Way.CAREFUL):
        if None in expected:
            with pytest.raises(pa.ArrowInvalid):
                lowered.evaluate(rows, way)
        else:
            strict = lowered.evaluate(rows, way)
            assert strict.type == data_type
            assert all(map(same, strict.to_pylist(), expected)), str(expression)


@pytest.mark.parametrize("symbol", OPERATORS)
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_each_pair_of_types_gives_what_python_gives(symbol: str, data: st.DataObject) -> None:
    left, right = data.draw(st.sampled_from(TYPES)), data.draw(st.sampled_from(TYPES))
    pairs = data.draw(st.lists(st.tuples(numbers(left), numbers(right)), min_size=1, max_size=6))
    rows = pa.record_batch({"a": pa.array([a for a, _ in pairs], left), "b": pa.array([b for _, b in pairs], right)})
    wanted = result_type(symbol, left, right)
    expected = [exactly(symbol, a, b, (left, right), wanted) for a, b in pairs]
    check(OPERATORS[symbol](col("a"), col("b")), rows, expected, wanted)


@pytest.mark.parametrize("symbol", OPERATORS)
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_typed_literals_on_either_side_give_what_python_gives(symbol: str, data: st.DataObject) -> None:
    column_type, literal_type = data.draw(st.sampled_from(TYPES)), data.draw(st.sampled_from(TYPES))
    values = data.draw(st.lists(numbers(column_type), min_size=1, max_size=6))
    literal = data.draw(numbers(literal_type))
    rows = pa.record_batch({"a": pa.array(values, column_type)})
    wrapped = lit(pa.scalar(literal, literal_type))
    wanted = result_type(symbol, column_type, literal_type, (None, as_number(literal, literal_type)))
    expected = [exactly(symbol, a, literal, (column_type, literal_type), wanted) for a in values]
    check(OPERATORS[symbol](col("a"), wrapped), rows, expected, wanted)
    wanted = result_type(symbol, literal_type, column_type, (as_number(literal, literal_type), None))
    expected = [exactly(symbol, literal, a, (literal_type, column_type), wanted) for a in values]
    check(OPERATORS[symbol](wrapped, col("a")), rows, expected, wanted)


def as_number(literal: Number, data_type: pa.DataType) -> Number | None:
    """Only whole literals are decimals of just their own digits; uint64 is a decimal already."""
    return literal if pa.types.is_integer(data_type) and data_type != pa.uint64() else None


PYTHON_LITERALS = st.one_of(
    st.sampled_from(
        [0, 1, -1, 300, 2**24 + 1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, -(2**63), -(2**64), 10**30]
    ),
    st.integers(-(2**64), 2**64),
    st.sampled_from([0.0, -0.0, 2.5, 1e6, 16777217.0, 2.0**53, 2.0**63, 1e300, math.inf, math.nan, 0.1]),
    st.floats(),
    st.sampled_from([Decimal("0.1"), Decimal("1.50"), Decimal("-3"), Decimal("1E+3"), Decimal(2**63)]),
)


@settings(max_examples=400, deadline=None)
@given(data=st.data())
def test_python_literals_compare_as_python_does(data: st.DataObject) -> None:
    column_type = data.draw(st.sampled_from(TYPES))
    literal = data.draw(PYTHON_LITERALS)
    close = st.sampled_from([literal, literal]) if fits(literal, column_type) else numbers(column_type)
    values = data.draw(st.lists(st.one_of(numbers(column_type), close), min_size=1, max_size=6))
    rows = pa.record_batch({"a": pa.array(values, column_type)})
    types = (column_type, pa.float64() if isinstance(literal, float) else pa.decimal128(38))
    for symbol in COMPARISONS:
        compare = OPERATORS[symbol]
        check(
            compare(col("a"), literal),
            rows,
            [exactly(symbol, a, literal, types, pa.bool_()) for a in values],
            pa.bool_(),
        )
        expected = [exactly(symbol, literal, a, types, pa.bool_()) for a in values]
        check(compare(lit(literal), col("a")), rows, expected, pa.bool_())
    expected = [exactly("==", a, literal, types, pa.bool_()) for a in values]
    check(col("a").isin(literal), rows, expected, pa.bool_())
    check(col("a").isin([literal, literal]), rows, expected, pa.bool_())
    if literal == literal:
        check(col("a").between(literal, literal), rows, expected, pa.bool_())


def fits(literal: Number, data_type: pa.DataType) -> bool:
    try:
        return bool(pa.scalar(literal, data_type).as_py() == literal)
    except (pa.ArrowException, OverflowError, TypeError):
        return False


@pytest.mark.parametrize(("left", "right"), list(product(INTEGERS + DECIMALS[:7] + FLOATS[1:], repeat=2)), ids=str)
def test_branches_of_two_types_have_the_type_that_spark_gives(left: pa.DataType, right: pa.DataType) -> None:
    rows = pa.record_batch({"c": [True, False], "a": pa.nulls(2, left), "b": pa.nulls(2, right)})
    if left == right:
        wanted = left
    else:
        one, other = as_in_spark(left), as_in_spark(right)
        if is_float(one) or is_float(other):
            wanted = one if one == other else pa.float64()
        elif not is_decimal(one) and not is_decimal(other):
            wanted = max(one, other, key=lambda data_type: data_type.bit_width)
        else:
            one, other = beside_decimal(one, None), beside_decimal(other, None)
            scale = max(one.scale, other.scale)
            precision = max(one.precision - one.scale, other.precision - other.scale) + scale
            cut = max(0, precision - 38)
            wanted = pa.decimal128(precision - cut, max(0, scale - cut))
    assert lower(when(col("c"), col("a")).otherwise(col("b")), rows.schema).data_type == wanted
    assert lower(coalesce(col("a"), col("b")), rows.schema).data_type == wanted


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_branches_keep_their_values(data: st.DataObject) -> None:
    left, right = (data.draw(st.sampled_from(INTEGERS + DECIMALS)) for _ in range(2))
    a, b = data.draw(numbers(left)), data.draw(numbers(right))
    rows = pa.record_batch({"c": [True, False], "a": pa.array([a, a], left), "b": pa.array([b, b], right)})
    lowered = lower(when(col("c"), col("a")).otherwise(col("b")), rows.schema, null_on_error=True)
    scale = lowered.data_type.scale if is_decimal(lowered.data_type) else 0
    for way in Way:
        values = [Fraction(value) for value in lowered.evaluate(rows, way).to_pylist()]
        assert values == [Fraction(half_up(Fraction(value), scale)) for value in (a, b)]


def test_a_float_literal_does_not_narrow_a_column_of_integers() -> None:
    rows = pa.record_batch({"people": pa.array([16777216, 16777217, 16777218], pa.int32())})
    for way in (Way.QUICK, Way.CAREFUL):
        assert lower(col("people") > 16777216.0, rows.schema).evaluate(rows, way).to_pylist() == [False, True, True]
        assert lower(lit(16777217.0) == col("people"), rows.schema).evaluate(rows, way).to_pylist() == [
            False,
            True,
            False,
        ]
    chosen = when(col("people") > 16777216.5, "more").otherwise("less")
    assert lower(chosen, rows.schema).evaluate(rows, Way.QUICK).to_pylist() == ["less", "more", "more"]


def test_int64_meets_float64_as_a_double_as_in_spark() -> None:
    rows = pa.record_batch({"i": pa.array([2**53 + 1, 2**53], pa.int64()), "f": pa.array([2.0**53, 2.0**53])})
    assert lower(col("i") == col("f"), rows.schema).evaluate(rows, Way.QUICK).to_pylist() == [True, True]


def test_isin_does_not_cut_its_values() -> None:
    rows = pa.record_batch({"i": pa.array([2, 3], pa.int8()), "r": pa.array([0.1, 0.5], pa.float32())})
    for expression, expected in (
        (col("i").isin([2.5]), [False, False]),
        (col("i").isin(2.0, 300), [True, False]),
        (col("i").isin(Decimal("2.0")), [True, False]),
        (col("r").isin(0.1, 0.5), [False, True]),
        (col("r").isin(float(np.float32(0.1))), [True, False]),
        (~col("i").isin([2.5, None]), [None, None]),
        (col("i").isin([]), [False, False]),
    ):
        assert lower(expression, rows.schema).evaluate(rows, Way.QUICK).to_pylist() == expected, str(expression)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ((col("f") + 1e20) + -1e20, 0.0),
        (-1e20 + (col("f") + 1e20), 0.0),
        (1e20 + (-col("big") + col("f")), 0.0),
        ((col("f") * 1e-200) * (1e-200 * col("big")) * 1e300, 0.0),
        ((col("i") + 2147483647) + 1, 2147483644),
        ((col("m") * Decimal("0.5")) * Decimal("0.5"), Decimal("0.50")),
    ],
)
def test_a_chain_is_computed_as_it_is_written(expression: Expression, expected: object) -> None:
    columns = {"f": pa.array([3.0]), "big": pa.array([1e20]), "i": pa.array([-4], pa.int32())}
    rows = pa.record_batch(columns | {"m": pa.array([Decimal("2.00")], pa.decimal128(3, 2))})
    lowered = lower(expression, rows.schema, null_on_error=True)
    assert [lowered.evaluate(rows, way)[0].as_py() for way in Way] == [expected] * len(Way)


NARROW_ROWS = st.lists(
    st.tuples(st.none() | st.booleans(), *[st.none() | st.decimals(-99999, 99999, places=2)] * 2), max_size=30
)


@given(NARROW_ROWS, st.sampled_from([pa.decimal32(7, 2), pa.decimal64(15, 2)]), st.integers(0, 9))
def test_choices_of_narrow_decimals_give_what_python_gives(
    rows: list[tuple[bool | None, Decimal | None, Decimal | None]], data_type: pa.DataType, first: int
) -> None:
    types = {"m": pa.bool_(), "a": data_type, "b": data_type}
    columns = [pa.array([row[position] for row in rows], each) for position, each in enumerate(types.values())]
    batch = pa.record_batch(columns, names=list(types)).slice(first)
    wide = pa.decimal128(data_type.precision, data_type.scale)
    expected: list[tuple[Expression, list[Decimal | None]]] = [
        (when(col("m"), col("a")).otherwise(col("b")), [a if mark else b for mark, a, b in rows[first:]]),
        (when(col("m"), col("a")).otherwise(None), [a if mark else None for mark, a, _ in rows[first:]]),
        (coalesce(col("a"), col("b")), [b if a is None else a for _, a, b in rows[first:]]),
    ]
    for expression, wanted in expected:
        for way in Way:
            found = lower(expression, batch.schema, null_on_error=way is Way.FORGIVING).evaluate(batch, way)
            assert found.type == wide, str(expression)
            assert found.to_pylist() == wanted, str(expression)
