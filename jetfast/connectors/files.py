"""Files as source and as sink: Parquet, CSV, JSON lines, Arrow IPC, on a local disk or any pyarrow filesystem."""

import os
import posixpath
import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, Self

import pyarrow as pa

from jetfast.connectors.file_formats import (
    FORMATS,
    START,
    FileFacts,
    FileReader,
    TextOptions,
    check_readable,
    csv_header,
    default_suffix,
    format_named,
    format_of,
    look_at_file,
    open_file,
    unreadable_column,
)
from jetfast.connectors.file_listing import (
    Groups,
    Paths,
    as_text,
    file_names,
    group_files,
    is_single_file,
    list_files,
    resolve_filesystem,
)
from jetfast.connectors.file_writers import FileWriter, check_writable
from jetfast.connectors.part_files import FlushedPartFiles, PartSettings, TransactionalPartFiles, part_number
from jetfast.core.batch import Batch
from jetfast.core.guarantee import Delivery, Guarantee
from jetfast.core.processor import ProcessorContext
from jetfast.core.source import REJECTED_SCHEMA, Position, Rows, SinkWriter
from jetfast.errors import JobDefinitionError, JobFailedError
from jetfast.types import BATCH_ROWS_MAX, Duration, bytes_of, positive_duration_us

PARTITIONS_WITH_EVENT_TIME_MAX = 64
"""Files that are merged by event time at once; each is open, and each may hold the watermark back."""
CHECKED_FILES_MAX = 1000
"""Files whose columns are compared before the job runs; further ones when they are opened."""

_POSITION = struct.Struct("<qqqqqI")  # file of the partition, place in the file, CRC-32 of names up to this file's
_READ_ERRORS = (OSError, ValueError, EOFError, KeyError, pa.ArrowException)


def files(
    path: Paths,
    format: str | None = None,
    *,
    filesystem: Any = None,
    partitions: Groups | None = None,
    schema: pa.Schema | None = None,
    batch_rows: int = BATCH_ROWS_MAX,
    overwrite: bool = False,
    file_size: str | None = None,
    file_age: Duration | None = None,
    delimiter: str = ",",
    null_values: Sequence[str] = ("",),
) -> "Files":
    """Files to read from, or to write to.

    Parameters
    ----------
    path : to read: a file, a list of files, a directory (its files, without those that begin with "." or "_") or a
        pattern (* ? [abc] **); to write: a file, if the path ends in the suffix of the format, else a directory of part
        files, one per writer that has rows
    format : "parquet", "csv", "json" (a record a line), "ipc" (Arrow, Feather 2) or "ipc_stream"; None: what the suffix
        says (.parquet .csv .jsonl .ndjson .json .arrow .feather .ipc .arrows; of text also with .gz .bz2 .zst)
    filesystem : any pyarrow.fs or fsspec filesystem; None: the local disk, or what a URI such as s3://bucket/x says
    partitions : to read with event time: groups of files, each of which is in time order when read in name order: a
        list of lists, a function of the file's name, or a regular expression that finds the group's name in it. Each
        group
        is one source partition (files of a list are read in its own order); without groups each file is
    schema : to read: the columns and types that are wanted; None: those of the first file
    batch_rows : rows of a batch at most
    overwrite : to write: replace what is there, when the job finishes and not before (with a guarantee, or with
        file_size or file_age: when the first file becomes visible)
    file_size, file_age : to write to a directory: end a part file when it has about so many bytes ("256MB"), or when
        rows come and it is so old ("15m"), and begin another. It is visible then, with EXACTLY_ONCE after the next
        snapshot
    delimiter, null_values : of CSV to read; a value between quotes is never null

    With a guarantee each snapshot ends the part files, so that the interval between snapshots bounds their size: with
    EXACTLY_ONCE they become visible together, when the snapshot is decided. One single file is visible at the end of
    the job and not before; so a job that writes one keeps no guarantee.

    Written text: null is an empty field in CSV (empty text is ""), times are ISO 8601 in CSV and JSON and read back as
    timestamps in microseconds or dates; decimals read back as floats or text unless `schema` says otherwise.

    Malformed lines are rejected rows, with file and line; a value in a column that nothing reads is not looked at.
    Files are read as a stream. Schemas are compared by names and types (of CSV by names), columns may stand in any
    order.

    Raises JobDefinitionError, when it is used, if there is no such file, it cannot be read or the files differ.
    """
    settings = _Settings(
        path if isinstance(path, str | os.PathLike) else tuple(path),
        os.getcwd(),
        _checked_format(format),
        filesystem,
        partitions,
        None if schema is None else schema.remove_metadata(),
        batch_rows,
        overwrite,
        None if file_size is None else bytes_of(file_size, "file_size"),
        None if file_age is None else positive_duration_us(file_age, "file_age"),
        TextOptions(delimiter, tuple(null_values)),
    )
    if not 1 <= batch_rows <= BATCH_ROWS_MAX:
        raise JobDefinitionError(f"files: batch_rows must be in [1, {BATCH_ROWS_MAX}], got {batch_rows}")
    if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n':
        raise JobDefinitionError(f"files: delimiter must be one ASCII character and no quote, got {delimiter!r}")
    return Files(settings)


@dataclass(frozen=True)
class _Settings:
    path: Any
    base: str  # what relative paths are relative to, on every member
    file_format: str | None
    filesystem: Any
    partitions: Groups | None
    schema: pa.Schema | None
    batch_rows: int
    overwrite: bool
    file_bytes: int | None
    file_age_us: int | None
    text: TextOptions


@dataclass(frozen=True)
class _Found:
    """What the path means, to read."""

    filesystem: Any
    file_format: str
    paths: dict[str, str]  # name for people -> path in the filesystem
    partitions: dict[str, list[str]]  # name -> names of files
    schema: pa.Schema
    schema_file: str  # the file that told the schema
    exact: bool  # other columns than those are an error: the schema was not given by the user
    total_rows: int | None = None  # if all files tell


def _checked_format(name: str | None) -> str | None:
    if name is None:
        return None
    found = format_named(name)
    if found is None:
        raise JobDefinitionError(f"files: there is no format {name!r}; there are {', '.join(FORMATS)}")
    return found


class Files:
    """See `files`. A source and a sink; the files are looked for when it is first used as a source.

    Position: index of the file in its partition, the place in it, and a checksum of the names up to this file's.
    """

    cooperative = False
    source_delivery = Delivery.REPLAYABLE
    bounded = True

    def __init__(
        self, settings: _Settings, columns: tuple[str, ...] | None = None, found: _Found | None = None
    ) -> None:
        self.settings = settings
        self.columns = columns
        self._found = found
        self._there: frozenset[str] = frozenset()
        """Files in the directory to write to, when it was looked at for a job that begins."""

    @property
    def name(self) -> str:
        path = self.settings.path
        if not isinstance(path, tuple):
            return f"files({as_text(path)})"
        return f"files({as_text(path[0])}, ... {len(path)} files)" if path else "files()"

    def __repr__(self) -> str:
        return self.name

    # As a source

    @property
    def schema(self) -> pa.Schema:
        schema = self._find().schema
        return schema if self.columns is None else pa.schema([schema.field(name) for name in self.columns])

    def partitions(self) -> Sequence[str]:
        return list(self._find().partitions)

    @property
    def total_rows(self) -> int | None:
        """Rows of all files, for progress; None if the format does not keep their number."""
        return self._find().total_rows

    def open_reader(self, partition: str, position: Position | None, context: ProcessorContext) -> "FilesReader":
        found = self._find()
        return FilesReader(self.name, found, self.schema, self.settings, found.partitions[partition], position)

    def with_columns(self, names: Sequence[str]) -> Self:
        if not names:
            raise ValueError(f"{self.name}: at least one column must be read")
        schema = self.schema
        for name in names:
            schema.field(name)  # KeyError
        return type(self)(self.settings, tuple(names), self._find())

    def check_event_time(self, column: str) -> None:
        """Raise JobDefinitionError if rows cannot be given event time: there are more partitions than can be merged."""
        count = len(self._find().partitions)
        if count > PARTITIONS_WITH_EVENT_TIME_MAX:
            raise JobDefinitionError(
                f"{self.name}: {count} source partitions are too many to be merged by event time (at most "
                f"{PARTITIONS_WITH_EVENT_TIME_MAX}); give partitions= with groups of files that follow each other, "
                f'for example partitions=r"(\\d{{4}})-\\d\\d" for one group a year'
            )

    def _find(self) -> _Found:
        if self._found is None:
            self._found = _find(self.name, self.settings)
        return self._found

    # As a sink

    @property
    def parallelism_one(self) -> bool:
        return self._single()

    @property
    def sink_delivery(self) -> Delivery:
        return Delivery.WHOLE if self._single() else Delivery.TRANSACTIONAL

    @property
    def target(self) -> str | None:
        filesystem, path = self._target()
        return f"{filesystem.type_name}:{path}"

    def check(self, schema: pa.Schema) -> None:
        check_writable(schema, self._target_format(), self.name)
        if self._single() and self._rolls():
            raise JobDefinitionError(
                f"{self.name}: one file cannot be ended by file_size or file_age; give a directory to write to"
            )

    def check_target(self) -> None:
        from pyarrow import fs

        filesystem, path = self._target()
        info = filesystem.get_file_info(path)
        if info.type == fs.FileType.NotFound:
            return
        if self._single():
            if info.type == fs.FileType.Directory:
                raise JobDefinitionError(f"{self.name}: {path} is a directory; it was to be written as one file")
            if not self.settings.overwrite:
                raise JobDefinitionError(
                    f"{self.name}: the file is there already; give overwrite=True to replace it, or another path"
                )
            return
        if info.type == fs.FileType.File:
            raise JobDefinitionError(
                f"{self.name}: {path} is a file; a directory of part files was to be written there. "
                f"For one file let the path end in {default_suffix(self._target_format())}"
            )
        there = [
            file.base_name
            for file in filesystem.get_file_info(fs.FileSelector(path))
            if not file.base_name.startswith(".")
        ]
        foreign = sorted(name for name in there if part_number(name) is None and not name.startswith("_"))
        if foreign:
            raise JobDefinitionError(
                f"{self.name}: the directory holds other files, such as {foreign[0]!r}; write to a directory of its own"
            )
        self._there = frozenset(there)
        if there and not self.settings.overwrite:
            raise JobDefinitionError(
                f"{self.name}: the directory holds {len(there)} files already; give overwrite=True to replace them, "
                f"or another path"
            )

    def open_writer(self, schema: pa.Schema, context: ProcessorContext) -> SinkWriter:
        if self._single() or (context.guarantee is Guarantee.NONE and not self._rolls()):
            filesystem, path = self._target()
            return FilesWriter(filesystem, path, self._target_format(), self._single(), schema, context)
        return FlushedPartFiles(self._parts(schema), context)

    def open_transactions(self, schema: pa.Schema, context: ProcessorContext) -> TransactionalPartFiles:
        return TransactionalPartFiles(self._parts(schema), context)

    def _rolls(self) -> bool:
        return self.settings.file_bytes is not None or self.settings.file_age_us is not None

    def _parts(self, schema: pa.Schema) -> PartSettings:
        filesystem, path = self._target()
        settings = self.settings
        return PartSettings(
            filesystem,
            path,
            self._target_format(),
            schema,
            settings.file_bytes or inf,
            settings.file_age_us or inf,
            settings.overwrite,
            self._there,
        )

    def _target(self) -> tuple[Any, str]:
        if isinstance(self.settings.path, tuple):
            raise JobDefinitionError(f"{self.name}: a list of files cannot be written to; give one path")
        filesystem, path = resolve_filesystem(as_text(self.settings.path), self.settings.filesystem, self.settings.base)
        return filesystem, path.rstrip("/") or path

    def _target_format(self) -> str:
        path = as_text(self._target()[1])
        found = self.settings.file_format or format_of(path)
        if found is None:
            raise JobDefinitionError(f"{self.name}: give format= to write part files, one of {', '.join(FORMATS)}")
        return found

    def _single(self) -> bool:
        return is_single_file(self._target()[1], self._target_format())


def _find(what: str, settings: _Settings) -> _Found:
    """Look for the files, and compare their columns."""
    filesystem, file_format, paths = list_files(
        what, settings.path, settings.filesystem, settings.base, settings.file_format
    )
    partitions = group_files(what, paths, settings.partitions)
    if settings.schema is not None:
        found = _Found(filesystem, file_format, paths, partitions, settings.schema, "schema=", False)
        try:
            check_readable(settings.schema, file_format)
        except (NotImplementedError, *_READ_ERRORS) as error:
            raise JobDefinitionError(f"{what}: {file_format} cannot be read with this schema: {error}") from error
        first = None
    else:
        first, schema = _first_schema(what, filesystem, file_format, paths, settings.text)
        found = _Found(filesystem, file_format, paths, partitions, schema, first, True)
    rows: list[int | None] = [None] * (len(paths) > CHECKED_FILES_MAX)
    for name in list(paths)[:CHECKED_FILES_MAX]:
        try:
            if file_format in ("csv", "json"):
                difference = None if name == first else _text_difference(found, name, settings.text)
                rows.append(None)
            else:
                facts = look_at_file(filesystem, paths[name], file_format, settings.text)
                difference = _difference(found, name, facts)
                rows.append(facts.rows)
        except _READ_ERRORS as error:
            raise JobDefinitionError(f"{what}: {name!r} cannot be read as {file_format}: {error}") from error
        if difference is not None:
            raise JobDefinitionError(f"{what}: the files differ: {difference}")
    known = [count for count in rows if count is not None]
    return replace(found, total_rows=sum(known) if len(known) == len(rows) else None)


def _first_schema(
    what: str, filesystem: Any, file_format: str, paths: dict[str, str], text: TextOptions
) -> tuple[str, pa.Schema]:
    """Return the first file that tells its columns and types, and them. Text without rows tells no types."""
    for name, path in paths.items():
        try:
            schema = look_at_file(filesystem, path, file_format, text).schema
        except _READ_ERRORS as error:
            raise JobDefinitionError(f"{what}: {name!r} cannot be read as {file_format}: {error}") from error
        if schema is not None:
            return name, schema
    if file_format == "csv":
        name, path = next(iter(paths.items()))
        return name, pa.schema([(column, pa.string()) for column in csv_header(filesystem, path, text)])
    raise JobDefinitionError(f"{what}: no file holds a row, so their columns are unknown; give schema=")


def _text_difference(found: _Found, name: str, text: TextOptions) -> str | None:
    """Say in what a text file differs from the schema; None if it fits. What a sample lets infer decides nothing."""
    path = found.paths[name]
    if found.file_format == "csv":
        names = csv_header(found.filesystem, path, text)
    else:
        schema = look_at_file(found.filesystem, path, found.file_format, text).schema
        if schema is None:
            return None  # without rows
        # Fields may be missing from records.
        names = [*schema.names, *(column for column in found.schema.names if column not in schema.names)]
    difference = _name_difference(found, name, names)
    if difference is None:
        column = unreadable_column(found.filesystem, path, found.file_format, text, found.schema)
        if column is not None:
            difference = (
                f"column {column!r} is {found.schema.field(column).type} in {found.schema_file!r}, and none of its "
                f"first values in {name!r} is"
            )
    return difference


def _difference(found: _Found, name: str, facts: FileFacts) -> str | None:
    """Say in what a file that tells its types differs from the schema; None if it fits."""
    schema = facts.schema
    assert schema is not None
    for field in found.schema:
        if field.name in schema.names and not schema.field(field.name).type.equals(field.type):
            return (
                f"column {field.name!r} is {field.type} in {found.schema_file!r} and {schema.field(field.name).type} "
                f"in {name!r}"
            )
    return _name_difference(found, name, schema.names)


def _name_difference(found: _Found, name: str, columns: Iterable[str]) -> str | None:
    columns = list(columns)
    for column in found.schema.names:
        if column not in columns:
            return f"column {column!r} of {found.schema_file!r} is missing in {name!r}, which has {', '.join(columns)}"
    if found.exact:
        for column in columns:
            if column not in found.schema.names:
                return f"column {column!r} of {name!r} is not in {found.schema_file!r}"
    return None


class FilesReader:
    """Reads the files of one source partition, one after the other."""

    def __init__(
        self,
        what: str,
        found: _Found,
        schema: pa.Schema,
        settings: _Settings,
        names: list[str],
        position: Position | None,
    ) -> None:
        self.what = what
        self.found = found
        self.schema = schema
        self.settings = settings
        self.names = names
        self.file: FileReader | None = None
        self.row = 0
        self.index = 0
        self.place = START
        self.names_checksum = _names_checksum(names[:1])
        if position is not None:
            self._go_to(position)

    def _go_to(self, position: Position) -> None:
        """Go on at a saved position, if the files up to it are those that were there."""
        self.index, *place, self.names_checksum = _POSITION.unpack(position)
        self.place = (place[0], place[1], place[2], place[3])
        names = self.names[: self.index + 1]
        if len(names) <= self.index or _names_checksum(names) != self.names_checksum:
            raise JobFailedError(
                f"{self.what}: the snapshot counts on the first {self.index + 1} files of a partition, which are not "
                f"the same any more: it begins with {', '.join(map(repr, names[:3]))} now. New files need names that "
                "come later; none may be renamed or removed before the job is completed"
            )

    def read(self) -> Rows | None:
        while self.index < len(self.names):
            name = self.names[self.index]
            try:
                if self.file is None:
                    self.file = self._open(name)
                rows = self.file.read()
            except _READ_ERRORS as error:
                raise JobFailedError(
                    f"{self.what}: {name!r} cannot be read further at row {self.row}: {type(error).__name__}: {error}"
                ) from error
            if rows is None:
                self.file.close()
                self.file, self.index, self.place, self.row = None, self.index + 1, START, 0
                self.names_checksum = _names_checksum(self.names[self.index : self.index + 1], self.names_checksum)
                continue
            self.place = rows.place
            self.row = rows.first_row + rows.batch.num_rows
            rejected = None
            if rows.malformed:
                columns = [
                    [name] * len(rows.malformed),
                    *(list(values) for values in zip(*rows.malformed, strict=True)),
                ]
                rejected = Batch.from_arrow(pa.record_batch(columns, schema=REJECTED_SCHEMA))
            return Rows(
                Batch.from_arrow(pa.RecordBatch.from_arrays(rows.batch.columns, schema=self.schema)),
                _POSITION.pack(self.index, *self.place, self.names_checksum),
                rows.first_row,
                rejected,
                origin=name,
                row_numbers=rows.row_numbers,
            )
        return None

    def _open(self, name: str) -> FileReader:
        found = self.found
        if list(found.paths).index(name) >= CHECKED_FILES_MAX:
            text = self.settings.text
            if found.file_format in ("csv", "json"):
                difference = _text_difference(found, name, text)
            else:
                facts = look_at_file(found.filesystem, found.paths[name], found.file_format, text)
                difference = _difference(found, name, facts)
            if difference is not None:
                raise JobFailedError(f"{self.what}: the files differ: {difference}")
        return open_file(
            found.filesystem,
            found.paths[name],
            found.file_format,
            self.schema,
            self.place,
            self.settings.batch_rows,
            self.settings.text,
            found.exact and len(self.schema) == len(found.schema),
        )

    def close(self) -> None:
        if self.file is not None:
            self.file.close()
            self.file = None


def _names_checksum(names: Iterable[str], before: int = 0) -> int:
    """Return the CRC-32 of names in their order, going on from that of the names before them."""
    for name in names:
        before = zlib.crc32(name.encode(errors="surrogateescape") + b"\0", before)
    return before


class FilesWriter:
    """One part file, or the one file. A writer without rows makes none, but the first does: the result can always be
    read.
    """

    def __init__(
        self,
        filesystem: Any,
        path: str,
        file_format: str,
        single: bool,
        schema: pa.Schema,
        context: ProcessorContext,
    ) -> None:
        self.filesystem = filesystem
        self.directory = posixpath.dirname(path) if single else path
        self.single = single
        self.index = context.index
        self.parallelism = context.parallelism
        self.name = posixpath.basename(path) if single else f"part-{self.index:05d}{default_suffix(file_format)}"
        final = posixpath.join(self.directory, self.name)
        self._remove_leftovers()
        temporary = posixpath.join(self.directory, f".{self.name}.{context.execution_id}.tmp")
        self.file = FileWriter(filesystem, final, temporary, file_format, schema)

    def write(self, batch: Batch) -> None:
        self.file.write(batch)

    def finish(self) -> None:
        if self.index == 0 or self.single or self.file.has_rows:
            self.file.finish()
            kept = self.name
        else:
            kept = ""
        if not self.single:
            self._remove_old_parts(kept)

    def flush(self) -> None:
        """Nothing is promised of a file before it is finished: a job that writes it keeps no guarantee."""

    def abort(self) -> None:
        self.file.abort()

    def _remove_old_parts(self, kept: str) -> None:
        """Remove what was left under this writer's number; the first writer also does it for numbers without writer.

        It is from an earlier job that may be replaced, or from an earlier execution of this job: `check_target` has
        looked.
        """
        for name in file_names(self.filesystem, self.directory):
            number = part_number(name)
            mine = number == self.index or (self.index == 0 and number is not None and number >= self.parallelism)
            if mine and name != kept:
                self.filesystem.delete_file(posixpath.join(self.directory, name))

    def _remove_leftovers(self) -> None:
        """Remove temporary files of this very file, from a process that was killed."""
        for name in file_names(self.filesystem, self.directory):
            if name.startswith(f".{self.name}.") and name.endswith(".tmp"):
                self.filesystem.delete_file(posixpath.join(self.directory, name))

    def _names(self) -> list[str]:
        from pyarrow import fs

        listed = self.filesystem.get_file_info(fs.FileSelector(self.directory, allow_not_found=True))
        return [info.base_name for info in listed if info.type == fs.FileType.File]
