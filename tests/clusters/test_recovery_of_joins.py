"""Joins hold each pair once though members die: the rows of a run without failures."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import jetfast as jf
from jetfast import col
from jetfast.engine.memory_snapshot_store import MemorySnapshotStore
from jetfast.testing import TransactionalMemory
from tests.clusters.test_recovery import KEYS, rows, run_and_kill
from tests.simulation.stepped_job import SteppedJob

Build = Callable[[Any, Any, Any], Any]


def by_window(stage: Any, other: Any, table: Any) -> Any:
    return stage.window_join(other, jf.sliding("20us", "10us"), on="key", how="outer", name="join")


def by_interval(stage: Any, other: Any, table: Any) -> Any:
    return stage.interval_join(other, lower="-7us", upper="14us", on="key", how="outer", name="join")


def by_latest(stage: Any, other: Any, table: Any) -> Any:
    return stage.asof_join(other.drop("row"), on="key", tolerance="20us", name="join")


def with_a_table(stage: Any, other: Any, table: Any) -> Any:
    joined = stage.union(other).hash_join(table, on="key", how="left", name="join")
    return joined.group_by("name").window(jf.tumbling("50us")).agg(n=jf.count(), total=jf.sum("row"), name="sums")


JOBS = [(by_window, 2), (by_interval, 1), (by_latest, 2), (with_a_table, 2)]


@pytest.mark.simulation
@pytest.mark.parametrize(("build", "members"), JOBS)
def test_results_of_joins_are_those_of_a_run_without_failures(build: Build, members: int) -> None:
    def pipeline(sink: Any) -> jf.Pipeline:
        made = jf.Pipeline("joins")
        lag = jf.watermarks.fixed_lag("1us")
        read = made.read(jf.memory(partitions=rows()), name="left").with_event_time("time", lag)
        others = made.read(jf.memory(partitions=rows()), name="right").with_event_time("time", lag)
        names = pa.table({"key": range(KEYS - 1), "name": [f"n{key % 3}" for key in range(KEYS - 1)]})
        table = made.read(jf.memory(names, batch_rows=1), name="table") if build is with_a_table else None
        build(read.where(col("row") % 3 != 0), others.where(col("row") % 5 != 0), table).write(sink, name="outside")
        return made

    outside = TransactionalMemory.named()
    job = SteppedJob(pipeline(outside.sink()), seed=3, store=MemorySnapshotStore(), interval="30ms", members=members)
    run_and_kill(job, kills=3)
    assert job.runner.error is None
    assert job.job.metrics["restarts"] >= 1
    wanted = jf.LocalCluster().submit(pipeline(jf.collect()), progress=False).to_arrow().to_pylist()
    assert sorted(map(repr, outside.rows())) == sorted(map(repr, wanted))
    assert len(wanted) > 4
