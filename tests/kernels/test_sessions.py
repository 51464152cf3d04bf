"""Session windows: each result equals the slow twin's, whatever the order of rows, watermarks, pauses and restores."""

import math
import random
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetfast.kernels.columns import Batch
from jetfast.kernels.sessions import SessionTable
from jetfast.types import MAX_TIME, MIN_TIME
from tests.kernels.reference_sessions import ReferenceSessions
from tests.kernels.window_tables import (
    AGGREGATES,
    SCHEMA,
    Row,
    check_results,
    check_state_that_moves,
    drain,
    key_columns,
    restore_all,
    rows_of,
    saved_of,
    split_by_owner,
    steps,
    tables_with_bounds_of_their_own,
    to_batch,
    watermarks,
)

timeouts = st.sampled_from([1, 2, 7, 40, 1000, 2**62, 2**63 - 1])


def make_table(timeout: int, keys: list[str], aggregates: Any = AGGREGATES, **more: Any) -> SessionTable:
    return SessionTable(SCHEMA, keys, "t", aggregates, timeout, **more)


def reference(timeout: int, keys: list[str]) -> ReferenceSessions:
    return ReferenceSessions(keys, "t", AGGREGATES, timeout)


def check(found: Any, wanted: Any) -> None:
    check_results(found, wanted, AGGREGATES)
    for group, expected in wanted.items():
        assert found[group]["window_start"] == expected["window_start"]


def check_counters(table: SessionTable, slow: ReferenceSessions) -> None:
    assert (table.rows, table.late_rows, table.rejected_rows) == (slow.rows, slow.late_rows, slow.rejected_rows)
    assert table.memory()["sessions"] == sum(len(sessions) for sessions in slow.sessions().values())


def identity(row: Row) -> tuple[Any, ...]:
    return (row["k"], row["s"], row["t"], row["i"], row["d"])


@settings(max_examples=80, deadline=None)
@given(
    timeout=timeouts, keys=key_columns, script=steps, rows_max=st.sampled_from([1, 3, 65536]), padding=st.integers(0, 3)
)
def test_sessions_equal_the_slow_twin(timeout: int, keys: list[str], script: Any, rows_max: int, padding: int) -> None:
    table, slow = make_table(timeout, keys), reference(timeout, keys)
    for step in watermarks(script):
        if isinstance(step, int):
            table.advance(step)
            check(drain(table, keys, rows_max), slow.advance(step))
        else:
            late = table.accumulate(to_batch(step, padding=padding), collect_late=True)
            table.check_invariants()
            missed = slow.accumulate(step)
            if late is None:
                assert missed == []
            else:
                assert late.schema == table.late_schema
                assert [identity(row) for row in rows_of(late)] == [identity(row) for row in missed]
                assert late.to_arrow().column("missed_until").null_count == len(missed)
        check_counters(table, slow)
    assert table.memory()["keys"] == table.memory()["sessions"] == 0


@settings(max_examples=30, deadline=None)
@given(
    timeout=timeouts, keys=key_columns, script=steps, owner_counts=st.lists(st.integers(1, 3), min_size=1, max_size=13)
)
def test_a_save_and_restore_at_every_pause_changes_nothing(
    timeout: int, keys: list[str], script: Any, owner_counts: Any
) -> None:
    make = partial(make_table, timeout, keys)
    check_state_that_moves(make, reference(timeout, keys), keys, script, owner_counts, check)


@settings(max_examples=30, deadline=None)
@given(
    timeout=timeouts,
    keys=key_columns,
    script=steps,
    watermark_lags=st.lists(st.integers(0, 30), min_size=2, max_size=2),
)
def test_each_partition_is_treated_by_its_own_bound(
    timeout: int, keys: list[str], script: Any, watermark_lags: Any
) -> None:
    """Two tables whose watermarks differ are restored into one; its watermark starts below both."""
    half = len(script) // 2
    tables, slow = tables_with_bounds_of_their_own(
        partial(make_table, timeout, keys),
        partial(reference, timeout, keys),
        keys,
        script[:half],
        [lag * half for lag in watermark_lags],
        check,
    )
    one = make_table(timeout, keys)
    restore_all([one], saved_of(*tables))
    bounds = [twin.watermark for twin in slow]
    for step in watermarks(script[half:]):
        if isinstance(step, int):
            one.advance(step)
            wanted: dict[tuple[Any, ...], Row] = {}
            for twin, bound in zip(slow, bounds, strict=True):
                wanted.update(twin.advance(step))
                twin.watermark = max(step, bound)
            check(drain(one, keys), wanted)
        else:
            late = one.accumulate(to_batch(step), collect_late=True)
            missed = 0
            for owner, part in enumerate(split_by_owner(step, keys, 2)):
                missed += len(slow[owner].accumulate(part))
            assert (len(late) if late else 0) == missed
    for name in ("rows", "late_rows", "rejected_rows"):
        assert sum(getattr(table, name) for table in [*tables, one]) == sum(getattr(twin, name) for twin in slow)


@settings(max_examples=20, deadline=None)
@given(keys=key_columns, script=steps, before=timeouts, after=timeouts)
def test_a_changed_timeout_gives_restored_sessions_new_ends_and_merges_those_that_meet(
    keys: list[str], script: Any, before: int, after: int
) -> None:
    table, slow = make_table(before, keys), reference(before, keys)
    half = len(script) // 2
    for step in watermarks(script[:half])[:-1]:
        if isinstance(step, int):
            table.advance(step)
            check(drain(table, keys), slow.advance(step))
        else:
            table.accumulate(to_batch(step))
            table.check_invariants()
            slow.accumulate(step)
    other = make_table(after, keys)
    restore_all([other], saved_of(table))
    # Rows that shared a session stay together; of them only the first and the last time are known from now on.
    sessions = [(key, rows[0]["t"], rows[-1]["t"], rows) for key, found in slow.sessions().items() for rows in found]
    merged: list[tuple[Any, int, int, list[Row]]] = []
    for key, first, last, rows in sorted(sessions, key=lambda session: (repr(session[0]), session[1])):
        if merged and merged[-1][0] == key and first <= merged[-1][2] + after:
            key, start, _, earlier = merged.pop()
            first, rows = start, earlier + rows
        merged.append((key, first, last, rows))
    other.advance(MAX_TIME)
    found = drain(other, keys)
    ends = {(min(last + after, MAX_TIME), *key): (first, len(rows)) for key, first, last, rows in merged}
    assert {group: (row["window_start"], row["rows"]) for group, row in found.items()} == ends


# ---- rules, one by one ----------------------------------------------------------------------------------------------


def rows_at(times: Sequence[int | None], key: int = 1) -> Batch:
    return to_batch([{"k": key, "s": None, "t": time, "f": 1.0, "i": 1, "d": None} for time in times])


def spans(table: SessionTable) -> list[tuple[int, int, int]]:
    """Start, end and rows of what is due, in order."""
    return [(row["window_start"], row["window_end"], row["rows"]) for row in drain(table, ["k"]).values()]


def test_a_session_starts_at_its_first_row_and_ends_timeout_after_its_last() -> None:
    table = make_table(10, ["k"])
    table.accumulate(rows_at([25, 20, 31]))
    table.advance(MAX_TIME)
    assert spans(table) == [(20, 41, 3)]


def test_sessions_that_touch_are_one() -> None:
    table = make_table(10, ["k"])
    table.accumulate(rows_at([0, 10, 21]))
    table.advance(MAX_TIME)
    assert spans(table) == [(0, 20, 2), (21, 31, 1)]


@pytest.mark.parametrize("batches", [[[0, 20, 10]], [[0, 20], [10]], [[20], [0], [10]]], ids=str)
def test_a_row_may_bridge_two_sessions(batches: list[list[int]]) -> None:
    table = make_table(10, ["k"])
    for times in batches:
        table.accumulate(rows_at(times))
    table.advance(MAX_TIME)
    assert spans(table) == [(0, 30, 3)]


def test_one_batch_may_merge_many_sessions_in_a_chain() -> None:
    table = make_table(1, ["k"])
    table.accumulate(rows_at([0, 2, 4, 6, 8, 10, 9, 1, 5, 3, 7]))
    assert table.memory()["sessions"] == 1
    table.advance(MAX_TIME)
    assert spans(table) == [(0, 11, 11)]


def test_a_session_is_open_while_the_watermark_is_at_its_end() -> None:
    table = make_table(10, ["k"])
    table.accumulate(rows_at([0]))
    table.advance(10)
    assert spans(table) == []
    table.accumulate(rows_at([10]))  # on time, and it still joins
    assert table.late_rows == 0
    table.advance(20)
    assert spans(table) == []
    table.advance(21)
    assert spans(table) == [(0, 20, 2)]


def test_a_row_is_late_if_it_is_before_the_watermark_even_if_its_session_is_open() -> None:
    table = make_table(10, ["k"])
    table.accumulate(rows_at([0, 5]))
    table.advance(6)
    late = table.accumulate(rows_at([5, 6]), collect_late=True)
    assert late is not None
    assert [(row["t"], row["missed_until"]) for row in rows_of(late)] == [(5, None)]
    assert (table.rows, table.late_rows, table.partly_late_rows) == (4, 1, 0)
    table.advance(MAX_TIME)
    assert spans(table) == [(0, 16, 3)]


def test_times_at_the_ends_of_int64_are_right() -> None:
    table = make_table(10, ["k"])
    table.accumulate(rows_at([MIN_TIME, MIN_TIME + 10, MIN_TIME + 21, MAX_TIME, MAX_TIME - 10, MAX_TIME - 21]))
    table.advance(MIN_TIME + 21)
    assert spans(table) == [(MIN_TIME, MIN_TIME + 20, 2)]
    table.advance(MAX_TIME)
    assert spans(table) == [
        (MIN_TIME + 21, MIN_TIME + 31, 1),
        (MAX_TIME - 21, MAX_TIME - 11, 1),
        (MAX_TIME - 10, MAX_TIME, 2),
    ]


def test_a_key_may_have_many_open_sessions() -> None:
    """More than the list of a key is walked for; rows come in any order and close gaps everywhere."""
    rng = random.Random(4)
    table, slow = make_table(5, ["k"]), ReferenceSessions(["k"], "t", AGGREGATES, 5)
    for round_number in range(12):
        times = [rng.randrange(20_000) for _ in range(400)]
        rows = [{"k": rng.randrange(2), "s": None, "t": time, "f": 0.5, "i": 1, "d": None} for time in times]
        table.accumulate(to_batch(rows))
        slow.accumulate(rows)
        check_counters(table, slow)
        table.advance(round_number * 1500)
        check(drain(table, ["k"]), slow.advance(round_number * 1500))
    table.advance(MAX_TIME)
    check(drain(table, ["k"]), slow.advance(MAX_TIME))


def test_rows_must_not_come_in_before_what_is_due_is_emitted() -> None:
    table = make_table(10, ["k"])
    table.accumulate(rows_at([0]))
    table.advance(50)
    for work in (lambda: table.accumulate(rows_at([60])), lambda: table.advance(70), table.save):
        with pytest.raises(ValueError, match="emit all sessions that are due"):
            work()
    assert spans(table) == [(0, 10, 1)]
    with pytest.raises(ValueError, match="must not go back"):
        table.advance(40)


def test_a_sum_that_does_not_fit_names_key_and_session() -> None:
    schema = pa.schema([("k", pa.int64()), ("t", pa.timestamp("us")), ("v", pa.int64())])
    table = SessionTable(schema, ["k"], "t", [("total", "sum", "v")], 1_000_000)
    table.accumulate(
        Batch.from_arrow(pa.record_batch([[7, 7], pa.array([0, 1], pa.timestamp("us")), [2**62, 2**62]], schema=schema))
    )
    table.advance(MAX_TIME)
    with pytest.raises(OverflowError, match=r"'total'.*'v'.*key k=7.*1970-01-01T00:00:00.*00:00:01.000001"):
        table.emit()


@pytest.mark.parametrize("timeout", [0, -1])
def test_a_timeout_must_be_positive(timeout: int) -> None:
    with pytest.raises(ValueError, match="timeout_us must be at least 1"):
        make_table(timeout, ["k"])


def test_state_of_other_aggregates_is_refused() -> None:
    table = make_table(10, ["k"])
    table.accumulate(rows_at([0]))
    (saved,) = table.save()
    other = make_table(10, ["k"], [("rows", "count", None)])
    with pytest.raises(ValueError, match="saved sessions"):
        other.restore(saved)
    started = make_table(10, ["k"])
    started.accumulate(rows_at([0]))
    with pytest.raises(ValueError, match="before the first row"):
        started.restore(saved)


def test_keys_that_are_gone_give_their_memory_back() -> None:
    table = make_table(10, ["k"])
    for number in range(40):
        keys = range(number * 1000, number * 1000 + 1000)
        table.accumulate(to_batch([{"k": k, "s": None, "t": number * 100, "f": 1.0, "i": 1, "d": None} for k in keys]))
        table.advance(number * 100)
        drain(table, ["k"])
    memory = table.memory()
    assert memory["keys"] == memory["sessions"] == 1000
    assert memory["key_bytes"] + memory["session_bytes"] < 40 * 1000 * 100


# ---- bounded answers of another engine ------------------------------------------------------------------------------


def sessions_polars(rows: pl.DataFrame, timeout: timedelta) -> pl.DataFrame:
    """The sessions of k over t, with the rows and the sum of v of each."""
    return (
        rows.sort("k", "t")
        .with_columns((pl.col("t").diff().over("k") > timeout).fill_null(True).cum_sum().alias("session"))
        .group_by("k", "session")
        .agg(
            pl.col("t").min().alias("window_start"),
            (pl.col("t").max() + timeout).alias("window_end"),
            pl.len().cast(pl.Int64).alias("rows"),
            pl.col("v").sum().alias("total"),
            pl.col("v").max().alias("greatest"),
        )
        .drop("session")
        .sort("k", "window_start")
    )


@pytest.mark.parametrize("batch_rows", [1000, 20_000])
def test_sessions_equal_polars_bounded_answer(batch_rows: int) -> None:
    rng = np.random.default_rng(11)
    count, lag_us = 20_000, 50_000
    order = np.sort(rng.integers(0, 2_000_000, count))
    times = order + rng.integers(-lag_us // 2, lag_us // 2, count)
    rows = pa.table(
        {
            "k": rng.integers(0, 500, count),
            "t": pa.array(times, pa.int64()).cast(pa.timestamp("us")),
            "v": rng.integers(-6400, 6400, count) / 64,
        }
    )
    aggregates = [("rows", "count", None), ("total", "sum", "v"), ("greatest", "max", "v")]
    table = SessionTable(rows.schema, ["k"], "t", aggregates, 40_000)
    found = []

    def take(watermark: int) -> None:
        table.advance(watermark)
        while (batch := table.emit()) is not None:
            found.append(pl.DataFrame(batch.to_arrow()))

    for start in range(0, count, batch_rows):
        for batch in rows.slice(start, batch_rows).to_batches():
            table.accumulate(Batch.from_arrow(batch))
        take(int(order[min(start + batch_rows, count) - 1]) - lag_us)
    take(MAX_TIME)
    assert table.late_rows == 0
    assert len(found) > 1
    wanted = sessions_polars(pl.DataFrame(rows), timedelta(microseconds=40_000))
    assert len(wanted) > 1000
    assert pl.concat(found).sort("k", "window_start").equals(wanted)
    assert datetime(1969, 1, 1) < wanted["window_start"].min()  # type: ignore[operator]
    assert not math.isnan(wanted["total"].sum())
