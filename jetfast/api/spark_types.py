"""Spark's types of literals, and the type at which two values of different types meet.

Types that Spark lacks count as the type that Spark reads them as in a Parquet file, wherever they are computed with or
compared: uint8, uint16 and uint32 as int16, int32 and int64, uint64 as decimal(20, 0), float16 as float32. So every
value is exact, and only a result that its type cannot hold is an error.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Sequence
from enum import Enum

import pyarrow as pa
import pyarrow.compute as pc

from jetfast.api.exact_numbers import PRECISION_MAX
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
    "timestamp_ntz": pa.timestamp("us"),
    "timestamp_ltz": pa.timestamp("us", "UTC"),
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
    try:
        if name == "decimal":
            return pa.decimal128(10, 0)
        if name.startswith("decimal(") and name.endswith(")"):
            precision, _, scale = name[len("decimal(") : -1].partition(",")
            return pa.decimal128(int(precision), int(scale or 0))
        return pa.type_for_alias(name)
    except ValueError as error:
        raise JobDefinitionError(
            f'no type is named {value!r}; write an Arrow type, its name ("int64", "timestamp[us]") '
            f'or Spark\'s ("bigint")'
        ) from error


def as_scalar(value: object) -> pa.Scalar:
    """Return a Python value as Spark types it: int32 if it fits, else int64 or decimal; timestamps in microseconds."""
    if isinstance(value, pa.Scalar):
        return value
    if isinstance(value, bool) or value is None:
        return pa.scalar(value)
    if isinstance(value, int):
        return integer_scalar(value)
    if isinstance(value, datetime.datetime):
        return pa.scalar(value, pa.timestamp("us", tz="UTC" if value.tzinfo is not None else None))
    if isinstance(value, datetime.timedelta):
        return pa.scalar(value, pa.duration("us"))
    try:
        if isinstance(value, float | str | bytes | decimal.Decimal | datetime.date | datetime.time):
            return pa.scalar(value)
        return pa.scalar(value.item() if hasattr(value, "item") else value)  # numpy scalars
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise TypeError(f"{value!r} ({type(value).__name__}) is neither a column expression nor a literal") from error


def integer_scalar(value: int) -> pa.Scalar:
    for data_type in (pa.int32(), pa.int64()):
        if fits_integer(value, data_type):
            return pa.scalar(value, data_type)
    digits = len(str(abs(value)))
    if digits > PRECISION_MAX:
        raise TypeError(f"the literal {value} has {digits} digits, and a decimal at most {PRECISION_MAX}")
    return pa.scalar(decimal.Decimal(value), pa.decimal128(digits, 0))


def plain_type(data_type: pa.DataType) -> pa.DataType:
    """The type of the same values in a layout that Arrow's functions take: dictionaries and views are not."""
    if pa.types.is_dictionary(data_type):
        return plain_type(data_type.value_type)
    if pa.types.is_string_view(data_type):
        return pa.string()
    return pa.binary() if pa.types.is_binary_view(data_type) else data_type


_COUNTS_AS = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
}


def counts_as(data_type: pa.DataType) -> pa.DataType:
    """Return Spark's type of the same values; see the module."""
    if pa.types.is_decimal(data_type):
        precision, scale = data_type.precision, data_type.scale
        if scale < 0:
            precision, scale = precision - scale, 0
        if precision <= PRECISION_MAX:
            return pa.decimal128(precision, scale)
    return _COUNTS_AS.get(data_type, data_type)


def is_number(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_integer(data_type) or pa.types.is_floating(data_type) or pa.types.is_decimal(data_type))


def integer_bounds(data_type: pa.DataType) -> tuple[int, int]:
    """Return the least and the greatest value of an integer type."""
    bits = int(data_type.bit_width)
    if pa.types.is_signed_integer(data_type):
        return -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    return 0, (1 << bits) - 1


def fits_integer(value: int, data_type: pa.DataType) -> bool:
    low, high = integer_bounds(data_type)
    return low <= value <= high


_DECIMAL_DIGITS = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 20}


def decimal_of_integer(data_type: pa.DataType) -> pa.Decimal128Type:
    """Return the decimal with room for all values of a signed integer type, as Spark has it."""
    return pa.decimal128(_DECIMAL_DIGITS[data_type], 0)


def common_type(left: pa.DataType, right: pa.DataType, exact: bool) -> pa.DataType | None:
    """Return the type at which two values meet, or None if they never do.

    With `exact` (comparisons) decimals get all the digits of both sides, in decimal256 if they must; without it
    (`when`, `coalesce`) digits behind the point give way at 38, as in Spark.
    """
    if left == right or pa.types.is_null(right):
        return left
    if pa.types.is_null(left):
        return right
    left, right = counts_as(left), counts_as(right)
    if is_number(left) and is_number(right):
        return common_number(left, right, exact)
    if pa.types.is_temporal(left) and pa.types.is_temporal(right):
        return common_time(left, right)
    if is_text(left) and is_text(right):
        return pa.large_string()
    if is_bytes(left) and is_bytes(right):
        return pa.large_binary()
    return None


def is_text(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_string(data_type) or pa.types.is_large_string(data_type))


def is_bytes(data_type: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(data_type) or pa.types.is_large_binary(data_type) or pa.types.is_fixed_size_binary(data_type)
    )


def common_number(left: pa.DataType, right: pa.DataType, exact: bool) -> pa.DataType:
    """Return the wider type of two numbers (after `counts_as`)."""
    if pa.types.is_floating(left) or pa.types.is_floating(right):
        return left if left == right else pa.float64()  # float32 cannot hold every integer: Spark takes double
    if not pa.types.is_decimal(left) and not pa.types.is_decimal(right):
        return left if left.bit_width >= right.bit_width else right
    left, right = (one if pa.types.is_decimal(one) else decimal_of_integer(one) for one in (left, right))
    scale = max(left.scale, right.scale)
    precision = max(left.precision - left.scale, right.precision - right.scale) + scale
    if precision <= PRECISION_MAX:
        return pa.decimal128(precision, scale)
    if exact:
        return pa.decimal256(precision, scale) if precision <= 76 else pa.float64()
    return pa.decimal128(PRECISION_MAX, max(0, scale - (precision - PRECISION_MAX)))


_UNITS = ("s", "ms", "us", "ns")


def finer_unit(one: str, other: str) -> str:
    return max(one, other, key=_UNITS.index)


def common_time(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """Return the type that holds two times of one kind; None for two kinds, and for a zone on one side only."""
    if pa.types.is_date(left) and pa.types.is_date(right):
        return pa.date64()
    if pa.types.is_date(left) or pa.types.is_date(right):
        time = right if pa.types.is_date(left) else left
        return time if pa.types.is_timestamp(time) and time.tz is None else None
    kinds = (pa.types.is_timestamp, pa.types.is_duration, pa.types.is_time)
    if not any(kind(left) and kind(right) for kind in kinds):
        return None
    unit = finer_unit(left.unit, right.unit)
    if pa.types.is_timestamp(left):
        return None if (left.tz is None) != (right.tz is None) else pa.timestamp(unit, left.tz)
    if pa.types.is_duration(left):
        return pa.duration(unit)
    return time_of_unit(unit)


def time_of_unit(unit: str) -> pa.DataType:
    """Return the type of times of day of a unit."""
    return pa.time64(unit) if unit in ("us", "ns") else pa.time32(unit)


class Match(Enum):
    """How a literal stands to the values of a column's type."""

    NEVER = "never"
    """No value of that type equals it."""
    CONVERT = "convert"
    """The column must be converted to a common type to tell."""


_EXACT_FLOATS = 2**53
"""Integers below this are exact as float64, so comparing as float64 and as integers is the same."""


def literal_at(scalar: pa.Scalar, data_type: pa.DataType) -> pa.Scalar | Match:
    """Return a literal at the type of a column, if comparing there gives what comparing at the common type gives."""
    if scalar.type == data_type:
        return scalar
    if not scalar.is_valid:
        return pa.scalar(None, data_type)
    if is_number(scalar.type) and is_number(data_type):
        return number_at(scalar, data_type)
    if pa.types.is_temporal(scalar.type) and pa.types.is_temporal(data_type):
        common = common_time(scalar.type, data_type)
        if common is None:
            return Match.CONVERT
        try:
            return scalar.cast(data_type) if scalar.cast(data_type).cast(common).equals(scalar.cast(common)) else _NEVER
        except pa.ArrowInvalid:
            return _NEVER
        except pa.ArrowNotImplementedError:
            return Match.CONVERT
    if is_text(scalar.type) and is_text(data_type):
        return scalar.cast(data_type)
    return Match.CONVERT


_NEVER = Match.NEVER


def number_at(scalar: pa.Scalar, data_type: pa.DataType) -> pa.Scalar | Match:
    value = scalar.as_py()
    if pa.types.is_floating(data_type):
        if pa.types.is_decimal(scalar.type) or pa.types.is_float16(data_type):
            return Match.CONVERT
        try:
            found = pa.scalar(float(value), data_type)
        except OverflowError:
            return Match.CONVERT
        if pa.types.is_float64(data_type) or value != value:
            return found
        return found if found.as_py() == float(value) == value else _NEVER
    if pa.types.is_floating(scalar.type):
        if pa.types.is_decimal(counts_as(data_type)) or not abs(value) < _EXACT_FLOATS:
            return Match.CONVERT
        whole = int(value)
        return pa.scalar(whole, data_type) if whole == value and fits_integer(whole, data_type) else _NEVER
    number = decimal.Decimal(value)
    if pa.types.is_integer(data_type):
        fits = number == number.to_integral_value() and fits_integer(int(number), data_type)
        return pa.scalar(int(number), data_type) if fits else _NEVER
    try:
        return pa.scalar(number, data_type)
    except pa.ArrowInvalid:
        return _NEVER


def decimal_of_literal(scalar: pa.Scalar) -> pa.Scalar:
    """Return a whole literal as the decimal of just its digits, as Spark takes it beside a decimal."""
    value = scalar.as_py()
    return pa.scalar(decimal.Decimal(value), pa.decimal128(len(str(abs(value))), 0))


def local_as_instant(array: pa.Array, zone: str) -> pa.Array:
    """Return naive timestamps, read as local time of a zone, as instants.

    A local time that occurs twice is the first of the two. One that a change of the clock skips is as much later as the
    clock jumps. So Spark and Java have it.
    """
    before = pc.assume_timezone(array, zone, ambiguous="earliest", nonexistent="earliest")
    offset = pc.subtract(pc.local_timestamp(before), before.cast(pa.timestamp(array.type.unit)))
    return pc.subtract(array, offset).cast(pa.timestamp(array.type.unit, zone))


def common_type_of_all(types: Sequence[pa.DataType]) -> pa.DataType | None:
    """Return the type of a value that is one of several (`when`, `coalesce`)."""
    found: pa.DataType | None = types[0]
    for data_type in types[1:]:
        found = None if found is None else common_type(found, data_type, exact=False)
    return found
