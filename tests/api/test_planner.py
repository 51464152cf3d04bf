"""How steps become a graph: fusing, unions, pruned columns, windows in one or two stages."""

import pickle
from typing import Any

import pyarrow as pa
import pytest

import jetfast as jf
from jetfast import col
from jetfast.core.dag import Dag, Edge
from jetfast.core.routing import ALL_TO_ONE, ISOLATED, partitioned
from jetfast.errors import JobDefinitionError

SCHEMA = pa.schema(
    [("k", pa.string()), ("t", pa.timestamp("us")), ("v", pa.int64()), ("w", pa.float64()), ("unused", pa.string())]
)


def timed(pipeline: jf.Pipeline, name: str = "rows") -> Any:
    return pipeline.read(jf.memory(schema=SCHEMA), name=name).with_event_time("t", jf.watermarks.fixed_lag("1s"))


def counts(stage: Any, **aggregates: Any) -> Any:
    return stage.group_by("k").window(jf.tumbling("1m")).agg(**(aggregates or {"n": jf.count()}), name="counts")


def edges(dag: Dag) -> list[tuple[str, int, str, int]]:
    return [(edge.source, edge.source_port, edge.destination, edge.ordinal) for edge in dag.edges]


def edge_into(dag: Dag, vertex: str) -> Edge:
    (edge,) = dag.inbound(vertex)
    return edge


def test_a_chain_of_stateless_steps_is_one_vertex() -> None:
    pipeline = jf.Pipeline()
    timed(pipeline).where(col("v") > 0).with_column("x", col("v") + 1).drop("unused").collect()
    dag = pipeline.plan()
    chain = "where((v > 0)) > with_column(x) > drop(unused)"
    assert edges(dag) == [("rows", 0, chain, 0), (chain, 0, "result", 0)]
    assert edge_into(dag, "result").schema.names == ["k", "t", "v", "w", "x"]
    assert all(edge.routing == ISOLATED and not edge.distributed for edge in dag.edges)


def test_a_stage_with_two_readers_ends_a_chain() -> None:
    pipeline = jf.Pipeline()
    kept = timed(pipeline).where(col("v") > 0, name="kept")
    kept.select("k", name="a").collect("left")
    kept.select("v", name="b").collect("right")
    assert set(pipeline.plan().vertices) == {"rows", "kept", "a", "b", "left", "right"}


def test_a_union_is_several_inbound_edges_of_its_reader() -> None:
    pipeline = jf.Pipeline()
    one, two = timed(pipeline, "one"), timed(pipeline, "two")
    one.union(two, one).where(col("v") > 0, name="kept").collect()
    dag = pipeline.plan()
    assert edges(dag) == [("one", 0, "kept", 0), ("two", 0, "kept", 1), ("one", 0, "kept", 2), ("kept", 0, "result", 0)]


def test_sources_read_only_the_columns_that_are_used() -> None:
    pipeline = jf.Pipeline()
    rows = timed(pipeline)
    counts(rows.where(col("w") > 0.5)).collect()
    rows.rename({"v": "x"}).drop("unused").with_column("w", col("x")).select("w").collect("values")
    dag = pipeline.plan()
    (first, second) = [edge for edge in dag.edges if edge.source == "rows"]
    assert first.schema.names == second.schema.names == ["k", "t", "v", "w"]
    assert edge_into(dag, "counts").schema.names == ["k", "t"]
    assert edge_into(dag, "values").schema.names == ["w"]


def test_a_source_knows_the_finest_window_that_its_rows_come_to() -> None:
    pipeline = jf.Pipeline()
    one, two, three = (timed(pipeline, name) for name in ("one", "two", "three"))
    both = one.union(two).where(col("v") > 0, name="kept")
    both.group_by("k").window(jf.sliding("1h", "1m")).agg(n=jf.count(), name="fine").collect("a")
    two.group_by("k").window(jf.sliding("1h", "5s")).agg(n=jf.count(), name="finest").collect("b")
    three.collect("c")
    vertices = pipeline.plan().vertices
    frames = {name: vertices[name].supplier.frame_us for name in ("one", "two", "three")}
    assert frames == {"one": 60_000_000, "two": 5_000_000, "three": None}


def test_a_source_sends_watermarks_by_the_coarsest_frame_that_the_windows_downstream_of_it_can_bear() -> None:
    pipeline = jf.Pipeline()
    one, two, three, four = (timed(pipeline, name) for name in ("one", "two", "three", "four"))
    both = one.union(two).where(col("v") > 0, name="kept")
    both.group_by("k").window(jf.sliding("1h", "6m")).agg(n=jf.count(), name="six").collect("a")
    two.group_by("k").window(jf.tumbling("4m", offset="1s")).agg(n=jf.count(), name="four minutes").collect("b")
    three.collect("c")
    four.group_by("k").window(jf.tumbling("4m", offset="1s")).agg(n=jf.count(), name="alone").collect("d")
    vertices = pipeline.plan().vertices
    throttles = {name: vertices[name].supplier.throttle for name in ("one", "two", "three", "four")}
    assert throttles == {
        "one": jf.watermarks.emit_by_frame(jf.tumbling("6m")),
        "two": jf.watermarks.emit_by_frame(jf.tumbling("1s")),
        "three": jf.watermarks.no_throttling(),
        "four": jf.watermarks.emit_by_frame(jf.tumbling("4m", offset="1s")),
    }


def test_a_throttle_of_the_user_is_taken_as_it_is() -> None:
    pipeline = jf.Pipeline()
    throttle = jf.watermarks.emit_by_min_step("1s")
    rows = pipeline.read(jf.memory(schema=SCHEMA), name="rows").with_event_time("t", throttle=throttle)
    counts(rows).collect()
    assert pipeline.plan().vertices["rows"].supplier.throttle == throttle
    with pytest.raises(JobDefinitionError, match="throttle must be one of jf.watermarks"):
        pipeline.read(jf.memory(schema=SCHEMA), name="more").with_event_time("t", throttle="1s")


def test_a_source_whose_rejected_rows_are_wanted_reads_whole_rows() -> None:
    pipeline = jf.Pipeline()
    rows = timed(pipeline)
    rows.select("k").collect()
    rows.rejected_rows.collect("rejected")
    dag = pipeline.plan()
    assert next(e for e in dag.edges if e.source_port == 0 and e.source == "rows").schema == SCHEMA
    assert ("rows", 1, "rejected", 0) in edges(dag)


def test_a_replaced_column_that_is_not_read_keeps_its_place() -> None:
    pipeline = jf.Pipeline()
    replaced = timed(pipeline).with_columns({"v": jf.lit("new"), "k": col("w"), "x": jf.lit(1)})
    replaced.collect()
    assert edge_into(pipeline.plan(), "result").schema.names == replaced.schema.names == [*SCHEMA.names, "x"]


def test_late_rows_are_whole_and_without_columns_that_the_planner_added() -> None:
    pipeline = jf.Pipeline()
    result = (
        timed(pipeline)
        .group_by((col("v") % 2).alias("odd"))
        .window(jf.tumbling("1m"))
        .agg(s=jf.sum(col("v") * 2), name="counts")
    )
    result.collect()
    result.late_rows.collect("late")
    dag = pipeline.plan(member_count=2)
    assert edge_into(dag, "late").schema.names == [*SCHEMA.names, "missed_until"]
    assert edge_into(dag, "result").schema.names == ["odd", "window_start", "window_end", "s"]


def test_a_window_is_one_vertex_for_one_processor_and_two_for_several() -> None:
    pipeline = jf.Pipeline()
    counts(timed(pipeline), n=jf.count(), m=jf.mean("w")).collect()
    dag = pipeline.plan(member_count=1, workers=1)
    assert set(dag.vertices) == {"rows", "counts", "result"}
    edge = edge_into(dag, "counts")
    assert (edge.routing, edge.distributed) == (partitioned("k"), False)
    for member_count, workers in ((1, 2), (2, 1), (2, 2)):
        dag = pipeline.plan(member_count=member_count, workers=workers)
        assert set(dag.vertices) == {"rows", "counts (accumulate)", "counts", "result"}
        first = edge_into(dag, "counts (accumulate)")
        assert (first.routing, first.distributed) == (ISOLATED, False)
        partials, rows = dag.inbound("counts")
        assert [edge.source_port for edge in (partials, rows)] == [1, 0]
        assert partials.schema.names == ["k", "frame", "rows", "w.nulls", "w.sum"]
        assert rows.schema == first.schema
        for edge in (partials, rows):
            assert (edge.routing, edge.distributed) == (partitioned("k"), member_count > 1)


def test_whether_a_window_has_two_stages_can_be_said() -> None:
    pipeline = jf.Pipeline()
    counts(timed(pipeline), n=jf.count(), m=jf.mean("w")).collect()
    assert set(pipeline.plan(member_count=2, two_stage=False).vertices) == {"rows", "counts", "result"}
    dag = pipeline.plan(member_count=1, two_stage=True)
    assert set(dag.vertices) == {"rows", "counts (accumulate)", "counts", "result"}
    assert edge_into(dag, "counts").source_port == 0


def test_states_of_aggregates_over_batches_are_made_near_the_source_only_where_rows_cross_between_members() -> None:
    pipeline = jf.Pipeline()
    counts(timed(pipeline), n=jf.count_distinct("v")).collect()
    assert set(pipeline.plan(member_count=1, workers=2).vertices) == {"rows", "counts", "result"}
    dag = pipeline.plan(member_count=2)
    assert set(dag.vertices) == {"rows", "counts (accumulate)", "counts", "result"}
    assert edge_into(dag, "counts").source_port == 0


def test_a_window_whose_late_rows_are_wanted_takes_one_stage() -> None:
    pipeline = jf.Pipeline()
    result = counts(timed(pipeline))
    result.collect()
    result.late_rows.collect("late")
    for two_stage in (None, True):
        dag = pipeline.plan(member_count=2, two_stage=two_stage)
        assert set(dag.vertices) == {"rows", "counts", "result", "late"}
        assert ("counts", 1, "late", 0) in edges(dag)
        assert edge_into(dag, "counts").schema == SCHEMA


def test_a_window_without_keys_is_one_partition() -> None:
    pipeline = jf.Pipeline()
    timed(pipeline).window(jf.tumbling("1m")).agg(n=jf.count(), name="all").collect()
    assert edge_into(pipeline.plan(), "all").routing == partitioned()


def test_a_sink_with_one_writer_is_one_processor_in_the_cluster() -> None:
    pipeline = jf.Pipeline()
    timed(pipeline).write(jf.console())
    dag = pipeline.plan(member_count=2)
    assert dag.vertices["console"].total_parallelism_one
    assert (edge_into(dag, "console").routing, edge_into(dag, "console").distributed) == (ALL_TO_ONE, True)


@pytest.mark.parametrize("member_count", [1, 2])
def test_a_planned_graph_travels_to_members(member_count: int) -> None:
    pipeline = jf.Pipeline()
    stage = timed(pipeline).where(col("v") % 2 == 0).map_batches(double, name="double")
    counts(stage, s=jf.sum(col("v") * 2)).collect()
    dag = pickle.loads(pickle.dumps(pipeline.plan(member_count=member_count)))
    for vertex in dag.vertices.values():
        assert vertex.supplier() is not vertex.supplier()


def double(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def test_names_of_vertices_do_not_depend_on_the_plan() -> None:
    def names(member_count: int, workers: int) -> set[str]:
        pipeline = jf.Pipeline()
        counts(timed(pipeline).where(col("v") > 0)).collect()
        return set(pipeline.plan(member_count=member_count, workers=workers, two_stage=False).vertices)

    assert names(1, 1) == names(2, 3)


def test_a_source_with_computed_time_reads_only_what_is_used_and_travels() -> None:
    pipeline = jf.Pipeline()
    source = jf.memory({"at": ["2013-01-01 00:00:00", "x"], "n": [1, 2], "unused": [0, 0]})
    rows = pipeline.read(source, name="rows").with_event_time(col("at").cast("timestamp[us]").alias("time"))
    rows.window(jf.tumbling("1h")).agg(n=jf.sum("n"), name="hours").collect()
    dag = pickle.loads(pickle.dumps(pipeline.plan()))
    assert edge_into(dag, "hours").schema.names == ["n", "time"]
    assert dag.vertices["rows"].supplier.source.source.schema.names == ["at", "n"]
    assert jf.LocalCluster(2, 1).submit(pipeline, progress=False).to_arrow()["n"].to_pylist() == [1]


@pytest.mark.parametrize("two_stage", [None, True, False])
def test_a_session_window_is_one_stage_at_the_owner_of_its_key(two_stage: bool | None) -> None:
    pipeline = jf.Pipeline()
    timed(pipeline).group_by("k").window(jf.session("1m")).agg(n=jf.count(), name="sessions").collect()
    dag = pipeline.plan(member_count=2, two_stage=two_stage)
    assert "sessions (accumulate)" not in dag.vertices
    edge = edge_into(dag, "sessions")
    assert (edge.routing, edge.distributed) == (partitioned("k"), True)
    assert dag.vertices["rows"].supplier.throttle == jf.watermarks.emit_by_frame(jf.tumbling("100ms"))  # type: ignore[attr-defined]
    pickle.loads(pickle.dumps(dag.vertices["sessions"].supplier))


def test_a_session_and_a_sliding_window_get_watermarks_that_both_can_bear() -> None:
    pipeline = jf.Pipeline()
    rows = timed(pipeline)
    rows.group_by("k").window(jf.session("1m")).agg(n=jf.count(), name="sessions").collect("a")
    rows.group_by("k").window(jf.tumbling("250ms")).agg(n=jf.count(), name="windows").collect("b")
    assert pipeline.plan().vertices["rows"].supplier.throttle == jf.watermarks.emit_by_frame(jf.tumbling("50ms"))  # type: ignore[attr-defined]
