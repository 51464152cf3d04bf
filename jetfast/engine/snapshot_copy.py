"""Snapshots under a name of their own: copied out of a job, and into the job that starts from one.

A named snapshot is kept in the store as a job is, under a name that no job may have: one area, and a record that says
which it is. That record is written when the area is whole; before, the name stands for what it stood for.

    job        areas, records      ---- export_snapshot --->   exported:NAME   one area, record (settled)
    other job  area (EXECUTION, 0) <--- import_snapshot ----
"""

import contextlib
from collections.abc import Collection

from jetfast.core.transaction import SETTLED_KINDS
from jetfast.engine.snapshot_store import (
    NO_STATE,
    ExecutionRecord,
    SnapshotArea,
    SnapshotStore,
    ValidationRecord,
    read_whole,
)
from jetfast.errors import JobDefinitionError, StoreUnavailable

EXPORTED = "exported:"
"""Begins the names under which stores keep named snapshots."""
IMPORTED_SNAPSHOT_ID = 0
"""Snapshot id, in its first execution, of what a job starts from; those of its own begin with 1."""


def export_snapshot(
    store: SnapshotStore, job: str, job_id: str, area: SnapshotArea, name: str, now_us: int = 0
) -> None:
    """Copy a decided snapshot of a job, whose transactions are committed, under a name; replaces what it stood for.

    `now_us`: the wall clock, microseconds since 1970, for people.
    Transaction ids are left out: they are settled, and belong to this job. Raises SnapshotDamaged if anything is
    missing, RecordConflict if somebody else exports under that name at the same time, and the errors of the store.
    """
    key = EXPORTED + name
    found = store.read_record(key)
    if found is not None and (found.record.job_id, found.record.snapshot) == (job_id, area):
        return
    store.delete_area(key, area)  # of an attempt that was cut off
    _copy(store, job, area, key, area, leave_out=SETTLED_KINDS)
    record = ExecutionRecord(
        key, job_id, area.execution_id, area, settled=True, exported_from=job, exported_at_us=now_us
    )
    store.replace_record(record, 0 if found is None else found.version)
    for other in store.list_areas(key):
        if other != area:
            store.delete_area(key, other)


def import_snapshot(store: SnapshotStore, name: str, job: str, area: SnapshotArea) -> None:
    """Copy a named snapshot into an area of a job. Errors as `find_exported` and `export_snapshot`."""
    _copy(store, EXPORTED + name, find_exported(store, name).area, job, area)


def find_exported(store: SnapshotStore, name: str) -> ValidationRecord:
    """Return what a named snapshot holds. Raises JobDefinitionError if there is none, and the errors of the store."""
    found = store.read_record(EXPORTED + name)
    if found is None or found.record.snapshot is None:
        raise no_such_snapshot(store, name)
    return store.read_validation(EXPORTED + name, found.record.snapshot)


def no_such_snapshot(store: SnapshotStore, name: str) -> JobDefinitionError:
    """Return the error for a name that stands for nothing."""
    return JobDefinitionError(f"{store.name} has no snapshot named {name!r}; job.export_snapshot({name!r}) makes one")


def _copy(
    store: SnapshotStore,
    source: str,
    source_area: SnapshotArea,
    target: str,
    target_area: SnapshotArea,
    leave_out: Collection[str] = (),
) -> None:
    """Copy an area entry by entry: no more than one is held in memory. A copy that fails leaves nothing behind."""
    record = store.read_validation(source, source_area)
    copied = {}
    try:
        for vertex in record.vertices:
            kept = NO_STATE
            for number, entry in enumerate(read_whole(store, source, record, vertex)):
                if entry.kind not in leave_out:
                    kept += store.write_file(target, target_area, vertex, str(number), [entry], record.partition_count)
            copied[vertex] = kept
        validation = ValidationRecord(target_area, copied, record.partition_count, record.parallelism)
        store.write_validation(target, validation)
    except Exception:
        with contextlib.suppress(StoreUnavailable):  # the next one deletes it
            store.delete_area(target, target_area)
        raise
