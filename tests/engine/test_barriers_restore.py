"""Whole executions that crash and are restored onto other numbers of members and workers, in random orders of steps."""

import random
from collections import Counter

import pyarrow as pa
import pytest

import jetfast as jf
from jetfast.core.dag import Vertex
from jetfast.core.guarantee import Guarantee
from jetfast.core.snapshot_kind import SnapshotKind
from jetfast.engine.memory_snapshot_store import MemorySnapshotStore
from tests.engine.rounds import CommittingSink, Outside, Run, run_undisturbed

SIZES = [(1, 1), (1, 2), (2, 1), (2, 2), (3, 1)]
"""Members, workers."""


class AnySink:
    """Stands in a pipeline where CommittingSink will be."""

    name = "out"
    cooperative = True
    parallelism_one = False
    target = None

    def check(self, schema):
        pass

    def check_target(self):
        pass

    def open_writer(self, schema, context):
        raise NotImplementedError


def rows(seed, partitions=5, batches=12):
    """Source partitions of rows (id, key, time, value), in order of time but for 30 us; what is late is not so here."""
    chance = random.Random(seed)
    data = {}
    for partition in range(partitions):
        pieces, time = [], 0
        for number in range(batches):
            times = []
            for _ in range(3):
                time += chance.choice([0, 1, 5, 40])
                times.append(time - chance.randrange(30))
            first = partition * 1000 + number * 3
            pieces.append(
                pa.record_batch(
                    {
                        "id": pa.array(range(first, first + 3), pa.int64()),
                        "key": pa.array([chance.choice("abcdefg") for _ in times]),
                        "time": pa.array(times, pa.timestamp("us")),
                        "value": pa.array([chance.randrange(10) for _ in times], pa.int64()),
                    }
                )
            )
        data[f"p{partition}"] = pieces
    return data


def read(seed, name="rows", **options):
    pipeline = options.pop("pipeline", None) or jf.Pipeline("restored")
    source = jf.memory(partitions=rows(seed, **options), batch_rows=3, name=name)
    return pipeline, pipeline.read(source, name=name).with_event_time("time", jf.watermarks.fixed_lag("30us"))


def passing(seed):
    pipeline, stage = read(seed)
    stage.where(jf.col("value") >= 0).write(AnySink())
    return pipeline


def windowed(window):
    def make(seed):
        pipeline, stage = read(seed)
        windows = stage.group_by("key").window(window)
        windows.agg(rows=jf.count(), total=jf.sum("value"), last=jf.max("id"), mean=jf.mean("value")).write(AnySink())
        return pipeline

    return make


def united(seed):
    pipeline, left = read(seed, name="left", partitions=2)
    _, right = read(seed + 1, name="right", partitions=3, pipeline=pipeline)
    both = left.union(right)
    both.window(jf.tumbling("25us")).agg(rows=jf.count(), total=jf.sum("id")).write(AnySink())
    return pipeline


def beside_the_table(seed):
    pipeline, stage = read(seed)
    windows = stage.group_by("key").window(jf.sliding("100us", "20us"))
    windows.agg(
        rows=jf.count(), values=jf.count_distinct("value"), best=jf.top_n("id", 2, by="id"), half=jf.quantile("id", 0.5)
    ).write(AnySink())
    return pipeline


def best_of_windows(seed):
    pipeline, stage = read(seed)
    windows = stage.group_by("key").window(jf.tumbling("50us")).agg(rows=jf.count(), last=jf.max("id"))
    windows.top(2, by="last").write(AnySink())
    return pipeline


def windows_of_windows(seed):
    pipeline, stage = read(seed)
    small = stage.group_by("key").window(jf.tumbling("20us")).agg(total=jf.sum("value"), name="small")
    small.window(jf.tumbling("40us")).agg(rows=jf.count(), most=jf.max("total"), name="large").write(AnySink())
    return pipeline


PIPELINES = {
    "aggregates over batches": (beside_the_table, False),
    "aggregates over batches in two stages": (beside_the_table, True),
    "the best of each window": (best_of_windows, True),
    "windows of windows": (windows_of_windows, True),
    "rows": (passing, False),
    "sliding windows": (windowed(jf.sliding("100us", "20us")), False),
    "windows in two stages": (windowed(jf.sliding("60us", "20us")), True),
    "windows in two stages where it pays": (windowed(jf.sliding("60us", "20us")), None),
    "sessions": (windowed(jf.session("8us")), False),
    "all rows of two sources": (united, True),
}


def plan(pipeline, outside, members, workers, two_stage):
    dag = pipeline.plan(member_count=members, workers=workers, two_stage=two_stage)
    dag.vertices["out"] = Vertex("out", lambda: CommittingSink(outside))
    return dag


def run_with_crashes(make, two_stage, seed, guarantee):
    """Run with a few crashes at random moments; return what is visible outside in the end."""
    chance = random.Random(seed)
    pipeline = make(seed)
    outside, store, area = Outside(), MemorySnapshotStore(), None
    for execution_id in range(1, chance.randrange(2, 5)):
        members, workers = chance.choice(SIZES)
        dag = plan(pipeline, outside, members, workers, two_stage)
        sizes = {"members": members, "workers": workers, "guarantee": guarantee}
        run = Run(dag, store=store, execution_id=execution_id, restore=area, seed=chance.random(), **sizes)
        for _ in range(chance.randrange(4)):
            run.steps(chance.randrange(100))
            kind = chance.choice([SnapshotKind.REGULAR] * 3 + [SnapshotKind.TERMINAL])
            area = run.snapshot(kind, commit=chance.random() < 0.7)
            if kind is SnapshotKind.TERMINAL or area.snapshot_id not in run.members[0].ended:
                break
        else:
            run.steps(chance.randrange(100))
            if chance.random() < 0.5:  # in the middle of a round that is not decided
                run.start_snapshot()
                run.steps(chance.randrange(60))
        run.crash()
    members, workers = chance.choice(SIZES)
    dag = plan(pipeline, outside, members, workers, two_stage)
    sizes = {"members": members, "workers": workers, "guarantee": guarantee}
    Run(dag, store=store, execution_id=9, restore=area, seed=chance.random(), **sizes).finish()
    assert outside.prepared == {}
    return outside.rows()


def undisturbed(make, seed):
    outside = Outside()
    return run_undisturbed(plan(make(seed), outside, 1, 1, False), outside)


SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.simulation) for seed in range(1, 16))]


@pytest.mark.parametrize("name", PIPELINES)
@pytest.mark.parametrize("seed", SEEDS)
def test_exactly_once_each_row_is_there_once_whatever_crashes_and_wherever_it_is_restored(name, seed):
    make, two_stage = PIPELINES[name]
    expected = undisturbed(make, seed)
    assert len(expected) > 10
    assert run_with_crashes(make, two_stage, seed, Guarantee.EXACTLY_ONCE) == expected


@pytest.mark.parametrize("seed", SEEDS)
def test_at_least_once_no_row_is_lost(seed):
    expected = undisturbed(passing, seed)
    found = run_with_crashes(passing, False, seed, Guarantee.AT_LEAST_ONCE)
    assert found.keys() == expected.keys()
    assert found >= expected


def test_at_least_once_rows_come_twice_after_a_crash():
    twice = Counter()
    for seed in range(3):
        found = run_with_crashes(passing, False, seed, Guarantee.AT_LEAST_ONCE)
        twice.update(count for count in found.values() if count > 1)
    assert twice
