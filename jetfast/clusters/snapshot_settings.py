"""Decides at submission which guarantee a job gets, where its snapshots go, and says so in the log."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jetfast.clusters.running_jobs import refuse_running
from jetfast.control.job_outcomes import check_losses, refuse_completed, refuse_dropped
from jetfast.core.dag import Dag
from jetfast.core.guarantee import Guarantee
from jetfast.engine.restored_state import count_rows_written
from jetfast.engine.snapshot_copy import EXPORTED, find_exported
from jetfast.engine.snapshot_store import SnapshotStore, ValidationRecord
from jetfast.errors import JobDefinitionError, SnapshotDamaged
from jetfast.types import Duration, positive_duration_us

logger = logging.getLogger("jetfast")

DEFAULT_SNAPSHOT_INTERVAL = "10s"


@dataclass(frozen=True)
class SnapshotWishes:
    """What the user says of snapshots; see `Cluster.submit`."""

    guarantee: Guarantee | str | None = None
    store: SnapshotStore | None = None
    interval: Duration = DEFAULT_SNAPSHOT_INTERVAL
    max_restarts: int | None = None
    fresh: bool = False
    suspend_on_failure: bool = False
    initial_snapshot: str | None = None
    accept_loss: Sequence[str] = ()

    def check(self) -> None:
        """Raise TypeError, JobDefinitionError or DurationError for what cannot be meant."""
        self.wanted()
        check_store(self.store)
        positive_duration_us(self.interval, "snapshot_interval")
        if self.max_restarts is not None:
            if not isinstance(self.max_restarts, int) or isinstance(self.max_restarts, bool):
                raise TypeError(f"max_restarts must be a whole number, or None (for ever), got {self.max_restarts!r}")
            if self.max_restarts < 0:
                raise JobDefinitionError(f"max_restarts must be at least 0, got {self.max_restarts}")
        if self.initial_snapshot is not None and not isinstance(self.initial_snapshot, str):
            raise TypeError(f"initial_snapshot must be the name of a snapshot, or None, got {self.initial_snapshot!r}")
        check_losses(self.accept_loss)
        if self.accept_loss and (self.fresh or self.initial_snapshot is not None):
            raise JobDefinitionError(
                "accept_loss is for a job that goes on from its last snapshot; leave out fresh and initial_snapshot"
            )
        for what, value in (("fresh", self.fresh), ("suspend_on_failure", self.suspend_on_failure)):
            if not isinstance(value, bool):
                raise TypeError(f"{what} must be True or False, got {value!r}")

    def wanted(self) -> Guarantee | None:
        """Return the guarantee that is wanted, if the user says which. Raises as `check`."""
        return None if self.guarantee is None else Guarantee.of(self.guarantee, "guarantee")


@dataclass(frozen=True)
class SnapshotSettings:
    """What a job gets."""

    guarantee: Guarantee
    """Of its state: what the engine runs with."""
    job_guarantee: Guarantee
    """Of the sinks that count."""
    sink_guarantees: Mapping[str, Guarantee]
    store: SnapshotStore | None
    """None: it takes no snapshots."""
    interval_s: float
    max_restarts: int | None
    fresh: bool
    suspend_on_failure: bool
    initial_snapshot: str | None
    accept_loss: tuple[str, ...]
    weakened_by: tuple[str, ...]
    """Why the guarantee is weaker than the one that was wanted, a sentence for each step."""
    goes_on: bool
    """The store knows the job, or it starts from a named snapshot; it may have no snapshot yet, and begin anew."""


def check_store(store: SnapshotStore | None) -> None:
    """Raise TypeError for what is no snapshot store."""
    if store is not None and not callable(getattr(store, "replace_record", None)):
        raise TypeError(
            "snapshot_store must be a store of jetfast.snapshots, such as "
            f'jetfast.snapshots.directory("/var/lib/jobs"), got {store!r}'
        )


def check_shared(store: SnapshotStore | None) -> None:
    """Raise TypeError for what is no snapshot store, JobDefinitionError for one that processes cannot share."""
    check_store(store)
    if store is not None and not store.shared:
        raise JobDefinitionError(
            f"members are processes, which cannot share the snapshot store {store.name!r} of this one; give "
            'snapshot_store= a place that all of them see, such as jetfast.snapshots.directory("/var/lib/jobs")'
        )


def choose_snapshots(
    job: str, dag: Dag, wishes: SnapshotWishes, default_store: SnapshotStore | None
) -> SnapshotSettings:
    """Return guarantee and store of a job, after looking whether the store can keep it and what it knows of the job.

    `default_store` is for a job that wants a guarantee and names no store; None: it must name one.
    Raises JobDefinitionError, and what the store raises when it cannot be reached.
    """
    store = wishes.store
    wanted = wishes.wanted()
    if wanted is None:
        wanted = Guarantee.NONE if store is None else Guarantee.EXACTLY_ONCE
    kept = dag.guarantees(wanted)
    guarantee = kept.state
    promised = kept.job.name
    for sentence in kept.weakened_by:
        if kept.job is wanted:
            logger.warning("job %s: the guarantee is %s, but %s", job, promised, sentence)
        else:
            logger.warning("job %s: the guarantee is %s instead of %s: %s", job, promised, wanted.name, sentence)
    if guarantee is Guarantee.NONE:
        if wishes.interval != DEFAULT_SNAPSHOT_INTERVAL or wanted is not Guarantee.NONE:
            why = "its guarantee is NONE" if store is not None or wishes.guarantee is not None else "it has no store"
            logger.warning(
                "job %s: takes no snapshots, at no interval, and starts from the beginning after a failure: %s",
                job,
                kept.weakened_by[0] if kept.weakened_by else why,
            )
        store = None
    elif store is None:
        if default_store is None:
            raise JobDefinitionError(
                f"guarantee {wanted.name} needs a place for snapshots: give snapshot_store=, such as "
                'jetfast.snapshots.directory("/var/lib/jobs")'
            )
        store = default_store
    goes_on = False
    if store is None and wishes.initial_snapshot is not None:
        raise JobDefinitionError(
            f"job {job!r} cannot start from snapshot {wishes.initial_snapshot!r}: its guarantee is NONE, so it has no "
            "snapshot store; give guarantee= and snapshot_store="
        )
    if store is None:
        reason = " (no snapshot store: a restart starts from the beginning)" if wishes.guarantee is None else ""
        logger.info("job %s: guarantee %s%s", job, promised, reason)
    else:
        store.check()
        store.sweep(job)
        refuse_running(job, store)
        if wishes.initial_snapshot is not None:
            goes_on = True
            _look_for_exported(job, dag, store, wishes.initial_snapshot)
        else:
            goes_on = not wishes.fresh and _look_for_record(job, dag, store)
        logger.info(
            "job %s: guarantee %s, a snapshot every %s in %s, which survives %s",
            job,
            promised,
            wishes.interval,
            store.name,
            store.survives,
        )
        if not dag.tells_latest():
            logger.warning(
                "job %s: none of its sinks can tell an older copy of %s from the newest state: never put the store "
                "back from a backup, or rows are written twice",
                job,
                store.name,
            )
    return SnapshotSettings(
        guarantee,
        kept.job,
        kept.sinks,
        store,
        positive_duration_us(wishes.interval, "snapshot_interval") / 1e6,
        wishes.max_restarts,
        wishes.fresh,
        wishes.suspend_on_failure,
        wishes.initial_snapshot,
        tuple(wishes.accept_loss),
        tuple(kept.weakened_by),
        goes_on,
    )


def _look_for_record(job: str, dag: Dag, store: SnapshotStore) -> bool:
    """Refuse a job that is completed or whose snapshot is gone, and say where one goes on; False for one that is new.

    The coordinator looks again when it begins.
    """
    found = store.read_record(job)
    if found is None:
        return False
    record = found.record
    if record.completed and record.settled:
        raise refuse_completed(job)
    if (refused := refuse_dropped(record, dag.settling_steps())) is not None:
        raise refused
    if record.snapshot is None:
        where = "the beginning"
    else:
        where = f"snapshot {record.snapshot}"
        try:
            saved = store.read_validation(job, record.snapshot)
        except SnapshotDamaged as error:  # what else is missing members say when they restore
            raise SnapshotDamaged(
                f"job {job!r} cannot go on from its last snapshot: {error}; bring the file back, or submit the job "
                "with fresh=True to run it from the beginning"
            ) from error
        _compare_steps(job, dag, saved)
    logger.info("job %s: %s knows a job of this name; it goes on from %s", job, store.name, where)
    return True


def _look_for_exported(job: str, dag: Dag, store: SnapshotStore, name: str) -> None:
    """Refuse a snapshot that is not there, and say what of it has no place in the job."""
    saved = find_exported(store, name)
    _compare_steps(job, dag, saved)
    logger.info("job %s: starts from snapshot %r in %s", job, name, store.name)
    exported = store.read_record(EXPORTED + name)
    if exported is not None:
        _tell_repeated(job, dag, store, name, saved, exported.record.exported_from)


def _tell_repeated(job: str, dag: Dag, store: SnapshotStore, name: str, saved: ValidationRecord, source: str) -> None:
    """Say how many rows the job that a snapshot was taken of has written since: they are written again."""
    found = store.read_record(source) if source else None
    if found is None or found.record.snapshot is None:
        return
    sinks = {vertex for vertex in dag.vertices if not dag.outbound(vertex)} - dag.side_sinks()
    try:
        later = store.read_validation(source, found.record.snapshot)
        before = count_rows_written(store, EXPORTED + name, saved, sinks)
        rows = count_rows_written(store, source, later, sinks) - before
    except SnapshotDamaged as error:
        logger.warning("job %s: rows that are written again cannot be counted: %s", job, error)
        return
    if rows > 0:
        logger.warning(
            "job %s: %s rows are written again: job %r had written so many more at its last snapshot than at snapshot "
            "%r. In the same place they are there twice, unless the sink replaces rows by key",
            job,
            f"{rows:,}",
            source,
            name,
        )


def _compare_steps(job: str, dag: Dag, saved: ValidationRecord) -> None:
    """State is matched by the names of steps."""
    stateful = {name for name, totals in saved.vertices.items() if totals.entries}
    if dropped := ", ".join(map(repr, sorted(stateful - dag.vertices.keys()))):
        logger.warning("job %s: its snapshot holds state of steps that it has no more: %s", job, dropped)
    if added := ", ".join(map(repr, sorted(dag.vertices.keys() - saved.parallelism.keys()))):
        logger.info("job %s: steps that its snapshot does not know start empty: %s", job, added)
