"""What a job tells of itself to other processes: plain data, as `jetfast status JOB --json` prints it.

Names and meanings stay; what comes later is added. Times that end in `_at_us` are wall clock, microseconds since 1970
UTC; those that end in `_s` are seconds; `watermark_us` is event time.
"""

import os
import socket
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from jetfast import __version__
from jetfast.core.guarantee import Guarantee

if TYPE_CHECKING:
    from jetfast.control.job import Job


class MemberFigures(Struct, frozen=True):
    """One member of the present execution that is there."""

    member: int
    pid: int
    host: str
    rows_read: int


class SnapshotFigures(Struct, frozen=True):
    """One snapshot that was taken, or failed."""

    snapshot_id: int
    execution_id: int
    kind: str
    """regular, terminal or final."""
    started_s: float
    """Since the job was submitted."""
    seconds: float
    entries: int
    bytes: int
    pause_us: int
    """The longest that a step stood still for it."""
    align_us: int
    """The longest that a step waited for barriers of its other inputs."""
    errors: tuple[str, ...]
    """Why it failed; none: it succeeded."""


class WatermarkHolder(Struct, frozen=True):
    """The source partition that holds event time back."""

    source: str
    partition: str
    member: int
    processor: int
    watermark_us: int | None
    state: str
    """reading, silent, idle, unread, blocked or finished."""
    waits_for: str
    """What must happen for its watermark to rise."""


class StepFigures(Struct, frozen=True):
    """One step: its processors on all members together."""

    rows_in: int
    rows_out: int
    queued_items: int
    """Batches that wait for it."""
    late_rows: int


class JobReport(Struct, frozen=True):
    """Where a job stands."""

    job: str
    id: str
    """Tells this submission apart from all others."""
    pid: int
    """Of the process that coordinates it."""
    host: str
    jetfast: str
    """Version of jetfast that runs it."""
    cluster: str | None
    """local, processes or spark; None: it runs on none of them."""
    status: str
    """not running, starting, running, suspended, suspended, exporting its snapshot, completing, failed or completed."""
    guarantee: str
    """NONE, AT_LEAST_ONCE or EXACTLY_ONCE: the weakest of the sinks that count."""
    sink_guarantees: dict[str, str]
    """Of each sink, by name of step."""
    weakened_by: tuple[str, ...]
    execution_id: int
    submitted_at_us: int
    seconds: float
    """Since it was submitted."""
    restarts: int
    members_wanted: int
    members: tuple[MemberFigures, ...]
    workers: int
    """Threads of each member."""
    store: str | None
    """Where it keeps its snapshots."""
    survives: str | None
    """What that store outlives."""
    snapshot_interval_s: float | None
    snapshots_taken: int
    snapshots_failed: int
    last_snapshot: SnapshotFigures | None
    rows_read: int
    total_rows: int | None
    """That the sources will give, if they know."""
    rows_written: int
    rows_per_second: float
    late_rows: int
    partly_late_rows: int
    rejected_rows: int
    watermark_us: int | None
    """The lowest of the sources that are waited for."""
    watermark_lag_us: int | None
    """How far it is behind the wall clock."""
    held_back_by: WatermarkHolder | None
    waits_for: tuple[str, ...]
    """What the job, and the snapshot that is being taken, wait for; nothing: it makes progress."""
    error: str | None
    """What a failed job failed with."""
    suspension_cause: str | None
    """Why it is suspended, if nobody asked for it."""
    steps: dict[str, StepFigures]


def report_job(job: "Job") -> JobReport:
    """Return where a job stands. Figures are what members last told, a quarter of a second ago or so."""
    plan = job.runner.plan
    metrics = job.metrics
    watermark = job.explain_watermark()
    holder = watermark.held_back_by
    store = plan.snapshot_store
    now_us = time.time_ns() // 1000
    return JobReport(
        job=job.name,
        id=plan.job_id,
        pid=os.getpid(),
        host=socket.gethostname(),
        jetfast=__version__,
        cluster=None if plan.submission is None else plan.submission.cluster,
        status=job.status.value,
        guarantee=job.guarantee.name,
        sink_guarantees={sink: kept.name for sink, kept in job.sink_guarantees.items()},
        weakened_by=tuple(job.weakened_by),
        execution_id=job.runner.coordinator.execution_id,
        submitted_at_us=job.submitted_at_us,
        seconds=metrics["seconds"],
        restarts=metrics["restarts"],
        members_wanted=plan.member_count,
        members=tuple(MemberFigures(m["member"], m["pid"], m["host"], m["rows_read"]) for m in metrics["members"]),
        workers=plan.workers,
        store=None if store is None else store.name,
        survives=None if store is None else store.survives,
        snapshot_interval_s=None if plan.guarantee is Guarantee.NONE else plan.snapshot_interval_s,
        snapshots_taken=metrics["snapshots_taken"],
        snapshots_failed=metrics["snapshots_failed"],
        last_snapshot=_last_snapshot(metrics["snapshots"]),
        rows_read=metrics["rows_read"],
        total_rows=metrics["total_rows"],
        rows_written=metrics["rows_written"],
        rows_per_second=metrics["rows_per_second"],
        late_rows=metrics["late_rows"],
        partly_late_rows=metrics["partly_late_rows"],
        rejected_rows=metrics["rejected_rows"],
        watermark_us=watermark.watermark_us,
        watermark_lag_us=None if watermark.watermark_us is None else now_us - watermark.watermark_us,
        held_back_by=None
        if holder is None
        else WatermarkHolder(
            holder.source,
            holder.partition,
            holder.member,
            holder.processor,
            holder.watermark_us,
            holder.state,
            holder.waits_for,
        ),
        waits_for=job.runner.waits_for(),
        error=None if job.error is None else f"{type(job.error).__name__}: {job.error}",
        suspension_cause=None if job.suspension_cause is None else str(job.suspension_cause),
        steps={name: _step(figures) for name, figures in metrics["vertices"].items()},
    )


def _last_snapshot(history: list[dict[str, Any]]) -> SnapshotFigures | None:
    return None if not history else SnapshotFigures(**{**history[-1], "errors": tuple(history[-1]["errors"])})


def _step(figures: Mapping[str, Any]) -> StepFigures:
    return StepFigures(*(int(figures.get(name, 0)) for name in StepFigures.__struct_fields__))
