"""Commands that run the pipeline of a file: run, snapshot restore, and resume of a job whose process has gone.

They show the job's progress until it ends, as `job.wait()` does, and end as it ends.
"""

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from enum import StrEnum
from functools import partial
from typing import Annotated, Any

import typer

from jetfast.api.pipeline import Pipeline
from jetfast.cli.cluster_options import ClusterKind, Kind, Master, Members, Workers, make_cluster
from jetfast.cli.exit_status import status_of
from jetfast.cli.output import AsJson, command, print_facts, print_json
from jetfast.cli.pipeline_file import load_pipeline
from jetfast.cli.report_text import describe_outcome
from jetfast.cli.stored_jobs import find_completed, open_store
from jetfast.clusters.cluster import Cluster
from jetfast.clusters.continuation import continue_job, find_submission
from jetfast.clusters.submission import DEFAULT_MEMORY_LIMIT
from jetfast.clusters.supervisor import supervise as supervise_program
from jetfast.control.job import Job
from jetfast.control.job_report import report_job
from jetfast.core.guarantee import Guarantee
from jetfast.errors import JobDefinitionError


class GuaranteeName(StrEnum):
    """What holds for each row after a failure."""

    NONE = "none"
    AT_LEAST_ONCE = "at-least-once"
    EXACTLY_ONCE = "exactly-once"


FileArgument = Annotated[
    str, typer.Argument(metavar="FILE.py[:NAME]", help="File with the pipeline; NAME: its variable, or a function.")
]
PipelineFile = Annotated[
    str | None, typer.Option("--pipeline", metavar="FILE.py[:NAME]", help="File with the pipeline.")
]
Store = Annotated[str | None, typer.Option(metavar="DIR", help="Snapshot store: a directory, or s3://bucket/prefix.")]
Supervise = Annotated[bool, typer.Option("--supervise", help="Start again what a signal has killed; needs --store.")]
Name = Annotated[str | None, typer.Option(help="Name of the job; default: that of the pipeline.")]
Wanted = Annotated[GuaranteeName | None, typer.Option("--guarantee", help="Default: exactly-once with --store.")]
Interval = Annotated[str, typer.Option(help="Time between snapshots.")]
MaxRestarts = Annotated[int | None, typer.Option(min=0, help="After members that are lost; default: for ever.")]
OnFailure = Annotated[bool, typer.Option("--suspend-on-failure", help="Suspend the job instead of failing it.")]
MemoryLimit = Annotated[str, typer.Option(help="Bytes that may wait in queues of each member.")]
UnlessCompleted = Annotated[
    bool, typer.Option("--unless-completed", help="End with 0, instead of 2, if the store knows the job as completed.")
]
Fresh = Annotated[bool, typer.Option("--fresh", help="Begin anew, whatever the store knows of the job.")]


@command
def run(
    file: FileArgument,
    cluster: Kind = ClusterKind.LOCAL,
    members: Members = None,
    workers: Workers = None,
    master: Master = None,
    store: Store = None,
    guarantee: Wanted = None,
    name: Name = None,
    snapshot_interval: Interval = "10s",
    max_restarts: MaxRestarts = None,
    suspend_on_failure: OnFailure = False,
    memory_limit: MemoryLimit = DEFAULT_MEMORY_LIMIT,
    fresh: Fresh = False,
    unless_completed: UnlessCompleted = False,
    supervise: Supervise = False,
    as_json: AsJson = False,
) -> None:
    """Run the pipeline of a file until it ends; a job that the store knows goes on from its last snapshot."""
    if supervise:
        _supervise(store, leave_out=("--fresh",))
    submit = partial(
        _submit,
        cluster=make_cluster(cluster, members, workers, master),
        guarantee=guarantee,
        name=name,
        snapshot_store=None if store is None else open_store(store),
        snapshot_interval=snapshot_interval,
        max_restarts=max_restarts,
        suspend_on_failure=suspend_on_failure,
        memory_limit=memory_limit,
        fresh=fresh,
    )
    _run(file, name, submit, store if unless_completed else None, as_json=as_json)


@command
def restore(
    snapshot: Annotated[str, typer.Argument(metavar="NAME", help="Name of the snapshot.")],
    store: Annotated[str, typer.Option(metavar="DIR", help="Snapshot store that holds it, and the job's own.")],
    pipeline: Annotated[str, typer.Option(metavar="FILE.py[:NAME]", help="File with the pipeline.")],
    cluster: Kind = ClusterKind.LOCAL,
    members: Members = None,
    workers: Workers = None,
    master: Master = None,
    guarantee: Wanted = None,
    name: Name = None,
    snapshot_interval: Interval = "10s",
    max_restarts: MaxRestarts = None,
    suspend_on_failure: OnFailure = False,
    memory_limit: MemoryLimit = DEFAULT_MEMORY_LIMIT,
    as_json: AsJson = False,
) -> None:
    """Run the pipeline of a file from a named snapshot, whatever the store knows of a job of its name."""
    submit = partial(
        _submit,
        cluster=make_cluster(cluster, members, workers, master),
        guarantee=guarantee,
        name=name,
        snapshot_store=open_store(store, must_exist=True),
        snapshot_interval=snapshot_interval,
        max_restarts=max_restarts,
        suspend_on_failure=suspend_on_failure,
        memory_limit=memory_limit,
        initial_snapshot=snapshot,
    )
    _run(pipeline, name, submit, as_json=as_json)


def continue_from_file(
    job: str, store: str, file: str, *, master: str | None, unless_completed: bool, supervise: bool, as_json: bool
) -> None:
    """Go on with a job as it was submitted, from its last snapshot."""
    if supervise:
        _supervise(store)
    opened = open_store(store, must_exist=True)

    def submit(pipeline: Pipeline) -> Job:
        submission = find_submission(opened, job)
        kind = ClusterKind(submission.cluster)
        cluster = make_cluster(kind, submission.members, submission.workers, master, submission.partition_count)
        return continue_job(opened, job, pipeline, cluster=cluster)

    _run(file, job, submit, store if unless_completed else None, as_json=as_json)


def _submit(
    pipeline: Pipeline,
    *,
    cluster: Cluster,
    guarantee: GuaranteeName | None,
    **settings: Any,
) -> Job:
    return cluster.submit(pipeline, guarantee=None if guarantee is None else Guarantee[guarantee.name], **settings)


def _run(
    file: str,
    job_name: str | None,
    submit: Callable[[Pipeline], Job],
    unless_completed_in: str | None = None,
    *,
    as_json: bool,
) -> None:
    """Submit and wait; end with the status that the outcome has. A store: with 0, if the job is completed there."""
    # Programs read one object on standard output: what the pipeline prints there goes to standard error.
    with _terminated_as_interrupted(), contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext():
        pipeline = load_pipeline(file, job_name)
        completed = find_completed(unless_completed_in, job_name or pipeline.name)
        if completed is None:
            job = submit(pipeline)
            try:
                job.wait()
            except Exception as error:
                if error is not job.error:
                    raise
    if completed is not None:
        if as_json:
            print_json(completed)
        else:
            print_facts({f"job {completed.job}": "completed before"})
        return
    if as_json:
        print_json(report_job(job))
    elif job.error is not None:
        sys.stderr.write(f"jetfast: job {job.name} {describe_outcome(report_job(job))}\n")
    if job.error is not None:
        raise typer.Exit(status_of(job.error))


@contextlib.contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """Let SIGTERM, by which systems end programs, cancel the job as Ctrl-C does. Only the main thread can."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _supervise(store: str | None, leave_out: tuple[str, ...] = ()) -> None:
    """Run this command again in a process of its own, as often as one is killed; ends with its status."""
    if store is None:
        raise JobDefinitionError("--supervise needs --store: without snapshots a job cannot go on")
    arguments = [argument for argument in sys.argv[1:] if argument != "--supervise"]
    by_module = sys.argv[0].endswith("__main__.py")
    program = [sys.executable, "-m", "jetfast"] if by_module else [sys.argv[0]]
    # It may be killed when the job is completed, and before it can say so.
    again = [*(argument for argument in arguments if argument not in leave_out), "--unless-completed"]
    raise typer.Exit(supervise_program([*program, *arguments], again=[*program, *again]))
