"""The watermark coalescer: equal to its slow twin, and the rules of SEMANTICS 1.5 by name."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetfast.kernels.watermarks import WatermarkCoalescer
from jetfast.types import MAX_TIME, MIN_TIME, Signal
from tests.kernels.stream_reference import SlowCoalescer

IDLE, ACTIVE = Signal.IDLE, Signal.ACTIVE
TIMES = st.one_of(st.integers(-5, 60), st.sampled_from([MIN_TIME, MIN_TIME + 1, MAX_TIME - 1, MAX_TIME]))


def answer(coalescer, call, *arguments):
    try:
        return getattr(coalescer, call)(*arguments)
    except ValueError as error:
        return f"input {arguments[0]}" in str(error)


@settings(max_examples=150, deadline=None)
@given(st.data(), st.sampled_from([1, 2, 3, 16, 17, 40]))
def test_it_equals_its_slow_twin(data, input_count):
    fast, slow = WatermarkCoalescer(input_count), SlowCoalescer(input_count)
    near = st.integers(0, min(input_count, 4) - 1) if data.draw(st.booleans()) else st.integers(0, input_count - 1)
    step = st.one_of(
        st.tuples(st.just("observe_watermark"), near, TIMES),
        st.tuples(st.sampled_from(["observe_idle", "observe_rows", "observe_active", "observe_done"]), near),
    )
    forwarded = []
    for call, *arguments in data.draw(st.lists(step, max_size=60)):
        got = answer(fast, call, *arguments)
        assert got == answer(slow, call, *arguments)
        forwarded += got if isinstance(got, tuple) else ()
        assert fast.watermark == slow.last
        assert fast.idle == (slow.left[-1:] == [IDLE])
        for index in range(input_count):
            assert fast.input_watermark(index) == slow.watermarks[index]
            assert fast.is_idle(index) == (index in slow.idle_inputs)
            assert fast.is_done(index) == (index in slow.done_inputs)
    watermarks = [item for item in forwarded if isinstance(item, int)]
    assert watermarks == sorted(set(watermarks))


@settings(max_examples=10, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1023), st.integers(1, 9)), min_size=200, max_size=400))
def test_the_tree_over_1024_inputs_finds_the_least(steps):
    coalescer = WatermarkCoalescer(1024)
    watermarks = [0] * 1024
    for index in range(1024):
        coalescer.observe_watermark(index, 0)
    for index, step in steps:
        watermarks[index] += step
        coalescer.observe_watermark(index, watermarks[index])
        assert coalescer.watermark == min(watermarks)


def test_the_slowest_input_holds_the_watermark():
    coalescer = WatermarkCoalescer(2)
    assert coalescer.observe_watermark(0, 10) == ()
    assert coalescer.observe_watermark(1, 5) == (5,)
    assert coalescer.observe_watermark(1, 20) == (10,)


def test_an_idle_input_does_not_hold_back_the_watermark():
    coalescer = WatermarkCoalescer(2)
    coalescer.observe_watermark(0, 10)
    assert coalescer.observe_idle(1) == (10,)
    assert coalescer.observe_watermark(0, 11) == (11,)


def test_when_all_inputs_are_idle_the_top_leaves_once_and_then_idle():
    coalescer = WatermarkCoalescer(2)
    coalescer.observe_watermark(0, 10)
    coalescer.observe_watermark(1, 20)
    assert coalescer.observe_idle(1) == ()
    assert coalescer.observe_idle(0) == (20, IDLE)
    assert coalescer.observe_idle(0) == ()


def test_whoever_wakes_after_idle_is_announced_before_its_watermark():
    coalescer = WatermarkCoalescer(2)
    coalescer.observe_idle(0)
    assert coalescer.observe_idle(1) == (IDLE,)
    assert coalescer.observe_watermark(1, 7) == (ACTIVE, 7)
    assert coalescer.observe_idle(1) == (IDLE,)
    assert coalescer.observe_rows(0) == (ACTIVE,)


def test_a_woken_input_takes_part_with_its_old_watermark():
    coalescer = WatermarkCoalescer(2)
    coalescer.observe_watermark(0, 5)
    coalescer.observe_idle(0)
    coalescer.observe_watermark(1, 20)
    assert coalescer.observe_active(0) == ()
    assert coalescer.observe_watermark(1, 30) == ()
    assert coalescer.observe_watermark(0, 25) == (25,)


def test_a_done_input_leaves_and_the_end_of_all_is_not_idle():
    coalescer = WatermarkCoalescer(2)
    coalescer.observe_watermark(0, 10)
    assert coalescer.observe_done(1) == (10,)
    assert coalescer.observe_done(0) == ()
    assert not coalescer.idle


def test_the_last_awake_input_that_is_done_leaves_the_idle_ones_behind():
    coalescer = WatermarkCoalescer(2)
    coalescer.observe_idle(1)
    coalescer.observe_watermark(0, 4)
    assert coalescer.observe_done(0) == (IDLE,)


@pytest.mark.parametrize("call", ["observe_idle", "observe_active", "observe_rows", "observe_done"])
def test_anything_after_done_is_an_error_that_names_the_input(call):
    coalescer = WatermarkCoalescer(3)
    coalescer.observe_done(2)
    with pytest.raises(ValueError, match=r"input 2: .* after it was done"):
        getattr(coalescer, call)(2)


def test_a_watermark_must_rise():
    coalescer = WatermarkCoalescer(2)
    coalescer.observe_watermark(1, 5)
    with pytest.raises(ValueError, match="input 1: watermark 5 is not above its last one, 5"):
        coalescer.observe_watermark(1, 5)


def test_inputs_that_do_not_exist_are_refused():
    with pytest.raises(ValueError, match="at least 1"):
        WatermarkCoalescer(0)
    for index in (-1, 2):
        with pytest.raises(IndexError, match="only 0 to 1"):
            WatermarkCoalescer(2).observe_idle(index)
