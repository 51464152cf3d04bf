"""Random chains of joins, state by key, windows and other steps: the same on any workers, and though members die."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jetfast as jf
from jetfast import col
from jetfast.engine.memory_snapshot_store import MemorySnapshotStore
from jetfast.testing import TransactionalMemory
from tests.clusters.test_random_pipelines import LAG, make_rows, shown, thirds
from tests.clusters.test_recovery import run_and_kill
from tests.simulation.stepped_job import SteppedJob

COLUMNS = ("id", "time", "key", "v")
"""What each step takes and gives."""
ROW = pa.schema([("id", pa.int64()), ("time", pa.timestamp("us")), ("key", pa.string()), ("v", pa.float64())])
Step = Callable[[Any, Any, Any, str], Any]
"""Takes the stage, another one (both rows of ROW), a table by key, and a name; gives a stage."""


def both(left: str, right: str) -> Any:
    return (jf.coalesce(col(left), 0.0) + jf.coalesce(col(right), 0.0)).alias("v")


def window_join(how: str) -> Step:
    def build(stage: Any, other: Any, table: Any, name: str) -> Any:
        joined = stage.window_join(other, jf.sliding("6s", "3s"), on="key", how=how, name=name)
        return joined.select("id", col("window_end").alias("time"), "key", both("v", "v_right"))

    return build


def interval_join(how: str) -> Step:
    def build(stage: Any, other: Any, table: Any, name: str) -> Any:
        joined = stage.interval_join(other, lower="-2s", upper="3s", on="key", how=how, name=name)
        return joined.select("id", col("event_time").alias("time"), "key", both("v", "v_right"))

    return build


def asof_join(stage: Any, other: Any, table: Any, name: str) -> Any:
    joined = stage.asof_join(other, on="key", tolerance="9s", name=name)
    return joined.select("id", "time", "key", both("v", "v_right"))


def hash_join(stage: Any, other: Any, table: Any, name: str) -> Any:
    return stage.hash_join(table, on="key", how="left", name=name).select("id", "time", "key", both("v", "w"))


def cogroup(stage: Any, other: Any, table: Any, name: str) -> Any:
    grouped = stage.group_by("key").cogroup(other.group_by("key")).window(jf.tumbling("7s"))
    counted = grouped.agg({"id": jf.sum("id"), "v": jf.sum("v")}, {"w": jf.max("v"), "n": jf.count()}, name=name)
    return counted.select("id", col("window_end").alias("time"), "key", both("v", "w"))


def window(stage: Any, other: Any, table: Any, name: str) -> Any:
    windows = stage.group_by("key").window(jf.session("4s")).agg(id=jf.max("id"), v=jf.sum("v"), name=name)
    return windows.select("id", col("window_end").alias("time"), "key", "v")


def doubled(stage: Any, other: Any, table: Any, name: str) -> Any:
    return stage.with_column("twice", col("v") * 2).rebalance("key").drop("v").rename({"twice": "v"}).select(*COLUMNS)


def united(stage: Any, other: Any, table: Any, name: str) -> Any:
    return stage.where(col("v") > 0).rebalance().union(stage.where(col("v") <= 0))


def first_rows(stage: Any, other: Any, table: Any, name: str) -> Any:
    return stage.drop_duplicates("key", horizon="5s", name=name)


def running(stage: Any, other: Any, table: Any, name: str) -> Any:
    sums = stage.group_by("key").rolling_agg(total=jf.sum("v"), n=jf.count(), ttl="4s", name=name)
    return sums.select("id", "time", "key", (jf.coalesce(col("total"), 0.0) + col("n")).alias("v"))


def add_rows(rows: pa.RecordBatch, groups: Any, states: pa.Array) -> Any:
    sums = states.fill_null(0.0).to_numpy(zero_copy_only=False).copy()
    np.add.at(sums, groups, rows["v"].fill_null(0.0).to_numpy(zero_copy_only=False))
    return None, sums


def tell(keys: pa.RecordBatch, states: pa.Array, times: pa.Array) -> pa.RecordBatch:
    return pa.record_batch([pa.nulls(len(states), pa.int64()), times, keys["key"], states], schema=ROW)


def with_state(stage: Any, other: Any, table: Any, name: str) -> Any:
    grouped = stage.group_by("key")
    return grouped.map_stateful(add_rows, state=pa.float64(), schema=ROW, ttl="6s", on_evict=tell, name=name)


HOW = ["inner", "left", "right", "outer"]
STEPS: list[Step] = [asof_join, hash_join, cogroup, window, doubled, united]
STEPS += [make(how) for how in HOW for make in (window_join, interval_join)]
BY_ARRIVAL: list[Step] = [first_rows, running, with_state]
"""What they give depends on the order in which rows of a key come, so those must be of one source partition."""
CHAINS = st.tuples(st.sampled_from([*STEPS, *BY_ARRIVAL]), st.lists(st.sampled_from(STEPS), max_size=2))
SEEDS = st.integers(0, 2**32)


def pipeline(seed: int, chain: tuple[Step, list[Step]], batch_rows: int, sink: Any) -> jf.Pipeline:
    """The steps of a chain, one after the other, each with another source of its own."""
    made = jf.Pipeline("operators")

    def read(name: str, rows: pa.Table, partitions: Any) -> Any:
        source = jf.memory(partitions=partitions, schema=rows.schema, batch_rows=batch_rows)
        return made.read(source, name=name).with_event_time("time", jf.watermarks.fixed_lag(LAG))

    def part(number: int) -> pa.Table:
        return make_rows(seed + number, 20).select(COLUMNS).cast(ROW)

    rows = part(0)
    stage = read("rows", rows, by_key(rows) if chain[0] in BY_ARRIVAL else thirds(rows))
    for number, step in enumerate([chain[0], *chain[1]], 1):
        other = table = None
        if step is hash_join:
            names = pa.table({"key": ["k0", "k1", "k2", "k1"], "w": [0.5, 1.5, 2.5, 3.5]})
            table = made.read(jf.memory(names, batch_rows=1), name=f"table {number}")
        elif step not in (*BY_ARRIVAL, window, doubled, united):
            other = read(f"other {number}", part(number), thirds(part(number)))
            if step is cogroup and number > 1:
                other = alike(other, stage, f"windows {number}")
        stage = step(stage, other, table, f"step {number}")
    stage.write(sink, name="result")
    return made


def by_key(rows: pa.Table) -> list[pa.Table]:
    """The rows of some keys each, in their order: as many source partitions as `thirds`, one for each processor."""
    homes = np.array([hash_of(key) for key in rows["key"].to_pylist()])
    return [rows.filter(pa.array(homes == home)) for home in range(3)]


def hash_of(key: str | None) -> int:
    return 0 if key is None else int(key[1:]) % 3


def alike(other: Any, stage: Any, name: str) -> Any:
    """Rows with a time of the same kind: that of tumbling windows is less by a microsecond."""
    if not stage._output.step.time_shift_us:
        return other
    windows = other.group_by("key", "id").window(jf.tumbling("1s")).agg(v=jf.sum("v"), name=name)
    return windows.select("id", col("window_end").alias("time"), "key", "v")


def check(seed: int, chain: tuple[Step, list[Step]]) -> None:
    wanted = None
    for workers, batch_rows in ((1, 1), (3, 4096)):
        job = jf.LocalCluster(workers=workers).submit(pipeline(seed, chain, batch_rows, jf.collect()), progress=False)
        found = shown(job.to_arrow())
        assert job.metrics["late_rows"] == 0
        assert wanted in (None, found)
        wanted = found
    outside = TransactionalMemory.named()
    simulated = SteppedJob(
        pipeline(seed, chain, 7, outside.sink()), seed=seed, store=MemorySnapshotStore(), interval="30ms", members=2
    )
    run_and_kill(simulated, kills=2)
    assert simulated.runner.error is None
    rows = outside.rows()
    assert shown(pa.Table.from_pylist(rows, ROW) if rows else ROW.empty_table()) == wanted


@settings(max_examples=4)
@given(SEEDS, CHAINS)
def test_random_chains_of_operators_give_the_same_on_any_workers_and_though_members_die(
    seed: int, chain: tuple[Step, list[Step]]
) -> None:
    check(seed, chain)


@pytest.mark.simulation
@settings(max_examples=20)
@given(SEEDS, CHAINS)
def test_many_random_chains_of_operators_give_the_same(seed: int, chain: tuple[Step, list[Step]]) -> None:
    check(seed, chain)
