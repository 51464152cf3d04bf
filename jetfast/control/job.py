"""The job handle: what a user holds after `submit`."""

import html
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import wait as wait_for_futures
from functools import partial
from typing import Any

import pyarrow as pa

from jetfast.control.job_events import (
    CancelAndExportAsked,
    ExportAsked,
    OperationAsked,
    RestartAsked,
    ResumeAsked,
    SuspendAsked,
)
from jetfast.control.job_outcomes import check_losses
from jetfast.control.job_status import TERMINAL, JobStatus
from jetfast.control.metrics import MemberReport, merge_metrics
from jetfast.control.progress import describe_end, describe_last_snapshot, make_progress
from jetfast.control.runner import Runner
from jetfast.control.watermark_explanation import WatermarkExplanation, explain_watermark
from jetfast.core.dag import Dag
from jetfast.core.guarantee import Guarantee
from jetfast.errors import JobCancelledError, JobDefinitionError
from jetfast.kernels.carried import restored_schema
from jetfast.types import Timeout, timeout_s

WAIT_STEP_S = 0.1
"""Longest single wait: a Ctrl-C that comes just before it, or on Windows during it, is only seen after it."""


class Job:
    """A submitted job. Made by a cluster's `submit`.

    Used as a context manager it is cancelled, if it still runs, when the block is left.
    """

    def __init__(self, runner: Runner, dag: Dag, *, progress: bool | None = None) -> None:
        self.runner = runner
        """What runs it; not for users."""
        self._dag = dag
        self._progress = progress
        self._sources = [name for name in dag.vertices if not dag.inbound(name)]
        self._sinks = [name for name in dag.vertices if not dag.outbound(name)]
        side_sinks = dag.side_sinks()
        self._result_sinks = [name for name in self._sinks if name not in side_sinks]
        self._end_shown = False
        self._left = False
        self.submitted_at_us = time.time_ns() // 1000
        """Wall clock, microseconds since 1970."""

    @property
    def name(self) -> str:
        """The name it was submitted under."""
        return self.runner.plan.job

    @property
    def id(self) -> str:
        """Unique among all jobs."""
        return self.runner.job_id

    @property
    def guarantee(self) -> Guarantee:
        """What the job promises about each row after a failure: the weakest of what was wanted, of its sources and of
        the sinks that count.
        """
        plan = self.runner.plan
        return plan.guarantee if plan.job_guarantee is None else plan.job_guarantee

    @property
    def sink_guarantees(self) -> dict[str, Guarantee]:
        """What each sink shows of each row after a failure, by name of step."""
        return dict(self.runner.plan.sink_guarantees)

    @property
    def weakened_by(self) -> tuple[str, ...]:
        """A sentence for each source or sink that keeps less than was wanted, also if the job keeps it."""
        return self.runner.plan.weakened_by

    @property
    def status(self) -> JobStatus:
        """Where the job stands. FAILED and COMPLETED: nothing of it runs any more."""
        status = self.runner.status
        return JobStatus.SUSPENDED if self._is_left and status is JobStatus.FAILED else status

    @property
    def error(self) -> Exception | None:
        """What the job failed with, once it is FAILED (JobCancelledError if it was cancelled)."""
        return None if self._is_left else self.runner.error

    @property
    def _is_left(self) -> bool:
        """Was it suspended by `leave`, and is nothing of it here any more?"""
        return self._left and isinstance(self.runner.error, JobCancelledError)

    @property
    def suspension_cause(self) -> Exception | None:
        """Why the job is SUSPENDED, if nobody asked for it: an error, with `suspend_on_failure`."""
        return self.runner.coordinator.job.suspension_cause

    def wait(self, timeout: Timeout = None) -> None:
        """Wait until the job has ended, showing progress; nothing of it runs any more when this returns.

        A suspended job has not ended: somebody else must resume or cancel it.

        Parameters
        ----------
        timeout : such as "20s", or seconds; TimeoutError when it has not ended by then (it runs on)

        Raises JobFailedError when a row or a function of the user failed, JobCancelledError when it was cancelled, and
        RestartableError (a member or connection was lost). Ctrl-C cancels the job, waits for its end (a second Ctrl-C
        does not) and raises KeyboardInterrupt.
        """
        limit_s = timeout_s(timeout)
        progress = make_progress(self.name, False if self._end_shown else self._progress)
        now = time.monotonic()
        deadline = None if limit_s is None else now + limit_s
        next_update = now + progress.interval_s
        try:
            while True:
                step = WAIT_STEP_S if deadline is None else max(0.0, min(WAIT_STEP_S, deadline - now))
                if self.runner.wait(step):
                    break
                now = time.monotonic()
                if deadline is not None and now >= deadline:
                    raise TimeoutError(f"job {self.name} is still {self.status.value} after {limit_s:g} s")
                if progress.shows and now >= next_update:
                    progress.update(self.status.value, self.metrics)
                    next_update = now + progress.interval_s
        except KeyboardInterrupt:
            self.cancel()
            progress.finish(f"job {self.name}: cancelled by Ctrl-C, stopping ...")
            while not self.runner.wait(WAIT_STEP_S):
                pass
            raise
        except BaseException:
            progress.finish(f"job {self.name} is {self.status.value}")
            raise
        if progress.shows:
            progress.finish(describe_end(self.name, self.status.value, self.metrics))
        self._end_shown = True
        if self.error is not None:
            raise self.error

    def cancel(self) -> None:
        """Ask the job to stop; returns at once. `wait` then raises JobCancelledError. No effect once it has ended."""
        self.runner.cancel()

    def suspend(self, timeout: Timeout = None) -> None:
        """Take a last snapshot and stop; returns when the job is SUSPENDED: nothing of it runs or waits outside.

        If that snapshot fails, or the job does not run at present, `resume` goes on from the one before. With guarantee
        NONE it stops at once, and `resume` begins from the beginning.

        Parameters
        ----------
        timeout : such as "20s", or seconds; TimeoutError when it is not done by then (it goes on)

        Raises OperationRefused if the job has ended, is ending, or ends meanwhile.
        """
        self._ask(SuspendAsked, timeout)

    def leave(self, timeout: Timeout = None) -> None:
        """Suspend the job, and end what is here of it: `wait` then returns, with the job SUSPENDED. The next submission
        under its name continues from the store. Parameters and errors as `suspend`. With guarantee NONE the job is
        cancelled.
        """
        limit_s = timeout_s(timeout)
        if self.guarantee is not Guarantee.NONE:
            self.suspend(limit_s)
            self._left = True
        self.cancel()

    def resume(self, accept_loss: Sequence[str] = ()) -> None:
        """Let a suspended job go on; returns at once. OperationRefused if it is not SUSPENDED.

        accept_loss : names of transactions that an outside system has lost, as of `submit`
        """
        check_losses(accept_loss)
        self._ask(partial(ResumeAsked, accept_loss=tuple(accept_loss)))

    def restart(self, timeout: Timeout = None) -> None:
        """Take a last snapshot, stop, and start again from it; returns when all has stopped. Parameters and errors as
        `suspend`; the job must be RUNNING. With guarantee NONE it starts from the beginning, and a warning says so.
        """
        self._ask(RestartAsked, timeout)

    def export_snapshot(self, name: str, timeout: Timeout = None) -> None:
        """Keep a snapshot in the store under a name, from which any job can start: `submit(initial_snapshot=name)`.

        A running job takes one now; of a suspended one it is the last. Returns when it is kept; replaces one of that
        name. It has no part in what is written outside: all that has been committed.

        Parameters
        ----------
        timeout : such as "20s", or seconds; TimeoutError when it is not done by then (it goes on)

        Raises OperationRefused if the job is neither running nor suspended, or ends meanwhile, and why the snapshot
        failed or could not be copied; the job runs on.
        """
        self._ask(partial(ExportAsked, name=_snapshot_name(name)), timeout)

    def cancel_and_export_snapshot(self, name: str, timeout: Timeout = None) -> None:
        """Take a last snapshot, keep it under a name as `export_snapshot` does, and cancel the job.

        If that snapshot fails, it is the one before that is kept; what was written since is rolled back. The job is
        cancelled, too, when the snapshot cannot be copied, which is raised. Parameters and errors as `export_snapshot`.
        """
        self._ask(partial(CancelAndExportAsked, name=_snapshot_name(name)), timeout)

    def _ask(self, operation: Callable[[int], OperationAsked], timeout: Timeout = None) -> None:
        """Ask for an operation, and wait until it is done. A timeout that cannot be read asks for nothing."""
        limit_s = timeout_s(timeout)
        answer = self.runner.ask(operation)
        deadline = None if limit_s is None else time.monotonic() + limit_s
        while not answer.done():
            step = WAIT_STEP_S if deadline is None else min(WAIT_STEP_S, deadline - time.monotonic())
            if step <= 0:
                raise TimeoutError(f"job {self.name} is still {self.status.value} after {limit_s:g} s")
            wait_for_futures([answer], step)
        answer.result()

    @property
    def metrics(self) -> dict[str, Any]:
        """Figures so far, merged over members; what they are is told in `jetfast.control.metrics`."""
        reports = [
            MemberReport(member, view.registered.pid, view.registered.host, view.figures)
            for member, view in list(self.runner.members.items())
        ]
        metrics = merge_metrics(
            reports, self._sources, self._result_sinks, self.runner.seconds, self.runner.rate.per_second
        )
        metrics["total_rows"] = self._total_rows()
        metrics["restarts"] = self.runner.coordinator.job.restarts
        history = self.runner.snapshots
        metrics["snapshots"] = history.last
        metrics["snapshots_taken"], metrics["snapshots_failed"] = history.taken, history.failed
        return metrics

    def explain_snapshot(self) -> str:
        """Tell which snapshot is being taken, since when, and what it waits for; or what became of the last one.

        Which processors of a member, and for what: by what the member last reported, a quarter of a second ago or so.
        """
        return f"job {self.name}: {self.runner.explain_snapshot()}"

    def explain_progress(self) -> str:
        """Tell what the job waits for, if it makes no progress: for members, the store, the time of the next attempt;
        or which processors stand still for 5 s or more, and for what: a call of a user's function, room in the queues
        to another step, an input. Of a job that has ended, how it ended.
        """
        if self.status in TERMINAL:
            outcome = "" if self.error is None else f": {type(self.error).__name__}: {self.error}"
            return f"job {self.name} is {self.status.value}{outcome}"
        lines = self.runner.waits_for() or ("it waits for nothing",)
        return "\n".join([f"job {self.name} is {self.status.value}", *(f"  {line}" for line in lines)])

    def explain_watermark(self) -> WatermarkExplanation:
        """Tell which source partition and which input hold event time back, since when, and what they wait for.

        Also which rows of a lagging partition became late, and when, because all inputs were idle and nobody waited for
        them. `print` it, or look at its fields. It goes by what members last reported, a quarter of a second ago or so.
        """
        reports = [(member, view.metrics) for member, view in list(self.runner.members.items())]
        return explain_watermark(self.name, reports, self._reads_from())

    def _reads_from(self) -> dict[str, set[str]]:
        """The sources that each step is fed by, directly or not; steps from the sources on."""
        fed_by: dict[str, set[str]] = {}
        for vertex in self._dag.topological_order():
            upstream = [edge.source for edge in self._dag.inbound(vertex.name)]
            fed_by[vertex.name] = {name for source in upstream for name in fed_by[source] or {source}}
        return {name: sources for name, sources in fed_by.items() if sources}

    def _total_rows(self) -> int | None:
        """Rows that the sources will give in all, if every one of them knows."""
        sources = (getattr(self._dag.vertices[name].supplier, "source", None) for name in self._sources)
        total = 0
        for source in sources:
            rows: int | None = getattr(source, "total_rows", None)
            if rows is None:
                return None
            total += rows
        return total

    def collected(self, name: str | None = None) -> pa.Table:
        """Return the rows that a `collect` sink has handed over so far, in the order in which they came.

        `name` is the sink's step; it may be left out if the job has a single `collect` sink.
        Raises JobDefinitionError if there is no such sink.
        """
        vertex = self._collect_vertex(name)
        schema = restored_schema(self._dag.inbound(vertex)[0].schema)
        return pa.Table.from_batches(self.runner.collected(vertex), schema=schema)

    def to_arrow(self) -> pa.Table:
        """Wait for the end and return the rows of the job's only `collect` sink. Raises as `wait`."""
        vertex = self._collect_vertex(None)
        self.wait()
        return self.collected(vertex)

    def to_pandas(self) -> Any:
        """As `to_arrow`, as a pandas DataFrame."""
        return self.to_arrow().to_pandas()

    def to_polars(self) -> Any:
        """As `to_arrow`, as a polars DataFrame."""
        import polars

        return polars.from_arrow(self.to_arrow())

    def _collect_vertex(self, name: str | None) -> str:
        names = [sink for sink in self._sinks if self._is_collect(sink)]
        if name is not None:
            if name in names:
                return name
            raise JobDefinitionError(f"job {self.name} has no collect sink {name!r}; it has {_listed(names)}")
        if len(names) != 1:
            raise JobDefinitionError(
                f"job {self.name} has {len(names)} collect sinks ({_listed(names)}); "
                + ("say which one: job.collected(name)" if names else "add one with stage.write(jetfast.collect())")
            )
        return names[0]

    def _is_collect(self, vertex: str) -> bool:
        sink = getattr(self._dag.vertices[vertex].supplier, "sink", None)
        return bool(getattr(sink, "collects", False))

    def __enter__(self) -> "Job":
        return self

    def __exit__(self, *_: object) -> None:
        if self.status not in TERMINAL:
            self.cancel()
            self.runner.wait()

    def __repr__(self) -> str:
        return f"<Job {self.name!r} {self.status.value}, {self.guarantee.value}>"

    def _repr_html_(self) -> str:
        metrics = self.metrics
        rows = {
            "status": self.status.value,
            "guarantee": self.guarantee.value,
            **{f"guarantee of {sink}": kept.value for sink, kept in self.sink_guarantees.items()},
            **{f"weakened by {place}": why for place, why in enumerate(self.weakened_by, 1)},
            "rows in": f"{metrics['rows_read']:,}",
            "rows out": f"{metrics['rows_written']:,}",
            "late / partly late": f"{metrics['late_rows']:,} / {metrics['partly_late_rows']:,}",
            "rejected": f"{metrics['rejected_rows']:,}",
            "seconds": f"{metrics['seconds']:.1f}",
            "rows/s": f"{metrics['rows_per_second']:,.0f}",
        }
        if self.runner.plan.guarantee is not Guarantee.NONE:
            rows["snapshots"] = f"{metrics['snapshots_taken']:,} taken, {metrics['snapshots_failed']:,} failed"
            if last := describe_last_snapshot(metrics):
                rows["last snapshot"] = last
            rows["restarts"] = f"{metrics['restarts']:,}"
        if self.error is not None:
            rows["error"] = str(self.error)
        body = _html_rows(rows)
        vertices = "".join(_vertex_row(name, metrics["vertices"].get(name, {})) for name in self._dag.vertices)
        return (
            f"<div><b>{html.escape(self.name)}</b><table>{body}</table>"
            f"<table><tr><th>step</th><th>rows in</th><th>rows out</th></tr>{vertices}</table></div>"
        )


def _snapshot_name(name: str) -> str:
    if not isinstance(name, str) or not name:
        raise JobDefinitionError(f"a snapshot's name must be text that is not empty, got {name!r}")
    return name


def _listed(names: list[str]) -> str:
    return ", ".join(map(repr, names)) or "none"


def _html_rows(rows: Mapping[str, str]) -> str:
    return "".join(
        f"<tr><td>{html.escape(name)}</td><td>{html.escape(value)}</td></tr>" for name, value in rows.items()
    )


def _vertex_row(name: str, counters: Mapping[str, Any]) -> str:
    cells = "".join(f"<td>{counters.get(counter, 0):,}</td>" for counter in ("rows_in", "rows_out"))
    return f"<tr><td>{html.escape(name)}</td>{cells}</tr>"
