"""Arrow columns as exact Python values and back: what oracles compute with and results are compared by.

Times and durations are integers in the unit of their type, dates are days or milliseconds, lists and structs are
tuples, map entries are pairs. So no value is rounded and every value has a hash.
"""

import decimal
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

MICROSECONDS = {"s": (1_000_000, 1), "ms": (1_000, 1), "us": (1, 1), "ns": (1, 1_000)}
"""Multiplier and divisor that make microseconds of a unit."""
decimal.getcontext().prec = 200
decimal.getcontext().Emax = decimal.MAX_EMAX
decimal.getcontext().Emin = decimal.MIN_EMIN


class Near(NamedTuple):
    """A float that a result may miss by a tolerance."""

    value: float
    tolerance: float


def is_list(data_type: pa.DataType) -> bool:
    """Is it any of Arrow's five types of lists?"""
    return any(
        check(data_type)
        for check in (
            pa.types.is_list,
            pa.types.is_large_list,
            pa.types.is_list_view,
            pa.types.is_large_list_view,
            pa.types.is_fixed_size_list,
        )
    )


def plain(data_type: pa.DataType) -> pa.DataType:
    """The type without its layout: dictionaries, run ends, extensions, views and 64-bit offsets are left out."""
    if isinstance(data_type, pa.BaseExtensionType):
        return plain(data_type.storage_type)
    if pa.types.is_dictionary(data_type) or pa.types.is_run_end_encoded(data_type):
        return plain(data_type.value_type)
    if pa.types.is_string_view(data_type) or pa.types.is_large_string(data_type):
        return pa.string()
    if pa.types.is_binary_view(data_type) or pa.types.is_large_binary(data_type):
        return pa.binary()
    if pa.types.is_map(data_type):
        return pa.map_(plain(data_type.key_type), plain(data_type.item_type))
    if is_list(data_type):
        return pa.list_(plain(data_type.value_type))
    if pa.types.is_struct(data_type):
        return pa.struct([(field.name, plain(field.type)) for field in data_type])
    return data_type


def ticks_of(data_type: pa.DataType) -> pa.DataType | None:
    """The integer type that a temporal type is stored as, or None for other types."""
    if pa.types.is_date32(data_type) or pa.types.is_time32(data_type):
        return pa.int32()
    is_temporal = pa.types.is_temporal(data_type) and not pa.types.is_interval(data_type)
    return pa.int64() if is_temporal or pa.types.is_duration(data_type) else None


def to_exact(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The values of a column."""
    if isinstance(column, pa.ChunkedArray):
        return [value for chunk in column.chunks for value in to_exact(chunk)]
    data_type = column.type
    if isinstance(data_type, pa.BaseExtensionType):
        return to_exact(column.storage)
    if pa.types.is_dictionary(data_type):
        values = to_exact(column.dictionary)
        return [None if index is None else values[index] for index in column.indices.to_pylist()]
    if pa.types.is_run_end_encoded(data_type):
        values = to_exact(column.values)
        ends = column.run_ends.to_pylist()
        places = np.searchsorted(ends, np.arange(column.offset, column.offset + len(column)), side="right")
        return [values[place] for place in places]
    if pa.types.is_map(data_type) or is_list(data_type):
        return [tuple(to_exact(each.values)) if each.is_valid else None for each in column]
    if pa.types.is_struct(data_type):
        children = [to_exact(child) for child in column.flatten()]
        rows = list(zip(*children, strict=True)) if children else [()] * len(column)
        return [row if there else None for row, there in zip(rows, column.is_valid().to_pylist(), strict=True)]
    ticks = ticks_of(data_type)
    if ticks is not None:
        return list(column.view(ticks).to_pylist())
    if pa.types.is_union(data_type):
        return [to_exact(pa.array([each.value]))[0] if each.is_valid else None for each in column]
    return [tuple(value) if pa.types.is_interval(data_type) and value else value for value in column.to_pylist()]


def to_arrow(values: Sequence[Any], data_type: pa.DataType) -> pa.Array:
    """A column of exact values; `data_type` has a plain layout or that of lists and dictionaries."""
    ticks = ticks_of(data_type)
    if ticks is not None:
        return pa.array(values, ticks).view(data_type)
    if isinstance(data_type, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(data_type, to_arrow(values, data_type.storage_type))
    if pa.types.is_dictionary(data_type):
        different = list({to_key(value): value for value in values if value is not None}.values())
        places = {to_key(value): place for place, value in enumerate(different)}
        indices = [None if value is None else places[to_key(value)] for value in values]
        dictionary = to_arrow(different, data_type.value_type)
        return pa.DictionaryArray.from_arrays(pa.array(indices, data_type.index_type), dictionary)
    if pa.types.is_run_end_encoded(data_type):
        ends = [
            place + 1
            for place, value in enumerate(values)
            if place + 1 == len(values) or to_key(values[place + 1]) != to_key(value)
        ]
        runs = to_arrow([values[end - 1] for end in ends], data_type.value_type)
        return pa.RunEndEncodedArray.from_arrays(pa.array(ends, data_type.run_end_type), runs)
    if pa.types.is_struct(data_type):
        rows = [value or (None,) * data_type.num_fields for value in values]
        children = [to_arrow([row[place] for row in rows], field.type) for place, field in enumerate(data_type)]
        mask = pa.array([value is None for value in values], pa.bool_())
        return pa.StructArray.from_arrays(children, fields=list(data_type), mask=mask)
    if pa.types.is_map(data_type):
        pairs = to_arrow(flat(values), pa.struct([data_type.key_field, data_type.item_field]))
        return pa.MapArray.from_arrays(offsets_of(values, pa.int32()), *pairs.flatten(), type=data_type)
    if is_list(data_type):
        return to_lists(values, data_type)
    if pa.types.is_float16(data_type):
        return pa.array([None if value is None else np.float16(value) for value in values], data_type)
    return pa.array(values, data_type)


def to_lists(values: Sequence[Any], data_type: pa.DataType) -> pa.Array:
    """A column of lists."""
    if pa.types.is_fixed_size_list(data_type):
        padded = [(None,) * data_type.list_size if value is None else value for value in values]
        mask = pa.array([value is None for value in values], pa.bool_())
        return pa.FixedSizeListArray.from_arrays(
            to_arrow(flat(padded), data_type.value_type), type=data_type, mask=mask
        )
    elements = to_arrow(flat(values), data_type.value_type)
    if pa.types.is_list_view(data_type) or pa.types.is_large_list_view(data_type):
        is_large = pa.types.is_large_list_view(data_type)
        kind, size = (pa.LargeListViewArray, pa.int64()) if is_large else (pa.ListViewArray, pa.int32())
        sizes = [len(value or ()) for value in values]
        starts = [sum(sizes[:place]) for place in range(len(sizes))]
        mask = pa.array([value is None for value in values], pa.bool_())
        return kind.from_arrays(pa.array(starts, size), pa.array(sizes, size), elements, type=data_type, mask=mask)
    is_large = pa.types.is_large_list(data_type)
    kind, size = (pa.LargeListArray, pa.int64()) if is_large else (pa.ListArray, pa.int32())
    return kind.from_arrays(offsets_of(values, size), elements, type=data_type)


def flat(values: Sequence[Any]) -> list[Any]:
    """The elements of all lists."""
    return [element for value in values if value is not None for element in value]


def offsets_of(values: Sequence[Any], data_type: pa.DataType) -> pa.Array:
    """Offsets of lists; null where a list is null."""
    offsets: list[int | None] = []
    total = 0
    for value in values:
        offsets.append(None if value is None else total)
        total += len(value or ())
    return pa.array([*offsets, total], data_type)


def to_key(value: Any) -> Any:
    """A value that equals another one if both are the same to the bit (any NaN is one value)."""
    if isinstance(value, float):
        if math.isnan(value):
            return "NaN"
        return (value, "-") if value == 0 and math.copysign(1, value) < 0 else (value, "+")
    if isinstance(value, bool):
        return ("bool", value)
    if isinstance(value, tuple) and not isinstance(value, Near):
        return tuple(map(to_key, value))
    if isinstance(value, dict):
        return tuple((name, to_key(each)) for name, each in value.items())
    if isinstance(value, list):
        return tuple(map(to_key, value))
    return value


def to_group(value: Any) -> Any:
    """What values of one group have in common: NaN is one value, -0.0 is 0.0, null is a value."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return tuple(map(to_group, value)) if isinstance(value, tuple) else value


def positive_zero(value: Any) -> Any:
    """The value with one zero for both."""
    return value + 0.0 if isinstance(value, float) else value


def to_order(value: Any) -> Any:
    """Sorts values as Spark does: NaN above all numbers, -0.0 beside 0.0. Null has no place here."""
    if isinstance(value, float):
        return (math.isnan(value), 0.0 if math.isnan(value) else value + 0.0)
    if isinstance(value, str):
        return value.encode()
    return value


def microseconds(ticks: int, data_type: pa.DataType) -> int:
    """Event time of a value of a time column: finer units are floored."""
    if pa.types.is_date32(data_type):
        return ticks * 86_400_000_000
    unit = "ms" if pa.types.is_date64(data_type) else data_type.unit
    factor, divisor = MICROSECONDS[unit]
    return ticks * factor // divisor


def is_exactly(expected: Any, found: Any) -> bool:
    """Is it the same value to the bit?"""
    return bool(to_key(expected) == to_key(found))
