"""What steps with state by key make of columns and times, and what they refuse when the pipeline is built."""

import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import jetfast as jf
from jetfast import col
from jetfast.errors import JobDefinitionError

ROWS = pa.table(
    {
        "k": pa.array(["a", "b", "a", None, "a"]).dictionary_encode(),
        "at": pa.array([1, 2, 3, 4, 15], pa.timestamp("s")),
        "v": [1, None, 3, 4, 5],
        "tags": [["x"], [], ["x"], None, ["y"]],
    }
)


def timed() -> Any:
    return untimed().with_event_time("at")


def untimed() -> Any:
    return jf.Pipeline("state").read(jf.memory(ROWS, batch_rows=2), name="rows")


def run(stage: Any, by: str) -> list[dict[str, Any]]:
    stage.collect()
    found = jf.LocalCluster(workers=2).submit(stage.pipeline, progress=False).to_arrow()
    assert found.schema.equals(stage.schema)
    return sorted(found.to_pylist(), key=lambda row: (row[by] is None, row[by]))


def test_duplicates_go_by_some_columns_and_rows_stay_whole():
    found = run(timed().drop_duplicates("k", horizon="5s"), "at")
    assert [(row["k"], row["v"], row["tags"]) for row in found] == [
        ("a", 1, ["x"]), ("b", None, []), (None, 4, None), ("a", 5, ["y"]),
    ]  # fmt: skip
    assert [row["v"] for row in run(untimed().drop_duplicates((col("v") > 2).alias("v")), "at")] == [1, None, 3]


def test_distinct_gives_its_columns_once_and_without_columns_whole_rows():
    assert [row["k"] for row in run(untimed().distinct("k"), "k")] == ["a", "b", None]
    halves = run(untimed().distinct((col("v") > 2).alias("big")), "big")
    assert [row["big"] for row in halves] == [False, True, None]
    assert len(run(untimed().drop("tags").distinct(), "at")) == 5


def test_running_aggregates_stand_beside_the_columns_and_computed_keys():
    stage = timed().group_by((col("v") % 2).alias("odd")).rolling_agg(n=jf.count(), last=jf.max("at"), ttl="5s")
    assert stage.event_time == "at"
    assert [(row["odd"], row["n"], row["last"].second) for row in run(stage, "at")] == [
        (1, 1, 1), (None, 1, 2), (1, 2, 3), (0, 1, 4), (1, 1, 15),
    ]  # fmt: skip


def test_running_aggregates_bring_only_the_columns_that_are_wanted():
    stage = untimed().group_by("k").rolling_agg(n=jf.sum(col("v") * 2), name="sums").select("n")
    stage.collect()
    (edge,) = stage.pipeline.plan().inbound("sums")
    assert edge.schema.names == ["\x01key0", "\x01n"]
    assert edge.routing.keys == ("\x01key0",)


def count_rows(rows: pa.RecordBatch, groups: Any, states: pa.Array) -> Any:
    counts = [state or 0 for state in states.to_pylist()]
    made = []
    for group in groups:
        counts[group] += 1
        made.append(counts[group])
    return rows.select(["at"]).append_column("n", pa.array(made)), counts


COUNTED = pa.schema([("at", pa.timestamp("s")), ("n", pa.int64())])


def test_a_function_with_state_keeps_event_time_if_it_returns_the_column():
    stage = timed().group_by("k").map_stateful(count_rows, state=pa.int64(), schema=COUNTED, ttl="5s")
    assert stage.event_time == "at"
    assert [row["n"] for row in run(stage, "at")] == [1, 1, 2, 1, 1]
    lost = timed().group_by("k").map_stateful(count_rows, state=pa.int64(), schema=pa.schema([("n", pa.int64())]))
    with pytest.raises(JobDefinitionError, match="does not return its event-time column 'at' as timestamp"):
        lost.window(jf.tumbling("1s")).agg(n=jf.count())


def test_late_rows_come_whole():
    rows = pa.table({"at": pa.array([10, 1, 11], pa.timestamp("s")), "v": [1, 2, 3]})
    pipeline = jf.Pipeline("late")
    source = jf.memory(partitions={"one": rows}, batch_rows=1)
    stage = pipeline.read(source).with_event_time("at").drop_duplicates("v", horizon="1s")
    stage.select("v").collect()
    stage.late_rows.collect("late")
    job = jf.LocalCluster(workers=1).submit(pipeline, progress=False)
    job.wait()
    assert sorted(job.collected("result")["v"].to_pylist()) == [1, 3]
    assert [(row["v"], row["missed_until"]) for row in job.collected("late").to_pylist()] == [(2, None)]
    assert "late_rows" in pipeline.explain()


WRONG: dict[str, tuple[Callable[[Any], object], str]] = {
    "a key that is not there": (lambda s: s.drop_duplicates("key"), "there is no column 'key' (as key); did you mean"),
    "keys without a hash": (lambda s: s.drop_duplicates(), "tags"),
    "a horizon without event time": (
        lambda s: untimed().drop_duplicates("v", horizon="1s"),
        "horizon goes by event time, but 'rows' has none",
    ),
    "no aggregates": (lambda s: s.group_by("k").rolling_agg(), "rolling_agg needs at least one aggregate"),
    "an aggregate that is not followed": (
        lambda s: s.group_by("k").rolling_agg(d=jf.stddev("v")),
        "column 'd': stddev_samp is not a running aggregate: there are count, sum, mean, min and max",
    ),
    "an aggregate over batches": (
        lambda s: s.group_by("k").rolling_agg(d=jf.count_distinct("v")),
        "is not a running aggregate; map_stateful computes any",
    ),
    "a running sum of booleans": (
        lambda s: s.group_by("k").rolling_agg(m=jf.sum(col("v") > 1)),
        "sum needs numbers, got bool",
    ),
    "a name that is taken": (
        lambda s: s.group_by("k").rolling_agg(v=jf.count()),
        "two columns of the result are named 'v'",
    ),
    "no function": (
        lambda s: s.group_by("k").map_stateful("f", state=pa.int64(), schema=COUNTED),
        "function must be a function, got 'f'",
    ),
    "a state that is no type": (
        lambda s: s.group_by("k").map_stateful(count_rows, state="int64", schema=COUNTED),
        "state must be an Arrow type such as pa.int64(), got 'int64'",
    ),
    "a schema that is none": (
        lambda s: s.group_by("k").map_stateful(count_rows, state=pa.int64(), schema={}),
        "schema must be a pyarrow.Schema, got dict",
    ),
    "early results": (
        lambda s: s.window(jf.tumbling("1s")).early_results(every="1s").agg(n=jf.count()).distinct(),
        "which would count besides the final ones",
    ),
}


@pytest.mark.parametrize(("build", "message"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_step_with_state_is_an_error_at_build(build: Callable[[Any], object], message: str) -> None:
    with pytest.raises(JobDefinitionError, match=re.escape(message)):
        build(timed())
