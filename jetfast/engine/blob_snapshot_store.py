"""Snapshots as files, in whatever keeps named bytes: a directory, an object store.

    JOB/records/NUMBER                      execution records; the greatest number counts
    JOB/marks/NUMBER                        high-water mark: what the greatest number was
    JOB/areas/EXECUTION-SNAPSHOT/VERTEX/FILE
    JOB/areas/EXECUTION-SNAPSHOT.validation

The compare-and-set of the execution record is the exclusive creation of the file with the next number: of two who try,
one finds it there. Old records are deleted in the end, so an old coordinator may find "its" number free again: whoever
has created a record looks whether a greater one exists, and has lost if so. What it created never counted.

Records form a chain: each holds its number and the checksum of the one before. When one has been created, and so the
decision has been made, the high-water mark follows: it lags by one if the process dies in between, or by more if the
store refuses it, and never leads. So it decides nothing, but who finds a newest record that is older than the mark
knows that a newer one was lost or that an older copy was put in its place.
"""

import contextlib
import re
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol
from urllib.parse import quote, unquote

import msgspec
from msgspec import UNSET

from jetfast.engine.snapshot_files import (
    decode_execution_file,
    decode_mark_file,
    decode_state_file,
    decode_validation_file,
    encode_record_file,
    encode_state_file,
)
from jetfast.engine.snapshot_store import (
    ExecutionRecord,
    HighWaterMark,
    RecordLink,
    SnapshotArea,
    StateEntry,
    StateTotals,
    ValidationRecord,
    VersionedRecord,
)
from jetfast.errors import JobDefinitionError, OutcomeUnknown, RecordConflict, SnapshotDamaged, StoreUnavailable
from jetfast.kernels.checksums import crc32c
from jetfast.types import PARTITION_COUNT

_RECORDS_KEPT = 2
_VALIDATION = ".validation"
_NAME_BYTES_MAX = 200
_EMPTY = "%"
_AREA = re.compile(r"(\d+)-(\d+)")
_WAY_OUT = (
    "Bring the newest record back; or submit the job with fresh=True to run it from the beginning: going on from an "
    "older record would write rows twice"
)


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

    def sweep(self, folder: str) -> None:
        """Remove what processes that were killed have left unfinished below "folder/", and beside it."""

    def check_access(self) -> None:
        """Raise JobDefinitionError if other users can write here; log a warning if that is possible.

        Who can write to a store decides what jobs restore and commit.
        """

    def put(self, name: str, pieces: Iterable[bytes | memoryview]) -> None:
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
        self._checksums: dict[str, tuple[int, int]] = {}
        """Version and checksum of the last record that was read or written, by job."""

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
        self.blobs.check_access()

    def sweep(self, job: str) -> None:
        self.blobs.sweep(escaped(job))

    def read_record(self, job: str) -> VersionedRecord | None:
        while True:
            mark = self._read_mark(job)  # before the records: so it cannot lead
            found = self._newest(job)
            if found is None:
                problem = None if mark is None else self._all_lost(job, mark)
                if problem is None:
                    return None
            else:
                name, data = found
                record, problem = self._read(job, name, data)
                if record is not None and problem is None:
                    problem = self._against_mark(record, crc32c(data), name, mark)
                if record is not None and problem is None:
                    version = _version(name)
                    self._checksums[job] = version, crc32c(data)
                    return VersionedRecord(msgspec.structs.replace(record, link=UNSET), version)
            if self._read_mark(job) == mark:  # nobody has replaced or deleted the record meanwhile
                raise SnapshotDamaged(f"{self.name}: {problem}")

    def read_last(self, job: str) -> VersionedRecord | None:
        names = self.blobs.list(_records(job))
        marks = self.blobs.list(_marks(job))
        version = max(map(_version, [*names, *marks]), default=0)
        for name in reversed(names):
            try:
                data = self.blobs.get(name)
            except SnapshotDamaged:
                continue
            record = None if data is None else self._read(job, name, data)[0]
            if record is not None:
                return VersionedRecord(msgspec.structs.replace(record, link=UNSET), version)
        return VersionedRecord(ExecutionRecord(job, "", 0, settled=True), version) if names else None

    def _newest(self, job: str) -> tuple[str, bytes] | None:
        """The name and the bytes of the newest record."""
        # Between the look at the list and the reading the record may be replaced, and deleted as an old one.
        while names := self.blobs.list(_records(job)):
            data = self.blobs.get(names[-1])
            if data is not None:
                return names[-1], data
        return None

    def _read(self, job: str, name: str, data: bytes) -> tuple[ExecutionRecord | None, str | None]:
        """A record, or what is wrong with it."""
        try:
            record = decode_execution_file(data)
        except SnapshotDamaged as error:
            return None, f"{name}: {error}"
        if record.job != job:
            return None, f"{name} is that of job {record.job!r}, not of {job!r}"
        if record.link is not UNSET and record.link.version != _version(name):
            return None, (
                f"{name} is a copy of the record of version {record.link.version} ({record.stand}): the record that "
                f"was here is lost. {_WAY_OUT}"
            )
        return record, None

    def _against_mark(
        self, record: ExecutionRecord, checksum: int, name: str, mark: HighWaterMark | None
    ) -> str | None:
        """What is wrong with a newest record, if the high-water mark is right."""
        version = _version(name)
        if mark is None or mark.version < version - 1:
            return None
        if mark.version > version:
            return (
                f"the newest execution record of job {record.job!r} is missing: {name} has version {version} "
                f"({record.stand}), but {mark} was written. {_WAY_OUT}"
            )
        if mark.version == version and mark.checksum != checksum:
            return f"{name} ({record.stand}) is not the record that was written as {mark}. {_WAY_OUT}"
        if mark.version < version and record.link is not UNSET and record.link.previous not in (None, mark.checksum):
            return f"{name} ({record.stand}) does not follow the record that was written as {mark}. {_WAY_OUT}"
        return None

    def _all_lost(self, job: str, mark: HighWaterMark) -> str | None:
        """What is wrong if there is a mark and no record: nothing, if the mark is all that is left of the job."""
        if not self.list_areas(job):
            return None
        return f"all execution records of job {job!r} are missing; the last was {mark}. {_WAY_OUT}"

    def _read_mark(self, job: str) -> HighWaterMark | None:
        while names := self.blobs.list(_marks(job)):
            data = self.blobs.get(names[-1])
            if data is not None:
                try:
                    return decode_mark_file(data)
                except SnapshotDamaged as error:
                    raise SnapshotDamaged(f"{self.name}: {names[-1]}: {error}") from error
        return None

    def replace_record(self, record: ExecutionRecord, version: int) -> int:
        job = record.job
        name = f"{_records(job)}/{version + 1:020d}"
        data = encode_record_file(
            msgspec.structs.replace(record, link=RecordLink(version + 1, self._checksum(job, version)))
        )
        if version == 0 and (left := self.blobs.list(_marks(job))):
            self.blobs.delete(left)  # a mark that an earlier job of this name has left would lead
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
        self._checksums[job] = version + 1, crc32c(data)
        mark = HighWaterMark(version + 1, crc32c(data), record.execution_id, record.snapshot)
        with contextlib.suppress(StoreUnavailable):  # the decision stands; the next one does it
            self._write_mark(job, mark)
            self.blobs.delete(names[:-_RECORDS_KEPT])
        return version + 1

    def _checksum(self, job: str, version: int) -> int | None:
        """Of the record of that version, None if there is none."""
        known, checksum = self._checksums.get(job, (0, 0))
        if known == version and version:
            return checksum
        data = self.blobs.get(f"{_records(job)}/{version:020d}") if version else None
        return None if data is None else crc32c(data)

    def _write_mark(self, job: str, mark: HighWaterMark) -> None:
        # Under a name of its own: one that comes late, from a coordinator that has lost the job, is not the greatest.
        self.blobs.put(f"{_marks(job)}/{mark.version:020d}", [encode_record_file(mark)])
        self.blobs.delete([name for name in self.blobs.list(_marks(job)) if _version(name) < mark.version])

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
        # The mark first: it must not lead. Oldest record first: while any is left, the newest that is left counted.
        for folder in (_marks(job), _records(job), _marks(job)):  # a mark may come late
            self.blobs.delete([name for name in self.blobs.list(folder) if _version(name) <= version])
        self._checksums.pop(job, None)

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


def _marks(job: str) -> str:
    return f"{escaped(job)}/marks"


def _area(job: str, area: SnapshotArea) -> str:
    return f"{escaped(job)}/areas/{area}"


def _version(name: str) -> int:
    return int(name.rpartition("/")[2])
