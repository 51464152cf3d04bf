"""Exact arithmetic of decimals by Spark's rules, over their unscaled integers.

A decimal of precision p and scale s is an integer below 10^p divided by 10^s. Integers that fit are computed in int64,
others as Python's integers (numpy's object arrays), which never overflow. A row that fails gives null.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from jetfast.api.registered_functions import valid_rows

PRECISION_MAX = 38
DIVISION_SCALE_MIN = 6
"""Spark gives up digits behind the point, but not these, before it gives up digits before the point."""

_INT64_DIGITS = 18
"""Every integer of so many digits fits int64."""


def unscaled(array: pa.Array) -> Any:
    """Return the unscaled integers of a decimal128 array, 0 for null: int64 if all fit by their type, else objects."""
    valid = valid_rows(array)
    words = np.frombuffer(array.buffers()[1], np.uint64).reshape(-1, 2)[array.offset : array.offset + len(array)]
    if array.type.precision <= _INT64_DIGITS:
        return np.where(valid, words[:, 0].view(np.int64), 0)
    high = words[:, 1].view(np.int64).astype(object)
    return np.where(valid, high * 2**64 + words[:, 0].astype(object), 0)


def decimals(values: Any, valid: Any, data_type: pa.Decimal128Type) -> pa.Array:
    """Return decimal128 values made of unscaled integers; null where they are not valid or have too many digits."""
    limit = 10**data_type.precision
    if values.dtype != object and data_type.precision > _INT64_DIGITS:
        fits = valid
    else:
        fits = valid & ((values < limit) & (values > -limit)).astype(np.bool_)
    values = np.where(fits, values, 0)
    words = np.empty((len(values), 2), np.uint64)
    if values.dtype == object:
        words[:, 0] = (values & (2**64 - 1)).astype(np.uint64)
        words[:, 1] = (values >> 64).astype(np.int64).view(np.uint64)
    else:
        words[:, 0] = values.view(np.uint64)
        words[:, 1] = (values >> 63).view(np.uint64)
    validity = pa.array(fits).buffers()[1]
    return pa.Array.from_buffers(data_type, len(values), [validity, pa.py_buffer(words)])


def scaled_up(values: Any, digits: int, factor_digits: int) -> Any:
    """Return values * 10^factor_digits; `digits` is what the values have at most."""
    if factor_digits == 0:
        return values
    if digits + factor_digits > _INT64_DIGITS:
        values = values.astype(object)
    return values * 10**factor_digits


def divided(values: Any, divisors: Any, half_up: bool) -> Any:
    """Return quotients, rounded half away from zero or cut towards zero. No divisor is 0."""
    size, divisor_size = abs(values), abs(divisors)
    quotients = size // divisor_size
    if half_up:
        rest = size - quotients * divisor_size
        quotients = quotients + (rest >= divisor_size - rest)
    return np.where((values < 0) != (divisors < 0), -quotients, quotients)


def rescaled(values: Any, digits: int, scale: int, wanted_scale: int) -> Any:
    """Return the same numbers at another scale, rounded half up as Spark does (away from zero)."""
    if wanted_scale >= scale:
        return scaled_up(values, digits, wanted_scale - scale)
    factor = 10 ** (scale - wanted_scale)
    if scale - wanted_scale > _INT64_DIGITS:
        values = values.astype(object)
    return divided(values, np.full(len(values), factor, values.dtype), half_up=True)


def adjusted_decimal(precision: int, scale: int) -> pa.Decimal128Type:
    """Return Spark's type of a result: beyond 38 digits those behind the point give way, down to 6 (or all it has)."""
    if precision <= PRECISION_MAX:
        return pa.decimal128(precision, scale)
    whole_digits = precision - scale
    return pa.decimal128(PRECISION_MAX, max(PRECISION_MAX - whole_digits, min(scale, DIVISION_SCALE_MIN)))


def result_digits(operator: str, left: pa.Decimal128Type, right: pa.Decimal128Type) -> tuple[int, int]:
    """Return precision and scale of an exact result, before they are adjusted to 38 digits."""
    p1, s1, p2, s2 = left.precision, left.scale, right.precision, right.scale
    if operator in "+-":
        return max(p1 - s1, p2 - s2) + max(s1, s2) + 1, max(s1, s2)
    if operator == "*":
        return p1 + p2 + 1, s1 + s2
    if operator == "/":
        scale = max(DIVISION_SCALE_MIN, s1 + p2 + 1)
        return p1 - s1 + s2 + scale, scale
    return min(p1 - s1, p2 - s2) + max(s1, s2), max(s1, s2)


def decimal_arithmetic(operator: str, left: pa.Array, right: pa.Array, data_type: pa.Decimal128Type) -> pa.Array:
    """Return left operator right as Spark computes it; null for null, a divisor of 0 and a result that does not fit."""
    first, second = unscaled(left), unscaled(right)
    p1, s1, p2, s2 = left.type.precision, left.type.scale, right.type.precision, right.type.scale
    valid = valid_rows(left) & valid_rows(right)
    if operator in "/%":
        valid = valid & (second != 0).astype(np.bool_)
        second = np.where(second != 0, second, 1)
    if operator == "/":
        first = scaled_up(first, p1, max(0, data_type.scale + s2 - s1))
        second = scaled_up(second, p2, max(0, s1 - s2 - data_type.scale))
        return decimals(divided(first, second, half_up=True), valid, data_type)
    if operator == "*":
        if p1 + p2 > _INT64_DIGITS:
            first = first.astype(object)
        values, scale, digits = first * second, s1 + s2, p1 + p2
    else:
        scale = max(s1, s2)
        first, second = scaled_up(first, p1, scale - s1), scaled_up(second, p2, scale - s2)
        digits = max(p1 - s1, p2 - s2) + scale
        if operator == "%":
            values = first - divided(first, second, half_up=False) * second
        else:
            values = first + second if operator == "+" else first - second
            digits += 1
    return decimals(rescaled(values, digits, scale, data_type.scale), valid, data_type)


def checked_decimal_arithmetic(
    operator: str, left: pa.Array, right: pa.Array, data_type: pa.Decimal128Type
) -> pa.Array:
    """As `decimal_arithmetic`. Raises pyarrow.ArrowInvalid for the first row that fails."""
    result = decimal_arithmetic(operator, left, right, data_type)
    failed = np.flatnonzero(valid_rows(left) & valid_rows(right) & ~valid_rows(result))
    if len(failed):
        first, second = left[int(failed[0])].as_py(), right[int(failed[0])].as_py()
        if operator in "/%" and not second:
            raise pa.ArrowInvalid("divide by zero")
        raise pa.ArrowInvalid(f"overflow: {first} {operator} {second} does not fit {data_type}")
    return result
