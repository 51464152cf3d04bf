"""States that are lists: entries of many groups as one array, sorted, thinned out, packed into a list a group."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from jetfast.core.batch_aggregate import Groups

Ints = npt.NDArray[np.int64]


def unpack(states: pa.Array, groups: Groups) -> tuple[pa.Array, Groups]:
    """Return the entries of all lists, one after the other, and the group of each."""
    lengths = pc.list_value_length(states).to_numpy(zero_copy_only=False)
    return states.flatten(), np.repeat(groups, lengths)


def pack(entries: pa.Array, groups: Groups, group_count: int) -> pa.Array:
    """Return one list for each group of entries, which are sorted by group."""
    offsets = np.zeros(group_count + 1, np.int32)
    np.cumsum(np.bincount(groups, minlength=group_count), out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), entries)


def take(array: pa.Array, rows: Ints) -> pa.Array:
    """Some rows of an array."""
    return array.take(pa.array(rows))


def starts_of(groups: Groups) -> Ints:
    """The first row of each group, of rows sorted by group, at each of these rows."""
    firsts = np.flatnonzero(np.diff(groups, prepend=groups[:1] - 1))
    return np.repeat(firsts, np.diff(np.append(firsts, len(groups))))


def first_of_each(*columns: Ints) -> npt.NDArray[np.bool_]:
    """Is a row the first one with its values in these columns? Rows with equal values lie together."""
    first = np.zeros(len(columns[0]), np.bool_)
    first[:1] = True
    for column in columns:
        first[1:] |= column[1:] != column[:-1]
    return first


def valid_rows(*arrays: pa.Array) -> Ints | None:
    """Rows in which none of the arrays is null; None if that is all of them."""
    valid = None
    for array in arrays:
        if array.null_count > 0:
            own = array.is_valid().to_numpy(zero_copy_only=False)
            valid = own if valid is None else valid & own
    return None if valid is None else np.flatnonzero(valid)


def as_doubles(numbers: pa.Array) -> npt.NDArray[np.float64]:
    """Numbers without nulls as the nearest doubles."""
    if pa.types.is_decimal(numbers.type):
        numbers = numbers.cast(pa.float64())
    doubles: npt.NDArray[np.float64] = numbers.to_numpy(zero_copy_only=False).astype(np.float64)
    return doubles


def without_negative_zero(values: pa.Array) -> pa.Array:
    """-0.0 and 0.0 are one value, and come out as 0.0."""
    if not pa.types.is_floating(values.type):
        return values
    numbers = values.to_numpy(zero_copy_only=False)
    with np.errstate(invalid="ignore"):  # a NaN that signals
        plain = pa.array(numbers + numbers.dtype.type(0), values.type, from_pandas=False)
    return plain if values.null_count == 0 else pc.if_else(values.is_valid(), plain, None)


def require_sortable(what: str, data_type: pa.DataType) -> None:
    """Raise TypeError for a type whose values `ranks` cannot order."""
    kinds = pa.types
    if kinds.is_temporal(data_type) and not kinds.is_interval(data_type):
        return
    if not any(
        is_kind(data_type)
        for is_kind in (
            kinds.is_integer, kinds.is_floating, kinds.is_decimal, kinds.is_boolean, kinds.is_fixed_size_binary,
            kinds.is_string, kinds.is_large_string,
            kinds.is_binary, kinds.is_large_binary,
        )
    ):  # fmt: skip
        raise TypeError(f"{what} needs numbers, times, booleans, texts or bytes, got {data_type}")


def ranks(values: pa.Array) -> Ints:
    """Return numbers that are ordered, and equal, as the values are; -0.0 equals 0.0, NaN equals NaN and is the
    greatest.

    values : of a type that `require_sortable` lets pass, without nulls
    """
    numbers = as_numbers(values)
    if numbers is not None:
        return numbers
    encoded = encodable(values).dictionary_encode()
    order = pc.sort_indices(encoded.dictionary).to_numpy()
    rank_of = np.empty(len(order), np.int64)
    rank_of[order] = np.arange(len(order))
    result: Ints = rank_of[encoded.indices.to_numpy()]
    return result


def codes(values: pa.Array) -> Ints:
    """Return numbers that are equal where the values are, as `ranks`, but in any order."""
    numbers = as_numbers(values)
    return encodable(values).dictionary_encode().indices.to_numpy().astype(np.int64) if numbers is None else numbers


def as_numbers(values: pa.Array) -> Ints | None:
    """Values of fixed width as int64 of the same order, None for others."""
    data_type = values.type
    numbers: Ints | None = None
    if pa.types.is_floating(data_type):
        doubles = as_doubles(values)
        with np.errstate(invalid="ignore"):  # a NaN that signals
            doubles = doubles + 0.0
        doubles[np.isnan(doubles)] = np.nan
        bits = doubles.view(np.int64)
        numbers = bits ^ ((bits >> 63) & np.int64(2**63 - 1))
    elif pa.types.is_boolean(data_type):
        numbers = values.to_numpy(zero_copy_only=False).astype(np.int64)
    elif pa.types.is_uint64(data_type):
        numbers = (values.to_numpy() ^ np.uint64(2**63)).view(np.int64)
    elif pa.types.is_integer(data_type):
        numbers = values.to_numpy().astype(np.int64)
    elif pa.types.is_temporal(data_type):
        numbers = values.view(pa.int32() if data_type.bit_width == 32 else pa.int64()).to_numpy().astype(np.int64)
    return numbers


def encodable(values: pa.Array) -> pa.Array:
    """Values of a type that Arrow's dictionary_encode and sort_indices take."""
    data_type = values.type
    if pa.types.is_decimal32(data_type) or pa.types.is_decimal64(data_type):
        return values.cast(pa.decimal128(data_type.precision, data_type.scale))
    return values
