"""A wall clock for tests: it stands still until somebody moves it."""

import threading
from datetime import UTC, datetime, timedelta

from jetfast.types import Duration, non_negative_duration_us

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class VirtualClock:
    """A wall clock that stands still until somebody moves it: for `jf.LocalCluster(clock=...)`.

    Idle timeouts, lulls, delays, rates: all that a job measures goes by its clock. A `silence("60s")` in a script moves
    it, so that tests of such things neither sleep nor depend on the machine.

    Parameters
    ----------
    start : where it stands at first, ISO 8601, UTC unless it says otherwise
    """

    def __init__(self, start: str = "2024-01-01T00:00:00") -> None:
        moment = datetime.fromisoformat(start)
        moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        self._now_us = (moment - _EPOCH) // timedelta(microseconds=1)
        self._lock = threading.Lock()

    def __call__(self) -> int:
        """Return the time, microseconds since 1970."""
        return self._now_us

    def advance(self, duration: Duration) -> int:
        """Move on; return the time then, microseconds since 1970."""
        return self.advance_us(non_negative_duration_us(duration, "duration"))

    def advance_us(self, duration_us: int) -> int:
        """As `advance`, by microseconds."""
        with self._lock:
            self._now_us += duration_us
            return self._now_us

    def __repr__(self) -> str:
        return f"VirtualClock({(_EPOCH + timedelta(microseconds=self._now_us)).isoformat()!r})"
