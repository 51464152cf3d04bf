"""What works from a Spark Connect client, whose driver is a process elsewhere, and what says that it does not."""

import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import jetfast as jf
from jetfast.errors import JobDefinitionError, JobFailedError, ResourcesError
from jetfast.spark import SparkCluster, read_dataframe, register, run, window_aggregate
from tests.connectors.postgres_server import PostgresServer
from tests.spark.connect_server import ConnectServer

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

NOON = datetime.datetime(2026, 1, 1, 12)


@pytest.fixture(scope="module")
def session() -> Iterator[Any]:
    from pyspark.sql.connect.session import SparkSession

    with ConnectServer("local[4]") as server:
        session = SparkSession.builder.remote(server.url).create()
        yield session
        session.stop()


def trips(session: Any) -> Any:
    """300 rows in three partitions, in no order."""
    return session.range(0, 300, 1, 3).selectExpr(
        "concat('taxi ', id % 5) as taxi",
        "timestamp_seconds(1767225600 + id * 7919 % 3000) as at",
        "if(id = 8, null, cast(id as double) / 4) as paid",
    )


def test_windows_over_a_dataframe_equal_those_of_spark(session: Any) -> None:
    from pyspark.sql.connect import functions as F

    df = trips(session)
    sliding = jf.sliding("10m", "2m")
    ours = window_aggregate(df, time="at", by="taxi", window=sliding, n=jf.count(), mean=jf.mean(F.col("paid") * 2))
    theirs = df.groupBy("taxi", F.window("at", "10 minutes", "2 minutes"))
    theirs = theirs.agg(F.count("*").alias("n"), F.avg(F.col("paid") * 2).alias("mean"))
    assert ours.schema.simpleString() == theirs.schema.simpleString()
    rows = sorted(map(str, ours.collect()))
    assert rows == sorted(map(str, theirs.collect()))
    assert len(rows) > 100


def test_windows_over_a_stream_come_as_the_watermark_goes(session: Any, tmp_path: Path) -> None:
    trips(session).coalesce(1).write.parquet(str(tmp_path / "trips"))
    session.conf.set("spark.sql.shuffle.partitions", "2")
    stream = session.readStream.schema("taxi string, at timestamp, paid double").parquet(str(tmp_path / "trips"))
    timed = stream.withWatermark("at", "0 seconds")
    ours = window_aggregate(timed, time="at", by="taxi", window=jf.tumbling("10m"), n=jf.count())
    query = ours.writeStream.format("memory").queryName("trips").trigger(availableNow=True)
    query.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()
    counted = [row["n"] for row in session.table("trips").collect()]
    assert len(counted) == 20  # of five taxis in five stretches: the last one is open
    assert 200 < sum(counted) < 300


def test_a_pipeline_stands_between_two_dataframes(session: Any, tmp_path: Path) -> None:
    df = trips(session).sortWithinPartitions("at")
    pipeline = jf.Pipeline("trips")
    rows = pipeline.read(read_dataframe(df, directory=tmp_path), name="trips")
    timed = rows.with_event_time("at", jf.watermarks.fixed_lag("0s"))
    timed.group_by("taxi").window(jf.tumbling("10m")).agg(n=jf.count(), paid=jf.sum("paid")).collect()
    result = run(pipeline, spark=session, members=2, directory=tmp_path, progress=False)
    found = result.selectExpr("taxi", "cast(window_end as string) as until", "n", "paid")
    wanted = df.selectExpr("taxi", "window(at, '10 minutes').end as until", "paid")
    wanted = wanted.groupBy("taxi", "until").agg({"taxi": "count", "paid": "sum"})
    wanted = wanted.selectExpr("taxi", "cast(until as string) as until", "`count(taxi)` as n", "`sum(paid)` as paid")
    rows = sorted(map(str, found.collect()))
    assert rows == sorted(map(str, wanted.collect()))
    assert len(rows) > 20


def test_a_job_that_fails_on_connect_says_why(session: Any) -> None:
    def trip(batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch.num_rows:
            raise ValueError("I do not like this")
        return batch

    pipeline = jf.Pipeline("picky")
    pipeline.read(jf.memory({"n": [1, 2]}, partitions=2), name="rows").map_batches(trip, name="trip over").collect()
    with pytest.raises(JobFailedError, match="I do not like this"):
        run(pipeline, spark=session, progress=False)


def test_what_needs_a_driver_of_its_own_is_refused_before_anything_runs(session: Any) -> None:
    with pytest.raises(ResourcesError, match=r"Spark Connect session.*jetfast\.spark\.run"):
        SparkCluster(session)
    pipeline = jf.Pipeline("none")
    pipeline.read(jf.memory({"n": [1]}), name="rows").collect()
    with pytest.raises(ResourcesError, match="5 Spark slots are needed.*the Connect server has 4"):
        run(pipeline, spark=session, members=5)


@pytest.mark.services
def test_streams_write_exactly_once(session: Any, postgres_server: PostgresServer, tmp_path: Path) -> None:
    postgres_server.clear()
    with psycopg.connect(postgres_server.conninfo, autocommit=True) as connection:
        connection.execute("create table rows (id bigint)")
    (tmp_path / "source").mkdir()
    for number in range(3):
        pq.write_table(
            pa.table({"id": range(number * 10, number * 10 + 10)}), tmp_path / "source" / f"{number}.parquet"
        )
    register(session)
    rows = session.readStream.schema("id long").option("maxFilesPerTrigger", "1").parquet(str(tmp_path / "source"))
    targets = {
        "files": {"path": str(tmp_path / "out")},
        "postgres": {"conninfo": postgres_server.conninfo, "table": "rows"},
    }
    queries = []
    for sink, options in targets.items():
        stream = rows.writeStream.format(f"jetfast.{sink}").options(**options).trigger(availableNow=True)
        queries.append(stream.option("checkpointLocation", str(tmp_path / sink)).start())
    for query in queries:
        query.awaitTermination()
        assert query.exception() is None
    written = pa.concat_tables([pq.read_table(file) for file in (tmp_path / "out").glob("part-*")])
    assert sorted(written["id"].to_pylist()) == list(range(30))
    with psycopg.connect(postgres_server.conninfo) as connection:
        found = connection.execute("select id from rows order by id").fetchall()
    assert [number for (number,) in found] == list(range(30))


def test_what_streams_is_refused_as_elsewhere(session: Any) -> None:
    stream = session.readStream.format("rate").load()
    with pytest.raises(JobDefinitionError, match="this one is streaming"):
        read_dataframe(stream)
