"""Snapshots as files, in whatever keeps named bytes: a directory, an object store.

    JOB/records/NUMBER                      execution records; the greatest number counts
    JOB/areas/EXECUTION-SNAPSHOT/VERTEX/FILE
    JOB/areas/EXECUTION-SNAPSHOT.validation

The compare-and-set of the execution record is the exclusive creation of the file with the next number: of two who try,
one finds it there. Old records are deleted in the end, so an old coordinator may find "its" number free again: whoever
has created a record looks whether a greater one exists, and has lost if so. What it created never counted.
"""

import contextlib
import re
import uuid
from collections.abc import Iterator, Sequence
from typing import Protocol
from urllib.parse import quote, unquote

from jetfast.engine.snapshot_files import (
    decode_execution_file,
    decode_state_file,
    decode_validation_file,
    encode_record_file,
    encode_state_file,
)
from jetfast.engine.snapshot_store import (
    ExecutionRecord,
    SnapshotArea,
    StateEntry,
    StateTotals,
    ValidationRecord,
    VersionedRecord,
)
from jetfast.errors import JobDefinitionError, OutcomeUnknown, RecordConflict, SnapshotDamaged, StoreUnavailable
from jetfast.types import PARTITION_COUNT

_RECORDS_KEPT = 2
_VALIDATION = ".validation"
_NAME_BYTES_MAX = 200
_EMPTY = "%"
_AREA = re.compile(r"(\d+)-(\d+)")


class Blobs(Protocol):
    """Port: named bytes. Names are paths with "/"; safe for any number of threads.

    Errors of all methods: StoreUnavailable.
    """

    @property
    def name(self) -> str:
        """For messages, such as "directory /var/lib/jobs"."""

    @property
    def survives(self) -> str:
        """What it outlives, for people."""

    @property
    def exclusive_by(self) -> str:
        """How `create` is exclusive, for people: "hard links"."""

    def put(self, name: str, pieces: Sequence[bytes | memoryview]) -> None:
        """Keep bytes durably under a name: all of them, or nothing. Replaces what was there."""

    def create(self, name: str, data: bytes) -> bool:
        """As `put`, but only if there is nothing under that name; False: there is.

        Raises OutcomeUnknown if it cannot be told whether the bytes were kept.
        """

    def get(self, name: str) -> bytes | None:
        """Return the bytes, None if there are none."""

    def list(self, folder: str) -> list[str]:
        """Return all names below "folder/", however deep, sorted."""

    def list_folders(self) -> Sequence[str]:
        """Return the first parts of all names that have several."""

    def list_parts(self, folder: str) -> Sequence[str]:
        """Return the parts that follow "folder/" in names; in a file system those of empty folders, too."""

    def delete(self, names: Sequence[str]) -> None:
        """Forget these, in this order; those that are not there do not matter."""

    def delete_folder(self, folder: str) -> None:
        """Forget all names below "folder/"; in a file system folders and unfinished files, too."""


class BlobSnapshotStore:
    """A SnapshotStore in Blobs. Picklable if they are."""

    shared = True

    def __init__(self, blobs: Blobs) -> None:
        self.blobs = blobs

    @property
    def name(self) -> str:
        return self.blobs.name

    @property
    def survives(self) -> str:
        return self.blobs.survives

    def check(self) -> None:
        blobs = self.blobs
        probe = f"probe-{uuid.uuid4().hex}"
        try:
            works = blobs.create(probe, b"1") and not blobs.create(probe, b"2") and blobs.get(probe) == b"1"
            blobs.delete([probe])
        except (StoreUnavailable, OutcomeUnknown) as error:
            raise JobDefinitionError(f"snapshots cannot be kept in {self.name}: {error}") from error
        if not works:
            raise JobDefinitionError(
                f"snapshots cannot be kept exactly once in {self.name}: it does not keep to {blobs.exclusive_by}; two "
                "coordinators could decide differently"
            )

    def read_record(self, job: str) -> VersionedRecord | None:
        # Between the look at the list and the reading the record may be replaced, and deleted as an old one.
        while names := self.blobs.list(_records(job)):
            data = self.blobs.get(names[-1])
            if data is not None:
                try:
                    record = decode_execution_file(data)
                except SnapshotDamaged as error:
                    raise SnapshotDamaged(f"{self.name}: {names[-1]}: {error}") from error
                if record.job != job:
                    raise SnapshotDamaged(f"{self.name}: {names[-1]} is that of job {record.job!r}, not of {job!r}")
                return VersionedRecord(record, _version(names[-1]))
        return None

    def replace_record(self, record: ExecutionRecord, version: int) -> int:
        job = record.job
        name = f"{_records(job)}/{version + 1:020d}"
        data = encode_record_file(record)
        created = self.blobs.create(name, data)
        try:
            # A request that was sent again meets what it has made itself; no two coordinators write the same record.
            created = created or self.blobs.get(name) == data
            names = self.blobs.list(_records(job))
        except StoreUnavailable as error:
            raise OutcomeUnknown(f"{self.name}: it is not known whether {name} counts: {error}") from error
        latest = max(map(_version, names), default=version + 1)
        if not created or latest > version + 1:
            raise RecordConflict(
                f"the execution record of job {job!r} in {self.name} has version {latest}, not {version}: "
                "another coordinator has replaced it"
            )
        with contextlib.suppress(StoreUnavailable):  # the decision stands; the next one deletes them
            self.blobs.delete(names[:-_RECORDS_KEPT])
        return version + 1

    def write_file(
        self,
        job: str,
        area: SnapshotArea,
        vertex: str,
        file: str,
        entries: Sequence[StateEntry],
        partition_count: int = PARTITION_COUNT,
    ) -> StateTotals:
        name = f"{_area(job, area)}/{escaped(vertex)}/{escaped(file)}"
        pieces, totals = encode_state_file(vertex, entries, partition_count)
        self.blobs.put(name, pieces)
        return totals

    def read_files(self, job: str, area: SnapshotArea, vertex: str) -> Iterator[StateEntry]:
        for name in self.blobs.list(f"{_area(job, area)}/{escaped(vertex)}"):
            data = self.blobs.get(name)
            if data is None:
                raise SnapshotDamaged(f"{self.name}: {name} was deleted while snapshot {area} was read")
            try:
                yield from decode_state_file(vertex, data)
            except SnapshotDamaged as error:
                raise SnapshotDamaged(f"{self.name}: {name}: {error}") from error

    def write_validation(self, job: str, record: ValidationRecord) -> None:
        self.blobs.put(_area(job, record.area) + _VALIDATION, [encode_record_file(record)])

    def read_validation(self, job: str, area: SnapshotArea) -> ValidationRecord:
        name = _area(job, area) + _VALIDATION
        data = self.blobs.get(name)
        if data is None:
            raise SnapshotDamaged(f"{self.name}: {name} is missing: snapshot {area} of job {job!r} is not whole")
        try:
            record = decode_validation_file(data)
        except SnapshotDamaged as error:
            raise SnapshotDamaged(f"{self.name}: {name}: {error}") from error
        if record.area != area:
            raise SnapshotDamaged(f"{self.name}: {name} is that of snapshot {record.area}, which was copied here")
        return record

    def list_jobs(self) -> list[str]:
        return sorted(map(unescaped, self.blobs.list_folders()))

    def delete_record(self, job: str, version: int) -> None:
        # Oldest first: while any is left, the newest that is left is the one that counted.
        self.blobs.delete([name for name in self.blobs.list(_records(job)) if _version(name) <= version])

    def list_areas(self, job: str) -> list[SnapshotArea]:
        folder = f"{escaped(job)}/areas"
        parts = {part.removesuffix(_VALIDATION) for part in self.blobs.list_parts(folder)}
        matches = filter(None, map(_AREA.fullmatch, parts))
        return sorted(SnapshotArea(int(match[1]), int(match[2])) for match in matches)

    def delete_area(self, job: str, area: SnapshotArea) -> None:
        # The validation record last: an area without one would look as if something had been lost from it.
        self.blobs.delete_folder(_area(job, area))
        self.blobs.delete([_area(job, area) + _VALIDATION])

    def __repr__(self) -> str:
        return f"BlobSnapshotStore({self.blobs!r})"


def escaped(name: str) -> str:
    """Return a name as one part of a path; every name gives another one."""
    part = quote(name, safe=" ()[],=+@:").replace(".", "%2E") or _EMPTY
    if len(part) > _NAME_BYTES_MAX:
        raise JobDefinitionError(
            f"the name {name[:40]!r}... is too long for a file's name: {len(part)} bytes, at most {_NAME_BYTES_MAX}"
        )
    return part


def unescaped(part: str) -> str:
    """Return the name that `escaped` was given."""
    return "" if part == _EMPTY else unquote(part)


def _records(job: str) -> str:
    return f"{escaped(job)}/records"


def _area(job: str, area: SnapshotArea) -> str:
    return f"{escaped(job)}/areas/{area}"


def _version(name: str) -> int:
    return int(name.rpartition("/")[2])
