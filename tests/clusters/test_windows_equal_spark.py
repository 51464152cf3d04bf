"""Windows of whole jobs equal Spark's own (batch): window with offsets, session_window, window_time, row_number."""

from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from polars.testing import assert_frame_equal

import jetfast as jf
from jetfast.core.windows import AnyWindow, SessionWindow

pytestmark = pytest.mark.spark
SECOND = 1_000_000
AGGREGATES = {
    "rows": jf.count(),
    "values": jf.count("value"),
    "total": jf.sum("value"),
    "mean": jf.mean("value"),
    "least": jf.min("value"),
    "greatest": jf.max("value"),
    "spread": jf.var_samp("value"),
    "deviation": jf.stddev_pop("value"),
    "whole": jf.sum("number"),
    "at_least": jf.min("number"),
}
TIMES = ("window_start", "window_end")


@pytest.fixture(scope="module")
def session(make_spark_session: Callable[..., Any]) -> Any:
    return make_spark_session("local[2]", spark_sql_shuffle_partitions=2)


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    """Half seconds around 1970, so that many rows lie on boundaries and touch as sessions; nulls everywhere."""
    random = np.random.default_rng(7)
    count = 4000

    def nulls(share: float) -> Any:
        return random.random(count) < share

    return pa.table(
        {
            "key": pa.array([f"k{key}" for key in random.integers(0, 40, count)], mask=nulls(0.05)),
            "code": pa.array(random.integers(-1, 2, count).astype(np.int32), mask=nulls(0.1)),
            "time": pa.array(random.integers(-2000, 2000, count) * SECOND // 2, mask=nulls(0.05)).cast(
                pa.timestamp("us", "UTC")
            ),
            "value": pa.array(random.integers(-640, 640, count) / 64, mask=nulls(0.1)),  # sums are exact
            "number": pa.array(random.integers(-(2**40), 2**40, count), mask=nulls(0.1)),
        }
    )


def in_jetfast(rows: pa.Table, build: Callable[[Any], Any]) -> pl.DataFrame:
    pipeline = jf.Pipeline("windows")
    source = jf.memory(rows, partitions=3, batch_rows=700)
    build(pipeline.read(source, name="rows").with_event_time("time", jf.watermarks.fixed_lag("4000s"))).collect()
    job = jf.LocalCluster(workers=2).submit(pipeline, progress=False)
    job.wait(timeout=120)
    return ordered(job.collected("result"))


def in_spark(frame: Any, window: Any, keys: list[str], aggregates: dict[str, Any]) -> Any:
    from pyspark.sql import functions as F

    functions = [to_spark(aggregate).alias(name) for name, aggregate in aggregates.items()]
    grouped = frame.groupBy(*keys, window.alias("w")).agg(*functions)
    return grouped.select(
        *keys, F.col("w.start").alias("window_start"), F.col("w.end").alias("window_end"), *aggregates
    )


def to_spark(aggregate: Any) -> Any:
    """Kinds bear the names of Spark's functions."""
    from pyspark.sql import functions as F

    if not aggregate.columns:
        return F.count("*")
    kind = aggregate.function.value
    return getattr(F, "count" if kind == "count_values" else kind)(*aggregate.columns)


def ordered(table: pa.Table) -> pl.DataFrame:
    frame = pl.DataFrame(table).with_columns(pl.col(*TIMES).dt.epoch("us"))
    keys = [name for name in frame.columns if name in ("key", "code", *TIMES, "rank")]
    return frame.sort(*keys, nulls_last=True)


def check(found: pl.DataFrame, wanted: Any, rows_min: int) -> None:
    assert len(found) >= rows_min
    assert_frame_equal(found, ordered(wanted.toArrow()), rel_tol=1e-12, abs_tol=1e-12)


@pytest.mark.parametrize(
    ("window", "arguments"),
    [
        (jf.tumbling("10s"), ("10 seconds",)),
        (jf.tumbling("10s", offset="3s"), ("10 seconds", "10 seconds", "3 seconds")),
        (jf.tumbling("1h", offset="-15m"), ("1 hour", "1 hour", "-15 minutes")),
        (jf.sliding("60s", "10s"), ("60 seconds", "10 seconds")),
        (jf.sliding("7s", "1s", offset="500ms"), ("7 seconds", "1 second", "500 milliseconds")),
    ],
    ids=str,
)
def test_tumbling_and_sliding_windows_equal_sparks_window(
    session: Any, rows: pa.Table, window: AnyWindow, arguments: tuple[str, ...]
) -> None:
    from pyspark.sql import functions as F

    found = in_jetfast(rows, lambda stage: stage.group_by("key", "code").window(window).agg(**AGGREGATES, name="w"))
    wanted = in_spark(session.createDataFrame(rows), F.window("time", *arguments), ["key", "code"], AGGREGATES)
    check(found, wanted, 200)


def test_windows_without_keys_equal_sparks(session: Any, rows: pa.Table) -> None:
    from pyspark.sql import functions as F

    found = in_jetfast(rows, lambda stage: stage.window(jf.sliding("60s", "20s")).agg(**AGGREGATES, name="w"))
    wanted = in_spark(session.createDataFrame(rows), F.window("time", "60 seconds", "20 seconds"), [], AGGREGATES)
    check(found, wanted, 100)


def test_sessions_equal_sparks_session_window(session: Any, rows: pa.Table) -> None:
    from pyspark.sql import functions as F

    found = in_jetfast(rows, lambda stage: stage.group_by("key").window(jf.session("3s")).agg(**AGGREGATES, name="s"))
    # Spark makes a session of the rows without a time, too; here they are rejected.
    timed = session.createDataFrame(rows).where("time is not null")
    check(found, in_spark(timed, F.session_window("time", "3 seconds"), ["key"], AGGREGATES), 500)


@pytest.mark.parametrize(
    ("window", "arguments"),
    [
        (jf.tumbling("60s", offset="-15s"), ("60 seconds", "60 seconds", "-15 seconds")),
        (jf.sliding("60s", "20s"), ("60 seconds", "20 seconds")),
        (jf.session("3s"), ("3 seconds",)),
    ],
    ids=str,
)
def test_aggregates_over_batches_equal_sparks(
    session: Any, rows: pa.Table, window: AnyWindow, arguments: tuple[str, ...]
) -> None:
    from pyspark.sql import functions as F

    # No two rows have one time: which of them is the first is not for Spark to say.
    own_times = pa.array(np.arange(len(rows)) * 7 % 4001 + rows["time"].cast(pa.int64()).to_numpy(zero_copy_only=False))
    own_times = pc.cast(pc.if_else(rows["time"].is_valid(), own_times, None), pa.int64(), safe=False)
    rows = rows.set_column(2, "time", own_times.cast(pa.timestamp("us", "UTC")))
    value, by_time = F.col("value"), F.sort_array(F.collect_list(F.struct("time", "value", "code")))

    def in_time(column: str) -> Any:
        return F.filter(F.transform(by_time, lambda row: row[column]), lambda each: each.isNotNull())

    wanted = {
        "first": (jf.first("value"), F.min_by("value", "time")),
        "last": (jf.last("number"), F.max_by("number", "time")),
        "known": (jf.last("value", ignore_nulls=True), F.max_by("value", F.when(value.isNotNull(), F.col("time")))),
        "top": (jf.top_n("value", 3), F.slice(F.sort_array(F.collect_list("value"), False), 1, 3)),
        "bottom": (jf.bottom_n("number", 2), F.slice(F.sort_array(F.collect_list("number")), 1, 2)),
        "distinct": (jf.count_distinct("value"), F.count_distinct("value")),
        "middle": (jf.quantile("value", 0.5, error=1e-6), F.percentile_approx("value", 0.5, 100_000)),
        "trend": (jf.linear_trend("value", "code"), F.regr_slope("value", "code")),
        "codes": (jf.collect_set("code"), F.sort_array(F.collect_set("code"))),
        "values": (jf.collect_list("value"), in_time("value")),
        "story": (
            jf.concat(jf.col("code").cast("string"), ","),
            F.when(F.count("code") > 0, F.array_join(in_time("code"), ",")),
        ),
    }
    aggregates = {name: aggregate for name, (aggregate, _) in wanted.items()}
    found = in_jetfast(rows, lambda stage: stage.group_by("key").window(window).agg(**aggregates, name="w"))
    spark_window = F.session_window if isinstance(window, SessionWindow) else F.window
    functions = [function.alias(name) for name, (_, function) in wanted.items()]
    timed = session.createDataFrame(rows).where("time is not null")
    grouped = timed.groupBy("key", spark_window("time", *arguments).alias("w")).agg(*functions)
    results = grouped.select(
        "key", F.col("w.start").alias("window_start"), F.col("w.end").alias("window_end"), *aggregates
    )
    exact = ordered(results.toArrow())
    assert len(found) == len(exact) >= 200
    near = ["middle", "trend"]
    assert_frame_equal(found.select(near), exact.select(near), rel_tol=2e-6, abs_tol=1e-9)
    assert found.drop(near).to_dicts() == exact.drop(near).to_dicts()


def test_a_window_after_a_window_equals_sparks_window_time(session: Any, rows: pa.Table) -> None:
    from pyspark.sql import functions as F

    again = {"groups": jf.count(), "rows": jf.sum("rows"), "most": jf.max("rows"), "total": jf.sum("total")}
    found = in_jetfast(
        rows,
        lambda stage: (
            stage.group_by("key", "code")
            .window(jf.tumbling("10s", offset="3s"))
            .agg(rows=jf.count(), total=jf.sum("value"), name="first")
            .group_by("code")
            .window(jf.sliding("60s", "20s", offset="3s"))
            .agg(**again, name="second")
        ),
    )
    first = (
        session.createDataFrame(rows)
        .groupBy("key", "code", F.window("time", "10 seconds", "10 seconds", "3 seconds").alias("w"))
        .agg(F.count("*").alias("rows"), F.sum("value").alias("total"))
        .withColumn("time", F.window_time("w"))
        .drop("w")
    )
    check(found, in_spark(first, F.window("time", "60 seconds", "20 seconds", "3 seconds"), ["code"], again), 100)


def test_the_best_results_equal_sparks_row_number(session: Any, rows: pa.Table) -> None:
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    found = in_jetfast(
        rows,
        lambda stage: (
            stage.group_by("key", "code")
            .window(jf.tumbling("60s"))
            .agg(rows=jf.count(), total=jf.sum("value"), name="minutes")
            .top(3, by="total", per="code")
        ),
    )
    aggregates = {"rows": jf.count(), "total": jf.sum("value")}
    minutes = in_spark(session.createDataFrame(rows), F.window("time", "60 seconds"), ["key", "code"], aggregates)
    best = Window.partitionBy("window_start", "code").orderBy(F.desc_nulls_last("total"), F.asc_nulls_last("key"))
    wanted = minutes.withColumn("rank", F.row_number().over(best).cast("bigint")).where("rank <= 3")
    check(found, wanted, 100)
