"""Types of Spark as those of Arrow, and back."""

from typing import Any

import pyarrow as pa

from jetfast.core.batch import Batch


def arrow_schema(spark: Any, schema: Any) -> pa.Schema:
    """Return the Arrow schema of rows of Spark (a `StructType`), as Spark hands them to Python.

    Instants are timestamp[us, tz=UTC]: Spark names its session's time zone instead, which says the same times.
    """
    found = spark.createDataFrame([], schema).toArrow().schema
    return pa.schema([pa.field(field.name, _in_utc(field.type)) for field in found])


def spark_type(data_type: pa.DataType) -> Any:
    """Return Spark's type for one of Arrow: timestamps with a time zone are TimestampType, others TimestampNTZType."""
    from pyspark.sql.pandas.types import from_arrow_type

    return from_arrow_type(data_type, True)


def batch_of(rows: pa.RecordBatch, schema: pa.Schema) -> Batch:
    """Rows that Spark hands over, as a batch of `arrow_schema`: instants of another zone are the same instants."""
    return Batch.from_arrow(_with_types(rows, schema))


def in_utc(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Rows that Spark hands over, with instants in UTC instead of in the time zone of its session."""
    return _with_types(rows, pa.schema([pa.field(field.name, _in_utc(field.type)) for field in rows.schema]))


def _with_types(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(rows.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _in_utc(data_type: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(data_type) and data_type.tz is not None:
        return pa.timestamp(data_type.unit, "UTC")
    return data_type
