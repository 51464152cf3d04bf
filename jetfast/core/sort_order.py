"""The order of rows by several columns of any type that has an order."""

from collections.abc import Sequence
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from jetfast.core.batch_aggregate import plain_array, plain_type

Order = Literal["ascending", "descending"]
SortKey = tuple[str, Order]


def order_of(rows: pa.Table, by: Sequence[SortKey]) -> pa.Array:
    """Indices of the rows in order, nulls at the end. TypeError names a column of a type that has no order."""
    keys = []
    for name, _ in by:
        column = rows.column(name)
        if pa.types.is_nested(plain_type(column.type)) or column.type == pa.month_day_nano_interval():
            raise TypeError(f"column {name!r} of type {column.type} has no order")
        keys.append(sortable(column))
    numbered = [(str(number), order) for number, (_, order) in enumerate(by)]
    return pc.sort_indices(pa.table(keys, [name for name, _ in numbered]), sort_keys=numbered)


def take_rows(rows: pa.Table, indices: pa.Array) -> pa.Table:
    """Rows by their indices. Arrow takes no views: they become plain and views again."""
    columns = [
        column.cast(_plain_of_view(column.type)).take(indices).cast(column.type)
        if is_view(column.type)
        else column.take(indices)
        for column in rows.columns
    ]
    return pa.table(columns, schema=rows.schema)


def _plain_of_view(data_type: pa.DataType) -> pa.DataType:
    return pa.large_string() if pa.types.is_string_view(data_type) else pa.large_binary()


def sortable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Values of a type that Arrow sorts and encodes, in the same order."""
    data_type = _sortable_type(column.type)
    return pa.chunked_array([plain_array(chunk).cast(data_type) for chunk in column.chunks], data_type)


def _sortable_type(data_type: pa.DataType) -> pa.DataType:
    """What values are sorted by. Text is large: chunks add up.

    Arrow sorts no dictionaries, views and half floats. Beside others it sorts decimals of 32 and 64 bits wrongly.
    """
    plain = plain_type(data_type)
    if pa.types.is_decimal32(plain) or pa.types.is_decimal64(plain):
        return pa.decimal128(plain.precision, plain.scale)
    if plain == pa.float16():
        return pa.float32()
    large = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}
    return large.get(plain, plain) if plain != data_type else plain


def is_view(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_string_view(data_type) or pa.types.is_binary_view(data_type))
