"""Throttling of watermarks: each rule of SEMANTICS 1.3 by name."""

import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetfast import session, sliding, tumbling, watermarks
from jetfast.core.throttling import EmitByFrame, coarsest_frame
from jetfast.core.windows import Window
from jetfast.errors import JobDefinitionError
from jetfast.types import MAX_TIME, MIN_TIME

TIMES = st.one_of(st.integers(-200, 200), st.integers(MIN_TIME, MAX_TIME))


def let_through(throttle: watermarks.WatermarkThrottle, *values: int) -> list[int | None]:
    return [throttle.throttle(value) for value in values]


def test_emit_by_frame_suppresses_until_a_new_frame_and_sends_its_boundary() -> None:
    throttle = watermarks.emit_by_frame(sliding("30us", "10us"))
    assert let_through(throttle, 5, 9, 10, 12, 19, 35, 36) == [0, None, 10, None, None, 30, None]


def test_emit_by_frame_keeps_the_offset_and_floors_negative_times() -> None:
    throttle = watermarks.emit_by_frame(tumbling("10us", offset="3us"))
    assert let_through(throttle, -18, -8, -7, 2, 3) == [-27, -17, -7, None, 3]


def test_emit_by_frame_saturates() -> None:
    assert let_through(EmitByFrame(Window(10, 10)), MIN_TIME + 1, MIN_TIME + 20, MAX_TIME) == [
        None,
        (MIN_TIME + 20) // 10 * 10,
        MAX_TIME // 10 * 10,
    ]


def test_emit_by_min_step_sends_the_first_and_then_each_that_is_a_step_above_the_last() -> None:
    throttle = watermarks.emit_by_min_step("10us")
    assert let_through(throttle, -100, -91, -90, -85, -70, -61, -60) == [-100, None, -90, None, -70, None, -60]


def test_no_throttling_sends_whatever_rises() -> None:
    assert let_through(watermarks.no_throttling(), 1, 1, 2, 3) == [1, None, 2, 3]


def test_a_step_must_be_greater_than_zero() -> None:
    with pytest.raises(ValueError, match="step must be greater than zero"):
        watermarks.emit_by_min_step("0s")


def test_sessions_have_no_frames() -> None:
    with pytest.raises(JobDefinitionError, match="emit_by_frame needs jf.tumbling"):
        watermarks.emit_by_frame(session("1m"))  # type: ignore[arg-type]


def test_each_source_processor_gets_a_throttle_of_its_own() -> None:
    for throttle in (
        watermarks.no_throttling(),
        watermarks.emit_by_frame(tumbling("1s")),
        watermarks.emit_by_min_step("1s"),
    ):
        first = throttle.throttle(10**9)
        other = pickle.loads(pickle.dumps(throttle))()
        assert other == throttle
        assert other.throttle(10**9) == first


@given(st.lists(TIMES), st.sampled_from(["frame", "step", "none"]))
@settings(deadline=None, max_examples=50)
def test_what_a_throttle_lets_through_strictly_rises_and_is_not_above_the_watermark(
    values: list[int], kind: str
) -> None:
    throttle: watermarks.WatermarkThrottle = {
        "frame": watermarks.emit_by_frame(tumbling("7us", offset="2us")),
        "step": watermarks.emit_by_min_step("7us"),
        "none": watermarks.no_throttling(),
    }[kind]
    last = None
    for value in sorted(values):
        sent = throttle.throttle(value)
        if sent is not None:
            assert sent <= value
            assert last is None or sent > last
            last = sent


def test_no_window_means_no_frame() -> None:
    assert coarsest_frame([]) is None


def test_the_coarsest_frame_of_one_window_is_its_slide() -> None:
    assert coarsest_frame([(10, 3)]) == Window(10, 10, 3)


def test_windows_that_start_apart_have_finer_frames_in_common() -> None:
    assert coarsest_frame([(6, 0), (4, 0)]) == Window(2, 2, 0)
    assert coarsest_frame([(6, 0), (6, 2)]) == Window(2, 2, 0)
    assert coarsest_frame([(6, 5), (6, 5)]) == Window(6, 6, 5)
    assert coarsest_frame([(6, 0), (4, 1)]) == Window(1, 1, 0)


FRAMES = st.lists(st.integers(1, 40).flatmap(lambda slide: st.tuples(st.just(slide), st.integers(0, slide - 1))))


@given(FRAMES.filter(bool), st.integers(-300, 300))
@settings(deadline=None, max_examples=50)
def test_a_floored_watermark_tells_each_window_the_same(frames: list[tuple[int, int]], watermark: int) -> None:
    frame = coarsest_frame(frames)
    assert frame is not None
    for slide, offset in frames:
        window = Window(slide, slide, offset)
        assert window.floor(frame.floor(watermark)) == window.floor(watermark)
