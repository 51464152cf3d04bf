"""Which columns and types text has: what a sample of a file tells, and whether it fits the types that are wanted."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from jetfast.connectors.file_bounds import DEFAULT_BOUNDS, Bounds, check_json_columns
from jetfast.connectors.file_formats import ReadOptions
from jetfast.connectors.text_files import csv_reason, go_to, header_of, open_text, parse_csv, parse_json
from jetfast.connectors.text_records import Block, Malformed, Parse, Records, first_values, parse_each, split_records

CHECKED_BYTES = 1 << 16
SAMPLE_BYTES = 1 << 20
"""Of text, the part from which types are inferred."""


def unreadable_column(
    filesystem: Any, path: str, file_format: str, options: ReadOptions, schema: pa.Schema
) -> str | None:
    """Return a column of a text file of whose first values none has the type in `schema`; None if there is none.

    Single bad values are for the reader to reject; a column that is text where numbers are expected is another schema.
    """
    if file_format == "csv":
        names, offset, line = header_of(filesystem, path, options)
        delimiter: str | None = options.delimiter
    else:
        names, offset, line, delimiter = [], 0, 0, None
    with open_text(filesystem, path) as stream:
        go_to(stream, offset)
        values_max = options.bounds.values(schema) if file_format == "json" else None
        records_of = Records(stream, offset, line, delimiter, options.bounds.line_bytes, values_max)
        block = records_of.next_block(CHECKED_BYTES)
    if block is None or block.too_long is not None:
        return None

    def parse(data: bytes, wanted: pa.Schema) -> pa.Table:
        if file_format == "csv":
            return parse_csv(data, names, options, wanted)
        return parse_json(data, wanted, False, options.bounds)

    try:
        parse(block.data, schema)
        return None
    except ValueError:
        pass
    records = [(0, record) for record in split_records(block.data, delimiter) if record.strip()]
    for field in schema:
        one = pa.schema([field])
        tables, _, malformed = parse_each(records, partial(parse, wanted=one), str)
        if malformed and not any(table.num_rows > table.column(0).null_count for table in tables):
            return str(field.name)
    return None


def infer_csv(filesystem: Any, path: str, options: ReadOptions) -> pa.Schema | None:
    names, offset, line = header_of(filesystem, path, options)
    with open_text(filesystem, path) as stream:
        go_to(stream, offset)
        block = _sample(Records(stream, offset, line, options.delimiter, options.bounds.line_bytes))
    if block is None or not block.data.strip(b"\r\n"):
        return None
    tables, malformed = _parse_sample(block.data, options.delimiter, lambda data: parse_csv(data, names, options, None))
    if not tables:
        raise ValueError(f"no record of it can be read: {csv_reason(ValueError(malformed[0].reason), names)}")
    return _usual_types(tables)


def infer_json(filesystem: Any, path: str, bounds: Bounds) -> pa.Schema | None:
    with open_text(filesystem, path) as stream:
        block = _sample(Records(stream, 0, 0, None, bounds.line_bytes))
    if block is None or not block.data.strip():
        return None
    columns = check_json_columns(block.data, bounds)
    # Each object has a value of each column in memory, so of wide records fewer tell the types.
    data = first_values(block.data, max(1, bounds.batch_bytes // (9 * max(columns, 1))))
    tables, malformed = _parse_sample(data, None, lambda data: parse_json(data, None, False, bounds))
    tables = [table for table in tables if table.num_columns]
    if not tables:
        raise ValueError(f"no record of it can be read: {malformed[0].reason if malformed else 'they are empty'}")
    schema = _usual_types(tables)
    for index, field in enumerate(schema):
        if pa.types.is_string(field.type):
            values = [table.column(field.name) for table in tables if field.name in table.column_names]
            times = _times_in([column for column in values if pa.types.is_string(column.type)])
            schema = schema.set(index, field.with_type(times or field.type))
    return schema


def _sample(records: Records) -> Block | None:
    """Return the first records that tell types. Raises ValueError if the first of all is too long."""
    block = records.next_block(SAMPLE_BYTES)
    if block is not None and block.too_long is not None:
        raise ValueError(f"line {block.too_long.line}: {block.too_long.reason}; give schema=")
    return block


_TIME = r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\.\d{1,6}(Z?)$"


def _times_in(columns: list[pa.ChunkedArray]) -> pa.DataType | None:
    """Return the type of text that is times with fractions throughout, which pyarrow does not infer from JSON."""
    import pyarrow.compute as pc

    texts = pa.chunked_array([chunk for column in columns for chunk in column.chunks], pa.string()).drop_null()
    if not len(texts) or not pc.all(pc.match_substring_regex(texts, _TIME)).as_py():
        return None
    zoned = pc.sum(pc.ends_with(texts, "Z")).as_py()
    return pa.timestamp("us", "UTC") if zoned == len(texts) else pa.timestamp("us") if not zoned else None


def check_readable(schema: pa.Schema, file_format: str) -> None:
    """Raise NotImplementedError or ValueError if text cannot be converted to these types."""
    if file_format == "json":
        parse_json(b"{}\n", schema, False, DEFAULT_BOUNDS)
    elif file_format == "csv":
        parse_csv(b",".join([b""] * len(schema)) + b"\n", schema.names, ReadOptions(), schema)


def _parse_sample(data: bytes, delimiter: str | None, parse: Parse) -> tuple[list[pa.Table], list[Malformed]]:
    try:
        return [parse(data)], []
    except ValueError:
        records = [record for record in split_records(data, delimiter) if record.strip()]
        tables, _, malformed = parse_each(list(enumerate(records)), parse, str)
        return tables, malformed


def _usual_types(tables: Sequence[pa.Table]) -> pa.Schema:
    """Return the types of a sample; the greatest table decides a column unless it is null there."""
    tables = sorted(tables, key=lambda table: -table.num_rows)
    fields: dict[str, pa.DataType] = {}
    for table in tables:
        for field in table.schema:
            if field.name not in fields or pa.types.is_null(fields[field.name]):
                fields[field.name] = _usual_type(field.type)
    return pa.schema([(name, pa.string() if pa.types.is_null(found) else found) for name, found in fields.items()])


def _usual_type(found: pa.DataType) -> pa.DataType:
    return pa.timestamp("us", found.tz) if pa.types.is_timestamp(found) else found
