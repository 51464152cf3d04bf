"""Event time at a source: each rule of SEMANTICS 1.1, 1.2 and 1.4 by name."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from jetfast.core.event_time import PolledClock, SourceEventTime
from jetfast.core.items import ACTIVE, IDLE, Watermark
from jetfast.core.throttling import EmitByFrame, EmitByMinStep, WatermarkThrottleFactory
from jetfast.core.watermark_policies import (
    FixedLag,
    LimitingLagAndDelay,
    LimitingLagAndLull,
    RealTimeLag,
    WatermarkPolicyFactory,
)
from jetfast.core.windows import Window
from jetfast.types import MAX_TIME, MIN_TIME

TIMEOUT_US = 5_000_000


class World:
    """A source processor's event time with a polled clock that the test moves."""

    def __init__(self, partitions: int, lag_us: int = 0, bounded: bool = False, timeout_us: int = TIMEOUT_US) -> None:
        self.event_time = SourceEventTime(FixedLag(lag_us), partitions, bounded=bounded, idle_timeout_us=timeout_us)
        self.polled_us = 0
        self.now_us = 0
        self.left = list(self.event_time.start())

    def rows(self, partition: int, *times: int) -> list[object]:
        before = self.event_time.observe_rows(partition, self.polled_us)
        after = self.event_time.observe_timestamps(partition, np.array(times, np.int64), self.now_us)
        self.left += [*before, *after]
        return [*before, "rows", *after]

    def empty(self, partition: int, polled_us: int = 0) -> list[object]:
        self.polled_us += polled_us
        left = list(self.event_time.observe_empty(partition, self.polled_us, self.now_us))
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


def test_a_processor_without_partitions_sends_nothing() -> None:
    assert World(0).left == []


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


def source_event_time(
    policy: WatermarkPolicyFactory, partitions: int = 1, throttle: WatermarkThrottleFactory | None = None
) -> SourceEventTime:
    options = {} if throttle is None else {"throttle": throttle}
    event_time = SourceEventTime(policy, partitions, bounded=False, idle_timeout_us=TIMEOUT_US, **options)
    assert event_time.start() == ()
    return event_time


def rows(event_time: SourceEventTime, partition: int, *times: int, now_us: int = 0) -> list[object]:
    before = event_time.observe_rows(partition, 0)
    return [*before, *event_time.observe_timestamps(partition, np.array(times, np.int64), now_us)]


def test_emit_by_frame_sends_the_boundary_when_the_minimum_enters_a_frame() -> None:
    event_time = source_event_time(FixedLag(0), 2, EmitByFrame(Window(10, 10)))
    assert rows(event_time, 0, 35) == []
    assert rows(event_time, 1, 27) == [Watermark(20)]
    assert rows(event_time, 1, 29) == []
    assert rows(event_time, 1, 38) == [Watermark(30)]


def test_a_throttle_does_not_hold_back_the_watermark_that_goes_ahead_of_idle() -> None:
    for throttle, next_sent in ((EmitByFrame(Window(10, 10)), 30), (EmitByMinStep(10), 30)):
        event_time = source_event_time(FixedLag(0), 1, throttle)
        rows(event_time, 0, 20)
        assert rows(event_time, 0, 27) == []
        event_time.observe_empty(0, 0, 0)
        left = [item for second in range(1, 10) for item in event_time.observe_empty(0, second * 1_000_000, 0)]
        assert left == [Watermark(27), IDLE]
        assert rows(event_time, 0, 30) == [ACTIVE, Watermark(next_sent)]


def test_a_throttle_does_not_hold_back_the_restored_watermark() -> None:
    event_time = SourceEventTime(FixedLag(0), 1, bounded=True, throttle=EmitByFrame(Window(10, 10)))
    event_time.restore(0, 27, False, False)
    assert event_time.start() == (Watermark(27),)
    assert rows(event_time, 0, 29) == []
    assert rows(event_time, 0, 31) == [Watermark(30)]


def test_a_watermark_that_the_clock_moves_is_capped_at_the_greatest_time_of_its_batch() -> None:
    event_time = source_event_time(RealTimeLag(0))
    assert rows(event_time, 0, 5, 3, now_us=1000) == [Watermark(5)]
    assert event_time.observe_empty(0, 0, 1000) == (Watermark(1000),)
    assert rows(event_time, 0, 2000, now_us=1500) == [Watermark(1500)]


def test_a_delay_is_measured_by_the_wall_clock() -> None:
    event_time = source_event_time(LimitingLagAndDelay(100, 160))
    assert rows(event_time, 0, 50, now_us=0) == [Watermark(-50)]
    assert event_time.observe_empty(0, 0, 170) == (Watermark(50),)


def test_a_lull_is_measured_in_polled_time_of_its_own_partition() -> None:
    second = 1_000_000
    event_time = source_event_time(LimitingLagAndLull(0, second), 2)
    rows(event_time, 1, 10**12)
    rows(event_time, 0, 7)
    # An hour of wall time, and of polls that gave rows of the other partition, is no lull of this one.
    for minute in range(60):
        event_time.observe_rows(1, minute * 60 * second)
    assert event_time.observe_empty(0, 3600 * second, 3600 * second) == ()
    assert event_time.observe_empty(0, 3601 * second, 3600 * second) == (Watermark(7 + second),)


def test_a_lull_goes_on_after_a_restore() -> None:
    event_time = SourceEventTime(LimitingLagAndLull(0, 0), 1, bounded=False)
    event_time.restore(0, 30, False, False)
    assert event_time.start() == (Watermark(30),)
    assert event_time.observe_empty(0, 10, 0) == ()
    assert event_time.observe_empty(0, 15, 0) == (Watermark(35),)


def test_a_policy_of_ones_own_needs_two_methods() -> None:
    class EveryHundredth:
        def __init__(self) -> None:
            self.rows = 0

        def report(self, timestamps: np.ndarray, now_us: int) -> int:
            self.rows += len(timestamps)
            return self.current(now_us)

        def current(self, now_us: int) -> int:
            return self.rows // 100

    event_time = source_event_time(EveryHundredth)
    assert rows(event_time, 0, *range(50)) == [Watermark(0)]
    assert rows(event_time, 0, *range(200)) == [Watermark(2)]


def test_rows_that_came_behind_their_source_are_counted_with_the_reason() -> None:
    world = World(2)
    world.rows(0, 10)
    world.rows(1, 60)
    world.silence(0, seconds=6)  # partition 0 is idle: the watermark goes on to 60
    world.rows(1, 70)
    world.now_us = 10_000_000
    world.silence(1, seconds=6)  # now all are: no leap, 70 was reached already
    leap = world.event_time.idle_leap
    assert leap is not None
    assert (leap.from_us, leap.to_us, leap.all_idle) == (10, 60, False)
    world.rows(0, 20, 69, 71)
    (overtaken,) = world.event_time.overtaken.values()
    assert (overtaken.rows, overtaken.rows_by_all_idle, overtaken.most_us) == (2, 0, 50)


def test_the_end_of_the_last_active_partition_is_a_leap_over_the_idle_ones() -> None:
    world = World(2)
    world.rows(0, 90)
    world.rows(1, 40)
    world.silence(0, seconds=6)
    assert world.finish(1) == [Watermark(90), IDLE]
    leap = world.event_time.idle_leap
    assert leap is not None
    assert (leap.from_us, leap.to_us, leap.all_idle) == (40, 90, True)


def test_rows_that_became_late_because_all_partitions_were_idle_are_counted() -> None:
    world = World(2)
    world.rows(0, 10)
    world.rows(1, 60)
    for second in range(6):  # both fall silent at once
        world.polled_us = second * 1_000_000
        for partition in (0, 1):
            world.left += world.event_time.observe_empty(partition, world.polled_us, 5_000)
    assert world.left[-2:] == [Watermark(60), IDLE]
    leap = world.event_time.idle_leap
    assert leap is not None
    assert (leap.at_us, leap.from_us, leap.to_us, leap.all_idle) == (5_000, 10, 60, True)
    world.rows(0, 20, 59, 60, 5)
    overtaken = world.event_time.overtaken[0]
    assert (overtaken.rows, overtaken.rows_by_all_idle, overtaken.most_us) == (3, 2, 55)


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
