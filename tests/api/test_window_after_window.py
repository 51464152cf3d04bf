"""Windows over the results of windows: their time, their watermarks, lateness, and what early results forbid."""

from collections import Counter, defaultdict
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import jetfast as jf
from jetfast import col
from jetfast.errors import JobDefinitionError
from jetfast.testing import VirtualClock, scripted, silence

SECOND_US = 1_000_000
SCHEMA = pa.schema([("time", pa.timestamp("us")), ("key", pa.string())])
LAYOUTS = [(1, 1), (1, 3), (2, 1)]


def rows(*seconds: float, key: str = "a") -> pa.Table:
    times = [int(second * SECOND_US) for second in seconds]
    return pa.table({"time": times, "key": [key] * len(times)}, schema=SCHEMA)


def read(pipeline: jf.Pipeline, source: Any, lag: str = "0s") -> Any:
    return pipeline.read(source, name="rows").with_event_time("time", jf.watermarks.fixed_lag(lag))


def run(pipeline: jf.Pipeline, members: int = 1, workers: int = 1) -> Any:
    job = jf.LocalCluster(members=members, workers=workers).submit(pipeline, progress=False)
    job.wait(timeout=60)
    return job


def seconds(column: pa.ChunkedArray) -> list[float]:
    return [value / SECOND_US for value in column.cast(pa.int64()).to_pylist()]


def random_rows(seed: int) -> tuple[list[tuple[int, str]], dict[str, pa.Table]]:
    """Rows as (second, key), and as the partitions of a source, out of order by less than 20 s."""
    random = np.random.default_rng(seed)
    times = np.sort(random.integers(-300, 300, 500)) - random.integers(0, 20, 500)
    keys = random.integers(0, 7, 500)
    pairs = [(int(time), f"k{key}") for time, key in zip(times, keys, strict=True)]
    parts = {f"p{part}": pairs[part::3] for part in range(3)}
    tables = {
        name: pa.table({"time": [t * SECOND_US for t, _ in part], "key": [k for _, k in part]}, schema=SCHEMA)
        for name, part in parts.items()
    }
    return pairs, tables


@pytest.mark.parametrize(("members", "workers"), LAYOUTS)
@pytest.mark.parametrize("late_wanted", [False, True])
def test_a_sliding_window_over_a_tumbling_one_counts_each_result_in_the_windows_that_hold_its_end(
    members: int, workers: int, late_wanted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JETFAST_DEBUG", "1")
    pairs, tables = random_rows(1)
    pipeline = jf.Pipeline("twice")
    first = read(pipeline, jf.memory(partitions=tables, batch_rows=17), "20s")
    tens = first.group_by("key").window(jf.tumbling("10s")).agg(n=jf.count(), name="tens")
    result = tens.window(jf.sliding("30s", "10s")).agg(keys=jf.count(), rows=jf.sum("n"), name="half minutes")
    result.collect()
    if late_wanted:
        result.late_rows.collect("late")
    job = run(pipeline, members, workers)
    per_ten = Counter((time // 10 * 10, key) for time, key in pairs)
    wanted: dict[float, list[int]] = defaultdict(lambda: [0, 0])
    for (start, _), count in per_ten.items():
        for window_start in (start - 20, start - 10, start):
            wanted[window_start][0] += 1
            wanted[window_start][1] += count
    table = job.collected("result")
    found = zip(seconds(table["window_start"]), table["keys"].to_pylist(), table["rows"].to_pylist(), strict=True)
    assert {start: [keys, count] for start, keys, count in found} == wanted
    assert job.metrics["late_rows"] == job.metrics["partly_late_rows"] == 0
    if late_wanted:
        late = job.collected("late")
        assert late.num_rows == 0
        assert late.column_names == ["key", "window_start", "window_end", "n", "missed_until"]


@pytest.mark.parametrize(("members", "workers"), LAYOUTS)
def test_a_tumbling_window_over_sessions_takes_a_session_by_its_end(members: int, workers: int) -> None:
    pipeline = jf.Pipeline("sessions")
    source = jf.memory(
        partitions=[[rows(0, 4, 8, 40)], [rows(1, 15, key="b"), rows(95, key="b")]], schema=SCHEMA, batch_rows=2
    )
    sessions = read(pipeline, source, "0s").group_by("key").window(jf.session("5s")).agg(n=jf.count(), name="sessions")
    sessions.window(jf.tumbling("10s")).agg(ended=jf.count(), rows=jf.sum("n"), name="ended").collect()
    table = run(pipeline, members, workers).collected("result").sort_by("window_start")
    # Sessions end at 13 and 45 (a), 6, 20 and 100 (b): one that ends at 20 is in the window that begins there.
    assert seconds(table["window_start"]) == [0, 10, 20, 40, 100]
    assert table["ended"].to_pylist() == [1, 1, 1, 1, 1]
    assert table["rows"].to_pylist() == [1, 3, 1, 1, 1]


def test_a_third_window_may_follow_and_columns_may_be_renamed_on_the_way() -> None:
    pipeline = jf.Pipeline("thrice")
    stage = read(pipeline, jf.memory(rows(*range(120))))
    for number, size in enumerate(["10s", "30s", "60s"]):
        result = stage.window(jf.tumbling(size)).agg(n=jf.count() if number == 0 else jf.sum("n"), name=size)
        stage = result.select("n", "window_end").rename({"window_end": "until"}).where(col("n") > 0)
    result.collect()
    assert stage.event_time == "until"
    stage.map_batches(lambda batch: batch, name="as it is").union(stage).window(jf.tumbling("60s")).agg(
        n=jf.sum("n"), name="both again"
    ).collect("both")
    job = run(pipeline)
    assert job.collected("result")["n"].to_pylist() == [60, 60]
    assert job.collected("both")["n"].to_pylist() == [120, 120]


@pytest.mark.parametrize("debug", ["0", "1"])
def test_results_that_follow_a_watermark_that_their_window_has_passed_count_as_late_and_are_told(
    debug: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both sources turn idle, so the second window goes on to the one that is ahead; then the other one wakes."""
    monkeypatch.setenv("JETFAST_DEBUG", debug)
    pipeline = jf.Pipeline("late")
    quick = read(pipeline, scripted({"p": [rows(100), silence("100s"), rows(101)]}))
    slow_source = scripted({"p": [rows(0), silence("90s"), rows(1), rows(99)]}, schema=SCHEMA)
    slow = pipeline.read(slow_source, name="slow").with_event_time("time", jf.watermarks.fixed_lag("0s"))
    one = quick.window(jf.tumbling("10s")).agg(n=jf.count(), name="quick tens")
    other = slow.window(jf.tumbling("10s")).agg(n=jf.count(), name="slow tens")
    result = one.union(other).window(jf.tumbling("10s")).agg(n=jf.sum("n"), name="all")
    result.collect()
    result.late_rows.collect("late")
    job = jf.LocalCluster(workers=1, clock=VirtualClock()).submit(pipeline, progress=False)
    job.wait(timeout=60)
    late = job.collected("late")
    total = sum(job.collected("result")["n"].to_pylist()) + sum(late["n"].to_pylist())
    assert total == 5
    assert seconds(late["window_end"]) == seconds(late["missed_until"]) == [10, 100]


def test_a_source_gets_the_frame_that_all_windows_one_after_the_other_can_bear() -> None:
    pipeline = jf.Pipeline("frames")
    first = read(pipeline, jf.memory(schema=SCHEMA)).window(jf.tumbling("6m")).agg(n=jf.count(), name="six")
    first.window(jf.sliding("8m", "4m")).agg(n=jf.sum("n"), name="four").collect()
    assert pipeline.plan().vertices["rows"].supplier.throttle == jf.watermarks.emit_by_frame(jf.tumbling("2m"))  # type: ignore[attr-defined]


def early(pipeline: jf.Pipeline) -> Any:
    source = scripted([rows(1, 2), silence("5s"), rows(3), silence("5s"), rows(14)], schema=SCHEMA)
    return read(pipeline, source).group_by("key").window(jf.tumbling("10s")).early_results(every="1s")


def test_an_aggregate_after_early_results_is_an_error_that_says_how_to_filter() -> None:
    pipeline = jf.Pipeline("early")
    result = early(pipeline).agg(n=jf.count(), name="counts")
    with pytest.raises(JobDefinitionError, match=r"early results of 'counts'.*\.where\(~col\('is_early'\)\)"):
        result.window(jf.tumbling("1m")).agg(n=jf.sum("n"))
    renamed = result.rename({"is_early": "so far"}).where(col("n") > 0)
    with pytest.raises(JobDefinitionError, match=r"\.where\(~col\('so far'\)\)"):
        renamed.window(jf.tumbling("1m")).agg(n=jf.sum("n"))
    with pytest.raises(JobDefinitionError, match="filter them by is_early behind 'counts'"):
        result.drop("is_early").union(result.drop("is_early")).window(jf.tumbling("1m")).agg(n=jf.sum("n"))


def test_early_results_that_are_filtered_out_change_nothing_behind_them() -> None:
    pipeline = jf.Pipeline("early")
    result = early(pipeline).agg(n=jf.count(), name="counts").rename({"is_early": "so far"})
    result.where(~col("so far")).window(jf.tumbling("1m")).agg(n=jf.sum("n"), name="minutes").collect()
    result.map_batches(lambda batch: batch, name="as it is").where(col("so far")).collect("early")
    job = jf.LocalCluster(workers=1, clock=VirtualClock()).submit(pipeline, progress=False)
    job.wait(timeout=60)
    assert job.collected("result")["n"].to_pylist() == [4]
    assert job.collected("early").num_rows > 0


def test_an_aggregate_may_be_named_time() -> None:
    pipeline = jf.Pipeline("named")
    read(pipeline, jf.memory(rows(1, 2))).window(jf.tumbling("10s")).agg(
        time=jf.count("time"), twice=jf.count("time"), name="first"
    ).window(jf.tumbling("20s")).agg(time=jf.sum(col("time") * 2), name="second").collect()
    assert run(pipeline).collected("result")["time"].to_pylist() == [4]


def test_a_union_of_rows_and_of_results_with_a_column_of_the_same_name_has_no_event_time() -> None:
    pipeline = jf.Pipeline("union")
    result = read(pipeline, jf.memory(rows(1))).window(jf.tumbling("10s")).agg(n=jf.count(), name="n")
    plain = pipeline.read(jf.memory({"time": pa.array([1], pa.timestamp("us"))}), name="more").with_event_time("time")
    both = plain.union(result.select(col("window_end").alias("time")))
    with pytest.raises(JobDefinitionError, match="'more' has time, .* has time less 1us"):
        both.window(jf.tumbling("1m")).agg(n=jf.count())
