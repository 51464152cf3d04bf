"""Files as source and as sink: Parquet, CSV, JSON lines, Arrow IPC, on a local disk or any pyarrow filesystem."""

import os
import posixpath
from collections.abc import Sequence
from math import inf
from typing import Any, Literal, Self

import pyarrow as pa

from jetfast.connectors.file_bounds import DEFAULT_BOUNDS, Bounds
from jetfast.connectors.file_formats import FORMATS, ReadOptions, default_suffix, format_named, format_of
from jetfast.connectors.file_listing import Groups, Paths, as_text, is_single_file, resolve_filesystem
from jetfast.connectors.file_writers import check_writable, try_writing
from jetfast.connectors.files_reader import FilesReader
from jetfast.connectors.found_files import FileSettings, FoundFiles, find_files
from jetfast.connectors.part_files import FlushedPartFiles, PartSettings, TransactionalPartFiles, part_number
from jetfast.connectors.whole_files import FilesWriter
from jetfast.core.guarantee import Delivery, Guarantee
from jetfast.core.processor import ProcessorContext
from jetfast.core.source import Position, SinkWriter
from jetfast.errors import JobDefinitionError, JobFailedError
from jetfast.types import BATCH_ROWS_MAX, Duration, bytes_of, positive_duration_us, redact

PARTITIONS_WITH_EVENT_TIME_MAX = 64
"""Files that are merged by event time at once; each is open, and each may hold the watermark back."""


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
    depth_max: int = DEFAULT_BOUNDS.depth,
    columns_max: int = DEFAULT_BOUNDS.columns,
    line_size: str = "16MiB",
    batch_size: str = "256MiB",
    on_changed_input: Literal["fail", "reread", "ignore"] = "fail",
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
        group is one source partition (files of a list are read in its own order); without groups each file is
    schema : to read: the columns and types that are wanted; None: those of the first file
    batch_rows : rows of a batch at most
    overwrite : to write: replace what is there, when the job finishes and not before (with a guarantee, or with
        file_size or file_age: when the first file becomes visible)
    file_size, file_age : to write to a directory: end a part file when it has about so many bytes ("256MB"), or when
        rows come and it is so old ("15m"), and begin another. It is visible then, with EXACTLY_ONCE after the next
        snapshot
    delimiter, null_values : of CSV to read; a value between quotes is never null
    depth_max, columns_max, line_size, batch_size : what a file to read may ask for at most: lists and objects within
        each other, columns, bytes of a record of text, and bytes of rows that are decoded at once. A record of text
        beyond them is a rejected row, and any other file is refused

    on_changed_input : what happens after a restart if the file that a snapshot was in is shorter than what was read of
        it, or is another one: the job fails, or the file is read again from its beginning, or from where the position
        says. Text may grow meanwhile

    With a guarantee each snapshot ends the part files, so that the interval between snapshots bounds their size: with
    EXACTLY_ONCE they become visible together, when the snapshot is decided. One single file is visible at the end of
    the job and not before; so a job that writes one keeps no guarantee.

    Written text: null is an empty field in CSV (empty text is ""), times are ISO 8601 in CSV and JSON and read back as
    timestamps in microseconds or dates; decimals read back as floats or text unless `schema` says otherwise. A value
    that text cannot express, such as a timestamp in the year 10000, fails the job with its row and column.

    Malformed lines are rejected rows, with file and line; a value in a column that nothing reads is not looked at.
    Files are read as a stream. Schemas are compared by names and types (of CSV by names), columns may stand in any
    order.

    Raises JobDefinitionError, when it is used, if there is no such file, it cannot be read or the files differ.
    """
    settings = FileSettings(
        as_text(path) if isinstance(path, str | os.PathLike) else tuple(map(as_text, path)),
        os.getcwd(),
        _checked_format(format),
        filesystem,
        partitions,
        None if schema is None else schema.remove_metadata(),
        batch_rows,
        overwrite,
        None if file_size is None else bytes_of(file_size, "file_size"),
        None if file_age is None else positive_duration_us(file_age, "file_age"),
        ReadOptions(
            delimiter,
            tuple(null_values),
            Bounds(depth_max, columns_max, bytes_of(line_size, "line_size"), bytes_of(batch_size, "batch_size")),
        ),
        on_changed_input,
    )
    if on_changed_input not in ("fail", "reread", "ignore"):
        raise JobDefinitionError(
            f'files: on_changed_input must be "fail", "reread" or "ignore", got {on_changed_input!r}'
        )
    for name, limit in (("depth_max", depth_max), ("columns_max", columns_max)):
        if type(limit) is not int or limit < 1:
            raise JobDefinitionError(f"files: {name} must be a whole number of at least 1, got {limit!r}")
    if not 1 <= batch_rows <= BATCH_ROWS_MAX:
        raise JobDefinitionError(f"files: batch_rows must be in [1, {BATCH_ROWS_MAX}], got {batch_rows}")
    if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n':
        raise JobDefinitionError(f"files: delimiter must be one ASCII character and no quote, got {delimiter!r}")
    return Files(settings)


def _checked_format(name: str | None) -> str | None:
    if name is None:
        return None
    found = format_named(name)
    if found is None:
        raise JobDefinitionError(f"files: there is no format {name!r}; there are {', '.join(FORMATS)}")
    return found


class Files:
    """See `files`. A source and a sink; the files are looked for when it is first used as a source.

    Position: index of the file in its partition, the place in it, a checksum of the names up to this file's, and marks
    by which the file is known again.
    """

    cooperative = False
    source_delivery = Delivery.REPLAYABLE
    bounded = True

    def __init__(
        self, settings: FileSettings, columns: tuple[str, ...] | None = None, found: FoundFiles | None = None
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
            return f"files({redact(as_text(path))})"
        return f"files({redact(as_text(path[0]))}, ... {len(path)} files)" if path else "files()"

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

    def _find(self) -> FoundFiles:
        if self._found is None:
            self._found = find_files(self.name, self.settings)
        return self._found

    # As a sink

    @property
    def parallelism_one(self) -> bool:
        return self._single()

    @property
    def sink_delivery(self) -> Delivery:
        return Delivery.WHOLE if self._single() else Delivery.TRANSACTIONAL

    @property
    def tells_latest(self) -> bool:
        return not self._single()

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
        filesystem, path = self._target()
        self._check_absent(filesystem, path)
        error = self._try_writing(keep_directory=False)
        if error is not None:
            raise JobDefinitionError(error)

    def _try_writing(self, *, keep_directory: bool) -> str | None:
        """Return why nothing can be written, None if it can."""
        filesystem, path = self._target()
        directory = posixpath.dirname(path) if self._single() else path
        error = try_writing(filesystem, directory, keep_directory=keep_directory)
        if error is None:
            return None
        return (
            f"{self.name}: {directory} cannot be written: {error}. Give a directory in which the job's user may make, "
            f"rename and remove files"
        )

    def _check_absent(self, filesystem: Any, path: str) -> None:
        """Raise JobDefinitionError if something is there that the job would replace or mix with."""
        from pyarrow import fs

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
        self._check_here()
        if self._single() or (context.guarantee is Guarantee.NONE and not self._rolls()):
            filesystem, path = self._target()
            return FilesWriter(filesystem, path, self._target_format(), self._single(), schema, context)
        return FlushedPartFiles(self._parts(schema), context)

    def open_transactions(self, schema: pa.Schema, context: ProcessorContext) -> TransactionalPartFiles:
        self._check_here()
        return self.open_batch(schema, context)

    def open_batch(self, schema: pa.Schema, context: ProcessorContext) -> TransactionalPartFiles:
        """Open the writer of one of many short transactions, without trying first whether it can write."""
        return TransactionalPartFiles(self._parts(schema), context)

    def _check_here(self) -> None:
        """Raise JobFailedError, before any row is read, if this member cannot write: it may run on another host."""
        error = self._try_writing(keep_directory=True)
        if error is not None:
            raise JobFailedError(error)

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
