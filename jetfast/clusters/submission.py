"""What every cluster does with a submission before it touches a member: checks settings, has the pipeline planned."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from jetfast.clusters.snapshot_settings import SnapshotSettings, SnapshotWishes, choose_snapshots
from jetfast.control.coordinator import JobShape
from jetfast.control.job_settings import JobSettings
from jetfast.control.leases import LEASE_S
from jetfast.control.lifeline import HeldLifeline
from jetfast.control.progress import show_log_lines
from jetfast.control.wire import MESSAGE_BYTES_MAX
from jetfast.core.dag import Dag
from jetfast.engine.execution_plan import make_execution_plan
from jetfast.engine.snapshot_copy import EXPORTED
from jetfast.engine.snapshot_store import SnapshotStore
from jetfast.engine.submission_record import CoordinatorRecord, SubmissionRecord
from jetfast.errors import JobDefinitionError
from jetfast.types import PARTITION_COUNT, Duration, bytes_of, non_negative_duration_us, positive_duration_us

DEFAULT_MEMORY_LIMIT = "1GB"
DEFAULT_LEASE_US = round(LEASE_S * 1e6)
DAG_BYTES_MAX = MESSAGE_BYTES_MAX - 2**20  # room for the rest of the message


class Pipeline(Protocol):
    """What a cluster needs of a pipeline."""

    name: str

    def plan(self, *, member_count: int, workers: int, two_stage: bool | None) -> Dag:
        """Return the graph for so many members with so many workers each. `two_stage` None: the planner chooses."""


@dataclass(frozen=True)
class Submission:
    """A submission that has passed all checks."""

    job: str
    job_id: str
    dag: Dag
    member_count: int
    workers: int
    memory_limit_bytes: int
    snapshots: SnapshotSettings
    parallelism: Mapping[str, int]
    """Processors in the whole cluster, by vertex."""
    record: SubmissionRecord
    """What a store keeps of it."""

    def shape_of(self, member_count: int) -> JobShape:
        """Return the shape of the job on so many members: at most those that it was planned for."""
        return JobShape(
            member_count, self.record.partition_count, _parallelism_of(self.dag, member_count, self.workers)
        )

    def pickled_dag(self) -> bytes:
        """Return the graph for members in other processes, as `messages.Prepare.dag`. Raises JobDefinitionError."""
        import cloudpickle

        try:
            dag: bytes = cloudpickle.dumps(self.dag)
        except Exception as error:
            raise JobDefinitionError(
                f"job {self.job}: a function or object of {self._unpicklable_step()} cannot be pickled, and so cannot "
                f"go to the members: {error}. What cannot be pickled must be made there: in the function, or in "
                "create= of map_using_service"
            ) from error
        if len(dag) > DAG_BYTES_MAX:
            raise JobDefinitionError(
                f"job {self.job}: its steps hold {len(dag) // 10**6} MB, which every member would get; at most "
                f"{DAG_BYTES_MAX // 10**6} MB can be sent. Rows in memory belong into files that members read"
            )
        return dag

    def _unpicklable_step(self) -> str:
        import cloudpickle

        for name, vertex in self.dag.vertices.items():
            try:
                cloudpickle.dumps(vertex)
            except Exception:
                return f"step {name!r}"
        return "a step"

    def pickled_store(self) -> bytes:
        """Return the snapshot store for members in other processes, as `messages.Prepare.snapshot_store`."""
        import cloudpickle

        store = self.snapshots.store
        pickled: bytes = b"" if store is None else cloudpickle.dumps(store)
        return pickled

    @property
    def may_be_taken_over(self) -> bool:
        """Can a coordinator of another process go on with the job?"""
        store = self.snapshots.store
        return store is not None and store.shared

    def settings(
        self,
        pickled_dag: bytes = b"",
        pickled_store: bytes = b"",
        *,
        lease_us: int = DEFAULT_LEASE_US,
        lifeline: HeldLifeline | None = None,
    ) -> JobSettings:
        """Return what the coordinator needs to know; the first two as in `messages.Prepare`. `lifeline` is that of its
        processes.
        """
        snapshots = self.snapshots
        coordinator = None
        if self.may_be_taken_over:
            coordinator = CoordinatorRecord(lease_us=lease_us, lifeline=None if lifeline is None else lifeline.record)
        return JobSettings(
            job=self.job,
            job_id=self.job_id,
            dag=pickled_dag,
            member_count=self.member_count,
            workers=self.workers,
            guarantee=snapshots.guarantee,
            memory_limit_bytes=self.memory_limit_bytes,
            parallelism=self.parallelism,
            reads_edges_first=self.dag.reads_edges_first,
            partition_count=self.record.partition_count,
            snapshot_store=snapshots.store,
            pickled_store=pickled_store,
            snapshot_interval_s=snapshots.interval_s,
            max_restarts=snapshots.max_restarts,
            fresh=snapshots.fresh,
            suspend_on_failure=snapshots.suspend_on_failure,
            initial_snapshot=snapshots.initial_snapshot,
            accept_loss=snapshots.accept_loss,
            job_guarantee=snapshots.job_guarantee,
            sink_guarantees=snapshots.sink_guarantees,
            weakened_by=snapshots.weakened_by,
            submission=self.record,
            coordinator=coordinator,
            lease_s=lease_us / 1e6,
        )


def accept_submission(
    pipeline: Pipeline,
    *,
    cluster: str,
    member_count: int,
    workers: int,
    partition_count: int = PARTITION_COUNT,
    name: str | None,
    memory_limit: str,
    progress: bool | None,
    two_stage: bool | None,
    max_watermark_retention: Duration | None = None,
    snapshots: SnapshotWishes = SnapshotWishes(),  # noqa: B008 (frozen)
    default_store: SnapshotStore | None = None,
) -> Submission:
    """Check the settings, plan the pipeline, log the guarantee. Raises JobDefinitionError and TypeError.

    `cluster` is as `SubmissionRecord.cluster`, `default_store` as in `choose_snapshots`.
    """
    if not callable(getattr(pipeline, "plan", None)):
        raise TypeError(f"submit() needs a jetfast.Pipeline, got {type(pipeline).__name__}")
    job = pipeline.name if name is None else name
    if not isinstance(job, str) or not job:
        raise JobDefinitionError(f"a job's name must be text that is not empty, got {job!r}")
    if job.startswith(EXPORTED):
        raise JobDefinitionError(f"a job's name must not begin with {EXPORTED!r}, as named snapshots do, got {job!r}")
    if progress not in (None, True, False):
        raise TypeError(f"progress must be True, False or None (a bar on a terminal, else lines), got {progress!r}")
    if two_stage not in (None, True, False):
        raise TypeError(f"two_stage must be True, False or None (the planner chooses), got {two_stage!r}")
    snapshots.check()
    memory_limit_bytes = bytes_of(memory_limit, "memory_limit")
    dag = pipeline.plan(member_count=member_count, workers=workers, two_stage=two_stage)
    if max_watermark_retention is not None:
        dag.max_watermark_retention_us = non_negative_duration_us(max_watermark_retention, "max_watermark_retention")
    if progress is not False:
        show_log_lines()
    chosen = choose_snapshots(job, dag, snapshots, default_store)
    if not chosen.goes_on:  # else it finds its own output there
        dag.check_targets()
    parallelism = _parallelism_of(dag, member_count, workers)
    record = SubmissionRecord(
        cluster=cluster,
        members=member_count,
        workers=workers,
        pipeline=dag.name,
        pipeline_digest=dag.digest(),
        settling_steps=dag.settling_steps(),
        guarantee=snapshots.wanted() or chosen.guarantee,
        snapshot_interval_us=positive_duration_us(snapshots.interval, "snapshot_interval"),
        memory_limit_bytes=memory_limit_bytes,
        max_restarts=snapshots.max_restarts,
        suspend_on_failure=snapshots.suspend_on_failure,
        two_stage=two_stage,
        max_watermark_retention_us=dag.max_watermark_retention_us,
        partition_count=partition_count,
    )
    return Submission(
        job, uuid.uuid4().hex, dag, member_count, workers, memory_limit_bytes, chosen, parallelism, record
    )


def _parallelism_of(dag: Dag, member_count: int, workers: int) -> Mapping[str, int]:
    plan = make_execution_plan(dag, member_count, workers)
    return {vertex: planned.total for vertex, planned in plan.vertices.items()}


def at_least_one(value: int, what: str) -> int:
    """Return a count of members, workers or partitions. Raises TypeError and JobDefinitionError."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{what} must be a whole number, got {value!r}")
    if value < 1:
        raise JobDefinitionError(f"{what} must be at least 1, got {value}")
    return value
