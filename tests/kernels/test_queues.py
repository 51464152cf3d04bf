"""The queue between two tasklets: order, bounds, references, the memory budget, two threads."""

import gc
import sys
import threading
import weakref
from collections import deque

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetfast.core.batch import Batch, BatchRun
from jetfast.kernels.queues import MemoryBudget, SpscQueue


class Thing:
    """Something that can be watched."""


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 9), st.lists(st.sampled_from(["offer", "poll", "peek"]), max_size=80))
def test_it_equals_a_bounded_deque(capacity, calls):
    queue, twin = SpscQueue(capacity), deque()
    for number, call in enumerate(calls):
        if call == "offer":
            room = len(twin) < capacity
            assert queue.offer(number + 1) is room
            if room:
                twin.append(number + 1)
        elif call == "poll":
            assert queue.poll() == (twin.popleft() if twin else None)
        else:
            assert queue.peek() == (twin[0] if twin else None)
        assert len(queue) == len(twin)
    assert queue.capacity == capacity


@settings(max_examples=100, deadline=None)
@given(
    st.integers(0, 60),
    st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["offer", "poll"]), st.integers(1, 30)), max_size=80),
)
def test_an_empty_queue_takes_one_item_and_more_only_below_the_limit(limit, calls):
    budget = MemoryBudget(limit)
    queues = [SpscQueue(4, budget) for _ in range(3)]
    twins = [deque() for _ in range(3)]
    greatest = 0
    for index, call, nbytes in calls:
        used = sum(map(sum, twins))
        if call == "offer":
            twin = twins[index]
            room = len(twin) < 4 and (not twin or used < limit)
            assert queues[index].offer("batch", nbytes) is room
            if room:
                twin.append(nbytes)
        elif queues[index].poll() is not None:
            twins[index].popleft()
        assert budget.used_bytes == sum(map(sum, twins))
        greatest = max(greatest, budget.used_bytes)
        assert greatest <= budget.peak_bytes <= greatest + 30  # an item offered in vain counts for a moment
    assert budget.limit_bytes == limit


def test_control_items_of_no_bytes_need_no_budget():
    queue = SpscQueue(4, MemoryBudget(0))
    assert queue.offer("batch", 5)
    assert not queue.offer("batch", 5)
    assert queue.offer("watermark")


def test_what_was_offered_is_kept_alive_and_let_go_once():
    thing = Thing()
    watch = weakref.ref(thing)
    queue = SpscQueue(2)
    queue.offer(thing)
    del thing
    gc.collect()
    assert watch() is not None
    assert queue.peek() is watch()
    assert queue.poll() is watch()
    gc.collect()
    assert watch() is None


def test_a_queue_that_is_dropped_lets_its_items_go_and_gives_its_bytes_back():
    thing, budget = Thing(), MemoryBudget(100)
    watch = weakref.ref(thing)
    queue = SpscQueue(2, budget)
    queue.offer(thing, 10)
    before = sys.getrefcount(thing)
    assert not any(SpscQueue(1).offer(thing) and None for _ in range(3))
    assert sys.getrefcount(thing) == before
    del thing, queue
    gc.collect()
    assert watch() is None
    assert budget.used_bytes == 0


def test_two_threads_hand_over_everything_in_order():
    queue, count, got = SpscQueue(8, MemoryBudget(1000)), 20_000, []

    def produce():
        for number in range(count):
            while not queue.offer([number], number % 7):
                threading.Event().wait(0.000_01)

    producer = threading.Thread(target=produce)
    producer.start()
    while len(got) < count:
        item = queue.poll()
        if item is None:
            threading.Event().wait(0.000_01)
        else:
            got.append(item[0])
    producer.join()
    assert got == list(range(count))


def test_sizes_that_make_no_sense_are_refused():
    with pytest.raises(ValueError, match="at least 1"):
        SpscQueue(0)
    with pytest.raises(ValueError, match="must not be negative"):
        MemoryBudget(-1)
    with pytest.raises(TypeError):
        SpscQueue(1).offer(None)


def test_batches_next_to_each_other_are_taken_at_once_up_to_another_item_or_schema_and_to_so_many_rows():
    def rows(count):
        return Batch.from_arrow(pa.record_batch({"x": list(range(count))}))

    wide = Batch.from_arrow(pa.record_batch({"x": [1], "y": [2]}))
    queue = SpscQueue(16)
    items = [rows(3), BatchRun.of([rows(1), rows(3)]), "watermark", rows(5), rows(6), wide]
    schema = rows(1).schema
    for item in items:
        assert queue.offer(item, 1)
    assert queue.poll_batches(2, schema) == []
    assert queue.poll_batches(3, wide.schema) == []
    assert queue.poll_batches(3, schema) == items[:1]
    assert queue.poll_batches(100, schema) == items[1:2]
    assert queue.poll_batches(100, schema) == []
    assert queue.poll() == "watermark"
    assert queue.poll_batches(100, schema) == items[3:5]
    assert queue.poll_batches(100, wide.schema) == [wide]
    assert queue.poll_batches(11, schema) == []


def test_a_run_has_room_while_a_quarter_is_taken_at_most() -> None:
    run = BatchRun.of([Batch.from_arrow(pa.record_batch({"x": [1]}))])
    queue = SpscQueue(8)
    assert [queue.offer(run) for _ in range(4)] == [True, True, True, False]
    assert queue.offer("watermark")
    assert [queue.poll() for _ in range(2)] == [run, run]
    assert queue.offer(run)
    alone = SpscQueue(1)
    assert [alone.offer(run), alone.offer(run), alone.poll() is run, alone.offer(run)] == [True, False, True, True]
