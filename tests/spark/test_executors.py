"""Members on executors that are processes of their own: local-cluster, with a JVM for each of two executors."""

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import jetfast as jf
from jetfast.core.dag import Dag, Edge, Vertex
from jetfast.core.routing import partitioned
from jetfast.errors import JobCancelledError, MemberLostError, ResourcesError
from jetfast.processors.sink import WriteSink
from jetfast.processors.source import ReadSource
from jetfast.spark import SparkCluster
from tests.chaos.grounds import executor_of, parent_of

pytestmark = pytest.mark.spark

ROWS = 10_000
TABLE = pa.table({"key": np.arange(ROWS) % 101, "value": np.arange(ROWS)})
PATIENCE_S = 90.0


@pytest.fixture(scope="module")
def session(make_spark_session: Any) -> Any:
    import pyspark

    os.environ.setdefault("SPARK_HOME", str(Path(pyspark.__file__).parent))  # executors are started from it
    return make_spark_session("local-cluster[2,2,1024]")


class Exchange:
    """A pipeline of one distributed edge between source and sink."""

    name = "exchange"

    def __init__(self, unbounded: bool = False) -> None:
        self.unbounded = unbounded

    def plan(self, *, member_count: int, workers: int, two_stage: bool | None) -> Dag:
        source = jf.memory(TABLE, partitions=8, batch_rows=1000, unbounded=self.unbounded)
        dag = Dag(self.name)
        dag.add_vertex(Vertex("source", ReadSource(source)))
        dag.add_vertex(Vertex("sink", WriteSink(jf.collect(), source.schema)))
        dag.add_edge(Edge("source", "sink", source.schema, routing=partitioned("key"), distributed=True))
        return dag


def until(what: Any) -> None:
    """Wait for what other processes do."""
    give_up = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < give_up
        threading.Event().wait(0.01)  # leave the cores to them


def test_members_on_different_executors_exchange_rows(session: Any) -> None:
    job = SparkCluster(session, members=4).submit(Exchange(), progress=False)
    assert sorted(job.to_arrow()["value"].to_pylist()) == list(range(ROWS))
    members = job.metrics["members"]
    assert len({member["pid"] for member in members}) == 4
    assert len({parent_of(member["pid"]) for member in members if Path(f"/proc/{member['pid']}").exists()}) == 2
    assert all(member["rows_received"] > 0 for member in members)


def test_more_members_than_all_executors_can_carry_are_refused(session: Any) -> None:
    with pytest.raises(ResourcesError, match=r"5 free Spark slots are needed.* 2 executor\(s\) with 4 slot"):
        SparkCluster(session, members=5).submit(Exchange(), progress=False)


def lagging() -> jf.Pipeline:
    """Two partitions of a live source, read on two executors; "south" is 60 s behind "north" and falls silent there."""
    seconds = {"north": range(60, 120, 10), "south": range(0, 60, 10)}
    source = jf.memory(
        partitions={
            name: {"time": pa.array([second * 10**6 for second in times], pa.timestamp("us")), "meter": [name] * 6}
            for name, times in seconds.items()
        },
        unbounded=True,
    )
    pipeline = jf.Pipeline("meters")
    readings = pipeline.read(source, name="readings").with_event_time("time", jf.watermarks.fixed_lag("10s"), "0s")
    readings.group_by("meter").window(jf.tumbling("10s")).agg(n=jf.count(), name="counts").collect()
    return pipeline


def test_explain_watermark_names_the_partition_and_member_that_hold_time_back(session: Any) -> None:
    job = SparkCluster(session, members=2).submit(lagging(), progress=False)
    # Each member tells of its own sources and steps now and then; both must have.
    until(lambda: len(job.explain_watermark().sources[:1] and job.explain_watermark().sources[0].partitions) == 2)
    until(lambda: job.explain_watermark().watermark_us == 40 * 10**6)
    holder = job.explain_watermark().held_back_by
    assert holder is not None
    assert (holder.partition, holder.member, holder.behind_us) == ("south", 1, 60 * 10**6)
    assert "waits for a row later than 1970-01-01 00:00:50" in holder.waits_for
    assert job.metrics["late_rows"] == 0
    job.cancel()
    with pytest.raises(JobCancelledError):
        job.wait()


def test_with_a_retention_nobody_waits_for_another_executor_for_ever(session: Any) -> None:
    job = SparkCluster(session, members=2).submit(lagging(), progress=False, max_watermark_retention="200ms")
    # The watermark of "north", 110 s less the lag, is forwarded though "south" stays where it is.
    until(lambda: job.metrics["vertices"].get("counts", {}).get("watermark_us") == 100 * 10**6)
    job.cancel()
    with pytest.raises(JobCancelledError):
        job.wait()


def test_a_killed_worker_is_not_started_again_by_spark_within_the_job(session: Any) -> None:
    cluster = SparkCluster(session, members=2)
    job = cluster.submit(Exchange(unbounded=True), progress=False)
    until(lambda: job.metrics["rows_written"] == ROWS)
    killed = job.metrics["members"][0]["pid"]
    os.kill(killed, signal.SIGKILL)
    with pytest.raises(MemberLostError, match=rf"member 0 \(pid {killed} on .*\) is lost"):
        job.wait()
    until(lambda: not list(session.sparkContext.statusTracker().getActiveJobsIds()))
    assert cluster.submit(Exchange(), progress=False).to_arrow().num_rows == ROWS


def test_a_member_ends_with_its_executor(session: Any) -> None:
    cluster = SparkCluster(session, members=4)
    job = cluster.submit(Exchange(unbounded=True), progress=False)
    until(lambda: job.metrics["rows_written"] == ROWS)
    worker = job.metrics["members"][0]["pid"]
    os.kill(executor_of(worker), signal.SIGKILL)
    with pytest.raises(MemberLostError, match=r"member \d \(pid \d+ on .*\) is lost"):
        job.wait()
    until(lambda: not Path(f"/proc/{worker}").exists())
    assert cluster.submit(Exchange(), progress=False).to_arrow().num_rows == ROWS  # on a new executor
