"""Whole jobs with sessions give what Polars gives, on any number of members and workers, for any size of batches."""

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import jetfast as jf
from jetfast.core.windows import SessionWindow
from tests.clusters.test_windows_equal_polars import BATCH_ROWS, LAYOUTS, layouts
from tests.clusters.whole_jobs import SECOND, Case, Outcome, make_rows, rows_within_lag, run
from tests.clusters.windows_reference import RESULT


def sessions(case: Case, timeout_us: int, late: pl.DataFrame | None = None) -> pl.DataFrame:
    """The sessions of a case, without the rows that were late."""
    rows = pl.DataFrame(pa.concat_tables(make_rows(case).values())).filter(pl.col("time").is_not_null())
    if late is not None:
        rows = rows.join(late, on="id", how="anti")
    ordered = rows.sort("key", "code", "time").with_columns(pl.col("time").dt.epoch("us").alias("us"))
    starts = pl.col("us").diff().over("key", "code") > timeout_us
    return (
        ordered.with_columns(starts.fill_null(True).cum_sum().alias("session"))
        .group_by("key", "code", "session")
        .agg(
            pl.col("us").min().cast(pl.Datetime("us")).alias("window_start"),
            (pl.col("us").max() + timeout_us).cast(pl.Datetime("us")).alias("window_end"),
            pl.len().cast(pl.Int64).alias("rows"),
            pl.col("value").count().cast(pl.Int64).alias("values"),
            pl.col("id").sum().alias("sum_id"),
            pl.when(pl.col("value").count() > 0).then(pl.col("value").sum()).alias("total"),
            pl.col("value").mean().alias("mean"),
            pl.col("value").min().alias("least"),
            pl.col("value").max().alias("greatest"),
            pl.col("value").var().alias("spread"),
        )
        .select("key", "code", "window_start", "window_end", *RESULT)
        .sort("window_end", "key", "code")
    )


def check(outcome: Outcome, case: Case, timeout_us: int) -> None:
    """Each session holds the rows that were on time, and each row is on time, late or rejected."""
    assert_frame_equal(outcome.windows, sessions(case, timeout_us, outcome.late), rel_tol=1e-9, abs_tol=1e-9)
    metrics = outcome.metrics
    assert metrics["partly_late_rows"] == 0
    assert outcome.windows["rows"].sum() + metrics["late_rows"] + metrics["rejected_rows"] == case.rows
    if outcome.late is not None:
        assert len(outcome.late) == metrics["late_rows"]
        assert outcome.late["missed_until"].null_count() == len(outcome.late)
        assert outcome.late["id"].is_unique().all()


@pytest.mark.parametrize("batch_rows", BATCH_ROWS)
@pytest.mark.parametrize(("members", "workers"), LAYOUTS)
def test_with_a_lag_that_covers_the_disorder_all_runs_give_the_same_sessions(
    members: int, workers: int, batch_rows: int
) -> None:
    case = Case(seed=1, keys=3)
    outcome = run(
        case,
        lag="5s",
        members=members,
        workers=workers,
        batch_rows=batch_rows,
        window=SessionWindow(SECOND),
        two_stage=members > 1,  # asked for, too: sessions are one stage
        late=False,
    )
    assert outcome.metrics["late_rows"] == 0
    check(outcome, case, SECOND)
    assert 1 < outcome.windows["rows"].max() < 100


cases = st.builds(
    Case,
    seed=st.integers(0, 2**32),
    rows=st.integers(0, 300),
    partitions=st.integers(1, 7),
    disorder_us=st.sampled_from([1, SECOND, 20 * SECOND]),
    keys=st.sampled_from([1, 5, 100]),
    null_share=st.sampled_from([0.0, 0.2, 1.0]),
    with_empty_answers=st.booleans(),
)


@settings(max_examples=20, deadline=None)
@given(
    cases,
    layouts,
    st.sampled_from(BATCH_ROWS),
    st.sampled_from([0, 1, 3]),
    st.sampled_from([1, SECOND // 3, 2 * SECOND, 100 * SECOND]),
)
def test_each_session_holds_its_rows_less_the_late_ones(
    case: Case, layout: tuple[int, int], batch_rows: int, lag_s: int, timeout_us: int
) -> None:
    members, workers = layout
    outcome = run(
        case,
        lag=f"{lag_s}s",
        members=members,
        workers=workers,
        batch_rows=batch_rows,
        window=SessionWindow(timeout_us),
        idle_timeout="1us" if case.with_empty_answers else "60s",
    )
    check(outcome, case, timeout_us)
    assert outcome.late is not None
    if not case.with_empty_answers:
        assert rows_within_lag(case, lag_s * SECOND).isdisjoint(outcome.late["id"])


def test_a_session_and_a_sliding_window_may_read_the_same_rows() -> None:
    rows = next(iter(make_rows(Case(seed=5, partitions=1)).values()))
    pipeline = jf.Pipeline("both")
    stage = pipeline.read(jf.memory(rows, batch_rows=50), name="rows").with_event_time(
        "time", jf.watermarks.fixed_lag("5s")
    )
    stage.window(jf.session("2s")).agg(rows=jf.count(), name="sessions").collect("found sessions")
    stage.group_by("key").window(jf.tumbling("7s")).agg(rows=jf.count(), name="windows").collect("found windows")
    job = jf.LocalCluster(workers=2).submit(pipeline, progress=False)
    job.wait()
    timed = len(rows) - rows["time"].null_count
    assert sum(job.collected("found sessions")["rows"].to_pylist()) == timed
    assert sum(job.collected("found windows")["rows"].to_pylist()) == timed
    assert job.collected("found sessions").column_names == ["window_start", "window_end", "rows"]
