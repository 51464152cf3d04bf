"""Event time at a source: one watermark policy per source partition, and their minimum.

The policy contract, for users' own ones too: state w starts at MIN_TIME and only ever rises.
"""

from bisect import bisect_left, insort
from dataclasses import dataclass
from typing import Protocol, cast, runtime_checkable

import numpy as np
import numpy.typing as npt

from jetfast.core.items import ACTIVE, IDLE, Watermark
from jetfast.types import MIN_TIME, Duration, Signal, non_negative_duration_us

IDLE_TIMEOUT_US = 60_000_000
POLL_GAP_US_MAX = 1_000_000
"""A worker with nothing else to do polls its sources far more often than this; what a gap lasts beyond it was other
work.
"""


class WatermarkPolicy(Protocol):
    """Decides how far event time has come in one source partition. One instance per source partition."""

    def report(self, timestamps: npt.NDArray[np.int64], now_us: int) -> int:
        """Take in the times of a batch (shape (rows,), int64 microseconds, no nulls); return the watermark after it.

        The state afterwards equals feeding the rows one by one.
        """

    def current(self, now_us: int) -> int:
        """Return the watermark now; may move by the clock alone."""


@runtime_checkable
class GreatestTimePolicy(Protocol):
    """What a WatermarkPolicy may offer besides, if nothing counts but the greatest time: then times are not listed."""

    def report_greatest(self, greatest: int, now_us: int) -> int:
        """As `report` of a batch whose greatest time is this."""


class WatermarkPolicyFactory(Protocol):
    """Makes one policy per source partition. Picklable."""

    def __call__(self) -> WatermarkPolicy: ...


class FixedLagPolicy:
    """w = max(w, time - lag), saturating at MIN_TIME. Needs no clock."""

    def __init__(self, lag_us: int) -> None:
        self.lag_us = lag_us
        self.watermark = MIN_TIME

    def report(self, timestamps: npt.NDArray[np.int64], now_us: int) -> int:
        return self.report_greatest(int(timestamps.max()), now_us) if len(timestamps) else self.watermark

    def report_greatest(self, greatest: int, now_us: int) -> int:
        watermark = greatest - self.lag_us
        if watermark > self.watermark:  # which is MIN_TIME at least
            self.watermark = watermark
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
    """The watermark stays `lag` behind the greatest time seen: rows that are at most `lag` out of order are never
    late.
    """
    return FixedLag(non_negative_duration_us(lag, "lag"))


class PolledClock:
    """Time during which a source was polled: idleness is measured in it.

    It runs during a poll, and from a poll that gave nothing to the next one, there for POLL_GAP_US_MAX at most. It
    stands still after a poll that gave something (its output is being processed, or waits for room), and after `stop`.
    """

    def __init__(self) -> None:
        self.elapsed_us = 0
        self._since_us: int | None = None

    def begin_poll(self, now_us: int) -> None:
        if self._since_us is not None:
            self.elapsed_us += min(max(0, now_us - self._since_us), POLL_GAP_US_MAX)
        self._since_us = now_us

    def read(self, now_us: int) -> int:
        """Return the elapsed time inside a poll, microseconds."""
        if self._since_us is not None:
            self.elapsed_us += max(0, now_us - self._since_us)
        self._since_us = now_us
        return self.elapsed_us

    def end_poll(self, now_us: int, gave_output: bool) -> None:
        self.read(now_us)
        if gave_output:
            self.stop()

    def stop(self) -> None:
        """Something other than polling follows: a snapshot, a restore, work downstream."""
        self._since_us = None


class SourceEventTime:
    """The watermark of one source processor: the minimum over its active, unfinished source partitions.

    Each method returns the control items that it causes, in the order in which they leave the processor. Items of
    `observe_rows` go ahead of the rows, those of every other method behind what was read.

    Partitions 0 .. partition_count-1 are active at first, with watermark MIN_TIME. An idle one does not hold the
    minimum back but keeps its watermark; a finished one has left. Partitions of a bounded source are never idle.

    Invariants: watermarks that leave strictly increase (`last`); after IDLE nothing leaves but ACTIVE.
    """

    def __init__(
        self,
        policy: WatermarkPolicyFactory,
        partition_count: int,
        *,
        bounded: bool,
        idle_timeout_us: int = IDLE_TIMEOUT_US,
    ) -> None:
        self.policies = [policy() for _ in range(partition_count)]
        self.takes_greatest = all(isinstance(policy, GreatestTimePolicy) for policy in self.policies)
        """Do all policies make do with the greatest time of a batch (`observe_greatest`)?"""
        self.watermarks = [MIN_TIME] * partition_count
        self.idle = [False] * partition_count
        self.finished = [False] * partition_count
        self.last = MIN_TIME
        self.sent_idle = False
        self._idle_timeout_us = 0 if bounded else idle_timeout_us  # 0: never
        self._silent_us = [0] * partition_count
        self._polled_us = [0] * partition_count  # polled clock when the partition was last polled
        self._order = [(MIN_TIME, partition) for partition in range(partition_count)]  # unfinished, sorted

    def reading_order(self) -> list[int]:
        """Unfinished partitions, that with the lowest watermark first."""
        return [partition for _, partition in self._order]

    def start(self) -> tuple[Watermark | Signal, ...]:
        """Before the first poll: the restored watermark, once; IDLE at once if there is no partition."""
        if not self.policies:
            self.sent_idle = True
            return (IDLE,)
        return self._leave()

    def observe_rows(self, partition: int, polled_us: int) -> tuple[Watermark | Signal, ...]:
        """Rows were read (also such as a filter dropped or that were rejected): ACTIVE if the processor had said
        IDLE.
        """
        self._silent_us[partition] = 0
        self._polled_us[partition] = polled_us
        self.idle[partition] = False
        if self.sent_idle:
            self.sent_idle = False
            return (ACTIVE,)
        return ()

    def observe_timestamps(
        self, partition: int, timestamps: npt.NDArray[np.int64], now_us: int
    ) -> tuple[Watermark | Signal, ...]:
        """A batch has left: take in its times (shape (rows,), 1 row or more, no nulls). At most its greatest one
        leaves.
        """
        self._raise(partition, self.policies[partition].report(timestamps, now_us))
        lowest = self._lowest()
        if lowest is None or lowest <= self.last:
            return ()
        if lowest > timestamps[-1]:  # any time of the batch will do to see that the cap does not bind
            lowest = min(lowest, int(timestamps.max()))
        return self._advance(lowest)

    def observe_greatest(self, partition: int, greatest: int, now_us: int) -> tuple[Watermark | Signal, ...]:
        """As `observe_timestamps` of a batch whose greatest time is this; only if `takes_greatest`."""
        policy = cast(GreatestTimePolicy, self.policies[partition])
        self._raise(partition, policy.report_greatest(greatest, now_us))
        lowest = self._lowest()
        if lowest is None or lowest <= self.last:
            return ()
        return self._advance(min(lowest, greatest))

    def observe_empty(self, partition: int, polled_us: int, now_us: int) -> tuple[Watermark | Signal, ...]:
        """The partition gave a sound empty answer, when the polled clock stood at `polled_us`."""
        self._raise(partition, self.policies[partition].current(now_us))
        if self._idle_timeout_us and not self.idle[partition]:
            # The part of the polled time that lies between two polls of this very partition, and no more than a
            # gap's worth:
            # one empty answer after a long time without being polled proves nothing.
            self._silent_us[partition] += min(polled_us - self._polled_us[partition], POLL_GAP_US_MAX)
            if self._silent_us[partition] >= self._idle_timeout_us:
                self.idle[partition] = True
        self._polled_us[partition] = polled_us
        return self._leave()

    def observe_finished(self, partition: int) -> tuple[Watermark | Signal, ...]:
        """The partition has ended for ever. When all have, nothing leaves: the end of the processor says more."""
        self._order.remove((self.watermarks[partition], partition))
        self.finished[partition] = True
        return self._leave()

    def restore(self, partition: int, watermark: int, idle: bool, finished: bool) -> None:
        """Take back what a snapshot held of a partition. Before `start`."""
        self._raise(partition, watermark)
        self.idle[partition] = idle and self._idle_timeout_us > 0
        if finished and not self.finished[partition]:
            self._order.remove((self.watermarks[partition], partition))
            self.finished[partition] = True

    def _raise(self, partition: int, watermark: int) -> None:
        old = self.watermarks[partition]
        if watermark > old:
            self.watermarks[partition] = watermark
            order = self._order
            if len(order) == 1:
                order[0] = (watermark, partition)
                return
            del order[bisect_left(order, (old, partition))]
            insort(order, (watermark, partition))

    def _lowest(self) -> int | None:
        """Lowest watermark of an active, unfinished partition; None if there is none."""
        for watermark, partition in self._order:
            if not self.idle[partition]:
                return watermark
        return None

    def _leave(self) -> tuple[Watermark | Signal, ...]:
        """What leaves now that watermarks, idleness or ends have changed."""
        lowest = self._lowest()
        if lowest is not None:
            return self._advance(lowest)
        if not self._order or self.sent_idle:
            return ()
        self.sent_idle = True
        return (*self._advance(max(self.watermarks)), IDLE)

    def _advance(self, watermark: int) -> tuple[Watermark | Signal, ...]:
        """The one place where a watermark leaves, or is held back: throttling belongs here."""
        if watermark <= self.last:
            return ()
        self.last = watermark
        return (Watermark(watermark),)
