"""Reads CSV and JSON lines, from any place in them; what is no record of the columns is malformed, others go on."""

import csv
import re
from collections import Counter
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from jetfast.connectors import text_records
from jetfast.connectors.file_bounds import Bounds, check_columns, check_json
from jetfast.connectors.file_formats import START, FileRows, Place, ReadOptions, compression_of
from jetfast.connectors.file_marks import Trail, identity_of
from jetfast.connectors.text_records import (
    Block,
    Malformed,
    Records,
    check_lengths,
    count_fields,
    first_record_end,
    is_closed,
    parse_each,
    split_records,
)
from jetfast.kernels.json_bounds import count_open


class TextReader:
    """What CSV and JSON lines share. Place: (offset of a block, rows of it already given, line of the block, 0)."""

    delimiter: str | None = None
    values_max: int | None = None

    def __init__(self, filesystem: Any, path: str, place: Place, batch_rows: int, bounds: Bounds) -> None:
        self.batch_rows = batch_rows
        self.bounds = bounds
        raw = filesystem.open_input_file(path)
        self.trail = Trail(identity_of(raw, filesystem, path))
        self.stream = raw if compression_of(path) is None else pa.CompressedInputStream(raw, compression_of(path))
        self.block: Block | None = None
        self.table: pa.RecordBatch | None = None
        self.lines: npt.NDArray[np.int64] | None = None
        self.malformed: list[Malformed] = []
        self.given = 0
        self.skip = place[1]

    def begin(self, place: Place, offset: int, line: int) -> None:
        """Go to `place`, or for START to the first record at (offset, line)."""
        if place != START:
            offset, line = place[0], place[2]
        self.trail.go_to(self.stream, offset)
        self.marks = self.trail.marks()
        self.records = Records(
            self.stream, offset, line, self.delimiter, self.bounds.line_bytes, self.values_max, self.trail
        )

    def read(self) -> FileRows | None:
        while self.block is None:
            self.block = self.records.next_block(text_records.BLOCK_BYTES)
            if self.block is None:
                return None
            self._parse_block(self.block)
            assert self.table is not None
            # Malformed records go out with the first rows of their block, so rows given before mean they went out.
            self.given = min(self.skip, self.table.num_rows)
            self.skip -= self.given
            if self.given:
                self.malformed = []
            if self.given == self.table.num_rows and not self.malformed:
                self.block = None
        block, table = self.block, self.table
        assert table is not None
        start, end = self.given, min(self.given + self.batch_rows, table.num_rows)
        self.given = end
        place: Place = (block.offset, end, block.line, 0)
        if end == table.num_rows:
            self.block = None
            place = (self.records.offset, 0, self.records.line, 0)
            self.marks = self.trail.marks()
        malformed, self.malformed = self.malformed, []
        first = block.line + start if self.lines is None else int(self.lines[start]) if start < end else block.line
        numbers = None if self.lines is None else self.lines[start:end]
        return FileRows(table.slice(start, end - start), place, first, malformed, numbers)

    def close(self) -> None:
        self.stream.close()

    def parse(self, data: bytes) -> pa.Table:
        """Return the rows of whole records. Raises for the first that is malformed."""
        raise NotImplementedError

    def reason(self, error: Exception) -> str:
        """Say why a record is malformed."""
        return str(error)

    def _parse_block(self, block: Block) -> None:
        """All at once when all is well; else record by record, by halves."""
        self.lines, self.malformed = None, []
        if block.too_long is not None:
            self.table, self.malformed = pa.RecordBatch.from_pylist([], schema=self.empty().schema), [block.too_long]
            return
        newlines = self.records.line - block.line
        try:
            table = self.parse_whole(block.data)
            if table.num_rows != newlines + (not block.data.endswith(b"\n")):
                lines = [line for line, _ in self._numbered(block)]
                if len(lines) != table.num_rows:
                    lines = parse_each(self._numbered(block), self.parse, self.reason)[1]
                self.lines = np.array(lines, np.int64)
        except ValueError:
            tables, lines, self.malformed = parse_each(self._numbered(block), self.parse, self.reason)
            table = pa.concat_tables(tables) if tables else self.empty()
            self.lines = np.array(lines, np.int64)
        batches = table.combine_chunks().to_batches()
        self.table = batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)

    def parse_whole(self, data: bytes) -> pa.Table:
        return self.parse(data)

    def empty(self) -> pa.Table:
        raise NotImplementedError

    def _numbered(self, block: Block) -> list[tuple[int, bytes]]:
        """Return the records of a block with their lines, without the blank ones that the parser passes over."""
        numbered = []
        line = block.line
        for record in split_records(block.data, self.delimiter):
            if not self.is_blank(record):
                numbered.append((line, record))
            line += record.count(b"\n")
        return numbered

    def is_blank(self, record: bytes) -> bool:
        return not record.strip()


class CsvReader(TextReader):
    """CSV with a header. Only the columns that are read must be convertible."""

    def __init__(
        self, filesystem: Any, path: str, schema: pa.Schema, place: Place, batch_rows: int, options: ReadOptions
    ) -> None:
        super().__init__(filesystem, path, place, batch_rows, options.bounds)
        self.delimiter: str = options.delimiter
        self.options = options
        self.schema = schema
        self.names, offset, line = header_of(filesystem, path, options)
        self.begin(place, offset, line)

    def parse(self, data: bytes) -> pa.Table:
        if not is_closed(data, self.delimiter):
            raise ValueError("a quote is opened and not closed")
        return self._parse(data)

    def parse_whole(self, data: bytes) -> pa.Table:
        if self.records.at_end and not self.records.rest and not is_closed(data, self.delimiter):
            raise ValueError("a quote is opened and not closed")
        return self._parse(data)

    def _parse(self, data: bytes) -> pa.Table:
        check_lengths(data, self.delimiter, self.bounds.line_bytes)
        return parse_csv(data, self.names, self.options, self.schema)

    def reason(self, error: Exception) -> str:
        return csv_reason(error, self.names)

    def empty(self) -> pa.Table:
        return self.schema.empty_table()

    def is_blank(self, record: bytes) -> bool:
        return len(self.names) > 1 and not record.strip(b"\r\n")


class JsonReader(TextReader):
    """JSON lines. With `all_fields` a field that the schema lacks makes a record malformed; else it is passed over."""

    def __init__(
        self,
        filesystem: Any,
        path: str,
        schema: pa.Schema,
        place: Place,
        batch_rows: int,
        options: ReadOptions,
        all_fields: bool,
    ) -> None:
        super().__init__(filesystem, path, place, batch_rows, options.bounds)
        self.schema = schema
        self.all_fields = all_fields
        self.values_max = options.bounds.values(schema)
        self.begin(place, 0, 0)

    def parse(self, data: bytes) -> pa.Table:
        check_lengths(data, None, self.bounds.line_bytes)
        return parse_json(data, self.schema, self.all_fields, self.bounds)

    def reason(self, error: Exception) -> str:
        text = re.sub(r"^JSON parse error: |( in row \d+)$", "", str(error))
        return re.sub(r"Column\(/?([^)]*)\)", lambda match: f"column {match[1]}" if match[1] else "the line", text)

    def empty(self) -> pa.Table:
        return self.schema.empty_table()


def parse_csv(data: bytes, names: list[str], options: ReadOptions, schema: pa.Schema | None) -> pa.Table:
    """Parse whole records; without a schema infer types."""
    from pyarrow import csv as arrow_csv

    return arrow_csv.read_csv(
        pa.BufferReader(data),
        arrow_csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=names),
        arrow_csv.ParseOptions(delimiter=options.delimiter, newlines_in_values=True, ignore_empty_lines=len(names) > 1),
        arrow_csv.ConvertOptions(
            column_types=schema,
            include_columns=None if schema is None else schema.names,
            null_values=list(options.null_values),
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )


def csv_reason(error: Exception, names: list[str]) -> str:
    text = str(error)
    column = re.match(r"In CSV column #(\d+): (?:Row #\d+: )?(?:CSV conversion error to )?(.*)", text, re.DOTALL)
    if column is not None:
        return f"column {names[int(column[1])]}: not {column[2]}"
    counts = re.search(r"Expected (\d+) columns, got (\d+)", text)
    return f"expected {counts[1]} columns, got {counts[2]}" if counts is not None else text


def parse_json(data: bytes, schema: pa.Schema | None, all_fields: bool, bounds: Bounds) -> pa.Table:
    """Parse whole records; without a schema infer types. Raises ValueError if they go beyond the bounds."""
    from pyarrow import json

    if not data.strip():
        return (schema if schema is not None else pa.schema([])).empty_table()
    check_json(data, bounds)
    if schema is not None:
        values_max = bounds.values(schema)
        if values_max < len(data) and count_open(data) > values_max:
            raise ValueError(f"it would take more than {bounds.batch_bytes} bytes of memory")
    wanted = None if schema is None else pa.schema([pa.field(f.name, _json_type(f.type)) for f in schema])
    table = json.read_json(
        pa.BufferReader(data),
        json.ReadOptions(use_threads=False, block_size=len(data) + 1),
        json.ParseOptions(explicit_schema=wanted, unexpected_field_behavior="error" if all_fields else "ignore")
        if schema is not None
        else json.ParseOptions(),
    )
    if schema is None:
        return table
    return pa.Table.from_arrays([_from_json(table.column(field.name), field.type) for field in schema], schema=schema)


def _json_type(wanted: pa.DataType) -> pa.DataType:
    """Return the type as which pyarrow's reader takes a value: dates and times come as text, durations as numbers."""
    types = pa.types
    if types.is_duration(wanted):
        return pa.int64()
    text = types.is_date(wanted) or types.is_time(wanted) or types.is_dictionary(wanted) or types.is_string_view(wanted)
    return pa.string() if text else wanted


def _from_json(column: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray:
    if pa.types.is_time(wanted):
        import pyarrow.compute as pc

        column = pc.binary_join_element_wise("1970-01-01", column, " ").cast(pa.timestamp(wanted.unit))
    return column.cast(wanted)


def open_text(filesystem: Any, path: str) -> Any:
    codec = compression_of(path)
    if codec is None:
        return filesystem.open_input_file(path)
    return pa.CompressedInputStream(filesystem.open_input_stream(path, compression=None), codec)


def go_to(stream: Any, offset: int) -> None:
    if not offset:
        return
    if stream.seekable():
        stream.seek(offset)
        return
    while offset > 0:
        skipped = len(stream.read(min(offset, 1 << 20)))
        if not skipped:
            raise ValueError("the file is shorter than when it was read before")
        offset -= skipped


def header_of(filesystem: Any, path: str, options: ReadOptions) -> tuple[list[str], int, int]:
    """Return column names, and offset and line of the first record behind the header."""
    mark = b"\xef\xbb\xbf"
    line_bytes = options.bounds.line_bytes
    with open_text(filesystem, path) as stream:
        begin = more = stream.read(1 << 16)
        while more and not first_record_end(begin, options.delimiter):
            if len(begin) > line_bytes:
                raise ValueError(f"its header is longer than {line_bytes} bytes")
            more = stream.read(len(begin))
            begin += more
    if not begin.removeprefix(mark).strip():
        raise ValueError("the file is empty: it has no header")
    header = begin[: first_record_end(begin, options.delimiter) or None]
    check_columns(count_fields(header, options.delimiter, options.bounds.columns), options.bounds)
    text = header.removeprefix(mark).decode().rstrip("\r\n")
    try:
        names = next(csv.reader([text], delimiter=options.delimiter))
    except csv.Error as error:
        raise ValueError(f"its header cannot be read: {error}") from error
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise ValueError(f"the header names {twice[0]!r} twice")
    return names, len(header), header.count(b"\n")
