"""Executors of a standalone cluster leave for good and others join: a job goes on with what there is, its state too.

Every row bears the number it has among those of its key, and their sum: what is lost or doubled of the state shows.
"""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import jetfast as jf
from jetfast.errors import JobCancelledError
from jetfast.spark import SparkCluster
from jetfast.spark.slots import count_slots
from tests.chaos.grounds import executor_of, parent_of
from tests.chaos.hunted_pipeline import KEYS, NumberedRows
from tests.chaos.watched import Watched, end_source
from tests.chaos.works import ROWS_MARGIN
from tests.spark.standalone_cluster import StandaloneCluster

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

RATE = 2_000.0
PATIENCE_S = 600.0


@pytest.fixture(scope="module")
def standalone() -> Iterator[StandaloneCluster]:
    with StandaloneCluster(workers=2, cores=2) as cluster:
        yield cluster


def until(condition: Callable[[], object], what: str) -> None:
    give_up = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < give_up, what
        threading.Event().wait(0.02)  # leave the cores to them


class Scene:
    """A job that numbers rows by key, and the files that it writes."""

    def __init__(self, session: Any, folder: Path) -> None:
        self.session = session
        self.folder = folder
        self._began_s = time.monotonic()
        (folder / "out").mkdir()
        self.pipeline = jf.Pipeline("numbering")
        rows = self.pipeline.read(NumberedRows(RATE, Watched(folder), ("row", "key")), name="numbered")
        numbered = rows.group_by("key").rolling_agg(nth=jf.count(), total=jf.sum("row"), name="number")
        numbered.write(jf.files(str(folder / "out"), format="parquet"))

    def submit(self, **options: Any) -> jf.Job:
        """Begin, on four slots of two executors."""
        store = jf.snapshots.directory(self.folder / "snapshots")
        cluster = SparkCluster(
            self.session, members=4, workers=1, snapshot_store=store, start_timeout="10m", join_delay="1s", **options
        )
        job = cluster.submit(self.pipeline, snapshot_interval="500ms", progress=False)
        assert job.guarantee is jf.Guarantee.EXACTLY_ONCE
        return job

    def await_rows(self, job: jf.Job, members: int, after: int = 0) -> None:
        """Wait until an execution that is later than `after` writes rows on so many members."""

        def flows() -> bool:
            if job.status is jf.JobStatus.FAILED:
                job.wait()
            execution = job.runner.coordinator.execution_id
            metrics = job.metrics
            return (
                execution > after
                and job.status is jf.JobStatus.RUNNING
                and len(metrics["members"]) == members
                and metrics["rows_written"] > 0
                and execution == job.runner.coordinator.execution_id
            )

        until(flows, f"rows are written by {members} members")

    def check(self, job: jf.Job) -> None:
        """Let the job come to its end, and look at each row."""
        count = int(RATE * (time.monotonic() - self._began_s) * ROWS_MARGIN)
        end_source(self.folder, count)
        job.wait(PATIENCE_S)
        files = [path for path in (self.folder / "out").iterdir() if not path.name.startswith(".")]
        written = pa.concat_tables([pq.read_table(path) for path in files])
        assert np.array_equal(np.sort(written["row"].to_numpy()), np.arange(count)), "each row once"
        in_order = written.sort_by([("key", "ascending"), ("nth", "ascending")])
        row, key, nth, total = (in_order[name].to_numpy() for name in ("row", "key", "nth", "total"))
        assert np.array_equal(key, np.sort(row % KEYS))
        for one in range(KEYS):
            of_key = key == one
            assert np.array_equal(nth[of_key], np.arange(of_key.sum()) + 1), "no number of a key twice"
            assert np.array_equal(total[of_key], np.cumsum(row[of_key])), "in the order in which they were counted"


def processes(job: jf.Job) -> list[int]:
    return [member["pid"] for member in job.metrics["members"]]


def worker_of(member: int) -> int:
    """Return the process id of the standalone worker that a member's executor belongs to."""
    return parent_of(executor_of(member))


def lose_a_worker_and_gain_another(
    standalone: StandaloneCluster, scene: Scene, job: jf.Job, how: signal.Signals
) -> None:
    """Take the slots of two members from a job that runs on four, and give them back on another worker."""
    assert len({worker_of(member) for member in processes(job)}) == 2
    before = job.runner.coordinator.execution_id
    standalone.end_worker(worker_of(processes(job)[0]), how)
    scene.await_rows(job, members=2, after=before)
    before = job.runner.coordinator.execution_id
    joined = standalone.start_worker()
    scene.await_rows(job, members=4, after=before)
    assert joined in {worker_of(member) for member in processes(job)}


def test_a_job_goes_on_with_fewer_members_when_a_worker_is_lost_and_with_all_when_another_joins(
    standalone: StandaloneCluster, make_spark_session: Any, tmp_path: Path
) -> None:
    session = make_spark_session(standalone.url)
    until(lambda: count_slots(session).free == 4, "a standalone cluster tells nobody how many executors will come")
    scene = Scene(session, tmp_path)
    job = scene.submit()
    scene.await_rows(job, members=4)
    lose_a_worker_and_gain_another(standalone, scene, job, signal.SIGKILL)
    scene.check(job)
    session.stop()


def test_dynamic_allocation_takes_idle_executors_and_brings_others_for_members_that_a_job_has_lost(
    standalone: StandaloneCluster, make_spark_session: Any, tmp_path: Path
) -> None:
    settings = {"enabled": "true", "shuffleTracking_enabled": "true", "executorIdleTimeout": "1s", "maxExecutors": "2"}
    settings = {f"dynamicAllocation_{name}": value for name, value in settings.items()} | {"executor_cores": "2"}
    session = make_spark_session(standalone.url, **{f"spark_{name}": value for name, value in settings.items()})
    scene = Scene(session, tmp_path)
    job = scene.submit(leave_delay="5s")
    scene.await_rows(job, members=4)
    until(lambda: job.metrics["snapshots_taken"] > 0, "the next job has something to go on from")
    job.cancel()
    with pytest.raises(JobCancelledError):
        job.wait(PATIENCE_S)
    until(lambda: count_slots(session).executors == 0, "idle executors leave")
    job = scene.submit(leave_delay="5s")
    scene.await_rows(job, members=4)
    lose_a_worker_and_gain_another(standalone, scene, job, signal.SIGTERM)
    scene.check(job)
    until(lambda: count_slots(session).busy == 0, "nobody holds a slot any more")
    session.stop()
