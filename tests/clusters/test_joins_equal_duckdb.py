"""Joins in whole jobs give what DuckDB gives for the same rows, on any workers and batch sizes."""

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import jetfast as jf
from jetfast import col

SECOND = 1_000_000
LAYOUT = st.sampled_from([(1, 1, 7), (1, 3, 1000), (2, 2, 3)])
"""Members, workers, and rows of a batch."""
SQL_JOIN = {"inner": "INNER", "left": "LEFT", "right": "RIGHT", "outer": "FULL"}
HOW = st.sampled_from(list(SQL_JOIN))
WINDOWS = """
    WITH fa AS (SELECT *, floor(epoch_us(moment) / $slide)::BIGINT * $slide + $slide AS frame FROM a),
    fb AS (SELECT *, floor(epoch_us(moment) / $slide)::BIGINT * $slide + $slide AS frame FROM b),
    wa AS (SELECT *, unnest(generate_series(frame, frame + $size - $slide, $slide)) AS e FROM fa),
    wb AS (SELECT *, unnest(generate_series(frame, frame + $size - $slide, $slide)) AS e FROM fb)
"""
"""Rows of both tables once for each window, which ends at e."""


def random_rows(seed: int, keys: pa.DataType, value: str) -> pa.Table:
    """Rows out of order by less than 5 s, with keys that are null now and then."""
    random = np.random.default_rng(seed)
    count = int(random.integers(0, 150))
    times = np.sort(random.integers(-30 * SECOND, 60 * SECOND, count)) - random.integers(0, 5 * SECOND, count)
    codes = pa.array(random.integers(0, 6, count), mask=random.random(count) < 0.1).cast(keys)
    return pa.table({"code": codes, "moment": pa.array(times, pa.timestamp("us")), value: np.arange(count)})


def run(build, tables, layout):
    """What a job of two stages gives, sorted."""
    members, workers, batch_rows = layout
    pipeline = jf.Pipeline("joins")
    stages = []
    for name, table in tables.items():
        parts = {f"{name}{part}": table.filter(pa.array(np.arange(len(table)) % 2 == part)) for part in (0, 1)}
        source = jf.memory(partitions=parts, schema=table.schema, batch_rows=batch_rows)
        stages.append(pipeline.read(source, name=name).with_event_time("moment", jf.watermarks.fixed_lag("6s"), "0s"))
    joined = build(*stages)
    joined.collect()
    job = jf.LocalCluster(members=members, workers=workers).submit(pipeline, progress=False)
    result = job.to_arrow()
    assert result.schema.equals(joined.schema)
    return pl.DataFrame(result)


def ask(query, tables, **parameters):
    with duckdb.connect() as connection:
        for name, table in tables.items():
            connection.register(name, table)
        return pl.DataFrame(connection.sql(query, params=parameters).to_arrow_table())


def check(found, expected):
    columns = found.columns
    expected = expected.select(columns).cast(found.schema)
    assert_frame_equal(found.sort(columns, nulls_last=True), expected.sort(columns, nulls_last=True))


@settings(max_examples=16, deadline=None)
@given(st.integers(0, 2**32), LAYOUT, HOW, st.sampled_from([(4, 4), (6, 2)]))
def test_a_window_join_equals_a_join_on_key_and_window(seed, layout, how, window):
    size, slide = window
    tables = {"a": random_rows(seed, pa.int32(), "x"), "b": random_rows(seed + 1, pa.int64(), "y")}
    expected = ask(
        WINDOWS
        + f"""
        SELECT coalesce(a.code, b.code) AS code, a.moment, x, b.moment AS moment_right, y,
            make_timestamp(coalesce(a.e, b.e) - $size) AS window_start, make_timestamp(coalesce(a.e, b.e)) AS window_end
        FROM wa a {SQL_JOIN[how]} JOIN wb b ON a.code = b.code AND a.e = b.e
        """,
        tables,
        size=size * SECOND,
        slide=slide * SECOND,
    )
    definition = jf.sliding(f"{size}s", f"{slide}s")
    check(run(lambda a, b: a.window_join(b, definition, on="code", how=how), tables, layout), expected)


@settings(max_examples=16, deadline=None)
@given(st.integers(0, 2**32), LAYOUT, HOW, st.sampled_from([(-2, 3), (1, 4), (0, 0)]))
def test_an_interval_join_equals_a_join_on_key_and_times(seed, layout, how, bounds):
    tables = {"a": random_rows(seed, pa.string(), "x"), "b": random_rows(seed + 1, pa.string(), "y")}
    expected = ask(
        f"""
        SELECT coalesce(a.code, b.code) AS code, a.moment, x, b.moment AS moment_right, y,
            greatest(a.moment, b.moment) AS event_time
        FROM a {SQL_JOIN[how]} JOIN b
        ON a.code = b.code AND epoch_us(b.moment) BETWEEN epoch_us(a.moment) + $lower AND epoch_us(a.moment) + $upper
        """,
        tables,
        lower=bounds[0] * SECOND,
        upper=bounds[1] * SECOND,
    )
    lower, upper = (f"{bound}s" for bound in bounds)
    check(run(lambda a, b: a.interval_join(b, lower=lower, upper=upper, on="code", how=how), tables, layout), expected)


@settings(max_examples=16, deadline=None)
@given(st.integers(0, 2**32), LAYOUT, st.sampled_from(["inner", "left"]))
def test_an_asof_join_equals_an_asof_join(seed, layout, how):
    tables = {"a": random_rows(seed, pa.int32(), "x"), "b": random_rows(seed + 1, pa.int64(), "y")}
    one_each = pl.DataFrame(tables["b"]).unique(["code", "moment"], keep="first", maintain_order=True)
    tables["b"] = one_each.to_arrow().cast(tables["b"].schema)
    expected = ask(
        f"""
        SELECT a.code, a.moment, x, b.moment AS moment_right, y
        FROM a ASOF {SQL_JOIN[how]} JOIN b ON a.code = b.code AND a.moment >= b.moment
        """,
        tables,
    )
    check(run(lambda a, b: a.asof_join(b, on="code", how=how), tables, layout), expected)


class Rows(jf.BatchAggregate):
    """Counts rows, nulls too."""

    def state_type(self, inputs):
        return pa.int64()

    def result_type(self, inputs):
        return pa.int64()

    def accumulate(self, rows, groups, group_count):
        return pa.array(np.bincount(groups, minlength=group_count))

    def combine(self, states, groups, group_count):
        return pa.array(np.bincount(groups, states.to_numpy(), group_count).astype(np.int64))

    def export(self, states):
        return states


@settings(max_examples=16, deadline=None)
@given(st.integers(0, 2**32), LAYOUT, st.sampled_from([(4, 4), (6, 2)]))
def test_aggregates_of_several_stages_equal_a_full_join_of_the_aggregates_of_each(seed, layout, window):
    size, slide = window
    tables = {"a": random_rows(seed, pa.int32(), "x"), "b": random_rows(seed + 1, pa.int64(), "y")}
    expected = ask(
        WINDOWS
        + """
        , ga AS (SELECT code, e, count(*) AS n, sum(x)::BIGINT AS total FROM wa GROUP BY code, e)
        , gb AS (SELECT code, e, count(*) AS m, max(y) AS high, count(*) AS rows FROM wb GROUP BY code, e)
        SELECT coalesce(a.code, b.code) AS code, make_timestamp(coalesce(a.e, b.e) - $size) AS window_start,
            make_timestamp(coalesce(a.e, b.e)) AS window_end,
            coalesce(n, 0) AS n, total, coalesce(m, 0) AS m, high, rows
        FROM ga a FULL JOIN gb b ON a.code IS NOT DISTINCT FROM b.code AND a.e = b.e
        """,
        tables,
        size=size * SECOND,
        slide=slide * SECOND,
    )

    def build(a, b):
        grouped = a.group_by("code").cogroup(b.group_by("code")).window(jf.sliding(f"{size}s", f"{slide}s"))
        return grouped.agg(
            {"n": jf.count(), "total": jf.sum("x")},
            {"m": jf.count(), "high": jf.max(col("y") + 0), "rows": Rows().over("y")},
        )

    check(run(build, tables, layout), expected)


@pytest.mark.parametrize("how", ["inner", "left"])
def test_a_join_with_a_table_equals_a_join_on_keys(how):
    tables = {"a": random_rows(5, pa.int32(), "x"), "b": random_rows(6, pa.int16(), "y")}
    expected = ask(
        f"""
        SELECT a.code, a.moment, x, b.moment AS moment_table, y
        FROM a {how} JOIN b ON a.code = b.code AND x % 3 = y % 3
        """,
        tables,
    )

    def build(a, b):
        thirds = [col(name).cast("int") % 3 for name in "xy"]
        table = b.with_column("third", thirds[1])
        joined = a.hash_join(
            table,
            left_on=["code", thirds[0].alias("third")],
            right_on=["code", "third"],
            how=how,
            suffix="_table",
        )
        return joined.drop("third")

    for layout in [(1, 1, 5), (2, 2, 1000)]:
        check(run(build, tables, layout), expected)
