"""Whole jobs with every aggregate over batches give what DuckDB gives, in windows of every kind."""

import math
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jetfast as jf
from jetfast import col
from jetfast.core.windows import AnyWindow, SessionWindow
from tests.clusters.whole_jobs import Case, make_rows, source

WINDOWS: dict[str, AnyWindow] = {
    "tumbling": jf.tumbling("7s", offset="2s"),
    "sliding": jf.sliding("8s", "2s"),
    "session": jf.session("1s"),
}
AGGREGATES: dict[str, Any] = {
    "rows": jf.count(),
    "first": jf.first("value"),
    "last": jf.last("partition"),
    "last_known": jf.last("value", ignore_nulls=True),
    "top": jf.top_n("value", 3),
    "bottom": jf.bottom_n(col("value") * 2, 2),
    "top_rows": jf.top_n(["id", "partition"], 2, by="value"),
    "bottom_rows": jf.bottom_n("id", 2, by=col("value") + 1),
    "distinct": jf.count_distinct("value"),
    "about": jf.approx_count_distinct("value", error=0.01),
    "middle": jf.quantile("value", 0.5, error=0.001),
    "rest": jf.quantiles("value", [0, 0.9, 1], error=0.001),
    "trend": jf.linear_trend("value", "id"),
    "trend_in_time": jf.linear_trend("value"),
    "values": jf.collect_list("value"),
    "partitions": jf.collect_set("partition"),
    "story": jf.concat("partition", ","),
    "own": jf.aggregate(
        "id",
        create=lambda: 0,
        accumulate=lambda state, rows: max(state, *rows["id"].to_pylist()),
        combine=max,
        state=pa.int64(),
    ),
}
WANTED = """
    count(*) AS rows,
    first(value ORDER BY us) AS first,
    last(partition ORDER BY us) AS last,
    last(value ORDER BY us) FILTER (value IS NOT NULL) AS last_known,
    coalesce(list(value ORDER BY value DESC) FILTER (value IS NOT NULL), [])[:3] AS top,
    coalesce(list(value * 2 ORDER BY value) FILTER (value IS NOT NULL), [])[:2] AS bottom,
    coalesce(list({id: id, partition: partition} ORDER BY value DESC, us) FILTER (value IS NOT NULL), [])[:2]
        AS top_rows,
    coalesce(list(id ORDER BY value, us) FILTER (value IS NOT NULL), [])[:2] AS bottom_rows,
    count(DISTINCT value) AS distinct,
    count(DISTINCT value) AS about,
    quantile_disc(value, 0.5) AS middle,
    quantile_disc(value, [0, 0.9, 1]) AS rest,
    regr_slope(value, id) AS trend,
    regr_slope(value, (us - 0) / 1e6) AS trend_in_time,
    coalesce(list(value ORDER BY us) FILTER (value IS NOT NULL), []) AS values,
    list_sort(list(DISTINCT partition)) AS partitions,
    string_agg(partition, ',' ORDER BY us) AS story,
    max(id) AS own
"""


def wanted(case: Case, window: AnyWindow) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Results by key, start and end."""
    rows = pa.concat_tables(make_rows(case).values())
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1")
        connection.register("given", rows)
        connection.execute(
            "CREATE TABLE timed AS SELECT *, epoch_us(time)::BIGINT AS us FROM given WHERE time IS NOT NULL"
        )
        if isinstance(window, SessionWindow):
            connection.execute(f"""
                CREATE VIEW placed AS
                SELECT *, min(us) OVER one AS starts, max(us) OVER one + {window.timeout_us} AS ends
                FROM (
                    SELECT *, count_if(opens) OVER (PARTITION BY key ORDER BY us, id) AS number
                    FROM (
                        SELECT *, us - lag(us, 1, us) OVER (PARTITION BY key ORDER BY us, id) > {window.timeout_us}
                            AS opens
                        FROM timed
                    )
                )
                WINDOW one AS (PARTITION BY key, number)
            """)
        else:
            size, slide, offset = window.size_us, window.slide_us, window.offset_us
            connection.execute(f"""
                CREATE VIEW placed AS SELECT *, ends - {size} AS starts FROM (
                    SELECT *, unnest(range(first_end, first_end + {size}, {slide})) AS ends FROM (
                        SELECT *, (floor((us - {offset}) / {slide})::BIGINT + 1) * {slide} + {offset} AS first_end
                        FROM timed
                    )
                )
            """)
        found = connection.execute(f"SELECT key, starts, ends, {WANTED} FROM placed GROUP BY key, starts, ends")
        names = [column[0] for column in found.description]
        return by_window([dict(zip(names, row, strict=True)) for row in found.fetchall()], "starts", "ends")


def by_window(rows: list[dict[str, Any]], start: str, end: str) -> dict[tuple[Any, ...], dict[str, Any]]:
    found = {(row.pop("key"), row.pop(start), row.pop(end)): row for row in rows}
    assert len(found) == len(rows)
    return found


def run(case: Case, window: AnyWindow, members: int, workers: int, batch_rows: int) -> dict[tuple[Any, ...], Any]:
    pipeline = jf.Pipeline("aggregates")
    rows = pipeline.read(source(case, batch_rows), name="rows").with_event_time("time", jf.watermarks.fixed_lag("5s"))
    rows.group_by("key").window(window).agg(**AGGREGATES, name="windows").collect()
    table = jf.LocalCluster(members=members, workers=workers).submit(pipeline, progress=False).to_arrow()
    for index, name in ((1, "window_start"), (2, "window_end")):
        table = table.set_column(index, name, pc.cast(table[name], pa.int64()))
    return by_window(table.to_pylist(), "window_start", "window_end")


def is_near(found: Any, exact: Any, relative: float, absolute: float = 1e-9) -> bool:
    if isinstance(exact, list):
        return isinstance(found, list) and len(found) == len(exact) and all(map(is_near, found, exact, [relative] * 9))
    if found is None or exact is None or math.isnan(exact):
        return found is None and (exact is None or math.isnan(exact))
    return abs(found - exact) <= relative * abs(exact) + absolute


TOLERANCES = {
    "middle": (0.001,),
    "rest": (0.001,),
    "trend": (1e-6,),
    "trend_in_time": (1e-6,),
    "about": (0.05, 1),  # two of few values may share a register: one of 14 is more than a twentieth
}
"""What may be missing: relative, absolute."""


def check(case: Case, window: AnyWindow, members: int, workers: int, batch_rows: int) -> None:
    found, exact = run(case, window, members, workers, batch_rows), wanted(case, window)
    assert set(found) == set(exact)
    for place, row in found.items():
        for name, value in row.items():
            if name in TOLERANCES:
                assert is_near(value, exact[place][name], *TOLERANCES[name]), (place, name, value, exact[place][name])
            else:
                assert value == exact[place][name], (place, name)


@pytest.mark.parametrize(
    ("kind", "members", "workers", "batch_rows"),
    [("tumbling", 1, 3, 1), ("sliding", 2, 1, 4096), ("session", 1, 3, 7)],
)
def test_every_aggregate_equals_duckdb(kind: str, members: int, workers: int, batch_rows: int) -> None:
    check(Case(seed=1, rows=80, keys=3), WINDOWS[kind], members, workers, batch_rows)


cases = st.builds(
    Case,
    seed=st.integers(0, 2**32),
    rows=st.integers(0, 400),
    partitions=st.integers(1, 5),
    keys=st.sampled_from([1, 5, 100]),
    null_share=st.sampled_from([0.0, 0.2, 1.0]),
)


@pytest.mark.simulation
@settings(max_examples=40, deadline=None)
@given(cases, st.sampled_from(sorted(WINDOWS)), st.sampled_from([(1, 1), (1, 3), (2, 2)]), st.sampled_from([1, 4096]))
def test_any_rows_on_any_workers_give_what_duckdb_gives(
    case: Case, kind: str, layout: tuple[int, int], batch_rows: int
) -> None:
    check(case, WINDOWS[kind], *layout, batch_rows)
