"""Event time at a source: one watermark policy per source partition, and their minimum.

The policy contract, for users' own ones too: state w starts at MIN_TIME and only ever rises.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from jetfast.types import MIN_TIME, Duration, non_negative_duration_us


class WatermarkPolicy(Protocol):
    """Decides how far event time has come in one source partition. One instance per source partition."""

    def report(self, timestamps: npt.NDArray[np.int64], now_us: int) -> int:
        """Take in the times of a batch (shape (rows,), int64 microseconds, no nulls); return the watermark after it.

        The state afterwards equals feeding the rows one by one.
        """

    def current(self, now_us: int) -> int:
        """Return the watermark now; may move by the clock alone."""


class WatermarkPolicyFactory(Protocol):
    """Makes one policy per source partition. Picklable."""

    def __call__(self) -> WatermarkPolicy: ...


class FixedLagPolicy:
    """w = max(w, time - lag), saturating at MIN_TIME. Needs no clock."""

    def __init__(self, lag_us: int) -> None:
        self.lag_us = lag_us
        self.watermark = MIN_TIME

    def report(self, timestamps: npt.NDArray[np.int64], now_us: int) -> int:
        if len(timestamps):
            self.watermark = max(self.watermark, max(MIN_TIME, int(timestamps.max()) - self.lag_us))
        return self.watermark

    def current(self, now_us: int) -> int:
        return self.watermark


@dataclass(frozen=True)
class FixedLag:
    """Factory of FixedLagPolicy."""

    lag_us: int

    def __call__(self) -> FixedLagPolicy:
        return FixedLagPolicy(self.lag_us)


def fixed_lag(lag: Duration) -> FixedLag:
    """The watermark stays `lag` behind the greatest time seen: rows that are at most `lag` out of order are never late."""
    return FixedLag(non_negative_duration_us(lag, "lag"))
