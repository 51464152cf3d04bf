"""Members that are killed at awkward times, and what the failure policy of their job makes of it."""

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import jetfast as jf
from jetfast.clusters.member_processes import MemberProcesses
from jetfast.control.member_links import STARTS_MAX, OnEnd
from jetfast.control.remote_member import MemberTask
from jetfast.core.crash_points import CrashPoint, set_crash_hook
from jetfast.errors import MemberLostError
from tests.clusters.copied_rows import number

pytestmark = pytest.mark.services

ROWS = 60_000
SCHEMA = pa.schema({"row": pa.int64()})


def until(condition: Callable[[], object], seconds: float = 60) -> None:
    give_up = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up, condition
        threading.Event().wait(0.005)


def kill_once(folder: Path, what: str) -> None:
    """Let this process die, unless one has died of that before."""
    try:
        os.close(os.open(folder / what, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


class Passes:
    """Leaves rows as they are."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch


class DiesWhenPrepared(Passes):
    """The first process that unpickles it dies of it."""

    def __reduce__(self) -> tuple[Callable[[Path], Passes], tuple[Path]]:
        return die_when_prepared, (self.folder,)


def die_when_prepared(folder: Path) -> Passes:
    kill_once(folder, "prepared")
    return DiesWhenPrepared(folder)


class DiesBetweenCommitAndAck(Passes):
    """The first process that comes so far in phase 2 dies."""

    def __reduce__(self) -> tuple[Callable[[Path], Passes], tuple[Path]]:
        return die_between_commit_and_ack, (self.folder,)


def die_between_commit_and_ack(folder: Path) -> Passes:
    def reach(point: CrashPoint) -> None:
        if point == "after_commit_before_ack":
            kill_once(folder, point)

    set_crash_hook(reach)
    return DiesBetweenCommitAndAck(folder)


class KilledAtTheStart(MemberProcesses):
    """The first processes that are started as member 1 are killed before they can do anything."""

    kills = 0

    def start(self, group: str, description: str, task: MemberTask, on_end: OnEnd) -> threading.Thread:
        thread = super().start(group, description, task, on_end)
        if task.member == 1 and self.kills > 0:
            type(self).kills -= 1
            self.cancel(group)
        return thread


def copying(folder: Path, passes: Passes | None = None, *, rate: float | None = 30_000.0, **options: Any) -> jf.Job:
    pipeline = jf.Pipeline("copy")
    stage = pipeline.read(jf.generator(number, rows=ROWS, rate=rate, partitions=2))
    stage.map_batches(passes or Passes(folder), schema=SCHEMA).write(jf.files(str(folder / "out"), format="parquet"))
    cluster = jf.ProcessCluster(2, snapshot_store=jf.snapshots.directory(folder / "snapshots"))
    return cluster.submit(pipeline, **{"snapshot_interval": "50ms", "progress": False, **options})


def check(folder: Path) -> None:
    assert sorted(ds.dataset(folder / "out", format="parquet").to_table()["row"].to_pylist()) == list(range(ROWS))


def kill_a_member(job: jf.Job) -> None:
    os.kill(job.metrics["members"][0]["pid"], signal.SIGKILL)


def runs(job: jf.Job, restarts: int = 0) -> bool:
    metrics = job.metrics
    return job.status is jf.JobStatus.RUNNING and metrics["restarts"] == restarts and metrics["rows_read"] > 0


@pytest.fixture
def killed_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """More kills in a row are a loss of the member, and a restart of the job."""
    monkeypatch.setattr(KilledAtTheStart, "kills", STARTS_MAX)
    monkeypatch.setattr("jetfast.clusters.processes.MemberProcesses", KilledAtTheStart)


@pytest.mark.usefixtures("killed_at_the_start")
def test_a_member_that_is_killed_while_it_starts_is_started_again_and_then_the_job_begins_again(tmp_path: Path) -> None:
    job = copying(tmp_path, rate=None)
    job.wait()
    assert job.metrics["restarts"] == 1
    check(tmp_path)


@pytest.mark.usefixtures("killed_at_the_start")
def test_a_member_that_is_killed_while_it_starts_fails_a_job_that_may_not_restart(tmp_path: Path) -> None:
    job = copying(tmp_path, rate=None, max_restarts=0)
    with pytest.raises(MemberLostError, match="member 1 did not start: its process was killed by SIGKILL"):
        job.wait()


@pytest.mark.parametrize("passes", [DiesWhenPrepared, DiesBetweenCommitAndAck])
def test_a_member_that_is_killed_while_it_prepares_or_the_job_completes_is_followed_by_another(
    passes: type[Passes], tmp_path: Path
) -> None:
    job = copying(tmp_path, passes(tmp_path), rate=None, snapshot_interval="1h")
    job.wait()
    assert job.metrics["restarts"] == 1
    check(tmp_path)


def test_a_member_that_is_killed_while_its_job_is_suspended_is_replaced(tmp_path: Path) -> None:
    job = copying(tmp_path)
    until(lambda: runs(job))
    job.suspend()
    kill_a_member(job)
    job.resume()
    job.wait()
    check(tmp_path)


def test_a_job_whose_restarts_are_used_up_fails_and_goes_on_when_it_is_submitted_again(tmp_path: Path) -> None:
    job = copying(tmp_path, max_restarts=1)
    until(lambda: runs(job))
    kill_a_member(job)
    until(lambda: runs(job, restarts=1))
    kill_a_member(job)
    with pytest.raises(MemberLostError):
        job.wait()
    copying(tmp_path, rate=None).wait()
    check(tmp_path)


def test_a_job_that_suspends_on_failure_does_so_when_its_restarts_are_used_up(tmp_path: Path) -> None:
    job = copying(tmp_path, max_restarts=0, suspend_on_failure=True)
    until(lambda: runs(job))
    kill_a_member(job)
    until(lambda: job.status is jf.JobStatus.SUSPENDED)
    assert isinstance(job.suspension_cause, MemberLostError)
    job.resume()
    job.wait()
    check(tmp_path)
