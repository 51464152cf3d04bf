"""Whole jobs give what DuckDB gives: another engine than the first, asked in SQL."""

import duckdb
import polars as pl
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from tests.clusters.whole_jobs import SECOND, Case, make_rows, run

QUERY = """
    WITH timed AS (SELECT *, floor(epoch_us(time) / $slide)::BIGINT * $slide + $slide AS first_end FROM rows WHERE time IS NOT NULL),
    spread AS (SELECT *, unnest(generate_series(first_end, first_end + $size - $slide, $slide)) AS window_end FROM timed)
    SELECT key, code, make_timestamp(window_end - $size) AS window_start, make_timestamp(window_end) AS window_end,
           count(*) AS rows, count(value) AS values, sum(id)::BIGINT AS sum_id, sum(value) AS total, avg(value) AS mean,
           min(value) AS least, max(value) AS greatest, var_samp(value) AS spread
    FROM spread GROUP BY key, code, spread.window_end
"""  # noqa: E501


@settings(max_examples=12, deadline=None)
@given(
    st.integers(0, 2**32),
    st.sampled_from([(1, 1), (1, 5), (2, 2)]),
    st.sampled_from([7, 1000, 65536]),
    st.sampled_from([SECOND, 8 * SECOND]),
    st.booleans(),
)
def test_with_a_lag_that_covers_the_disorder_windows_equal_duckdb(
    seed: int, layout: tuple[int, int], batch_rows: int, slide_us: int, two_stage: bool
) -> None:
    case = Case(seed, slide_us=slide_us)
    members, workers = layout
    outcome = run(
        case, lag="5s", members=members, workers=workers, batch_rows=batch_rows, two_stage=two_stage, late=False
    )
    rows = pa.concat_tables(make_rows(case).values())
    with duckdb.connect() as connection:
        connection.register("rows", rows)
        table = connection.sql(QUERY, params={"slide": case.slide_us, "size": case.size_us}).to_arrow_table()
    expected = pl.DataFrame(table).sort("window_end", "key", "code")
    assert_frame_equal(outcome.windows, expected, rel_tol=1e-9, abs_tol=1e-9)
