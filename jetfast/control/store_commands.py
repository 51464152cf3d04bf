"""What the coordinator asks of the snapshot store, and what comes back: commands and events of machines, as plain data.

    ReadRecord       -> RecordRead       or StoreFailed
    WriteValidation  -> StoreWritten     or StoreFailed
    ReplaceRecord    -> StoreWritten     or StoreFailed
    ExportSnapshot   -> StoreWritten     or StoreFailed
    ImportSnapshot   -> StoreWritten     or StoreFailed
    DeleteAreas         (nothing; what cannot be deleted now is deleted after the next snapshot)
    DeleteUndecided     (nothing; likewise)

At most one of those that are answered is awaited at a time. A store may take as long as it likes: the machines never
wait. Besides, a coordinator looks at the record a few times within a lease, whoever asks for what: RecordSeen.
"""

import logging
import time
from dataclasses import dataclass

from jetfast.control.lifeline import has_ended
from jetfast.core.crash_points import reach
from jetfast.engine.snapshot_copy import export_snapshot, import_snapshot
from jetfast.engine.snapshot_store import (
    ExecutionRecord,
    SnapshotArea,
    SnapshotStore,
    ValidationRecord,
    VersionedRecord,
)
from jetfast.engine.submission_record import CoordinatorRecord
from jetfast.errors import JetfastError, OutcomeUnknown, SnapshotDamaged

logger = logging.getLogger("jetfast")


@dataclass(frozen=True)
class ReadRecord:
    """Read the execution record of the job. `fresh`: it begins from the beginning, whatever was lost of the record."""

    fresh: bool = False


@dataclass(frozen=True)
class WriteValidation:
    """Store what must be in the area of a snapshot."""

    record: ValidationRecord


@dataclass(frozen=True)
class ReplaceRecord:
    """Compare-and-set the execution record: it must still have `version`."""

    record: ExecutionRecord
    version: int


@dataclass(frozen=True)
class ExportSnapshot:
    """Copy a snapshot of the job, all of whose transactions are committed, under a name."""

    job_id: str
    area: SnapshotArea
    name: str


@dataclass(frozen=True)
class ImportSnapshot:
    """Copy a named snapshot into an area of the job."""

    name: str
    area: SnapshotArea


@dataclass(frozen=True)
class DeleteAreas:
    """Delete all areas of the job that are older than the first of `keep`, and not among `keep`."""

    keep: tuple[SnapshotArea, ...]


@dataclass(frozen=True)
class DeleteUndecided:
    """Delete the areas of snapshots that failed: all between the last decided one and `before`, which stay themselves.

    Given only when it is known that none of them was decided and that no member writes to them any more. Of the areas
    that are older than the decided one the newest stays: a store that was full when it should delete the others must
    not stay full.
    """

    decided: SnapshotArea | None
    """None: no snapshot was decided yet."""
    before: SnapshotArea


StoreCommand = (
    ReadRecord | WriteValidation | ReplaceRecord | ExportSnapshot | ImportSnapshot | DeleteAreas | DeleteUndecided
)


@dataclass(frozen=True)
class RecordRead:
    """There is this record, or none."""

    found: VersionedRecord | None
    uncertain: tuple[CoordinatorRecord, ...] = ()
    """Of its coordinators, those whose processes may not all have ended."""


@dataclass(frozen=True)
class RecordSeen:
    """The record is that of this execution; None: there is none any more."""

    execution_id: int | None


@dataclass(frozen=True)
class StoreWritten:
    """It is written. `version`: of the record, after ReplaceRecord."""

    version: int = 0


@dataclass(frozen=True)
class StoreFailed:
    """It could not be read or written, or nobody knows (OutcomeUnknown)."""

    error: Exception


StoreAnswer = RecordRead | StoreWritten | StoreFailed


def perform(store: SnapshotStore, job: str, command: StoreCommand) -> StoreAnswer | None:
    """Do what a command says, for as long as it takes; return the answer (None: nobody waits for one)."""
    try:
        if isinstance(command, ReadRecord):
            return _read_record(store, job, command.fresh)
        if isinstance(command, WriteValidation):
            reach("before_validation_record")
            store.write_validation(job, command.record)
            return StoreWritten()
        if isinstance(command, ReplaceRecord):
            return StoreWritten(_replace_record(store, command))
        if isinstance(command, ExportSnapshot):
            export_snapshot(store, job, command.job_id, command.area, command.name, time.time_ns() // 1000)
            return StoreWritten()
        if isinstance(command, ImportSnapshot):
            import_snapshot(store, command.name, job, command.area)
            return StoreWritten()
        if isinstance(command, DeleteUndecided):
            _delete_undecided(store, job, command)
        else:
            _delete_areas(store, job, command.keep)
        return None
    except JetfastError as error:
        if not isinstance(command, DeleteAreas | DeleteUndecided):
            return StoreFailed(error)
        logger.warning("job %s: old snapshots in %s are kept for now: %s", job, store.name, error)
        return None
    except Exception as error:  # a store's own: what it had done by then is not known
        unknown = OutcomeUnknown(f"{store.name} failed: {type(error).__name__}: {error}")
        unknown.__cause__ = error
        return StoreFailed(unknown)


def look(store: SnapshotStore, job: str) -> RecordSeen | None:
    """See whose the job is; None: its record cannot be read now."""
    try:
        found = store.read_record(job)
    except Exception as error:
        logger.debug("job %s: its record in %s cannot be read: %s", job, store.name, error)
        return None
    return RecordSeen(None if found is None else found.record.execution_id)


def _read_record(store: SnapshotStore, job: str, fresh: bool) -> RecordRead:
    try:
        found = store.read_record(job)
    except SnapshotDamaged as error:
        if not fresh:
            raise
        logger.warning("job %s: begins from the beginning: %s", job, error)
        found = store.read_last(job)
    if found is None:
        return RecordRead(None)
    return RecordRead(found, tuple(known for known in found.record.coordinators if not have_ended(known)))


def have_ended(coordinator: CoordinatorRecord) -> bool:
    """Have all processes of a coordinator ended, for certain?"""
    return coordinator.lifeline is not None and has_ended(coordinator.lifeline)


def _replace_record(store: SnapshotStore, command: ReplaceRecord) -> int:
    snapshot = command.record.snapshot
    if snapshot is None or snapshot.execution_id != command.record.execution_id or command.record.settled:
        return store.replace_record(command.record, command.version)  # an execution begins, or nothing is left to do
    reach("between_records")
    version = store.replace_record(command.record, command.version)
    reach("after_execution_record")
    return version


def _delete_areas(store: SnapshotStore, job: str, keep: tuple[SnapshotArea, ...]) -> None:
    # Newer ones than the last decided may belong to a coordinator that has taken over: they are never touched.
    for area in store.list_areas(job):
        if area < keep[0] and area not in keep:
            store.delete_area(job, area)


def _delete_undecided(store: SnapshotStore, job: str, command: DeleteUndecided) -> None:
    areas, decided = store.list_areas(job), command.decided
    older = [] if decided is None else [area for area in areas if area < decided]
    for area in areas:
        if area < command.before and area != decided and area not in older[-1:]:
            store.delete_area(job, area)
