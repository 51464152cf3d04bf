"""Joins by window, by interval and with a table, against slow twins: every mode of verify_processor, random inputs."""

from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetfast.core.batch import Batch
from jetfast.core.items import Emit, Watermark
from jetfast.core.joins import Join, JoinType
from jetfast.core.keyed_input import KeyedInput
from jetfast.core.processor import ProcessorContext
from jetfast.core.windows import Window
from jetfast.errors import JobDefinitionError
from jetfast.processors import kept_rows, window_join
from jetfast.processors.asof_join import AsofJoinProcessor
from jetfast.processors.hash_join import HashJoinProcessor
from jetfast.processors.interval_join import IntervalJoinProcessor
from jetfast.processors.row_store import RowStore
from jetfast.processors.window_join import WindowJoinProcessor
from jetfast.testing import verify_processor
from jetfast.testing.verify_processor import OnEdge
from jetfast.types import MAX_TIME
from tests.processors.join_reference import SlowAsofJoin, SlowIntervalJoin, SlowWindowJoin, joins, result

LEFT = pa.schema([("k", pa.int64()), ("t", pa.timestamp("us")), ("left_id", pa.string())])
RIGHT = pa.schema([("right_id", pa.int64()), ("k", pa.int64()), ("t", pa.timestamp("us"))])
KEYS_AND_IDS = [("k", pa.int64()), ("left_id", pa.string()), ("right_id", pa.int64())]
WINDOW = [("window_start", pa.timestamp("us")), ("window_end", pa.timestamp("us"))]


def join(how, *added, late=False):
    sides = (
        KeyedInput(LEFT, ("k",), ("left_id",), "t", late_columns=tuple(LEFT.names) if late else ()),
        KeyedInput(RIGHT, ("k",), ("right_id",), "t", late_columns=tuple(RIGHT.names) if late else ()),
    )
    return Join(sides, JoinType(how), pa.schema([*KEYS_AND_IDS, *added]))


def batch(side, rows):
    return pa.RecordBatch.from_pylist(rows, schema=(LEFT, RIGHT)[side])


ROWS = st.lists(st.tuples(st.sampled_from([None, 0, 1, 2]), st.integers(-12, 40)), min_size=1, max_size=6)
EVENTS = st.lists(st.tuples(st.integers(0, 1), ROWS) | st.integers(1, 15), max_size=8)
"""Rows (k, t) of a side, or by how much the watermark advances."""
HOW = st.sampled_from(["inner", "left", "right", "outer"])


def events_to_inputs(events):
    """What the processor takes, and what a slow twin takes."""
    inputs, watermark, number = [], -15, 0
    for event in events:
        if isinstance(event, int):
            watermark += event
            inputs.append(Watermark(watermark))
            continue
        side, rows = event
        named = []
        for key, time in rows:
            number += 1
            named.append(
                {"k": key, "t": time, "right_id": number} if side else {"k": key, "t": time, "left_id": f"l{number}"}
            )
        inputs.append((side, named))
    return inputs


def run_twin(twin, inputs):
    output = []
    for item in inputs:
        if isinstance(item, Watermark):
            output += twin.advance(item.value)
        else:
            for row in item[1]:
                output += twin.take(item[0], row)
    return output + twin.advance(MAX_TIME)


def verify(supplier, twin, events, **arguments):
    inputs = events_to_inputs(events)
    given = [item if isinstance(item, Watermark) else OnEdge(item[0], batch(*item)) for item in inputs]
    expected = run_twin(twin, inputs)
    found = verify_processor(
        supplier, given, keys=["k"], ordered=False, connected_ports=(0,), partition_count=5, **arguments
    )
    assert normal(found) == normal(expected)


def normal(output):
    """Rows between control items in one order, times as numbers."""
    parts, rows = [], []
    for item in output:
        if isinstance(item, dict):
            rows.append(str({name: microseconds(value) for name, value in sorted(item.items())}))
        else:
            parts += [*sorted(rows), item]
            rows = []
    return [*parts, *sorted(rows)]


def microseconds(value):
    return int(np.datetime64(value, "us").astype(np.int64)) if hasattr(value, "year") else value


@settings(max_examples=40, deadline=None)
@given(EVENTS, HOW, st.sampled_from([(10, 10), (12, 4), (3, 1)]), st.sampled_from([1, 5, window_join.GATHERED_ROWS]))
def test_a_window_join_pairs_what_its_slow_twin_pairs_however_many_windows_are_joined_at_once(
    events, how, window, gathered_rows
):
    size, slide = window
    twin = SlowWindowJoin(size, slide, JoinType(how).keeps)
    with mock.patch.object(window_join, "GATHERED_ROWS", gathered_rows):
        verify(lambda: WindowJoinProcessor(join(how, *WINDOW), Window(size, slide)), twin, events)


@settings(max_examples=40, deadline=None)
@given(EVENTS, HOW, st.sampled_from([(0, 0), (-3, 5), (2, 8), (-9, -2), (-60, 60)]))
def test_an_interval_join_pairs_what_its_slow_twin_pairs_and_makes_no_row_late(events, how, bounds):
    twin = SlowIntervalJoin(*bounds, JoinType(how).keeps)
    verify(
        lambda: IntervalJoinProcessor(join(how, ("time", pa.timestamp("us"))), *bounds),
        twin,
        events,
        event_time_us=lambda row: microseconds(row["time"]),
    )


@settings(max_examples=40, deadline=None)
@given(EVENTS, st.sampled_from(["left", "inner"]), st.sampled_from([None, 0, 6]))
def test_an_asof_join_finds_the_latest_row_that_is_not_after_and_makes_no_row_late(events, how, tolerance):
    reach = MAX_TIME if tolerance is None else tolerance
    sides = KeyedInput(LEFT, ("k",), ("left_id", "t"), "t"), KeyedInput(RIGHT, ("k",), ("right_id",), "t")
    schema = pa.schema([*KEYS_AND_IDS[:2], LEFT.field("t"), KEYS_AND_IDS[2]])
    verify(
        lambda: AsofJoinProcessor(Join(sides, JoinType(how), schema), tolerance),
        SlowAsofJoin(reach, how == "left"),
        events,
        event_time_us=lambda row: microseconds(row["t"]),
    )


@settings(max_examples=30, deadline=None)
@given(ROWS, st.lists(ROWS, max_size=3), st.sampled_from(["inner", "left"]))
def test_a_hash_join_pairs_each_row_with_all_of_the_table_that_have_its_key(table, streams, how):
    events = [(1, table), *((0, rows) for rows in streams)]
    inputs = events_to_inputs(events)
    found = verify_processor(
        lambda: HashJoinProcessor(join(how)),
        [OnEdge(side, batch(side, rows)) for side, rows in inputs],
        keys=["k"],
        ordered=False,
        partition_count=5,
    )
    expected = []
    for _, rows in inputs[1:]:
        for row in rows:
            matches = [result(row, other) for other in inputs[0][1] if joins(row, other)]
            expected += matches or ([result(row, None)] if how == "left" else [])
    assert normal(found) == normal(expected)


def opened(processor, ports=(0,)):
    context = ProcessorContext("join", connected_ports=frozenset(ports), partition_count=5)
    processor.open(context)
    return processor


def rows_of(side, *rows):
    return Batch.from_arrow(
        batch(side, [{"k": k, "t": t, ("right_id" if side else "left_id"): name} for k, t, name in rows])
    )


def test_late_rows_are_counted_by_what_they_missed_and_given_to_the_port_of_their_side():
    processor = opened(WindowJoinProcessor(join("inner", *WINDOW, late=True), Window(12, 4)), (0, 1, 2))
    list(processor.process_watermark(9))
    late = list(processor.process(1, rows_of(1, (1, -5, 1), (1, 1, 2), (1, 9, 3), (1, 3, 4))))
    assert [item.port for item in late] == [2]
    assert isinstance(late[0], Emit)
    found = late[0].batch.to_arrow().to_pylist()
    assert [(row["right_id"], microseconds(row["missed_until"])) for row in found] == [(1, 4), (2, 8), (4, 8)]
    assert processor.counters == {"on_time_rows": 1, "late_rows": 1, "partly_late_rows": 2, "rejected_rows": 0}


def test_a_row_behind_the_watermark_is_late_for_an_interval_join_and_has_missed_no_window():
    processor = opened(IntervalJoinProcessor(join("inner", ("time", pa.timestamp("us")), late=True), -5, 5), (0, 1, 2))
    list(processor.process_watermark(10))
    late = list(processor.process(0, rows_of(0, (1, 9, "a"), (1, 10, "b"))))
    assert [(item.port, item.batch.to_arrow().to_pylist()[0]["missed_until"]) for item in late] == [(1, None)]
    assert (processor.counters["on_time_rows"], processor.counters["late_rows"]) == (1, 1)


def test_rows_without_a_time_are_rejected_and_counted():
    processor = opened(WindowJoinProcessor(join("outer", *WINDOW), Window(10, 10)))
    processor.process(0, rows_of(0, (1, None, "a"), (1, 3, "b")))
    assert [row["left_id"] for part in processor.complete() for row in part.to_arrow().to_pylist()] == ["b"]
    assert processor.counters["rejected_rows"] == 1


def test_rows_that_nothing_can_meet_are_let_go(monkeypatch):
    monkeypatch.setattr(kept_rows, "COMPACT_ROWS", 100)
    processor = opened(IntervalJoinProcessor(join("inner", ("time", pa.timestamp("us"))), -10, 10))
    pairs = 0
    for start in range(0, 60_000, 5000):  # spans of the kernel have 4096 rows
        for side in (0, 1):
            rows = [(time % 7, time, time if side else str(time)) for time in range(start, start + 5000)]
            pairs += sum(part.row_count for part in processor.process(side, rows_of(side, *rows)))
        list(processor.process_watermark(start + 5000))
        assert all(len(kept.rows) <= 16_384 and len(kept.chains) == len(kept.rows) for kept in processor.kept)
    assert pairs == 3 * 60_000 - 2 * 7


def test_an_asof_join_keeps_the_latest_row_of_each_key_and_those_ahead(monkeypatch):
    monkeypatch.setattr(kept_rows, "COMPACT_ROWS", 50)
    processor = opened(AsofJoinProcessor(join("left"), None))
    for time in range(0, 3000, 10):
        list(processor.process(1, rows_of(1, *((key, time + key, time) for key in range(5)))))
        list(processor.process(0, rows_of(0, (3, time + 9, str(time)), (99 + time, time + 9, "z"))))
        found = [row for part in processor.process_watermark(time + 10) for row in part.to_arrow().to_pylist()]
        assert [(row["left_id"], row["right_id"]) for row in found] == [(str(time), time), ("z", None)]
        assert len(processor.kept.rows) <= 50 + 2 * 5 + 5
        assert len(processor.keys.index) <= 2 * (50 + 2 * 5) + 5
    kept = [state.rows.num_rows for state in processor.save_snapshot() if state.kind == "right rows"]
    assert sum(kept) == 5


def test_what_nobody_can_meet_is_not_in_the_state():
    processor = opened(IntervalJoinProcessor(join("inner", ("time", pa.timestamp("us"))), -10, 10))
    list(processor.process(0, rows_of(0, *((1, time, "x") for time in range(100)))))
    list(processor.process_watermark(100))
    kept = [state.rows.num_rows for state in processor.save_snapshot() if state.kind == "left rows"]
    assert sum(kept) == 10


def test_saved_rows_of_another_join_are_refused_by_name_of_the_column():
    processor = opened(WindowJoinProcessor(join("inner", *WINDOW), Window(10, 10)))
    processor.process(0, rows_of(0, (1, 3, "b")))
    states = list(processor.save_snapshot())
    other = opened(
        WindowJoinProcessor(Join((KeyedInput(RIGHT, ("k",), (), "t"),) * 2, JoinType.INNER, LEFT), Window(5, 5))
    )
    for state in states:
        other.restore_snapshot(state)
    with pytest.raises(JobDefinitionError, match="saved left rows have no column 'right_id'"):
        other.finish_restore()


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.randoms(use_true_random=False))
def test_rows_are_found_again_by_number_however_they_came(sizes, random):
    schema = pa.schema([("text", pa.string()), ("nested", pa.list_(pa.int64()))])
    store, texts = RowStore(schema), []
    for size in sizes:
        rows = [{"text": str(len(texts) + row), "nested": [row]} for row in range(size)]
        texts += [row["text"] for row in rows]
        store.append(Batch.from_arrow(pa.RecordBatch.from_pylist(rows, schema=schema)))
    assert len(store) == len(texts)
    numbers = [random.randrange(len(texts)) for _ in range(20)]
    taken = store.take(np.array(numbers, np.int32)).to_arrow()
    assert taken.column(0).to_pylist() == [texts[number] for number in numbers]
    assert len(store.batches) <= 5
