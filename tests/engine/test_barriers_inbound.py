"""Aligning snapshot barriers over the queues of one processor (SEMANTICS 3), with scripted queues."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetfast.core.batch import Batch
from jetfast.core.guarantee import Guarantee
from jetfast.core.items import ACTIVE, DONE, IDLE, Barrier, Watermark
from jetfast.engine.inbound_edge import EdgeDone, Inbound, InboundEdge
from jetfast.engine.retaining_inbound import RetainingInbound
from jetfast.errors import ProtocolError
from jetfast.kernels.queues import SpscQueue
from tests.engine.graphs import batch_of, values_of
from tests.engine.test_inbound_edge import World

ALO, EO = Guarantee.AT_LEAST_ONCE, Guarantee.EXACTLY_ONCE


class AlignedWorld(World):
    """As World, with barriers: `put` releases each as soon as it is aligned, as a processor does."""

    def __init__(self, guarantee, *edges, priorities=None, retention_us=None):
        def make(name, inbound_edges, now_us):
            for edge, priority in zip(inbound_edges, priorities or [0] * len(edges), strict=True):
                edge.priority = priority
            if retention_us is not None:
                return RetainingInbound(name, inbound_edges, now_us, retention_us, guarantee)
            return Inbound(name, inbound_edges, now_us, guarantee)

        super().__init__(*edges, make=make)

    def put(self, edge, queue, *items):
        self.queues[edge][queue].extend(items)
        events = []
        while (event := self.inbound.poll()) is not None:
            events.append(values_of(event) if type(event) is Batch else event)
            if type(event) is Barrier:
                self.inbound.release()
        return events


def test_exactly_once_nothing_is_read_behind_a_barrier_before_it_has_come_on_every_queue_of_every_edge():
    world = AlignedWorld(EO, 2, 1)
    assert world.put(0, 0, batch_of(1), Barrier(1), batch_of(2)) == [[1]]
    assert world.put(0, 1, batch_of(3), Barrier(1), batch_of(4)) == [[3]]
    assert world.put(1, 0, batch_of(5)) == [[5]]
    barrier, *behind = world.put(1, 0, Barrier(1), batch_of(6))
    assert barrier == Barrier(1)
    assert sorted(behind) == [[2], [4], [6]]


def test_exactly_once_a_watermark_behind_a_barrier_waits_as_rows_do():
    world = AlignedWorld(EO, 2)
    world.put(0, 1, Watermark(50))
    assert world.put(0, 0, Watermark(10), Barrier(1), Watermark(20)) == [Watermark(10)]
    assert world.put(0, 1, Watermark(60)) == []
    assert world.put(0, 1, Barrier(1)) == [Barrier(1), Watermark(20)]


def test_at_least_once_reading_goes_on_behind_a_barrier():
    world = AlignedWorld(ALO, 2)
    assert world.put(0, 0, Barrier(1), batch_of(1), Watermark(7)) == [[1]]
    assert world.put(0, 1, batch_of(2), Watermark(9), Barrier(1), batch_of(3)) == [
        [2],
        Watermark(7),
        Barrier(1),
        [3],
    ]


@pytest.mark.parametrize("guarantee", [ALO, EO])
def test_a_terminal_barrier_holds_queues_and_nothing_is_read_after_it(guarantee):
    world = AlignedWorld(guarantee, 2)
    assert world.put(0, 0, Barrier(1, terminal=True), batch_of(1)) == []
    assert world.put(0, 1, batch_of(2), Barrier(1, terminal=True), batch_of(3)) == [[2], Barrier(1, terminal=True)]
    assert world.put(0, 1, DONE) == []


@pytest.mark.parametrize("guarantee", [ALO, EO])
def test_a_queue_that_is_done_counts_as_aligned(guarantee):
    world = AlignedWorld(guarantee, 3)
    world.put(0, 0, DONE)
    assert world.put(0, 1, Barrier(1)) == []
    assert world.put(0, 2, Barrier(1)) == [Barrier(1)]
    world.put(0, 1, Barrier(2))
    assert world.put(0, 2, batch_of(1), DONE) == [[1], Barrier(2)]
    assert world.put(0, 1, Barrier(3)) == [Barrier(3)]


def test_an_end_that_completes_an_alignment_comes_ahead_of_the_barrier_with_all_that_it_sets_free():
    world = AlignedWorld(EO, 1, 1)
    world.put(0, 0, Watermark(10), Barrier(1))
    assert world.put(1, 0, Watermark(5), DONE) == [Watermark(5), EdgeDone(1), Watermark(10), Barrier(1)]


def test_at_least_once_the_barrier_comes_ahead_of_the_end_of_all_input():
    world = AlignedWorld(ALO, 2)
    assert world.put(0, 0, Barrier(1), DONE) == []
    assert world.put(0, 1, DONE) == [EdgeDone(0), Barrier(1), DONE]


def test_snapshot_ids_are_consecutive_and_a_wrong_one_is_an_error_that_names_the_input():
    world = AlignedWorld(EO, 1)
    assert world.put(0, 0, Barrier(7), Barrier(8)) == [Barrier(7), Barrier(8)]
    with pytest.raises(ProtocolError, match=r"up0-0.*barrier 10, expected 9"):
        world.put(0, 0, Barrier(10))


def test_queues_that_give_different_ids_are_an_error():
    world = AlignedWorld(EO, 2)
    world.put(0, 0, Barrier(1))
    with pytest.raises(ProtocolError, match=r"up0-1.*barrier 2, expected 1"):
        world.put(0, 1, Barrier(2))


def test_a_barrier_that_is_terminal_on_some_queues_only_is_an_error():
    world = AlignedWorld(EO, 2)
    world.put(0, 0, Barrier(1))
    with pytest.raises(ProtocolError, match="terminal on some"):
        world.put(0, 1, Barrier(1, terminal=True))


def test_without_a_guarantee_a_barrier_is_an_error():
    world = AlignedWorld(Guarantee.NONE, 1)
    with pytest.raises(ProtocolError, match="no guarantee"):
        world.put(0, 0, Barrier(1))


def test_a_barrier_on_an_edge_that_is_read_before_others_is_an_error_for_it_could_wait_for_ever():
    world = AlignedWorld(EO, 1, 1, priorities=[0, 1])
    with pytest.raises(ProtocolError, match="must be done before others are read"):
        world.put(0, 0, Barrier(1))


def test_a_snapshot_goes_through_when_the_edges_of_higher_priority_are_finished():
    world = AlignedWorld(EO, 1, 1, priorities=[0, 1])
    assert world.put(1, 0, batch_of(1), Barrier(1), batch_of(2)) == []
    assert world.put(0, 0, batch_of(3), DONE) == [[3], EdgeDone(0), [1], Barrier(1), [2]]


def test_rows_ahead_of_a_barrier_wake_an_idle_input_also_when_they_come_together():
    world = AlignedWorld(EO, 2)
    world.put(0, 0, IDLE)
    assert world.put(0, 1, IDLE) == [IDLE]
    assert world.put(0, 0, batch_of(1), Barrier(1)) == [ACTIVE, [1]]
    assert world.put(0, 1, Barrier(1)) == [Barrier(1)]


def test_active_ahead_of_a_barrier_wakes_an_idle_input():
    world = AlignedWorld(EO, 2)
    world.put(0, 0, Watermark(10), IDLE)
    world.put(0, 1, Watermark(20))
    assert world.put(0, 0, ACTIVE, Barrier(1)) == []
    assert world.put(0, 1, Watermark(30), Barrier(1)) == [Barrier(1)]
    assert world.put(0, 0, Watermark(25)) == [Watermark(25)]


def test_an_input_that_is_idle_still_has_to_give_its_barrier():
    world = AlignedWorld(EO, 2)
    world.put(0, 0, IDLE)
    assert world.put(0, 1, batch_of(1), Barrier(1)) == [[1]]
    assert world.put(0, 0, Barrier(1)) == [Barrier(1)]


def test_idleness_of_other_inputs_goes_on_while_one_is_held():
    world = AlignedWorld(EO, 3)
    world.put(0, 0, Watermark(30), Barrier(1))
    world.put(0, 1, Watermark(10))
    assert world.put(0, 2, Watermark(20)) == [Watermark(10)]
    assert world.put(0, 1, IDLE) == [Watermark(20)]
    assert world.put(0, 1, Barrier(1)) == []
    assert world.put(0, 2, Barrier(1)) == [Barrier(1)]


def test_several_batches_at_once_stop_at_a_barrier():
    queue = SpscQueue(8)
    edge = World.queue([], 0, 0)
    edge.poll, edge.poll_batches = queue.poll, queue.poll_batches
    inbound = Inbound("step-0", [InboundEdge(0, 0, [edge])], guarantee=EO)
    for item in (batch_of(1), batch_of(2), Barrier(1), batch_of(3)):
        queue.offer(item)
    assert [values_of(batch) for batch in inbound.join_waiting(inbound.poll(), 1000)] == [[1], [2]]
    assert inbound.poll() == Barrier(1)
    inbound.release()
    assert values_of(inbound.poll()) == [3]


def test_how_long_an_alignment_took_is_told():
    world = AlignedWorld(EO, 2)
    world.put(0, 0, Barrier(1))
    world.now_us = 250
    assert world.inbound.missing_barriers() == ["up0-1"]
    world.put(0, 1, Barrier(1))
    assert world.inbound.align_us == 250
    assert world.inbound.missing_barriers() == []


def test_a_watermark_that_was_kept_back_long_enough_goes_on_during_an_alignment_but_none_from_behind_a_barrier():
    world = AlignedWorld(EO, 2, retention_us=160)
    world.put(0, 0, Watermark(10), Barrier(1), Watermark(90))
    world.now_us = 200
    assert world.put(0, 1, batch_of(1)) == [Watermark(10), [1]]
    world.now_us = 400
    assert world.put(0, 1, batch_of(2)) == [[2]]
    assert world.put(0, 1, Barrier(1)) == [Barrier(1)]
    world.now_us = 600
    assert world.put(0, 1) == [Watermark(90)]


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_exactly_once_a_barrier_splits_what_is_read_just_where_it_stands_in_each_queue(data):
    queue_count = data.draw(st.integers(1, 4))
    world = AlignedWorld(EO, queue_count)
    scripts, expected = [], {}
    for queue in range(queue_count):
        script, part = [], 0
        for value in range(data.draw(st.integers(0, 6))):
            if data.draw(st.booleans()):
                part += 1
                script.append(Barrier(part))
            row = 100 * queue + value
            script.append(batch_of(row))
            expected[row] = part
        script += [Barrier(number) for number in range(part + 1, 8)]
        scripts.append(script)
    read, part = {}, 0
    while any(scripts):
        queue = data.draw(st.sampled_from([number for number, script in enumerate(scripts) if script]))
        for event in world.put(0, queue, scripts[queue].pop(0)):
            if type(event) is Barrier:
                part += 1
                assert event == Barrier(part)
            else:
                read[event[0]] = part
    assert part == 7
    assert read == expected
