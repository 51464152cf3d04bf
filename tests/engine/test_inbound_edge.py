"""Reading the queues of one processor: two levels of coalescing with idle, active and done inputs (SEMANTICS 1.5)."""

from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetfast.core.batch import Batch, BatchRun
from jetfast.core.items import ACTIVE, DONE, IDLE, Watermark
from jetfast.engine.inbound_edge import EdgeDone, Inbound, InboundEdge, InboundQueue
from jetfast.errors import ProtocolError
from jetfast.kernels.queues import SpscQueue
from jetfast.types import MIN_TIME
from tests.engine.graphs import batch_of, values_of
from tests.kernels.stream_reference import SlowCoalescer


class World:
    """An inbound whose queues a test fills; `edges`: number of queues of each edge."""

    def __init__(self, *edges, make=Inbound):
        self.now_us = 0
        self.queues = [[deque() for _ in range(count)] for count in edges]
        self.inbound = make(
            "step-0",
            [
                InboundEdge(ordinal, 0, [self.queue(items, ordinal, n) for n, items in enumerate(queues)])
                for ordinal, queues in enumerate(self.queues)
            ],
            lambda: self.now_us,
        )

    @staticmethod
    def queue(items, ordinal, number):
        return InboundQueue(lambda: items.popleft() if items else None, f"up{ordinal}-{number}")

    def put(self, edge, queue, *items):
        """Put items into a queue; return all events that they cause, rows as their values."""
        self.queues[edge][queue].extend(items)
        events = list(iter(self.inbound.poll, None))
        return [values_of(event) if type(event) is Batch else event for event in events]


def test_the_least_of_all_queues_of_all_edges_is_forwarded():
    world = World(2, 1)
    assert world.put(0, 0, Watermark(10)) == []
    assert world.put(0, 1, Watermark(20)) == []
    assert world.put(1, 0, Watermark(5)) == [Watermark(5)]
    assert world.put(1, 0, Watermark(30)) == [Watermark(10)]


def test_an_edge_whose_queues_are_all_idle_does_not_hold_back_the_others():
    world = World(2, 1)
    world.put(1, 0, Watermark(30))
    assert world.put(0, 0, Watermark(10), IDLE) == []
    assert world.put(0, 1, IDLE) == [Watermark(10), Watermark(30)]
    assert world.put(1, 0, Watermark(40)) == [Watermark(40)]


def test_a_queue_that_is_idle_in_an_edge_that_is_awake_does_not_hold_it_back():
    world = World(2, 1)
    world.put(1, 0, Watermark(30))
    world.put(0, 0, Watermark(10))
    assert world.put(0, 1, IDLE) == [Watermark(10)]


def test_when_all_edges_are_idle_the_highest_watermark_leaves_and_then_idle():
    world = World(2, 1)
    world.put(0, 0, Watermark(50), IDLE)
    world.put(0, 1, Watermark(10))
    assert world.put(1, 0, Watermark(20)) == [Watermark(10)]
    assert world.put(1, 0, IDLE) == []
    assert world.put(0, 1, IDLE) == [Watermark(50), IDLE]


def test_idle_may_repeat():
    world = World(1, 1)
    assert world.put(0, 0, IDLE, IDLE) == []
    assert world.put(1, 0, IDLE, IDLE) == [IDLE]
    assert world.put(0, 0, IDLE) == []


def test_rows_on_an_idle_queue_wake_active_first():
    world = World(1, 1)
    world.put(0, 0, IDLE)
    assert world.put(1, 0, IDLE) == [IDLE]
    assert world.put(0, 0, batch_of(1)) == [ACTIVE, [1]]
    assert world.put(0, 0, batch_of(2)) == [[2]]


def test_a_woken_edge_holds_the_watermark_again_from_where_it_was():
    world = World(1, 1)
    world.put(0, 0, Watermark(10), IDLE)
    assert world.put(1, 0, Watermark(20)) == [Watermark(20)]
    assert world.put(0, 0, ACTIVE) == []
    assert world.put(1, 0, Watermark(30)) == []
    assert world.put(0, 0, Watermark(25)) == [Watermark(25)]


def test_an_edge_that_is_done_holds_nothing_back_and_says_so_before_what_it_sets_free():
    world = World(2, 1)
    world.put(0, 0, Watermark(10))
    world.put(1, 0, Watermark(30))
    assert world.put(0, 0, DONE) == []
    assert world.put(0, 1, DONE) == [EdgeDone(0), Watermark(10), Watermark(30)]
    assert world.put(1, 0, DONE) == [EdgeDone(1), DONE]


def test_the_end_of_all_edges_is_not_idle():
    world = World(1, 1)
    world.put(0, 0, IDLE)
    assert world.put(1, 0, Watermark(5), DONE) == [Watermark(5), EdgeDone(1), IDLE]
    assert world.put(0, 0, DONE) == [EdgeDone(0), DONE]


def test_anything_after_done_is_an_error_that_names_the_input():
    world = World(2)
    world.put(0, 1, DONE)
    queue = world.inbound.queues[1]
    with pytest.raises(ProtocolError, match="step 'step-0', inbound edge 0, from up0-1: .* after it was done"):
        world.inbound.take_control(queue, IDLE)


def test_a_watermark_that_does_not_rise_is_an_error_that_names_the_input():
    world = World(2)
    world.put(0, 1, Watermark(7))
    with pytest.raises(ProtocolError, match="step 'step-0', inbound edge 0, from up0-1: input 1: watermark 7 is not"):
        world.put(0, 1, Watermark(7))


def test_the_input_that_holds_the_watermark_back_is_known():
    world = World(2, 1)
    world.put(0, 0, Watermark(10))
    queue, watermark = world.inbound.holder()
    assert (queue.upstream, watermark) == ("up0-1", MIN_TIME)
    world.put(0, 1, IDLE)
    world.put(1, 0, Watermark(30))
    queue, watermark = world.inbound.holder()
    assert (queue.upstream, watermark) == ("up0-0", 10)
    world.put(0, 0, IDLE)
    world.put(1, 0, DONE)
    assert world.inbound.holder() is None


def test_a_leap_over_idle_inputs_is_remembered():
    world = World(1, 1)
    world.put(0, 0, Watermark(10))
    world.put(1, 0, Watermark(50))
    world.now_us = 7
    assert world.put(0, 0, IDLE) == [Watermark(50)]
    assert world.inbound.leap == (7, 10, 50, False)
    world.now_us = 8
    world.put(1, 0, IDLE)
    assert world.inbound.leap == (7, 10, 50, True)  # they fell silent together
    world.put(1, 0, Watermark(60))
    world.now_us = 90_000_000
    world.put(1, 0, IDLE)
    assert world.inbound.leap == (7, 10, 50, True)


class SlowInbound:
    """Two levels of the rule, word for word; rows are an observation like others."""

    def __init__(self, *edges):
        self.edges = [SlowCoalescer(count) for count in edges]
        self.top = SlowCoalescer(len(edges))
        self.live = list(edges)

    def put(self, edge, queue, item):
        inner = self.edges[edge]
        if item is DONE:
            forwarded = inner.observe_done(queue)
            self.live[edge] -= 1
        elif item is IDLE:
            forwarded = inner.observe_idle(queue)
        elif type(item) is Watermark:
            forwarded = inner.observe_watermark(queue, item.value)
        else:
            forwarded = inner.observe_rows(queue)
        left = []
        for signal in forwarded:
            if signal is IDLE:
                left += self.top.observe_idle(edge)
            elif signal is ACTIVE:
                left += self.top.observe_active(edge)
            else:
                left += self.top.observe_watermark(edge, signal)
        if item is DONE and self.live[edge] == 0:
            left += self.top.observe_done(edge)
        left = [Watermark(signal) if type(signal) is int else signal for signal in left]
        if type(item) is Batch:
            left.append(values_of(item))
        if not any(self.live):
            left.append(DONE)
        return left


@settings(max_examples=80, deadline=None)
@given(
    st.sampled_from([(2, 1), (1, 1), (2, 2), (1, 1, 2), (18, 1)]),
    st.lists(
        st.tuples(
            st.integers(0, 30), st.sampled_from(["rows", "watermark", "watermark", "idle", "active", "done"]),
            st.integers(1, 20),
        ),
        max_size=40,
    ),
)  # fmt: skip
def test_two_levels_forward_what_the_rule_says(edges, steps):
    world, slow = World(*edges), SlowInbound(*edges)
    queues = [(edge, queue) for edge, count in enumerate(edges) for queue in range(count)]
    reached, done = dict.fromkeys(queues, 0), set()
    forwarded = []
    for where, kind, amount in steps:
        queue = queues[where % len(queues)]
        if queue in done:
            continue
        if kind == "watermark":
            reached[queue] += amount
            item = Watermark(reached[queue])
        elif kind == "done":
            done.add(queue)
            item = DONE
        else:
            item = {"rows": batch_of(amount), "idle": IDLE, "active": ACTIVE}[kind]
        left = [event for event in world.put(*queue, item) if type(event) is not EdgeDone]
        assert left == slow.put(*queue, item)
        forwarded += left
    watermarks = [event.value for event in forwarded if type(event) is Watermark]
    assert watermarks == sorted(set(watermarks))


def test_several_batches_at_once_come_from_all_queues_of_the_edge_that_are_awake_up_to_their_next_control_item():
    world = World(3, 1)
    queues = [SpscQueue(8) for _ in world.inbound.queues]
    for inbound_queue, queue in zip(world.inbound.queues, queues, strict=True):
        inbound_queue.poll, inbound_queue.poll_batches = queue.poll, queue.poll_batches
    queues[2].offer(IDLE)
    assert world.inbound.poll() is None
    contents = [[batch_of(1), batch_of(2), Watermark(5), batch_of(3)], [batch_of(4)], [batch_of(5)], [batch_of(6)]]
    for queue, items in zip(queues, contents, strict=True):
        for item in items:
            queue.offer(item)
    by_edge: dict[int, list[int]] = {}
    for _ in range(2):
        rows = world.inbound.join_waiting(world.inbound.poll(), 100)
        by_edge[world.inbound.ordinal] = sorted(value for batch in BatchRun.of([rows]) for value in values_of(batch))
    assert by_edge == {0: [1, 2, 4], 1: [6]}


def test_several_batches_at_once_are_so_many_rows_at_most_over_all_queues():
    world = World(2)
    queues = [SpscQueue(8), SpscQueue(8)]
    for inbound_queue, queue in zip(world.inbound.queues, queues, strict=True):
        inbound_queue.poll, inbound_queue.poll_batches = queue.poll, queue.poll_batches
        for _ in range(3):
            queue.offer(batch_of(1, 2))
    assert world.inbound.join_waiting(world.inbound.poll(), 9).row_count == 8
    assert sorted(map(len, queues)) == [0, 2]


def test_the_batches_of_a_run_that_is_taken_apart_come_ahead_of_what_is_behind_it():
    world = World(1)
    run = BatchRun.of([batch_of(1), batch_of(2), batch_of(3)])
    world.queues[0][0].append(IDLE)
    assert world.inbound.poll() is IDLE
    world.queues[0][0].extend([run, Watermark(4)])
    assert world.inbound.poll() is ACTIVE
    taken = world.inbound.poll()
    assert taken is run
    first = world.inbound.take_apart(run)
    assert [values_of(batch) for batch in (first, world.inbound.poll(), world.inbound.poll())] == [[1], [2], [3]]
    assert world.inbound.poll() == Watermark(4)
