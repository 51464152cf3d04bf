"""Event time at a source: one watermark policy per source partition, their minimum, and who holds it back."""

from bisect import bisect_left, insort
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from jetfast.core.items import ACTIVE, IDLE, Watermark
from jetfast.core.throttling import NoThrottling, WatermarkThrottleFactory
from jetfast.core.watermark_policies import GreatestTimePolicy, WatermarkPolicyFactory
from jetfast.types import MIN_TIME, Signal

IDLE_TIMEOUT_US = 60_000_000
POLL_GAP_US_MAX = 1_000_000
"""A worker with nothing else to do polls its sources far more often than this; what a gap lasts beyond it was other
work.
"""


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


@dataclass(slots=True)
class Overtaken:
    """Rows of one source partition that came behind the watermark of their source, because it had not waited."""

    rows: int = 0
    rows_by_all_idle: int = 0
    """Of these, rows that the watermark passed when all partitions were idle."""
    first_us: int = 0
    """Wall clock when the first and the last of them came."""
    last_us: int = 0
    most_us: int = 0
    """How far the time of a row was behind the watermark, at most."""


@dataclass(frozen=True, slots=True)
class IdleLeap:
    """Partitions turned idle, and the watermark went on without waiting for them."""

    at_us: int
    """Wall clock."""
    from_us: int
    to_us: int
    all_idle: bool
    """No partition was left awake: the watermark went on to that of the one that is furthest ahead."""


class SourceEventTime:
    """The watermark of one source processor: the minimum over its active, unfinished source partitions.

    Each method returns the control items that it causes, in the order in which they leave the processor. Items of
    `observe_rows` go ahead of the rows, those of every other method behind what was read.

    Partitions 0 .. partition_count-1 are active at first, with watermark MIN_TIME. An idle one does not hold the
    minimum back but keeps its watermark; a finished one has left. Partitions of a bounded source are never idle.

    A throttle may hold watermarks back, but not the restored one, nor that which goes ahead of IDLE.

    Invariants: watermarks that leave strictly increase (`last`); after IDLE nothing leaves but ACTIVE.
    """

    def __init__(
        self,
        policy: WatermarkPolicyFactory,
        partition_count: int,
        *,
        bounded: bool,
        idle_timeout_us: int = IDLE_TIMEOUT_US,
        throttle: WatermarkThrottleFactory = NoThrottling,
        now_us: int = 0,
    ) -> None:
        self._policy = policy
        self.policies = [policy() for _ in range(partition_count)]
        self.takes_greatest = all(hasattr(policy, "report_greatest") for policy in self.policies)
        """Do all policies make do with the greatest time of a batch (`observe_greatest`)?"""
        self.watermarks = [MIN_TIME] * partition_count
        self.idle = [False] * partition_count
        self.finished = [False] * partition_count
        self.last = MIN_TIME
        self.sent_idle = False
        # For `explain_watermark`: wall clock when the watermark of a partition last rose (at first: now), when rows
        # last came, what did not wait for it.
        self.raised_us = [now_us] * partition_count
        self.rows_us: list[int | None] = [None] * partition_count
        self.overtaken: dict[int, Overtaken] = {}
        self.idle_leap: IdleLeap | None = None
        self._now_us = now_us
        self._throttle = throttle()
        self._idle_timeout_us = 0 if bounded else idle_timeout_us  # 0: never
        self._silent_us = [0] * partition_count
        self._polled_us = [0] * partition_count  # polled clock when the partition was last polled
        # The clock of policies that want polled time: how long this partition gave empty answers, in all.
        self._waited_us = [0] * partition_count
        self._waits = [getattr(policy, "polled_clock", False) for policy in self.policies]
        self._order = [(MIN_TIME, partition) for partition in range(partition_count)]  # unfinished, sorted

    def add_partition(self, now_us: int) -> tuple[Watermark | Signal, ...]:
        """One more partition has come: active, with watermark MIN_TIME. ACTIVE if the processor had said IDLE."""
        partition = len(self.policies)
        policy = self._policy()
        self.policies.append(policy)
        self.takes_greatest = self.takes_greatest and hasattr(policy, "report_greatest")
        self.watermarks.append(MIN_TIME)
        self.idle.append(False)
        self.finished.append(False)
        self.raised_us.append(now_us)
        self.rows_us.append(None)
        self._silent_us.append(0)
        self._polled_us.append(0)
        self._waited_us.append(0)
        self._waits.append(getattr(policy, "polled_clock", False))
        insort(self._order, (MIN_TIME, partition))  # last: it is seen by threads that report
        if self.sent_idle:
            self.sent_idle = False
            return (ACTIVE,)
        return ()

    def reading_order(self) -> list[int]:
        """Unfinished partitions, that with the lowest watermark first."""
        return [partition for _, partition in self._order]

    def is_next(self, partition: int) -> bool:
        """Is this partition the first of the reading order?"""
        return bool(self._order) and self._order[0][1] == partition

    def start(self) -> tuple[Watermark | Signal, ...]:
        """Before the first poll: the restored watermark, once.

        Nothing if there is no partition: such a source ends at once. Were it idle before, the steps behind it could
        turn idle as the others end, and what they give then be late where it meets rows of another source.
        """
        lowest = self._lowest()
        return self._leave() if lowest is None else self._send(lowest)

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
        self._now_us = self.rows_us[partition] = now_us
        if self.is_behind(partition):
            self._count_overtaken(partition, timestamps)
        clock_us = self._waited_us[partition] if self._waits[partition] else now_us
        self._raise(partition, int(self.policies[partition].report(timestamps, clock_us)))
        lowest = self._lowest()
        if lowest is None or lowest <= self.last:
            return ()
        if lowest > timestamps[-1]:  # any time of the batch will do to see that the cap does not bind
            lowest = min(lowest, int(timestamps.max()))
        return self._advance(lowest)

    def is_behind(self, partition: int) -> bool:
        """Has the source gone on without this partition? (It was idle, or is new.) Then its rows are looked at one by
        one.
        """
        return self.watermarks[partition] < self.last

    def observe_greatest(self, partition: int, greatest: int, now_us: int) -> tuple[Watermark | Signal, ...]:
        """As `observe_timestamps` of a batch, or of several that leave together, whose greatest time is this.

        Only if `takes_greatest`, and the partition is not behind.
        """
        policy: GreatestTimePolicy = self.policies[partition]  # type: ignore[assignment]
        self._now_us = self.rows_us[partition] = now_us
        clock_us = self._waited_us[partition] if self._waits[partition] else now_us
        self._raise(partition, int(policy.report_greatest(greatest, clock_us)))
        lowest = self._lowest()
        if lowest is None or lowest <= self.last:
            return ()
        return self._advance(min(lowest, greatest))

    def observe_empty(self, partition: int, polled_us: int, now_us: int) -> tuple[Watermark | Signal, ...]:
        """The partition gave a sound empty answer, when the polled clock stood at `polled_us`."""
        self._now_us = now_us
        # The part of the polled time that lies between two polls of this very partition, and no more than a gap's
        # worth: one empty answer after a long time without being polled proves nothing.
        waited_us = min(polled_us - self._polled_us[partition], POLL_GAP_US_MAX)
        self._polled_us[partition] = polled_us
        self._waited_us[partition] += waited_us
        clock_us = self._waited_us[partition] if self._waits[partition] else now_us
        self._raise(partition, int(self.policies[partition].current(clock_us)))
        self._silent_us[partition] += waited_us
        if self._idle_timeout_us and not self.idle[partition] and self._silent_us[partition] >= self._idle_timeout_us:
            self.idle[partition] = True
            return self._leap()
        return self._leave()

    def observe_finished(self, partition: int) -> tuple[Watermark | Signal, ...]:
        """The partition has ended for ever. When all have, nothing leaves: the end of the processor says more."""
        self._order.remove((self.watermarks[partition], partition))
        self.finished[partition] = True
        return self._leave() if self._lowest() is not None else self._leap()

    def restore(self, partition: int, watermark: int, idle: bool, finished: bool) -> None:
        """Take back what a snapshot held of a partition. Before `start`."""
        self._raise(partition, watermark)
        restore_policy = getattr(self.policies[partition], "restore", None)
        if restore_policy is not None:
            restore_policy(watermark)
        self.idle[partition] = idle and self._idle_timeout_us > 0
        if finished and not self.finished[partition]:
            self._order.remove((self.watermarks[partition], partition))
            self.finished[partition] = True

    def idle_in_us(self, partition: int) -> int | None:
        """Polled time after which the partition will be idle if it stays silent; None: never, or it is idle."""
        if not self._idle_timeout_us or self.idle[partition]:
            return None
        return self._idle_timeout_us - self._silent_us[partition]

    def silent_us(self, partition: int) -> int:
        """Polled time since the last row of a partition."""
        return self._silent_us[partition]

    def _raise(self, partition: int, watermark: int) -> None:
        old = self.watermarks[partition]
        if watermark > old:
            self.raised_us[partition] = self._now_us
            self.watermarks[partition] = watermark
            order = self._order
            if len(order) == 1:
                order[0] = (watermark, partition)
                return
            del order[bisect_left(order, (old, partition))]
            insort(order, (watermark, partition))

    def _count_overtaken(self, partition: int, timestamps: npt.NDArray[np.int64]) -> None:
        """Count the rows that come behind the watermark that this source has sent."""
        late = timestamps[timestamps < self.last]
        if not len(late):
            return
        counts = self.overtaken.setdefault(partition, Overtaken(first_us=self._now_us))
        counts.rows += len(late)
        counts.last_us = self._now_us
        counts.most_us = max(counts.most_us, self.last - int(late.min()))
        leap = self.idle_leap
        if leap is not None and leap.all_idle:
            counts.rows_by_all_idle += int(np.count_nonzero((late >= leap.from_us) & (late < leap.to_us)))

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
        return (*self._send(max(self.watermarks)), IDLE)

    def _leap(self) -> tuple[Watermark | Signal, ...]:
        """What leaves now that a partition has turned idle, or left nothing but idle ones behind."""
        before, earlier = self.last, self.idle_leap
        left = self._leave()
        if left:
            # Those that fell silent together turn idle one after the other: that is one leap.
            together = earlier is not None and self._now_us - earlier.at_us <= POLL_GAP_US_MAX
            start = earlier.from_us if earlier is not None and together else before
            if start < self.last:
                self.idle_leap = IdleLeap(self._now_us, start, self.last, self.sent_idle)
        return left

    def _advance(self, watermark: int) -> tuple[Watermark | Signal, ...]:
        """Send a watermark, or what the throttle lets through of it."""
        if watermark <= self.last:
            return ()
        throttled = self._throttle.throttle(watermark)
        return () if throttled is None else self._send(throttled)

    def _send(self, watermark: int) -> tuple[Watermark | Signal, ...]:
        """The one place where a watermark leaves."""
        if watermark <= self.last:
            return ()
        self.last = watermark
        return (Watermark(watermark),)
