"""Columns of PostgreSQL tables as Arrow columns, and the text in which rows travel (COPY in CSV) in both directions."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from jetfast.errors import JobDefinitionError

_TYPES: dict[str, pa.DataType] = {
    "bool": pa.bool_(),
    "int2": pa.int16(),
    "int4": pa.int32(),
    "int8": pa.int64(),
    "float4": pa.float32(),
    "float8": pa.float64(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
    "bytea": pa.binary(),
}
_TEXT = ("text", "varchar", "bpchar", "name", "uuid", "json", "jsonb", "xml", "inet", "cidr", "macaddr", "citext")
_KEY_TYPES = ("int2", "int4", "int8", "numeric", "text", "varchar", "uuid", "date", "timestamp", "timestamptz")
_NUMERIC_HEADER = 4


@dataclass(frozen=True)
class TableColumn:
    """A column of a table: its name, the name of its type, and what it is in Arrow (None: it cannot be read)."""

    name: str
    type_name: str
    type: pa.DataType | None
    nullable: bool

    @property
    def ordered(self) -> bool:
        """Can rows be read in the order of this column?"""
        return self.type_name in _KEY_TYPES


def table_columns(connection: Any, table: str) -> list[TableColumn]:
    """Return the columns of a table or view, in its order."""
    found = connection.execute(
        "select a.attname, t.typname, a.atttypmod, not a.attnotnull from pg_attribute a "
        "join pg_type t on t.oid = a.atttypid where a.attrelid = %s::regclass and a.attnum > 0 and not a.attisdropped "
        "order by a.attnum",
        (table,),
    ).fetchall()
    return [TableColumn(name, kind, arrow_type(kind, modifier), nullable) for name, kind, modifier, nullable in found]


def arrow_type(type_name: str, modifier: int) -> pa.DataType | None:
    """Return the Arrow type of a PostgreSQL type, None if there is none.

    numeric(p, s) of up to 38 digits is a decimal; numeric without digits is text, for no Arrow type holds all of it.
    """
    if type_name == "numeric":
        packed = modifier - _NUMERIC_HEADER
        precision, scale = packed >> 16, packed & 0x7FF
        return (
            pa.decimal128(precision, scale) if modifier >= 0 and precision <= 38 and scale <= precision else pa.string()
        )
    return pa.string() if type_name in _TEXT else _TYPES.get(type_name)


def select_expression(column: TableColumn) -> str:
    """Return the SQL that gives a column as text that `read_rows` understands; {} stands for its quoted name."""
    if column.type_name == "bytea":
        return "encode({}, 'hex')"
    if column.type_name == "timestamptz":
        return "({} at time zone 'UTC')"
    return "{}"


def read_rows(data: bytes, schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows of `COPY ... TO STDOUT (FORMAT csv, FORCE_QUOTE *)`; a null is what is not quoted."""
    from pyarrow import csv

    if not data:
        return pa.RecordBatch.from_pylist([], schema=schema)
    as_text = {field.name: _csv_type(field.type) for field in schema}
    table = csv.read_csv(
        io.BytesIO(data),
        read_options=csv.ReadOptions(column_names=schema.names, block_size=max(1 << 20, len(data) + 1)),
        parse_options=csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        convert_options=csv.ConvertOptions(
            column_types=as_text,
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            true_values=["t"],
            false_values=["f"],
        ),
    )
    columns = [
        _from_text(column.combine_chunks(), field.type) for column, field in zip(table.columns, schema, strict=True)
    ]
    return pa.record_batch(columns, schema=schema)


def write_rows(rows: pa.RecordBatch) -> bytes:
    """Return rows as text for `COPY ... FROM STDIN (FORMAT csv)`."""
    from pyarrow import csv

    columns = [_to_text(column) for column in rows.columns]
    sink = pa.BufferOutputStream()
    options = csv.WriteOptions(include_header=False, quoting_style="all_valid")
    csv.write_csv(pa.record_batch(columns, names=rows.schema.names), sink, options)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def check_columns(schema: pa.Schema, columns: Sequence[TableColumn], table: str) -> None:
    """Raise JobDefinitionError if rows cannot be written to a table with these columns."""
    present = {column.name: column for column in columns}
    for field in schema:
        if field.name not in present:
            raise JobDefinitionError(
                f"{table} has no column {field.name!r}; it has {', '.join(present)}. Choose columns with .select(...)"
            )
        if not _is_writable(field.type):
            raise JobDefinitionError(
                f"{table}: column {field.name!r} of type {field.type} cannot be written; cast it, to text for instance"
            )


def _is_writable(wanted: pa.DataType) -> bool:
    types = pa.types
    if types.is_dictionary(wanted):
        return _is_writable(wanted.value_type)
    return bool(
        types.is_boolean(wanted)
        or types.is_integer(wanted)
        or types.is_floating(wanted)
        or types.is_decimal(wanted)
        or types.is_string(wanted)
        or types.is_large_string(wanted)
        or types.is_date(wanted)
        or types.is_time(wanted)
        or types.is_timestamp(wanted)
        or types.is_binary(wanted)
        or types.is_large_binary(wanted)
    )


def _csv_type(wanted: pa.DataType) -> pa.DataType:
    """The type as which the CSV reader shall take a column."""
    if pa.types.is_binary(wanted):
        return pa.string()
    return pa.timestamp("us") if pa.types.is_timestamp(wanted) else wanted


def _from_text(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    if pa.types.is_binary(wanted):
        return pa.array([None if value is None else bytes.fromhex(value) for value in column.to_pylist()], wanted)
    return column.cast(wanted)


def _to_text(column: pa.Array) -> pa.Array:
    types, present = pa.types, column.type
    if types.is_dictionary(present):
        return _to_text(column.dictionary_decode())
    if types.is_binary(present) or types.is_large_binary(present):
        return pa.array([None if value is None else "\\x" + value.hex() for value in column.to_pylist()], pa.string())
    if types.is_timestamp(present):
        # Nanoseconds do not fit; a zone is told by the offset of UTC.
        text = column.cast(pa.timestamp("us", present.tz), safe=False)
        if present.tz is None:
            return text
        text = text.cast(pa.timestamp("us", "UTC")).cast(pa.timestamp("us")).cast(pa.string())
        return pa.compute.binary_join_element_wise(text, pa.scalar("+00"), pa.scalar(""))
    if types.is_date64(present):
        return column.cast(pa.date32())
    if types.is_float16(present):
        return column.cast(pa.float32())
    return column
