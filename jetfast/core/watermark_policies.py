"""Watermark policies: how far event time has come in one source partition.

    policy                                 W is the greatest so far of                                 clock
    fixed_lag(lag)                         top - lag                                                   none
    limiting_lag_and_delay(lag, delay)     top - lag; the top of `delay` ago                           wall
    limiting_lag_and_lull(lag, lull)       top - lag; after a lull, where it stood + time beyond it    polled
    limiting_timestamp_and_wall_clock_lag  top - timestamp_lag; now - wall_lag                         wall
    real_time_lag(lag)                     now - lag                                                   wall

`top` is the greatest time of a row seen. W starts at MIN_TIME, saturates at the ends of int64 and only ever rises. All
times and `now` are int64 microseconds. The state after a batch equals feeding its rows one by one at the same `now`.

The policies here make others of their kind: calling one gives a fresh one with the same settings. So what a user
writes down, `fixed_lag("2h")`, is what each source partition gets its own of, and can be tried out by itself.
"""

from collections import deque
from typing import Protocol, Self

import numpy as np
import numpy.typing as npt

from jetfast.types import MAX_TIME, MIN_TIME, Duration, format_duration, non_negative_duration_us

SAMPLES_PER_DELAY = 16


class WatermarkPolicy(Protocol):
    """Decides how far event time has come in one source partition. One instance per source partition.

    A policy may say `polled_clock = True`: it then gets, as `now_us`, not the wall clock but the time during which its
    partition was polled in vain, which stands still while the job is busy or stopped. It may have `restore(watermark)`:
    called after a restart, before anything else, with what it had said last.
    """

    def report(self, timestamps: npt.NDArray[np.int64], now_us: int) -> int:
        """Take in the times of a batch (shape (rows,), int64 microseconds, no nulls); return the watermark after it.

        The state afterwards equals feeding the rows one by one.
        """

    def current(self, now_us: int) -> int:
        """Return the watermark now; may move by the clock alone."""


class GreatestTimePolicy(Protocol):
    """What a WatermarkPolicy may offer besides, if nothing counts but the greatest time: then times are not listed."""

    def report_greatest(self, greatest: int, now_us: int) -> int:
        """As `report` of a batch whose greatest time is this."""


class WatermarkPolicyFactory(Protocol):
    """Makes one policy per source partition. Picklable."""

    def __call__(self) -> WatermarkPolicy: ...


class _Policy:
    """What all policies of this module have in common: `watermark`, which only rises, and the greatest time counts."""

    polled_clock = False
    _maker = ""
    """The function that users call to make one."""

    def __init__(self, *durations_us: int) -> None:
        self._durations_us = durations_us
        self.watermark = MIN_TIME

    def __call__(self) -> Self:
        """Return a fresh policy with the same settings."""
        return type(self)(*self._durations_us)

    def report(self, timestamps: npt.ArrayLike, now_us: int) -> int:
        """Take in the times of a batch (int64 microseconds) seen at `now_us`; return the watermark."""
        times = np.asarray(timestamps, np.int64)
        return self.report_greatest(int(times.max()), now_us) if times.size else self.current(now_us)

    def report_greatest(self, greatest: int, now_us: int) -> int:
        """Take in a batch whose greatest time is this; return the watermark."""
        raise NotImplementedError

    def current(self, now_us: int) -> int:
        """Return the watermark at `now_us`."""
        return self.watermark

    def restore(self, watermark: int) -> None:
        """Go on from a watermark that an earlier policy with the same settings had reached."""
        self.watermark = max(self.watermark, watermark)

    def _raise(self, watermark: int) -> int:
        if watermark > self.watermark:
            self.watermark = min(watermark, MAX_TIME)
        return self.watermark

    def __repr__(self) -> str:
        settings = ", ".join(f'"{format_duration(duration_us)}"' for duration_us in self._durations_us)
        return f"{self._maker}({settings})"

    def __eq__(self, other: object) -> bool:
        """Are the settings equal? The state is not compared."""
        return type(other) is type(self) and other._durations_us == self._durations_us

    def __hash__(self) -> int:
        return hash((type(self), self._durations_us))


class FixedLag(_Policy):
    """w = max(w, time - lag). Needs no clock."""

    _maker = "fixed_lag"

    def __init__(self, lag_us: int) -> None:
        super().__init__(lag_us)
        self.lag_us = lag_us

    def report_greatest(self, greatest: int, now_us: int) -> int:
        watermark = greatest - self.lag_us
        if watermark > self.watermark:  # which is MIN_TIME at least
            self.watermark = watermark
        return self.watermark


class LimitingLagAndDelay(_Policy):
    """As FixedLag; and between max_delay and max_delay * 17/16 after a row was seen W reaches that row's own time."""

    _maker = "limiting_lag_and_delay"

    def __init__(self, lag_us: int, max_delay_us: int) -> None:
        super().__init__(lag_us, max_delay_us)
        self.lag_us = lag_us
        self._history = TopHistory(max_delay_us, SAMPLES_PER_DELAY + 1)

    def report_greatest(self, greatest: int, now_us: int) -> int:
        self._history.observe(greatest, now_us)
        self._raise(greatest - self.lag_us)
        return self.current(now_us)

    def current(self, now_us: int) -> int:
        return self._raise(self._history.matured(now_us))


class LimitingLagAndLull(_Policy):
    """As FixedLag; once nothing has come for max_lull, W advances with the clock, for the time beyond the lull.

    In a job the clock is the polled one: it stands still while the source is not asked, or cannot be read.
    """

    polled_clock = True
    _maker = "limiting_lag_and_lull"

    def __init__(self, lag_us: int, max_lull_us: int) -> None:
        super().__init__(lag_us, max_lull_us)
        self.lag_us = lag_us
        self.max_lull_us = max_lull_us
        self._started = False
        self._now_us: int | None = None
        self._silent_us = 0  # since the last row, in the time of a clock that never goes back

    def report_greatest(self, greatest: int, now_us: int) -> int:
        self.current(now_us)  # what was left of the lull, which ends
        self._started = True
        self._silent_us = 0
        return self._raise(greatest - self.lag_us)

    def current(self, now_us: int) -> int:
        if self._now_us is not None and now_us > self._now_us and self._started:
            before_us = max(0, self._silent_us - self.max_lull_us)
            self._silent_us += now_us - self._now_us
            beyond_us = max(0, self._silent_us - self.max_lull_us) - before_us
            self._raise(self.watermark + beyond_us)
        self._now_us = now_us
        return self.watermark

    def restore(self, watermark: int) -> None:
        """Go on from a watermark: a lull may follow it, as there was a row before."""
        super().restore(watermark)
        self._started = self.watermark > MIN_TIME


class LimitingTimestampAndWallClockLag(_Policy):
    """w = max(w, time - timestamp_lag, now - wall_clock_lag); the second part works without any row."""

    _maker = "limiting_timestamp_and_wall_clock_lag"

    def __init__(self, timestamp_lag_us: int, wall_clock_lag_us: int) -> None:
        super().__init__(timestamp_lag_us, wall_clock_lag_us)
        self.timestamp_lag_us = timestamp_lag_us
        self.wall_clock_lag_us = wall_clock_lag_us

    def report_greatest(self, greatest: int, now_us: int) -> int:
        self._raise(greatest - self.timestamp_lag_us)
        return self.current(now_us)

    def current(self, now_us: int) -> int:
        return self._raise(now_us - self.wall_clock_lag_us)


class RealTimeLag(_Policy):
    """w = max(w, now - lag), whatever the times of the rows."""

    _maker = "real_time_lag"

    def __init__(self, lag_us: int) -> None:
        super().__init__(lag_us)
        self.lag_us = lag_us

    def report_greatest(self, greatest: int, now_us: int) -> int:
        return self.current(now_us)

    def current(self, now_us: int) -> int:
        return self._raise(now_us - self.lag_us)


class TopHistory:
    """The greatest time seen, as it was a delay ago; exact to a sixteenth of the delay.

    Time is cut into slots of delay / SAMPLES_PER_DELAY. A slot keeps the greatest time seen in it, and gives it up
    `slots` slots later: with SAMPLES_PER_DELAY + 1 at least, with SAMPLES_PER_DELAY at most `delay` after a row. After
    Hazelcast Jet's TimestampHistory. A clock that goes back counts as standing still.

    Invariant: `_pending` has (slot, top) with both strictly ascending, and at most `slots` entries.
    """

    def __init__(self, delay_us: int, slots: int) -> None:
        self._delay_us = delay_us
        self._slots = slots
        self._pending: deque[tuple[int, int]] = deque()
        self._top = MIN_TIME
        self._matured = MIN_TIME
        self._now_us: int | None = None
        self._elapsed_us = 0

    def observe(self, top: int, now_us: int) -> None:
        """A row of time `top` was seen."""
        slot = self._advance(now_us)
        if top <= self._top:
            return
        self._top = top
        if self._delay_us == 0:
            self._matured = top
        elif self._pending and self._pending[-1][0] == slot:
            self._pending[-1] = (slot, top)
        else:
            self._pending.append((slot, top))

    def observe_held(self, top: int, now_us: int, held: int) -> None:
        """As `observe` of a time that was seen so many sixteenths of the delay ago."""
        if held == 0 or self._delay_us == 0:
            self.observe(top, now_us)
            return
        slot = self._advance(now_us) - held
        if slot + self._slots <= self._elapsed_us * SAMPLES_PER_DELAY // self._delay_us:
            self._matured = max(self._matured, top)
        if any(seen <= slot and other >= top for seen, other in self._pending):
            return
        kept = [(seen, other) for seen, other in self._pending if seen < slot or other > top]
        self._pending = deque(sorted([*kept, (slot, top)]))
        self._top = max(self._top, top)

    def held(self, top: int, now_us: int) -> int:
        """Return for how many sixteenths of the delay a time, or a greater one, has been seen."""
        slot = self._advance(now_us)
        if top <= self._matured:
            return SAMPLES_PER_DELAY
        seen = next((seen for seen, other in self._pending if other >= top), slot)
        return 0 if seen >= slot else min(slot - seen + 1, SAMPLES_PER_DELAY)

    def matured(self, now_us: int) -> int:
        """Return the greatest time of the rows that were seen a delay ago or before; MIN_TIME if there is none."""
        self._advance(now_us)
        return self._matured

    def _advance(self, now_us: int) -> int:
        """Return the present slot, after giving up the old ones."""
        if self._now_us is not None and now_us > self._now_us:
            self._elapsed_us += now_us - self._now_us
        self._now_us = now_us
        if self._delay_us == 0:
            return 0
        slot = self._elapsed_us * SAMPLES_PER_DELAY // self._delay_us
        while self._pending and self._pending[0][0] + self._slots <= slot:
            self._matured = self._pending.popleft()[1]
        return slot


def fixed_lag(lag: Duration) -> FixedLag:
    """The watermark stays `lag` behind the greatest time seen: rows that are at most `lag` out of order are never
    late.
    """
    return FixedLag(non_negative_duration_us(lag, "lag"))


def limiting_lag_and_delay(lag: Duration, max_delay: Duration) -> LimitingLagAndDelay:
    """As `fixed_lag`; and no row keeps the watermark waiting for longer than `max_delay` of wall time.

    Between max_delay and max_delay * 17/16 after a row was seen the watermark reaches that row's own time, also while
    the source is silent. So windows close soon after a stream has fallen silent, or slowed down.
    """
    return LimitingLagAndDelay(non_negative_duration_us(lag, "lag"), non_negative_duration_us(max_delay, "max_delay"))


def limiting_lag_and_lull(lag: Duration, max_lull: Duration) -> LimitingLagAndLull:
    """As `fixed_lag`; and once nothing has come for `max_lull`, the watermark advances with the clock, from where it
    stood, until the next row.

    The clock stands still while the source is not polled: back-pressure, snapshots and lost connections are no lull.
    Before the first row nothing moves.
    """
    return LimitingLagAndLull(non_negative_duration_us(lag, "lag"), non_negative_duration_us(max_lull, "max_lull"))


def limiting_timestamp_and_wall_clock_lag(
    timestamp_lag: Duration, wall_clock_lag: Duration
) -> LimitingTimestampAndWallClockLag:
    """The watermark is at most `timestamp_lag` behind the greatest time seen and at most `wall_clock_lag` behind the
    clock, rows or no rows.
    """
    return LimitingTimestampAndWallClockLag(
        non_negative_duration_us(timestamp_lag, "timestamp_lag"),
        non_negative_duration_us(wall_clock_lag, "wall_clock_lag"),
    )


def real_time_lag(lag: Duration) -> RealTimeLag:
    """The watermark stays `lag` behind the clock; rows whose time is further behind may be late."""
    return RealTimeLag(non_negative_duration_us(lag, "lag"))
