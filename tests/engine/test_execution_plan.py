"""Who feeds whom: the plan is the same from both ends of each channel, on each member."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetfast.core.dag import Dag, Edge, Vertex
from jetfast.core.processor import Processor
from jetfast.core.routing import ALL_TO_ONE, BROADCAST, FANOUT, ISOLATED, UNICAST, partitioned
from jetfast.engine.execution_plan import make_execution_plan, remote_queue_items, row_bytes
from jetfast.errors import JobDefinitionError

SCHEMA = pa.schema([("key", pa.int64()), ("name", pa.string()), ("flag", pa.bool_())])
ROUTINGS = [UNICAST, ISOLATED, ALL_TO_ONE, BROADCAST, FANOUT, partitioned("key")]


def edge_of(routing, upstream, downstream, members, workers=2, **options):
    dag = Dag("test")
    dag.add_vertex(Vertex("a", Processor, upstream))
    dag.add_vertex(Vertex("b", Processor, downstream))
    dag.add_edge(Edge("a", "b", SCHEMA, routing=routing, **options))
    (edge,) = make_execution_plan(dag, members, workers).edges
    return edge


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(ROUTINGS), st.booleans(), st.integers(1, 5), st.integers(1, 5), st.integers(1, 3))
def test_both_ends_of_a_channel_agree_that_it_is_there(routing, distributed, upstream, downstream, members):
    edge = edge_of(routing, upstream, downstream, members, distributed=distributed)
    from_above = {(u, d) for u in range(edge.source.total) for d in edge.downstreams(u)}
    from_below = {(u, d) for d in range(edge.destination.total) for u in edge.upstreams(d)}
    assert from_above == from_below
    assert {u for u, _ in from_above} == set(range(edge.source.total))
    assert {d for _, d in from_above} == set(range(edge.destination.total))
    crossing = [(u, d) for u, d in from_above if edge.source.member_of(u) != edge.destination.member_of(d)]
    assert bool(crossing) == (distributed and members > 1 and routing is not ISOLATED)
    for member in range(members):
        into = [(u, d) for u, d in crossing if edge.destination.member_of(d) == member]
        assert len(into) == edge.remote_channel_count(member)


@pytest.mark.parametrize(
    ("upstream", "downstream", "pairs"),
    [
        (2, 2, {(0, 0), (1, 1)}),
        (2, 4, {(0, 0), (1, 1), (0, 2), (1, 3)}),
        (3, 2, {(0, 0), (1, 1), (2, 0)}),
    ],
)
def test_an_isolated_edge_joins_u_and_d_iff_d_mod_upstreams_is_u_mod_downstreams(upstream, downstream, pairs):
    edge = edge_of(ISOLATED, upstream, downstream, 1)
    assert {(u, d) for u in range(upstream) for d in edge.downstreams(u)} == pairs


def test_a_vertex_without_parallelism_gets_one_processor_for_each_worker():
    edge = edge_of(UNICAST, None, None, 2, workers=3)
    assert (edge.source.total, list(edge.source.indices_on(1))) == (6, [3, 4, 5])


def test_sizes_that_make_no_sense_are_refused():
    with pytest.raises(JobDefinitionError, match="one member and one worker at least"):
        edge_of(UNICAST, 1, 1, 0)
    with pytest.raises(JobDefinitionError, match="step 'a': parallelism must be at least 1"):
        edge_of(UNICAST, -1, 1, 1)


def test_channels_between_members_share_the_memory_limit_by_items():
    assert row_bytes(SCHEMA) == 8 + 24 + 1
    batch_bytes = 65536 * 33
    edge = edge_of(UNICAST, 2, 2, 2, distributed=True)  # 4 channels into a member
    assert remote_queue_items([edge], None) == [16]
    assert remote_queue_items([edge], 4 * batch_bytes * 3) == [3]
    assert remote_queue_items([edge], 1 << 40) == [16]
    assert remote_queue_items([edge], 0) == [1]
    split = edge_of(partitioned("key"), 2, 2, 2, distributed=True)  # a batch is split among 4
    assert remote_queue_items([split], batch_bytes * 3) == [3]
    assert remote_queue_items([edge_of(UNICAST, 2, 2, 2)], 10) == [1]
