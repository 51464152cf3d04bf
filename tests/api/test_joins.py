"""What joins make of their columns, times and graphs, and what they refuse when the pipeline is built."""

import operator
import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import jetfast as jf
from jetfast import col
from jetfast.core.batch_aggregate import BatchAggregate
from jetfast.errors import JobDefinitionError
from jetfast.testing import EMPTY

LEFT = pa.schema(
    [("k", pa.int32()), ("at", pa.timestamp("us")), ("v", pa.float64()), ("tag", pa.dictionary(pa.int8(), pa.string()))]
)
RIGHT = pa.schema([("k", pa.int64()), ("other", pa.string()), ("at", pa.timestamp("s")), ("w", pa.int64())])
MINUTE = jf.tumbling("1m")


def stages() -> tuple[Any, Any]:
    pipeline = jf.Pipeline("joins")
    left = pipeline.read(jf.memory(schema=LEFT), name="left").with_event_time("at")
    return left, pipeline.read(jf.memory(schema=RIGHT), name="right").with_event_time("at")


def columns(stage: Any) -> dict[str, str]:
    return {field.name: str(field.type) for field in stage.schema}


def test_the_result_has_keys_of_the_common_type_then_either_side_then_what_the_join_adds():
    left, right = stages()
    joined = left.window_join(right, MINUTE, on="k", name="join")
    assert columns(joined) == {
        "k": "int64", "at": "timestamp[us]", "v": "double", "tag": "dictionary<values=string, indices=int8, ordered=0>",
        "other": "string", "at_right": "timestamp[s]", "w": "int64",
        "window_start": "timestamp[us]", "window_end": "timestamp[us]",
    }  # fmt: skip
    assert joined.event_time == "window_end"


def test_keys_of_other_names_and_computed_ones_are_called_as_on_the_left():
    left, right = stages()
    joined = left.select("tag", "at").hash_join(
        right.select("other", "w"), left_on="tag", right_on=(col("other")).alias("x"), suffix="_2"
    )
    assert columns(joined) == {"tag": "string", "at": "timestamp[us]", "w": "int64"}
    assert joined.event_time == "at"
    computed = left.interval_join(
        right, lower="-1s", upper="1s", left_on=[(col("k") + 1).alias("next")], right_on=["k"], time="joined_at"
    )
    assert list(columns(computed)) == ["next", "k", "at", "v", "tag", "other", "at_right", "w", "joined_at"]
    assert computed.event_time == "joined_at"


def test_a_join_brings_only_the_columns_that_are_wanted_and_late_rows_whole():
    left, right = stages()
    joined = left.window_join(right, MINUTE, on="k", name="join")
    joined.select("k", "w").collect()
    joined.late_left_rows.collect("late")
    dag = left.pipeline.plan()
    feeds = {edge.ordinal: edge.schema.names for edge in dag.inbound("join")}
    assert feeds == {0: [*LEFT.names, "\x01key0"], 1: ["k", "at", "w"]}
    assert [edge.routing.keys for edge in dag.inbound("join")] == [("\x01key0",), ("k",)]
    assert joined.late_left_rows.schema.names == [*LEFT.names, "missed_until"]
    assert "join.late_left_rows" in left.pipeline.explain()


def test_the_table_of_a_hash_join_is_read_first():
    left, right = stages()
    left.hash_join(right, on="k", name="join").collect()
    edges = left.pipeline.plan(member_count=2).inbound("join")
    assert [(edge.priority, edge.distributed) for edge in edges] == [(1, True), (0, True)]


def test_a_table_that_never_ends_and_a_source_that_feeds_both_sides_are_refused():
    pipeline = jf.Pipeline("joins")
    endless = pipeline.read(jf.generator({"k": pa.int64()}, rate=10), name="endless")
    table = pipeline.read(jf.memory(pa.table({"k": [1]})), name="table")
    table.hash_join(endless, on="k").collect()
    with pytest.raises(JobDefinitionError, match="its source 'endless' never ends: exchange the two sides"):
        jf.LocalCluster().submit(pipeline, progress=False)
    pipeline = jf.Pipeline("joins")
    both = pipeline.read(jf.memory(schema=RIGHT), name="both")
    both.hash_join(both.drop("w"), on="k").collect()
    with pytest.raises(JobDefinitionError, match="source 'both' feeds both"):
        jf.LocalCluster().submit(pipeline, progress=False)
    left, right = stages()
    left.hash_join(right, on="k", name="join").collect("one")
    right.hash_join(left, on="k", name="back").collect("other")
    with pytest.raises(JobDefinitionError, match="sources would wait for each other for ever, 'left' for 'right' for"):
        jf.LocalCluster().submit(left.pipeline, progress=False)


def test_results_of_windows_are_joined_by_the_last_moment_of_their_windows():
    rows = pa.table({"k": ["a", "b", "a", "b"], "at": pa.array([1, 2, 11, 12], pa.timestamp("s")), "v": [1, 2, 3, 4]})
    pipeline = jf.Pipeline("joins")
    stage = pipeline.read(jf.memory(rows), name="rows").with_event_time("at")
    sums = stage.group_by("k").window(jf.tumbling("10s")).agg(v=jf.sum("v"), name="sums").drop("window_start")
    best = stage.window(jf.tumbling("10s")).agg(best=jf.max("v"), name="best").drop("window_start")
    sums.interval_join(best, on="window_end", lower="0s", upper="0s").where(col("v") == col("best")).collect()
    found = jf.LocalCluster(workers=2).submit(pipeline, progress=False).to_arrow().sort_by("v")
    assert found.select(["k", "v", "best"]).to_pydict() == {"k": ["b", "b"], "v": [2, 4], "best": [2, 4]}
    assert [time.second for time in found["event_time"].to_pylist()] == [9, 19]


def test_an_asof_join_has_the_time_of_the_left_side():
    left, right = stages()
    joined = left.asof_join(right.select("k", "w", "at"), on="k", tolerance="1s")
    assert list(columns(joined)) == ["k", "at", "v", "tag", "w", "at_right"]
    assert joined.event_time == "at"


def test_aggregates_of_several_stages_have_the_keys_of_the_first():
    left, right = stages()
    third = left.pipeline.read(jf.memory(schema=LEFT), name="third").with_event_time("at")
    seconds = right.select((col("k") * 1).alias("who"), "w", col("at").alias("when"))
    with pytest.raises(JobDefinitionError, match="event time of one kind, but 'left' has at: timestamp.us., 'select"):
        left.group_by("k").cogroup(seconds.group_by("who")).window(MINUTE).agg({}, {})
    grouped = left.group_by("k").cogroup(
        third.group_by((col("k") + 0).alias("other")), left.where(col("v") > 0).group_by("k")
    )
    found = grouped.window(jf.session("1m")).agg({"n": jf.count()}, {"first": jf.first("tag")}, {"mean": jf.mean("v")})
    assert columns(found) == {
        "k": "int32", "window_start": "timestamp[us]", "window_end": "timestamp[us]",
        "n": "int64", "first": "string", "mean": "double",
    }  # fmt: skip
    assert found.event_time == "window_end"


CODED = pa.table(
    {
        "k": pa.array(["a", "b", None]).dictionary_encode(),
        "at": pa.array([1, 2, 3], pa.timestamp("s")),
        "tag": pa.array(["x", "y", "z"]).dictionary_encode(),
        "list": [[1], [2, 3], None],
    }
)
PLAIN = pa.table({"k": ["a", "c"], "at": pa.array([1, 2], pa.timestamp("s")), "pair": [{"n": 1}, {"n": 2}]})


def timed(pipeline: jf.Pipeline, name: str, rows: pa.Table) -> Any:
    return pipeline.read(jf.memory(rows, batch_rows=1), name=name).with_event_time("at")


ODD: dict[str, tuple[Callable[[Any], Any], list[tuple[Any, ...]]]] = {
    "dictionaries and nested columns by window": (
        lambda p: (
            timed(p, "a", CODED)
            .window_join(timed(p, "b", PLAIN), MINUTE, on="k", how="outer")
            .select("k", "tag", "list", "pair")
        ),
        [("a", "x", [1], {"n": 1}), ("b", "y", [2, 3], None), ("c", None, None, {"n": 2}), (None, "z", None, None)],
    ),
    "dictionaries and nested columns by time": (
        lambda p: (
            timed(p, "a", CODED)
            .interval_join(timed(p, "b", PLAIN), on="k", lower="0s", upper="0s", how="outer")
            .select("k", "tag", "list", "pair")
        ),
        [("a", "x", [1], {"n": 1}), ("b", "y", [2, 3], None), ("c", None, None, {"n": 2}), (None, "z", None, None)],
    ),
    "the latest of another, with nested columns": (
        lambda p: timed(p, "a", CODED).asof_join(timed(p, "b", PLAIN), on="k").select("k", "pair"),
        [("a", {"n": 1}), ("b", None), (None, None)],
    ),
    "nothing but the key": (
        lambda p: timed(p, "a", CODED).window_join(timed(p, "b", PLAIN), MINUTE, on="k").select("k"),
        [("a",)],
    ),
    "unions on both sides": (
        lambda p: (
            timed(p, "a", CODED)
            .union(timed(p, "a2", CODED))
            .interval_join(timed(p, "b", PLAIN).union(timed(p, "b2", PLAIN)), on="k", lower="-5s", upper="5s")
            .select("k", "tag")
        ),
        [("a", "x")] * 4,
    ),
    "a side without rows": (
        lambda p: (
            timed(p, "a", CODED.slice(0, 0))
            .window_join(timed(p, "b", PLAIN), MINUTE, on="k", how="outer")
            .select("k", "tag")
        ),
        [("a", None), ("c", None)],
    ),
    "a table without rows": (
        lambda p: (
            timed(p, "a", CODED).hash_join(p.read(jf.memory(PLAIN.slice(0, 0))), on="k", how="left").select("tag")
        ),
        [("x",), ("y",), ("z",)],
    ),
    "two tables": (
        lambda p: (
            timed(p, "a", CODED)
            .hash_join(p.read(jf.memory(PLAIN.select(["k", "pair"])), name="b"), on="k", how="left")
            .hash_join(p.read(jf.memory(pa.table({"tag": ["y"], "w": [1]})), name="c"), on="tag", how="left")
            .select("tag", "pair", "w")
        ),
        [("x", {"n": 1}, None), ("y", None, 1), ("z", None, None)],
    ),
    "aggregates of dictionaries": (
        lambda p: (
            timed(p, "a", CODED)
            .group_by("k")
            .cogroup(timed(p, "b", PLAIN).group_by("k"))
            .window(MINUTE)
            .agg({"tag": jf.first("tag")}, {"n": jf.count()})
            .select("k", "tag", "n")
        ),
        [("a", "x", 1), ("b", "y", 0), ("c", None, 1), (None, "z", 0)],
    ),
}


@pytest.mark.parametrize(("build", "expected"), ODD.values(), ids=ODD.keys())
def test_joins_of_unusual_columns_and_sides(build: Callable[[Any], Any], expected: list[tuple[Any, ...]]) -> None:
    pipeline = jf.Pipeline("odd")
    stage = build(pipeline)
    stage.collect()
    found = jf.LocalCluster(workers=2).submit(pipeline, progress=False).to_arrow()
    assert found.schema.equals(stage.schema)
    assert sorted((tuple(row.values()) for row in found.to_pylist()), key=str) == sorted(expected, key=str)


class Named(BatchAggregate):
    """The names that it finds its columns under."""

    def state_type(self, inputs: pa.Schema) -> pa.DataType:
        return pa.list_(pa.string())

    def result_type(self, inputs: pa.Schema) -> pa.DataType:
        return pa.struct([(f"{name} of {len(inputs)}", pa.string()) for name in inputs.names])

    def accumulate(self, rows: pa.RecordBatch, groups: Any, group_count: int) -> Any:
        return [list(rows.schema.names)] * group_count

    def combine(self, states: pa.Array, groups: Any, group_count: int) -> Any:
        return [states[0].as_py()] * group_count

    def export(self, states: pa.Array) -> Any:
        return [{f"{name} of {len(state)}": name for name in state} for state in states.to_pylist()]


def test_aggregates_of_several_columns_find_them_under_the_names_of_the_user():
    pipeline = jf.Pipeline("names")
    left, right = timed(pipeline, "a", CODED), timed(pipeline, "b", PLAIN)
    best = {"best": jf.top_n(["tag", col("at").alias("when")], 1, by="at")}
    named = {"named": Named().over("at", col("at").alias("other"), col("k") == "a"), "same": Named().over("k", "at")}
    both = left.group_by("k").cogroup(right.group_by("k")).window(MINUTE).agg(best, named)
    alone = left.group_by("k").window(MINUTE).agg(**best)
    assert both.schema.field("best").type == alone.schema.field("best").type
    assert [field.name for field in both.schema.field("best").type.value_type] == ["tag", "when"]
    both.collect("both")
    alone.collect("alone")
    job = jf.LocalCluster(workers=2).submit(pipeline, progress=False)
    job.wait(timeout=60)
    found = {row["k"]: row for row in job.collected("both").to_pylist()}
    assert job.collected("both").schema.equals(both.schema)
    for row in job.collected("alone").to_pylist():
        assert found[row["k"]]["best"] == row["best"]
    names = ["at", "other", "argument 2"]
    assert found["a"]["named"] == found["c"]["named"] == {f"{name} of 3": name for name in names}
    assert found["a"]["same"] == {"k of 2": "k", "at of 2": "at"}
    assert found["b"]["named"] is None


def test_an_aggregate_of_several_stages_may_take_a_column_twice():
    pipeline = jf.Pipeline("twice")
    left, right = timed(pipeline, "a", CODED), timed(pipeline, "b", PLAIN)
    slope = jf.aggregate(
        "n", "n", create=int, accumulate=lambda total, rows: total + rows.num_columns, combine=operator.add,
        state=pa.int64(),
    )  # fmt: skip
    numbered = left.with_column("n", col("at").cast("long"))
    both = numbered.group_by("k").cogroup(right.group_by("k")).window(MINUTE).agg({"n": slope}, {"m": jf.count()})
    both.collect()
    found = jf.LocalCluster().submit(pipeline, progress=False).to_arrow().to_pylist()
    assert {row["k"]: row["n"] for row in found} == {"a": 2, "b": 2, None: 2, "c": None}


def test_late_rows_of_aggregates_of_several_stages_are_those_that_came_into_each():
    kinds = pa.array(["a", "b", "a", "a", "b"]).dictionary_encode()
    times = pa.array([100, 200, 210, 1, 2], pa.timestamp("s"))  # the last two are late
    lists = [[1], [2], None, [4], [5]]
    pipeline = jf.Pipeline("late")
    table = pa.table({"k": kinds, "at": times, "list": lists, "n": range(5)})
    # One worker, which takes all steps in turn: many turns before the late rows.
    source = jf.memory([table.slice(0, 3), *[EMPTY] * 50, table.slice(3)])
    rows = pipeline.read(source, name="rows").with_event_time("at")
    left = rows.where(col("k") == "a")
    right = rows.where(col("k") == "b").drop("list").rename({"n": "number"})
    both = left.group_by("k").cogroup(right.group_by("k")).window(MINUTE)
    counted = both.agg({"n": jf.count()}, {"m": jf.count()}, name="both")
    counted.collect("result")
    assert counted.late_rows_of(0).schema.names == ["k", "at", "list", "n", "missed_until"]
    assert counted.late_rows_of(0) is counted.late_rows_of(0)
    counted.late_rows_of(0).collect("late left")
    counted.late_rows_of(1).collect("late right")
    job = jf.LocalCluster().submit(pipeline, progress=False)
    job.wait(timeout=60)
    assert job.collected("result").num_rows == 3
    assert job.metrics["late_rows"] == 2
    assert [tuple(row.values()) for row in job.collected("late left").drop(["at", "missed_until"]).to_pylist()] == [
        ("a", [4], 3)
    ]
    late = job.collected("late right")
    assert late.schema.names == ["k", "at", "number", "missed_until"]
    assert [(row["k"], row["number"]) for row in late.to_pylist()] == [("b", 4)]


@pytest.mark.parametrize("number", [2, -1, True, "first"])
def test_late_rows_of_a_stage_that_is_not_there_are_refused(number):
    left, _ = stages()
    grouped = left.group_by("k").cogroup(left.where(col("v") > 0).group_by("k"))
    counted = grouped.window(MINUTE).agg({"n": jf.count()}, {}, name="both")
    with pytest.raises(JobDefinitionError, match="step 'both': late_rows_of needs the number of a stage from 0 to 1"):
        counted.late_rows_of(number)


def test_a_stage_joins_itself():
    pipeline = jf.Pipeline("self")
    stage = timed(pipeline, "a", CODED)
    stage.interval_join(stage, on="k", lower="-1s", upper="1s", how="outer").select("k", "tag", "tag_right").collect()
    found = jf.LocalCluster(workers=2).submit(pipeline, progress=False).to_arrow().to_pylist()
    assert sorted((tuple(row.values()) for row in found), key=str) == sorted(
        [("a", "x", "x"), ("b", "y", "y"), (None, "z", None), (None, None, "z")], key=str
    )


WRONG: dict[str, tuple[Callable[[Any, Any], object], str]] = {
    "no keys": (lambda a, b: a.hash_join(b), "step 'hash_join': a join needs keys, on= or both left_on= and right_on="),
    "keys twice": (lambda a, b: a.hash_join(b, on="k", left_on="k"), "a join needs keys, on= or both"),
    "keys of one side": (
        lambda a, b: a.hash_join(b, left_on=["k", "tag"], right_on="k"),
        "there are 2 keys of the left side, 1 of the right",
    ),
    "a key that is not there": (
        lambda a, b: a.hash_join(b, on="v"),
        "there is no column 'v' (as key of the right side). The columns are: k, other, at, w",
    ),
    "keys that nothing holds": (
        lambda a, b: a.hash_join(b, left_on="v", right_on="other"),
        "keys that shall be equal have types that nothing holds both: 'v' is double, 'other' is string; cast one of "
        "them, such as col('v').cast(...).alias('v')",
    ),
    "an outer as-of join": (
        lambda a, b: a.asof_join(b, on="k", how="outer"),
        'an as-of join is "left" or "inner", got \'outer\'',
    ),
    "cogroup with a stage": (lambda a, b: a.group_by("k").cogroup(b), "cogroup needs stage.group_by(...) for each"),
    "keys that are none": (lambda a, b: a.hash_join(b, on=3), "the computed column 3 needs a name"),
    "no key": (lambda a, b: a.hash_join(b, on=[]), "a join needs at least one key, got []"),
    "a suffix that is no text": (
        lambda a, b: a.hash_join(b, on="k", suffix=3),
        "suffix must be text such as '_right', got 3",
    ),
    "a time without a name": (
        lambda a, b: a.interval_join(b, on="k", lower="0s", upper="1s", time=""),
        "time must be the name of a column, got ''",
    ),
    "cogroup without a window": (
        lambda a, b: a.group_by("k").cogroup(b.group_by("k")).window("1m"),
        "window needs jf.tumbling(\"1h\"), jf.sliding(\"24h\", \"1h\") or jf.session(\"30m\"), got '1m'",
    ),
    "cogrouped numbers": (
        lambda a, b: a.group_by("k").cogroup(b.group_by("k")).window(MINUTE).agg(3, 4),
        "agg needs aggregates of each of 2 stages",
    ),
    "cogroup with nothing": (lambda a, b: a.group_by("k").cogroup(), "needs at least one other stage.group_by"),
    "aggregates of one stage": (
        lambda a, b: a.group_by("k").cogroup(b.group_by("k")).window(MINUTE).agg({"n": jf.count()}),
        "agg needs aggregates of each of 2 stages",
    ),
    "different numbers of keys": (
        lambda a, b: a.group_by("k").cogroup(b.group_by("k", "w")).window(MINUTE).agg({"n": jf.count()}, {}),
        "the stages have different numbers of keys: 1, 2",
    ),
    "no stage": (lambda a, b: a.hash_join("b", on="k"), "hash_join needs a stage to join with, got 'b'"),
    "another pipeline": (lambda a, b: a.hash_join(stages()[1], on="k"), "'right' belongs to another pipeline"),
    "no such way": (
        lambda a, b: a.window_join(b, MINUTE, on="k", how="cross"),
        "how must be one of 'inner', 'left', 'right', 'outer', got 'cross'",
    ),
    "an outer join with a table": (
        lambda a, b: a.hash_join(b, on="k", how="outer"),
        'a hash join is "inner" or "left", got \'outer\'',
    ),
    "no window": (lambda a, b: a.window_join(b, "1m", on="k"), 'window_join needs jf.tumbling("1h") or'),
    "a session": (lambda a, b: a.window_join(b, jf.session("1m"), on="k"), "got SessionWindow"),
    "no event time": (
        lambda a, b: a.window_join(b.drop("at"), MINUTE, on="k"),
        "both sides of this join need event time, but 'drop(at)' has none",
    ),
    "bounds the wrong way round": (
        lambda a, b: a.interval_join(b, on="k", lower="1s", upper="-1s"),
        "lower='1s' is greater than upper='-1s'",
    ),
    "columns of one name": (
        lambda a, b: a.with_column("at_right", 1).hash_join(b, on="k"),
        "both sides of the join have a column 'at'; rename one, or give another suffix=",
    ),
    "a column that the join adds": (
        lambda a, b: a.rename({"v": "event_time"}).interval_join(b, on="k", lower="0s", upper="1s"),
        "the join adds a column 'event_time', and one side has one of that name",
    ),
    "early results": (
        lambda a, b: (
            a.window(MINUTE)
            .early_results(every="1s")
            .agg(k=jf.count())
            .window_join(b, MINUTE, on="k")
        ),
        "which would count besides the final ones",
    ),
    "two joins of one name": (
        lambda a, b: [a.window_join(b, MINUTE, on="k"), a.window_join(b, MINUTE, on="k")],
        "two steps would be named 'window_join(left, right on k, tumbling 1m)'",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("build", "message"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_join_is_an_error_at_build(build: Callable[[Any, Any], object], message: str) -> None:
    with pytest.raises(JobDefinitionError, match=re.escape(message)):
        build(*stages())


def test_what_a_step_gives_at_the_end_of_its_input_is_not_late_for_a_join_behind_it():
    # One source partition, more workers: those without one must not count as silent while the other ends.
    rows = pa.table({"k": [1, 2, 1], "at": pa.array([0, 5, 50], pa.timestamp("s"))})
    for _ in range(5):
        pipeline = jf.Pipeline("ends")
        left, right = (pipeline.read(jf.memory(partitions={name: rows}), name=name) for name in ("left", "right"))
        left = left.with_event_time("at", jf.watermarks.fixed_lag("1m"))
        counts = left.group_by("k").window(jf.tumbling("10s")).agg(n=jf.count(), name="counts")
        counts = counts.drop("window_start").rename({"window_end": "counted"})
        counts.window_join(right.with_event_time("at"), jf.tumbling("10s"), on="k", how="left", name="join").collect()
        job = jf.LocalCluster(workers=3).submit(pipeline, progress=False)
        assert len(job.to_arrow()) == 3
        assert job.metrics["late_rows"] == 0
