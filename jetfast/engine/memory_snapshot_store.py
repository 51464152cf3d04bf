"""Snapshots in the memory of this process: the default of tests and of jobs that need not survive it."""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from jetfast.engine.snapshot_store import (
    ExecutionRecord,
    SnapshotArea,
    StateEntry,
    StateTotals,
    ValidationRecord,
    VersionedRecord,
    totals_of,
)
from jetfast.errors import RecordConflict, SnapshotDamaged
from jetfast.types import PARTITION_COUNT


@dataclass
class _Area:
    files: dict[tuple[str, str], tuple[StateEntry, ...]] = field(default_factory=dict)
    """By vertex and name of the file."""
    validation: ValidationRecord | None = None


class MemorySnapshotStore:
    """A SnapshotStore of dictionaries. What is handed over is kept as it is: nothing is encoded, nothing copied."""

    name = "memory"
    survives = "the loss of members, but not of this process"
    shared = False

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._records: dict[str, VersionedRecord] = {}
        self._areas: dict[str, dict[SnapshotArea, _Area]] = {}

    def check(self) -> None:
        """Memory is always there."""

    def sweep(self, job: str) -> None:
        """Nothing in memory outlives its process."""

    def read_record(self, job: str) -> VersionedRecord | None:
        with self._lock:
            return self._records.get(job)

    def read_last(self, job: str) -> VersionedRecord | None:
        return self.read_record(job)

    def replace_record(self, record: ExecutionRecord, version: int) -> int:
        with self._lock:
            present = self._records.get(record.job)
            found = 0 if present is None else present.version
            if found != version:
                raise RecordConflict(
                    f"the execution record of job {record.job!r} in {self.name} has version {found}, not {version}: "
                    "another coordinator has replaced it"
                )
            self._records[record.job] = VersionedRecord(record, version + 1)
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
        kept = tuple(entries)
        with self._lock:
            self._area(job, area).files[vertex, file] = kept
        return totals_of(vertex, kept)

    def read_files(self, job: str, area: SnapshotArea, vertex: str) -> Iterator[StateEntry]:
        with self._lock:
            stored = self._areas.get(job, {}).get(area, _Area())
            files = [entries for (owner, _), entries in stored.files.items() if owner == vertex]
        for entries in files:
            yield from entries

    def write_validation(self, job: str, record: ValidationRecord) -> None:
        with self._lock:
            self._area(job, record.area).validation = record

    def read_validation(self, job: str, area: SnapshotArea) -> ValidationRecord:
        with self._lock:
            stored = self._areas.get(job, {}).get(area, _Area())
        if stored.validation is None:
            raise SnapshotDamaged(f"snapshot {area} of job {job!r} in {self.name}: there is no validation record")
        return stored.validation

    def list_jobs(self) -> list[str]:
        with self._lock:
            return sorted(self._records.keys() | {job for job, areas in self._areas.items() if areas})

    def delete_record(self, job: str, version: int) -> None:
        with self._lock:
            present = self._records.get(job)
            if present is not None and present.version <= version:
                del self._records[job]

    def list_areas(self, job: str) -> list[SnapshotArea]:
        with self._lock:
            return sorted(self._areas.get(job, ()))

    def delete_area(self, job: str, area: SnapshotArea) -> None:
        with self._lock:
            self._areas.get(job, {}).pop(area, None)

    def __repr__(self) -> str:
        return "snapshots.memory()"

    def _area(self, job: str, area: SnapshotArea) -> _Area:
        return self._areas.setdefault(job, {}).setdefault(area, _Area())
