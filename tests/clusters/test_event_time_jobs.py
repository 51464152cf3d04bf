"""Event time in whole jobs, by a virtual clock: policies, idleness, empty batches (SEMANTICS 1.1 to 1.5)."""

from typing import Any

import pyarrow as pa
import pytest

import jetfast as jf
from jetfast.control.job import Job
from jetfast.testing import EMPTY, VirtualClock, scripted, silence

SCHEMA = pa.schema([("time", pa.timestamp("us")), ("key", pa.string())])


def rows(*seconds: int, key: str = "k") -> pa.Table:
    return pa.table({"time": [second * 1_000_000 for second in seconds], "key": [key] * len(seconds)}, schema=SCHEMA)


def run(source: Any, policy: Any, *, idle_timeout: str = "60s", start: str = "1970-01-01T00:01:40") -> Job:
    pipeline = jf.Pipeline("event time")
    read = pipeline.read(source, name="rows")
    counts = (
        read.with_event_time("time", policy, idle_timeout=idle_timeout)
        .group_by("key")
        .window(jf.tumbling("1s"))
        .agg(n=jf.count(), name="counts")
    )
    counts.collect()
    counts.late_rows.collect("late")
    job = jf.LocalCluster(workers=1, clock=VirtualClock(start)).submit(pipeline, progress=False)
    job.wait()
    return job


def late_seconds(job: Job) -> list[int]:
    return [moment.minute * 60 + moment.second for moment in job.collected("late")["time"].to_pylist()]


@pytest.mark.parametrize(
    ("policy", "late"),
    [
        # A row of 100 s comes, then nothing for 20 s (the clock goes from 100 s to 120 s), then rows of the past.
        (jf.watermarks.fixed_lag("60s"), [30]),
        (jf.watermarks.limiting_lag_and_delay("60s", "10s"), [30, 50, 95]),
        (jf.watermarks.limiting_lag_and_lull("60s", "5s"), [30, 50]),
        (jf.watermarks.limiting_timestamp_and_wall_clock_lag("60s", "10s"), [30, 50, 95, 105]),
        (jf.watermarks.real_time_lag("22s"), [30, 50, 95]),
    ],
    ids=repr,
)
def test_a_policy_moves_the_watermark_while_the_source_is_silent(policy: Any, late: list[int]) -> None:
    job = run(scripted([rows(100), silence("20s"), rows(30, 50, 95, 105, 200)]), policy)
    assert late_seconds(job) == late
    assert sum(job.collected("result")["n"].to_pylist()) == 6 - len(late)


def test_rows_never_make_themselves_late_whatever_the_clock_says() -> None:
    job = run(jf.memory([rows(5, 3, 1), rows(9, 7)]), jf.watermarks.real_time_lag("0s"))
    assert late_seconds(job) == []


def test_a_file_or_other_bounded_partition_is_never_idle() -> None:
    source = jf.memory(partitions={"slow": [rows(0), silence("300s"), rows(1)], "fast": [rows(100), rows(200)]})
    assert late_seconds(run(source, jf.watermarks.fixed_lag("0s"))) == []


def test_an_idle_timeout_of_zero_means_that_everybody_is_waited_for() -> None:
    scripts = {"slow": [rows(0), silence("300s"), rows(1)], "fast": [rows(100), silence("10s"), rows(200)]}
    assert late_seconds(run(scripted(scripts), jf.watermarks.fixed_lag("0s"), idle_timeout="0s")) == []
    assert late_seconds(run(scripted(scripts), jf.watermarks.fixed_lag("0s"), idle_timeout="60s")) == [1]


def test_rows_that_are_rejected_keep_their_partition_awake() -> None:
    nulls = pa.table({"time": [None], "key": ["k"]}, schema=SCHEMA)
    slow = [rows(0), silence("50s"), nulls, silence("50s"), rows(1)]
    job = run(scripted({"slow": slow, "fast": [rows(100), silence("10s"), rows(200)]}), jf.watermarks.fixed_lag("0s"))
    assert late_seconds(job) == []
    assert job.metrics["rejected_rows"] == 1


def test_empty_batches_are_no_event_and_wake_nothing() -> None:
    empty = SCHEMA.empty_table()
    slow = [rows(0), silence("40s"), EMPTY, empty, silence("40s"), rows(1)]
    job = run(scripted({"slow": slow, "fast": [rows(100), silence("10s"), rows(200)]}), jf.watermarks.fixed_lag("0s"))
    assert late_seconds(job) == [1]


def test_a_lull_is_not_counted_while_the_job_waits_downstream() -> None:
    clock = VirtualClock("1970-01-01T00:01:40")

    def slowly(batch: pa.RecordBatch) -> pa.RecordBatch:
        clock.advance("500ms")
        return batch

    pipeline = jf.Pipeline("slow")
    source = scripted([rows(100), *[rows(40 + step) for step in range(40)], rows(41)])
    counts = (
        pipeline.read(source, name="rows")
        .with_event_time("time", jf.watermarks.limiting_lag_and_lull("60s", "1s"))
        .map_batches(slowly, schema=SCHEMA)
        .with_column("key", jf.lit("k"))
        .group_by("key")
        .window(jf.tumbling("1s"))
        .agg(n=jf.count(), name="counts")
    )
    counts.late_rows.collect("late")
    counts.collect()
    job = jf.LocalCluster(workers=1, clock=clock).submit(pipeline, progress=False)
    job.wait()
    assert clock() == VirtualClock("1970-01-01T00:01:40").advance("21s")
    assert late_seconds(job) == []


def test_on_time_late_and_rejected_rows_are_all_rows() -> None:
    nulls = pa.table({"time": [None, 10**6], "key": ["k", "k"]}, schema=SCHEMA)
    job = run(jf.memory([rows(5), nulls, rows(3, 9), rows(8, 1)]), jf.watermarks.fixed_lag("2s"))
    metrics = job.metrics
    on_time = sum(job.collected("result")["n"].to_pylist())
    assert on_time + metrics["late_rows"] + metrics["rejected_rows"] == metrics["rows_read"] == 7
    assert late_seconds(job) == [1, 1]
