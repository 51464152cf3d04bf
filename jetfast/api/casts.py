"""Casts as Spark has them in ANSI mode; docs/expressions.md lists what differs, and tests compare each with Spark.

Pairs of types for which Arrow's own cast is right are lowered to it. For the others a converter is registered with
Arrow: a function over arrays that gives null where a value cannot be converted, which `cast` makes an error of the row.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from jetfast.api.exact_numbers import PRECISION_MAX, decimals, divided, rescaled, unscaled
from jetfast.api.lowering import ExpressionTypeError, Lowering, Typed, call
from jetfast.api.registered_functions import null_where_it_fails, registered, valid_rows
from jetfast.api.spark_types import counts_as, decimal_of_integer, integer_bounds, is_bytes, is_number, is_text
from jetfast.api.spark_types import local_as_instant as as_instant
from jetfast.api.time_text import BLANKS, read_date, read_timestamp, write_dates, write_timestamps, zone_name

Converter = Callable[[pa.Array], pa.Array]
"""Converts each value of an array; null where it cannot."""


def lower_cast(
    lowering: Lowering, value: Typed, target: pa.DataType, mask: pc.Expression | None, lenient: bool
) -> Typed:
    """Lower a cast. With `lenient` what cannot be converted gives null, else it is an error of its row."""
    source = value[1]
    if source == target:
        return value
    if pa.types.is_dictionary(target):
        encoded = lower_cast(lowering, value, target.value_type, mask, lenient)[0]
        return lowering.typed(encoded.cast(target))
    if pa.types.is_null(source):
        return pc.scalar(pa.scalar(None, target)), target
    argument = lowering.masked(value, mask)
    if not lenient:
        native = native_cast(argument, source, target)
        if native is not None:
            return native, target
    refuse(source, target)
    converter = converter_for(source, target)
    if converter is None:
        if not lenient:
            return lowering.typed(argument.cast(target))
        evaluate = null_where_it_fails(lambda array: array.cast(target), target)
        lowering.typed(argument.cast(target))  # refuses types that Arrow cannot cast
    else:
        evaluate = converter if lenient else partial(checked, converter, target)
    name = registered("try_cast" if lenient else "cast", evaluate, [source], target)
    return call(name, [argument]), target


def checked(converter: Converter, target: pa.DataType, array: pa.Array) -> pa.Array:
    """Convert, and raise pyarrow.ArrowInvalid that shows the first value that cannot be."""
    result = converter(array)
    if result.null_count > array.null_count:
        row = pc.index(pc.and_(array.is_valid(), result.is_null()), True).as_py()
        raise pa.ArrowInvalid(f"cannot cast {array[row].as_py()!r} ({array.type}) to {target}")
    return result


def refuse(source: pa.DataType, target: pa.DataType) -> None:
    """Raise ExpressionTypeError for casts that Arrow would try and Spark refuses, or that fail for any value."""
    for one, other in ((source, target), (target, source)):
        if pa.types.is_temporal(one) and is_number(other) and not pa.types.is_integer(other):
            raise ExpressionTypeError(
                f"{source} cannot be cast to {target}: times are counts of whole units; cast to int64 between the two"
            )
    if pa.types.is_decimal(target) and target.scale < 0:
        raise ExpressionTypeError(f"{source} cannot be cast to {target}: a decimal's scale is at least 0")
    if is_fixed(source) and is_fixed(target) and source != target:
        raise ExpressionTypeError(f"{source} cannot be cast to {target}: all its values have another width")
    if is_bytes(source) and (is_number(target) or pa.types.is_boolean(target)):
        raise ExpressionTypeError(f'{source} cannot be cast to {target}; cast("string") reads it as text first')


def cast_scalar(scalar: pa.Scalar, target: pa.DataType) -> pa.Scalar:
    """Convert a literal when the pipeline is built. Raises pyarrow.ArrowException if it cannot be."""
    if scalar.type == target or not scalar.is_valid:
        return pa.scalar(scalar.as_py() if scalar.is_valid else None, target)
    converter = converter_for(scalar.type, target)
    if converter is None:
        return scalar.cast(target)
    return checked(converter, target, pa.repeat(scalar, 1))[0]


def is_fixed(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_fixed_size_binary(data_type))


def native_cast(argument: pc.Expression, source: pa.DataType, target: pa.DataType) -> pc.Expression | None:
    """Return Arrow's own cast where it does what Spark does, or None."""
    integers = pa.types.is_integer(source) or pa.types.is_boolean(source)
    if pa.types.is_floating(source) and pa.types.is_integer(target):
        return call("trunc", [argument]).cast(target)
    if integers and pa.types.is_integer(target):
        return argument.cast(target)
    if (integers or pa.types.is_floating(source)) and pa.types.is_floating(target):
        return argument.cast(target, safe=False)  # rounds, as 2**53 + 1 must
    if integers and is_text(target):
        return argument.cast(target)
    if pa.types.is_decimal(target) and target.scale >= 0:
        if pa.types.is_integer(source):
            digits = counts_as(source)
            digits = digits if pa.types.is_decimal(digits) else decimal_of_integer(digits)
            return argument.cast(target) if target.precision - target.scale >= digits.precision else None
        if pa.types.is_decimal(source):
            keeps = target.scale >= source.scale
            keeps = keeps and target.precision - target.scale >= source.precision - source.scale
            return argument.cast(target) if keeps else None
    if pa.types.is_decimal(source) and source.scale in range(7) and is_text(target):
        return argument.cast(target)  # Arrow writes an exponent only for scales beyond 6
    if pa.types.is_timestamp(source) and pa.types.is_timestamp(target) and (source.tz is None) == (target.tz is None):
        return call("cast", [argument], pc.CastOptions(target, allow_time_truncate=True))
    plain_source = pa.types.is_timestamp(source) and source.tz is None
    if (plain_source and pa.types.is_date(target)) or (pa.types.is_date(source) and pa.types.is_date(target)):
        return call("cast", [argument], pc.CastOptions(target, allow_time_truncate=True))
    if pa.types.is_date(source) and pa.types.is_timestamp(target) and target.tz is None:
        return argument.cast(target)
    return None


def converter_for(source: pa.DataType, target: pa.DataType) -> Converter | None:
    """Return what converts arrays, or None where Arrow's cast is taken as it is."""
    if is_text(source):
        return text_converter(target)
    if is_text(target):
        written = text_of(source)
        return None if written is None else (lambda array: written(array).cast(target))
    if pa.types.is_boolean(target) and is_number(source):
        kind = source if pa.types.is_integer(source) else counts_as(source)
        zero = pa.scalar(Decimal(0) if pa.types.is_decimal(kind) else 0, kind)
        return lambda array: pc.not_equal(array.cast(kind), zero)
    if pa.types.is_boolean(source) and pa.types.is_decimal(target):
        bits = number_converter(pa.int8(), target)
        return (lambda array: bits(array.cast(pa.int8()))) if bits else lambda array: array.cast(pa.int8()).cast(target)
    if is_number(source) and is_number(target):
        return number_converter(source, target)
    if pa.types.is_timestamp(source) and (pa.types.is_timestamp(target) or pa.types.is_date(target)):
        if source.tz is not None and getattr(target, "tz", None) is None:
            return lambda array: truncated(pc.local_timestamp(array), target)
        if source.tz is None and pa.types.is_timestamp(target) and target.tz is not None:
            return lambda array: truncated(as_instant(array, target.tz), target)
        return partial(truncated, target=target)
    if pa.types.is_date(source) and pa.types.is_timestamp(target) and target.tz is not None:
        return lambda array: as_instant(array.cast(pa.timestamp(target.unit)), target.tz)
    return None


def truncated(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Return times at another unit, or days; null where a finer unit cannot hold them."""
    options = pc.CastOptions(target, allow_time_truncate=True)
    return null_where_it_fails(lambda part: pc.cast(part, options=options), target)(array)


def number_converter(source: pa.DataType, target: pa.DataType) -> Converter | None:
    if pa.types.is_decimal(target):
        if target.scale < 0 or target.precision > PRECISION_MAX:
            return None
        return lambda array: to_decimal(array, target)
    if pa.types.is_decimal(source):
        if not pa.types.is_decimal128(counts_as(source)):
            return lambda array: read_each(array.to_pylist(), partial(from_wide_decimal, data_type=target), target)
        return lambda array: from_decimal(array.cast(counts_as(array.type)), target)
    if pa.types.is_integer(target):
        return lambda array: to_integer(array, target)
    return lambda array: array.cast(target, safe=False)


def to_integer(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Return integers or floats cut to integers; null where they do not fit."""
    low, high = integer_bounds(target)
    if pa.types.is_floating(array.type):
        array = pc.trunc(array.cast(pa.float64()))
        # `high + 1` is a power of two, so it is exact as a float; NaN fits nowhere
        fits = pc.and_(pc.greater_equal(array, float(low)), pc.less(array, float(high + 1)))
        return pc.if_else(fits, array, None).cast(target)
    source_low, source_high = integer_bounds(array.type)
    fits = pc.and_(
        pc.greater_equal(array, pa.scalar(max(low, source_low), array.type)),
        pc.less_equal(array, pa.scalar(min(high, source_high), array.type)),
    )
    return pc.if_else(fits, array, None).cast(target)


def to_decimal(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Return numbers as decimals, rounded half up; null where they have too many digits, for NaN and infinities."""
    if pa.types.is_floating(array.type):
        # Spark takes the shortest text of the double, and of a float that of the double with the same value.
        texts = [None if value is None else repr(value) for value in array.cast(pa.float64()).to_pylist()]
        return read_each(texts, partial(read_decimal, data_type=target), target)
    if pa.types.is_integer(array.type):
        digits = counts_as(array.type)
        array = array.cast(digits if pa.types.is_decimal(digits) else decimal_of_integer(digits))
    elif array.type.precision > PRECISION_MAX or array.type.scale < 0:
        return read_each(array.to_pylist(), partial(read_decimal, data_type=target), target)
    array = array.cast(counts_as(array.type))
    values = rescaled(unscaled(array), array.type.precision, array.type.scale, target.scale)
    return decimals(values, valid_rows(array), pa.decimal128(target.precision, target.scale)).cast(target)


def from_decimal(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Return decimals as integers, cut, or as the nearest floats."""
    import numpy as np

    values, scale, valid = unscaled(array), array.type.scale, valid_rows(array)
    if pa.types.is_floating(target):
        if array.type.precision <= 15:  # both are exact as floats, so their quotient is the nearest (Clinger 1990)
            floats = values.astype(np.float64) / 10.0**scale
        else:
            factor = 10**scale
            floats = np.array([value / factor for value in values.tolist()], np.float64)
        return pa.array(floats, mask=~valid).cast(target, safe=False)
    values = divided(values, np.full(len(values), 10**scale, values.dtype if scale <= 18 else object), half_up=False)
    low, high = integer_bounds(target)
    fits = valid & ((values >= low) & (values <= high)).astype(np.bool_)
    return pa.array([value if fit else None for value, fit in zip(values.tolist(), fits, strict=True)], target)


def from_wide_decimal(value: Decimal, data_type: pa.DataType) -> int | float | None:
    if pa.types.is_floating(data_type):
        return float(value)
    low, high = integer_bounds(data_type)
    return int(value) if low <= int(value) <= high else None


# From text ----------------------------------------------------------------------------------------------------------


def text_converter(target: pa.DataType) -> Converter | None:
    """Return what reads text: Arrow, and where it fails or might read more than Spark, Python row by row."""
    if pa.types.is_boolean(target):
        return read_booleans
    if pa.types.is_integer(target):
        return lambda array: read_text(array, target, b"xX", lambda text: read_integer(text, target))
    if pa.types.is_floating(target):
        return lambda array: read_text(array, target, b"nN", read_float)
    if pa.types.is_decimal(target) and target.precision <= PRECISION_MAX and target.scale >= 0:
        return lambda array: read_text(array, target, b"", partial(read_decimal, data_type=target))
    if pa.types.is_date(target):
        return lambda array: read_text(array, target, b"", read_date, pa.date32())
    if pa.types.is_timestamp(target):
        return lambda array: read_timestamps(array, target)
    return None


def read_text(
    array: pa.Array,
    target: pa.DataType,
    suspicious: bytes,
    read: Callable[[str], Any],
    read_type: pa.DataType | None = None,
) -> pa.Array:
    """Read text by Arrow, unless it fails or the text has bytes by which Arrow reads more than Spark."""
    if not suspicious or not has_bytes(array, suspicious):
        try:
            return array.cast(target)
        except pa.ArrowInvalid:
            pass
    return read_each(array.to_pylist(), read, read_type or target).cast(target)


def has_bytes(array: pa.Array, wanted: bytes) -> bool:
    """Return whether any text of an array has one of these bytes."""
    import numpy as np

    _, ends, data = array.buffers()
    if data is None or not len(array):
        return False
    offsets = np.frombuffer(ends, np.int64 if pa.types.is_large_string(array.type) else np.int32)
    start, end = int(offsets[array.offset]), int(offsets[array.offset + len(array)])
    raw = data.slice(start, end - start).to_pybytes()
    return any(raw.find(byte) >= 0 for byte in wanted)


def read_each(values: list[Any], read: Callable[[Any], Any], data_type: pa.DataType) -> pa.Array:
    return pa.array([None if value is None else read(value) for value in values], data_type)


_TRUE, _FALSE = pa.array(["t", "true", "y", "yes", "1"]), pa.array(["f", "false", "n", "no", "0"])


def read_booleans(array: pa.Array) -> pa.Array:
    text = pc.utf8_lower(pc.utf8_trim(array.cast(pa.string()), BLANKS))
    known = pc.or_(pc.is_in(text, _TRUE), pc.is_in(text, _FALSE))
    return pc.if_else(known, pc.is_in(text, _TRUE), pa.scalar(None, pa.bool_()))


_INTEGER = re.compile(r"[+-]?[0-9]+")


def read_integer(text: str, data_type: pa.DataType) -> int | None:
    text = text.strip(BLANKS)
    if _INTEGER.fullmatch(text) is None or len(text.lstrip("+-0")) > 20:
        return None
    low, high = integer_bounds(data_type)
    value = int(text)
    return value if low <= value <= high else None


_NUMBER = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_FLOAT = re.compile(_NUMBER)
_FLOAT_NAMES = re.compile(r"nan|[+-]?inf(?:inity)?", re.IGNORECASE)


def read_float(text: str) -> float | None:
    text = text.strip(BLANKS)
    if _FLOAT_NAMES.fullmatch(text) is not None:
        return float(text)
    if text[-1:] in ("d", "D", "f", "F"):  # as Java writes its literals
        text = text[:-1]
    return float(text) if _FLOAT.fullmatch(text) is not None else None


_EXACT = Context(prec=100, rounding=ROUND_HALF_UP, Emax=999_999, Emin=-999_999)


def read_decimal(value: str | Decimal, data_type: pa.DataType) -> Decimal | None:
    """Return text or a number as a decimal, rounded half up; None if it is none, or has too many digits."""
    if isinstance(value, str):
        value = value.strip(BLANKS)
        if _FLOAT.fullmatch(value) is None:
            return None
        value = Decimal(value)
    if value.adjusted() >= data_type.precision - data_type.scale:
        return Decimal(0).scaleb(-data_type.scale) if not value else None
    rounded = value.quantize(Decimal(1).scaleb(-data_type.scale), context=_EXACT)
    return rounded if not rounded or rounded.adjusted() < data_type.precision - data_type.scale else None


def read_timestamps(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Return timestamps. Text without a zone is local time of the target's zone; a naive target ignores zones."""
    naive = pa.timestamp(target.unit)
    try:
        local = array.cast(naive)
        return local if target.tz is None else as_instant(local, target.tz)
    except pa.ArrowInvalid:
        pass
    if target.tz is not None:
        try:
            return array.cast(target)  # each text has an offset
        except pa.ArrowInvalid:
            pass
    found = [None if text is None else read_timestamp(text, target.unit) for text in array.to_pylist()]
    zones: dict[str | None, str | None] = {zone: zone_name(zone) for _, zone in filter(None, found) if zone}
    if target.tz is None:
        return pa.array([None if one is None or not known(one[1], zones) else one[0] for one in found], naive)
    result = pa.nulls(len(found), target)
    for zone, name in {None: target.tz, **zones}.items():
        if name is not None:
            local = pa.array([one[0] if one is not None and one[1] == zone else None for one in found], naive)
            result = pc.coalesce(result, as_instant(local, name).cast(target))
    return result


def known(zone: str | None, zones: dict[str | None, str | None]) -> bool:
    return zone is None or zones[zone] is not None


# To text ------------------------------------------------------------------------------------------------------------


def text_of(source: pa.DataType) -> Converter | None:
    """Return what writes values as text, or None for types that Spark lacks or that Arrow writes alike."""
    if pa.types.is_floating(source):
        return write_floats
    if pa.types.is_decimal(source):
        return lambda array: pa.array([None if v is None else format(v, "f") for v in array.to_pylist()], pa.string())
    if pa.types.is_date(source):
        return write_dates
    if pa.types.is_timestamp(source):
        if source.tz is None:
            return write_timestamps
        return lambda array: write_timestamps(pc.local_timestamp(array))
    return None


_PLAIN_FLOATS = 1e-3, 1e7
"""Java writes floats in [1e-3, 1e7) without an exponent."""


def write_floats(array: pa.Array) -> pa.Array:
    """Return floats as Java writes them: 1.0, 1.0E7, 9.9E-4, NaN, Infinity; the shortest digits that are the value."""
    if pa.types.is_float16(array.type):
        array = array.cast(pa.float32())
    text, size = array.cast(pa.string()), pc.abs(array)
    text = pc.if_else(pc.equal(pc.trunc(array), array), pc.binary_join_element_wise(text, ".0", ""), text)
    low, high = (pa.scalar(bound, array.type) for bound in _PLAIN_FLOATS)
    plain = pc.or_(
        pc.equal(size, pa.scalar(0.0, array.type)), pc.and_(pc.greater_equal(size, low), pc.less(size, high))
    )
    if pc.all(plain).as_py() is not False:
        return text
    return pa.array(
        [
            one if is_plain in (True, None) else write_float(one)
            for one, is_plain in zip(text.to_pylist(), plain.to_pylist(), strict=True)
        ],
        pa.string(),
    )


def write_float(text: str) -> str:
    """Return what Arrow wrote with an exponent, as Java writes it."""
    names = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity", "inf.0": "Infinity", "-inf.0": "-Infinity"}
    if text in names:
        return names[text]
    sign, digits, exponent = Decimal(text.removesuffix(".0")).normalize(_EXACT).as_tuple()
    assert isinstance(exponent, int)
    first, *rest = map(str, digits)
    return f"{'-' if sign else ''}{first}.{''.join(rest) or '0'}E{exponent + len(rest)}"
