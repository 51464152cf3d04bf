"""Windows: each result equals the slow twin's, whatever the order of rows, watermarks, pauses and restores."""

import math
from functools import partial
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from jetfast.kernels.columns import Batch
from jetfast.kernels.partitioning import assign_partitions
from jetfast.kernels.windows import FrameTable, WindowTable
from jetfast.types import MAX_TIME
from tests.kernels.window_tables import (
    AGGREGATES,
    SCHEMA,
    Row,
    check_counters,
    check_results,
    check_state_that_moves,
    drain,
    key_columns,
    make_table,
    reference,
    restore_all,
    rows,
    rows_of,
    saved_of,
    split_by_owner,
    steps,
    tables_with_bounds_of_their_own,
    to_batch,
    watermarks,
    windows,
)


@settings(max_examples=100, deadline=None)
@given(
    window=windows, keys=key_columns, script=steps, rows_max=st.sampled_from([1, 3, 65536]), padding=st.integers(0, 3)
)
def test_windows_equal_the_slow_twin(window: Any, keys: list[str], script: Any, rows_max: int, padding: int) -> None:
    table, slow = make_table(window, keys), reference(window, keys)
    for step in watermarks(script):
        if isinstance(step, int):
            table.advance(step)
            check_results(drain(table, keys, rows_max), slow.advance(step), AGGREGATES)
        else:
            late = table.accumulate(to_batch(step, padding=padding), collect_late=True)
            table.check_invariants()
            missed = slow.accumulate(step)
            if late is None:
                assert missed == []
            else:
                assert late.schema == table.late_schema
                found = [(row["k"], row["s"], row["t"], row["missed_until"]) for row in rows_of(late)]
                assert found == [(row["k"], row["s"], row["t"], until) for row, until in missed]
        check_counters(table, slow)
    memory = table.memory()
    assert memory["keys"] == memory["frames"] == 0


def check_windows(found: Any, wanted: Any) -> None:
    check_results(found, wanted, AGGREGATES)


@settings(max_examples=40, deadline=None)
@given(
    window=windows, keys=key_columns, script=steps, owner_counts=st.lists(st.integers(1, 3), min_size=1, max_size=13)
)
def test_a_save_and_restore_at_every_pause_changes_nothing(
    window: Any, keys: list[str], script: Any, owner_counts: Any
) -> None:
    make = partial(make_table, window, keys)
    check_state_that_moves(make, reference(window, keys), keys, script, owner_counts, check_windows)


@settings(max_examples=40, deadline=None)
@given(
    window=windows, keys=key_columns, script=steps, watermark_lags=st.lists(st.integers(0, 30), min_size=2, max_size=2)
)
def test_each_partition_is_treated_by_its_own_bound(
    window: Any, keys: list[str], script: Any, watermark_lags: Any
) -> None:
    """Two tables whose watermarks differ are restored into one; its watermark starts below both."""
    half = len(script) // 2
    tables, slow = tables_with_bounds_of_their_own(
        partial(make_table, window, keys),
        partial(reference, window, keys),
        keys,
        script[:half],
        [lag * half for lag in watermark_lags],
        check_windows,
    )
    one = make_table(window, keys)
    restore_all([one], saved_of(*tables))
    for step in watermarks(script[half:]):
        if isinstance(step, int):
            one.advance(step)
            wanted: dict[tuple[Any, ...], Row] = {}
            for twin in slow:
                wanted.update(twin.advance(max(step, twin.watermark)))
            found = drain(one, keys)
            # Windows up to a restored watermark were given before: neither table nor twin gives them again.
            check_windows(found, wanted)
        else:
            missed = 0
            for owner, part in enumerate(split_by_owner(step, keys, 2)):
                missed += len(slow[owner].accumulate(part))
            late = one.accumulate(to_batch(step), collect_late=True)
            assert (len(late) if late else 0) == missed
    for name in ("rows", "late_rows", "partly_late_rows", "rejected_rows"):
        assert sum(getattr(table, name) for table in [*tables, one]) == sum(getattr(twin, name) for twin in slow)


@settings(max_examples=60, deadline=None)
@given(
    window=windows,
    keys=key_columns,
    script=steps,
    stages=st.integers(1, 3),
    owners=st.integers(0, 3),
    flushes=st.lists(st.booleans(), min_size=1, max_size=4),
)
def test_two_stages_equal_one(
    window: Any, keys: list[str], script: Any, stages: int, owners: int, flushes: Any
) -> None:
    """First stages flush at watermarks and now and then in between; the second counts late ones in rows."""
    slow = reference(window, keys)
    first = [FrameTable(SCHEMA, keys, "t", AGGREGATES, *window) for _ in range(stages)]
    for table in first:
        if owners:
            table.set_owners(np.arange(271, dtype=np.int32) % owners, owners)
    second = make_table(window, keys)
    assert all(table.partial_schema == second.partial_schema for table in first)

    def take(table: FrameTable) -> None:
        while (partials := table.take_partials(5)) is not None:
            assert 0 < partials.row_count <= 5
            if owners:
                columns = [partials.to_arrow().column(key) for key in keys]
                partitions = assign_partitions(columns) if keys else np.zeros(partials.row_count, np.int32)
                assert (partitions % owners == table.owner).all()
            second.accumulate_partials(partials)
            second.check_invariants()

    for number, step in enumerate(watermarks(script)):
        if isinstance(step, int):
            for table in first:
                table.advance(step)
                take(table)
                # All partials go on before the watermark does: rows are judged by the one before it, as in one stage.
                table.flush()
                take(table)
            second.advance(step)
            check_results(drain(second, keys), slow.advance(step), AGGREGATES)
        else:
            slow.accumulate(step)
            first[number % stages].accumulate(to_batch(step))
            first[number % stages].check_invariants()
            if flushes[number % len(flushes)]:
                first[number % stages].flush()
                take(first[number % stages])
    assert second.rows + sum(table.rejected_rows for table in first) == slow.rows == sum(table.rows for table in first)
    assert (second.late_rows, second.partly_late_rows) == (slow.late_rows, slow.partly_late_rows)
    assert all(table.memory()["keys"] == table.memory()["frames"] == 0 for table in first)


# ---- sliding ---------------------------------------------------------------------------------------------------------


def test_a_float_sum_stays_exact_after_any_number_of_slides() -> None:
    """Huge values pass through the window before small ones; whatever had been added and deducted would show."""
    generator = np.random.default_rng(3)
    count = 40_000
    values = generator.standard_normal(count) * 10.0 ** generator.integers(-12, 18, count)
    values[::501] = np.nan
    values[::733] = np.inf
    schema = pa.schema([("k", pa.int64()), ("t", pa.timestamp("us")), ("v", pa.float64())])
    table = WindowTable(schema, ["k"], "t", [("s", "sum", "v"), ("m", "mean", "v")], 40, 5)
    found = {}
    for start in range(0, count, 500):
        part = slice(start, start + 500)
        columns = [np.zeros(500, np.int64), np.arange(count, dtype=np.int64)[part].view("datetime64[us]"), values[part]]
        table.accumulate(Batch.from_arrow(pa.record_batch([pa.array(column) for column in columns], schema=schema)))
        table.advance(start + 480)
        while (batch := table.emit()) is not None:
            found.update({row["window_end"]: row for row in rows_of(batch)})
    assert len(found) == (count - 20) // 5
    for end, row in found.items():
        window = values[max(0, end - 40) : end]
        if np.isfinite(window).all():
            assert abs(row["s"] - math.fsum(window)) <= 1e-9 * np.abs(window).sum()
        else:
            assert not math.isfinite(row["s"])
            assert math.isnan(row["s"]) == bool(np.isnan(window).any())


def test_a_far_future_row_makes_neither_frames_nor_windows_in_between() -> None:
    table = make_table((100, 1, 0), ["k"])
    row = {"k": 1, "s": None, "t": 0, "f": 1.0, "i": 1, "d": None}
    table.accumulate(to_batch([row, {**row, "t": 10**17}, {**row, "t": MAX_TIME}]))
    assert table.memory()["frames"] == 3
    table.advance(10**17 - 5)
    assert len(drain(table, ["k"])) == 100
    table.advance(MAX_TIME)
    assert len(drain(table, ["k"])) == 101


def test_memory_is_bounded_by_the_keys_in_the_window() -> None:
    """Each key lives for a short while; 200 times as many come by as are ever there at once."""
    schema = pa.schema([("k", pa.string()), ("t", pa.timestamp("us")), ("v", pa.float64())])
    table = WindowTable(schema, ["k"], "t", [("n", "count", None), ("x", "max", "v")], 20, 5)
    sizes = []
    for start in range(0, 100_000, 500):
        moment = pa.array(range(start, start + 500), pa.int64())
        batch = pa.record_batch(
            [moment.cast(pa.string()), moment.cast(pa.timestamp("us")), moment.cast(pa.float64())], schema=schema
        )
        table.accumulate(Batch.from_arrow(batch))
        table.advance(start + 500)
        while table.emit() is not None:
            pass
        memory = table.memory()
        assert memory["keys"] <= 20
        sizes.append(memory["key_bytes"] + memory["frame_bytes"])
    assert max(sizes) <= 2 * sizes[2]


@settings(max_examples=40, deadline=None)
@given(
    batches=st.lists(st.lists(rows, min_size=1, max_size=12), min_size=1, max_size=4),
    old=windows,
    new=windows,
    padding=st.integers(0, 2),
)
def test_a_changed_window_realigns_frames_upward_and_merges_them(
    batches: Any, old: Any, new: Any, padding: int
) -> None:
    """A row of a saved frame counts as if it came right before the new boundary at or above the frame's end."""
    table, before, after = make_table(old, ["k"]), reference(old, ["k"]), reference(new, ["k"])
    for batch in batches:
        table.accumulate(to_batch(batch, padding=padding))
    changed = make_table(new, ["k"])
    restore_all([changed], saved_of(table))
    for row in [row for batch in batches for row in batch if row["t"] is not None]:
        end = before.frame_of(row["t"])
        boundary = after.frame_of(end - 1)
        after.accumulate(
            [{**row, "t": min(boundary, MAX_TIME) - 1 if boundary < MAX_TIME or end < MAX_TIME else MAX_TIME}]
        )
    changed.advance(MAX_TIME)
    found, wanted = drain(changed, ["k"]), after.advance(MAX_TIME)
    check_results(found, wanted, AGGREGATES)


# ---- what is refused -------------------------------------------------------------------------------------------------


def test_rows_are_refused_until_everything_due_has_been_emitted() -> None:
    table = make_table((10, 10, 0), ["k"])
    batch = to_batch([{"k": 1, "s": None, "t": 0, "f": 1.0, "i": 1, "d": None}])
    table.accumulate(batch)
    table.advance(10)
    for refused in (lambda: table.accumulate(batch), lambda: table.advance(20), table.save):
        with pytest.raises(ValueError, match="emit all windows that are due"):
            refused()
    assert len(drain(table, ["k"])) == 1
    table.accumulate(batch)
    with pytest.raises(ValueError, match="must not go back"):
        table.advance(9)


def test_definitions_that_cannot_work_are_refused() -> None:
    def make(
        keys: Any = ("k",), time: str = "t", aggregates: Any = (("n", "count", None),), size: int = 10, slide: int = 5
    ) -> None:
        WindowTable(SCHEMA, list(keys), time, list(aggregates), size, slide)

    with pytest.raises(ValueError, match="multiple of slide_us, got 10 and 3"):
        make(slide=3)
    with pytest.raises(TypeError, match="time column 'i' must be a timestamp or date, it is int32"):
        make(time="i")
    with pytest.raises(ValueError, match="aggregate 'n': there is no column 'missing'; the columns are k, s, t"):
        make(aggregates=[("n", "sum", "missing")])
    with pytest.raises(TypeError, match="aggregate 'x' of column 's': sum needs numbers, got string"):
        make(aggregates=[("x", "sum", "s")])
    with pytest.raises(ValueError, match="there is no aggregate 'median'"):
        make(aggregates=[("x", "median", "f")])
    with pytest.raises(ValueError, match="two result columns are named 'k'"):
        make(aggregates=[("k", "count", None)])
    with pytest.raises(ValueError, match="sum needs a column"):
        make(aggregates=[("x", "sum", None)])


def test_state_of_another_definition_is_refused() -> None:
    table = make_table((10, 10, 0), ["k"])
    table.accumulate(to_batch([{"k": 1, "s": None, "t": 0, "f": 1.0, "i": 1, "d": None}]))
    (saved,) = table.save()
    with pytest.raises(ValueError, match="saved windows .* must have the columns"):
        make_table((10, 10, 0), ["k"], AGGREGATES[:2]).restore(saved)
    with pytest.raises(ValueError, match="before the first row"):
        table.restore(saved)
    with pytest.raises(ValueError, match="before the first row"):
        table.restore_bound(0, 10)
    with pytest.raises(ValueError, match=r"partition must be in \[0, 271\)"):
        make_table((10, 10, 0), ["k"]).restore_bound(271, 10)


# ---- other engines ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_tumbling_windows_equal_polars(unit: str) -> None:
    generator = np.random.default_rng(11)
    count = 20_000
    frame = pl.DataFrame(
        {
            "name": pl.Series(generator.choice(["anna", "bo", "a much longer name than others"], count)).cast(
                pl.Categorical
            ),
            "number": generator.integers(0, 50, count).astype(np.int32),
            "t": generator.integers(-2000, 2000, count),
            "v": generator.integers(-1000, 1000, count) / 64,
        }
    ).with_columns(v=pl.when(pl.col("number") % 7 == 0).then(None).otherwise(pl.col("v")))
    table = frame.to_arrow().set_column(2, "t", pa.array(frame["t"].to_numpy()).cast(pa.timestamp(unit)))
    per_unit = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": 1}[unit]
    size = 100 * per_unit
    windows_table = WindowTable(
        table.schema,
        ["name", "number"],
        "t",
        [("n", "count", None), ("s", "sum", "v"), ("lo", "min", "v"), ("hi", "max", "v"), ("var", "var_samp", "v")],
        size,
        size,
    )
    for batch in table.to_batches(max_chunksize=777):
        windows_table.accumulate(Batch.from_arrow(batch))
    windows_table.advance(MAX_TIME)
    batches = []
    while (result := windows_table.emit(1000)) is not None:
        batches.append(result.to_arrow())
    found = pl.from_arrow(pa.Table.from_batches(batches))
    assert isinstance(found, pl.DataFrame)
    divisor = 1000 if unit == "ns" else 1
    wanted = (
        frame.with_columns(end=((pl.col("t") // divisor * per_unit) // size + 1) * size)
        .group_by("name", "number", "end")
        .agg(n=pl.len(), s=pl.sum("v"), lo=pl.min("v"), hi=pl.max("v"), var=pl.var("v"), values=pl.count("v"))
        .with_columns(s=pl.when(pl.col("values") == 0).then(None).otherwise(pl.col("s")))
        .drop("values")
        .with_columns(pl.col("name").cast(pl.String), pl.col("n").cast(pl.Int64))
        .sort("name", "number", "end")
    )
    found = found.with_columns(end=pl.col("window_end").cast(pl.Int64)).drop("window_start", "window_end")
    found = found.with_columns(pl.col("name").cast(pl.String)).sort("name", "number", "end").select(wanted.columns)
    assert_frame_equal(found, wanted)


def test_sliding_windows_equal_duckdb() -> None:
    generator = np.random.default_rng(12)
    count = 5_000
    columns = {
        "k": pa.array(generator.integers(0, 20, count)),
        "t": pa.array(np.sort(generator.integers(0, 10_000, count)) + generator.integers(-50, 1, count)).cast(
            pa.timestamp("us")
        ),
        "v": pa.array(generator.integers(-(2**40), 2**40, count)),
    }
    table = pa.table(columns)
    windows_table = WindowTable(
        table.schema,
        ["k"],
        "t",
        [("n", "count", None), ("s", "sum", "v"), ("m", "mean", "v"), ("lo", "min", "v")],
        600,
        100,
    )
    found = []
    highest = 0
    for batch in table.to_batches(max_chunksize=512):
        late = windows_table.accumulate(Batch.from_arrow(batch), collect_late=True)
        assert late is None
        highest = max(highest, pc.max(batch.column("t")).value)
        windows_table.advance(highest - 51)
        while (result := windows_table.emit(333)) is not None:
            found.extend(rows_of(result))
    windows_table.advance(MAX_TIME)
    while (result := windows_table.emit(333)) is not None:
        found.extend(rows_of(result))
    connection = duckdb.connect()
    connection.register("source", table)
    wanted = connection.sql(
        """
        select k, w - 600, w, count(*), sum(v)::bigint, avg(v), min(v)
        from (select k, v, epoch_us(t) as us from source), generate_series(-1000, 12000, 100) as ends(w)
        where us < w and us >= w - 600 group by k, w
        """
    ).fetchall()
    assert len(found) == len(wanted)
    for row, want in zip(sorted(tuple(row.values()) for row in found), sorted(wanted), strict=True):
        assert row[:5] + row[6:] == want[:5] + want[6:]
        assert row[5] == pytest.approx(want[5], rel=1e-12)


def test_restored_keys_take_the_memory_that_they_took_before():
    schema = pa.schema([("k", pa.int64()), ("t", pa.timestamp("us"))])
    keys = np.arange(20_000)
    table = WindowTable(schema, ["k"], "t", [("n", "count", None)], 100, 10)
    for frame in range(3):
        table.accumulate(
            Batch.from_arrow(pa.record_batch([keys, np.full(20_000, frame * 10, "M8[us]")], schema=schema))
        )
    restored = WindowTable(schema, ["k"], "t", [("n", "count", None)], 100, 10)
    restore_all([restored], saved_of(table))
    assert restored.memory()["keys"] == 20_000
    assert restored.memory()["key_bytes"] <= 2 * table.memory()["key_bytes"]
