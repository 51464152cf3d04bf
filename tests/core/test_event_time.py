"""Event time at a source: each rule of SEMANTICS 1.1, 1.2 and 1.4 by name."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetfast.core.event_time import FixedLag, PolledClock, SourceEventTime, fixed_lag
from jetfast.core.items import ACTIVE, IDLE, Watermark
from jetfast.errors import DurationError
from jetfast.types import MAX_TIME, MIN_TIME

TIMEOUT_US = 5_000_000


class World:
    """A source processor's event time with a polled clock that the test moves."""

    def __init__(self, partitions: int, lag_us: int = 0, bounded: bool = False, timeout_us: int = TIMEOUT_US) -> None:
        self.event_time = SourceEventTime(FixedLag(lag_us), partitions, bounded=bounded, idle_timeout_us=timeout_us)
        self.polled_us = 0
        self.left = list(self.event_time.start())

    def rows(self, partition: int, *times: int) -> list[object]:
        before = self.event_time.observe_rows(partition, self.polled_us)
        after = self.event_time.observe_timestamps(partition, np.array(times, np.int64), 0)
        self.left += [*before, *after]
        return [*before, "rows", *after]

    def empty(self, partition: int, polled_us: int = 0) -> list[object]:
        self.polled_us += polled_us
        left = list(self.event_time.observe_empty(partition, self.polled_us, 0))
        self.left += left
        return left

    def silence(self, *partitions: int, seconds: int) -> list[object]:
        """Poll these partitions each half second, in vain."""
        return [
            item for _ in range(2 * seconds) for p in partitions for item in self.empty(p, 500_000 // len(partitions))
        ]

    def finish(self, partition: int) -> list[object]:
        left = list(self.event_time.observe_finished(partition))
        self.left += left
        return left


def test_a_watermark_stays_the_lag_behind_the_greatest_time() -> None:
    policy = FixedLag(10)()
    assert policy.report(np.array([100, 50]), 0) == 90
    assert policy.report(np.array([95]), 0) == 90
    assert policy.current(0) == 90


def test_a_watermark_saturates_at_the_least_time() -> None:
    assert FixedLag(10)().report(np.array([MIN_TIME + 3]), 0) == MIN_TIME
    assert FixedLag(MAX_TIME)().report(np.array([MIN_TIME]), 0) == MIN_TIME


def test_a_negative_lag_is_refused() -> None:
    with pytest.raises(DurationError, match="lag must not be negative"):
        fixed_lag("-1s")


@given(st.lists(st.lists(st.integers(-1000, 1000), min_size=1), max_size=8), st.integers(0, 300))
@settings(deadline=None, max_examples=100)
def test_a_policy_after_a_batch_is_as_after_its_rows_one_by_one(batches: list[list[int]], lag_us: int) -> None:
    whole, single = FixedLag(lag_us)(), FixedLag(lag_us)()
    for batch in batches:
        for time in batch:
            single.report(np.array([time]), 0)
        assert whole.report(np.array(batch), 0) == single.current(0)


def test_a_watermark_follows_its_batch() -> None:
    assert World(1).rows(0, 5, 7) == ["rows", Watermark(7)]


def test_a_watermark_leaves_only_when_it_advances() -> None:
    world = World(1)
    world.rows(0, 7)
    assert world.rows(0, 7) == ["rows"]
    assert world.rows(0, 3) == ["rows"]
    assert world.empty(0) == []
    assert world.rows(0, 8) == ["rows", Watermark(8)]


def test_a_watermark_is_capped_at_the_greatest_time_of_its_batch() -> None:
    # Partition 1 holds the minimum at 3; while it is idle, the batch of partition 0 may lift it to 10 but not above.
    world = World(2, lag_us=0)
    world.rows(1, 3)
    world.rows(0, 50)
    assert world.event_time.last == 3
    for _ in range(10):
        world.empty(1, 500_000)
        world.rows(0, 1)  # keeps partition 0 awake; its times are far behind its own watermark 50
    assert world.event_time.idle == [False, True]
    assert world.left[-1] == Watermark(50)  # the empty answer that made 1 idle was no batch: no cap
    capped = World(2)
    capped.rows(0, 50)
    capped.rows(1, 3)
    capped.event_time.idle[1] = True
    assert capped.rows(0, 10) == ["rows", Watermark(10)]
    assert capped.empty(0) == [Watermark(50)]


def test_the_watermark_is_the_minimum_over_partitions() -> None:
    world = World(3)
    assert world.rows(0, 30) == ["rows"]
    assert world.rows(1, 20) == ["rows"]
    assert world.rows(2, 25) == ["rows", Watermark(20)]
    assert world.rows(1, 40) == ["rows", Watermark(25)]


def test_the_partition_with_the_lowest_watermark_is_read_first() -> None:
    world = World(3)
    assert world.event_time.reading_order() == [0, 1, 2]
    world.rows(0, 30)
    world.rows(1, 20)
    assert world.event_time.reading_order() == [2, 1, 0]
    world.finish(2)
    assert world.event_time.reading_order() == [1, 0]


def test_a_partition_is_idle_after_its_timeout_of_polled_time() -> None:
    world = World(2)
    world.rows(0, 10)
    world.rows(1, 20)
    assert world.silence(0, seconds=4) == []
    world.rows(1, 21)
    assert world.silence(0, seconds=1) == [Watermark(21)]


def test_a_row_starts_the_idle_timeout_again() -> None:
    world = World(1)
    world.silence(0, seconds=4)
    world.rows(0, 1)
    assert world.silence(0, seconds=4) == []
    assert world.silence(0, seconds=1) == [IDLE]


def test_rows_that_were_dropped_or_rejected_keep_a_partition_awake() -> None:
    world = World(1)
    for _ in range(4):
        world.silence(0, seconds=4)
        assert world.event_time.observe_rows(0, world.polled_us) == ()
    assert world.left == []


def test_one_empty_answer_after_a_long_time_without_a_poll_proves_nothing() -> None:
    world = World(2)
    world.rows(0, 1)
    world.polled_us += 3600_000_000  # partition 1 was always ready first
    assert world.empty(0) == []
    assert world.event_time.idle == [False, False]


def test_an_idle_timeout_of_zero_means_never() -> None:
    world = World(1, timeout_us=0)
    assert world.silence(0, seconds=100) == []


def test_a_bounded_partition_is_never_idle() -> None:
    world = World(2, bounded=True)
    world.rows(0, 10)
    assert world.silence(0, 1, seconds=100) == []


def test_a_bounded_partition_holds_the_watermark_before_it_is_opened() -> None:
    world = World(2, bounded=True)
    assert world.rows(0, 10) == ["rows"]
    assert world.event_time.last == MIN_TIME


def test_a_finished_partition_leaves_the_minimum() -> None:
    world = World(2, bounded=True)
    world.rows(0, 10)
    world.rows(1, 5)
    assert world.finish(1) == [Watermark(10)]
    assert world.finish(0) == []


def test_the_last_active_partition_turning_idle_sends_the_highest_watermark_then_idle_once() -> None:
    world = World(2)
    world.rows(0, 30)
    world.rows(1, 10)
    assert world.silence(0, seconds=6) == []  # the other one holds at 10
    assert world.silence(1, seconds=6) == [Watermark(30), IDLE]
    assert world.silence(0, 1, seconds=20) == []


def test_idle_is_sent_without_a_watermark_before_the_first_row() -> None:
    assert World(1).silence(0, seconds=6) == [IDLE]


def test_the_next_row_wakes_active_first() -> None:
    world = World(1)
    world.rows(0, 5)
    world.silence(0, seconds=6)
    assert world.rows(0, 9) == [ACTIVE, "rows", Watermark(9)]
    assert world.rows(0, 10) == ["rows", Watermark(10)]


def test_a_row_of_one_partition_does_not_wake_the_others() -> None:
    world = World(2)
    world.rows(0, 5)
    world.rows(1, 3)
    world.silence(0, 1, seconds=12)
    assert world.left[-1] is IDLE
    assert world.rows(0, 9) == [ACTIVE, "rows", Watermark(9)]
    assert world.event_time.idle == [False, True]


def test_a_partition_that_wakes_behind_does_not_take_the_watermark_back() -> None:
    world = World(2)
    world.rows(0, 50)
    world.silence(1, seconds=6)
    world.rows(0, 60)
    assert world.rows(1, 10) == ["rows"]
    assert world.rows(0, 70) == ["rows"]
    assert world.rows(1, 65) == ["rows", Watermark(65)]


def test_a_processor_without_partitions_sends_idle_at_once() -> None:
    assert World(0).left == [IDLE]


def test_a_finished_partition_leaves_idle_ones_behind() -> None:
    world = World(2)
    world.rows(0, 10)
    world.rows(1, 20)
    world.silence(0, seconds=6)
    assert world.finish(1) == [IDLE]  # 20 has left already


def test_a_restored_watermark_leaves_once_and_first_and_nothing_below_it_again() -> None:
    event_time = SourceEventTime(FixedLag(0), 2, bounded=True)
    event_time.restore(0, 30, False, False)
    event_time.restore(1, 20, False, False)
    assert event_time.start() == (Watermark(20),)
    assert event_time.observe_timestamps(1, np.array([15, 20]), 0) == ()
    assert event_time.observe_timestamps(1, np.array([25]), 0) == (Watermark(25),)


def test_a_partition_restored_as_finished_does_not_hold() -> None:
    event_time = SourceEventTime(FixedLag(0), 2, bounded=True)
    event_time.restore(0, 10, False, True)
    event_time.restore(1, 20, False, False)
    assert event_time.start() == (Watermark(20),)
    assert event_time.reading_order() == [1]


def test_partitions_restored_as_idle_stay_idle() -> None:
    event_time = SourceEventTime(FixedLag(0), 1, bounded=False)
    event_time.restore(0, 10, True, False)
    assert event_time.start() == (Watermark(10), IDLE)
    assert event_time.observe_rows(0, 0) == (ACTIVE,)


@given(
    st.lists(st.tuples(st.integers(0, 2), st.lists(st.integers(-50, 50), min_size=1, max_size=5)), max_size=40),
    st.integers(0, 40),
)
@settings(deadline=None, max_examples=150)
def test_a_row_at_most_lag_behind_its_partition_is_never_late(
    batches: list[tuple[int, list[int]]], lag_us: int
) -> None:
    world = World(3, lag_us=lag_us, bounded=True)
    tops = [MIN_TIME] * 3
    last = MIN_TIME
    for partition, times in batches:
        for time in times:
            if time >= tops[partition] - lag_us:
                assert time >= last  # late is: below the watermark the processor had before the row's batch
            tops[partition] = max(tops[partition], time)
        for item in world.rows(partition, *times):
            if isinstance(item, Watermark):
                assert last < item.value <= max(times)
                last = item.value


def test_the_polled_clock_runs_during_polls_and_between_empty_ones() -> None:
    clock = PolledClock()
    clock.begin_poll(0)
    clock.end_poll(100, gave_output=False)
    clock.begin_poll(250)
    assert clock.read(300) == 300


def test_the_polled_clock_stands_still_while_output_waits_downstream() -> None:
    clock = PolledClock()
    clock.begin_poll(0)
    clock.end_poll(100, gave_output=True)
    clock.begin_poll(60_000_000)
    assert clock.read(60_000_050) == 150


def test_the_polled_clock_stands_still_during_a_snapshot() -> None:
    clock = PolledClock()
    clock.begin_poll(0)
    clock.end_poll(100, gave_output=False)
    clock.stop()
    clock.begin_poll(60_000_000)
    assert clock.read(60_000_000) == 100


def test_a_gap_between_two_polls_counts_for_a_second_at_most() -> None:
    clock = PolledClock()
    clock.begin_poll(0)
    clock.end_poll(0, gave_output=False)
    clock.begin_poll(3600_000_000)
    assert clock.read(3600_000_000) == 1_000_000


def test_the_polled_clock_bears_a_wall_clock_that_goes_back() -> None:
    clock = PolledClock()
    clock.begin_poll(1000)
    clock.end_poll(900, gave_output=False)
    clock.begin_poll(800)
    assert clock.read(850) == 50


class SlowEventTime:
    """The rules as they are written, without order, bisection or shortcuts."""

    def __init__(self, partitions: int, lag_us: int) -> None:
        self.lag_us = lag_us
        self.watermarks = [MIN_TIME] * partitions
        self.idle = [False] * partitions
        self.finished = [False] * partitions
        self.last = MIN_TIME
        self.sent_idle = False

    def rows(self, partition: int, times: tuple[int, ...]) -> list[object]:
        before = [ACTIVE] if self.sent_idle else []
        self.sent_idle = self.idle[partition] = False
        self.watermarks[partition] = max([self.watermarks[partition], *(time - self.lag_us for time in times)])
        return [*before, "rows", *self.leave(max(times))]

    def turn_idle(self, partition: int) -> list[object]:
        self.idle[partition] = True
        return self.leave(MAX_TIME)

    def finish(self, partition: int) -> list[object]:
        self.finished[partition] = True
        return self.leave(MAX_TIME)

    def leave(self, cap: int) -> list[object]:
        unfinished = [p for p, finished in enumerate(self.finished) if not finished]
        active = [self.watermarks[p] for p in unfinished if not self.idle[p]]
        left: list[object] = []
        if not unfinished or (not active and self.sent_idle):
            return left
        watermark = min([*active, cap]) if active else max(self.watermarks)
        if watermark > self.last:
            self.last = watermark
            left.append(Watermark(watermark))
        if not active:
            self.sent_idle = True
            left.append(IDLE)
        return left


EVENTS = st.one_of(
    st.tuples(st.just("rows"), st.integers(0, 3), st.lists(st.integers(-60, 60), min_size=1, max_size=4).map(tuple)),
    st.tuples(st.just("idle"), st.integers(0, 3), st.just(())),
    st.tuples(st.just("finish"), st.integers(0, 3), st.just(())),
)


@given(st.lists(EVENTS, max_size=40), st.integers(0, 30))
@settings(deadline=None, max_examples=150)
def test_random_events_leave_what_the_rules_say(events: list[tuple[str, int, tuple[int, ...]]], lag_us: int) -> None:
    world, slow = World(4, lag_us), SlowEventTime(4, lag_us)
    for kind, partition, times in events:
        if slow.finished[partition]:
            continue
        if kind == "rows":
            assert world.rows(partition, *times) == slow.rows(partition, times)
        elif kind == "finish":
            assert world.finish(partition) == slow.finish(partition)
        elif not slow.idle[partition]:
            # One empty answer sends what the cap of a batch had held back; those that follow make the partition idle.
            assert world.empty(partition) == slow.leave(MAX_TIME)
            assert world.silence(partition, seconds=6) == slow.turn_idle(partition)
        assert [world.event_time.watermarks[p] for p in world.event_time.reading_order()] == sorted(
            watermark for watermark, finished in zip(slow.watermarks, slow.finished, strict=True) if not finished
        )


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.lists(st.integers(-50, 50), min_size=1, max_size=5)), max_size=20))
def test_the_greatest_time_of_a_batch_tells_as_much_as_all_times(batches: list[tuple[int, list[int]]]) -> None:
    one, other = (SourceEventTime(FixedLag(7), 3, bounded=True) for _ in range(2))
    assert one.takes_greatest
    for partition, times in batches:
        assert one.observe_greatest(partition, max(times), 0) == other.observe_timestamps(
            partition, np.array(times, np.int64), 0
        )
    assert one.watermarks == other.watermarks
    assert one.reading_order() == other.reading_order()
