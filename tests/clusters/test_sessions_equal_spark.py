"""Sessions of a whole job equal Spark's own session_window (batch) on random rows, touching ones included."""

from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from polars.testing import assert_frame_equal

import jetfast as jf

SECOND = 1_000_000


@pytest.mark.spark
def test_sessions_equal_sparks_session_window(make_spark_session: Callable[..., Any]) -> None:
    session = make_spark_session("local[2]")
    from pyspark.sql import functions as F

    rng = np.random.default_rng(7)
    count = 5000
    times = rng.integers(-2000, 2000, count) * SECOND // 2  # many touch exactly
    rows = pa.table(
        {
            "key": pa.array([None if key == 0 else f"k{key}" for key in rng.integers(0, 40, count)]),
            "time": pa.array(times).cast(pa.timestamp("us", "UTC")),
            "value": pa.array(rng.integers(-640, 640, count) / 64, mask=rng.random(count) < 0.1),
        }
    )
    spark_rows = session.createDataFrame(rows)
    wanted = (
        spark_rows.groupBy("key", F.session_window("time", "3 seconds").alias("w"))
        .agg(
            F.count("*").alias("rows"),
            F.sum("value").alias("total"),
            F.min("value").alias("least"),
            F.max("value").alias("greatest"),
        )
        .select("key", F.col("w.start").alias("window_start"), F.col("w.end").alias("window_end"), "rows", "total",
                "least", "greatest")
        .toArrow()
    )  # fmt: skip
    pipeline = jf.Pipeline("sessions")
    pipeline.read(jf.memory(rows, batch_rows=700), name="rows").with_event_time(
        "time", jf.watermarks.fixed_lag("4000s")
    ).group_by("key").window(jf.session("3s")).agg(
        rows=jf.count(), total=jf.sum("value"), least=jf.min("value"), greatest=jf.max("value"), name="sessions"
    ).collect("result")
    job = jf.LocalCluster(workers=2).submit(pipeline, progress=False)
    job.wait()

    def ordered(table: pa.Table) -> pl.DataFrame:
        times = pl.col("window_start", "window_end").dt.epoch("us")
        return pl.DataFrame(table).with_columns(times).sort("key", "window_start")

    found = ordered(job.collected("result"))
    assert len(found) > 500
    assert_frame_equal(found, ordered(wanted), check_exact=True)
