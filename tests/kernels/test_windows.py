"""Windows: each result equals the slow twin's, whatever the order of rows, watermarks, pauses and restores."""

import math
import re
from collections.abc import Iterable, Sequence
from decimal import Decimal
from fractions import Fraction
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

from jetfast.core.aggregate import AggregateKind, result_type
from jetfast.core.processor import BY_KEYS, StateBatch
from jetfast.core.state_sharing import share_state
from jetfast.kernels.columns import Batch
from jetfast.kernels.partitioning import assign_partitions
from jetfast.kernels.windows import AGGREGATE_KINDS, FrameTable, ResultTable, WindowTable, aggregate_result_type
from jetfast.types import MAX_TIME, MIN_TIME
from tests.kernels.reference_windows import ReferenceWindows, aggregate, canonical

SCHEMA = pa.schema(
    [
        pa.field("k", pa.int64()),
        pa.field("s", pa.dictionary(pa.int8(), pa.string())),
        pa.field("t", pa.timestamp("us")),
        pa.field("f", pa.float64()),
        pa.field("i", pa.int32()),
        pa.field("d", pa.decimal128(7, 2)),
    ]
)
AGGREGATES = [
    ("rows", "count", None),
    ("f_count", "count_values", "f"),
    ("f_sum", "sum", "f"),
    ("f_mean", "mean", "f"),
    ("f_min", "min", "f"),
    ("f_max", "max", "f"),
    ("f_var", "var_samp", "f"),
    ("f_dev", "stddev_pop", "f"),
    ("i_sum", "sum", "i"),
    ("i_mean", "mean", "i"),
    ("i_min", "min", "i"),
    ("i_dev", "stddev_samp", "i"),
    ("d_sum", "sum", "d"),
    ("d_mean", "mean", "d"),
    ("d_max", "max", "d"),
    ("d_var", "var_pop", "d"),
]

Row = dict[str, Any]


def to_batch(rows: Sequence[Row], schema: pa.Schema = SCHEMA, padding: int = 0) -> Batch:
    """Rows as a batch; with `padding` it is a slice out of a longer one, so that bitmaps have offsets."""
    padded = [*rows[:1] * padding, *rows, *rows[:1] * padding]
    columns = []
    for field in schema:
        values = [row[field.name] for row in padded]
        if field.name == "d":
            values = [
                None if value is None else Decimal(value.numerator * 100 // value.denominator).scaleb(-2)
                for value in values
            ]
        if pa.types.is_dictionary(field.type):
            columns.append(pa.array(values, field.type.value_type).dictionary_encode().cast(field.type))
        elif field.name == "t":
            columns.append(pa.array(values, pa.int64()).cast(field.type))
        else:
            columns.append(pa.array(values, field.type))
    return Batch.from_arrow(pa.RecordBatch.from_arrays(columns, schema=schema).slice(padding, len(rows)))


def to_python(column: pa.Array) -> list[Any]:
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.int64()).to_pylist()
    return [Fraction(value) if isinstance(value, Decimal) else value for value in column.to_pylist()]


def rows_of(batch: Batch) -> list[Row]:
    arrow = batch.to_arrow()
    columns = [to_python(column) for column in arrow.columns]
    return [dict(zip(arrow.schema.names, row, strict=True)) for row in zip(*columns, strict=True)]


def drain(table: WindowTable, keys: Sequence[str], rows_max: int = 65536) -> dict[tuple[Any, ...], Row]:
    """Everything that is due, by (window end, key ...); checks order, that no result comes twice, and batch sizes."""
    results: dict[tuple[Any, ...], Row] = {}
    last_end = MIN_TIME
    while (batch := table.emit(rows_max)) is not None:
        assert batch.schema == table.output_schema
        assert 0 < batch.row_count <= rows_max
        for row in rows_of(batch):
            assert row["window_end"] >= last_end
            last_end = row["window_end"]
            group = (row["window_end"], *(canonical(row[key]) for key in keys))
            assert group not in results
            results[group] = row
    return results


def same(found: Any, wanted: Any, scale: float) -> bool:
    if wanted is None or found is None:
        return found is wanted
    if isinstance(found, float):
        if math.isnan(found) or math.isinf(found):
            return (math.isnan(found) and math.isnan(wanted)) or found == wanted
        if isinstance(wanted, float) and not math.isfinite(wanted):
            return False
        return abs(found - float(wanted)) <= 1e-9 * scale
    return bool(found == wanted)


def check_results(found: dict[tuple[Any, ...], Row], wanted: dict[tuple[Any, ...], Row], aggregates: Any) -> None:
    assert set(found) == set(wanted)
    for group, expected in wanted.items():
        for name, kind, column in aggregates:
            value, want = found[group][name], expected[name]
            if column == "d" and kind == "mean" and want is not None:  # rounded half up to six digits
                want = Fraction(math.floor(abs(want) * 10**6 + Fraction(1, 2)), 10**6) * (1 if want >= 0 else -1)
            scale = 2e6 if "var" in kind else 1e6
            assert same(value, want, scale), (group, name, value, want)


def reference(window: tuple[int, int, int], keys: list[str], aggregates: Any = AGGREGATES) -> ReferenceWindows:
    return ReferenceWindows(keys, "t", aggregates, *window)


def make_table(window: tuple[int, int, int], keys: list[str], aggregates: Any = AGGREGATES, **more: Any) -> WindowTable:
    return WindowTable(SCHEMA, keys, "t", aggregates, *window, **more)


times = st.one_of(
    st.integers(-60, 60),
    st.integers(-60, 60),
    st.integers(-60, 60),
    st.none(),
    st.sampled_from([MIN_TIME, MIN_TIME + 7, MAX_TIME, MAX_TIME - 7, 10**15, -(10**15), 4_000]),
)
numbers = st.one_of(
    st.integers(-64_000, 64_000).map(lambda v: v / 64), st.sampled_from([math.nan, math.inf, -math.inf, -0.0])
)
rows = st.fixed_dictionaries(
    {
        "k": st.one_of(st.integers(0, 3), st.none()),
        "s": st.sampled_from(["a", "b", None]),
        "t": times,
        "f": st.one_of(numbers, st.none()),
        "i": st.one_of(st.integers(-(2**31), 2**31 - 1), st.none()),
        "d": st.one_of(st.integers(-(10**6), 10**6).map(lambda v: Fraction(v, 100)), st.none()),
    }
)
steps = st.lists(
    st.one_of(st.lists(rows, min_size=1, max_size=12), st.lists(rows, min_size=1, max_size=12), st.integers(0, 40)),
    max_size=12,
)
windows = st.sampled_from([(10, 10, 0), (40, 10, 0), (30, 10, 7), (12, 3, 1), (1, 1, 0), (50, 5, 4), (100, 1, 0)])
key_columns = st.sampled_from([["k"], ["k", "s"], ["s"], []])


def watermarks(script: Iterable[Any]) -> list[Any]:
    """Steps with their relative watermarks made absolute, and the end of input after them."""
    now = -60
    result: list[Any] = []
    for step in script:
        if isinstance(step, int):
            now += step
            result.append(now)
        else:
            result.append(step)
    return [*result, MAX_TIME]


def check_counters(table: Any, slow: ReferenceWindows) -> None:
    assert (table.rows, table.late_rows, table.partly_late_rows, table.rejected_rows) == (
        slow.rows,
        slow.late_rows,
        slow.partly_late_rows,
        slow.rejected_rows,
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


def split_by_owner(rows: Sequence[Row], keys: list[str], owners: int) -> list[list[Row]]:
    """Rows by the table that owns the partition of their key, as the engine routes them."""
    if not keys:
        return [list(rows), *([] for _ in range(owners - 1))]
    arrow = to_batch(rows).to_arrow()
    partitions = assign_partitions([arrow.column(key) for key in keys], 271)
    return [
        [row for row, partition in zip(rows, partitions, strict=True) if partition % owners == owner]
        for owner in range(owners)
    ]


def row_counts(tables: Sequence[Any]) -> Any:
    """All rows, late ones and partly late ones, of all tables."""
    return np.sum([(table.rows, table.late_rows, table.partly_late_rows) for table in tables], axis=0)


def owned_by(owner: int, owners: int) -> Any:
    return np.arange(owner, 271, owners, dtype=np.int32)


Saved = tuple[list[pa.RecordBatch], dict[int, int]]
"""Rows, and the bounds of partitions."""


def saved_of(*tables: ResultTable) -> Saved:
    """The state of tables."""
    bounds: dict[int, int] = {}
    for table in tables:
        bounds |= table.bounds()
    return [rows for table in tables for rows in table.save()], bounds


def restore_all(tables: Sequence[ResultTable], state: Saved, backwards: bool = False) -> None:
    """Give each row of state to the table that owns the partition of its keys."""
    saved, bounds = state
    owners = np.arange(271, dtype=np.int32) % len(tables)
    names = tables[0].partial_schema.names
    keys = names[: names.index("frame" if isinstance(tables[0], WindowTable) else "first")]
    for batch in reversed(saved) if backwards else saved:
        for rows in pa.ipc.open_stream(stream_of(batch)):  # state crosses a process
            for owner, part in share_state(StateBatch(BY_KEYS, "", rows, tuple(keys)), owners, range(len(tables))):
                tables[owner].restore(part.rows)
    for partition, bound in bounds.items():
        for table in tables:
            table.restore_bound(partition, bound)
    for table in tables:
        table.finish_restore()


def stream_of(batch: pa.RecordBatch) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


@settings(max_examples=40, deadline=None)
@given(
    window=windows, keys=key_columns, script=steps, owner_counts=st.lists(st.integers(1, 3), min_size=1, max_size=13)
)
def test_a_save_and_restore_at_every_pause_changes_nothing(
    window: Any, keys: list[str], script: Any, owner_counts: Any
) -> None:
    """Before each step the state moves to another number of tables."""
    slow = reference(window, keys)
    tables = [make_table(window, keys, partitions=owned_by(0, 1))]
    counted = np.zeros(3, np.int64)  # counts are not part of the state
    for number, step in enumerate(watermarks(script)):
        owners = owner_counts[number % len(owner_counts)]
        counted += row_counts(tables)
        state = saved_of(*tables)
        tables = [make_table(window, keys, partitions=owned_by(owner, owners)) for owner in range(owners)]
        restore_all(tables, state, backwards=number % 2 == 1)
        if isinstance(step, int):
            found = {}
            for table in tables:
                table.advance(step)
                found.update(drain(table, keys))
            check_results(found, slow.advance(step), AGGREGATES)
        else:
            slow.accumulate(step)
            for table, part in zip(tables, split_by_owner(step, keys, owners), strict=True):
                if part:
                    table.accumulate(to_batch(part))
        totals = counted + row_counts(tables)
        assert totals.tolist() == [slow.rows, slow.late_rows, slow.partly_late_rows]


@settings(max_examples=40, deadline=None)
@given(
    window=windows, keys=key_columns, script=steps, watermark_lags=st.lists(st.integers(0, 30), min_size=2, max_size=2)
)
def test_each_partition_is_treated_by_its_own_bound(
    window: Any, keys: list[str], script: Any, watermark_lags: Any
) -> None:
    """Two tables whose watermarks differ are restored into one; its watermark starts below both."""
    slow = [reference(window, keys) for _ in range(2)]
    tables = [make_table(window, keys, partitions=owned_by(owner, 2)) for owner in range(2)]
    half = len(script) // 2
    for step in watermarks(script[:half])[:-1]:
        if isinstance(step, int):
            for owner, table in enumerate(tables):
                table.advance(step + watermark_lags[owner] * half)
                check_results(drain(table, keys), slow[owner].advance(step + watermark_lags[owner] * half), AGGREGATES)
        else:
            for owner, part in enumerate(split_by_owner(step, keys, 2)):
                slow[owner].accumulate(part)
                if part:
                    tables[owner].accumulate(to_batch(part))
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
            check_results(found, wanted, AGGREGATES)
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
            if flushes[number % len(flushes)]:
                first[number % stages].flush()
                take(first[number % stages])
    assert second.rows + sum(table.rejected_rows for table in first) == slow.rows == sum(table.rows for table in first)
    assert (second.late_rows, second.partly_late_rows) == (slow.late_rows, slow.partly_late_rows)
    assert all(table.memory()["keys"] == table.memory()["frames"] == 0 for table in first)


# ---- types ----------------------------------------------------------------------------------------------------------


def one_window(values: pa.Array, kinds: Sequence[str], keys: Sequence[int] | None = None) -> dict[str, Any]:
    """Aggregates of one column in one window, one global key (or `keys`), as a column of results each."""
    times_column = pa.array(range(len(values)), pa.int64()).cast(pa.timestamp("us"))
    key_column = pa.array(keys if keys is not None else [0] * len(values), pa.int64())
    batch = pa.record_batch([key_column, times_column, values], names=["k", "t", "v"])
    aggregates = [(kind, kind, None if kind == "count" else "v") for kind in kinds]
    table = WindowTable(batch.schema, ["k"], "t", aggregates, 1_000_000, 1_000_000)
    table.accumulate(Batch.from_arrow(batch))
    table.advance(MAX_TIME)
    result = table.emit()
    assert result is not None
    result.to_arrow().validate(full=True)
    return {kind: result.to_arrow().column(kind) for kind in kinds}


NUMBERS = [
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    *(pa.float16(), pa.float32(), pa.float64()),
    *(pa.decimal32(5, 2), pa.decimal64(12, 2), pa.decimal128(20, 2), pa.decimal128(38, 6)),
]
ORDERED = [
    *(pa.bool_(), pa.date32(), pa.date64(), pa.time32("ms"), pa.time64("ns")),
    *(pa.timestamp("s"), pa.timestamp("ns", "UTC"), pa.duration("us")),
]


@pytest.mark.parametrize("data_type", NUMBERS, ids=str)
@pytest.mark.parametrize("encoded", [False, True], ids=["plain", "dictionary"])
def test_every_number_type_has_every_aggregate(data_type: pa.DataType, encoded: bool) -> None:
    numbers = [1, 100, None, 7, 7, 0] if str(data_type).startswith("uint") else [-100, 1, 100, None, 7, 7, 0]
    if pa.types.is_decimal(data_type):
        column = pa.array([None if number is None else Decimal(number) for number in numbers], data_type)
    else:
        column = pa.array(
            [None if number is None else data_type.to_pandas_dtype()(number) for number in numbers], data_type
        )
    if encoded:
        column = pa.DictionaryArray.from_arrays(
            pa.array([None if number is None else place for place, number in enumerate(numbers)], pa.int32()), column
        )
    results = one_window(column, AGGREGATE_KINDS)
    for kind, result in results.items():
        assert result.type == aggregate_result_type(kind, None if kind == "count" else column.type)
        exact = aggregate(kind, [None if number is None else Fraction(number) for number in numbers])
        assert float(result[0].as_py()) == pytest.approx(float(exact), rel=1e-6 if kind == "mean" else 1e-12)


@pytest.mark.parametrize("data_type", ORDERED, ids=str)
def test_times_and_booleans_have_a_least_and_a_greatest(data_type: pa.DataType) -> None:
    if pa.types.is_boolean(data_type):
        column, least, greatest = pa.array([None, True, False]), False, True
    elif data_type == pa.date64():
        column, least, greatest = (
            pa.array([86_400_000, None, -86_400_000], pa.int64()).cast(data_type),
            -86_400_000,
            86_400_000,
        )
    else:
        storage = pa.int32() if data_type.bit_width == 32 else pa.int64()
        column, least, greatest = pa.array([7, None, 2, 90_000], storage).cast(data_type), 2, 90_000
    results = one_window(column, ["min", "max", "count_values"])
    assert results["min"].type == results["max"].type == data_type
    storage = pa.bool_() if pa.types.is_boolean(data_type) else pa.int32() if data_type.bit_width == 32 else pa.int64()
    assert results["min"].view(storage).to_pylist() == [least]
    assert results["max"].view(storage).to_pylist() == [greatest]
    assert results["count_values"].to_pylist() == [len(column) - 1]


@pytest.mark.parametrize("data_type", [*NUMBERS, *ORDERED], ids=str)
def test_a_window_of_nulls_gives_null_and_counts_no_value(data_type: pa.DataType) -> None:
    kinds = AGGREGATE_KINDS if data_type in NUMBERS else ("count", "count_values", "min", "max")
    for kind, result in one_window(pa.nulls(3, data_type), kinds).items():
        assert result.to_pylist() == [{"count": 3, "count_values": 0}.get(kind)]


def test_values_of_any_type_can_be_counted() -> None:
    for column in (
        pa.array(["a", None, "b"]),
        pa.array([[1], None, []]),
        pa.array([{"x": 1}, None, {"x": 2}]),
        pa.array(["a", None, "a"]).dictionary_encode(),
    ):
        assert one_window(column, ["count", "count_values"])["count_values"].to_pylist() == [2]
    assert one_window(pa.nulls(3), ["count", "count_values"])["count_values"].to_pylist() == [0]


@pytest.mark.parametrize("kind", ["var_samp", "stddev_samp"])
def test_sample_variance_of_one_value_is_null_as_in_spark(kind: str) -> None:
    assert one_window(pa.array([5.0, None]), [kind])[kind].to_pylist() == [None]
    assert one_window(pa.array([5.0]), ["var_pop", "stddev_pop"])["var_pop"].to_pylist() == [0.0]


def test_nan_is_greater_than_every_number() -> None:
    results = one_window(pa.array([math.inf, math.nan, 1.0]), ["min", "max"])
    assert results["min"].to_pylist() == [1.0]
    assert math.isnan(results["max"][0].as_py())
    assert math.isnan(one_window(pa.array([math.nan]), ["min"])["min"][0].as_py())


def test_decimal_means_are_rounded_half_up_away_from_zero() -> None:
    for sign in (1, -1):
        column = pa.array(
            [Decimal(sign), Decimal(0), Decimal(0), Decimal(0), Decimal(0), Decimal(0)], pa.decimal128(38, 4)
        )
        assert one_window(column, ["mean"])["mean"].to_pylist() == [sign * Decimal("0.16666667")]
        column = pa.array([sign * Decimal("0.01"), *[Decimal(0)] * 15], pa.decimal64(10, 2))  # 0.000625
        assert one_window(column, ["mean"])["mean"].to_pylist() == [sign * Decimal("0.000625")]
        column = pa.array([sign * Decimal("0.01"), *[Decimal(0)] * 31], pa.decimal64(10, 2))  # 0.0003125
        assert one_window(column, ["mean"])["mean"].to_pylist() == [sign * Decimal("0.000313")]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            pa.array([2**63 - 1, 1]),
            r"aggregate 'sum': sum of 'v' does not fit int64 for key k=0 in the window \[1970-01-01T",
        ),
        (pa.array([-(2**63), -1]), "does not fit int64"),
        (pa.array([2**63], pa.uint64()), "does not fit int64"),
        (pa.array([Decimal(9 * 10**37)] * 2, pa.decimal128(38, 0)), r"does not fit decimal128\(38, 0\)"),
        (pa.array([Decimal(9 * 10**37)] * 4, pa.decimal128(38, 0)), r"does not fit decimal128\(38, 0\)"),  # past 2^128
    ],
)
def test_a_sum_that_does_not_fit_is_an_error_naming_key_and_window(values: pa.Array, message: str) -> None:
    with pytest.raises(OverflowError, match=message):
        one_window(values, ["sum"])


def test_sums_may_pass_the_limits_on_the_way() -> None:
    assert one_window(pa.array([2**63 - 1, 5, -6]), ["sum", "mean"])["sum"].to_pylist() == [2**63 - 2]
    big = Decimal(9 * 10**37)
    assert one_window(pa.array([big, big, -big, -big, Decimal(1)], pa.decimal128(38, 0)), ["sum"])[
        "sum"
    ].to_pylist() == [1]


@pytest.mark.parametrize("kind", [kind.value for kind in AggregateKind])
def test_kinds_and_result_types_are_those_of_the_api(kind: str) -> None:
    assert kind in AGGREGATE_KINDS
    for data_type in (*NUMBERS, *ORDERED, pa.string(), pa.decimal256(40, 2), pa.month_day_nano_interval()):
        try:
            wanted = result_type(AggregateKind(kind), data_type)
        except TypeError as error:
            schema = pa.schema([("t", pa.date32()), ("v", data_type)])
            with pytest.raises(TypeError, match=re.escape(str(error))):
                WindowTable(schema, [], "t", [("a", kind, "v")], 10, 10)
        else:
            table = WindowTable(pa.schema([("t", pa.date32()), ("v", data_type)]), [], "t", [("a", kind, "v")], 10, 10)
            assert table.output_schema.field("a").type == wanted


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
