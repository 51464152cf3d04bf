"""Throttling: of the watermarks that a source could send, which are worth sending.

A watermark between two frame boundaries tells a window nothing: it can neither close one nor make a row late. The
planner gives each source `emit_by_frame` of the coarsest frame that all windows downstream of it can bear.

A throttle makes others of its kind, as policies do: calling one gives a fresh one with the same settings.
"""

from collections.abc import Iterable
from math import gcd
from typing import Protocol, Self

from jetfast.core.windows import Window
from jetfast.errors import JobDefinitionError
from jetfast.types import MIN_TIME, Duration, positive_duration_us


class WatermarkThrottle(Protocol):
    """Decides which watermarks of one source processor leave. One instance per source processor."""

    def throttle(self, watermark: int) -> int | None:
        """Return the watermark to send, at most `watermark` and above all sent before; or None.

        Called with rising watermarks, int64 microseconds.
        """


class WatermarkThrottleFactory(Protocol):
    """Makes one throttle per source processor. Picklable."""

    def __call__(self) -> WatermarkThrottle: ...


class _Throttle:
    """What all throttles of this module have in common."""

    def __init__(self) -> None:
        self.last = MIN_TIME
        """The last watermark sent."""

    def _settings(self) -> tuple[object, ...]:
        return ()

    def __call__(self) -> Self:
        """Return a fresh throttle with the same settings."""
        return type(self)(*self._settings())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(str, self._settings()))})"

    def __eq__(self, other: object) -> bool:
        """Are the settings equal? The state is not compared."""
        return type(other) is type(self) and other._settings() == self._settings()

    def __hash__(self) -> int:
        return hash((type(self), self._settings()))


class NoThrottling(_Throttle):
    """Every watermark that is above the last."""

    def throttle(self, watermark: int) -> int | None:
        """Return the watermark if it is above the last, else None."""
        if watermark <= self.last:
            return None
        self.last = watermark
        return watermark


class EmitByFrame(_Throttle):
    """The boundary of each frame that is entered. `frame` has `floor`, as windows do."""

    def __init__(self, frame: Window) -> None:
        super().__init__()
        self.frame = frame
        self._next = MIN_TIME  # no watermark below it enters a new frame

    def _settings(self) -> tuple[object, ...]:
        return (self.frame,)

    def throttle(self, watermark: int) -> int | None:
        """Return the start of the frame that holds `watermark` if it is above the last one, else None."""
        if watermark < self._next:
            return None
        boundary = self.frame.floor(watermark)
        self._next = boundary + self.frame.slide_us
        if boundary <= self.last:
            return None
        self.last = boundary
        return boundary


class EmitByMinStep(_Throttle):
    """The first, and each that is at least a step above the last."""

    def __init__(self, step_us: int) -> None:
        super().__init__()
        self.step_us = step_us
        self._first = True

    def _settings(self) -> tuple[object, ...]:
        return (self.step_us,)

    def throttle(self, watermark: int) -> int | None:
        """Return the watermark if it is the first or at least a step above the last, else None."""
        if not self._first and watermark < self.last + self.step_us:
            return None
        self._first = False
        self.last = watermark
        return watermark


def no_throttling() -> NoThrottling:
    """Send a watermark whenever it has risen."""
    return NoThrottling()


def emit_by_frame(window: Window) -> EmitByFrame:
    """Send a watermark when it enters a new frame of a window (its slide): the boundary, not the watermark itself."""
    if not isinstance(window, Window):
        raise JobDefinitionError(f'emit_by_frame needs jf.tumbling("1h") or jf.sliding("24h", "1h"), got {window!r}')
    return EmitByFrame(Window(window.slide_us, window.slide_us, window.offset_us))


def emit_by_min_step(step: Duration) -> EmitByMinStep:
    """Send a watermark when it has risen by `step` or more since the last one; the first always."""
    return EmitByMinStep(positive_duration_us(step, "step"))


def coarsest_frame(frames: Iterable[tuple[int, int]]) -> Window | None:
    """Return the coarsest frame whose boundaries include those of all given ones; None if none is given.

    Parameters
    ----------
    frames : (slide_us, offset_us) of each window

    Slides of 6 and 4 have the boundaries of 2 in common, if both start at the same offset. If one starts 1 later, only
    those of 1.
    """
    common_us: int | None = None
    first_offset_us = 0
    for slide_us, offset_us in frames:
        if common_us is None:
            common_us, first_offset_us = slide_us, offset_us
        else:
            common_us = gcd(common_us, slide_us, offset_us - first_offset_us)
    return None if common_us is None else Window(common_us, common_us, first_offset_us % common_us)
