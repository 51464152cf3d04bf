"""Part files that become visible while a job runs: one after the other, or together with the snapshot of their rows.

    part-<processor>-<job>-<execution>-<sequence>-<number>.<suffix>         visible
    part-<processor>-<job>-<execution>-<number>.<suffix>                    visible, written without transactions
    .jetfast.<job>.<job id>.<vertex>.<execution>.<processor>.<sequence>.<number>.<suffix>.tmp      not yet

The files of one transaction (the same sequence) share the text of its id, by which they are listed. Phase 2 renames
them one by one; that a file has its final name tells that it was committed.

A token says how many files a transaction has, and in which format: it holds no names. Who can write to a snapshot store
can forge tokens, so names are made from the id and a number.
"""

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from math import inf
from typing import Annotated, Any, Literal

import msgspec
import pyarrow as pa

from jetfast.connectors.file_formats import FORMATS, default_suffix
from jetfast.connectors.file_listing import file_names
from jetfast.connectors.file_writers import FileWriter, rename_durably
from jetfast.core.batch import Batch
from jetfast.core.processor import ProcessorContext
from jetfast.core.transaction import TransactionalWriter, TransactionId, TransactionOwner, TransactionRules
from jetfast.errors import DataLostError, JobFailedError

TEMPORARY = ".tmp"
_COMMITTED = re.compile(r"part-(?P<processor>\d+)-(?P<job>[^-]+)-(?P<execution>\d+)-(?P<sequence>\d+)-\d+\.")
_ID_FIELDS = 7
"""Fields of the text of an id, between dots; none of them holds one."""
_LOOKED_AT = 1000
"""Files of a transaction that one call looks for."""


class PartsToken(msgspec.Struct, forbid_unknown_fields=True):
    """What a snapshot keeps of a transaction besides its id: numbers 0 to `count` - 1 are its files."""

    version: Literal[1]
    format_number: Annotated[int, msgspec.Meta(ge=0, lt=len(FORMATS))]
    """Index in FORMATS: a job that was changed may write another format now."""
    count: Annotated[int, msgspec.Meta(ge=0)]


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

    def __init__(self, settings: PartSettings, context: ProcessorContext, flushed: bool = False) -> None:
        """`flushed`: files are visible as soon as they end, so they do not tell what was decided."""
        self.settings = settings
        self.flushed = flushed
        self.filesystem = settings.filesystem
        self.owner = TransactionOwner.of(context)
        self.job_label = context.job_id[:8] or "0"
        self.execution_id = context.execution_id
        self.suffix = default_suffix(settings.file_format)
        self.replaced = not settings.overwrite
        """Has what was there before this job been removed?"""

    def path(self, name: str) -> str:
        return posixpath.join(self.settings.directory, name)

    def names_of(self, transaction: str, number: int, suffix: str | None = None) -> tuple[str, str]:
        """Return the names (temporary, final) of one file of a transaction. Raises ValueError for a malformed id."""
        found = self.owner.parse(transaction)
        if found is None or found.execution_id is None:
            raise ValueError(f"{transaction!r} is no transaction of this step")
        execution, processor, sequence = found
        suffix = suffix or self.suffix
        place = f"{execution}" if self.flushed else f"{execution}-{sequence:06d}"
        final = f"part-{processor:05d}-{self.job_label}-{place}-{number}{suffix}"
        return f".{transaction}.{number}{suffix}{TEMPORARY}", final

    def names_in(self, transaction: str, token: bytes) -> Iterator[tuple[str, str]]:
        """Yield the names (temporary, final) that a token stands for. Raises JobFailedError for a malformed token.

        Tokens of earlier versions are lists of these names. They must be those that the id and a number give.
        """
        try:
            read = msgspec.msgpack.decode(token, type=PartsToken | list[tuple[str, str]])
        except (msgspec.MsgspecError, ValueError) as error:
            raise self._malformed(transaction) from error
        if isinstance(read, PartsToken):
            suffix = default_suffix(FORMATS[read.format_number])
            for number in range(read.count):
                yield self.names_of(transaction, number, suffix)
            return
        suffixes = [default_suffix(file_format) for file_format in FORMATS]
        for suffix in suffixes:
            if read == [self.names_of(transaction, number, suffix) for number in range(len(read))]:
                yield from read
                return
        raise self._malformed(transaction)

    def _malformed(self, transaction: str) -> JobFailedError:
        return JobFailedError(
            f"the snapshot does not say in the way of this sink which files transaction {transaction} has: the "
            f"snapshot is damaged or forged, and nothing was renamed"
        )

    def names(self) -> list[str]:
        return file_names(self.filesystem, self.settings.directory)

    def committed(self) -> list[str]:
        """Return the ids of the transactions of this job whose files are visible."""
        found = set()
        for name in self.names():
            match = _COMMITTED.match(name)
            if match is not None and match["job"] == self.job_label:
                numbers = (int(match[part]) for part in ("execution", "processor", "sequence"))
                found.add(self.owner.text(TransactionId(*numbers)))
        return sorted(found)

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
        rename_durably(self.filesystem, self.settings.directory, names)
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
            temporary, final = directory.names_of(self.transaction, number)
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
        self.directory = PartDirectory(settings, context, flushed=True)
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
        format_number = FORMATS.index(self.directory.settings.file_format)
        return msgspec.msgpack.encode(PartsToken(1, format_number, len(files.names)))

    def resume(self, transaction: str) -> None:
        self.current = self.open_files[transaction]

    def prepare(self, transaction: str) -> bool:
        self.open_files[transaction].end_file()
        del self.open_files[transaction]  # another writer commits it, by the names of its files
        return True

    def commit(self, transaction: str, token: bytes) -> None:
        names = self.directory.names_in(transaction, token)
        sealed: list[tuple[str, str]] = []
        while some := list(islice(names, _LOOKED_AT)):
            there = self.directory.existing(chain.from_iterable(some))
            for temporary, final in some:
                if temporary in there:
                    sealed.append((temporary, final))
                elif final not in there:
                    raise DataLostError(
                        f"{self.directory.path(final)} is gone, which the snapshot counts on: it was removed by hand, "
                        f"or by another job that writes to the same directory"
                    )
        self.directory.publish(sealed)

    def rollback(self, transaction: str) -> None:
        files = self.open_files.pop(transaction, None)
        if files is not None:
            files.abort()
        self.directory.remove(self.directory.temporary_files(transaction).get(transaction, []))

    def list_open(self, prefix: str) -> Sequence[str]:
        return list(self.directory.temporary_files(prefix))

    def latest_known(self, prefix: str) -> Sequence[str]:
        return [transaction for transaction in self.directory.committed() if transaction.startswith(prefix)]

    def close(self) -> None:
        """What is neither committed nor rolled back may be part of a decided snapshot: only what has no end goes."""
        for files in self.open_files.values():
            if files.file is not None:
                files.abort()
        self.open_files.clear()
