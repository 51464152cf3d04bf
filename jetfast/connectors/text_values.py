"""Which values text can express: years of four digits, times of a day; and the values themselves, as text has them."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

_DAY_S = 86_400
_FIRST_DAY = -719_528  # 0000-01-01
_LAST_DAY = 2_932_896  # 9999-12-31
_FIRST_NS = -9_223_372_036 * 10**9
"""1677-09-21 00:12:44: the first whole second of timestamps in ns. Readers count seconds, and overflow before."""
_WHOLE_MINUTES_S = 94_694_400
"""1973-01-01: all zones are whole minutes away from UTC since then."""
_NO_TEXT = ", which text cannot express"
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


class Inexpressible(ValueError):
    """A value that text cannot hold so that it can be read again."""


def plain_type(column_type: pa.DataType) -> pa.DataType:
    """Return the type as which text holds a column: without dictionaries, views and durations."""
    types = pa.types
    if isinstance(column_type, pa.BaseExtensionType):
        return plain_type(column_type.storage_type)
    if types.is_dictionary(column_type):
        return plain_type(column_type.value_type)
    if types.is_string_view(column_type):
        return pa.string()
    if types.is_duration(column_type):
        return pa.int64()
    if types.is_struct(column_type):
        return pa.struct([field.with_type(_nested_type(field.type)) for field in column_type])
    if types.is_fixed_size_list(column_type):
        item = column_type.value_field
        return pa.list_(item.with_type(_nested_type(item.type)), column_type.list_size)
    if _is_list(column_type):
        item = column_type.value_field
        large = types.is_large_list(column_type) or types.is_large_list_view(column_type)
        return (pa.large_list if large else pa.list_)(item.with_type(_nested_type(item.type)))
    return column_type


def _is_list(column_type: pa.DataType) -> bool:
    types = pa.types
    kinds = (types.is_list, types.is_large_list, types.is_list_view, types.is_large_list_view)
    return any(is_kind(column_type) for is_kind in kinds)


def _nested_type(column_type: pa.DataType) -> pa.DataType:
    """Python values of nested times wrap around or lose nanoseconds, so they become text before."""
    if pa.types.is_date(column_type) or pa.types.is_time(column_type) or pa.types.is_timestamp(column_type):
        return pa.string()
    return plain_type(column_type)


class _Limits(NamedTuple):
    """The least and greatest number of a type that a format can hold, and what others are."""

    least: int
    greatest: int
    others: str
    local: bool = False
    """Local time counts: the format holds timestamps in their zone."""


LimitsOf = Callable[[pa.DataType], _Limits | None]


def parquet_limits(leaf_type: pa.DataType) -> _Limits | None:
    """Return what Parquet holds of a type that it stores as another: timestamps and times in s as ms."""
    types = pa.types
    if (types.is_timestamp(leaf_type) or types.is_time(leaf_type)) and leaf_type.unit == "s":
        greatest = (2 ** (leaf_type.bit_width - 1) - 1) // 1000
        return _Limits(-greatest, greatest, "beyond the milliseconds as which Parquet stores it")
    return None


def check_parquet(table: pa.Table, first_row: int) -> None:
    """Raise Inexpressible, naming row and column, if Parquet cannot hold a value."""
    _check(table, first_row, parquet_limits)


def check_expressible(table: pa.Table, first_row: int) -> None:
    """Raise Inexpressible, naming row and column, if text cannot express a value.

    first_row : number of the table's first row in its file
    """
    _check(table, first_row, _limits)


def _check(table: pa.Table, first_row: int, limits_of: LimitsOf) -> None:
    for name, column in zip(table.schema.names, table.columns, strict=True):
        start = 0
        for chunk in column.chunks:
            if _reason(chunk, limits_of) is not None:
                row = _first_bad_row(chunk, limits_of)
                why = _reason(chunk.slice(row, 1), limits_of)
                raise Inexpressible(f"row {first_row + start + row}, column {name!r}: {why}")
            start += len(chunk)


def _first_bad_row(column: pa.Array, limits_of: LimitsOf) -> int:
    """Return the first row of a column that holds an inexpressible value."""
    low, high = 0, len(column)
    while high - low > 1:
        middle = (low + high) // 2
        if _reason(column.slice(low, middle - low), limits_of) is None:
            low = middle
        else:
            high = middle
    return low


def _reason(column: pa.Array, limits_of: LimitsOf) -> str | None:
    """Say why a format cannot hold some value of a column; None if it can."""
    for leaf in leaves(column, limits_of):
        limits = limits_of(leaf.type)
        if limits is None:
            continue
        number, others = _number_outside(leaf, limits), limits.others
        if number is None and limits.local:
            number, others = _number_between_minutes(leaf), "where the offset of its zone has seconds" + _NO_TEXT
        if number is not None:
            return f"{leaf.type} {number} is {others}"
    return None


def _limits(leaf_type: pa.DataType) -> _Limits | None:
    types = pa.types
    if types.is_time(leaf_type):
        return _Limits(0, _DAY_S * _PER_SECOND[leaf_type.unit] - 1, "no time of a day" + _NO_TEXT)
    if types.is_date32(leaf_type):
        day = 1
    elif types.is_date64(leaf_type) or types.is_timestamp(leaf_type):
        day = _DAY_S * _PER_SECOND["ms" if types.is_date64(leaf_type) else leaf_type.unit]
    else:
        return None
    zoned = types.is_timestamp(leaf_type) and leaf_type.tz is not None
    if types.is_timestamp(leaf_type) and leaf_type.unit == "ns":
        where = " in UTC or in its zone" if zoned else ""
        span = "1677-09-21 00:12:44 to 2262-04-11 23:47:16.854775807"
        return _Limits(_FIRST_NS, 2**63 - 1, f"outside {span}{where}" + _NO_TEXT, zoned)
    return _Limits(_FIRST_DAY * day, (_LAST_DAY + 1) * day - 1, "outside the years 0000 to 9999" + _NO_TEXT, zoned)


def _number_outside(leaf: pa.Array, limits: _Limits) -> int | None:
    """Return a value outside of the limits as a number, None if there is none."""
    least, greatest, _, zoned = limits
    numbers = leaf.view(pa.int32() if leaf.type.bit_width == 32 else pa.int64())
    day = _DAY_S * _PER_SECOND[leaf.type.unit] if zoned else 0
    for extreme in pc.min_max(numbers).as_py().values():
        if extreme is None or least + day <= extreme <= greatest - day:
            continue
        readable = not zoned or leaf.type.unit != "ns" or extreme >= least
        if zoned and readable and least - day <= extreme <= greatest + day:  # the zone decides
            stamp = pa.array([extreme], pa.int64()).cast(leaf.type)
            if least <= extreme + _zone_offsets(stamp)[0].as_py() <= greatest:
                continue
        return int(extreme)
    return None


def _number_between_minutes(leaf: pa.Array) -> int | None:
    """Return a timestamp whose zone has an offset with seconds then, as number; None if there is none.

    Local times before standard time have such offsets. Text holds offsets of hours and minutes.
    """
    numbers = leaf.view(pa.int64())
    per_second = _PER_SECOND[leaf.type.unit]
    least = pc.min(numbers).as_py()
    if least is None or least >= _WHOLE_MINUTES_S * per_second:
        return None
    offsets = _zone_offsets(leaf)
    minute = 60 * per_second
    odd = pc.not_equal(pc.multiply(pc.divide(offsets, minute), minute), offsets)
    number = pc.index(odd, True).as_py()
    return None if number < 0 else int(numbers[number].as_py())


def _zone_offsets(stamps: pa.Array) -> pa.Array:
    """Return how far local time is from UTC. Sums beyond int64 wrap around, and the differences wrap back."""
    return pc.subtract(pc.local_timestamp(stamps).view(pa.int64()), stamps.view(pa.int64()))


def leaves(column: pa.Array, limits_of: LimitsOf | None = None) -> Iterator[pa.Array]:
    """Yield the columns of a nested column that hold values themselves; dictionaries by the values that are used.

    limits_of : dictionaries are left out if it has no limits for their values; by default those of text
    """
    types = pa.types
    column_type = column.type
    if isinstance(column_type, pa.BaseExtensionType):
        yield from leaves(column.storage, limits_of)
    elif types.is_struct(column_type):
        for values in column.flatten():
            yield from leaves(values, limits_of)
    elif _is_list(column_type) or types.is_fixed_size_list(column_type):
        yield from leaves(column.flatten(), limits_of)
    elif types.is_map(column_type):
        start = column.offsets[0].as_py()
        count = column.offsets[-1].as_py() - start
        yield from leaves(column.keys.slice(start, count), limits_of)
        yield from leaves(column.items.slice(start, count), limits_of)
    elif types.is_dictionary(column_type):
        if (limits_of or _limits)(column_type.value_type) is not None:
            yield column.dictionary_decode()
    else:
        yield column


def with_words_for_floats(column: pa.Array, values: list[Any]) -> list[Any]:
    """Return Python values with NaN and infinities as the bare words that pyarrow, Python and Spark read.

    JSON has none, and the encoder would write null.
    """
    for leaf in leaves(column):
        if pa.types.is_floating(leaf.type) and pc.all(pc.is_finite(leaf)).as_py() is False:
            return [_with_words(value) for value in values]
    return values


def _with_words(value: Any) -> Any:
    if isinstance(value, float):
        if value - value == 0:
            return value
        return msgspec.Raw(b"NaN" if value != value else b"Infinity" if value > 0 else b"-Infinity")
    if isinstance(value, list):
        return [_with_words(item) for item in value]
    if isinstance(value, dict):
        return {name: _with_words(item) for name, item in value.items()}
    return value
