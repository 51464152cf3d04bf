"""Spark's types of literals and casts, and what becomes of two numbers of different types that meet."""

from __future__ import annotations

import datetime
import decimal

import pyarrow as pa
import pyarrow.compute as pc

from jetfast.api.lowering import Typed, call
from jetfast.errors import JobDefinitionError

_SPARK_TYPE_NAMES = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
}


def as_data_type(value: pa.DataType | str) -> pa.DataType:
    """Return an Arrow type from an Arrow type, Arrow's name of it ("int64") or Spark's ("bigint", "decimal(10,2)")."""
    if isinstance(value, pa.DataType):
        return value
    if not isinstance(value, str):
        raise TypeError(f"a type is a pyarrow type or its name, got {value!r}")
    name = value.strip().lower()
    if name in _SPARK_TYPE_NAMES:
        return _SPARK_TYPE_NAMES[name]
    if name.startswith("decimal(") and name.endswith(")"):
        precision, _, scale = name[len("decimal(") : -1].partition(",")
        return pa.decimal128(int(precision), int(scale or 0))
    try:
        return pa.type_for_alias(name)
    except ValueError as error:
        raise JobDefinitionError(
            f'no type is named {value!r}; write an Arrow type, its name ("int64", "timestamp[us]") '
            f'or Spark\'s ("bigint")'
        ) from error


def as_scalar(value: object) -> pa.Scalar:
    """Return a Python value as Spark types it: int32 if it fits, else int64; timestamps in microseconds."""
    if isinstance(value, pa.Scalar):
        return value
    if isinstance(value, bool) or value is None:
        return pa.scalar(value)
    if isinstance(value, int):
        return pa.scalar(value, pa.int32() if -(2**31) <= value < 2**31 else pa.int64())
    if isinstance(value, datetime.datetime):
        return pa.scalar(value, pa.timestamp("us", tz="UTC" if value.tzinfo is not None else None))
    if isinstance(value, datetime.timedelta):
        return pa.scalar(value, pa.duration("us"))
    if isinstance(value, float | str | bytes | decimal.Decimal | datetime.date | datetime.time):
        return pa.scalar(value)
    try:
        return pa.scalar(value.item() if hasattr(value, "item") else value)  # numpy scalars
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise TypeError(f"{value!r} ({type(value).__name__}) is neither a column expression nor a literal") from error


def plain_type(data_type: pa.DataType) -> pa.DataType:
    """The type of the same values in a layout that Arrow's functions take: dictionaries and views are not."""
    if pa.types.is_dictionary(data_type):
        return plain_type(data_type.value_type)
    if pa.types.is_string_view(data_type):
        return pa.string()
    return pa.binary() if pa.types.is_binary_view(data_type) else data_type


def is_number(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_integer(data_type) or pa.types.is_floating(data_type) or pa.types.is_decimal(data_type))


def mixes_float32_and_integers(left: pa.DataType, right: pa.DataType) -> bool:
    """float32 cannot hold every integer: Spark computes such a pair in double."""
    return any(pa.types.is_float32(one) and pa.types.is_integer(other) for one, other in ((left, right), (right, left)))


_DECIMAL_DIGITS = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 20}


def beside_decimal(side: Typed, other_type: pa.DataType, literal: pa.Scalar | None) -> Typed:
    """Convert one side as Spark does when the other is a decimal, or the decimal when the other is a float.

    Whole numbers become decimals with room for all their values, literals with just their own digits. `literal`: the
    value of this side, if it is one.
    """
    if pa.types.is_decimal(side[1]) and pa.types.is_floating(other_type):
        return to_float64(side)
    if not (pa.types.is_decimal(other_type) and pa.types.is_signed_integer(side[1])):
        return side
    if literal is not None and literal.is_valid:
        data_type = pa.decimal128(len(str(abs(literal.as_py()))), 0)
        return pc.scalar(pa.scalar(decimal.Decimal(literal.as_py()), data_type)), data_type
    data_type = pa.decimal128(_DECIMAL_DIGITS[side[1]], 0)
    return side[0].cast(data_type), data_type


def smallest_integer(data_type: pa.DataType) -> int:
    return -(1 << (int(data_type.bit_width) - 1))


def to_wider(value: Typed, other_type: pa.DataType) -> Typed:
    """Widen a number to the type beside it. Arrow would narrow a literal to the column's type instead."""
    both_integers = pa.types.is_signed_integer(value[1]) and pa.types.is_signed_integer(other_type)
    both_floats = pa.types.is_floating(value[1]) and pa.types.is_floating(other_type)
    if (both_integers or both_floats) and value[1].bit_width < other_type.bit_width:
        return value[0].cast(other_type), other_type
    if pa.types.is_integer(value[1]) and pa.types.is_float64(other_type):
        return to_float64(value)
    return value


def to_float64(value: Typed) -> Typed:
    if pa.types.is_float64(value[1]):
        return value
    return value[0].cast(pa.float64(), safe=False), pa.float64()


_TEXT_PATTERNS = (
    (pa.types.is_integer, r"^[+-]?([0-9]+|0[xX][0-9a-fA-F]+)$"),
    (pa.types.is_floating, r"^[+-]?([0-9.]+([eE][+-]?[0-9]+)?|(?i:inf|infinity|nan))$"),
    (pa.types.is_boolean, r"^(?i:true|false|0|1)$"),
    (pa.types.is_date, r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"),
    (pa.types.is_timestamp, r"^[0-9]{4}-[0-9]{2}-[0-9]{2}"),
)
"""Text that matches none of these can be no such value; text that does match may still fail."""


def cast_failure(value: Typed, target: pa.DataType) -> pc.Expression | None:
    """Return a condition true in rows that surely cannot be cast, or None if nothing is known beforehand."""
    expression, source = value
    if pa.types.is_signed_integer(target) and (pa.types.is_signed_integer(source) or pa.types.is_floating(source)):
        if pa.types.is_integer(source) and source.bit_width <= target.bit_width:
            return None
        low = smallest_integer(target)
        if pa.types.is_integer(source):
            bounds = [pc.scalar(pa.scalar(bound, source)) for bound in (low, -low - 1)]
            fits = call(
                "and", [call("greater_equal", [expression, bounds[0]]), call("less_equal", [expression, bounds[1]])]
            )
        else:  # -low is a power of two, so it is exact as a float; NaN fits nowhere
            whole = call("trunc", [expression.cast(pa.float64())])
            bounds = [pc.scalar(float(bound)) for bound in (low, -low)]
            fits = call("and", [call("greater_equal", [whole, bounds[0]]), call("less", [whole, bounds[1]])])
        return call("invert", [fits])
    if pa.types.is_string(source) or pa.types.is_large_string(source):
        for matches, pattern in _TEXT_PATTERNS:
            if matches(target):
                return call("invert", [call("match_substring_regex", [expression], pc.MatchSubstringOptions(pattern))])
    return None
