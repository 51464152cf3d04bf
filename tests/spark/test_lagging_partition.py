"""A partition 60 s behind the other, and a lag of 10 s: Structured Streaming drops its rows, jetfast drops none."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import jetfast as jf
from jetfast.spark import SparkCluster

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]  # a loaded machine takes minutes to start a JVM

FILES = 10
FILE_S = 10
BEGIN = 1_767_225_600  # seconds: Spark's first watermark is 1970
ROWS = {"north": FILES * FILE_S, "south": FILES * FILE_S}


@pytest.fixture(scope="module")
def session(make_spark_session: Any) -> Iterator[Any]:
    spark = make_spark_session("local[4]")
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    yield spark
    spark.conf.set("spark.sql.shuffle.partitions", before)


@pytest.fixture
def readings(tmp_path: Path) -> Path:
    """A row a second from each sensor, a file every ten."""
    directory = tmp_path / "readings"
    directory.mkdir()
    for number in range(FILES):
        for sensor, behind in (("north", 0), ("south", 60)):
            times = [(BEGIN + number * FILE_S - behind + second) * 1_000_000 for second in range(FILE_S)]
            table = pa.table({"sensor": [sensor] * FILE_S, "at": pa.array(times, pa.timestamp("us", "UTC"))})
            path = directory / f"{number}-{sensor}.parquet"
            pq.write_table(table, path)
            os.utime(path, (number + 1, number + 1))  # a stream takes the oldest files first
    return directory


def test_structured_streaming_drops_rows_of_a_lagging_partition_and_jetfast_drops_none(
    session: Any, readings: Path
) -> None:
    from pyspark.sql import functions as F

    rows = session.readStream.schema("sensor string, at timestamp").option("maxFilesPerTrigger", 2)
    counts = rows.parquet(str(readings)).withWatermark("at", "10 seconds")
    counts = counts.groupBy("sensor", F.window("at", "10 seconds")).agg(F.count("*").alias("rows"))
    query = counts.writeStream.format("memory").queryName("lagging").trigger(availableNow=True).start()
    query.awaitTermination()
    theirs = dict(session.table("lagging").groupBy("sensor").agg(F.sum("rows")).collect())
    assert theirs["north"] >= ROWS["north"] - 20  # of the last windows Spark gives none
    assert theirs["south"] < ROWS["south"] / 2
    assert any(
        operator["numRowsDroppedByWatermark"] for told in query.recentProgress for operator in told["stateOperators"]
    )

    pipeline = jf.Pipeline("lagging")
    source = jf.files(str(readings), partitions="north|south")
    timed = pipeline.read(source, name="readings").with_event_time("at", jf.watermarks.fixed_lag("10s"))
    timed.group_by("sensor").window(jf.tumbling("10s")).agg(rows=jf.count(), name="counts").collect()
    job = SparkCluster(session, members=2).submit(pipeline, progress=False)
    ours = job.to_arrow().group_by("sensor").aggregate([("rows", "sum")]).to_pylist()
    assert {row["sensor"]: row["rows_sum"] for row in ours} == ROWS
    assert job.metrics["late_rows"] == job.metrics["partly_late_rows"] == 0
