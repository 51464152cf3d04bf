"""Batches sent in runs arrive as if sent one by one, whatever is full when."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetfast.core.batch import Batch, BatchRun
from jetfast.core.items import Watermark
from jetfast.core.routing import local_partition_owners
from jetfast.engine.outbound_edge import (
    BroadcastEdge,
    Outbox,
    PartitionedEdge,
    RoundRobinEdge,
    SingleTargetEdge,
    Target,
)
from jetfast.kernels.partitioning import Splitter
from jetfast.kernels.queues import MemoryBudget, SpscQueue
from tests.engine.graphs import SCHEMA, batch_of, values_of

SPLITTER = Splitter(SCHEMA, ["key"], local_partition_owners(271, 3), 3)
EDGES = {
    "round robin": lambda targets: RoundRobinEdge(targets, True),
    "single": lambda targets: SingleTargetEdge(targets, True, 1),
    "broadcast": lambda targets: BroadcastEdge(targets, False),
    "partitioned": lambda targets: PartitionedEdge(targets, True, SPLITTER.split, SPLITTER.split_all),
    "partitioned, split one by one": lambda targets: PartitionedEdge(targets, False, SPLITTER.split),
}


def arrivals(
    kind: str, remote: bool, runs: list[int], drains: list[int], *, together: bool, run_bytes_max: int = 1000
) -> list[list[Any]]:
    """What each queue gets: watermarks, and between them the values of all batches."""
    queues = [SpscQueue(2) for _ in range(3)]
    targets = [Target(0, index, queue.offer, None if remote else run_bytes_max) for index, queue in enumerate(queues)]
    outbox = Outbox([(0, EDGES[kind](targets))])
    got: list[list[Any]] = [[] for _ in queues]
    waits = iter(drains)

    def make_room() -> None:
        index = next(waits, None)
        for number, queue in enumerate(queues):
            if index is None or number == index:
                item = queue.poll()
                if not isinstance(item, Batch | BatchRun):
                    got[number] += [] if item is None else [item]
                    continue
                values = [value for batch in BatchRun.of([item]) for value in values_of(batch)]
                if got[number] and isinstance(got[number][-1], list):
                    got[number][-1] += values
                else:
                    got[number].append(values)

    def settle() -> None:
        assert (outbox.count_left() > 0) == bool(outbox.blocked)
        while outbox.blocked:
            make_room()
            outbox.resume()

    for number, length in enumerate(runs):
        first = number * 100
        waiting = [batch_of(*range(first + 8 * i, first + 8 * i + 8)) for i in range(length)]
        while waiting:
            if together:
                waiting = waiting[outbox.send_run(BatchRun.of(waiting)) :]
            else:
                outbox.send(waiting.pop(0))
            settle()
        outbox.broadcast(Watermark(number))
        settle()
    while any(len(queue) for queue in queues):
        make_room()
    return got


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([kind for kind in sorted(EDGES) if kind != "round robin"]),
    st.booleans(),
    st.lists(st.integers(0, 5), max_size=4),
    st.lists(st.integers(0, 2), max_size=40),
    st.sampled_from([1, 100, 1000]),
)
def test_a_run_gives_each_queue_what_its_batches_one_by_one_give(
    kind: str, remote: bool, runs: list[int], drains: list[int], run_bytes_max: int
) -> None:
    together = arrivals(kind, remote, runs, drains, together=True, run_bytes_max=run_bytes_max)
    assert together == arrivals(kind, remote, runs, drains, together=False)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(0, 5), max_size=4), st.lists(st.integers(0, 2), max_size=40))
def test_a_run_that_is_dealt_out_loses_nothing_and_keeps_the_order_of_each_queue(
    runs: list[int], drains: list[int]
) -> None:
    got = arrivals("round robin", False, runs, drains, together=True)
    alone = arrivals("round robin", False, runs, [], together=False)
    values = [value for queue in got for item in queue if isinstance(item, list) for value in item]
    assert sorted(values) == sorted(
        value for queue in alone for item in queue if isinstance(item, list) for value in item
    )
    for queue in got:
        firsts = [item.value * 100 + 99 if isinstance(item, Watermark) else item[0] for item in queue]
        assert firsts == sorted(firsts)


@pytest.mark.parametrize("measured", [True, False])
@pytest.mark.parametrize("small", [True, False])
def test_a_run_that_is_small_beside_the_limit_goes_as_one_item_and_its_bytes_count(measured: bool, small: bool) -> None:
    budget = MemoryBudget(1)
    queue = SpscQueue(3, budget)
    run = BatchRun.of([batch_of(1, 2), batch_of(3)])
    edge = SingleTargetEdge([Target(0, 0, queue.offer, run.nbytes if small else run.nbytes - 1)], measured, 0)
    assert edge.send_run(run) == 2
    # A queue that is not empty takes nothing more when the budget is used up.
    assert edge.count_left() == (1 if measured and not small else 0)
    assert budget.used_bytes == (0 if not measured else run.nbytes if small else run[0].nbytes)
    item = queue.poll()
    assert isinstance(item, BatchRun if small or not measured else Batch)
    assert budget.used_bytes == 0
