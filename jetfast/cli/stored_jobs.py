"""Snapshot stores, as they are named on the command line, and the jobs that they know."""

import os

from msgspec import Struct

from jetfast.api import snapshots
from jetfast.engine.snapshot_copy import EXPORTED
from jetfast.engine.snapshot_store import SnapshotStore
from jetfast.errors import JobDefinitionError, SnapshotDamaged


class StoredJob(Struct, frozen=True):
    """A job as its store knows it; it may run at present or not."""

    job: str
    completed: bool
    """There is nothing left to run or to commit."""
    suspended: bool
    """It was suspended, and has not begun again since."""
    execution_id: int
    snapshot: str | None
    """Execution and number of the last decided snapshot."""
    cluster: str | None
    """Where it was submitted to last; this and the next two are None if the store does not tell."""
    members: int | None
    workers: int | None
    guarantee: str | None
    problem: str | None
    """Why the record cannot be read."""


def open_store(place: str, *, must_exist: bool = False) -> SnapshotStore:
    """Return the store at a directory or a URL. JobDefinitionError: it must exist, and does not."""
    if "://" in place:
        return snapshots.object_store(place)
    if must_exist and not os.path.isdir(place):
        raise JobDefinitionError(f"there is no directory {place!r} that could hold snapshots")
    return snapshots.directory(place)


def list_stored(store: SnapshotStore) -> list[StoredJob]:
    """Return the jobs of a store, by name; named snapshots are not among them. Raises the errors of the store."""
    jobs = [job for job in store.list_jobs() if not job.startswith(EXPORTED)]
    return [found for job in jobs if (found := _look_at(store, job)) is not None]


def find_completed(store: SnapshotStore | None, job: str, since: int = 0) -> StoredJob | None:
    """Return a job that a store knows as completed by an execution later than `since`; None: it does not."""
    found = None if store is None else _look_at(store, job)
    return found if found is not None and found.completed and found.execution_id > since else None


def has_begun(store: SnapshotStore | None, job: str, since: int) -> bool:
    """Does a store know an execution of a job that began after the id `since`? No if that is 0."""
    found = _look_at(store, job) if store is not None and since else None
    return found is not None and found.execution_id > since


def _look_at(store: SnapshotStore, job: str) -> StoredJob | None:
    try:
        known = store.read_record(job)
    except SnapshotDamaged as error:
        return StoredJob(job, False, False, 0, None, None, None, None, None, str(error))
    if known is None:
        return None
    record, submission = known.record, known.record.submission
    return StoredJob(
        job,
        record.completed and record.settled,
        record.suspended,
        record.execution_id,
        None if record.snapshot is None else str(record.snapshot),
        None if submission is None else submission.cluster,
        None if submission is None else submission.members,
        None if submission is None else submission.workers,
        None if submission is None else submission.guarantee.name,
        None,
    )
