"""The best results of windows in whole jobs are those of SQL's row_number, on every cluster and in every plan."""

from decimal import Decimal
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jetfast as jf
from jetfast import col
from jetfast.core.dag import Dag
from jetfast.errors import JobDefinitionError

SECOND = 1_000_000
SCHEMA = pa.schema(
    [("time", pa.timestamp("us")), ("origin", pa.string()), ("carrier", pa.int64()), ("delay", pa.float64())]
)
QUERY = """
    WITH counted AS (
        SELECT origin, carrier, epoch_us(time) // $size * $size AS start, count(*) AS flights, sum(delay) AS total,
               max(delay) AS worst FROM rows GROUP BY ALL
    ), ranked AS (
        SELECT *, row_number() OVER (
            PARTITION BY start{group} ORDER BY {by} {direction} NULLS LAST, origin NULLS LAST, carrier NULLS LAST
        ) AS rank FROM counted
    ) SELECT origin, carrier, start, {by} AS value, rank FROM ranked WHERE rank <= $count
"""


def make_rows(seed: int, rows: int = 300) -> pa.Table:
    random = np.random.default_rng(seed)
    delay = random.integers(-64, 64, rows) / 16
    delay[random.random(rows) < 0.02] = np.nan
    return pa.Table.from_arrays(
        [
            pa.array(np.sort(random.integers(0, 60, rows)) * SECOND, pa.timestamp("us")),
            pa.array([None if origin == 0 else f"o{origin}" for origin in random.integers(0, 4, rows)]),
            pa.array(random.integers(0, 12, rows), mask=random.random(rows) < 0.05),
            pa.array(delay, mask=random.random(rows) < 0.2),
        ],
        schema=SCHEMA,
    )


def counted(pipeline: jf.Pipeline, rows: Any = None) -> Any:
    source = jf.memory(schema=SCHEMA) if rows is None else jf.memory(rows, partitions=3, batch_rows=50)
    stage = pipeline.read(source, name="flights").with_event_time("time", jf.watermarks.fixed_lag("0s"))
    return (
        stage.group_by("origin", "carrier")
        .window(jf.tumbling("20s"))
        .agg(flights=jf.count(), total=jf.sum("delay"), worst=jf.max("delay"), name="counts")
    )


@settings(max_examples=5)
@given(
    seed=st.integers(0, 1000),
    layout=st.sampled_from([(1, 1), (1, 3), (2, 2)]),
    by=st.sampled_from(["flights", "total", "worst"]),
    ascending=st.booleans(),
    per=st.sampled_from([None, "origin"]),
    others_read_all=st.booleans(),
)
def test_the_best_results_equal_row_number_of_duckdb(
    seed: int, layout: tuple[int, int], by: str, ascending: bool, per: str | None, others_read_all: bool
) -> None:
    rows = make_rows(seed)
    pipeline = jf.Pipeline("top")
    results = counted(pipeline, rows)
    results.top(3, by=by, per=per or (), ascending=ascending, name="best").collect()
    if others_read_all:
        results.collect("all")
    job = jf.LocalCluster(*layout).submit(pipeline, progress=False)
    job.wait(timeout=60)
    found = job.collected("result").select(["origin", "carrier", "window_start", by, "rank"]).to_pylist()
    query = QUERY.format(group=f", {per}" if per else "", by=by, direction="ASC" if ascending else "DESC")
    with duckdb.connect() as connection:
        connection.register("rows", rows)
        wanted = connection.sql(query, params={"size": 20 * SECOND, "count": 3}).fetchall()
    epoch = pa.scalar(0, pa.timestamp("us")).as_py()
    shown = [tuple(row.values()) for row in found]
    shown = [(*row[:2], round((row[2] - epoch).total_seconds()) * SECOND, *row[3:]) for row in shown]
    assert sorted(map(repr, shown)) == sorted(map(repr, wanted))


def plan(pipeline: jf.Pipeline) -> Dag:
    return pipeline.plan(member_count=2)


def test_a_window_makes_only_the_best_results_if_nobody_reads_the_others() -> None:
    pipeline = jf.Pipeline("fused")
    results = counted(pipeline)
    results.top(3, by="flights").collect()
    dag = plan(pipeline)
    assert set(dag.vertices) == {"flights", "counts (accumulate)", "counts", "top(3 by flights)", "result"}
    processor: Any = dag.vertices["counts"].supplier()
    assert (processor.top.by, processor.top.count) == ("flights", 3)
    results.collect("all")
    dag = plan(pipeline)
    assert "top(3 by flights) (local)" in dag.vertices
    assert dag.vertices["counts"].supplier().top is None  # type: ignore[attr-defined]


def test_the_best_of_decimals_are_chosen_behind_the_window() -> None:
    pipeline = jf.Pipeline("decimals")
    source = jf.memory({"t": pa.array([0, 1, 2], pa.timestamp("us")), "k": ["a", "b", "b"], "d": ["1.5", "0.9", "0.7"]})
    stage = pipeline.read(source, name="rows").with_event_time("t").with_column("d", col("d").cast("decimal(9,2)"))
    sums = stage.group_by("k").window(jf.tumbling("1s")).agg(total=jf.sum("d"), name="sums")
    sums.top(1, by="total", name="best").collect()
    assert "best (local)" in plan(pipeline).vertices
    assert jf.LocalCluster(2, 1).submit(pipeline, progress=False).to_arrow()["k"].to_pylist() == ["b"]


@pytest.mark.parametrize(
    "data_type",
    [pa.decimal32(7, 2), pa.decimal64(15, 2), pa.decimal128(20, 2), pa.dictionary(pa.int8(), pa.decimal32(7, 2))],
    ids=str,
)
@pytest.mark.parametrize("per", [(), "k"])
def test_of_equal_results_the_least_keys_of_every_type_are_best(data_type: Any, per: Any) -> None:
    values = [Decimal("6.25"), Decimal("-3.25"), Decimal("1.50"), Decimal("-1.25"), Decimal("0.50"), None]
    plain = data_type.value_type if pa.types.is_dictionary(data_type) else data_type
    keys = pa.array(values, plain)
    if plain != data_type:
        keys = pa.DictionaryArray.from_arrays(pa.array(range(6), pa.int8()), keys)
    rows = pa.table({"t": pa.array(range(6), pa.timestamp("us")), "k": keys})
    pipeline = jf.Pipeline("equal results")
    stage = pipeline.read(jf.memory(rows), name="rows").with_event_time("t").group_by("k")
    stage.window(jf.tumbling("1s")).agg(n=jf.count()).top(3, by="n", per=per, name="best").collect()
    found = jf.LocalCluster(2, 1).submit(pipeline, progress=False).to_arrow().to_pylist()
    known = sorted(value for value in values if value is not None)
    wanted = dict.fromkeys([*known, None], 1) if per else {value: rank for rank, value in enumerate(known[:3], 1)}
    assert {row["k"]: row["rank"] for row in found} == wanted


def test_a_window_may_follow_the_best_results() -> None:
    pipeline = jf.Pipeline("after")
    best = counted(pipeline, make_rows(1)).top(2, by="flights", per="origin")
    best.where(col("rank") == 1).window(jf.tumbling("1m")).agg(
        groups=jf.count(), most=jf.max("flights"), name="minutes"
    ).collect()
    (minute,) = jf.LocalCluster(1, 3).submit(pipeline, progress=False).to_arrow().to_pylist()
    assert minute["groups"] == 12  # three windows of four origins


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda c: c.top(0, by="flights"), "a number of results of at least 1, got 0"),
        (lambda c: c.top(True, by="flights"), "a number of results of at least 1, got True"),
        (
            lambda c: c.top(1, by="origin"),
            "by= must be an aggregate of 'counts', got 'origin'; there are flights, total",
        ),
        (
            lambda c: c.top(1, by="flights", per="flights"),
            "per= must be keys of 'counts', got 'flights'; there are origin",
        ),
    ],
)
def test_a_wrong_top_is_an_error_at_build(build: Any, message: str) -> None:
    with pytest.raises(JobDefinitionError, match=message):
        build(counted(jf.Pipeline()))


def test_top_needs_windows_in_common_final_results_and_its_column() -> None:
    stage = jf.Pipeline().read(jf.memory(schema=SCHEMA)).with_event_time("time")
    with pytest.raises(JobDefinitionError, match="sessions of different keys have no window in common"):
        stage.window(jf.session("1s")).agg(n=jf.count(), name="a").top(1, by="n")
    with pytest.raises(JobDefinitionError, match="top does not take early results"):
        stage.window(jf.tumbling("1s")).early_results(every="1s").agg(n=jf.count(), name="b").top(1, by="n")
    with pytest.raises(JobDefinitionError, match="top adds the column 'rank'"):
        stage.window(jf.tumbling("1s")).agg(rank=jf.count(), name="c").top(1, by="rank")
