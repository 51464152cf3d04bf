"""A snapshot store that fails now and then: before anything was done, or after, so that nobody knows."""

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

from jetfast.engine.memory_snapshot_store import MemorySnapshotStore
from jetfast.engine.snapshot_store import (
    ExecutionRecord,
    SnapshotArea,
    StateEntry,
    StateTotals,
    ValidationRecord,
    VersionedRecord,
)
from jetfast.errors import OutcomeUnknown, StoreUnavailable
from jetfast.types import PARTITION_COUNT

AREAS_MAX = 4
"""Room of a store for each job: the last two decided snapshots, one that is being taken, and one that has failed."""


class FaultyStore(MemorySnapshotStore):
    """Fails each call with probability `rate`; `note` is told of each failure by name. It has room for AREAS_MAX."""

    def __init__(self, random: Random, rate: float, note: Callable[[str], None]) -> None:
        super().__init__()
        self.random, self.rate, self.note = random, rate, note
        self.validation_rate = 0.0
        """Of validation records alone: rounds that fail when all has been prepared."""
        self.decided = 0
        """Snapshots whose record was written."""

    def fails(self, what: str) -> bool:
        if self.random.random() >= self.rate:
            return False
        self.note(what)
        return True

    def is_full(self, job: str, area: SnapshotArea) -> bool:
        """Is there no room for this area?"""
        areas = self.list_areas(job)
        if area in areas or len(areas) < AREAS_MAX:
            return False
        self.note("store is full")
        return True

    def read_record(self, job: str) -> VersionedRecord | None:
        if self.fails("store refuses"):
            raise StoreUnavailable("the store does not answer")
        return super().read_record(job)

    def replace_record(self, record: ExecutionRecord, version: int) -> int:
        if self.fails("store refuses"):
            raise StoreUnavailable("the store does not answer")
        if self.fails("decision unknown"):
            if self.random.random() < 0.5:
                self._replace(record, version)
            raise OutcomeUnknown("the store's answer was lost")
        return self._replace(record, version)

    def _replace(self, record: ExecutionRecord, version: int) -> int:
        before = self.read_record_itself(record.job)
        replaced = super().replace_record(record, version)
        if before is None or before.record.snapshot != record.snapshot:
            self.decided += record.snapshot is not None
        return replaced

    def is_completed(self) -> bool:
        """Does any job have nothing left to do but to commit?"""
        return any(found.record.completed for found in self._records.values())

    def read_record_itself(self, job: str) -> VersionedRecord | None:
        """As `read_record`, without a failure."""
        return super().read_record(job)

    def write_file(
        self,
        job: str,
        area: SnapshotArea,
        vertex: str,
        file: str,
        entries: Sequence[StateEntry],
        partition_count: int = PARTITION_COUNT,
    ) -> StateTotals:
        if self.fails("store refuses") or self.is_full(job, area):
            raise StoreUnavailable("the store is full")
        return super().write_file(job, area, vertex, file, entries, partition_count)

    def read_files(self, job: str, area: SnapshotArea, vertex: str) -> Iterator[StateEntry]:
        if self.fails("store refuses"):
            raise StoreUnavailable("the store does not answer")
        return super().read_files(job, area, vertex)

    def write_validation(self, job: str, record: ValidationRecord) -> None:
        if self.fails("store refuses") or self.random.random() < self.validation_rate or self.is_full(job, record.area):
            raise StoreUnavailable("the store is full")
        super().write_validation(job, record)

    def delete_area(self, job: str, area: SnapshotArea) -> None:
        if self.fails("store refuses"):
            raise StoreUnavailable("the store does not answer")
        super().delete_area(job, area)

    def __getstate__(self) -> Any:
        raise TypeError("a store in memory stays where it is")
