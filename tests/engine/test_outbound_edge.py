"""Outbound edges on queues that are full now and then: nothing is lost, sent twice or overtaken."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetfast.core.batch import Batch
from jetfast.core.items import Watermark
from jetfast.core.routing import local_partition_owners
from jetfast.engine.outbound_edge import (
    BroadcastEdge,
    FanoutEdge,
    Outbox,
    PartitionedEdge,
    RoundRobinEdge,
    SingleTargetEdge,
    Target,
)
from jetfast.kernels.partitioning import Splitter
from jetfast.kernels.queues import SpscQueue
from tests.engine.graphs import SCHEMA, batch_of, values_of

EDGES = {
    "round robin": lambda targets: RoundRobinEdge(targets, True),
    "single": lambda targets: SingleTargetEdge(targets, True, 1),
    "broadcast": lambda targets: BroadcastEdge(targets, False),
    "fanout": lambda targets: FanoutEdge(targets, True),
    "partitioned": lambda targets: PartitionedEdge(
        targets, True, Splitter(SCHEMA, ["key"], local_partition_owners(271, 4), 4).split
    ),
}


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(sorted(EDGES)),
    st.lists(st.sampled_from(["rows", "watermark"]), max_size=8),
    st.lists(st.integers(0, 3), max_size=60),
)
def test_whatever_is_full_when_each_queue_gets_its_part_once_and_in_order(kind, items, drains):
    queues = [SpscQueue(1) for _ in range(4)]
    edge = EDGES[kind]([Target(index // 2, index, queue.offer) for index, queue in enumerate(queues)])
    outbox = Outbox([(0, edge)])
    got = [[] for _ in queues]
    drains = iter(drains)

    def make_room():
        index = next(drains, None)
        for number, queue in enumerate(queues):
            if index is None or number == index:
                item = queue.poll()
                if item is not None:
                    got[number].append(item)

    for number, item in enumerate(items):
        send = outbox.send if item == "rows" else outbox.broadcast
        sent = send(batch_of(*range(number * 10, number * 10 + 8)) if item == "rows" else Watermark(number))
        assert sent == (outbox.count_left() == 0) == (not outbox.blocked)
        while outbox.blocked:
            make_room()
            left = outbox.count_left()
            assert outbox.resume() == (outbox.count_left() == 0)
            assert outbox.count_left() <= left
    for _ in range(8):
        make_room()
    while any(len(queue) for queue in queues):
        make_room()

    watermarks = [number for number, item in enumerate(items) if item == "watermark"]
    rows = Counter()
    for arrived in got:
        assert [item.value for item in arrived if isinstance(item, Watermark)] == watermarks
        order = [item.value if isinstance(item, Watermark) else values_of(item)[0] // 10 for item in arrived]
        assert order == sorted(order)
        for item in arrived:
            if isinstance(item, Batch):
                rows.update(values_of(item))
    copies = {"broadcast": 4, "fanout": 2}.get(kind, 1)
    sent = [number * 10 + offset for number, item in enumerate(items) if item == "rows" for offset in range(8)]
    assert rows == dict.fromkeys(sent, copies)
    if kind == "single":
        assert not any(isinstance(item, Batch) for index in (0, 2, 3) for item in got[index])


def test_round_robin_skips_full_queues():
    queues = [SpscQueue(1) for _ in range(3)]
    edge = RoundRobinEdge([Target(0, index, queue.offer) for index, queue in enumerate(queues)], False)
    queues[1].offer("full")
    assert edge.send(batch_of(1))
    assert edge.send(batch_of(2))
    assert [len(queue) for queue in queues] == [1, 1, 1]
    assert queues[2].peek().row_count == 1
    assert not edge.send(batch_of(3))


@pytest.mark.parametrize("edges", [[], [(1, "nobody reads port 0")]])
def test_rows_that_nobody_reads_are_dropped(edges):
    queue = SpscQueue(1)
    outbox = Outbox([(port, SingleTargetEdge([Target(0, 0, queue.offer)], False, 0)) for port, _ in edges])
    assert outbox.send(batch_of(1))
    assert outbox.send_to(7, batch_of(1))
    assert len(queue) == 0


def test_rows_of_one_owner_go_to_it_without_a_look_and_wait_for_room_there():
    queues = [SpscQueue(1) for _ in range(4)]
    targets = [Target(0, index, queue.offer) for index, queue in enumerate(queues)]
    outbox = Outbox([(0, EDGES["single"](targets)), (2, EDGES["partitioned"](targets))])
    assert outbox.send_to(2, batch_of(*range(100)), 3)
    assert [len(queue) for queue in queues] == [0, 0, 0, 1]
    assert not outbox.send_to(2, batch_of(7), 3)
    assert queues[3].poll().row_count == 100
    assert outbox.resume()
    assert queues[3].poll().row_count == 1
