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
    """Count and mean by key and window."""
    from pyspark.sql import functions

    window = functions.window("time", size, None if slide == size else slide)
    found = df.groupBy("key", window).agg(functions.count("*").alias("count"), functions.avg("value").alias("mean"))
    return found.select(
        "key",
        functions.col("window.start").alias("window_start"),
        functions.col("window.end").alias("window_end"),
        "count",
        "mean",
    )


def run_batch(spark: Any, source: Path, out: Path, size: str, slide: str) -> None:
    """Parquet in, Parquet out."""
    windows_of(spark.read.parquet(str(source)), size, slide).write.parquet(emptied(out))


def run_streaming(spark: Any, source: Path, out: Path, size: str, slide: str, lag: str, files_of_batch: int) -> None:
    """Structured Streaming over the files that are there, in append mode; windows are given when they are final."""
    checkpoint = out.with_name(out.name + "-checkpoint")
    rows = spark.readStream.schema("key long, time timestamp, value double")
    rows = rows.option("maxFilesPerTrigger", str(files_of_batch)).parquet(str(source))
    stream = windows_of(rows.withWatermark("time", lag), size, slide).writeStream.format("parquet")
    stream = stream.option("checkpointLocation", emptied(checkpoint)).option("path", emptied(out))
    stream.trigger(availableNow=True).start().awaitTermination()
