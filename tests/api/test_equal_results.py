"""Random rows, clusters and batches: each window holds exactly its rows, less those reported as having missed it."""

import math
from collections import defaultdict
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

import jetfast as jf
from jetfast.core.windows import Window

SECOND_US = 1_000_000
SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("number", pa.int32()),
        ("time", pa.timestamp("us")),
        ("value", pa.float64()),
        ("id", pa.int64()),
    ]
)

Row = tuple[str | None, int | None, int | None, float | None]

KEYS = st.sampled_from([None, "", "a", "b", "a rather long key that is not stored inline"])
NUMBERS = st.sampled_from([None, 0, 1, -1])
TIMES = st.one_of(st.integers(-60, 60), st.just(None))  # seconds
VALUES = st.one_of(st.none(), st.integers(-6400, 6400).map(lambda n: n / 64))  # exact in binary, so is every sum
PARTITIONS = st.lists(st.lists(st.tuples(KEYS, NUMBERS, TIMES, VALUES), max_size=40), min_size=1, max_size=4)
WINDOWS = st.sampled_from([("10s", "10s"), ("20s", "5s"), ("30s", "1s"), ("7s", "7s")])


def tables_of(partitions: list[list[Row]]) -> dict[str, pa.Table]:
    """One table per source partition; ids number all rows."""
    tables, first = {}, 0
    for index, rows in enumerate(partitions):
        columns = [list(column) for column in zip(*rows, strict=True)] or [[], [], [], []]
        times = pa.array([None if time is None else time * SECOND_US for time in columns[2]], pa.timestamp("us"))
        ids = pa.array(range(first, first + len(rows)), pa.int64())
        tables[f"p{index}"] = pa.table([columns[0], columns[1], times, columns[3], ids], schema=SCHEMA)
        first += len(rows)
    return tables


def run(
    partitions: list[list[Row]],
    window: Window,
    lag_s: int,
    batch_rows: int,
    cluster: Any,
    late: bool,
    two_stage: bool | None,
) -> Any:
    pipeline = jf.Pipeline()
    source = jf.memory(partitions=tables_of(partitions), schema=SCHEMA, batch_rows=batch_rows)
    rows = pipeline.read(source, name="rows").with_event_time("time", jf.watermarks.fixed_lag(f"{lag_s}s"))
    result = rows.group_by("key", "number").window(window).agg(
        rows=jf.count(), values=jf.count("value"), total=jf.sum("value"), mean=jf.mean("value"), low=jf.min("value"),
        high=jf.max("value"), ids=jf.sum("id"), spread=jf.var_pop("value"), name="windows",
    )  # fmt: skip
    result.collect()
    if late:
        result.late_rows.collect("late")
        rows.rejected_rows.collect("rejected")
    job = cluster.submit(pipeline, progress=False, two_stage=two_stage)
    job.wait(timeout=120)
    return job


def reference(
    partitions: list[list[Row]], window: Window, missed_until: dict[int, int]
) -> dict[Any, list[tuple[Any, int]]]:
    """(key, number, window end) -> values and ids of its rows; a row is left out up to its `missed_until`."""
    windows = defaultdict(list)
    rows = [row for partition in partitions for row in partition]
    for identity, (key, number, time_s, value) in enumerate(rows):
        if time_s is None:
            continue
        time = time_s * SECOND_US
        for end in range(window.frame_of(time), window.last_window_of(time) + 1, window.slide_us):
            if end > missed_until.get(identity, -(2**63)):
                windows[key, number, end].append((value, identity))
    return windows


def microseconds(value: Any) -> int:
    return pa.scalar(value, pa.timestamp("us")).value


def check(result: pa.Table, expected: dict[Any, list[tuple[Any, int]]], window: Window) -> None:
    found = {}
    for row in result.to_pylist():
        end = microseconds(row["window_end"])
        assert microseconds(row["window_start"]) == end - window.size_us
        found[row["key"], row["number"], end] = row
    assert len(found) == result.num_rows
    assert found.keys() == expected.keys()
    for place, rows in expected.items():
        row, values = found[place], [value for value, _ in rows if value is not None]
        assert row["rows"] == len(rows)
        assert row["ids"] == sum(identity for _, identity in rows)
        assert row["values"] == len(values)
        if not values:
            assert [row[name] for name in ("total", "mean", "low", "high", "spread")] == [None] * 5
            continue
        mean = sum(values) / len(values)
        assert (row["total"], row["low"], row["high"]) == (sum(values), min(values), max(values))
        assert math.isclose(row["mean"], mean, rel_tol=1e-12, abs_tol=1e-12)
        spread = sum((value - mean) ** 2 for value in values) / len(values)
        assert math.isclose(row["spread"], spread, rel_tol=1e-9, abs_tol=1e-9)


CLUSTERS = st.tuples(st.sampled_from([1, 2]), st.sampled_from([1, 2, 5])).map(lambda size: jf.LocalCluster(*size))
BATCH_ROWS = st.sampled_from([1, 7, 1000, 65536])


@settings(max_examples=25)
@given(partitions=PARTITIONS, window=WINDOWS, lag_s=st.integers(0, 30), batch_rows=BATCH_ROWS, cluster=CLUSTERS)
def test_each_window_holds_its_rows_less_those_reported_late(
    partitions: list[list[Row]], window: tuple[str, str], lag_s: int, batch_rows: int, cluster: Any
) -> None:
    sliding = jf.sliding(*window)
    job = run(partitions, sliding, lag_s, batch_rows, cluster, True, None)
    late = {row["id"]: microseconds(row["missed_until"]) for row in job.collected("late").to_pylist()}
    assert len(late) == job.collected("late").num_rows
    check(job.collected("result"), reference(partitions, sliding, late), sliding)
    rows = [row for partition in partitions for row in partition]
    assert job.collected("rejected").num_rows == sum(row[2] is None for row in rows)
    # A row at most `lag` behind the highest earlier time of its own partition is never late.
    identity = 0
    for partition in partitions:
        highest = -math.inf
        for _, _, time_s, _ in partition:
            if time_s is not None:
                if time_s >= highest - lag_s:
                    assert identity not in late
                highest = max(highest, time_s)
            identity += 1


@settings(max_examples=25)
@given(
    partitions=PARTITIONS,
    window=WINDOWS,
    batch_rows=BATCH_ROWS,
    cluster=CLUSTERS,
    two_stage=st.sampled_from([None, True, False]),
)
def test_with_a_lag_that_covers_the_disorder_all_plans_give_the_same(
    partitions: list[list[Row]], window: tuple[str, str], batch_rows: int, cluster: Any, two_stage: bool | None
) -> None:
    sliding = jf.sliding(*window)
    job = run(partitions, sliding, 120, batch_rows, cluster, False, two_stage)
    check(job.collected("result"), reference(partitions, sliding, {}), sliding)


@settings(max_examples=15)
@given(partitions=PARTITIONS, window=WINDOWS, lag_s=st.integers(0, 10), batch_rows=BATCH_ROWS, cluster=CLUSTERS)
def test_the_two_stage_plan_loses_no_row_from_its_counts(
    partitions: list[list[Row]], window: tuple[str, str], lag_s: int, batch_rows: int, cluster: Any
) -> None:
    sliding = jf.sliding(*window)
    job = run(partitions, sliding, lag_s, batch_rows, cluster, False, True)
    rows = [row for partition in partitions for row in partition]
    counters = job.metrics["vertices"]["windows"]
    with_time = sum(row[2] is not None for row in rows)
    assert counters["on_time_rows"] + counters["partly_late_rows"] + counters["late_rows"] == with_time
    assert job.metrics["rejected_rows"] == len(rows) - with_time
    counted = sum(job.collected("result")["rows"].to_pylist())
    assert counters["on_time_rows"] * sliding.frames <= counted <= with_time * sliding.frames
    if counters["late_rows"] == counters["partly_late_rows"] == 0:
        check(job.collected("result"), reference(partitions, sliding, {}), sliding)
