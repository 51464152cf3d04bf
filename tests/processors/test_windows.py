"""The three window processors, verified in every mode against a plain definition of windows (SEMANTICS 2)."""

import math
from collections import defaultdict

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetfast.core.aggregate import AggregateColumn, AggregateKind
from jetfast.core.batch import Batch, BatchRun
from jetfast.core.items import IDLE, Watermark, one_by_one
from jetfast.core.processor import BROADCAST, ProcessorContext
from jetfast.core.state_sharing import share_state
from jetfast.core.windows import SessionWindow, Window
from jetfast.kernels.partitioning import assign_partitions
from jetfast.processors.accumulate_by_frame import AccumulateByFrame
from jetfast.processors.combine_frames import CombineFrames
from jetfast.processors.session_window import SessionWindowProcessor
from jetfast.processors.sliding_window import SlidingWindowProcessor
from jetfast.testing import OnPort, verify_processor
from jetfast.types import MIN_TIME

SCHEMA = pa.schema([("key", pa.string()), ("time", pa.timestamp("us")), ("value", pa.int64())])
AGGREGATES = [
    AggregateColumn("rows", AggregateKind.COUNT),
    AggregateColumn("total", AggregateKind.SUM, "value"),
    AggregateColumn("least", AggregateKind.MIN, "value"),
    AggregateColumn("greatest", AggregateKind.MAX, "value"),
    AggregateColumn("mean", AggregateKind.MEAN, "value"),
]
WINDOW = Window(size_us=6, slide_us=2)


def rows(*triples):
    """Rows (key, time in microseconds, value)."""
    keys, times, values = zip(*triples, strict=True) if triples else ((), (), ())
    return pa.record_batch(
        [pa.array(keys, pa.string()), pa.array(times, pa.timestamp("us")), pa.array(values, pa.int64())], schema=SCHEMA
    )


def time_us(value):
    return pa.scalar(value, pa.timestamp("us")).as_py()


def result(key, start, values):
    known = [value for value in values if value is not None]
    return {
        "key": key,
        "window_start": time_us(start),
        "window_end": time_us(start + WINDOW.size_us),
        "rows": len(values),
        "total": sum(known) if known else None,
        "least": min(known, default=None),
        "greatest": max(known, default=None),
        "mean": math.fsum(known) / len(known) if known else None,
    }


class SlowWindows:
    """One entry for each row and window; nothing clever."""

    def __init__(self):
        self.watermark = MIN_TIME
        self.windows = defaultdict(list)
        self.counts = {"on_time_rows": 0, "late_rows": 0, "partly_late_rows": 0, "rejected_rows": 0}
        self.output = []

    def take(self, key, time, value):
        if time is None:
            self.counts["rejected_rows"] += 1
            return
        ends = [WINDOW.frame_of(time) + step * WINDOW.slide_us for step in range(WINDOW.frames)]
        missed = [end for end in ends if end <= self.watermark]
        kind = "on_time_rows" if not missed else "late_rows" if len(missed) == len(ends) else "partly_late_rows"
        self.counts[kind] += 1
        for end in set(ends) - set(missed):
            self.windows[end, key].append(value)
        if missed:
            row = {"key": key, "time": time_us(time), "value": value, "missed_until": time_us(missed[-1])}
            self.output.append(OnPort(1, row))

    def advance(self, watermark):
        self.watermark = watermark
        due = sorted((end, str(key), key) for end, key in self.windows if end <= watermark)
        for end, _, key in due:
            self.output.append(result(key, end - WINDOW.size_us, self.windows.pop((end, key))))

    def run(self, inputs):
        for item in inputs:
            if isinstance(item, Watermark):
                self.advance(item.value)
                self.output.append(item)
            elif item is IDLE:
                self.output.append(item)
            else:
                for row in item.to_pylist():
                    self.take(row["key"], time_in_us(row["time"]), row["value"])
        self.advance(10**15)
        return self.output


def time_in_us(value):
    return None if value is None else pa.scalar(value, pa.timestamp("us")).value


def result_time_us(row):
    return time_in_us(row["window_end"]) - 1


def one_stage():
    return SlidingWindowProcessor(SCHEMA, ["key"], "time", AGGREGATES, WINDOW)


INPUTS = [
    rows(("a", 1, 10), ("b", 3, 1), ("a", 5, None)),
    Watermark(4),
    rows(("a", 2, 7), ("c", -20, 5), (None, 6, 2), ("a", None, 3)),
    IDLE,
    rows(("b", 30, 4)),
    Watermark(30),
    rows(("b", 31, 6), ("a", 3, 1)),
]


def test_one_stage_equals_the_definition_of_windows():
    verify_processor(
        one_stage, INPUTS, SlowWindows().run(INPUTS), keys=["key"], ordered=False, event_time_us=result_time_us
    )


@st.composite
def streams(draw):
    """Rows in disorder, nulls among them, watermarks that follow the greatest time now and then."""
    inputs, watermark, position = [], 0, 0
    for _ in range(draw(st.integers(0, 6))):
        kind = draw(st.sampled_from(["rows", "rows", "watermark", "idle", "gap"]))
        if kind == "rows":
            offsets = draw(st.lists(st.integers(-15, 8), min_size=1, max_size=6))
            keys = draw(st.lists(st.sampled_from(["a", "b", None]), min_size=len(offsets), max_size=len(offsets)))
            values = draw(
                st.lists(st.one_of(st.none(), st.integers(-9, 9)), min_size=len(offsets), max_size=len(offsets))
            )
            times = [None if draw(st.integers(0, 19)) == 0 else position + offset for offset in offsets]
            inputs.append(rows(*zip(keys, times, values, strict=True)))
        elif kind == "watermark":
            watermark += draw(st.integers(1, 9))
            position = max(position, watermark)
            inputs.append(Watermark(watermark))
        elif kind == "idle":
            inputs.append(IDLE)
        else:
            position += draw(st.integers(1, 1000))
    return inputs


@settings(max_examples=15, deadline=None)
@given(streams())
def test_one_stage_equals_the_definition_on_random_streams(inputs):
    verify_processor(
        one_stage, inputs, SlowWindows().run(inputs), keys=["key"], ordered=False, event_time_us=result_time_us
    )


def counters_of(processor, inputs):
    context = ProcessorContext("window", connected_ports=frozenset({0}))
    processor.open(context)
    for item in inputs:
        if isinstance(item, Watermark):
            list(processor.process_watermark(item.value))
        elif item is not IDLE:
            assert processor.process(0, Batch.from_arrow(item)) == ()
    processor.close(None)
    return context.counters


def test_every_row_is_counted_in_exactly_one_class():
    slow = SlowWindows()
    slow.run(INPUTS)
    counters = counters_of(one_stage(), INPUTS)
    assert counters == slow.counts
    assert counters["partly_late_rows"] == 1
    assert counters["rejected_rows"] == 1


def test_late_rows_are_not_made_when_nobody_reads_them():
    output = verify_processor(one_stage, INPUTS, keys=["key"], ordered=False, connected_ports=[0])
    assert not [item for item in output if isinstance(item, OnPort)]


# ---- two stages


def first_stage():
    return AccumulateByFrame(SCHEMA, ["key"], "time", AGGREGATES, WINDOW)


def second_stage():
    return CombineFrames(SCHEMA, ["key"], "time", AGGREGATES, WINDOW)


def partials_of(inputs):
    """Run the first stage as the engine does; return the inputs of the second."""
    processor = first_stage()
    processor.open(ProcessorContext("accumulate"))
    items = []
    for item in inputs:
        if isinstance(item, Watermark):
            items += [batch.to_arrow() for batch in one_by_one(processor.process_watermark(item.value))] + [item]
        elif item is IDLE:
            items += [batch.to_arrow() for batch in one_by_one(processor.process_idle())] + [item]
        else:
            items += [batch.to_arrow() for batch in processor.process(0, Batch.from_arrow(item))]
    items += [batch.to_arrow() for batch in one_by_one(processor.complete())]
    processor.close(None)
    return items


def without_late(output):
    return [item for item in output if not isinstance(item, OnPort)]


def on_time_inputs():
    return [
        rows(("a", 1, 10), ("b", 3, 1), ("a", 5, None)),
        Watermark(2),
        rows(("a", 2, 7), (None, 6, 2), ("a", 4, 3)),
        IDLE,
        rows(("b", 30, 4)),
        Watermark(30),
        rows(("b", 31, 6), ("a", 33, 1)),
    ]


def test_the_second_stage_equals_one_stage_when_nothing_is_late():
    inputs = on_time_inputs()
    verify_processor(
        second_stage,
        partials_of(inputs),
        SlowWindows().run(inputs),
        keys=["key"],
        ordered=False,
        event_time_us=result_time_us,
    )


def finish(output, schema):
    """Bring the partials of one run to results: how they are cut may differ, what they add up to may not."""
    processor = second_stage()
    processor.open(ProcessorContext("combine"))
    for item in output:
        if isinstance(item, dict):
            partial = pa.RecordBatch.from_pylist([item], schema=schema)
            list(processor.process(0, Batch.from_arrow(partial)))
    results = [row for batch in one_by_one(processor.complete()) for row in batch.to_arrow().to_pylist()]
    return sorted(map(repr, results)) + [item for item in output if not isinstance(item, dict)]


def test_the_first_stage_gives_partials_that_add_up_in_every_mode():
    schema = first_stage().partial_schema
    verify_processor(first_stage, INPUTS, normalize=lambda output: finish(output, schema))


def test_the_first_stage_flushes_everything_at_idle_and_keeps_nothing_at_a_barrier():
    processor = first_stage()
    processor.open(ProcessorContext("accumulate"))
    processor.process(0, Batch.from_arrow(rows(("a", 1, 10), ("a", 100, 1))))
    assert sum(batch.row_count for batch in processor.process_idle()) == 2
    assert list(processor.process_idle()) == []
    processor.process(0, Batch.from_arrow(rows(("a", 1, 10))))
    assert sum(batch.row_count for batch in processor.process_barrier()) == 1
    assert list(processor.save_snapshot()) == []
    assert list(processor.complete()) == []


def test_two_stages_count_late_rows_in_rows():
    inputs = [rows(("a", 50, 1)), Watermark(40), rows(("a", 1, 1), ("a", 1, 2), ("b", 2, 3))]
    counters = counters_of(second_stage(), partials_of(inputs))
    assert counters["late_rows"] == 3
    assert counters["on_time_rows"] == 1


def test_partitions_keep_their_own_bounds_from_two_processors_onto_three():
    """One of two processors is ahead. Restored, only keys of its partitions are late for what it emitted."""
    ahead, behind = 20, 6
    keys = [f"key {number}" for number in range(40)]
    partitions = assign_partitions(pa.record_batch({"key": keys}).columns).tolist()

    def processors(count):
        made = []
        for index in range(count):
            processor = one_stage()
            owned = tuple(range(index, 271, count))
            context = ProcessorContext("window", local_index=index, local_parallelism=count, partitions=owned)
            processor.open(context)
            made.append(processor)
        return made

    def share(inputs, index, count):
        return [row for row, home in zip(inputs, partitions, strict=True) if home % count == index]

    state = []
    for index, (processor, watermark) in enumerate(zip(processors(2), (ahead, behind), strict=True)):
        list(processor.process(0, Batch.from_arrow(rows(*share([(key, 30, 1) for key in keys], index, 2)))))
        list(processor.process_watermark(watermark))
        state += processor.save_snapshot()
    bounds = [row for part in state if part.kind == "bounds" for row in part.rows.to_pylist()]
    assert {row["partition"]: row["bound"] for row in bounds} == {
        partition: ahead if partition % 2 == 0 else behind for partition in range(271)
    }
    restored = processors(3)
    late = on_time = 0
    for index, processor in enumerate(restored):
        for part in state:
            mine = [(index, part)] if part.partition == BROADCAST else share_state(part, np.arange(271) % 3, [index])
            for _, taken in mine:
                processor.restore_snapshot(taken)
        processor.finish_restore()
        list(processor.process(0, Batch.from_arrow(rows(*share([(key, 9, 1) for key in keys], index, 3)))))
        late += processor.counters["late_rows"]
        on_time += processor.counters["on_time_rows"]
    assert late == sum(home % 2 == 0 for home in partitions)
    assert late + on_time == 40


def test_state_of_two_stages_goes_on_in_one_and_back():
    inputs = on_time_inputs()
    partials = partials_of(inputs[:3])
    two = second_stage()
    two.open(ProcessorContext("window"))
    batches = []
    for item in partials:
        if isinstance(item, Watermark):
            batches += two.process_watermark(item.value)
        else:
            two.process(0, Batch.from_arrow(item))
    one = one_stage()
    one.open(ProcessorContext("window"))
    for state in two.save_snapshot():
        one.restore_snapshot(state)
    one.finish_restore()
    batches += one.complete()
    got = [row for batch in one_by_one(batches) for row in batch.to_arrow().to_pylist()]
    wanted = without_late(SlowWindows().run(inputs[:3]))
    assert sorted(map(repr, got)) == sorted(repr(item) for item in wanted if isinstance(item, dict))


@pytest.mark.parametrize("keys", [[], ["key"]])
def test_keys_may_be_none_at_all(keys):
    inputs = [rows(("a", 1, 1), ("b", 1, 2)), Watermark(10)]
    output = verify_processor(
        lambda: SlidingWindowProcessor(SCHEMA, keys, "time", AGGREGATES, WINDOW), inputs, keys=keys, ordered=False
    )
    groups = 1 if not keys else 2
    assert sum(isinstance(item, dict) for item in output) == 3 * groups


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 30), st.integers(0, 9)), min_size=1), max_size=5),
    st.integers(0, 20),
    st.booleans(),
    st.sampled_from(["one stage", "first of two", "second of two"]),
)
def test_batches_together_give_what_they_give_one_by_one(batches, watermark, late_wanted, stage):
    batches = [Batch.from_arrow(rows(*triples)) for triples in batches]
    if stage == "second of two":
        first = AccumulateByFrame(SCHEMA, ["key"], "time", AGGREGATES, WINDOW)
        first.open(ProcessorContext("first"))
        partials = []
        for batch in batches:
            partials += one_by_one([*first.process(0, batch), *first.flush()])
        batches = partials
    found = []
    for together in (False, True):
        ports = frozenset({0, 1} if late_wanted else {0})
        context = ProcessorContext("windows", connected_ports=ports)
        if stage == "one stage":
            processor = SlidingWindowProcessor(SCHEMA, ["key"], "time", AGGREGATES, WINDOW)
        else:
            second = stage == "second of two"
            processor = (CombineFrames if second else AccumulateByFrame)(SCHEMA, ["key"], "time", AGGREGATES, WINDOW)
        processor.open(context)
        output = list(processor.process_watermark(watermark))
        if together:
            output += processor.process_batches(0, BatchRun.of(batches)) if batches else ()
        else:
            for batch in batches:
                output += processor.process(0, batch)
        output += processor.complete()
        given = one_by_one(output)
        shown = [(type(item).__name__, getattr(item, "batch", item).to_arrow().to_pylist()) for item in given]
        found.append((shown, context.counters))
    assert found[0] == found[1]


KINDS = [WINDOW, Window(4, 4, 1), SessionWindow(3)]


def one_of(window):
    kind = SessionWindowProcessor if isinstance(window, SessionWindow) else SlidingWindowProcessor
    processor = kind(SCHEMA, ["key"], "time", AGGREGATES, window)
    processor.open(ProcessorContext("window"))
    return processor


def rows_of(output):
    return [row for batch in one_by_one(output) for row in batch.to_arrow().to_pylist()]


@pytest.mark.parametrize("window", KINDS, ids=str)
def test_windows_are_emitted_by_ascending_end_up_to_the_watermark_and_the_end_of_input_flushes_the_rest(window):
    processor = one_of(window)
    list(processor.process(0, Batch.from_arrow(rows(*((key, time, 1) for time in (9, 2, 30, 17) for key in "ba")))))
    first, rest = rows_of(processor.process_watermark(15)), rows_of(processor.complete())
    ends = [row["window_end"] for row in first + rest]
    assert ends == sorted(ends)
    closed = 14 if isinstance(window, SessionWindow) else 15  # a session that ends at 15 would still be joined at 15
    assert first[-1]["window_end"] <= time_us(closed) < rest[0]["window_end"]
    assert len({(row["key"], row["window_end"]) for row in first + rest}) == len(ends)
    assert {row["rows"] for row in first + rest} == {1}


@pytest.mark.parametrize("window", KINDS, ids=str)
def test_a_sum_of_zero_does_not_hide_a_key(window):
    processor = one_of(window)
    list(processor.process(0, Batch.from_arrow(rows(("a", 5, 0), ("b", 5, 1), ("b", 5, -1), (None, 5, None)))))
    found = {(row["key"], row["rows"], row["total"]) for row in rows_of(processor.complete())}
    assert found == {("a", 1, 0), ("b", 2, 0), (None, 1, None)}


@pytest.mark.parametrize("window", KINDS, ids=str)
def test_open_windows_stay_when_all_inputs_turn_idle(window):
    processor = one_of(window)
    list(processor.process(0, Batch.from_arrow(rows(("a", 5, 1)))))
    assert list(processor.process_idle()) == []
    assert {row["rows"] for row in rows_of(processor.complete())} == {1}
