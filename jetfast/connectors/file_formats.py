"""Reading one file of each format, in batches, from any place in it: Parquet, CSV, JSON lines, Arrow IPC.

A place is four int64 numbers that only the reader of the format understands; `START` is the beginning. Text files are
counted in lines from 0 (the header is line 0), others in rows from 0.
"""

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from jetfast.connectors import text_records
from jetfast.connectors.text_records import (
    Block,
    Malformed,
    Parse,
    Records,
    first_record_end,
    is_closed,
    parse_each,
    split_records,
)

Place = tuple[int, int, int, int]
START: Place = (0, 0, 0, 0)

FORMATS = ("parquet", "csv", "json", "ipc", "ipc_stream")
_SUFFIXES = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".jsonl": "json",
    ".ndjson": "json",
    ".json": "json",
    ".arrow": "ipc",
    ".feather": "ipc",
    ".ipc": "ipc",
    ".arrows": "ipc_stream",
}
_COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
_FORMAT_NAMES = {"jsonl": "json", "ndjson": "json", "arrow": "ipc", "feather": "ipc", "arrows": "ipc_stream"}
CHECKED_BYTES = 1 << 16
SAMPLE_BYTES = 1 << 20
"""Of text, the part from which types are inferred."""


def format_of(path: str) -> str | None:
    """Return the format that the suffix tells, or None."""
    name = path.lower()
    for suffix, compression_name in _COMPRESSIONS.items():
        if name.endswith(suffix) and compression_name:
            inner = _SUFFIXES.get("." + name.removesuffix(suffix).rpartition(".")[2])
            return inner if inner in ("csv", "json") else None
    return _SUFFIXES.get("." + name.rpartition(".")[2])


def compression_of(path: str) -> str | None:
    """Return the codec that the suffix tells, or None."""
    return next((codec for suffix, codec in _COMPRESSIONS.items() if path.lower().endswith(suffix)), None)


def format_named(name: str) -> str | None:
    """Return the format that a user calls `name`, or None."""
    name = name.lower().lstrip(".")
    name = _FORMAT_NAMES.get(name, name)
    return name if name in FORMATS else None


def default_suffix(file_format: str) -> str:
    """Return the suffix of part files of a format."""
    return {"parquet": ".parquet", "csv": ".csv", "json": ".jsonl", "ipc": ".arrow", "ipc_stream": ".arrows"}[
        file_format
    ]


@dataclass(frozen=True)
class TextOptions:
    """How CSV is written. Only `null_values` stand for null, in every column, unless they are quoted."""

    delimiter: str = ","
    null_values: tuple[str, ...] = ("",)


class FileRows(NamedTuple):
    """Some rows of a file and the place behind them."""

    batch: pa.RecordBatch
    place: Place
    first_row: int
    malformed: list[Malformed]
    row_numbers: npt.NDArray[np.int64] | None = None


class FileReader(Protocol):
    """Reads one file from one place to its end."""

    def read(self) -> FileRows | None:
        """The next rows, None at the end. Raises OSError, ValueError and pyarrow's errors for what cannot be read."""

    def close(self) -> None: ...


class FileFacts(NamedTuple):
    """What a look at a file tells."""

    schema: pa.Schema | None
    """Columns and types; None for text without a single row, which tells no types."""
    rows: int | None
    """Number of rows, if the format keeps it."""


def look_at_file(filesystem: Any, path: str, file_format: str, text: TextOptions) -> FileFacts:
    """Return columns and types of a file, and its rows if the format keeps their number.

    Text: types are inferred from the first SAMPLE_BYTES. Times become microseconds; a column that is null throughout
    the sample becomes text.
    """
    rows = None
    if file_format == "parquet":
        import pyarrow.parquet as pq

        with filesystem.open_input_file(path) as stream:
            file = pq.ParquetFile(stream)
            schema, rows = file.schema_arrow, file.metadata.num_rows
    elif file_format in ("ipc", "ipc_stream"):
        reader = _open_ipc(filesystem, path)
        schema = reader.schema
        reader.close()
    elif file_format == "csv":
        return FileFacts(_infer_csv(filesystem, path, text), None)
    else:
        return FileFacts(_infer_json(filesystem, path), None)
    return FileFacts(schema.remove_metadata(), rows)


def unreadable_column(filesystem: Any, path: str, file_format: str, text: TextOptions, schema: pa.Schema) -> str | None:
    """Return a column of a text file of whose first values none has the type in `schema`; None if there is none.

    Single bad values are for the reader to reject; a column that is text where numbers are expected is another schema.
    """
    if file_format == "csv":
        names, offset, line = _header_of(filesystem, path, text)
        delimiter: str | None = text.delimiter
    else:
        names, offset, line, delimiter = [], 0, 0, None
    with _open_text(filesystem, path) as stream:
        _go_to(stream, offset)
        block = Records(stream, offset, line, delimiter).next_block(CHECKED_BYTES)
    if block is None:
        return None

    def parse(data: bytes, wanted: pa.Schema) -> pa.Table:
        return _parse_csv(data, names, text, wanted) if file_format == "csv" else _parse_json(data, wanted, False)

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


def csv_header(filesystem: Any, path: str, text: TextOptions) -> list[str]:
    """Return the column names of a CSV file. Raises ValueError if it is empty or names a column twice."""
    return _header_of(filesystem, path, text)[0]


def open_file(
    filesystem: Any,
    path: str,
    file_format: str,
    schema: pa.Schema,
    place: Place,
    batch_rows: int,
    text: TextOptions,
    all_fields: bool,
) -> FileReader:
    """Open a file to read the columns of `schema`, in its order, from `place`.

    all_fields : the schema holds every field, so that a JSON record with another one is malformed
    """
    if file_format == "parquet":
        return ParquetReader(filesystem, path, schema, place, batch_rows)
    if file_format in ("ipc", "ipc_stream"):
        return IpcReader(filesystem, path, schema, place, batch_rows)
    if file_format == "csv":
        return CsvReader(filesystem, path, schema, place, batch_rows, text)
    return JsonReader(filesystem, path, schema, place, batch_rows, all_fields)


class ParquetReader:
    """Place: (row, 0, 0, 0)."""

    def __init__(self, filesystem: Any, path: str, schema: pa.Schema, place: Place, batch_rows: int) -> None:
        import pyarrow.parquet as pq

        self.names = schema.names
        self.row = place[0]
        self.stream = filesystem.open_input_file(path)
        file = pq.ParquetFile(self.stream, buffer_size=1 << 20)  # pages as they are needed, not whole column chunks
        metadata = file.metadata
        group, first = 0, 0
        while group < metadata.num_row_groups and first + metadata.row_group(group).num_rows <= self.row:
            first += metadata.row_group(group).num_rows
            group += 1
        self.skip = self.row - first
        self.batches = file.iter_batches(
            batch_rows, row_groups=range(group, metadata.num_row_groups), columns=self.names, use_threads=False
        )

    def read(self) -> FileRows | None:
        for batch in self.batches:
            skipped = min(self.skip, batch.num_rows)
            self.skip -= skipped
            if batch.num_rows == skipped:
                continue
            first = self.row
            self.row += batch.num_rows - skipped
            return FileRows(batch.slice(skipped).select(self.names), (self.row, 0, 0, 0), first, [])
        return None

    def close(self) -> None:
        self.stream.close()


class IpcReader:
    """Files with a footer and streams. Place: (record batch, row in it, row, 0)."""

    def __init__(self, filesystem: Any, path: str, schema: pa.Schema, place: Place, batch_rows: int) -> None:
        self.names = schema.names
        self.batch_rows = batch_rows
        self.index, self.start, self.row, _ = place
        self.reader = _open_ipc(filesystem, path)
        self.reader.skip(self.index)
        self.batch: pa.RecordBatch | None = None

    def read(self) -> FileRows | None:
        while True:
            if self.batch is None:
                self.batch = self.reader.next_batch()
                if self.batch is None:
                    return None
                self.batch = self.batch.select(self.names)
                # Arrow reads damaged offsets and codes without a word, and the kernels trust them.
                self.batch.validate(full=True)
            part = self.batch.slice(self.start, self.batch_rows)
            first = self.row
            self.row += part.num_rows
            self.start += part.num_rows
            if self.start >= self.batch.num_rows:
                self.index, self.start, self.batch = self.index + 1, 0, None
            if part.num_rows:
                return FileRows(part, (self.index, self.start, self.row, 0), first, [])

    def close(self) -> None:
        self.batch = None
        self.reader.close()


class IpcFile:
    """One Arrow IPC file or stream, batch by batch."""

    def __init__(self, stream: Any, reader: Any, is_stream: bool) -> None:
        self.stream = stream
        self.reader = reader
        self.is_stream = is_stream
        self.index = 0
        self.schema: pa.Schema = reader.schema

    def skip(self, count: int) -> None:
        if self.is_stream:
            for _ in range(count):
                self.reader.read_next_batch()
        self.index = count

    def next_batch(self) -> pa.RecordBatch | None:
        if self.is_stream:
            try:
                return self.reader.read_next_batch()
            except StopIteration:
                return None
        if self.index >= self.reader.num_record_batches:
            return None
        self.index += 1
        return self.reader.get_batch(self.index - 1)

    def close(self) -> None:
        self.stream.close()


def _open_ipc(filesystem: Any, path: str) -> IpcFile:
    """Open by content: a file begins with ARROW1. A stream must bear its end mark, else a cut between two batches
    would pass.
    """
    from pyarrow import fs, ipc

    local = isinstance(filesystem, fs.LocalFileSystem)
    stream = filesystem.open_input_file(path)
    try:
        size = stream.size()
        if size == 0:
            raise ValueError("the file is empty (0 bytes)")
        if stream.read(6) == b"ARROW1":
            if local:  # mapped: a record batch may be as large as the file
                stream.close()
                stream = pa.memory_map(path)
            return IpcFile(stream, ipc.open_file(stream), False)
        stream.seek(max(0, size - 8))
        if stream.read(8) != b"\xff\xff\xff\xff\0\0\0\0":
            raise ValueError("the Arrow stream has no end mark: it is truncated, or its writer was not closed")
        stream.seek(0)
        return IpcFile(stream, ipc.open_stream(stream), True)
    except BaseException:
        stream.close()
        raise


class TextReader:
    """What CSV and JSON lines share. Place: (offset of a block, rows of it already given, line of the block, 0)."""

    delimiter: str | None = None

    def __init__(self, filesystem: Any, path: str, place: Place, batch_rows: int) -> None:
        self.batch_rows = batch_rows
        self.stream = _open_text(filesystem, path)
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
        _go_to(self.stream, offset)
        self.records = Records(self.stream, offset, line, self.delimiter)

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
        self, filesystem: Any, path: str, schema: pa.Schema, place: Place, batch_rows: int, text: TextOptions
    ) -> None:
        super().__init__(filesystem, path, place, batch_rows)
        self.delimiter: str = text.delimiter
        self.text = text
        self.schema = schema
        self.names, offset, line = _header_of(filesystem, path, text)
        self.begin(place, offset, line)

    def parse(self, data: bytes) -> pa.Table:
        if not is_closed(data, self.delimiter):
            raise ValueError("a quote is opened and not closed")
        return _parse_csv(data, self.names, self.text, self.schema)

    def parse_whole(self, data: bytes) -> pa.Table:
        if self.records.at_end and not self.records.rest and not is_closed(data, self.delimiter):
            raise ValueError("a quote is opened and not closed")
        return _parse_csv(data, self.names, self.text, self.schema)

    def reason(self, error: Exception) -> str:
        return _csv_reason(error, self.names)

    def empty(self) -> pa.Table:
        return self.schema.empty_table()

    def is_blank(self, record: bytes) -> bool:
        return len(self.names) > 1 and not record.strip(b"\r\n")


class JsonReader(TextReader):
    """JSON lines. With `all_fields` a field that the schema lacks makes a record malformed; else it is passed over."""

    def __init__(
        self, filesystem: Any, path: str, schema: pa.Schema, place: Place, batch_rows: int, all_fields: bool
    ) -> None:
        super().__init__(filesystem, path, place, batch_rows)
        self.schema = schema
        self.all_fields = all_fields
        self.begin(place, 0, 0)

    def parse(self, data: bytes) -> pa.Table:
        return _parse_json(data, self.schema, self.all_fields)

    def reason(self, error: Exception) -> str:
        text = re.sub(r"^JSON parse error: |( in row \d+)$", "", str(error))
        return re.sub(r"Column\(/?([^)]*)\)", lambda match: f"column {match[1]}" if match[1] else "the line", text)

    def empty(self) -> pa.Table:
        return self.schema.empty_table()


def _parse_csv(data: bytes, names: list[str], text: TextOptions, schema: pa.Schema | None) -> pa.Table:
    """Parse whole records; without a schema infer types."""
    from pyarrow import csv as arrow_csv

    return arrow_csv.read_csv(
        pa.BufferReader(data),
        arrow_csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=names),
        arrow_csv.ParseOptions(delimiter=text.delimiter, newlines_in_values=True, ignore_empty_lines=len(names) > 1),
        arrow_csv.ConvertOptions(
            column_types=schema,
            include_columns=None if schema is None else schema.names,
            null_values=list(text.null_values),
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )


def _csv_reason(error: Exception, names: list[str]) -> str:
    text = str(error)
    column = re.match(r"In CSV column #(\d+): (?:Row #\d+: )?(?:CSV conversion error to )?(.*)", text, re.DOTALL)
    if column is not None:
        return f"column {names[int(column[1])]}: not {column[2]}"
    counts = re.search(r"Expected (\d+) columns, got (\d+)", text)
    return f"expected {counts[1]} columns, got {counts[2]}" if counts is not None else text


def _parse_json(data: bytes, schema: pa.Schema | None, all_fields: bool) -> pa.Table:
    """Parse whole records; without a schema infer types."""
    from pyarrow import json

    if not data.strip():
        return (schema if schema is not None else pa.schema([])).empty_table()
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


def _infer_csv(filesystem: Any, path: str, text: TextOptions) -> pa.Schema | None:
    names, offset, line = _header_of(filesystem, path, text)
    with _open_text(filesystem, path) as stream:
        _go_to(stream, offset)
        block = Records(stream, offset, line, text.delimiter).next_block(SAMPLE_BYTES)
    if block is None or not block.data.strip(b"\r\n"):
        return None
    tables, malformed = _parse_sample(block.data, text.delimiter, lambda data: _parse_csv(data, names, text, None))
    if not tables:
        raise ValueError(f"no record of it can be read: {_csv_reason(ValueError(malformed[0].reason), names)}")
    return _usual_types(tables)


def _infer_json(filesystem: Any, path: str) -> pa.Schema | None:
    with _open_text(filesystem, path) as stream:
        block = Records(stream, 0, 0, None).next_block(SAMPLE_BYTES)
    if block is None or not block.data.strip():
        return None
    tables, malformed = _parse_sample(block.data, None, lambda data: _parse_json(data, None, False))
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
        _parse_json(b"{}\n", schema, False)
    elif file_format == "csv":
        _parse_csv(b",".join([b""] * len(schema)) + b"\n", schema.names, TextOptions(), schema)


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


def _open_text(filesystem: Any, path: str) -> Any:
    codec = compression_of(path)
    if codec is None:
        return filesystem.open_input_file(path)
    return pa.CompressedInputStream(filesystem.open_input_stream(path, compression=None), codec)


def _go_to(stream: Any, offset: int) -> None:
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


def _header_of(filesystem: Any, path: str, text: TextOptions) -> tuple[list[str], int, int]:
    """Return column names, and offset and line of the first record behind the header."""
    mark = b"\xef\xbb\xbf"
    with _open_text(filesystem, path) as stream:
        begin = more = stream.read(1 << 16)
        while more and not first_record_end(begin, text.delimiter):
            more = stream.read(len(begin))
            begin += more
    if not begin.removeprefix(mark).strip():
        raise ValueError("the file is empty: it has no header")
    header = begin[: first_record_end(begin, text.delimiter) or None]
    names = next(csv.reader([header.removeprefix(mark).decode().rstrip("\r\n")], delimiter=text.delimiter))
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ValueError(f"the header names {sorted(twice)[0]!r} twice")
    return names, len(header), header.count(b"\n")
