"""What tests of window and session tables share: rows, scripts, slow twins, and state that moves between tables."""

import math
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from jetfast.core.processor import BY_KEYS, StateBatch
from jetfast.core.state_sharing import share_state
from jetfast.kernels.columns import Batch
from jetfast.kernels.partitioning import assign_partitions
from jetfast.kernels.windows import ResultTable, WindowTable
from jetfast.types import MAX_TIME, MIN_TIME
from tests.kernels.reference_windows import ReferenceWindows, canonical

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


MakeTable = Callable[..., Any]
"""Makes a table; `partitions` are those that it owns."""
Check = Callable[[Any, Any], None]
"""Compares what a table gives with what its twin gives."""


def check_state_that_moves(
    make: MakeTable, slow: Any, keys: list[str], script: Any, owner_counts: list[int], check: Check
) -> None:
    """Before each step of a script the state moves to another number of tables."""
    tables = [make(partitions=owned_by(0, 1))]
    counted = np.zeros(3, np.int64)  # counts are not part of the state
    for number, step in enumerate(watermarks(script)):
        owners = owner_counts[number % len(owner_counts)]
        counted += row_counts(tables)
        state = saved_of(*tables)
        tables = [make(partitions=owned_by(owner, owners)) for owner in range(owners)]
        restore_all(tables, state, backwards=number % 2 == 1)
        if isinstance(step, int):
            found = {}
            for table in tables:
                table.advance(step)
                found.update(drain(table, keys))
            check(found, slow.advance(step))
        else:
            slow.accumulate(step)
            for table, part in zip(tables, split_by_owner(step, keys, owners), strict=True):
                if part:
                    table.accumulate(to_batch(part))
        assert (counted + row_counts(tables)).tolist() == [slow.rows, slow.late_rows, slow.partly_late_rows]


def tables_with_bounds_of_their_own(
    make: MakeTable, make_slow: Callable[[], Any], keys: list[str], script: Any, lags: list[int], check: Check
) -> tuple[list[Any], list[Any]]:
    """Two tables after a script, each with half of the partitions and a watermark that lags by another time; their
    twins.
    """
    slow = [make_slow() for _ in range(2)]
    tables = [make(partitions=owned_by(owner, 2)) for owner in range(2)]
    for step in watermarks(script)[:-1]:
        if isinstance(step, int):
            for owner, table in enumerate(tables):
                table.advance(step + lags[owner])
                check(drain(table, keys), slow[owner].advance(step + lags[owner]))
        else:
            for owner, part in enumerate(split_by_owner(step, keys, 2)):
                slow[owner].accumulate(part)
                if part:
                    tables[owner].accumulate(to_batch(part))
    return tables, slow
