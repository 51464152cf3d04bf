"""Spark on local[2]: windows over Parquet files, batch and Structured Streaming, and what all its processes cost."""

import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from benchmarks.measure import Cost

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "6g",
    "spark.sql.shuffle.partitions": "2",  # one for each core: more cost Spark more
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.log.level": "ERROR",
}


def start_session(directory: Path) -> Any:
    """A session on two cores; what it leaves on disk goes to the directory."""
    from pyspark.sql import SparkSession

    root = str(Path(__file__).parents[2])  # workers import the jetfast that is measured
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    builder = SparkSession.builder.master("local[2]").appName("jetfast benchmarks")
    for name, value in {**SETTINGS, "spark.local.dir": str(directory)}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def cpu_of_all_processes() -> float:
    """CPU seconds of this process and all below it: the JVM, Python workers, and those of them that have ended."""
    seconds = 0.0
    this = psutil.Process()
    for process in [this, *this.children(recursive=True)]:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue  # its parent has its times now
        seconds += times.user + times.system + times.children_user + times.children_system
    return seconds


def measure_all_processes(work: Callable[[], object]) -> Cost:
    """Run once."""
    wall, cpu = time.perf_counter(), cpu_of_all_processes()
    work()
    return Cost(cpu_of_all_processes() - cpu, time.perf_counter() - wall)


def emptied(directory: Path) -> str:
    """A directory to write to that is not there."""
    shutil.rmtree(directory, ignore_errors=True)
    return str(directory)


def windows_of(df: Any, size: str, slide: str) -> Any:
    """Count and mean by key and window, as Spark plans them."""
    from pyspark.sql import functions

    window = functions.window("time", size, None if slide == size else slide)
    return flat(
        df.groupBy("key", window).agg(functions.count("*").alias("count"), functions.avg("value").alias("mean"))
    )


def flat(windows: Any) -> Any:
    """With start and end of the window as columns of their own."""
    return windows.selectExpr("key", "window.start as window_start", "window.end as window_end", "count", "mean")


def run_batch(spark: Any, source: Path, out: Path, size: str, slide: str) -> None:
    """Parquet in, Parquet out."""
    windows_of(spark.read.parquet(str(source)), size, slide).write.parquet(emptied(out))


def read_stream(spark: Any, source: Path, lag: str, files_of_batch: int) -> Any:
    """The files that are there as a stream, some in each micro-batch."""
    rows = spark.readStream.schema("key long, time timestamp, value double")
    return rows.option("maxFilesPerTrigger", str(files_of_batch)).parquet(str(source)).withWatermark("time", lag)


def run_streaming(rows: Any, out: Path, size: str, slide: str) -> None:
    """Structured Streaming; windows are given when they are final."""
    write_stream(windows_of(rows, size, slide), out)


def write_stream(rows: Any, out: Path) -> None:
    """Run a query in append mode until all files are read."""
    checkpoint = emptied(out.with_name(out.name + "-checkpoint"))
    stream = rows.writeStream.format("parquet").option("checkpointLocation", checkpoint).option("path", emptied(out))
    stream.trigger(availableNow=True).start().awaitTermination()
