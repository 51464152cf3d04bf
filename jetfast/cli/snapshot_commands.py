"""Commands about named snapshots: save, list, delete; `restore` is among those that run pipelines."""

from typing import Annotated

import typer

from jetfast.api import snapshots
from jetfast.cli.job_commands import JobName, Timeout, ask
from jetfast.cli.output import AsJson, command, describe_moment, print_facts, print_json, print_table
from jetfast.cli.stored_jobs import open_store
from jetfast.control.job_protocol import ExportSnapshot
from jetfast.control.progress import shorten_count

SnapshotName = Annotated[str, typer.Argument(metavar="NAME", help="Name of the snapshot.")]
StoreNeeded = Annotated[str, typer.Option("--store", metavar="DIR", help="Snapshot store: a directory, or a URL.")]


@command
def save(
    job: JobName,
    name: SnapshotName,
    cancel: Annotated[bool, typer.Option("--cancel", help="It is the last one: end the job with it.")] = False,
    timeout: Timeout = "60s",
    as_json: AsJson = False,
) -> None:
    """Keep a snapshot of a running or suspended job under a name, in the store of the job."""
    ask(job, ExportSnapshot(name, cancel), timeout, as_json=as_json)


@command
def list_snapshots(
    store: StoreNeeded,
    job: Annotated[str | None, typer.Argument(metavar="[JOB]", help="Only those that were taken of this job.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the named snapshots of a store."""
    found = snapshots.named(open_store(store, must_exist=True), job)
    if as_json:
        print_json({"snapshots": found})
        return
    print_table(
        ("SNAPSHOT", "JOB", "TAKEN (UTC)", "BYTES", "STEPS", "PROBLEM"),
        (
            (
                named.name,
                named.job,
                describe_moment(named.exported_at_us) if named.exported_at_us else "-",
                shorten_count(named.nbytes),
                ", ".join(named.steps),
                named.problem,
            )
            for named in found
        ),
    )


@command
def delete(name: SnapshotName, store: StoreNeeded, as_json: AsJson = False) -> None:
    """Delete a named snapshot; jobs that have started from it do not need it."""
    snapshots.delete(open_store(store, must_exist=True), name)
    if as_json:
        print_json({"deleted": name})
    else:
        print_facts({"deleted": name})
