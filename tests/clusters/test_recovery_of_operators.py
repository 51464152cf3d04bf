"""Windows, joins and state by key hold each row once though members die: the rows of a run without failures."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

import jetfast as jf
from jetfast import col
from jetfast.engine.memory_snapshot_store import MemorySnapshotStore
from jetfast.testing import TransactionalMemory
from tests.clusters.test_recovery import KEYS, rows, run_and_kill
from tests.simulation.stepped_job import SteppedJob

LAG = "1us"


def read(pipeline: jf.Pipeline, name: str = "rows", partitions: str = "ab") -> Any:
    source = jf.memory(partitions={partition: rows()[partition] for partition in partitions})
    return pipeline.read(source, name=name).with_event_time("time", jf.watermarks.fixed_lag(LAG))


def best_then_windows(pipeline: jf.Pipeline) -> Any:
    sliding = read(pipeline).group_by("key").window(jf.sliding("50us", "25us"))
    best = sliding.agg(n=jf.count(), total=jf.sum("row"), name="first").top(3, by="total", name="best")
    return best.window(jf.tumbling("100us")).agg(n=jf.sum("n"), best=jf.count(), ranks=jf.sum("rank"), name="second")


def best_of_groups(pipeline: jf.Pipeline) -> Any:
    first = read(pipeline).group_by("key", "row").window(jf.tumbling("100us"))
    return first.agg(n=jf.count(), latest=jf.max("row"), name="first").top(2, by="latest", per="key", name="best")


def windows_of_sessions(pipeline: jf.Pipeline) -> Any:
    sessions = read(pipeline).group_by("key").window(jf.session("5us"))
    ended = sessions.agg(n=jf.count(), total=jf.sum("row"), name="sessions").group_by("key")
    windows = ended.window(jf.sliding("60us", "30us"))
    return windows.agg(ended=jf.count(), n=jf.sum("n"), total=jf.sum("total"), name="windows")


def two_streams(pipeline: jf.Pipeline) -> tuple[Any, Any]:
    left, right = read(pipeline, "left"), read(pipeline, "right")
    return left.where(col("row") % 3 != 0), right.where(col("row") % 5 != 0)


def by_window(pipeline: jf.Pipeline) -> Any:
    left, right = two_streams(pipeline)
    return left.window_join(right, jf.sliding("20us", "10us"), on="key", how="outer", name="join")


def by_interval(pipeline: jf.Pipeline) -> Any:
    left, right = two_streams(pipeline)
    return left.interval_join(right, lower="-7us", upper="14us", on="key", how="outer", name="join")


def by_latest(pipeline: jf.Pipeline) -> Any:
    left, right = two_streams(pipeline)
    return left.asof_join(right.drop("row"), on="key", tolerance="20us", name="join")


def with_a_table(pipeline: jf.Pipeline) -> Any:
    left, right = two_streams(pipeline)
    names = pa.table({"key": range(KEYS - 1), "name": [f"n{key % 3}" for key in range(KEYS - 1)]})
    table = pipeline.read(jf.memory(names, batch_rows=1), name="table")
    joined = left.union(right).hash_join(table, on="key", how="left", name="join")
    return joined.group_by("name").window(jf.tumbling("50us")).agg(n=jf.count(), total=jf.sum("row"), name="sums")


# Of state by key one partition: in which order rows of several come differs from run to run.


def first_rows(pipeline: jf.Pipeline) -> Any:
    first = read(pipeline, partitions="a").drop_duplicates("key", horizon="20us", name="first")
    return first.window(jf.tumbling("100us")).agg(n=jf.count())


def running(pipeline: jf.Pipeline) -> Any:
    grouped = read(pipeline, partitions="a").group_by("key")
    sums = grouped.rolling_agg(n=jf.count(), total=jf.sum("row"), name="sums")
    return sums.group_by("key").window(jf.tumbling("100us")).agg(n=jf.max("n"), total=jf.max("total"))


COUNTED = pa.schema([("key", pa.int64()), ("time", pa.timestamp("us")), ("n", pa.int64())])


def count_rows(batch: pa.RecordBatch, groups: Any, states: pa.Array) -> Any:
    counts = [state or 0 for state in states.to_pylist()]
    for group in groups:
        counts[group] += 1
    return None, counts


def tell(keys: pa.RecordBatch, states: pa.Array, times: pa.Array) -> pa.RecordBatch:
    return pa.record_batch([keys.column(0), times, states], schema=COUNTED)


def with_state(pipeline: jf.Pipeline) -> Any:
    grouped = read(pipeline, partitions="a").group_by("key")
    return grouped.map_stateful(count_rows, state=pa.int64(), schema=COUNTED, ttl="30us", on_evict=tell, name="counts")


class Case(NamedTuple):
    """Steps that end in results, and on how many members they run."""

    build: Callable[[jf.Pipeline], Any]
    members: int


QUICK = [Case(best_then_windows, 2), Case(best_of_groups, 2), Case(windows_of_sessions, 1)]
OTHERS = [
    Case(by_window, 2),
    Case(by_interval, 1),
    Case(by_latest, 2),
    Case(with_a_table, 2),
    Case(first_rows, 1),
    Case(running, 2),
    Case(with_state, 2),
]
CASES = [*QUICK, *(pytest.param(case, marks=pytest.mark.simulation) for case in OTHERS)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.build.__name__)
def test_results_are_those_of_a_run_without_failures(case: Case) -> None:
    def pipeline(sink: Any) -> jf.Pipeline:
        made = jf.Pipeline("recovering")
        case.build(made).write(sink, name="outside")
        return made

    outside = TransactionalMemory.named()
    store = MemorySnapshotStore()
    job = SteppedJob(pipeline(outside.sink()), seed=3, store=store, interval="30ms", members=case.members)
    run_and_kill(job, kills=3)
    assert job.runner.error is None
    assert job.job.metrics["restarts"] >= 1
    wanted = jf.LocalCluster().submit(pipeline(jf.collect()), progress=False).to_arrow().to_pylist()
    assert sorted(map(repr, outside.rows())) == sorted(map(repr, wanted))
    assert len(wanted) >= 2
