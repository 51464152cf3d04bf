"""Reads files that know their columns and types, from any place in them: Parquet, and Arrow IPC as file and stream."""

from typing import Any

import pyarrow as pa

from jetfast.connectors.file_bounds import Bounds, check_columns, check_schema, slot_bytes
from jetfast.connectors.file_formats import FileRows, Place
from jetfast.connectors.file_marks import identity_of, marks_of_whole
from jetfast.connectors.ipc_messages import MappedBytes, MessageChecker, MessageFile

_VALUE_BYTES = 8
"""Of an item of a list, about."""


FIRST_ROWS = 1024
"""Of a file with values of varying length so many rows are decoded first: its metadata do not tell their size."""
GROWTH = 8
"""So many times as many rows are decoded next, if those that came were small."""


def is_stored_as(field: pa.Field, stored: pa.DataType, file_format: str) -> bool:
    """Is this what a column becomes in a file? Parquet lacks types: date64, time32[s] and others."""
    if stored.equals(field.type):
        return True
    if file_format != "parquet":
        return False
    import pyarrow.parquet as pq

    file = pa.BufferOutputStream()
    schema = pa.schema([field])
    try:
        with pq.ParquetWriter(file, schema) as writer:
            writer.write_batch(pa.RecordBatch.from_arrays([pa.nulls(0, field.type)], schema=schema))
    except pa.ArrowException:
        return False
    return bool(pq.read_schema(pa.BufferReader(file.getvalue())).field(0).type.equals(stored))


def with_types(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Rows of a file in the types of the schema that a user gave, of which they are stored."""
    if rows.schema.types == schema.types:
        return rows
    columns = [
        column if column.type == field.type else in_type(column, field.type)
        for column, field in zip(rows.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, names=schema.names)


def in_type(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    """A column in another type, which may be a dictionary or an extension type, or what those are carried as."""
    if isinstance(wanted, pa.BaseExtensionType):
        return wanted.wrap_array(in_type(column, wanted.storage_type))
    if pa.types.is_dictionary(wanted):
        values = in_type(column, wanted.value_type).dictionary_encode()
        return pa.DictionaryArray.from_arrays(values.indices.cast(wanted.index_type), values.dictionary)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column.cast(wanted)


class ParquetReader:
    """Place: (row, 0, 0, 0).

    How many rows are decoded at once follows from how large the rows were that came before. A batch should take a
    fourth of the bytes that it may take, because values that follow may be longer.
    """

    def __init__(
        self, filesystem: Any, path: str, schema: pa.Schema, place: Place, batch_rows: int, bounds: Bounds
    ) -> None:
        self.schema = schema
        self.names = schema.names
        self.row = place[0]
        self.bounds = bounds
        self.stream = filesystem.open_input_file(path)
        self.marks = marks_of_whole(self.stream, identity_of(self.stream, filesystem, path))
        self.file = open_parquet(self.stream, bounds)
        fixed = all(_has_fixed_width(field.type) for field in schema)
        width = max(sum(slot_bytes(field.type) for field in schema), _listed_bytes(self.file, schema))
        if width > bounds.batch_bytes:
            raise ValueError(
                f"a row takes {width} bytes or more; batch_size= of jf.files says how many may be decoded at once"
            )
        self.rows_max = max(1, min(batch_rows, bounds.batch_bytes // max(width, 1)))
        self.rows = self.rows_max if fixed else min(self.rows_max, FIRST_ROWS)
        metadata = self.file.metadata
        group, first = 0, 0
        while group < metadata.num_row_groups and first + metadata.row_group(group).num_rows <= self.row:
            first += metadata.row_group(group).num_rows
            group += 1
        self.skip = self.row - first
        self.batches = self.file.iter_batches(
            self.rows, row_groups=range(group, metadata.num_row_groups), columns=self.names, use_threads=False
        )

    def read(self) -> FileRows | None:
        for batch in self.batches:
            skipped = min(self.skip, batch.num_rows)
            self.skip -= skipped
            if batch.num_rows == skipped:
                continue
            first = self.row
            self.row += batch.num_rows - skipped
            self._adapt(batch)
            rows = with_types(batch.slice(skipped).select(self.names), self.schema)
            return FileRows(rows, (self.row, 0, 0, 0), first, [])
        return None

    def _adapt(self, batch: pa.RecordBatch) -> None:
        """Decode more rows next time if those that came are small, and fewer if they are large."""
        affordable = self.bounds.batch_bytes // 4 * batch.num_rows // max(batch.nbytes, 1)
        rows = max(1, min(self.rows_max, affordable, GROWTH * self.rows))
        if rows != self.rows:
            self.rows = rows
            self.file.reader.set_batch_size(rows)  # is looked at before each batch

    def close(self) -> None:
        self.stream.close()


def open_parquet(stream: Any, bounds: Bounds) -> Any:
    """Open a Parquet file. Raises ValueError if it has more columns or deeper types than the bounds allow."""
    import pyarrow.parquet as pq

    file = pq.ParquetFile(stream, buffer_size=1 << 20)  # pages as they are needed, not whole column chunks
    check_columns(file.metadata.num_columns, bounds)
    check_schema(file.schema_arrow, bounds)
    return file


def _has_fixed_width(column_type: pa.DataType) -> bool:
    if pa.types.is_struct(column_type):
        return all(_has_fixed_width(field.type) for field in column_type)
    if pa.types.is_fixed_size_list(column_type):
        return _has_fixed_width(column_type.value_type)
    return bool(pa.types.is_primitive(column_type) or pa.types.is_null(column_type) or pa.types.is_decimal(column_type))


def _listed_bytes(file: Any, schema: pa.Schema) -> int:
    """Return how many bytes the lists of a row take by what the metadata say, in the row group where they take most."""
    wanted = set(schema.names)
    metadata = file.metadata
    repeated = [
        index
        for index in range(metadata.num_columns)
        if metadata.schema.column(index).max_repetition_level
        and metadata.schema.column(index).path.partition(".")[0] in wanted
    ]
    most = 0
    for number in range(metadata.num_row_groups if repeated else 0):
        group = metadata.row_group(number)
        values = sum(group.column(index).num_values for index in repeated)
        most = max(most, _VALUE_BYTES * values // max(group.num_rows, 1))
    return most


class IpcReader:
    """Files with a footer and streams. Place: (record batch, row in it, row, 0)."""

    def __init__(
        self, filesystem: Any, path: str, schema: pa.Schema, place: Place, batch_rows: int, bounds: Bounds
    ) -> None:
        self.names = schema.names
        width = max(sum(slot_bytes(field.type) for field in schema), 1)
        self.batch_rows = max(1, min(batch_rows, bounds.batch_bytes // width))
        self.index, self.start, self.row, _ = place
        self.reader = open_ipc(filesystem, path, bounds)
        with filesystem.open_input_file(path) as stream:
            self.marks = marks_of_whole(stream, identity_of(stream, filesystem, path))
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
    """One Arrow IPC file or stream, batch by batch. Each is checked before Arrow decodes it."""

    def __init__(self, file: MappedBytes | MessageFile, is_stream: bool, bounds: Bounds) -> None:
        from pyarrow import ipc

        self.file = file
        source = file.mapped if isinstance(file, MappedBytes) else pa.PythonFile(file, mode="r")
        self.reader = ipc.open_stream(source) if is_stream else ipc.open_file(source)
        self.checker = MessageChecker(self.file, is_stream, bounds)
        self.is_stream = is_stream
        self.index = 0
        self.schema: pa.Schema = self.reader.schema
        check_schema(self.schema, bounds)

    def skip(self, count: int) -> None:
        if not self.is_stream:
            self.index = count
        while self.index < count:
            self.next_batch()

    def next_batch(self) -> pa.RecordBatch | None:
        if not self.is_stream and self.index >= self.reader.num_record_batches:
            return None
        self.checker.check(self.index)
        self.index += 1
        if not self.is_stream:
            return self.reader.get_batch(self.index - 1)
        try:
            return self.reader.read_next_batch()
        except StopIteration:
            return None

    def close(self) -> None:
        self.file.close()


def open_ipc(filesystem: Any, path: str, bounds: Bounds) -> IpcFile:
    """Open by content: a file begins with ARROW1. A stream must bear its end mark, else a cut between two batches
    would pass.

    Raises ValueError if it has more columns or deeper types than the bounds allow.
    """
    from pyarrow import fs

    local = isinstance(filesystem, fs.LocalFileSystem)
    stream = filesystem.open_input_file(path)
    try:
        size = stream.size()
        if size == 0:
            raise ValueError("the file is empty (0 bytes)")
        is_stream = stream.read(6) != b"ARROW1"
        if is_stream:
            stream.seek(max(0, size - 8))
            if stream.read(8) != b"\xff\xff\xff\xff\0\0\0\0":
                raise ValueError("the Arrow stream has no end mark: it is truncated, or its writer was not closed")
        if local:  # mapped: a record batch may be as large as the file
            stream.close()
            stream = pa.memory_map(path)
        return IpcFile(MappedBytes(stream) if local else MessageFile(stream), is_stream, bounds)
    except BaseException:
        stream.close()
        raise
