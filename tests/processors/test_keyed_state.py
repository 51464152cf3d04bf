"""First rows, running aggregates and functions with state against slow twins: every mode of verify_processor."""

import math
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetfast.core.aggregate import AggregateColumn, AggregateKind, BatchAggregateColumn
from jetfast.core.aggregates.extremes import Extremes, needs_extremes
from jetfast.core.batch import Batch
from jetfast.core.batch_aggregate import plain_type
from jetfast.core.items import Watermark
from jetfast.core.keyed_input import KeyedInput
from jetfast.core.processor import ProcessorContext
from jetfast.errors import JobFailedError
from jetfast.processors import map_stateful
from jetfast.processors.drop_duplicates import DropDuplicates
from jetfast.processors.map_stateful import MapStateful
from jetfast.processors.rolling_aggregate import RollingAggregate
from jetfast.testing import verify_processor
from jetfast.types import MAX_TIME, MIN_TIME

SCHEMA = pa.schema([("k", pa.string()), ("t", pa.timestamp("us")), ("v", pa.int64()), ("w", pa.float64())])
LATE = tuple(SCHEMA.names)
ROWS = st.lists(
    st.tuples(
        st.sampled_from([None, "a", "b"]),
        st.integers(0, 30),
        st.none() | st.integers(-5, 5),
        st.none() | st.sampled_from([0.5, -2.0, math.nan]),
    ),
    min_size=1,
    max_size=6,
)
EVENTS = st.lists(ROWS | st.integers(1, 12), max_size=8)
"""Rows (k, t, v, w), or by how much the watermark advances."""
TTL = st.sampled_from([None, 1, 7])


def rows_of(rows):
    return pa.RecordBatch.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], schema=SCHEMA)


def keyed(ttl, columns=tuple(SCHEMA.names), late=False):
    return KeyedInput(SCHEMA, ("k",), columns, None if ttl is None else "t", late_columns=LATE if late else ())


def verify(supplier, step, events):
    """Run a processor and its twin, which takes rows one by one and hears of watermarks."""
    inputs, expected, watermark = [], [], -3
    for event in events:
        if isinstance(event, int):
            watermark += event
            inputs.append(Watermark(watermark))
            expected += [*step.advance(watermark), Watermark(watermark)]
        else:
            inputs.append(rows_of(event))
            for row in event:
                expected += step.take(*row)
    expected += step.advance(MAX_TIME)
    found = verify_processor(supplier, inputs, keys=["k"], ordered=False, connected_ports=(0,), partition_count=5)
    assert normal(found) == normal(expected)


def normal(output):
    parts, rows = [], []
    for item in output:
        if isinstance(item, dict):
            rows.append(str({name: plain(value) for name, value in item.items()}))
        else:
            parts += [*sorted(rows), item]
            rows = []
    return [*parts, *sorted(rows)]


def plain(value):
    return int(np.datetime64(value, "us").astype(np.int64)) if hasattr(value, "year") else value


class SlowState:
    """One state for each key, a row at a time; it ends when no row of the key came for more than the ttl."""

    def __init__(self, ttl):
        self.ttl = ttl
        self.watermark = MIN_TIME
        self.states, self.seen = {}, {}

    def take(self, key, time, value, weight):
        if self.ttl is not None and time < self.watermark:
            return []
        ended = self.end(key) if self.has_ended(key, time) else []
        self.seen[key] = max(time, self.seen.get(key, time))
        return [*ended, *self.row(key, time, value, weight)]

    def has_ended(self, key, time):
        return self.ttl is not None and key in self.seen and time > self.seen[key] + self.ttl

    def end(self, key):
        output = self.evicted(key, self.states[key], self.seen[key] + (self.ttl or 0)) if key in self.states else []
        self.states.pop(key, None)
        del self.seen[key]
        return output

    def advance(self, watermark):
        self.watermark = watermark
        ended = [key for key in list(self.seen) if self.has_ended(key, watermark) or watermark == MAX_TIME]
        return [row for key in ended for row in self.end(key)]

    def evicted(self, key, state, time):
        return []


class SlowFirst(SlowState):
    """Only rows that are kept count as seen."""

    def take(self, key, time, value, weight):
        if self.ttl is not None and time < self.watermark:
            return []
        if key in self.seen and not self.has_ended(key, time):
            return []
        self.seen[key] = time
        return [{"k": key, "t": time, "v": value, "w": weight}]


@settings(max_examples=40, deadline=None)
@given(EVENTS, TTL)
def test_the_first_row_of_a_key_leaves_and_again_one_beyond_the_horizon(events, horizon):
    verify(lambda: DropDuplicates(keyed(horizon), horizon), SlowFirst(horizon), events)


class SlowRunning(SlowState):
    def row(self, key, time, value, weight):
        rows = self.states.setdefault(key, [])
        rows.append((value, weight))
        values = [value for value, _ in rows if value is not None]
        weights = [weight for _, weight in rows if weight is not None]
        made = {
            "n": len(rows),
            "values": len(values),
            "total": sum(values) if values else None,
            "mean": sum(values) / len(values) if values else None,
            "low": min(weights, key=lambda weight: (math.isnan(weight), weight)) if weights else None,
            "high": max(weights, key=lambda weight: (math.isnan(weight), weight)) if weights else None,
            "weight": sum(weights) if weights else None,
        }
        return [{"k": key, "t": time, **made}]


AGGREGATES = [
    AggregateColumn("n", AggregateKind.COUNT),
    AggregateColumn("values", AggregateKind.COUNT_VALUES, "v"),
    AggregateColumn("total", AggregateKind.SUM, "v"),
    AggregateColumn("mean", AggregateKind.MEAN, "v"),
    AggregateColumn("low", AggregateKind.MIN, "w"),
    AggregateColumn("high", AggregateKind.MAX, "w"),
    AggregateColumn("weight", AggregateKind.SUM, "w"),
]
INT, FLOAT = pa.int64(), pa.float64()
TYPES = [INT, INT, INT, FLOAT, FLOAT, FLOAT, FLOAT]
RUNNING = pa.schema([*list(SCHEMA)[:2], *(pa.field(a.name, t) for a, t in zip(AGGREGATES, TYPES, strict=True))])


@settings(max_examples=40, deadline=None)
@given(EVENTS, TTL)
def test_running_aggregates_are_those_of_the_rows_so_far_and_begin_anew_after_the_ttl(events, ttl):
    verify(lambda: RollingAggregate(keyed(ttl, ("k", "t")), AGGREGATES, RUNNING, ttl), SlowRunning(ttl), events)


RANKED = {
    pa.string(): ["b", "", "é", "ab"],
    pa.dictionary(pa.int8(), pa.string()): ["b", "", "é", "ab"],
    pa.string_view(): ["b", "", "é", "ab, which is longer than twelve bytes"],
    pa.large_binary(): [b"b", b"", b"\xff", b"ab"],
    pa.binary(2): [b"ba", b"\0\0", b"\xff\xff", b"bb"],
    pa.bool_(): [True, False],
    pa.uint64(): [2**64 - 1, 0, 5],
    pa.decimal32(9, 2): [Decimal("1.50"), Decimal("-1.50"), Decimal("0.00")],
    pa.decimal128(38, 2): [Decimal("1.50"), Decimal("-1.50"), Decimal(f"{10**30}.00")],
    pa.decimal256(60, 2): [Decimal("1.50"), Decimal("-1.50"), Decimal(f"{10**40}.00")],
}
"""Values that are compared by rank, by type."""


def extremes_of(data_type):
    """Running min and max of a column x."""
    if needs_extremes(data_type):
        least, greatest = (Extremes(greatest=greatest) for greatest in (False, True))
        return [BatchAggregateColumn("low", least, ("x",)), BatchAggregateColumn("high", greatest, ("x",))]
    return [AggregateColumn("low", AggregateKind.MIN, "x"), AggregateColumn("high", AggregateKind.MAX, "x")]


@pytest.mark.parametrize("data_type", RANKED, ids=str)
@settings(max_examples=10, deadline=None)
@given(data=st.data(), ttl=TTL)
def test_running_extremes_of_text_bytes_booleans_and_decimals(data_type, data, ttl):
    schema = pa.schema([("k", pa.string()), ("t", pa.timestamp("us")), ("x", data_type)])
    values = st.none() | st.sampled_from(RANKED[data_type])
    row = st.tuples(st.sampled_from([None, "a", "b"]), st.integers(0, 30), values)
    batches = data.draw(st.lists(st.lists(row, min_size=1, max_size=6), max_size=6))
    rows = KeyedInput(schema, ("k",), ("k", "t"), None if ttl is None else "t")
    plain_values = plain_type(data_type)
    result = pa.schema([*list(schema)[:2], ("low", plain_values), ("high", plain_values)])
    seen, expected = {}, []
    for key, time, value in (each for batch in batches for each in batch):
        last, held = seen.get(key, (time, []))
        held = [] if ttl is not None and time > last + ttl else held
        held += [] if value is None else [value]
        seen[key] = max(time, last), held
        expected.append({"k": key, "t": time, "low": min(held, default=None), "high": max(held, default=None)})
    inputs = [
        pa.record_batch(
            [pa.array([row[place] for row in batch], field.type) for place, field in enumerate(schema)], schema=schema
        )
        for batch in batches
    ]
    found = verify_processor(
        lambda: RollingAggregate(rows, extremes_of(data_type), result, ttl),
        inputs, keys=["k"], ordered=False, connected_ports=(0,), partition_count=5,
    )  # fmt: skip
    assert normal(found) == normal(expected)


RESULT = pa.schema([("k", pa.string()), ("t", pa.timestamp("us")), ("what", pa.string())])
STATE = pa.struct([("n", pa.int64()), ("values", pa.list_(pa.int64()))])


def collect(rows, groups, states):
    """Collects values; a key with a value of 5 is forgotten."""
    held = [state or {"n": 0, "values": []} for state in states.to_pylist()]
    made = []
    for row, group in zip(rows.to_pylist(), groups, strict=True):
        state = held[group] or {"n": 0, "values": []}
        held[group] = {"n": state["n"] + 1, "values": [*state["values"], *([row["v"]] if row["v"] is not None else [])]}
        made.append({"k": row["k"], "t": row["t"], "what": str(held[group])})
        if row["v"] == 5:
            held[group] = None
    return pa.RecordBatch.from_pylist(made, schema=RESULT), held


def tell(keys, states, times):
    made = [
        {"k": key["k"], "t": time, "what": f"ended {state}"}
        for key, state, time in zip(keys.to_pylist(), states.to_pylist(), times.to_pylist(), strict=True)
    ]
    return pa.RecordBatch.from_pylist(made, schema=RESULT)


class SlowCollect(SlowState):
    def row(self, key, time, value, weight):
        state = self.states.get(key, {"n": 0, "values": []})
        state = {"n": state["n"] + 1, "values": [*state["values"], *([value] if value is not None else [])]}
        self.states[key] = state
        if value == 5:
            del self.states[key], self.seen[key]
        return [{"k": key, "t": time, "what": str(state)}]

    def evicted(self, key, state, time):
        return [{"k": key, "t": None if self.ttl is None else time, "what": f"ended {state}"}]


@settings(max_examples=40, deadline=None)
@given(EVENTS, TTL)
def test_a_function_finds_the_state_of_each_key_and_hears_of_those_that_end(events, ttl):
    one_five = [event if isinstance(event, int) else [*filter(without_five, event[:-1]), event[-1]] for event in events]
    verify(lambda: MapStateful(keyed(ttl), collect, tell, STATE, RESULT, ttl), SlowCollect(ttl), one_five)


def without_five(row):
    """Within a batch a key that is forgotten would be known again by its time: only the last row may do it."""
    return row[2] != 5


def opened(processor, ports=(0,)):
    processor.open(ProcessorContext("keyed", connected_ports=frozenset(ports), partition_count=5))
    return processor


@pytest.mark.parametrize("restored", [False, True])
def test_rows_behind_the_watermark_are_late_if_there_is_a_time_to_live(restored):
    processor = opened(DropDuplicates(keyed(5, late=True), 5), (0, 1))
    list(processor.process_watermark(10))
    if restored:
        states = list(processor.save_snapshot())
        processor = opened(DropDuplicates(keyed(5, late=True), 5), (0, 1))
        for state in states:
            processor.restore_snapshot(state)
        processor.finish_restore()
    late, kept = processor.process(0, Batch.from_arrow(rows_of([("a", 9, 1, None), ("a", 10, 2, None)])))
    assert late.port == 1
    assert [(row["v"], row["missed_until"]) for row in late.batch.to_arrow().to_pylist()] == [(1, None)]
    assert kept.to_arrow().column("v").to_pylist() == [2]
    assert processor.door.counters["late_rows"] == 1


def test_keys_whose_time_to_live_has_passed_are_forgotten():
    processor = opened(DropDuplicates(keyed(8), 8))
    for time in range(0, 1000, 10):
        list(processor.process(0, Batch.from_arrow(rows_of([(f"k{time}", time, 1, None)]))))
        list(processor.process_watermark(time + 10))
        assert len(processor.index) <= 2
    assert len(processor.seen) == 64


def test_the_times_of_states_that_end_are_those_of_the_column_where_event_time_is_before_it():
    of_windows = KeyedInput(SCHEMA, ("k",), tuple(SCHEMA.names), "t", time_shift_us=-1)
    processor = opened(MapStateful(of_windows, collect, tell, STATE, RESULT, 5))
    list(processor.process(0, Batch.from_arrow(rows_of([("a", 10, 1, None)]))))
    assert list(processor.process_watermark(14)) == []
    (ended,) = processor.process_watermark(15)
    assert [plain(row["t"]) - 1 for row in ended.to_arrow().to_pylist()] == [14], "not behind the watermark before"


def test_states_that_were_replaced_are_let_go(monkeypatch):
    monkeypatch.setattr(map_stateful, "COMPACT_STATES", 10)
    processor = opened(MapStateful(keyed(None), collect, None, STATE, RESULT, None))
    for _ in range(50):
        list(processor.process(0, Batch.from_arrow(rows_of([("a", 1, 1, None), ("b", 1, 2, None)]))))
        assert len(processor.states) <= 2 * 2 + 10
    assert processor.take_states(processor.numbers[:2]).field("n").to_pylist() == [50, 50]


WRONG = [
    (lambda rows, groups, states: 1 / 0, "failed on 1 rows, the first of them {'k': 'a', .*ZeroDivisionError"),
    (lambda rows, groups, states: (None, [{"n": 1}, {"n": 2}]), "it returned 2 states; 1 are needed"),
    (lambda rows, groups, states: (None, pa.array([1])), "it returned states of int64; declared is struct"),
    (lambda rows, groups, states: (None, ["x"]), "the states that it returned are no struct"),
    (lambda rows, groups, states: (rows, states), "it returned the columns k, t, v, w; declared are k, t, what"),
]


@pytest.mark.parametrize(("function", "message"), WRONG)
def test_what_a_function_does_wrong_is_said(function, message):
    processor = opened(MapStateful(keyed(None), function, None, STATE, RESULT, None))
    with pytest.raises(JobFailedError, match=message):
        list(processor.process(0, Batch.from_arrow(rows_of([("a", 1, 1, None)]))))


def test_a_running_sum_that_does_not_fit_fails_by_name():
    processor = opened(RollingAggregate(keyed(None, ("k", "t")), AGGREGATES, RUNNING, None))
    with pytest.raises(JobFailedError, match="aggregate 'total': row 1: the sum does not fit 64 bits"):
        processor.process(0, Batch.from_arrow(rows_of([("a", 1, 2**63 - 1, None), ("a", 1, 1, None)])))
