"""The arithmetic of frames, and what a window definition refuses."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetfast.core.windows import SessionWindow, Window, session, sliding, tumbling
from jetfast.errors import DurationError, JobDefinitionError
from jetfast.types import MAX_TIME, MIN_TIME

SECOND = 1_000_000


def test_size_must_be_a_multiple_of_slide_and_the_error_proposes_sizes():
    with pytest.raises(JobDefinitionError, match="not a multiple of the slide '3s'; .*: 9s or 12s"):
        sliding("10s", "3s")
    with pytest.raises(JobDefinitionError, match="the nearest sizes that are: 3s"):
        sliding("1s", "3s")


@pytest.mark.parametrize("size", ["0s", "-1s"])
def test_size_must_be_greater_than_zero(size):
    with pytest.raises(DurationError, match="window size must be greater than zero"):
        tumbling(size)


def test_a_bare_number_as_size_proposes_a_unit():
    with pytest.raises(TypeError, match='did you mean "10s"'):
        tumbling(10)


def test_an_offset_is_taken_modulo_the_slide():
    assert sliding("10s", "5s", offset="-1s") == Window(10 * SECOND, 5 * SECOND, 4 * SECOND)


def test_a_window_reads_as_the_user_wrote_it():
    assert str(sliding("24h", "1h")) == "sliding 1d by 1h"
    assert str(tumbling("90s", offset="5s")) == "tumbling 1m 30s, offset 5s"


@pytest.mark.parametrize(
    ("time", "floor", "frame"),
    [(0, 0, 10), (9, 0, 10), (10, 10, 20), (-1, -10, 0), (-10, -10, 0), (-11, -20, -10)],
)
def test_frames_are_right_for_negative_times(time, floor, frame):
    window = Window(30, 10)
    assert (window.floor(time), window.frame_of(time)) == (floor, frame)


@pytest.mark.parametrize("window", [Window(30, 10), Window(30, 10, 7), Window(SECOND, SECOND)])
def test_frames_saturate_at_the_ends_of_time(window):
    assert window.floor(MIN_TIME) == MIN_TIME
    assert window.frame_of(MAX_TIME) == MAX_TIME
    assert window.frame_of(MIN_TIME) > MIN_TIME
    assert (window.frame_of(MIN_TIME) - window.offset_us) % window.slide_us == 0
    assert window.last_window_of(MAX_TIME - 1) == MAX_TIME


@given(st.integers(-(2**62), 2**62), st.integers(1, 10**9), st.integers(1, 100), st.integers(0, 10**9))
def test_floor_and_frame_enclose_the_time(time, slide, frames, offset):
    window = Window(slide * frames, slide, offset % slide)
    assert window.floor(time) <= time < window.frame_of(time)
    assert window.frame_of(time) - window.floor(time) == slide
    assert (window.floor(time) - window.offset_us) % slide == 0
    assert window.last_window_of(time) - window.size_us <= time


@given(st.lists(st.integers(MIN_TIME, MAX_TIME), max_size=5), st.integers(1, 10**9), st.integers(0, 10**9))
def test_frames_of_many_times_are_those_of_each(times, slide, offset):
    window = Window(slide, slide, offset % slide)
    times += [0, -1, MIN_TIME + 1, MAX_TIME - 1, MAX_TIME]
    frames = window.frames_of(np.array(times, np.int64))
    assert frames.tolist() == [window.frame_of(time) for time in times]


@pytest.mark.parametrize(
    ("timeout", "step_us"),
    [("1us", 1), ("999us", 1), ("1ms", 10), ("1s", 10_000), ("30m", 10_000_000), ("1h", 10_000_000)],
)
def test_watermarks_for_sessions_come_in_powers_of_ten_of_at_most_a_hundredth_of_the_timeout(timeout, step_us):
    window = session(timeout)
    assert window.watermark_step_us == step_us
    assert step_us == 1 or step_us * 100 <= window.timeout_us


def test_a_session_ends_timeout_after_its_last_row():
    assert session("30m") == SessionWindow(1800 * SECOND)
    assert str(session("30m")) == "session 30m"
    assert SessionWindow(10).end_of(-5) == 5
    assert SessionWindow(10).end_of(MAX_TIME - 5) == MAX_TIME


@pytest.mark.parametrize("timeout", ["0s", "-1s"])
def test_a_session_timeout_must_be_positive(timeout):
    with pytest.raises(DurationError, match="session timeout"):
        session(timeout)
