"""Edges between members: each routing sends rows where it must, control items go everywhere, a lost peer is seen."""

from collections import Counter, defaultdict

import pyarrow as pa
import pytest

from jetfast.core.items import DONE, Watermark
from jetfast.core.routing import (
    ALL_TO_ONE,
    BROADCAST,
    FANOUT,
    ISOLATED,
    UNICAST,
    partition_owners,
    partitioned,
)
from jetfast.engine.execution import Execution
from jetfast.engine.transport import ChannelId, MemoryNetwork
from jetfast.errors import JobDefinitionError, ProtocolError, TransportError
from jetfast.kernels.partitioning import assign_partitions
from tests.engine.graphs import (
    SCHEMA,
    EndlessSource,
    Log,
    LoggingSink,
    Passing,
    ScriptedSource,
    batch_of,
    finish,
    graph,
    run,
)


def spread(routing, members, workers=2, distributed=True, script=None, **edge):
    """Run the same script in every source processor; return {sink processor: rows}."""
    log = Log()
    script = script or [batch_of(*range(10)), batch_of(*range(10, 40)), Watermark(7), batch_of(40)]
    dag = graph(
        ("source", lambda: ScriptedSource(script), {"parallelism": 1}),
        ("sink", lambda: LoggingSink(log)),
        edges=[("source", "sink", {"routing": routing, "distributed": distributed, "queue_items": 1, **edge})],
    )
    executions = run(dag, members=members, workers=workers)
    got = defaultdict(Counter)
    for (_, index), _, values in log.of("rows"):
        got[index].update(values)
    assert {who for (who,) in log.of("complete")} == {("sink", index) for index in range(members * workers)}
    assert Counter(log.of("watermark")) == {(("sink", index), 7): 1 for index in range(members * workers)}
    return got, executions


def total(got):
    return sum(got.values(), Counter())


@pytest.mark.parametrize("members", [2, 3])
def test_a_partitioned_edge_sends_each_row_to_the_owner_of_its_key(members):
    got, executions = spread(partitioned("key"), members)
    owners = partition_owners(271, members, 2)
    for index, rows in got.items():
        keys = pa.array(sorted(rows), pa.int64())
        assert set(owners[assign_partitions(keys)]) == {index}
    assert total(got) == {value: members for value in range(41)}
    sent = sum(peer["rows_sent"] for execution in executions for peer in execution.metrics()["peers"])
    received = sum(peer["rows_received"] for execution in executions for peer in execution.metrics()["peers"])
    assert sent == received > 0


def test_a_partitioned_edge_without_keys_has_one_owner():
    got, _ = spread(partitioned(), 2)
    assert list(got) == [0]
    assert total(got) == {value: 2 for value in range(41)}


def test_a_local_partitioned_edge_stays_in_its_member():
    got, executions = spread(partitioned("key"), 2, distributed=False)
    assert total(got) == {value: 2 for value in range(41)}
    assert all(max(rows.values()) == 1 for rows in got.values())
    assert not any(peer["rows_sent"] for execution in executions for peer in execution.metrics()["peers"])


@pytest.mark.parametrize("members", [2, 3])
def test_a_broadcast_edge_sends_every_row_to_every_processor(members):
    got, _ = spread(BROADCAST, members)
    assert got == {index: Counter({value: members for value in range(41)}) for index in range(members * 2)}


def test_all_to_one_sends_every_row_to_the_first_processor_of_the_first_member():
    got, _ = spread(ALL_TO_ONE, 3)
    assert got == {0: Counter({value: 3 for value in range(41)})}


@pytest.mark.parametrize("members", [2, 3])
def test_a_fanout_edge_sends_every_row_to_one_processor_of_each_member(members):
    got, _ = spread(FANOUT, members)
    for member in range(members):
        assert got[member * 2] + got[member * 2 + 1] == {value: members for value in range(41)}


def test_distributed_unicast_reaches_all_members_with_each_row_once():
    got, _ = spread(UNICAST, 2, script=[batch_of(value) for value in range(30)] + [Watermark(7)])
    assert total(got) == {value: 2 for value in range(30)}
    assert {index // 2 for index in got} == {0, 1}


def test_an_isolated_edge_never_leaves_its_member():
    got, executions = spread(ISOLATED, 2)
    assert all(max(rows.values()) == 1 for rows in got.values())
    assert not any(peer["rows_sent"] for execution in executions for peer in execution.metrics()["peers"])


def test_a_single_sink_processor_takes_the_rows_of_all_members():
    log = Log()
    contexts = []

    class Single(LoggingSink):
        def open(self, context):
            super().open(context)
            contexts.append(context)

    dag = graph(
        ("source", lambda: ScriptedSource([batch_of(1), Watermark(3)])),
        ("sink", lambda: Single(log), {"total_parallelism_one": True}),
        edges=[("source", "sink", {"routing": ALL_TO_ONE, "distributed": True})],
    )
    run(dag, members=3, workers=2)
    assert [values for _, _, values in log.of("rows")] == [[1]] * 6
    assert log.of("watermark") == [(("sink", 0), 3)]
    assert [(context.index, context.parallelism) for context in contexts] == [(0, 1)]


def test_a_single_source_processor_feeds_the_members_that_it_reaches():
    log = Log()
    dag = graph(
        ("source", lambda: ScriptedSource([batch_of(value) for value in range(20)]), {"total_parallelism_one": True}),
        ("pass", Passing),
        ("sink", lambda: LoggingSink(log)),
        edges=[("source", "pass"), ("pass", "sink", {"routing": partitioned("key"), "distributed": True})],
    )
    run(dag, members=2, workers=2)
    assert Counter(value for _, _, values in log.of("rows") for value in values) == {v: 1 for v in range(20)}
    assert len(log.of("complete")) == 4


def test_rows_that_could_not_reach_their_only_processor_are_refused_when_the_plan_is_made():
    dag = graph(
        ("source", lambda: ScriptedSource([])),
        ("sink", lambda: LoggingSink(Log()), {"total_parallelism_one": True}),
        edges=[("source", "sink")],
    )
    with pytest.raises(JobDefinitionError, match="edge 'source' -> 'sink' must be distributed"):
        run(dag, members=2)


def test_a_distributed_edge_needs_a_transport():
    dag = graph(
        ("source", lambda: ScriptedSource([])),
        ("sink", lambda: LoggingSink(Log())),
        edges=[("source", "sink", {"distributed": True})],
    )
    execution = Execution(dag, job="test", execution_id=1, member_count=2, workers=1, transport=None)
    with pytest.raises(ProtocolError, match="no transport"):
        execution.open()


def test_a_member_that_leaves_is_a_transport_error_on_the_others():
    log = Log()
    network = MemoryNetwork(2)
    dag = graph(
        ("source", lambda: EndlessSource(log)),
        ("sink", lambda: LoggingSink(log)),
        edges=[("source", "sink", {"routing": BROADCAST, "distributed": True})],
    )
    execution = Execution(
        dag, job="test", execution_id=1, member=0, member_count=2, workers=1, transport=network.transport(0)
    )
    execution.open()
    network.transport(1).close()
    with pytest.raises(TransportError, match="member 1 has left"):
        finish([execution])


def test_the_credit_of_a_channel_is_its_capacity():
    network = MemoryNetwork(2)
    channel = ChannelId(0, 0, 1)
    sender = network.transport(0).sender(1, channel, SCHEMA, 2)
    receiver = network.transport(1).receiver(0, channel, SCHEMA, 2)
    assert sender.offer(batch_of(1, 2))
    assert sender.offer(Watermark(1))
    assert not sender.offer(DONE)
    assert receiver.poll().row_count == 2
    assert sender.offer(DONE)
    (seen,) = network.transport(0).statistics()
    assert (seen.peer, seen.rows_sent, seen.rows_received) == (1, 2, 0)
    assert seen.bytes_sent == batch_of(1, 2).nbytes
    (seen,) = network.transport(1).statistics()
    assert (seen.peer, seen.rows_sent, seen.rows_received, seen.bytes_received) == (0, 0, 2, batch_of(1, 2).nbytes)


def test_what_was_sent_before_a_member_left_still_arrives():
    network = MemoryNetwork(2)
    channel = ChannelId(0, 0, 1)
    sender = network.transport(0).sender(1, channel, SCHEMA, 2)
    receiver = network.transport(1).receiver(0, channel, SCHEMA, 2)
    sender.offer(DONE)
    network.transport(0).close()
    assert receiver.poll() is DONE
    with pytest.raises(TransportError, match="member 0 has left"):
        receiver.poll()
    with pytest.raises(ValueError, match="no member 2"):
        network.transport(2)
