"""Windows after windows, sessions and the best results hold each row once though members die."""

from collections.abc import Callable
from typing import Any

import pytest

import jetfast as jf
from jetfast.engine.memory_snapshot_store import MemorySnapshotStore
from jetfast.testing import TransactionalMemory
from tests.clusters.test_recovery import rows, run_and_kill
from tests.simulation.stepped_job import SteppedJob


def best_then_windows(stage: Any) -> Any:
    first = (
        stage.group_by("key").window(jf.sliding("50us", "25us")).agg(n=jf.count(), total=jf.sum("row"), name="first")
    )
    best = first.top(3, by="total", name="best")
    return best.window(jf.tumbling("100us")).agg(n=jf.sum("n"), best=jf.count(), ranks=jf.sum("rank"), name="second")


def best_of_groups(stage: Any) -> Any:
    first = (
        stage.group_by("key", "row").window(jf.tumbling("100us")).agg(n=jf.count(), latest=jf.max("row"), name="first")
    )
    return first.top(2, by="latest", per="key", name="best")


def windows_of_sessions(stage: Any) -> Any:
    sessions = stage.group_by("key").window(jf.session("5us")).agg(n=jf.count(), total=jf.sum("row"), name="sessions")
    return sessions.group_by("key").window(jf.sliding("60us", "30us")).agg(
        ended=jf.count(), n=jf.sum("n"), total=jf.sum("total"), name="windows"
    )  # fmt: skip


@pytest.mark.parametrize(("build", "members"), [(best_then_windows, 2), (best_of_groups, 2), (windows_of_sessions, 1)])
def test_results_of_windows_are_those_of_a_run_without_failures(build: Callable[[Any], Any], members: int) -> None:
    def pipeline(sink: Any) -> jf.Pipeline:
        made = jf.Pipeline("windows")
        read = made.read(jf.memory(partitions=rows()))
        build(read.with_event_time("time", jf.watermarks.fixed_lag("1us"))).write(sink, name="outside")
        return made

    outside = TransactionalMemory.named()
    job = SteppedJob(pipeline(outside.sink()), seed=3, store=MemorySnapshotStore(), interval="30ms", members=members)
    run_and_kill(job, kills=3)
    assert job.runner.error is None
    assert job.job.metrics["restarts"] >= 1
    wanted = jf.LocalCluster().submit(pipeline(jf.collect()), progress=False).to_arrow().to_pylist()
    assert sorted(map(repr, outside.rows())) == sorted(map(repr, wanted))
    assert len(wanted) > 4
