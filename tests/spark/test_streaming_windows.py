"""window_aggregate over a stream gives the rows of Spark's own groupBy(keys, window(...)), run again or not."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import jetfast as jf
from jetfast.core.windows import AnyWindow
from jetfast.errors import JobDefinitionError
from jetfast.spark import window_aggregate
from tests.spark.new_york import new_york_session

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]  # a loaded machine takes minutes to start a JVM

BEGIN_US = 1_767_225_600_000_000
SCHEMA = "text string, at timestamp, x double, small short"
FILES = 5
FILE_S = 10


session = pytest.fixture(scope="module")(new_york_session)


def write_files(directory: Path, numbers: range) -> None:
    """Each file goes 10 s further; a fifth of its rows are up to 40 s late, and every column has nulls."""
    directory.mkdir(exist_ok=True)
    for number in numbers:
        generator = np.random.default_rng(number)
        count = 80
        seconds = (number + generator.random(count)) * FILE_S
        seconds -= np.where(generator.random(count) < 0.2, generator.random(count) * 40, 0)

        def sometimes_null(values: Any, data_type: pa.DataType, generator: Any = generator) -> pa.Array:
            return pa.array(values, mask=generator.random(len(values)) < 0.1).cast(data_type)

        table = pa.table(
            {
                "text": sometimes_null(generator.choice(["a", "b", "ü"], count), pa.string()),
                "at": sometimes_null(BEGIN_US + (seconds * 1e6).astype(np.int64), pa.timestamp("us", "UTC")),
                "x": sometimes_null(generator.integers(-1000, 1000, count) / 64, pa.float64()),
                "small": sometimes_null(generator.integers(-100, 100, count), pa.int16()),
            }
        )
        path = directory / f"{number}.parquet"
        pq.write_table(table, path)
        os.utime(path, (number + 1, number + 1))  # a stream takes the oldest files first


def readings(session: Any, directory: Path) -> Any:
    rows = session.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(directory))
    return rows.withWatermark("at", "5 seconds")


def ours(df: Any, window: AnyWindow) -> Any:
    from pyspark.sql import functions as F

    return window_aggregate(
        df,
        time="at",
        by=["text", (F.col("small") % 2).alias("odd")],
        window=window,
        n=jf.count(),
        mean=jf.mean("x"),
        total=jf.sum("small"),
        latest=jf.max("at"),
    )


def theirs(df: Any, *window: str) -> Any:
    from pyspark.sql import functions as F

    return df.groupBy("text", (F.col("small") % 2).alias("odd"), F.window("at", *window)).agg(
        F.count("*").alias("n"), F.avg("x").alias("mean"), F.sum("small").alias("total"), F.max("at").alias("latest")
    )


def run(df: Any, out: Path) -> tuple[Any, Any]:
    """Write what there is to read, in append mode; return the query and all rows that were written."""
    stream = df.writeStream.format("parquet").option("path", str(out)).trigger(availableNow=True)
    query = stream.option("checkpointLocation", f"{out}-checkpoint").start()
    query.awaitTermination()
    return query, df.sparkSession.read.parquet(str(out))


def same(found: Any, wanted: Any) -> int:
    """Check names, types and rows; return how many rows there are."""
    assert found.dtypes == wanted.dtypes
    rows = sorted(map(repr, found.collect()))
    assert rows == sorted(map(repr, wanted.collect()))
    return len(rows)


@pytest.mark.parametrize(
    ("window", "spark_window"),
    [(jf.sliding("8 s", "2 s"), ["8 seconds", "2 seconds"]),
     (jf.tumbling("7 s", offset="1 s"), ["7 seconds", "7 seconds", "1 second"])],
    ids=["sliding", "tumbling"],
)  # fmt: skip
def test_rows_are_those_of_spark_late_ones_included(
    session: Any, tmp_path: Path, window: AnyWindow, spark_window: list[str]
) -> None:
    write_files(tmp_path / "rows", range(FILES))
    df = readings(session, tmp_path / "rows")
    assert [(field.name, field.dataType) for field in ours(df, window).schema] == [
        (field.name, field.dataType) for field in theirs(df, *spark_window).schema
    ]
    _, found = run(ours(df, window), tmp_path / "ours")
    query, wanted = run(theirs(df, *spark_window), tmp_path / "theirs")
    assert same(found, wanted) > 50
    dropped = [state["numRowsDroppedByWatermark"] for told in query.recentProgress for state in told["stateOperators"]]
    assert sum(dropped) > 10


def test_a_query_that_starts_again_and_repeats_its_last_batch_gives_each_row_once(session: Any, tmp_path: Path) -> None:
    window, spark_window = jf.sliding("8 s", "2 s"), ["8 seconds", "2 seconds"]
    for numbers in (range(3), range(3, FILES)):
        write_files(tmp_path / "rows", numbers)
        df = readings(session, tmp_path / "rows")
        _, found = run(ours(df, window), tmp_path / "ours")
        _, wanted = run(theirs(df, *spark_window), tmp_path / "theirs")
        assert same(found, wanted) > 20
        for name in ("ours", "theirs"):  # as if the driver had died before it noted that the batch is complete
            commits = tmp_path / f"{name}-checkpoint" / "commits"
            last = max(int(file.name) for file in commits.iterdir() if file.name.isdigit())
            for note in (commits / str(last), commits / f".{last}.crc"):
                note.unlink()
    _, found = run(ours(df, window), tmp_path / "ours")
    assert same(found, wanted) > 50


def test_without_keys_a_stream_is_one_group(session: Any, tmp_path: Path) -> None:
    from pyspark.sql import functions as F

    write_files(tmp_path / "rows", range(3))
    df = readings(session, tmp_path / "rows")
    different = window_aggregate(df, time="at", window=jf.tumbling("4 s"), different=jf.count_distinct("small"))
    _, found = run(different, tmp_path / "ours")
    batch = session.read.parquet(str(tmp_path / "rows")).groupBy(F.window("at", "4 seconds"))
    counted = {
        row["window"]: row["different"] for row in batch.agg(F.count_distinct("small").alias("different")).collect()
    }
    rows = found.collect()
    assert len(rows) > 3
    assert all(row["different"] <= counted[row["window"]] for row in rows)  # less what was late


@pytest.mark.parametrize("time", ["timestamp", "a moment later"])
def test_a_stream_needs_a_watermark_on_its_time(session: Any, time: str) -> None:
    from pyspark.sql import functions as F

    stream = session.readStream.format("rate").load()
    column: Any = "timestamp"
    if time != "timestamp":  # Spark, too, wants the column itself
        stream = stream.withWatermark("timestamp", "1 second")
        column = (F.col("timestamp") + F.expr("interval 1 second")).alias(time)
    with pytest.raises(JobDefinitionError, match=rf"no watermark on '{time}'.*withWatermark\('{time}'"):
        window_aggregate(stream, time=column, window=jf.tumbling("1h"), n=jf.count())


def test_sessions_over_a_stream_are_left_to_spark(session: Any) -> None:
    stream = session.readStream.format("rate").load().withWatermark("timestamp", "1 second")
    with pytest.raises(JobDefinitionError, match=r"not a session 1s; .*session_window"):
        window_aggregate(stream, time="timestamp", window=jf.session("1 s"), n=jf.count())
