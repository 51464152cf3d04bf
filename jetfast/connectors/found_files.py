"""What a path means to read: its files, the partitions that they are, and the columns that all of them have."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from jetfast.connectors.columnar_files import is_stored_as
from jetfast.connectors.file_formats import ReadOptions
from jetfast.connectors.file_listing import Groups, group_files, list_files
from jetfast.connectors.file_readers import FileFacts, csv_header, look_at_file
from jetfast.connectors.text_types import check_readable, unreadable_column
from jetfast.errors import JobDefinitionError

CHECKED_FILES_MAX = 1000
"""Files whose columns are compared before the job runs; further ones when they are opened."""

READ_ERRORS = (OSError, ValueError, EOFError, KeyError, pa.ArrowException)


@dataclass(frozen=True)
class FileSettings:
    """What the user says of files; see `files.files`."""

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
    options: ReadOptions
    on_changed_input: str


@dataclass(frozen=True)
class FoundFiles:
    """What the path means, to read."""

    filesystem: Any
    file_format: str
    paths: dict[str, str]  # name for people -> path in the filesystem
    partitions: dict[str, list[str]]  # name -> names of files
    schema: pa.Schema
    schema_file: str  # the file that told the schema
    exact: bool  # other columns than those are an error: the schema was not given by the user
    total_rows: int | None = None  # if all files tell

    def was_compared(self, name: str) -> bool:
        """Have the columns of a file been compared before the job ran?"""
        return list(self.paths).index(name) < CHECKED_FILES_MAX


def find_files(what: str, settings: FileSettings) -> FoundFiles:
    """Look for the files, and compare their columns."""
    filesystem, file_format, paths = list_files(
        what, settings.path, settings.filesystem, settings.base, settings.file_format
    )
    partitions = group_files(what, paths, settings.partitions)
    if settings.schema is not None:
        found = FoundFiles(filesystem, file_format, paths, partitions, settings.schema, "schema=", False)
        try:
            check_readable(settings.schema, file_format)
        except (NotImplementedError, *READ_ERRORS) as error:
            raise JobDefinitionError(f"{what}: {file_format} cannot be read with this schema: {error}") from error
    else:
        first, schema = _first_schema(what, filesystem, file_format, paths, settings.options)
        found = FoundFiles(filesystem, file_format, paths, partitions, schema, first, True)
    rows: list[int | None] = [None] * (len(paths) > CHECKED_FILES_MAX)
    for name in list(paths)[:CHECKED_FILES_MAX]:
        try:
            difference, count = compare_file(found, name, settings.options)
        except READ_ERRORS as error:
            raise JobDefinitionError(f"{what}: {name!r} cannot be read as {file_format}: {error}") from error
        if difference is not None:
            raise JobDefinitionError(f"{what}: the files differ: {difference}")
        rows.append(count)
    known = [count for count in rows if count is not None]
    return replace(found, total_rows=sum(known) if len(known) == len(rows) else None)


def compare_file(found: FoundFiles, name: str, options: ReadOptions) -> tuple[str | None, int | None]:
    """Return in what a file differs from the schema, None if it fits; and the number of its rows if it tells that."""
    if found.file_format in ("csv", "json"):
        return None if name == found.schema_file else _text_difference(found, name, options), None
    facts = look_at_file(found.filesystem, found.paths[name], found.file_format, options)
    return _difference(found, name, facts), facts.rows


def _first_schema(
    what: str, filesystem: Any, file_format: str, paths: dict[str, str], options: ReadOptions
) -> tuple[str, pa.Schema]:
    """Return the first file that tells its columns and types, and them. Text without rows tells no types."""
    for name, path in paths.items():
        try:
            schema = look_at_file(filesystem, path, file_format, options).schema
        except READ_ERRORS as error:
            raise JobDefinitionError(f"{what}: {name!r} cannot be read as {file_format}: {error}") from error
        if schema is not None:
            return name, schema
    if file_format == "csv":
        name, path = next(iter(paths.items()))
        return name, pa.schema([(column, pa.string()) for column in csv_header(filesystem, path, options)])
    raise JobDefinitionError(f"{what}: no file holds a row, so their columns are unknown; give schema=")


def _text_difference(found: FoundFiles, name: str, options: ReadOptions) -> str | None:
    """Say in what a text file differs from the schema; None if it fits. What a sample lets infer decides nothing."""
    path = found.paths[name]
    if found.file_format == "csv":
        names = csv_header(found.filesystem, path, options)
    else:
        schema = look_at_file(found.filesystem, path, found.file_format, options).schema
        if schema is None:
            return None  # without rows
        # Fields may be missing from records.
        names = list(dict.fromkeys([*schema.names, *found.schema.names]))
    difference = _name_difference(found, name, names)
    if difference is None:
        column = unreadable_column(found.filesystem, path, found.file_format, options, found.schema)
        if column is not None:
            difference = (
                f"column {column!r} is {found.schema.field(column).type} in {found.schema_file!r}, and none of its "
                f"first values in {name!r} is"
            )
    return difference


def _difference(found: FoundFiles, name: str, facts: FileFacts) -> str | None:
    """Say in what a file that tells its types differs from the schema; None if it fits."""
    assert facts.schema is not None
    types = {field.name: field.type for field in facts.schema}
    for field in found.schema:
        if field.name in types and not is_stored_as(field, types[field.name], found.file_format):
            return f"column {field.name!r} is {field.type} in {found.schema_file!r} and {types[field.name]} in {name!r}"
    return _name_difference(found, name, facts.schema.names)


def _name_difference(found: FoundFiles, name: str, columns: Iterable[str]) -> str | None:
    columns = list(columns)
    there = set(columns)
    for column in found.schema.names:
        if column not in there:
            return f"column {column!r} of {found.schema_file!r} is missing in {name!r}, which has {', '.join(columns)}"
    if found.exact:
        wanted = set(found.schema.names)
        for column in columns:
            if column not in wanted:
                return f"column {column!r} of {name!r} is not in {found.schema_file!r}"
    return None
