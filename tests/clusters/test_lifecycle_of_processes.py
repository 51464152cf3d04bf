"""Jobs on real processes are suspended, resumed, restarted, exported, cancelled and upgraded; sinks are looked at.

The whole table, state x operation, is tried on the machine: `tests/control/test_lifecycle.py`. Here are the states that
last: one that starts, runs, is suspended, has failed, is completed.
"""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import jetfast as jf
from jetfast.core.crash_points import set_crash_hook
from jetfast.errors import JobCancelledError, OperationRefused
from tests.chaos.hunted_pipeline import hunted_pipeline
from tests.chaos.targets import Found, SinkKind, Target
from tests.chaos.watched import Watched, end_source
from tests.chaos.works import ROWS_MARGIN
from tests.connectors.postgres_server import PostgresServer

pytestmark = [pytest.mark.services, pytest.mark.timeout(1800)]

RATE = 10_000.0
PATIENCE_S = 300.0
OPERATIONS: dict[str, Callable[[jf.Job], None]] = {
    "suspend": lambda job: job.suspend(PATIENCE_S),
    "resume": lambda job: job.resume(),
    "restart": lambda job: job.restart(PATIENCE_S),
    "export": lambda job: job.export_snapshot("kept", PATIENCE_S),
    "cancel and export": lambda job: job.cancel_and_export_snapshot("kept", PATIENCE_S),
}


class Gate(Watched):
    """Members wait where they are told of the job, until it is opened."""

    def __reduce__(self) -> tuple[Callable[[Path], Watched], tuple[Path]]:
        return _wait_at_gate, (self.folder,)

    def open(self) -> None:
        (self.folder / "open").touch()


def _wait_at_gate(folder: Path) -> Watched:
    until(lambda: (folder / "open").exists(), "the gate is opened")
    return Watched(folder)


def until(condition: Callable[[], object], what: str) -> None:
    give_up = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < give_up, what
        threading.Event().wait(0.005)


class Scene:
    """One job after the other, that write into one place."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.folder = Path(target.folder)
        self.gate = Gate(self.folder)
        self.began_s = time.monotonic()

    def submit(self, members: int = 2, **options: Any) -> jf.Job:
        pipeline = hunted_pipeline(self.target.sink(), RATE, self.gate)
        store = jf.snapshots.directory(self.folder / "snapshots")
        return jf.ProcessCluster(members, snapshot_store=store).submit(
            pipeline, name=self.target.job, snapshot_interval="50ms", progress=False, **options
        )

    def written(self) -> int:
        """Rows that can be seen, each once; and nothing is open besides."""
        found = self.target.compare(self.rows_given)
        assert (found.duplicated, found.wrong, found.left) == (0, 0, 0)
        return found.rows - found.lost

    @property
    def rows_given(self) -> int:
        """More than the source has given out by now."""
        return int(RATE * (time.monotonic() - self.began_s) * ROWS_MARGIN)

    def end_source(self) -> int:
        rows = self.rows_given
        end_source(self.folder, rows)
        return rows

    def await_rows(self, job: jf.Job) -> None:
        until(lambda: job.status is jf.JobStatus.RUNNING and job.metrics["rows_written"] > 0, "rows flow")


@pytest.fixture
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    kind: SinkKind = request.param
    conninfo = ""
    if kind == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres_server")
        server.clear()
        conninfo = server.conninfo
    target = Target(kind, "lived", str(tmp_path), conninfo, conninfo, "lived")
    target.make()
    yield Scene(target)
    set_crash_hook(None)


def refuses(job: jf.Job, *operations: str) -> None:
    status = job.status
    for name in operations:
        with pytest.raises(OperationRefused):
            OPERATIONS[name](job)
    assert job.status is status


@pytest.mark.parametrize("scene", ["postgres"], indirect=True)
def test_operations_do_what_the_table_says_in_each_state_that_lasts_and_rows_are_written_once(scene: Scene) -> None:
    job = scene.submit()
    with job:
        until(lambda: job.status is jf.JobStatus.STARTING, "it starts")
        refuses(job, "resume", "restart", "export", "cancel and export")
        suspended = threading.Thread(target=job.suspend, args=(PATIENCE_S,))
        suspended.start()
        scene.gate.open()
        suspended.join()
        assert job.status is jf.JobStatus.SUSPENDED

        job.resume()
        scene.await_rows(job)
        refuses(job, "resume")
        before = job.runner.coordinator.execution_id
        job.restart(PATIENCE_S)
        scene.await_rows(job)
        assert job.runner.coordinator.execution_id > before
        job.export_snapshot("kept", PATIENCE_S)
        assert job.status is jf.JobStatus.RUNNING

        job.suspend(PATIENCE_S)
        written = scene.written()
        assert written > 0
        refuses(job, "restart")
        job.suspend(PATIENCE_S)
        job.export_snapshot("kept", PATIENCE_S)
        killed, other = (view.registered.pid for _, view in sorted(job.runner.members.items()))
        os.kill(killed, signal.SIGKILL)
        assert job.status is jf.JobStatus.SUSPENDED
        assert scene.written() == written, "nothing of a suspended job does anything"

        job.resume()
        scene.await_rows(job)
        assert other in {member["pid"] for member in job.metrics["members"]}, "it has kept its other member"
        job.cancel_and_export_snapshot("kept", PATIENCE_S)
        with pytest.raises(JobCancelledError):
            job.wait(PATIENCE_S)
        assert job.status is jf.JobStatus.FAILED
        refuses(job, *OPERATIONS)
        assert scene.written() >= written

    rows = scene.end_source()
    upgraded = scene.submit(members=3, initial_snapshot="kept")
    upgraded.wait(PATIENCE_S)
    assert upgraded.status is jf.JobStatus.COMPLETED
    refuses(upgraded, *OPERATIONS)
    assert scene.target.compare(rows) == Found(rows, lost=0, duplicated=0, wrong=0, left=0)


@pytest.mark.parametrize("scene", ["files"], indirect=True)
def test_a_job_that_is_cancelled_in_any_state_leaves_what_its_last_snapshot_holds(scene: Scene) -> None:
    for state in (jf.JobStatus.STARTING, jf.JobStatus.RUNNING, jf.JobStatus.SUSPENDED):
        job = scene.submit()
        if state is jf.JobStatus.STARTING:
            until(lambda job=job: job.status is jf.JobStatus.STARTING, "it starts")  # type: ignore[misc]
        else:
            scene.await_rows(job)
        if state is jf.JobStatus.SUSPENDED:
            job.suspend(PATIENCE_S)
        job.cancel()
        scene.gate.open()
        with pytest.raises(JobCancelledError):
            job.wait(PATIENCE_S)
        assert job.status is jf.JobStatus.FAILED
    assert scene.written() > 0
    rows = scene.end_source()
    scene.submit(members=1).wait(PATIENCE_S)
    assert scene.target.compare(rows) == Found(rows, lost=0, duplicated=0, wrong=0, left=0)
