"""What runs on the local cluster runs on Spark with the same result, and whatever goes wrong there is said clearly."""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pyarrow as pa
import pytest

import jetfast as jf
from jetfast import col
from jetfast.connectors.memory import MemorySource
from jetfast.control.job import Job
from jetfast.control.job_client import ask_job, find_job
from jetfast.control.job_protocol import Restart
from jetfast.core.dag import Dag, Edge, Vertex
from jetfast.core.routing import BROADCAST, Routing, partitioned
from jetfast.errors import JobCancelledError, JobDefinitionError, JobFailedError, MemberLostError, ResourcesError
from jetfast.processors.sink import WriteSink
from jetfast.processors.source import ReadSource
from jetfast.spark import SparkCluster
from jetfast.spark.jobs import _safe_path

pytestmark = pytest.mark.spark
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # functions below go to workers that lack this file

ROWS = 20_000
TABLE = pa.table({"key": np.arange(ROWS) % 101, "value": np.arange(ROWS)})
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def session(make_spark_session: Any) -> Any:
    return make_spark_session("local[4]")


@pytest.fixture
def cluster(session: Any) -> Iterator[SparkCluster]:
    """Two members; nothing of a job may be left when the test ends, neither here nor in Spark."""
    before = set(threading.enumerate())
    yield SparkCluster(session, members=2)
    until(lambda: not list(session.sparkContext.statusTracker().getActiveJobsIds()))  # told by a listener, a bit late
    until(lambda: not [t for t in set(threading.enumerate()) - before if t.name.startswith("jetfast")])


def until(what: Any) -> None:
    """Wait for what other processes do."""
    give_up = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < give_up
        threading.Event().wait(0.01)  # leave the cores to them


def ended_with(job: Job, error: type[Exception], message: str) -> BaseException:
    with pytest.raises(error, match=message) as raised:
        job.wait()
    return raised.value


class Exchange:
    """A pipeline of one distributed edge between source and sink."""

    name = "exchange"

    def __init__(self, routing: Routing, unbounded: bool = False) -> None:
        self.routing = routing
        self.unbounded = unbounded

    def plan(self, *, member_count: int, workers: int, two_stage: bool | None) -> Dag:
        source = jf.memory(TABLE, partitions=8, batch_rows=1000, unbounded=self.unbounded)
        dag = Dag(self.name)
        dag.add_vertex(Vertex("source", ReadSource(source)))
        dag.add_vertex(Vertex("sink", WriteSink(jf.collect(), source.schema)))
        dag.add_edge(Edge("source", "sink", source.schema, routing=self.routing, distributed=True))
        return dag


def sorted_rows(table: pa.Table) -> list[dict[str, Any]]:
    return table.sort_by([(name, "ascending") for name in table.column_names]).to_pylist()


def test_a_pipeline_gives_the_same_rows_on_spark_as_on_the_local_cluster(cluster: SparkCluster) -> None:
    def halve(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.set_column(1, "value", pa.compute.divide(batch["value"], 2))

    pipeline = jf.Pipeline("halves")
    rows = pipeline.read(jf.memory(TABLE, partitions=8, batch_rows=1000), name="numbers")
    rows.where(col("key") < 50).map_batches(halve, name="halve").write(jf.collect())
    here = jf.LocalCluster(members=2, workers=1).submit(pipeline, progress=False).to_arrow()
    there = cluster.submit(pipeline, progress=False).to_arrow()
    assert here.num_rows > 0
    assert sorted_rows(there) == sorted_rows(here)


@pytest.mark.parametrize("two_stage", [False, True])
def test_windows_over_members_on_spark_equal_those_of_the_local_cluster(cluster: SparkCluster, two_stage: bool) -> None:
    generator = np.random.default_rng(7)
    times = np.arange(ROWS) * 50_000 + generator.integers(-30_000_000, 1, ROWS)
    table = pa.table(
        {
            "key": pa.array([f"key {number}" for number in generator.integers(0, 50, ROWS)]).dictionary_encode(),
            "time": pa.array(times, pa.timestamp("us")),
            "value": pa.array(generator.integers(0, 1000, ROWS) / 64, mask=generator.random(ROWS) < 0.1),
        }
    )
    pipeline = jf.Pipeline("windows")
    rows = pipeline.read(jf.memory(table, partitions=4, batch_rows=700), name="numbers")
    windows = (
        rows.with_event_time("time", jf.watermarks.fixed_lag("31s"))
        .group_by("key")
        .window(jf.sliding("60s", "10s"))
        .agg(rows=jf.count(), mean=jf.mean("value"), lowest=jf.min("value"), highest=jf.max("value"), name="windows")
    )
    windows.write(jf.collect())
    here = jf.LocalCluster(members=2, workers=1).submit(pipeline, progress=False, two_stage=two_stage)
    there = cluster.submit(pipeline, progress=False, two_stage=two_stage)
    assert here.to_arrow().num_rows > 5000
    assert sorted_rows(there.to_arrow()) == sorted_rows(here.to_arrow())
    assert there.metrics["late_rows"] == there.metrics["partly_late_rows"] == 0
    for member in there.metrics["members"]:
        assert min(member["rows_read"], member["rows_sent"], member["rows_received"]) > 0


@pytest.mark.parametrize("routing", [partitioned("key"), BROADCAST], ids=["partitioned", "broadcast"])
def test_members_are_processes_that_exchange_rows_directly(cluster: SparkCluster, routing: Routing) -> None:
    job = cluster.submit(Exchange(routing), progress=False)
    rows = job.to_arrow()
    assert sorted(rows["value"].to_pylist()) == sorted(list(range(ROWS)) * (2 if routing is BROADCAST else 1))
    members = job.metrics["members"]
    assert len({os.getpid(), *(member["pid"] for member in members)}) == 3
    for member in members:
        assert member["rows_read"] == ROWS // 2
        assert member["rows_received"] > 0
        assert member["bytes_sent"] > 0
        assert member["bytes_received"] > 16 * member["rows_received"]


def test_collections_of_garbage_in_workers_pass_over_what_their_first_job_imported(
    cluster: SparkCluster, session: Any
) -> None:
    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import gc

        for _ in batches:
            pass
        imported = sys.modules.get("jetfast.processors.source")  # by members, not by this function
        looked_at = imported is not None and any(each is imported.ReadSource for each in gc.get_objects())
        yield pa.record_batch({"was_member": [imported is not None], "looked_at": [looked_at]})

    cluster.submit(Exchange(partitioned("key")), progress=False).to_arrow()
    until(lambda: not list(session.sparkContext.statusTracker().getActiveJobsIds()))  # its workers are free again
    with _safe_path(session.sparkContext):  # Spark gives functions the workers of their environment: those of members
        found = session.range(0, 4, 1, 4).mapInArrow(look, "was_member boolean, looked_at boolean").toArrow()
    assert pa.compute.any(found["was_member"]).as_py()
    assert not pa.compute.any(found["looked_at"]).as_py()


def test_two_jobs_run_at_once_and_their_members_are_named_in_spark(cluster: SparkCluster, session: Any) -> None:
    def described(job: Job, member: int) -> list[str]:
        """What Spark's UI shows of a member's Spark jobs; the UI reads from this store."""
        store = session.sparkContext._jsc.sc().statusStore()
        ids = session.sparkContext.statusTracker().getJobIdsForGroup(f"jetfast-{job.id}-{member}")
        return [store.job(number).description().get() for number in ids]

    jobs = {
        name: cluster.submit(Exchange(partitioned("key"), unbounded=True), name=name, progress=False)
        for name in ("the numbers", "more numbers")
    }
    until(lambda: all(job.metrics["rows_written"] == ROWS for job in jobs.values()))
    for name, job in jobs.items():
        for member in (0, 1):
            assert described(job, member) == [f"jetfast job {name}: member {member} of 2"]
    pids = {member["pid"] for job in jobs.values() for member in job.metrics["members"]}
    assert len(pids) == 4
    for job in jobs.values():
        job.cancel()
        ended_with(job, JobCancelledError, "cancelled")


def test_more_members_than_slots_are_refused_before_anything_runs(session: Any) -> None:
    tracker = session.sparkContext.statusTracker()
    before = set(tracker.getJobIdsForGroup(None))
    with pytest.raises(
        ResourcesError, match=r"5 free Spark slots are needed.* there are 4: 1 executor\(s\) with 4 slot"
    ):
        SparkCluster(session, members=5).submit(Exchange(partitioned("key")), progress=False)
    assert set(tracker.getJobIdsForGroup(None)) == before


def test_slots_that_another_job_holds_are_not_counted(
    cluster: SparkCluster, session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jetfast.spark.cluster.WAIT_S", 0.0)
    first = cluster.submit(Exchange(partitioned("key"), unbounded=True), progress=False)
    until(lambda: first.metrics["rows_written"] == ROWS)
    with pytest.raises(ResourcesError, match="3 free Spark slots are needed.* there are 2: .* 2 of them busy"):
        SparkCluster(session, members=3).submit(Exchange(partitioned("key")), progress=False)
    second = cluster.submit(Exchange(partitioned("key")), progress=False)
    assert second.to_arrow().num_rows == ROWS
    first.cancel()
    ended_with(first, JobCancelledError, "cancelled")


def test_a_user_function_that_raises_is_named_with_step_and_member(cluster: SparkCluster) -> None:
    def trip(batch: pa.RecordBatch) -> pa.RecordBatch:
        if 12_345 in batch["value"].to_pylist():
            raise ValueError("I do not like 12345")
        return batch

    pipeline = jf.Pipeline("picky")
    rows = pipeline.read(jf.memory(TABLE, partitions=8, batch_rows=1000), name="numbers")
    rows.map_batches(trip, name="trip over").write(jf.collect())
    error = ended_with(cluster.submit(pipeline, progress=False), JobFailedError, "I do not like 12345")
    assert "trip over" in str(error)
    assert "member" in str(error)
    assert "in trip" in str(error.__cause__)  # the traceback, as it was on the member


def test_what_members_log_and_warn_of_is_logged_here_with_their_names(
    cluster: SparkCluster, caplog: pytest.LogCaptureFixture
) -> None:
    def tell(batch: pa.RecordBatch) -> pa.RecordBatch:
        import logging
        import warnings

        if batch.num_rows:
            logging.getLogger("users.steps").warning("saw %d", batch["value"][0].as_py())
            warnings.warn("not so fast", stacklevel=1)
        return batch

    pipeline = jf.Pipeline("telling")
    rows = pipeline.read(jf.memory(TABLE, partitions=2, batch_rows=ROWS // 2), name="numbers")
    rows.map_batches(tell, name="tell").write(jf.collect())
    cluster.submit(pipeline, progress=False).wait()
    told = {record.getMessage() for record in caplog.records if record.name == "users.steps"}
    assert told == {"member 0: saw 0", f"member 1: saw {ROWS // 2}"}
    warned = [record.getMessage() for record in caplog.records if record.name == "py.warnings"]
    assert len(warned) == 2
    assert all(text.startswith("member ") and "UserWarning: not so fast" in text for text in warned)


def test_a_job_can_be_cancelled_and_the_next_one_runs(cluster: SparkCluster) -> None:
    job = cluster.submit(Exchange(partitioned("key"), unbounded=True), progress=False)
    until(lambda: job.metrics["rows_written"] == ROWS)
    job.cancel()
    ended_with(job, JobCancelledError, "cancelled")
    assert cluster.submit(Exchange(partitioned("key")), progress=False).to_arrow().num_rows == ROWS


def test_a_job_without_a_guarantee_is_suspended_and_restarted_on_the_same_members(
    cluster: SparkCluster,
) -> None:
    pipeline = jf.Pipeline("endless")
    pipeline.read(jf.generator({"x": pa.int64()}, rate=1000, partitions=2)).collect()
    with cluster.submit(pipeline, progress=False) as job:
        until(lambda: job.status is jf.JobStatus.RUNNING)
        processes = [member["pid"] for member in job.metrics["members"]]
        job.suspend(PATIENCE_S)
        assert job.status is jf.JobStatus.SUSPENDED
        job.resume()
        until(lambda: job.status is jf.JobStatus.RUNNING)
        path, report = find_job("endless", PATIENCE_S)  # as the command line does
        assert (report.cluster, report.pid, report.members_wanted) == ("spark", os.getpid(), cluster.members)
        ask_job(path, Restart(), PATIENCE_S)
        until(lambda: job.status is jf.JobStatus.RUNNING)
        assert [member["pid"] for member in job.metrics["members"]] == processes


def test_a_member_that_is_killed_fails_the_job_and_leaves_nothing(cluster: SparkCluster) -> None:
    job = cluster.submit(Exchange(partitioned("key"), unbounded=True), progress=False)
    until(lambda: job.metrics["rows_written"] == ROWS)
    killed = job.metrics["members"][1]["pid"]
    os.kill(killed, signal.SIGKILL)
    ended_with(job, MemberLostError, rf"member 1 \(pid {killed} on .*\) is lost")
    until(lambda: not Path(f"/proc/{killed}").exists())
    assert cluster.submit(Exchange(partitioned("key")), progress=False).to_arrow().num_rows == ROWS


def test_a_function_that_blocks_for_ever_does_not_outlive_cancel(
    cluster: SparkCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jetfast.control.member_links.END_TIMEOUT_S", 0.5)

    def block(batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch.num_rows:  # when the pipeline is built it is shown none
            threading.Event().wait()
        return batch

    pipeline = jf.Pipeline("stuck")
    pipeline.read(jf.memory(TABLE, partitions=2), name="numbers").map_batches(block, name="block").write(jf.collect())
    job = cluster.submit(pipeline, progress=False)
    until(lambda: job.status.value == "running")
    job.cancel()
    with pytest.raises((JobCancelledError, MemberLostError)):
        job.wait()


def test_what_cannot_be_pickled_is_refused_at_submission(cluster: SparkCluster) -> None:
    lock = threading.Lock()

    def locked(batch: pa.RecordBatch) -> pa.RecordBatch:
        with lock:
            return batch

    pipeline = jf.Pipeline("locked")
    pipeline.read(jf.memory(TABLE), name="numbers").map_batches(locked, name="locked").write(jf.collect())
    with pytest.raises(JobDefinitionError, match="cannot be pickled"):
        cluster.submit(pipeline, progress=False)


def test_a_job_that_is_too_large_to_send_is_refused(cluster: SparkCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jetfast.clusters.submission.DAG_BYTES_MAX", 10_000)
    with pytest.raises(JobDefinitionError, match="belong into files"):
        cluster.submit(Exchange(partitioned("key")), progress=False)


def test_a_session_that_kills_idle_workers_is_refused(session: Any) -> None:
    setting = "spark.sql.execution.pyspark.udf.killOnIdleTimeout"
    session.conf.set(setting, "true")
    try:
        with pytest.raises(ResourcesError, match=f"{setting} .*Set it to false"):
            SparkCluster(session)
    finally:
        session.conf.unset(setting)


def test_a_worker_python_without_jetfast_is_explained(cluster: SparkCluster, session: Any) -> None:
    context = session.sparkContext
    right = context.pythonExec
    context.pythonExec = "/nonexistent/python3"
    try:
        job = cluster.submit(Exchange(partitioned("key")), progress=False)
        ended_with(job, ResourcesError, "did not start.*PYSPARK_PYTHON")
    finally:
        context.pythonExec = right


class Growing(MemorySource):
    """Its second partition comes when the first has been read for a while."""

    def partitions_complete(self) -> bool:
        return self.is_there

    def partitions(self) -> list[str]:
        names = list(super().partitions())
        self.asked = getattr(self, "asked", 0) + 1
        return names if self.is_there else names[:1]

    @property
    def is_there(self) -> bool:
        return getattr(self, "asked", 0) >= 3


def test_partitions_that_come_while_a_job_runs_are_read_by_members_on_spark(cluster: SparkCluster) -> None:
    halves = {"a": [TABLE.slice(0, ROWS // 2).combine_chunks()], "b": [TABLE.slice(ROWS // 2).combine_chunks()]}
    made = jf.memory(partitions={name: half[0].to_batches() for name, half in halves.items()}, schema=TABLE.schema)
    source = Growing(made.name, made.schema, made.scripts, False, made.batch_rows, made.identity, ends=True)
    source.discovery_interval = "20ms"
    pipeline = jf.Pipeline("growing")
    pipeline.read(source).write(jf.collect())
    assert sorted_rows(cluster.submit(pipeline, progress=False).to_arrow()) == sorted_rows(TABLE)
