"""Window definitions and the arithmetic of frames.

A frame is a slide-sized slice of event time named by its exclusive end; the window with end e covers [e - size, e).
A session has no frames: it grows with its rows.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from jetfast.errors import JobDefinitionError
from jetfast.types import MAX_TIME, MIN_TIME, Duration, duration_us, format_duration, positive_duration_us


@dataclass(frozen=True)
class Window:
    """A tumbling (size = slide) or sliding window; all fields in microseconds. size is a multiple of slide."""

    size_us: int
    slide_us: int
    offset_us: int = 0

    def floor(self, time: int) -> int:
        """Greatest k * slide + offset <= time; saturates at MIN_TIME."""
        return max(MIN_TIME, (time - self.offset_us) // self.slide_us * self.slide_us + self.offset_us)

    def frame_of(self, time: int) -> int:
        """Exclusive end of the frame that holds `time`: the smallest boundary > time; saturates at MAX_TIME."""
        return min(MAX_TIME, time + self.slide_us - (time - self.offset_us) % self.slide_us)

    def last_window_of(self, time: int) -> int:
        """End of the last window that holds `time`."""
        return min(MAX_TIME, self.frame_of(time) + self.size_us - self.slide_us)

    def frames_of(self, times: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """As `frame_of` of each time, shape (rows,)."""
        # Of a quotient, since numpy divides by one number with vector instructions; what overflows comes back.
        ahead: npt.NDArray[np.int64] = np.floor_divide(times, self.slide_us)
        ahead *= self.slide_us
        ahead -= times
        if self.offset_us:
            ahead += self.offset_us
            ahead[ahead > 0] -= self.slide_us
        ahead += self.slide_us
        ahead += times
        return np.where(ahead < times, MAX_TIME, ahead)

    def last_windows_of(self, frames: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Ends of the last windows that hold each frame, shape (rows,)."""
        return np.minimum(frames, MAX_TIME - (self.size_us - self.slide_us)) + (self.size_us - self.slide_us)

    @property
    def frames(self) -> int:
        """Frames per window."""
        return self.size_us // self.slide_us

    def __str__(self) -> str:
        offset = f", offset {format_duration(self.offset_us)}" if self.offset_us else ""
        if self.size_us == self.slide_us:
            return f"tumbling {format_duration(self.size_us)}{offset}"
        return f"sliding {format_duration(self.size_us)} by {format_duration(self.slide_us)}{offset}"


@dataclass(frozen=True)
class SessionWindow:
    """Sessions of rows that lie close together: a row covers [time, time + timeout_us], and what touches merges."""

    timeout_us: int

    def end_of(self, last: int) -> int:
        """End of a session whose last row is at `last`; saturates at MAX_TIME."""
        return min(MAX_TIME, last + self.timeout_us)

    @property
    def watermark_step_us(self) -> int:
        """How fine watermarks must be: a power of ten (so that it divides most slides), at most timeout / 100."""
        step_us = 1
        while step_us * 1000 <= self.timeout_us:
            step_us *= 10
        return step_us

    def __str__(self) -> str:
        return f"session {format_duration(self.timeout_us)}"


AnyWindow = Window | SessionWindow


def tumbling(size: Duration, *, offset: Duration = "0s") -> Window:
    """Windows of `size`, one after the other, aligned to the epoch plus `offset`."""
    size_us = positive_duration_us(size, "window size")
    return Window(size_us, size_us, duration_us(offset, "window offset") % size_us)


def sliding(size: Duration, slide: Duration, *, offset: Duration = "0s") -> Window:
    """Windows of `size` that start every `slide`; size must be a multiple of slide."""
    size_us = positive_duration_us(size, "window size")
    slide_us = positive_duration_us(slide, "window slide")
    if size_us % slide_us:
        lower = size_us // slide_us * slide_us
        near = f"{format_duration(lower)} or " if lower else ""
        raise JobDefinitionError(
            f"window size {size!r} is not a multiple of the slide {slide!r}; the nearest sizes that are: "
            f"{near}{format_duration(lower + slide_us)}"
        )
    return Window(size_us, slide_us, duration_us(offset, "window offset") % slide_us)


def session(timeout: Duration) -> SessionWindow:
    """Sessions: rows of a key whose times are at most `timeout` apart are in one, as in Spark's `session_window`.

    A session starts at its first row (window_start) and ends `timeout` after its last (window_end). Its result leaves
    when the watermark has passed that end.
    """
    return SessionWindow(positive_duration_us(timeout, "session timeout"))
