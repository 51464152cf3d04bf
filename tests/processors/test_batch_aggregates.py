"""Aggregates over batches, in windows of every kind, verified in every mode against lists of rows (SEMANTICS 2)."""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jetfast as jf
from jetfast.core.aggregate import AggregateColumn, AggregateKind, BatchAggregateColumn
from jetfast.core.aggregates.extremes import Extremes
from jetfast.core.batch import Batch
from jetfast.core.items import IDLE, Watermark, one_by_one
from jetfast.core.processor import ProcessorContext
from jetfast.core.windows import SessionWindow, Window
from jetfast.processors.accumulate_by_frame import AccumulateByFrame
from jetfast.processors.combine_frames import CombineFrames
from jetfast.processors.early_results import EarlyResults
from jetfast.processors.session_window import SessionWindowProcessor
from jetfast.processors.sliding_window import SlidingWindowProcessor
from jetfast.testing import verify_processor
from jetfast.types import MAX_TIME
from tests.processors.slow_aggregates import SlowWindows, as_time, results_of

SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("time", pa.timestamp("us")),
        ("x", pa.float64()),
        ("s", pa.dictionary(pa.int8(), pa.string())),
        ("i", pa.int32()),
        ("j", pa.float32()),
    ]
)
QUANTILE_ERROR = 0.01


class Span(jf.BatchAggregate):
    """Greatest less least, null without values: a user's aggregate over all groups at once."""

    STATE = pa.struct([("least", pa.int32()), ("greatest", pa.int32())])

    def state_type(self, inputs: pa.Schema) -> pa.DataType:
        return self.STATE

    def result_type(self, inputs: pa.Schema) -> pa.DataType:
        return pa.int32()

    def of(self, least: pa.Array, greatest: pa.Array, groups: Any, group_count: int) -> pa.Array:
        assert sorted(set(groups.tolist())) == list(range(group_count))  # every group has rows
        known = least.is_valid().to_numpy(zero_copy_only=False)
        lows, highs = np.full(group_count, 2**31 - 1), np.full(group_count, -(2**31))
        np.minimum.at(lows, groups[known], least.drop_null().to_numpy())
        np.maximum.at(highs, groups[known], greatest.drop_null().to_numpy())
        columns = [pa.array(column, pa.int32(), mask=lows > highs) for column in (lows, highs)]
        return pa.StructArray.from_arrays(columns, fields=list(self.STATE))

    def accumulate(self, rows: pa.RecordBatch, groups: Any, group_count: int) -> pa.Array:
        assert rows.schema.names == ["i"]
        return self.of(rows["i"], rows["i"], groups, group_count)

    def combine(self, states: pa.Array, groups: Any, group_count: int) -> pa.Array:
        return self.of(states.field(0), states.field(1), groups, group_count)

    def export(self, states: pa.Array) -> pa.Array:
        return pc.subtract(states.field(1), states.field(0))


def total_by_functions(deducts: bool) -> jf.aggregate:
    """A sum, made of functions over one group."""
    return jf.aggregate(
        "i",
        create=lambda: 0,
        accumulate=lambda state, rows: state + sum(value for value in rows["i"].to_pylist() if value is not None),
        combine=lambda left, right: left + right,
        deduct=(lambda state, leaving: state - leaving) if deducts else None,
        state=pa.int64(),
    )


def columns_of(**aggregates: Any) -> list[Any]:
    """What processors take, for what users write."""
    columns: list[Any] = []
    for name, aggregate in aggregates.items():
        if isinstance(aggregate.function, AggregateKind):
            columns.append(AggregateColumn(name, aggregate.function, *aggregate.columns))
        else:
            columns.append(BatchAggregateColumn(name, aggregate.function, aggregate.columns))
    return columns


AGGREGATES = columns_of(
    first=jf.first("x"),
    rows=jf.count(),
    last=jf.last("x"),
    last_known=jf.last("x", ignore_nulls=True),
    top=jf.top_n("x", 2),
    bottom=jf.bottom_n("x", 3),
    top_rows=jf.top_n(["s", "i"], 2, by="x"),
    bottom_rows=jf.bottom_n("s", 2, by="x"),
    distinct=jf.count_distinct("x"),
    about=jf.approx_count_distinct("s", error=0.01),
    middle=jf.quantile("x", 0.5, error=QUANTILE_ERROR),
    ends=jf.quantiles("x", [0, 1], error=QUANTILE_ERROR),
    trend=jf.linear_trend("j", "i"),
    trend_in_time=jf.linear_trend("i"),
    texts=jf.collect_list("s"),
    set=jf.collect_set("s"),
    least=Extremes(greatest=False).over("s"),
    greatest=Extremes(greatest=True).over("s"),
    joined=jf.concat("s", "-"),
    span=Span().over("i"),
    total=total_by_functions(deducts=True),
)
WINDOWS = {
    "tumbling": Window(size_us=4, slide_us=4, offset_us=1),
    "sliding": Window(size_us=8, slide_us=2),
    "session": SessionWindow(3),
}


def processor_of(window: Any, keys: list[str], aggregates: list[Any] = AGGREGATES) -> Any:
    kind = SessionWindowProcessor if isinstance(window, SessionWindow) else SlidingWindowProcessor
    return kind(SCHEMA, keys, "time", aggregates, window)


def record(*rows: tuple[Any, ...]) -> pa.RecordBatch:
    """Rows (key, time in microseconds, x, s, i) and j = a small number made of s, as a slice of a longer batch."""
    padded = [(*row, None if row[3] is None else ord(row[3][:1] or "_") % 7) for row in (rows[0], *rows)]
    columns = list(zip(*padded, strict=True))
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    return pa.record_batch(arrays, schema=SCHEMA).slice(1)


def close(found: float | None, wanted: float | None, error: float) -> bool:
    if found is None or wanted is None or not math.isfinite(wanted):
        return repr(found) == repr(wanted)
    return abs(found - wanted) <= error


class Rounded:
    """Makes results comparable: one that is as near to the exact result as it must be is given as that."""

    def __init__(self, wanted: list[Any]) -> None:
        self.wanted = {self.place(row): row for row in wanted if isinstance(row, dict)}

    @staticmethod
    def place(row: dict[str, Any]) -> tuple[Any, ...]:
        return row.get("key"), row["window_start"], row["window_end"]

    def __call__(self, output: list[Any]) -> Any:
        rows = [repr(sorted(self.row(item).items())) for item in output if isinstance(item, dict)]
        return sorted(rows) + [repr(item) for item in output if not isinstance(item, dict)]

    def row(self, row: dict[str, Any]) -> dict[str, Any]:
        exact = self.wanted.get(self.place(row))
        if exact is None:
            return row
        row = dict(row)
        for name, size in (("middle", QUANTILE_ERROR), ("trend", 1e-9), ("trend_in_time", 1e-3)):
            relative = abs(exact[name] or 0) * size if name == "middle" else size
            if close(row[name], exact[name], relative):
                row[name] = exact[name]
        ends = zip(row["ends"] or [], exact["ends"] or [], strict=False)
        if exact["ends"] is not None and all(close(one, other, abs(other) * QUANTILE_ERROR) for one, other in ends):
            row["ends"] = exact["ends"]
        return row


INPUTS = [
    record(("a", 1, 1.5, "u", 1), ("b", 3, None, "v", 2), ("a", 5, -2.0, None, 3), ("a", 1, 7.0, "w", 4)),
    Watermark(4),
    record(("a", 3, 4.0, "x", 5), ("c", -20, 5.0, "y", 6), (None, 6, -0.0, "u", 7), ("a", 7, math.nan, "u", None)),
    IDLE,
    record(("b", 9, 4.0, "v", 8), ("b", 4, 0.0, "v", -9)),
    Watermark(9),
    record(("a", 8, 1e300, "z", 10), ("a", 4, math.inf, "z", 11), ("b", 9, -1e-300, "a", 11)),
    Watermark(12),
    record(("a", 10, 2.0, "q", 1), ("b", 13, None, None, None)),
    Watermark(30),
    record(("b", 31, 6.0, "r", 3), ("a", 29, 1.0, "s", 4)),
]


@st.composite
def streams(draw: st.DrawFn) -> list[Any]:
    """Rows in disorder, nulls among them, watermarks that follow the greatest time now and then."""
    numbers = st.sampled_from([None, 0.0, -0.0, 1.5, -2.0, 1e-300, 1e300, math.inf, -math.inf, math.nan])
    texts = st.sampled_from([None, "", "u", "v", "w"])
    wholes = st.one_of(st.none(), st.integers(-9, 9))
    inputs: list[Any] = []
    watermark = position = 0
    for _ in range(draw(st.integers(1, 7))):
        kind = draw(st.sampled_from(["rows", "rows", "rows", "watermark", "idle", "gap"]))
        if kind == "rows":
            row = st.tuples(
                st.sampled_from(["a", "b", None]), st.integers(-12, 8).map(position.__add__), numbers, texts, wholes
            )
            inputs.append(record(*draw(st.lists(row, min_size=1, max_size=6))))
        elif kind == "watermark":
            watermark += draw(st.integers(1, 9))
            position = max(position, watermark)
            inputs.append(Watermark(watermark))
        elif kind == "idle":
            inputs.append(IDLE)
        else:
            position += draw(st.integers(1, 1000))
    return inputs


def verify(window: Any, keys: list[str], inputs: list[Any]) -> None:
    wanted = SlowWindows(window, keys).run(inputs)
    verify_processor(
        lambda: processor_of(window, keys),
        inputs,
        wanted,
        keys=keys or None,
        normalize=Rounded(wanted),
        connected_ports=(0,),
        partition_count=5,
    )


@pytest.mark.parametrize(
    ("kind", "keys"),
    [pytest.param("tumbling", [], marks=pytest.mark.simulation), ("sliding", ["key"]), ("session", ["key"])],
)
def test_every_aggregate_equals_its_definition_in_every_mode(kind, keys):
    verify(WINDOWS[kind], keys, INPUTS)


@pytest.mark.simulation
@pytest.mark.parametrize("keys", [["key"], []], ids=["by key", "global"])
@pytest.mark.parametrize("kind", WINDOWS)
@settings(max_examples=20, deadline=None)
@given(inputs=streams())
def test_every_aggregate_equals_its_definition_on_random_streams(kind, keys, inputs):
    verify(WINDOWS[kind], keys, inputs)


def run(processor: Any, inputs: list[Any]) -> list[dict[str, Any]]:
    """Rows that leave, of inputs and the end."""
    processor.open(ProcessorContext("window", connected_ports=frozenset({0})))
    return rows_of(outputs_of(processor, inputs))


def rows_of(output: Iterable[Any]) -> list[dict[str, Any]]:
    return [row for batch in one_by_one(output) for row in batch.to_arrow().to_pylist()]


def outputs_of(processor: Any, inputs: list[Any]) -> list[Batch]:
    batches: list[Batch] = []
    for item in inputs:
        if isinstance(item, Watermark):
            batches += processor.process_watermark(item.value)
        elif item is IDLE:
            batches += processor.process_idle()
        else:
            batches += processor.process(0, item if isinstance(item, Batch) else Batch.from_arrow(item))
    batches += processor.complete()
    return list(one_by_one(batches))


def in_two_stages(window: Window, keys: list[str], inputs: list[Any], first_stages: int = 1) -> list[dict[str, Any]]:
    """Rows go to several first stages in turn; all partials of a watermark go on before it does."""
    firsts = [AccumulateByFrame(SCHEMA, keys, "time", AGGREGATES, window) for _ in range(first_stages)]
    second = CombineFrames(SCHEMA, keys, "time", AGGREGATES, window)
    for number, first in enumerate(firsts):
        first.open(ProcessorContext("first", local_index=number))
    second.open(ProcessorContext("second", connected_ports=frozenset({0})))
    rows: list[dict[str, Any]] = []
    number = 0
    for item in [*inputs, Watermark(MAX_TIME)]:
        if item is IDLE or isinstance(item, Watermark):
            for first in firsts:
                for partials in one_by_one(
                    first.process_idle() if item is IDLE else first.process_watermark(item.value)
                ):
                    assert partials.schema.equals(first.partial_schema)
                    assert list(second.process(0, Batch.decode(partials.schema, b"".join(partials.encode())))) == []
            if isinstance(item, Watermark):
                rows += rows_of(second.process_watermark(item.value))
        else:
            firsts[number % first_stages].process(0, Batch.from_arrow(item))
            number += 1
    return rows


@pytest.mark.parametrize("kind", ["tumbling", "sliding"])
def test_two_stages_give_what_one_gives(kind):
    wanted = SlowWindows(WINDOWS[kind], ["key"]).run(INPUTS)
    comparable = Rounded(wanted)
    found = in_two_stages(WINDOWS[kind], ["key"], INPUTS)
    assert comparable(found) == comparable([row for row in wanted if isinstance(row, dict)])


def test_state_that_one_stage_saved_goes_on_in_two():
    window, half = WINDOWS["sliding"], 5
    wanted = SlowWindows(window, ["key"]).run(INPUTS)
    rows: list[dict[str, Any]] = []
    before = processor_of(window, ["key"])
    before.open(ProcessorContext("window", connected_ports=frozenset({0}), partition_count=7))
    for item in INPUTS[:half]:
        if isinstance(item, Watermark):
            rows += rows_of(before.process_watermark(item.value))
        elif item is not IDLE:
            before.process(0, Batch.from_arrow(item))
    after = CombineFrames(SCHEMA, ["key"], "time", AGGREGATES, window)
    after.open(ProcessorContext("window", connected_ports=frozenset({0}), partition_count=7))
    for state in before.save_snapshot():
        after.restore_snapshot(state)
    after.finish_restore()
    first = AccumulateByFrame(SCHEMA, ["key"], "time", AGGREGATES, window)
    first.open(ProcessorContext("first"))
    for item in [*INPUTS[half:], Watermark(MAX_TIME)]:
        partials = []
        if isinstance(item, Watermark):
            partials = list(one_by_one(first.process_watermark(item.value)))
        elif item is not IDLE:
            first.process(0, Batch.from_arrow(item))
        for each in partials:
            after.process(0, each)
        if isinstance(item, Watermark):
            rows += rows_of(after.process_watermark(item.value))
    comparable = Rounded(wanted)
    assert comparable(rows) == comparable([row for row in wanted if isinstance(row, dict)])


@pytest.mark.parametrize("kind", WINDOWS)
def test_early_results_are_what_the_end_would_give_now(kind):
    window = WINDOWS[kind]
    now = 0
    processor = EarlyResults(processor_of(window, ["key"]), 10)
    processor.open(ProcessorContext("window", now_us=lambda: now, connected_ports=frozenset({0})))
    taken: list[Any] = []
    for item in INPUTS[:6]:
        taken.append(item)
        if isinstance(item, Watermark):
            list(processor.process_watermark(item.value))
        elif item is not IDLE:
            list(processor.process(0, Batch.from_arrow(item)))
    now = 10
    early = [row for batch in processor.process_silence() for row in batch.to_arrow().to_pylist()]
    slow = SlowWindows(window, ["key"])
    slow.run(taken)
    wanted = [row for row in slow.output[slow.output.index(INPUTS[5]) + 1 :] if isinstance(row, dict)]
    assert wanted
    assert {row.pop("is_early") for row in early} == {True}
    assert Rounded(wanted)(early) == Rounded(wanted)(wanted)


@pytest.mark.parametrize(
    ("window", "results_min"),
    [(Window(size_us=1000, slide_us=50), 450), (Window(size_us=100, slide_us=100), 200), (SessionWindow(8), 500)],
    ids=str,
)
def test_many_batches_give_what_the_rows_of_each_window_give(window, results_min):
    random = np.random.default_rng(7)
    count = 2000
    times = np.sort(random.integers(0, 5000, count)) + random.integers(-30, 31, count)
    table = pa.record_batch(
        [
            pa.array([f"k{number}" for number in random.integers(0, 5, count)]),
            pa.array(times).cast(pa.timestamp("us")),
            pa.array(random.normal(size=count), mask=random.random(count) < 0.1),
            pa.array([f"t{number}" for number in random.integers(0, 9, count)])
            .dictionary_encode()
            .cast(SCHEMA.field("s").type),
            pa.array(random.integers(-50, 50, count), pa.int32()),
            pa.array(random.integers(0, 9, count), pa.float32()),
        ],
        schema=SCHEMA,
    )
    chosen = ("last", "top", "distinct", "texts", "about", "middle")
    aggregates = [aggregate for aggregate in AGGREGATES if aggregate.name in chosen]
    inputs: list[Any] = []
    for first in range(0, count, 50):
        inputs.append(table.slice(first, 50))
        inputs.append(Watermark(max(int(times[: first + 50].max()) - 62, len(inputs))))
    found = run(processor_of(window, ["key"], aggregates), inputs)
    rows = table.set_column(1, "time", table["time"].cast(pa.int64())).to_pylist()
    by_key: dict[str, list[Any]] = {}
    for row in rows:
        by_key.setdefault(row["key"], []).append(row)
    assert len(found) > results_min
    less = window.timeout_us - 1 if isinstance(window, SessionWindow) else 0
    for result in found[:: max(len(found) // 60, 1)]:
        start, end = (int(pa.scalar(result[name], pa.timestamp("us")).value) for name in ("window_start", "window_end"))
        wanted = results_of([row for row in by_key[result["key"]] if start <= row["time"] < end - less])
        assert close(result["middle"], wanted["middle"], abs(wanted["middle"] or 0) * QUANTILE_ERROR)
        for name in ("last", "top", "distinct", "texts", "about"):
            assert result[name] == wanted[name], (name, start)


def test_frames_of_another_slide_move_to_the_next_boundary_and_leave_whole():
    old, new = Window(size_us=10, slide_us=5), Window(size_us=9, slide_us=3)
    chosen = ("texts", "distinct", "ends", "about", "top")
    aggregates = [aggregate for aggregate in AGGREGATES if aggregate.name in chosen]
    random = np.random.default_rng(5)

    def drawn(first: int, last: int) -> list[tuple[Any, ...]]:
        return [("a", int(time), float(time % 5), f"t{time}", 0) for time in random.integers(first, last, 40)]

    before, after = drawn(0, 20), drawn(10, 40)
    processor = processor_of(old, ["key"], aggregates)
    processor.open(ProcessorContext("window", connected_ports=frozenset({0}), partition_count=3))
    list(processor.process(0, Batch.from_arrow(record(*before))))
    upgraded = processor_of(new, ["key"], aggregates)
    upgraded.open(ProcessorContext("window", connected_ports=frozenset({0}), partition_count=3))
    for state in processor.save_snapshot():
        upgraded.restore_snapshot(state)
    upgraded.finish_restore()
    after.sort(key=lambda row: row[1] < 12, reverse=True)  # none of them misses a window
    times = sum(row[1] < 12 for row in after)
    inputs = [record(*after[:times]), Watermark(12), record(*after[times:])]
    found = {row["window_end"]: row for batch in outputs_of(upgraded, inputs) for row in batch.to_arrow().to_pylist()}
    frames = [(-(-old.frame_of(row[1]) // 3) * 3, row) for row in before]
    frames += [(new.frame_of(row[1]), row) for row in after]
    ends = sorted({frame + step for frame, _ in frames for step in (0, 3, 6)})
    assert list(found) == [as_time(end) for end in ends]
    for end in ends:
        rows = [
            {"time": row[1], "x": row[2], "s": row[3], "i": row[4], "j": 0.0}
            for frame, row in frames
            if end - new.size_us < frame <= end
        ]
        wanted = results_of(rows)
        for name in ("texts", "distinct", "about", "top"):
            assert found[as_time(end)][name] == wanted[name], (end, name)
