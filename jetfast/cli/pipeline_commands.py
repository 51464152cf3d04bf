"""Commands that run the pipeline of a file: run, snapshot restore, and resume of a job whose process has gone.

They show the job's progress until it ends, as `job.wait()` does, and end as it ends.
"""

import contextlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from jetfast.api.pipeline import Pipeline
from jetfast.cli.cluster_options import ClusterKind, Kind, Master, Members, Workers, make_cluster
from jetfast.cli.exit_status import STOPPED, UNREACHABLE, status_of_job
from jetfast.cli.options import with_options
from jetfast.cli.output import AsJson, command, print_facts, print_json
from jetfast.cli.pipeline_file import load_pipeline
from jetfast.cli.report_text import describe_outcome
from jetfast.cli.stopping import DEFAULT_STOP_TIMEOUT, Stopping
from jetfast.cli.stored_jobs import find_completed, has_begun, open_store
from jetfast.clusters.child_python import import_path, interpreter_arguments
from jetfast.clusters.continuation import continue_job, find_submission
from jetfast.clusters.submission import DEFAULT_MEMORY_LIMIT
from jetfast.clusters.supervisor import supervise as supervise_program
from jetfast.control.execution_ids import new_execution_id
from jetfast.control.job import Job
from jetfast.control.job_report import report_job
from jetfast.core.guarantee import Guarantee
from jetfast.engine.snapshot_store import SnapshotStore
from jetfast.errors import JobCancelledError, JobDefinitionError
from jetfast.types import positive_duration_us


def _read_guarantee(text: str) -> Guarantee:
    try:
        return Guarantee.of(text, "--guarantee")
    except JobDefinitionError as error:
        raise typer.BadParameter(str(error)) from None


FileArgument = Annotated[
    str, typer.Argument(metavar="FILE.py[:NAME]", help="File with the pipeline; NAME: its variable, or a function.")
]
PipelineFile = Annotated[
    str | None, typer.Option("--pipeline", metavar="FILE.py[:NAME]", help="File with the pipeline.")
]
Store = Annotated[str | None, typer.Option(metavar="DIR", help="Snapshot store: a directory, or s3://bucket/prefix.")]
Supervise = Annotated[bool, typer.Option("--supervise", help="Start again after a kill, and while a system is away.")]
StopTimeout = Annotated[str, typer.Option(help="After SIGTERM: time for a last snapshot; then end as in a crash.")]
Name = Annotated[str | None, typer.Option(help="Name of the job; default: that of the pipeline.")]
Wanted = Annotated[
    Guarantee | None,
    typer.Option(
        "--guarantee",
        parser=_read_guarantee,
        metavar="[none|at-least-once|exactly-once]",
        help="Default: exactly-once with --store.",
    ),
]
Interval = Annotated[str, typer.Option(help="Time between snapshots.")]
MaxRestarts = Annotated[int | None, typer.Option(min=0, help="After members that are lost; default: for ever.")]
OnFailure = Annotated[bool, typer.Option("--suspend-on-failure", help="Suspend the job instead of failing it.")]
MemoryLimit = Annotated[str, typer.Option(help="Bytes that may wait in queues of each member.")]
UnlessCompleted = Annotated[
    bool, typer.Option("--unless-completed", help="End with 0, instead of 2, if the store knows the job as completed.")
]
BegunSince = Annotated[int, typer.Option(hidden=True, help="Begin anew only if the store knows no later execution.")]
_START = "import sys; sys.path[:] = {path!r}; from jetfast.cli import main; main()"
"""Code of a command that runs in a process of its own, with the path of imports of this one."""
AcceptLoss = Annotated[
    list[str] | None,
    typer.Option(metavar="TRANSACTION", help="Go on without the rows of this transaction, if it is lost; repeatable."),
]
Fresh = Annotated[bool, typer.Option("--fresh", help="Begin anew, whatever the store knows of the job.")]


@dataclass(frozen=True)
class Submission:
    """How a pipeline is run: options of each command that submits one."""

    cluster: Kind = ClusterKind.LOCAL
    members: Members = None
    workers: Workers = None
    master: Master = None
    guarantee: Wanted = None
    name: Name = None
    snapshot_interval: Interval = "10s"
    max_restarts: MaxRestarts = None
    suspend_on_failure: OnFailure = False
    memory_limit: MemoryLimit = DEFAULT_MEMORY_LIMIT
    unless_completed: UnlessCompleted = False
    begun_since: BegunSince = 0
    supervise: Supervise = False
    stop_timeout: StopTimeout = DEFAULT_STOP_TIMEOUT
    as_json: AsJson = False


@command
@with_options
def run(
    file: FileArgument, options: Submission, store: Store = None, fresh: Fresh = False, accept_loss: AcceptLoss = None
) -> None:
    """Run the pipeline of a file until it ends; a job that the store knows goes on from its last snapshot."""
    _submit_and_wait(file, store, options, {"fresh": True} if fresh else {}, accept_loss=accept_loss or ())


@command
@with_options
def restore(
    snapshot: Annotated[str, typer.Argument(metavar="NAME", help="Name of the snapshot.")],
    store: Annotated[str, typer.Option(metavar="DIR", help="Snapshot store that holds it, and the job's own.")],
    pipeline: Annotated[str, typer.Option(metavar="FILE.py[:NAME]", help="File with the pipeline.")],
    options: Submission,
) -> None:
    """Run the pipeline of a file from a named snapshot, whatever the store knows of a job of its name."""
    _submit_and_wait(pipeline, store, options, {"initial_snapshot": snapshot}, must_exist=True)


def continue_from_file(
    job: str,
    store: str,
    file: str,
    *,
    master: str | None,
    unless_completed: bool,
    supervise: bool,
    stop_timeout: str,
    accept_loss: Sequence[str],
    as_json: bool,
) -> None:
    """Go on with a job as it was submitted, from its last snapshot."""
    if supervise:
        _supervise(store)
    opened = open_store(store, must_exist=True)

    def submit(pipeline: Pipeline) -> Job:
        submission = find_submission(opened, job)
        kind = ClusterKind(submission.cluster)
        cluster = make_cluster(kind, submission.members, submission.workers, master, submission.partition_count)
        return continue_job(opened, job, pipeline, cluster=cluster, accept_loss=accept_loss)

    completed_in = opened if unless_completed else None
    _run(file, job, submit, completed_in, stop_timeout=stop_timeout, as_json=as_json)


def _submit_and_wait(
    file: str,
    store: str | None,
    options: Submission,
    anew: dict[str, Any],
    *,
    must_exist: bool = False,
    accept_loss: Sequence[str] = (),
) -> None:
    """Run a pipeline until its job ends.

    anew : settings that begin it anew; left out if that has been done since `begun_since`
    must_exist : the store, where it is a directory
    """
    if options.supervise:
        _supervise(store, once=bool(anew))
    opened = None if store is None else open_store(store, must_exist=must_exist)
    cluster = make_cluster(options.cluster, options.members, options.workers, options.master)

    def submit(pipeline: Pipeline) -> Job:
        begun = has_begun(opened, options.name or pipeline.name, options.begun_since)
        return cluster.submit(
            pipeline,
            guarantee=options.guarantee,
            name=options.name,
            snapshot_store=opened,
            snapshot_interval=options.snapshot_interval,
            max_restarts=options.max_restarts,
            suspend_on_failure=options.suspend_on_failure,
            memory_limit=options.memory_limit,
            accept_loss=accept_loss,
            **{} if begun else anew,
        )

    completed_in = opened if options.unless_completed else None
    _run(
        file,
        options.name,
        submit,
        completed_in,
        options.begun_since,
        stop_timeout=options.stop_timeout,
        as_json=options.as_json,
    )


def _run(
    file: str,
    job_name: str | None,
    submit: Callable[[Pipeline], Job],
    unless_completed_in: SnapshotStore | None = None,
    since: int = 0,
    *,
    stop_timeout: str,
    as_json: bool,
) -> None:
    """Submit and wait; end with the status that the outcome has. A store: with 0, if the job is completed there, by an
    execution since `since`.
    """
    stopping = Stopping(positive_duration_us(stop_timeout, "--stop-timeout") / 1e6)
    # Programs read one object on standard output: what the pipeline prints there goes to standard error.
    with stopping, contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext():
        pipeline = load_pipeline(file, job_name)
        completed = find_completed(unless_completed_in, job_name or pipeline.name, since)
        if completed is None:
            job = submit(pipeline)
            stopping.attach(job)
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
    if isinstance(job.error, JobCancelledError) and stopping.asked.is_set():
        raise typer.Exit(STOPPED)  # it takes no snapshots
    if job.error is not None:
        raise typer.Exit(status_of_job(job.error))


def _supervise(store: str | None, *, once: bool = False) -> None:
    """Run this command in a process of its own, again after each kill and while a system is away; end with its status.

    once : it begins a job anew, which must not be done again once that has been recorded
    """
    if store is None:
        raise JobDefinitionError("--supervise needs --store: without snapshots a job cannot go on")
    arguments = [argument for argument in sys.argv[1:] if argument != "--supervise"]
    program = [*interpreter_arguments(), "-c", _START.format(path=import_path())]
    # It may be killed when the job is completed, and before it can say so; also before it has begun.
    again = [*arguments, "--unless-completed", *(("--begun-since", str(new_execution_id())) if once else ())]
    raise typer.Exit(
        supervise_program([*program, *arguments], again=[*program, *again], away_statuses=frozenset({UNREACHABLE}))
    )
