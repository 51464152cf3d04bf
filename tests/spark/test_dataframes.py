"""A jetfast step in the middle of a Spark job: DataFrames as sources, results of pipelines as DataFrames."""

import datetime
from pathlib import Path
from typing import Any

import pytest

import jetfast as jf
from jetfast.errors import JobDefinitionError
from jetfast.spark import read_dataframe, run

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]  # a loaded machine takes minutes to start a JVM

NOON = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)


@pytest.fixture(scope="module")
def session(make_spark_session: Any) -> Any:
    return make_spark_session("local[4]")


def trips(session: Any) -> Any:
    """500 rows in three partitions, each in time order; a null in every column but time."""
    return session.range(0, 500, 1, 3).selectExpr(
        "if(id = 7, null, concat('taxi ', id % 5)) as taxi",
        "timestamp_seconds(1000 * (id % 167)) as at",
        "if(id = 8, null, cast(id as double) / 4) as paid",
    )


def test_a_pipeline_stands_between_two_dataframes(session: Any, tmp_path: Path) -> None:
    from pyspark.sql import functions as F

    df = trips(session).sortWithinPartitions("at")
    pipeline = jf.Pipeline("trips")
    source = read_dataframe(df, directory=tmp_path)
    rows = pipeline.read(source, name="trips").with_event_time("at", jf.watermarks.fixed_lag("0s"))
    paid = rows.where(jf.col("paid") >= 1).group_by("taxi").window(jf.tumbling("1h"))
    paid.agg(n=jf.count(), paid=jf.sum("paid")).collect()
    result = run(pipeline, spark=session, directory=tmp_path, progress=False)
    found = result.where("n > 1").select("taxi", F.col("window_end").cast("string").alias("until"), "n", "paid")
    wanted = (
        df.where("paid >= 1")
        .groupBy("taxi", F.window("at", "1 hour"))
        .agg(F.count("*").alias("n"), F.sum("paid").alias("paid"))
        .where("n > 1")
        .select("taxi", F.col("window.end").cast("string").alias("until"), "n", "paid")
    )
    assert found.count() > 50
    assert found.exceptAll(wanted).count() == wanted.exceptAll(found).count() == 0


def test_rows_go_through_as_they_are(session: Any) -> None:
    df = session.createDataFrame(
        [(1, "ä", NOON, [1, 2], {"x": 1.5}), (None, None, None, None, None)],
        "number int, text string, at timestamp, list array<long>, struct struct<x: double>",
    )
    pipeline = jf.Pipeline("through")
    pipeline.read(read_dataframe(df), name="rows").collect()
    result = run(pipeline, spark=session, progress=False)
    assert [(field.name, field.dataType) for field in result.schema] == [
        (field.name, field.dataType) for field in df.schema
    ]
    assert sorted(map(repr, result.collect())) == sorted(map(repr, df.collect()))


def test_a_dataframe_without_rows_still_has_columns(session: Any) -> None:
    source = read_dataframe(trips(session).where("false"))
    assert source.schema.names == ["taxi", "at", "paid"]
    pipeline = jf.Pipeline("none")
    pipeline.read(source, name="rows").collect()
    assert run(pipeline, spark=session, progress=False).collect() == []


def test_a_dataframe_is_computed_once(session: Any, tmp_path: Path) -> None:
    source = read_dataframe(session.range(100).selectExpr("uuid() as name"))
    read: list[set[str]] = []
    for _ in range(2):
        pipeline = jf.Pipeline("names")
        pipeline.read(source, name="rows").collect()
        read.append(set(jf.LocalCluster().submit(pipeline, progress=False).to_arrow()["name"].to_pylist()))
    assert len(read[0]) == 100
    assert read[0] == read[1]


def test_a_pipeline_that_collects_nothing_or_twice_is_refused(session: Any) -> None:
    source = jf.memory({"x": [1]})
    none, twice = jf.Pipeline("none"), jf.Pipeline("twice")
    none.read(source, name="rows").write(jf.console())
    rows = twice.read(source, name="rows")
    rows.collect("first")
    rows.collect("second")
    with pytest.raises(JobDefinitionError, match="'none' that ends with .collect.., but nothing is collected"):
        run(none, spark=session)
    with pytest.raises(JobDefinitionError, match="it collects 'first', 'second'"):
        run(twice, spark=session)


def test_a_streaming_dataframe_is_refused(session: Any) -> None:
    with pytest.raises(JobDefinitionError, match="this one is streaming"):
        read_dataframe(session.readStream.format("rate").load())
