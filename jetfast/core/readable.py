"""Values of Arrow columns as people and JSON read them."""

from typing import Any

import msgspec
import pyarrow as pa


def readable_values(column: pa.Array) -> list[Any]:
    """Return Python values: times, dates and durations as ISO text, where text cannot hold them as their number."""
    column_type = column.type
    if pa.types.is_duration(column_type):
        return list(column.cast(pa.int64()).to_pylist())
    if not pa.types.is_temporal(column_type):
        return list(column.to_pylist())
    try:
        return list(column.cast(pa.string()).to_pylist())
    except (pa.ArrowException, ValueError):
        return [scalar.value if scalar.is_valid else None for scalar in column]


def rows_as_json(rows: pa.RecordBatch) -> list[str]:
    """Return each row as one JSON object, columns in their order; what JSON lacks becomes text."""
    columns = [readable_values(column) for column in rows.columns]
    names = rows.schema.names
    return [
        msgspec.json.encode(dict(zip(names, values, strict=True)), enc_hook=str).decode()
        for values in zip(*columns, strict=True)
    ]
