"""Writing files so that nobody sees them half written: a temporary name beside the final one, fsync, rename at the
end.
"""

import os
import posixpath
import stat
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, Protocol

import msgspec
import pyarrow as pa

from jetfast.connectors.file_formats import compression_of
from jetfast.connectors.text_values import (
    Inexpressible,
    check_expressible,
    check_parquet,
    parquet_limits,
    plain_type,
    with_words_for_floats,
)
from jetfast.core.batch import Batch
from jetfast.core.readable import readable_values
from jetfast.errors import JobDefinitionError, JobFailedError

ROW_GROUP_ROWS = 1 << 18
ROW_GROUP_BYTES = 64 << 20
"""Batches are gathered up to this size before Parquet writes a row group."""
GATHERED_ROWS = 1 << 15
"""And before other formats write anything: results of windows come in many small batches."""
_REPLACING = ("s3", "gcs")
"""Object stores, where what is moved takes the place of what is there."""


class TableWriter(Protocol):
    """Writes one format into a stream. pyarrow's own writers have this shape."""

    def write_table(self, table: pa.Table) -> None: ...

    def close(self) -> None: ...


def open_table_writer(stream: Any, file_format: str, schema: pa.Schema) -> TableWriter:
    """Begin a file of a format."""
    if file_format == "parquet":
        writer: TableWriter = ParquetTableWriter(stream, schema)
    elif file_format == "ipc":
        writer = pa.ipc.new_file(stream, schema)
    elif file_format == "ipc_stream":
        writer = pa.ipc.new_stream(stream, schema)
    elif file_format == "csv":
        writer = CsvTableWriter(stream, schema)
    else:
        writer = JsonTableWriter(stream, schema)
    return writer


class ParquetTableWriter:
    """Parquet. Timestamps and times in seconds become milliseconds."""

    def __init__(self, stream: Any, schema: pa.Schema) -> None:
        import pyarrow.parquet as pq

        self.writer = pq.ParquetWriter(stream, schema)
        self.limited = [
            field.name for field in schema if _holds(field.type, lambda each: parquet_limits(each) is not None)
        ]
        self.row = 0

    def write_table(self, table: pa.Table) -> None:
        """Raises Inexpressible for a value that Parquet cannot hold; nothing of the table is written then."""
        if self.limited:
            check_parquet(table.select(self.limited), self.row)
        self.writer.write_table(table)
        self.row += table.num_rows

    def close(self) -> None:
        self.writer.close()


class CsvTableWriter:
    """CSV with a header. Null is nothing, empty text is "", text is quoted, times are ISO with six digits."""

    def __init__(self, stream: Any, schema: pa.Schema) -> None:
        from pyarrow import csv

        self.schema = pa.schema([pa.field(field.name, plain_type(field.type)) for field in schema])
        self.writer = csv.CSVWriter(stream, self.schema)
        self.row = 0

    def write_table(self, table: pa.Table) -> None:
        """Raises Inexpressible for a value that text cannot hold; nothing of the table is written then."""
        check_expressible(table, self.row)
        self.writer.write_table(table.cast(self.schema))
        self.row += table.num_rows

    def close(self) -> None:
        self.writer.close()


class JsonTableWriter:
    """JSON lines. Dates and times are text, decimals too, durations whole numbers; NaN and infinities are bare
    words.
    """

    def __init__(self, stream: Any, schema: pa.Schema) -> None:
        self.stream = stream
        self.schema = pa.schema([pa.field(field.name, plain_type(field.type)) for field in schema])
        self.row = 0

    def write_table(self, table: pa.Table) -> None:
        """Raises Inexpressible for a value that text cannot hold."""
        check_expressible(table, self.row)
        table = table.cast(self.schema)
        for batch in table.to_batches():
            self._write(batch)
            self.row += batch.num_rows

    def _write(self, batch: pa.RecordBatch) -> None:
        columns = []
        for name, column in zip(self.schema.names, batch.columns, strict=True):
            try:
                columns.append(with_words_for_floats(column, readable_values(column)))
            except UnicodeDecodeError as error:
                raise Inexpressible(f"a row from {self.row} on, column {name!r}: {error}") from error
        rows = [dict(zip(self.schema.names, values, strict=True)) for values in zip(*columns, strict=True)]
        self.stream.write(msgspec.json.Encoder().encode_lines(rows))

    def close(self) -> None:
        """Lines need no end."""


def check_writable(schema: pa.Schema, file_format: str, what: str) -> None:
    """Raise JobDefinitionError if a format cannot hold these columns so that they can be read again."""
    twice = sorted({name for name in schema.names if schema.names.count(name) > 1})
    if twice:
        raise JobDefinitionError(f"{what}: two columns are named {twice[0]!r}; rename one of them")
    if file_format in ("csv", "json"):
        for field in schema:
            plain = plain_type(field.type)
            if file_format == "csv" and pa.types.is_nested(plain):
                raise JobDefinitionError(
                    f"{what}: CSV cannot hold the nested column {field.name!r} ({field.type}); "
                    f"select its parts, or write Parquet, Arrow or JSON lines"
                )
            if _holds(plain, pa.types.is_map):
                raise JobDefinitionError(
                    f"{what}: text cannot hold the map column {field.name!r}; write Parquet or Arrow"
                )
            if _holds(plain, _is_binary):
                raise JobDefinitionError(
                    f"{what}: text cannot hold the binary column {field.name!r}; cast it, or write Parquet or Arrow"
                )
            if _holds(plain, pa.types.is_interval):
                raise JobDefinitionError(
                    f"{what}: text cannot hold the interval column {field.name!r}; write Arrow, or its parts"
                )
    error = _write_nothing(schema, file_format)
    if error is not None:
        alone = [field.name for field in schema if _write_nothing(pa.schema([field]), file_format) is not None]
        columns = f"column {alone[0]!r}" if alone else "these columns"
        raise JobDefinitionError(f"{what}: {file_format} cannot hold {columns}: {error}") from error


def _write_nothing(schema: pa.Schema, file_format: str) -> Exception | None:
    """Return the error of writing a file without rows; None if that works."""
    try:
        writer = open_table_writer(pa.BufferOutputStream(), file_format, schema)
        writer.write_table(pa.Table.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema))
        writer.close()
    except (pa.ArrowException, ValueError) as error:
        return error
    return None


def _is_binary(column_type: pa.DataType) -> bool:
    types = pa.types
    kinds = (types.is_binary, types.is_large_binary, types.is_fixed_size_binary, types.is_binary_view)
    return any(is_kind(column_type) for is_kind in kinds)


def _holds(column_type: pa.DataType, is_kind: Callable[[pa.DataType], bool]) -> bool:
    """Is a type of this kind, or nested with one inside?"""
    if is_kind(column_type):
        return True
    if pa.types.is_dictionary(column_type):
        return _holds(column_type.value_type, is_kind)
    return any(_holds(column_type.field(index).type, is_kind) for index in range(column_type.num_fields))


class FileWriter:
    """One file under a temporary name until `finish`. Nothing is made before the first row, or `finish`."""

    def __init__(self, filesystem: Any, path: str, temporary: str, file_format: str, schema: pa.Schema) -> None:
        self.filesystem = filesystem
        self.path = path
        self.temporary = temporary
        self.file_format = file_format
        self.schema = schema
        self.stream: Any = None
        self.file: Any = None
        """Where `stream` ends up, compressed."""
        self.table_writer: TableWriter | None = None
        self.waiting: list[pa.RecordBatch] = []
        self.waiting_rows = 0
        self.waiting_bytes = 0

    def write(self, batch: Batch) -> None:
        """Take rows; they are gathered before they are written."""
        rows = batch.to_arrow()
        self.waiting.append(rows)
        self.waiting_rows += rows.num_rows
        self.waiting_bytes += batch.nbytes
        rows_max = ROW_GROUP_ROWS if self.file_format == "parquet" else GATHERED_ROWS
        if self.waiting_rows >= rows_max or self.waiting_bytes >= ROW_GROUP_BYTES:
            self._flush()

    @property
    def has_rows(self) -> bool:
        return self.stream is not None or self.waiting_rows > 0

    @property
    def nbytes(self) -> int:
        """Size of the file so far, about: what waits is counted as it is in memory."""
        return self.waiting_bytes + (0 if self.file is None else int(self.file.tell()))

    def complete(self) -> None:
        """Write the end of the file, and make it durable under its temporary name."""
        self._open()
        self._flush()
        assert self.table_writer is not None
        self.table_writer.close()
        self.stream.close()
        self.file = None
        make_durable(self.filesystem, self.temporary)

    def finish(self) -> None:
        """Make the file durable and visible; one of that name is replaced."""
        self.complete()
        names = (posixpath.basename(self.temporary), posixpath.basename(self.path))
        rename_durably(self.filesystem, posixpath.dirname(self.path), [names])

    def abort(self) -> None:
        """Leave nothing behind."""
        self.waiting.clear()
        if self.stream is None:
            return
        self.stream.close()
        if self.filesystem.get_file_info(self.temporary).is_file:
            self.filesystem.delete_file(self.temporary)

    def _open(self) -> None:
        if self.stream is not None:
            return
        self.filesystem.create_dir(posixpath.dirname(self.path) or ".", recursive=True)
        self.file = self.filesystem.open_output_stream(self.temporary, compression=None)
        codec = compression_of(self.path)
        self.stream = self.file if codec is None else pa.CompressedOutputStream(self.file, codec)
        self.table_writer = open_table_writer(self.stream, self.file_format, self.schema)

    def _flush(self) -> None:
        if not self.waiting:
            return
        self._open()
        assert self.table_writer is not None
        waiting = [pa.RecordBatch.from_arrays(rows.columns, schema=self.schema) for rows in self.waiting]
        self.waiting.clear()
        self.waiting_rows = self.waiting_bytes = 0
        table = pa.Table.from_batches(waiting, self.schema)
        if len(waiting) > 1 and self.file_format in ("ipc", "ipc_stream"):
            table = table.combine_chunks()  # each chunk would become a record batch
        try:
            self.table_writer.write_table(table)
        except Inexpressible as error:
            raise JobFailedError(f"{self.path}: {error}; convert the column before it is written") from error


def make_durable(filesystem: Any, path: str) -> None:
    """Have data and name of a closed file outlive a crash of the machine; others than local disks do it at close."""
    from pyarrow import fs

    if isinstance(filesystem, fs.LocalFileSystem):
        with open(path, "rb+") as file:
            os.fsync(file.fileno())
        _sync_directory(path)


def rename_durably(filesystem: Any, directory: str, names: Sequence[tuple[str, str]]) -> None:
    """Give durable files of a directory their names (temporary, final); a crash leaves each with one of the two.

    On a local disk names are resolved in the open directory, so no name leads out of it, and what a link points to is
    never renamed.

    Raises JobFailedError, before anything is renamed, for a name with a folder in it or for what is no regular file.
    """
    from pyarrow import fs

    for name in chain.from_iterable(names):
        if name in ("", ".", "..") or "/" in name or "\0" in name or os.sep in name:
            raise JobFailedError(f"{name!r} is not the name of a file in {directory}")
    if isinstance(filesystem, fs.LocalFileSystem):
        _rename_local(directory, names)
        return
    for temporary, final in names:
        source, path = posixpath.join(directory, temporary), posixpath.join(directory, final)
        if filesystem.type_name not in _REPLACING and filesystem.get_file_info(path).type != fs.FileType.NotFound:
            filesystem.delete_file(path)  # object stores replace: another processor may do the same
        filesystem.move(source, path)


def try_writing(filesystem: Any, directory: str, *, keep_directory: bool) -> str | None:
    """Write, rename and remove a small file in a directory, as a sink will do. Return the error, None if all worked.

    keep_directory : leave a directory that was not there, because other processors may write to it already; False:
        remove it, if the filesystem is local
    """
    from pyarrow import fs

    name = f".jetfast.probe.{uuid.uuid4().hex}"
    made = []
    try:
        if directory:
            parent = directory
            while parent and filesystem.get_file_info(parent).type == fs.FileType.NotFound:
                made.append(parent)
                parent = posixpath.dirname(parent)
            filesystem.create_dir(directory, recursive=True)
        with filesystem.open_output_stream(posixpath.join(directory, name + ".tmp"), compression=None) as stream:
            stream.write(b"jetfast")
        rename_durably(filesystem, directory, [(name + ".tmp", name)])
        filesystem.delete_file(posixpath.join(directory, name))
    except Exception as error:  # filesystems of others raise what they like
        return f"{type(error).__name__}: {error}"
    finally:
        if isinstance(filesystem, fs.LocalFileSystem) and not keep_directory:
            for folder in made:
                with suppress(OSError):  # another job writes to it already
                    os.rmdir(folder)
    return None


def _rename_local(directory: str, names: Sequence[tuple[str, str]]) -> None:
    if os.name != "posix":
        for temporary, final in names:
            os.replace(os.path.join(directory, temporary), os.path.join(directory, final))
        return
    opened = os.open(directory or ".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        for temporary, _ in names:
            if not stat.S_ISREG(os.stat(temporary, dir_fd=opened, follow_symlinks=False).st_mode):
                raise JobFailedError(f"{posixpath.join(directory, temporary)} is not a regular file")
        for temporary, final in names:
            os.replace(temporary, final, src_dir_fd=opened, dst_dir_fd=opened)
        os.fsync(opened)
    finally:
        os.close(opened)


def _sync_directory(path: str) -> None:
    """Make the names in the directory of a file durable."""
    if os.name == "posix":
        directory = os.open(os.path.dirname(path) or ".", os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
