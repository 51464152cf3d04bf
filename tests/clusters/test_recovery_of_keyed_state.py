"""State by key holds each row once though members die: the rows of a run without failures."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import jetfast as jf
from jetfast.engine.memory_snapshot_store import MemorySnapshotStore
from jetfast.testing import TransactionalMemory
from tests.clusters.test_recovery import rows, run_and_kill
from tests.simulation.stepped_job import SteppedJob

COUNTED = pa.schema([("key", pa.int64()), ("time", pa.timestamp("us")), ("n", pa.int64())])


def count_rows(batch: pa.RecordBatch, groups: Any, states: pa.Array) -> Any:
    counts = [state or 0 for state in states.to_pylist()]
    for group in groups:
        counts[group] += 1
    return None, counts


def tell(keys: pa.RecordBatch, states: pa.Array, times: pa.Array) -> pa.RecordBatch:
    return pa.record_batch([keys.column(0), times, states], schema=COUNTED)


def first_rows(stage: Any) -> Any:
    return stage.drop_duplicates("key", horizon="20us", name="first").window(jf.tumbling("100us")).agg(n=jf.count())


def running(stage: Any) -> Any:
    sums = stage.group_by("key").rolling_agg(n=jf.count(), total=jf.sum("row"), name="sums")
    return sums.group_by("key").window(jf.tumbling("100us")).agg(n=jf.max("n"), total=jf.max("total"))


def with_state(stage: Any) -> Any:
    grouped = stage.group_by("key")
    return grouped.map_stateful(count_rows, state=pa.int64(), schema=COUNTED, ttl="30us", on_evict=tell, name="counts")


@pytest.mark.simulation
@pytest.mark.parametrize(("build", "members"), [(first_rows, 1), (running, 2), (with_state, 2)])
def test_results_of_state_are_those_of_a_run_without_failures(build: Callable[[Any], Any], members: int) -> None:
    def pipeline(sink: Any) -> jf.Pipeline:
        made = jf.Pipeline("state")
        # One partition: in which order rows of several come differs from run to run.
        read = made.read(jf.memory(partitions={"a": rows()["a"]}))
        build(read.with_event_time("time", jf.watermarks.fixed_lag("1us"))).write(sink, name="outside")
        return made

    outside = TransactionalMemory.named()
    job = SteppedJob(pipeline(outside.sink()), seed=3, store=MemorySnapshotStore(), interval="30ms", members=members)
    run_and_kill(job, kills=3)
    assert job.runner.error is None
    assert job.job.metrics["restarts"] >= 1
    wanted = jf.LocalCluster().submit(pipeline(jf.collect()), progress=False).to_arrow().to_pylist()
    assert sorted(map(repr, outside.rows())) == sorted(map(repr, wanted))
    assert len(wanted) >= 2
