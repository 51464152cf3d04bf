"""Commands about running jobs: jobs, status, cancel, suspend, resume, restart."""

from typing import Annotated

import typer

from jetfast.cli.cluster_options import Master
from jetfast.cli.output import AsJson, command, print_facts, print_json, print_table
from jetfast.cli.pipeline_commands import (
    AcceptLoss,
    PipelineFile,
    StopTimeout,
    Store,
    Supervise,
    UnlessCompleted,
    continue_from_file,
)
from jetfast.cli.report_text import describe_outcome, print_jobs, print_report
from jetfast.cli.stopping import DEFAULT_STOP_TIMEOUT
from jetfast.cli.stored_jobs import StoredJob, list_stored, open_store
from jetfast.control.job_client import ask_job, find_job, find_jobs
from jetfast.control.job_protocol import Cancel, Request, Restart, Resume, Suspend
from jetfast.errors import JobDefinitionError
from jetfast.types import positive_duration_us

JobName = Annotated[str, typer.Argument(metavar="JOB", help="Name of a running job, or the beginning of its id.")]
Timeout = Annotated[str, typer.Option(help="How long to wait until it is done; then it goes on by itself.")]


@command
def jobs(store: Store = None, as_json: AsJson = False) -> None:
    """List the jobs that run on this host, and those that a snapshot store knows."""
    found, silent = find_jobs()
    reports = [report for _, report in found]
    stored = [] if store is None else list_stored(open_store(store, must_exist=True))
    if as_json:
        print_json(
            {
                "jobs": reports,
                "silent": [{"socket": str(job.socket), "why": job.why} for job in silent],
                "stored": stored,
            }
        )
        return
    print_jobs(reports, silent)
    if store is not None:
        print_table(("STORED JOB", "STATUS", "LAST SNAPSHOT", "SUBMITTED TO"), (_stored_row(job) for job in stored))


@command
def status(job: JobName, as_json: AsJson = False) -> None:
    """Tell where a running job stands: figures, last snapshot, watermark, and what it waits for."""
    print_report(find_job(job)[1], as_json=as_json)


@command
def cancel(job: JobName, timeout: Timeout = "60s", as_json: AsJson = False) -> None:
    """End a job; what its last snapshot has promised is committed, all else is rolled back."""
    ask(job, Cancel(), timeout, as_json=as_json)


@command
def suspend(job: JobName, timeout: Timeout = "60s", as_json: AsJson = False) -> None:
    """Let a job take a last snapshot and stop, until somebody resumes it."""
    ask(job, Suspend(), timeout, as_json=as_json)


@command
def resume(
    job: JobName,
    store: Store = None,
    pipeline: PipelineFile = None,
    master: Master = None,
    unless_completed: UnlessCompleted = False,
    supervise: Supervise = False,
    stop_timeout: StopTimeout = DEFAULT_STOP_TIMEOUT,
    timeout: Timeout = "60s",
    accept_loss: AcceptLoss = None,
    as_json: AsJson = False,
) -> None:
    """Let a suspended job go on; with --store and --pipeline one whose process has gone, from its last snapshot."""
    if (store is None) != (pipeline is None):
        raise JobDefinitionError(
            "a job whose process has gone needs both --store DIR, where its snapshots are, and --pipeline FILE.py, "
            "which says what it does; a suspended one needs neither"
        )
    if store is not None and pipeline is not None:
        continue_from_file(
            job,
            store,
            pipeline,
            master=master,
            unless_completed=unless_completed,
            supervise=supervise,
            stop_timeout=stop_timeout,
            accept_loss=accept_loss or (),
            as_json=as_json,
        )
    elif supervise:
        raise JobDefinitionError("--supervise starts a job again from --store and --pipeline: give both")
    else:
        ask(job, Resume(accept_loss=accept_loss or []), timeout, as_json=as_json)


@command
def restart(job: JobName, timeout: Timeout = "60s", as_json: AsJson = False) -> None:
    """Let a running job take a last snapshot, stop, and begin again from it."""
    ask(job, Restart(), timeout, as_json=as_json)


def ask(job: str, request: Request, timeout: str, *, as_json: bool) -> None:
    """Ask a running job for an operation, and print where it stands when that is done."""
    timeout_s = positive_duration_us(timeout, "--timeout") / 1e6
    path, _ = find_job(job, timeout_s)
    report = ask_job(path, request, timeout_s)
    if as_json:
        print_json(report)
    else:
        print_facts({f"job {report.job}": describe_outcome(report)})


def _stored_row(job: StoredJob) -> tuple[str, ...]:
    snapshot = "-" if job.snapshot is None else job.snapshot
    where = "-" if job.cluster is None else f"{job.cluster}, {job.members} member(s), {job.workers} worker(s)"
    state = "completed" if job.completed else "suspended" if job.suspended else "not completed"
    return job.job, job.problem or state, snapshot, where
