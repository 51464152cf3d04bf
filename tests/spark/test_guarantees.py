"""A job with snapshots on real executors writes each row once, whoever is killed or frozen; and its whole lifecycle."""

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import jetfast as jf
from jetfast.clusters.continuation import continue_job
from jetfast.errors import JobCancelledError, JobDefinitionError, OperationRefused
from jetfast.spark import SparkCluster
from tests.chaos.grounds import executor_of
from tests.chaos.hunted_pipeline import hunted_pipeline
from tests.chaos.targets import Target
from tests.chaos.watched import Watched, end_source
from tests.chaos.works import ROWS_MARGIN

pytestmark = [pytest.mark.spark, pytest.mark.timeout(3600)]

RATE = 5_000.0
PATIENCE_S = 900.0


@pytest.fixture(scope="module")
def session(make_spark_session: Any) -> Any:
    import pyspark

    os.environ.setdefault("SPARK_HOME", str(Path(pyspark.__file__).parent))  # executors are started from it
    return make_spark_session("local-cluster[2,2,1024]")


def until(condition: Callable[[], object], what: str) -> None:
    give_up = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < give_up, what
        threading.Event().wait(0.01)  # leave the cores to them


class Scene:
    """A job of the hunted pipeline, and the files that it writes."""

    def __init__(self, folder: Path) -> None:
        self.target = Target("files", "hunted", str(folder))
        self.store = jf.snapshots.directory(folder / "snapshots")
        self.pipeline = hunted_pipeline(self.target.sink(), RATE, Watched(folder))
        self.folder = folder
        self._began_s = time.monotonic()

    def submit(self, session: Any, members: int = 2, join_delay: str = "10s", **options: Any) -> jf.Job:
        self._began_s = time.monotonic()
        cluster = SparkCluster(
            session,
            members=members,
            workers=1,
            start_timeout="10m",  # of a slow machine
            snapshot_store=self.store,
            join_delay=join_delay,
        )
        job = cluster.submit(self.pipeline, name="hunted", snapshot_interval="100ms", progress=False, **options)
        self.await_rows(job)
        return job

    def await_rows(self, job: jf.Job, after: int = 0) -> None:
        """Wait until an execution that is later than `after` has written rows."""

        def flows() -> bool:
            if job.status is jf.JobStatus.FAILED:
                job.wait()
            later = job.runner.coordinator.execution_id > after
            return later and job.status is jf.JobStatus.RUNNING and job.metrics["rows_written"] > 0

        until(flows, "rows flow")

    def check(self, job: jf.Job) -> None:
        """Let the job come to its end, and look at each row."""
        rows = int(RATE * (time.monotonic() - self._began_s) * ROWS_MARGIN)
        end_source(self.folder, rows)
        job.wait(PATIENCE_S)
        found = self.target.compare(rows)
        assert (found.lost, found.duplicated, found.wrong, found.left) == (0, 0, 0, 0)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    (tmp_path / "out").mkdir()
    return Scene(tmp_path)


def processes(job: jf.Job) -> list[int]:
    return [member["pid"] for member in job.metrics["members"]]


def test_each_row_is_written_once_though_workers_and_executors_are_killed_and_frozen(
    session: Any, scene: Scene
) -> None:
    job = scene.submit(session, members=2)
    assert job.guarantee is jf.Guarantee.EXACTLY_ONCE
    deaths: list[Callable[[int], None]] = [
        lambda worker: os.kill(worker, signal.SIGKILL),
        lambda worker: os.kill(executor_of(worker), signal.SIGKILL),
        lambda worker: os.kill(worker, signal.SIGSTOP),
    ]
    for number, die in enumerate(deaths):
        before = job.runner.coordinator.execution_id
        worker = processes(job)[number % 2]
        die(worker)
        scene.await_rows(job, after=before)
        assert worker not in processes(job)
        until(lambda worker=worker: not Path(f"/proc/{worker}").exists(), "it is gone, also if it was frozen")
    assert job.metrics["restarts"] >= len(deaths)
    scene.check(job)


def test_a_job_is_suspended_resumed_restarted_exported_and_upgraded(session: Any, scene: Scene) -> None:
    job = scene.submit(session)
    job.suspend(PATIENCE_S)
    assert job.status is jf.JobStatus.SUSPENDED
    assert job.metrics["snapshots"][-1]["kind"] == "terminal"
    with pytest.raises(OperationRefused, match="suspended, and must be running"):
        job.restart()
    before = job.runner.coordinator.execution_id
    job.resume()
    scene.await_rows(job, after=before)
    job.export_snapshot("kept", PATIENCE_S)
    members = processes(job)
    before = job.runner.coordinator.execution_id
    job.restart(PATIENCE_S)
    scene.await_rows(job, after=before)
    assert processes(job) == members, "nobody is started again for that"
    job.cancel_and_export_snapshot("last", PATIENCE_S)
    with pytest.raises(JobCancelledError):
        job.wait(PATIENCE_S)
    upgraded = scene.submit(session, members=1, initial_snapshot="last")
    scene.check(upgraded)


def test_a_job_that_was_cancelled_goes_on_as_it_was_submitted(session: Any, scene: Scene) -> None:
    job = scene.submit(session, max_restarts=7)
    job.cancel()
    with pytest.raises(JobCancelledError):
        job.wait(PATIENCE_S)
    with pytest.raises(JobDefinitionError, match="ran on a cluster of kind 'spark': give cluster="):
        continue_job(scene.store, "hunted", scene.pipeline, progress=False)
    again = continue_job(
        scene.store, "hunted", scene.pipeline, cluster=SparkCluster(session, members=2), progress=False
    )
    assert again.runner.plan.max_restarts == 7
    scene.check(again)


def test_a_guarantee_needs_a_store_that_executors_share(session: Any, scene: Scene) -> None:
    with pytest.raises(JobDefinitionError, match="needs a place for snapshots: give snapshot_store="):
        SparkCluster(session).submit(scene.pipeline, guarantee=jf.Guarantee.EXACTLY_ONCE, progress=False)
    with pytest.raises(JobDefinitionError, match="cannot share the snapshot store"):
        SparkCluster(session).submit(scene.pipeline, snapshot_store=jf.snapshots.memory(), progress=False)
