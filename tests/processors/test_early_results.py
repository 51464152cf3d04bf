"""Early results: what open windows would give now, every period of wall time; final results stay as they are."""

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetfast.core.batch import Batch
from jetfast.core.items import IDLE, Watermark, one_by_one
from jetfast.core.processor import ProcessorContext
from jetfast.core.windows import SessionWindow, Window
from jetfast.processors.early_results import EarlyResults
from jetfast.processors.session_window import SessionWindowProcessor
from jetfast.processors.sliding_window import SlidingWindowProcessor
from jetfast.testing import OnPort, verify_processor
from jetfast.types import MAX_TIME
from tests.processors.test_windows import AGGREGATES, INPUTS, SCHEMA, WINDOW, rows, streams

SESSION = SessionWindow(4)
PERIOD_US = 10


def inner(window):
    kind = SessionWindowProcessor if isinstance(window, SessionWindow) else SlidingWindowProcessor
    return kind(SCHEMA, ["key"], "time", AGGREGATES, window)


def early(window):
    return EarlyResults(inner(window), PERIOD_US)


def rows_of(output):
    return [row for batch in one_by_one(output) if isinstance(batch, Batch) for row in batch.to_arrow().to_pylist()]


def ordered(rows):
    return sorted(rows, key=repr)


class Clock:
    def __init__(self):
        self.now_us = 0

    def __call__(self):
        return self.now_us


def opened(window, clock):
    processor = early(window)
    processor.open(ProcessorContext("window", now_us=clock, connected_ports=frozenset({0})))
    return processor


@pytest.mark.parametrize("window", [WINDOW, SESSION], ids=str)
def test_final_results_are_those_without_early_ones_and_say_so(window):
    plain = verify_processor(lambda: inner(window), INPUTS, keys=["key"], ordered=False)
    wanted = [item | {"is_early": False} if type(item) is dict else item for item in plain]
    assert any(isinstance(item, OnPort) for item in wanted)
    verify_processor(lambda: early(window), INPUTS, wanted, keys=["key"], ordered=False)


@settings(max_examples=25, deadline=None)
@given(window=st.sampled_from([WINDOW, Window(4, 4), SESSION]), inputs=streams(), silent=st.booleans())
def test_early_results_are_what_the_end_of_input_would_give_and_change_nothing(window, inputs, silent):
    clock = Clock()
    processor = opened(window, clock)
    plain = inner(window)
    plain.open(ProcessorContext("plain"))
    given_items = []
    for item in inputs:
        if item is IDLE:
            continue
        if isinstance(item, Watermark):
            final = rows_of(processor.process_watermark(item.value))
            assert ordered(final) == ordered(
                row | {"is_early": False} for row in rows_of(plain.process_watermark(item.value))
            )
            given_items.append(item)
            continue
        given_items.append(item)
        batch = Batch.from_arrow(item)
        list(plain.process(0, batch))
        if silent:
            assert rows_of(processor.process(0, batch)) == []
            clock.now_us += PERIOD_US
            found = rows_of(processor.process_silence())
        else:
            clock.now_us += PERIOD_US
            found = rows_of(processor.process(0, batch))
        twin = inner(window)
        twin.open(ProcessorContext("twin"))
        for earlier in copy.copy(given_items):
            if isinstance(earlier, Watermark):
                list(twin.process_watermark(earlier.value))
            else:
                list(twin.process(0, Batch.from_arrow(earlier)))
        assert ordered(found) == ordered(row | {"is_early": True} for row in rows_of(twin.process_watermark(MAX_TIME)))
    assert ordered(rows_of(processor.complete())) == ordered(
        row | {"is_early": False} for row in rows_of(plain.complete())
    )


def test_early_results_come_once_a_period_and_only_if_rows_came_in():
    clock = Clock()
    processor = opened(WINDOW, clock)
    assert processor.process_silence() == ()
    clock.now_us = PERIOD_US
    assert processor.process_silence() == ()  # no row yet
    assert len(rows_of(processor.process(0, Batch.from_arrow(rows(("a", 5, 1)))))) == WINDOW.frames
    assert rows_of(processor.process(0, Batch.from_arrow(rows(("a", 5, 1))))) == []
    clock.now_us += PERIOD_US - 1
    assert processor.process_silence() == ()
    clock.now_us += 1
    found = rows_of(processor.process_silence())
    assert {(row["rows"], row["is_early"]) for row in found} == {(2, True)}
    clock.now_us += PERIOD_US
    assert processor.process_silence() == ()


def test_windows_that_were_emitted_give_no_early_results():
    clock = Clock()
    processor = opened(WINDOW, clock)
    list(processor.process(0, Batch.from_arrow(rows(("a", 5, 1)))))
    assert len(rows_of(processor.process_watermark(8))) == 2  # ends 6 and 8; 10 is open
    clock.now_us = PERIOD_US
    assert [row["window_end"].microsecond for row in rows_of(processor.process_silence())] == [10]


def test_a_restored_step_tells_its_state_after_a_period():
    clock = Clock()
    before = opened(WINDOW, clock)
    list(before.process(0, Batch.from_arrow(rows(("a", 5, 1)))))
    after = opened(WINDOW, clock)
    for state in before.save_snapshot():
        after.restore_snapshot(state)
    after.finish_restore()
    assert after.process_silence() == ()
    clock.now_us = PERIOD_US
    assert len(rows_of(after.process_silence())) == WINDOW.frames
