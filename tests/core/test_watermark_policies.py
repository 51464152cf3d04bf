"""Watermark policies: each rule of SEMANTICS 1.1 and 1.2 by name, and each policy against its slow twin."""

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetfast import watermarks
from jetfast.core.watermark_policies import (
    FixedLag,
    LimitingLagAndDelay,
    LimitingLagAndLull,
    LimitingTimestampAndWallClockLag,
    RealTimeLag,
)
from jetfast.errors import DurationError, JobDefinitionError
from jetfast.types import MAX_TIME, MIN_TIME


class SlowFixedLag:
    """The rules as they are written: all that ever happened is kept, and looked through row by row."""

    def __init__(self, lag: int, limit: int = 0) -> None:
        self.lag, self.limit = lag, limit
        self.seen: list[tuple[int, int]] = []  # (elapsed, time) of each row
        self.watermark = MIN_TIME
        self.now: int | None = None
        self.elapsed = 0  # by a clock that stands still when the given one goes back

    def tick(self, now: int) -> None:
        before, self.now = self.now, now
        for _ in range(0 if before is None else now - before):
            self.elapsed += 1
            self.at_tick()
        self.at_event(now)

    def at_tick(self) -> None:
        pass

    def at_event(self, now: int) -> None:
        pass

    def row(self, time: int, now: int) -> int:
        self.tick(now)
        self.seen.append((self.elapsed, time))
        self.reach(time - self.lag)
        self.at_event(now)
        return self.watermark

    def current(self, now: int) -> int:
        self.tick(now)
        return self.watermark

    def reach(self, watermark: int) -> None:
        self.watermark = min(MAX_TIME, max(self.watermark, watermark))


class SlowDelay(SlowFixedLag):
    def at_event(self, now: int) -> None:
        for elapsed, time in self.seen:
            slot, slot_now = elapsed * 16 // self.limit, self.elapsed * 16 // self.limit
            if slot_now >= slot + 17:
                self.reach(time)


class SlowLull(SlowFixedLag):
    def at_tick(self) -> None:
        if self.seen and self.elapsed - self.seen[-1][0] > self.limit:
            self.watermark += 1


class SlowTimestampAndWallClock(SlowFixedLag):
    def at_event(self, now: int) -> None:
        self.reach(now - self.limit)


class SlowRealTime(SlowFixedLag):
    def row(self, time: int, now: int) -> int:
        return self.current(now)

    def at_event(self, now: int) -> None:
        self.reach(now - self.lag)


EVENTS = st.lists(
    st.tuples(
        st.one_of(st.integers(0, 12), st.integers(0, 120), st.integers(-30, 0)),  # by which the clock moves on
        st.lists(st.integers(-300, 300), max_size=4),  # rows; none: only asked
    ),
    max_size=25,
)
POLICIES: list[tuple[Callable[[int, int], Any], Callable[[int, int], SlowFixedLag]]] = [
    (lambda lag, _: FixedLag(lag), SlowFixedLag),
    (LimitingLagAndDelay, SlowDelay),
    (LimitingLagAndLull, SlowLull),
    (LimitingTimestampAndWallClockLag, SlowTimestampAndWallClock),
    (lambda lag, _: RealTimeLag(lag), SlowRealTime),
]


@pytest.mark.parametrize(("policy_of", "twin_of"), POLICIES, ids=[twin.__name__ for _, twin in POLICIES])  # type: ignore[attr-defined]
@given(EVENTS, st.integers(0, 100), st.integers(1, 100), st.integers(-500, 500))
@settings(deadline=None, max_examples=50)
def test_a_policy_after_a_batch_is_as_after_its_rows_one_by_one(
    policy_of: Callable[[int, int], Any],
    twin_of: Callable[[int, int], SlowFixedLag],
    events: list[tuple[int, list[int]]],
    lag: int,
    limit: int,
    now: int,
) -> None:
    policy, single, twin = policy_of(lag, limit), policy_of(lag, limit), twin_of(lag, limit)
    last = MIN_TIME
    for step, times in events:
        now += step
        if times:
            for time in times:
                assert single.report(np.array([time]), now) == twin.row(time, now)
            watermark = policy.report(np.array(times), now)
        else:
            single.current(now)
            watermark = policy.current(now)
            twin.current(now)
        assert watermark == twin.watermark == single.current(now)
        assert watermark >= last
        last = watermark


def test_limiting_lag_and_delay_reaches_a_row_between_the_delay_and_17_16_of_it() -> None:
    for seen in range(0, 160, 7):
        policy = watermarks.limiting_lag_and_delay("50us", "160us")
        policy.current(0)
        assert policy.report(np.array([1000]), seen) == 950
        reached = next(now for now in range(seen, 1000) if policy.current(now) == 1000)
        assert 160 <= reached - seen <= 170


def test_limiting_lag_and_delay_moves_while_the_source_is_silent_and_also_when_it_is_slow() -> None:
    policy = watermarks.limiting_lag_and_delay("100s", "16s")
    second = 1_000_000
    for now in range(60):
        policy.report([now * second], now * second)
    assert 43 * second <= policy.current(60 * second) <= 44 * second  # not 59 - 100
    assert policy.current(100 * second) == 59 * second


def test_limiting_lag_and_delay_holds_16_samples_per_delay() -> None:
    policy = LimitingLagAndDelay(0, 1_000_000)
    for row in range(5000):
        policy.report([row], row * 1000)
    assert len(policy._history._pending) <= 17


def test_a_delay_of_zero_means_no_lag() -> None:
    policy = watermarks.limiting_lag_and_delay("10s", "0s")
    assert policy.report([7], 0) == 7


def test_limiting_lag_and_lull_advances_with_the_clock_for_the_time_beyond_the_lull() -> None:
    policy = LimitingLagAndLull(10, 60)
    assert policy.current(1000) == MIN_TIME  # before the first row nothing moves
    assert policy.report([500], 2000) == 490
    assert policy.current(2060) == 490
    assert policy.current(2061) == 491
    assert policy.current(2100) == 530
    assert policy.report([520], 2110) == 540  # it never goes back
    assert policy.current(2170) == 540  # the row ended the lull
    assert policy.current(2171) == 541


def test_a_clock_that_goes_back_does_not_take_a_lull_back_nor_count_it_twice() -> None:
    policy = LimitingLagAndLull(0, 10)
    policy.report([0], 100)
    assert policy.current(115) == 5
    assert policy.current(50) == 5
    assert policy.current(60) == 15


def test_a_lull_goes_on_after_a_restart() -> None:
    policy = LimitingLagAndLull(10, 60)
    policy.restore(490)
    assert policy.current(0) == 490
    assert policy.current(70) == 500


def test_limiting_timestamp_and_wall_clock_lag_works_without_any_row() -> None:
    policy = LimitingTimestampAndWallClockLag(10, 100)
    assert policy.current(1000) == 900
    assert policy.report([950], 1001) == 940
    assert policy.current(1041) == 941


def test_real_time_lag_follows_the_clock_whatever_the_rows() -> None:
    policy = RealTimeLag(100)
    assert policy.report([10**15], 1000) == 900
    assert policy.current(990) == 900


@pytest.mark.parametrize("policy_of", [policy for policy, _ in POLICIES])
def test_a_watermark_saturates_at_the_ends_of_time(policy_of: Callable[[int, int], Any]) -> None:
    policy = policy_of(MAX_TIME, MAX_TIME)
    assert policy.report([MIN_TIME], MIN_TIME) == MIN_TIME
    highest = policy_of(0, 1)
    highest.report([MAX_TIME], 0)
    assert highest.current(MAX_TIME) in (MAX_TIME, MAX_TIME - 1)


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: watermarks.fixed_lag("-1s"), "lag"),
        (lambda: watermarks.limiting_lag_and_delay("1s", "-1s"), "max_delay"),
        (lambda: watermarks.limiting_lag_and_lull("1s", "-1s"), "max_lull"),
        (lambda: watermarks.limiting_timestamp_and_wall_clock_lag("-1s", "1s"), "timestamp_lag"),
        (lambda: watermarks.limiting_timestamp_and_wall_clock_lag("1s", "-1s"), "wall_clock_lag"),
        (lambda: watermarks.real_time_lag("-1s"), "lag"),
    ],
)
def test_negative_durations_are_a_value_error_when_the_pipeline_is_built(make: Callable[[], object], what: str) -> None:
    with pytest.raises(ValueError, match=f"^{what} must not be negative") as error:
        make()
    assert isinstance(error.value, DurationError)
    assert isinstance(error.value, JobDefinitionError)


def test_each_source_partition_gets_a_policy_of_its_own() -> None:
    policies = [
        watermarks.fixed_lag("1s"),
        watermarks.limiting_lag_and_delay("1s", "2s"),
        watermarks.limiting_lag_and_lull("1s", "2s"),
        watermarks.limiting_timestamp_and_wall_clock_lag("1s", "2s"),
        watermarks.real_time_lag("1s"),
    ]
    for policy in policies:
        policy.report([10**9], 10**9)
        other = pickle.loads(pickle.dumps(policy))()
        assert other == policy
        assert hash(other) == hash(policy)
        assert policy.watermark > other.watermark == MIN_TIME
    assert watermarks.fixed_lag("1s") != watermarks.fixed_lag("2s")
    assert repr(watermarks.limiting_lag_and_delay("1s", "2m")) == 'limiting_lag_and_delay("1s", "2m")'
