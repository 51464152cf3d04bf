"""Lists and deletes snapshots that are kept under a name; `snapshot_copy` says how they are kept.

A name is deleted by a record that says it stands for nothing: that is the decision, which one of two who replace it at
the same time loses. Then its files go.
"""

from dataclasses import dataclass

import msgspec

from jetfast.engine.snapshot_copy import EXPORTED, find_exported, no_such_snapshot
from jetfast.engine.snapshot_store import NO_STATE, ExecutionRecord, SnapshotStore
from jetfast.errors import SnapshotDamaged


@dataclass(frozen=True)
class NamedSnapshot:
    """One snapshot that jobs can start from: `submit(initial_snapshot=name)`."""

    name: str
    job: str
    """The job that it was taken of."""
    exported_at_us: int
    """Wall clock, microseconds since 1970."""
    steps: tuple[str, ...]
    """Steps that it knows."""
    entries: int
    nbytes: int
    partition_count: int
    problem: str
    """Why no job can start from it; "": one can, as far as its records tell."""


def list_named(store: SnapshotStore, job: str | None = None) -> tuple[NamedSnapshot, ...]:
    """Return the named snapshots of a store (taken of one job), by name. Raises the errors of the store."""
    found = []
    for key in store.list_jobs():
        if not key.startswith(EXPORTED):
            continue
        named = _look_at(store, key.removeprefix(EXPORTED))
        if named is not None and job in (None, named.job):
            found.append(named)
    return tuple(sorted(found, key=lambda named: named.name))


def delete_named(store: SnapshotStore, name: str) -> None:
    """Delete a named snapshot. Jobs that have started from it do not need it.

    Raises JobDefinitionError if there is none, RecordConflict if somebody exports under that name at the same time, and
    the errors of the store: the name may stand for nothing then while files of it are left; the next call deletes them.
    """
    key = EXPORTED + name
    found = store.read_record(key)
    areas = store.list_areas(key)
    if found is None or (found.record.snapshot is None and not areas):
        raise no_such_snapshot(store, name)
    version = store.replace_record(msgspec.structs.replace(found.record, snapshot=None), found.version)
    for area in areas:
        store.delete_area(key, area)
    store.delete_record(key, version)


def _look_at(store: SnapshotStore, name: str) -> NamedSnapshot | None:
    """What is kept under a name; None if it was deleted."""
    try:
        found = store.read_record(EXPORTED + name)
    except SnapshotDamaged as error:
        return NamedSnapshot(name, "", 0, (), 0, 0, 0, str(error))
    if found is None or found.record.snapshot is None:
        return None
    record: ExecutionRecord = found.record
    try:
        validation = find_exported(store, name)
    except SnapshotDamaged as error:
        return NamedSnapshot(name, record.exported_from, record.exported_at_us, (), 0, 0, 0, str(error))
    totals = sum(validation.vertices.values(), NO_STATE)
    return NamedSnapshot(
        name,
        record.exported_from,
        record.exported_at_us,
        tuple(sorted(validation.parallelism)),
        totals.entries,
        totals.nbytes,
        validation.partition_count,
        "",
    )
