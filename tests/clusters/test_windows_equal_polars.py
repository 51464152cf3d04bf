"""Whole jobs give what Polars gives, on any number of members and workers, for any size of batches."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from tests.clusters.whole_jobs import SECOND, Case, check_identities, check_windows, expected, rows_within_lag, run

LAYOUTS = [(members, workers) for members in (1, 2) for workers in (1, 2, 5)]
BATCH_ROWS = [1, 7, 1000, 65536]


@pytest.mark.parametrize("batch_rows", BATCH_ROWS)
@pytest.mark.parametrize(("members", "workers"), LAYOUTS)
def test_with_a_lag_that_covers_the_disorder_nothing_is_late_and_all_runs_are_equal(
    members: int, workers: int, batch_rows: int
) -> None:
    case = Case(seed=1)
    outcome = run(case, lag="5s", members=members, workers=workers, batch_rows=batch_rows)
    assert (outcome.metrics["late_rows"], outcome.metrics["partly_late_rows"]) == (0, 0)
    assert_frame_equal(outcome.windows, expected(case), rel_tol=1e-9, abs_tol=1e-9)
    check_identities(outcome, case)


@pytest.mark.parametrize("batch_rows", BATCH_ROWS)
@pytest.mark.parametrize(("members", "workers"), LAYOUTS)
def test_two_stages_give_the_same_with_a_lag_that_covers_the_disorder(
    members: int, workers: int, batch_rows: int
) -> None:
    case = Case(seed=2)
    outcome = run(case, lag="5s", members=members, workers=workers, batch_rows=batch_rows, two_stage=True, late=False)
    assert (outcome.metrics["late_rows"], outcome.metrics["partly_late_rows"]) == (0, 0)
    assert_frame_equal(outcome.windows, expected(case), rel_tol=1e-9, abs_tol=1e-9)


cases = st.builds(
    Case,
    seed=st.integers(0, 2**32),
    rows=st.integers(0, 300),
    partitions=st.integers(1, 7),
    disorder_us=st.sampled_from([1, SECOND, 20 * SECOND]),
    keys=st.sampled_from([1, 5, 100]),
    size_us=st.just(8 * SECOND),
    slide_us=st.sampled_from([SECOND, 4 * SECOND, 8 * SECOND]),
    null_share=st.sampled_from([0.0, 0.2, 1.0]),
)
layouts = st.sampled_from(LAYOUTS)


@settings(max_examples=40, deadline=None)
@given(cases, layouts, st.sampled_from(BATCH_ROWS), st.sampled_from([0, 1, 3]))
def test_windows_hold_the_rows_that_did_not_miss_them_and_each_row_is_in_one_class(
    case: Case, layout: tuple[int, int], batch_rows: int, lag_s: int
) -> None:
    members, workers = layout
    outcome = run(case, lag=f"{lag_s}s", members=members, workers=workers, batch_rows=batch_rows)
    check_windows(outcome, case)
    check_identities(outcome, case)
    assert outcome.late is not None
    assert rows_within_lag(case, lag_s * SECOND).isdisjoint(outcome.late["id"])


@settings(max_examples=20, deadline=None)
@given(cases, layouts, st.sampled_from([7, 1000]))
def test_partitions_that_turn_idle_lose_no_row(case: Case, layout: tuple[int, int], batch_rows: int) -> None:
    members, workers = layout
    case = Case(**{**vars(case), "with_empty_answers": True})
    outcome = run(case, lag="1s", members=members, workers=workers, batch_rows=batch_rows, idle_timeout="1us")
    check_windows(outcome, case)
    check_identities(outcome, case)


@settings(max_examples=20, deadline=None)
@given(cases, layouts, st.sampled_from([7, 65536]), st.sampled_from([0, 2]))
def test_two_stages_count_every_row_once(case: Case, layout: tuple[int, int], batch_rows: int, lag_s: int) -> None:
    """Two stages do not hand out late rows, so what they gave is judged by its counts."""
    members, workers = layout
    outcome = run(
        case,
        lag=f"{lag_s}s",
        members=members,
        workers=workers,
        batch_rows=batch_rows,
        two_stage=True,
        late=False,
    )
    metrics, whole = outcome.metrics, expected(case)
    assert metrics["rows_read"] == case.rows
    missing = whole["rows"].sum() - outcome.windows["rows"].sum()
    windows_of_a_row = case.size_us // case.slide_us
    least = metrics["late_rows"] * windows_of_a_row + metrics["partly_late_rows"]
    most = least + metrics["partly_late_rows"] * max(0, windows_of_a_row - 2)
    assert least <= missing <= most
    joined = outcome.windows.join(whole, on=["key", "code", "window_end"], how="anti", nulls_equal=True)
    assert len(joined) == 0, "a window that has no row"


@pytest.mark.parametrize("two_stage", [False, True])
@pytest.mark.parametrize("batch_rows", [7, 1000])
@pytest.mark.parametrize(("members", "workers"), [(1, 1), (2, 2)])
def test_a_memory_limit_below_one_batch_slows_a_job_and_does_not_stop_it(
    members: int, workers: int, batch_rows: int, two_stage: bool
) -> None:
    case = Case(seed=3, rows=1000)
    outcome = run(
        case,
        lag="5s",
        members=members,
        workers=workers,
        batch_rows=batch_rows,
        two_stage=two_stage,
        late=False,
        memory_limit="1B",
    )
    assert_frame_equal(outcome.windows, expected(case), rel_tol=1e-9, abs_tol=1e-9)
