"""Part files that become visible while a job runs: one after the other, or together with the snapshot of their rows.

    part-<processor>-<job>-<execution>-<sequence>-<number>.<suffix>         visible
    .jetfast.<job>.<job id>.<vertex>.<execution>.<processor>.<sequence>.<number>.<suffix>.tmp      not yet

The files of one transaction (the same sequence) share the text of its id, by which they are listed. Phase 2 renames
them one by one; that a file has its final name tells that it was committed.
"""

import posixpath
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import msgspec
import pyarrow as pa

from jetfast.connectors.file_formats import default_suffix
from jetfast.connectors.file_listing import file_names
from jetfast.connectors.file_writers import FileWriter, rename_durably
from jetfast.core.batch import Batch
from jetfast.core.processor import ProcessorContext
from jetfast.core.transaction import TransactionalWriter, TransactionId, TransactionOwner, TransactionRules
from jetfast.errors import DataLostError

TEMPORARY = ".tmp"
_ID_FIELDS = 7
"""Fields of the text of an id, between dots; none of them holds one."""


@dataclass(frozen=True)
class PartSettings:
    """What all writers of one directory have in common."""

    filesystem: Any
    directory: str
    file_format: str
    schema: pa.Schema
    file_bytes: float = inf
    """A file is ended when it has about so many bytes."""
    file_age_us: float = inf
    """A file is ended when rows come and it is so old, microseconds."""
    overwrite: bool = False
    replaced: frozenset[str] = frozenset()
    """Names of the files that were there when the job was submitted, and are to be replaced."""


class PartDirectory:
    """The directory that a job writes to: names, and who may remove what."""

    def __init__(self, settings: PartSettings, context: ProcessorContext) -> None:
        self.settings = settings
        self.filesystem = settings.filesystem
        self.owner = TransactionOwner.of(context)
        self.job_label = context.job_id[:8] or "0"
        self.execution_id = context.execution_id
        self.suffix = default_suffix(settings.file_format)
        self.replaced = not settings.overwrite
        """Has what was there before this job been removed?"""

    def path(self, name: str) -> str:
        return posixpath.join(self.settings.directory, name)

    def final_name(self, transaction: str, number: int) -> str:
        execution, processor, sequence = transaction.rsplit(".", 3)[1:]
        return f"part-{int(processor):05d}-{self.job_label}-{execution}-{int(sequence):06d}-{number}{self.suffix}"

    def temporary_name(self, transaction: str, number: int) -> str:
        return f".{transaction}.{number}{self.suffix}{TEMPORARY}"

    def names(self) -> list[str]:
        return file_names(self.filesystem, self.settings.directory)

    def existing(self, names: Iterable[str]) -> set[str]:
        """Which of these files are there?"""
        infos = self.filesystem.get_file_info([self.path(name) for name in names])
        return {info.base_name for info in infos if info.is_file}

    def temporary_files(self, prefix: str) -> dict[str, list[str]]:
        """Names of temporary files by the transaction they belong to, if its id begins with `prefix`."""
        found: dict[str, list[str]] = {}
        for name in self.names():
            if name.startswith("." + prefix) and name.endswith(TEMPORARY):
                found.setdefault(".".join(name[1:].split(".")[:_ID_FIELDS]), []).append(name)
        return found

    def remove(self, names: Iterable[str]) -> None:
        """Remove files; it is well if somebody else has done it."""
        for name in names:
            try:
                self.filesystem.delete_file(self.path(name))
            except FileNotFoundError:
                continue

    def publish(self, names: Sequence[tuple[str, str]]) -> None:
        """Give whole files their names (temporary, final), and remove what this job was to replace."""
        rename_durably(self.filesystem, [(self.path(temporary), self.path(final)) for temporary, final in names])
        self.replace()

    def replace(self) -> None:
        """Remove the files of earlier jobs, once, if that was wanted."""
        if not self.replaced:
            self.replaced = True
            self.remove(name for name in self.names() if self._is_of_earlier_job(name))

    def _is_of_earlier_job(self, name: str) -> bool:
        if name.endswith(TEMPORARY):
            return name.startswith((".jetfast.", ".part-")) and not name.startswith("." + self.owner.prefix)
        if name in self.settings.replaced:
            return True
        return part_number(name) is not None and name.split("-")[2:3] != [self.job_label]


def part_number(name: str) -> int | None:
    """Return the number of the writer of a part file, None for other names."""
    head, _, rest = name.partition(".")
    kind, _, tail = head.partition("-")
    number = tail.partition("-")[0]
    return int(number) if kind == "part" and number.isdecimal() and rest else None


class PartFiles:
    """The files of one transaction, ended by size and age."""

    def __init__(self, directory: PartDirectory, transaction: str, now_us: Callable[[], int]) -> None:
        self.directory = directory
        self.transaction = transaction
        self.now_us = now_us
        self.file: FileWriter | None = None
        self.begun_us = 0
        self.names: list[tuple[str, str]] = []
        """(temporary, final) of all files, the one that is written included."""
        self.published = 0

    def write(self, batch: Batch) -> None:
        file = self.open()
        file.write(batch)
        settings = self.directory.settings
        if file.nbytes >= settings.file_bytes or self.now_us() - self.begun_us >= settings.file_age_us:
            self.end_file()

    def open(self) -> FileWriter:
        """The file that rows go to."""
        if self.file is None:
            directory, number = self.directory, len(self.names)
            temporary = directory.temporary_name(self.transaction, number)
            final = directory.final_name(self.transaction, number)
            settings = directory.settings
            self.file = FileWriter(
                directory.filesystem,
                directory.path(final),
                directory.path(temporary),
                settings.file_format,
                settings.schema,
            )
            self.names.append((temporary, final))
            self.begun_us = self.now_us()
        return self.file

    def end_file(self) -> None:
        """All that was written is durable; nothing is visible."""
        if self.file is not None:
            self.file.complete()
            self.file = None

    def publish(self) -> None:
        """Make the files that have ended visible."""
        ended = self.names[self.published : len(self.names) - (self.file is not None)]
        if ended:
            self.directory.publish(ended)
            self.published += len(ended)

    def abort(self) -> None:
        """Leave nothing behind that is not visible."""
        if self.file is not None:
            self.file.abort()
            self.file = None
        self.directory.remove(temporary for temporary, _ in self.names[self.published :])


class FlushedPartFiles:
    """A SinkWriter whose files become visible as soon as they have ended: by size, by age, and with each snapshot."""

    def __init__(self, settings: PartSettings, context: ProcessorContext) -> None:
        self.directory = PartDirectory(settings, context)
        self.now_us = context.now_us
        self.first = context.index == 0
        transaction = TransactionId(context.execution_id, context.index, 0)
        self.files = PartFiles(self.directory, self.directory.owner.text(transaction), context.now_us)
        for text, names in self.directory.temporary_files(self.directory.owner.prefix).items():
            left = self.directory.owner.parse(text)
            if (
                left is not None
                and left.execution_id is not None
                and left.execution_id < context.execution_id
                and left.processor % context.parallelism == context.index
            ):
                self.directory.remove(names)

    def write(self, batch: Batch) -> None:
        self.files.write(batch)
        self.files.publish()

    def flush(self) -> None:
        self.files.end_file()
        self.files.publish()

    def finish(self) -> None:
        if self.first and not self.files.names:
            self.files.open()  # the result can always be read
        self.flush()
        self.directory.replace()

    def abort(self) -> None:
        self.files.abort()


class TransactionalPartFiles(TransactionalWriter):
    """Files that become visible in phase 2 of the snapshot that covers their rows."""

    rules = TransactionRules(overlaps=True)

    def __init__(self, settings: PartSettings, context: ProcessorContext) -> None:
        self.directory = PartDirectory(settings, context)
        self.now_us = context.now_us
        self.marks_end = context.index == 0  # the result can always be read
        self.open_files: dict[str, PartFiles] = {}
        self.current: PartFiles | None = None

    def begin(self, transaction: str) -> None:
        self.current = self.open_files[transaction] = PartFiles(self.directory, transaction, self.now_us)

    def write(self, batch: Batch) -> None:
        assert self.current is not None
        self.marks_end = False
        self.current.write(batch)

    def seal(self, transaction: str) -> bytes:
        files = self.open_files[transaction]
        if not files.names:
            files.open()
        return msgspec.msgpack.encode(files.names)

    def resume(self, transaction: str) -> None:
        self.current = self.open_files[transaction]

    def prepare(self, transaction: str) -> bool:
        self.open_files[transaction].end_file()
        return True

    def commit(self, transaction: str, token: bytes) -> None:
        names = msgspec.msgpack.decode(token, type=list[tuple[str, str]])
        there = self.directory.existing(name for pair in names for name in pair)
        missing = [final for temporary, final in names if temporary not in there and final not in there]
        if missing:
            raise DataLostError(
                f"{self.directory.path(missing[0])} is gone, which the snapshot counts on: it was removed by hand, or "
                f"by another job that writes to the same directory"
            )
        self.directory.publish([(temporary, final) for temporary, final in names if temporary in there])
        self.open_files.pop(transaction, None)

    def rollback(self, transaction: str) -> None:
        files = self.open_files.pop(transaction, None)
        if files is not None:
            files.abort()
        self.directory.remove(self.directory.temporary_files(transaction).get(transaction, []))

    def list_open(self, prefix: str) -> Sequence[str]:
        return list(self.directory.temporary_files(prefix))

    def close(self) -> None:
        """What is neither committed nor rolled back may be part of a decided snapshot: only what has no end goes."""
        for files in self.open_files.values():
            if files.file is not None:
                files.abort()
        self.open_files.clear()
