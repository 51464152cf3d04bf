"""Stages: schemas, names, event time, and how a pipeline shows itself."""

import xml.etree.ElementTree as ElementTree
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import jetfast as jf
from jetfast import col

SCHEMA = pa.schema(
    [("k", pa.string()), ("t", pa.timestamp("ms", "UTC")), ("v", pa.int32()), ("w", pa.decimal128(10, 2))]
)


def rows(pipeline: jf.Pipeline, name: str = "rows") -> Any:
    return pipeline.read(jf.memory(schema=SCHEMA), name=name)


def timed(pipeline: jf.Pipeline) -> Any:
    return rows(pipeline).with_event_time("t", jf.watermarks.fixed_lag("1s"))


def test_schemas_follow_the_steps() -> None:
    stage = rows(jf.Pipeline())
    assert stage.schema == SCHEMA
    assert stage.select("v", (col("v") / 2).alias("half"), pc.field("k")).schema == pa.schema(
        [("v", pa.int32()), ("half", pa.float64()), ("k", pa.string())]
    )
    assert stage.with_column("x", 1).schema.field("x").type == pa.int32()
    assert stage.with_columns({"v": col("k"), "y": col("v") + 1}).schema.types[2:] == [
        pa.string(),
        SCHEMA[3].type,
        pa.int32(),
    ]
    assert stage.drop("t", "w").schema.names == ["k", "v"]
    assert stage.rename({"k": "key"}).schema.names == ["key", "t", "v", "w"]
    assert stage.where(col("v") > 0).schema == SCHEMA
    assert stage.filter(pc.field("v") > 1).schema == SCHEMA
    assert stage.map_batches(lambda batch: batch.select(["v"])).schema == pa.schema([("v", pa.int32())])
    assert stage.union(stage.where(col("v") > 2)).schema == SCHEMA


def test_the_result_of_a_window_has_keys_bounds_and_aggregates() -> None:
    stage = timed(jf.Pipeline())
    result = (
        stage.group_by("k", (col("v") % 10).alias("digit"))
        .window(jf.sliding("10s", "5s"))
        .agg(
            rows=jf.count(), total=jf.sum("v"), money=jf.sum("w"), mean=jf.mean(col("v") * 2), top=jf.max("w"), name="r"
        )
    )
    assert result.schema == pa.schema(
        [
            ("k", pa.string()),
            ("digit", pa.int32()),
            ("window_start", pa.timestamp("us")),
            ("window_end", pa.timestamp("us")),
            ("rows", pa.int64()),
            ("total", pa.int64()),
            ("money", pa.decimal128(20, 2)),
            ("mean", pa.float64()),
            ("top", pa.decimal128(10, 2)),
        ]
    )
    assert result.late_rows.schema == SCHEMA.append(pa.field("missed_until", pa.timestamp("us")))
    whole = stage.window(jf.tumbling("1h")).agg(rows=jf.count())
    assert whole.schema.names == ["window_start", "window_end", "rows"]


def test_generated_names_come_from_operator_and_columns() -> None:
    stage = timed(jf.Pipeline())
    assert stage.select("k", "v").name == "select(k, v)"
    assert stage.where(col("v") > 0).name == "where((v > 0))"
    assert stage.where(col("v") > 0).name == "where((v > 0)) #2"  # stateless: it needs no name of its own
    assert stage.drop("w").name == "drop(w)"
    assert stage.rename({"v": "x"}).name == "rename(v as x)"
    assert stage.with_column("x", 1).name == "with_column(x)"
    assert stage.group_by("k").window(jf.tumbling("1m")).agg(n=jf.count()).name == "agg(n by k, tumbling 1m)"
    assert stage.window(jf.sliding("1m", "1s")).agg(n=jf.count()).name == "agg(n, sliding 1m by 1s)"
    assert stage.drop("w", name="mine").name == "mine"
    assert jf.Pipeline().read(jf.memory({"a": [1]})).name == "memory"


def test_event_time_is_followed_through_the_steps() -> None:
    stage = timed(jf.Pipeline())
    assert stage.event_time == "t"
    assert stage.where(col("v") > 0).event_time == "t"
    assert stage.rename({"t": "time"}).event_time == "time"
    assert stage.select(col("t").alias("at"), "k").event_time == "at"
    assert stage.select("k").event_time is None
    assert stage.drop("t").event_time is None
    assert stage.with_column("x", col("t")).event_time == "t"
    assert stage.map_batches(lambda batch: batch, name="same").event_time == "t"
    assert stage.map_batches(lambda batch: batch.select(["k"]), name="fewer").event_time is None
    assert stage.union(stage.where(col("v") > 1)).event_time == "t"
    assert stage.union(stage.rename({"t": "u"}).rename({"u": "t"})).event_time == "t"
    assert rows(jf.Pipeline()).event_time is None


def test_date_columns_are_event_time_too() -> None:
    for data_type in (pa.date32(), pa.date64(), pa.timestamp("s"), pa.timestamp("ns", "Europe/Berlin")):
        source = jf.memory(schema=pa.schema([("d", data_type)]))
        assert jf.Pipeline().read(source).with_event_time("d").event_time == "d"


def test_building_runs_no_function_on_rows() -> None:
    calls = []

    def function(batch: pa.RecordBatch) -> pa.RecordBatch:
        calls.append(batch.num_rows)
        return batch

    stage = jf.Pipeline().read(jf.memory({"a": [1, 2, 3]}))
    stage.map_batches(function, schema=stage.schema)
    assert calls == []
    stage.map_batches(function)
    assert calls == [0]


def test_a_pipeline_draws_itself() -> None:
    pipeline = jf.Pipeline("delays & <more>")
    stage = timed(pipeline)
    result = stage.where(col("v") < 3).group_by("k").window(jf.tumbling("1m")).agg(n=jf.count(), name="counts")
    result.collect()
    result.late_rows.collect("late")
    stage.rejected_rows.collect("rejected")
    svg = pipeline._repr_html_()
    root = ElementTree.fromstring(svg)
    assert "<script" not in svg
    boxes = [element for element in root.iter() if element.tag.endswith("rect")]
    assert len(boxes) == len(pipeline.steps) == 6
    texts = [element.text for element in root.iter() if element.tag.endswith("text")]
    assert {"rows", "where((v < 3))", "counts", "result", "late", "rejected"} <= set(texts)
    assert repr(pipeline) == "<Pipeline 'delays & <more>': rows, where((v < 3)), counts, result, late, rejected>"
    assert repr(stage).startswith("<SourceStage 'rows' (k: string, t: timestamp[ms, tz=UTC], v: int32")
    assert ElementTree.fromstring(jf.Pipeline()._repr_html_()) is not None


def test_explain_tells_steps_and_graph() -> None:
    pipeline = jf.Pipeline("delays")
    stage = timed(pipeline)
    result = (
        stage.where(col("v") < 3).group_by("k").window(jf.tumbling("1m")).agg(n=jf.sum(col("v") * 2), name="counts")
    )
    result.collect()
    text = pipeline.explain(member_count=2, workers=2)
    assert "rows: read memory, event time t" in text
    assert "counts: tumbling 1m by k  <- where((v < 3))" in text
    assert "k: string, window_start: timestamp[us], window_end: timestamp[us], n: int64" in text
    assert "graph for 2 members of 2 workers" in text
    assert "partitioned by k, between members" in text


def test_explain_tells_what_a_pipeline_lacks() -> None:
    pipeline = jf.Pipeline("half")
    timed(pipeline).select("k")
    assert "no graph yet: nothing reads the stage 'select(k)'" in pipeline.explain()
