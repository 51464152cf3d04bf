"""What a graph refuses, and the order it gives."""

import pyarrow as pa
import pytest

from jetfast.core.dag import Dag, Edge, Vertex
from jetfast.core.processor import Processor
from jetfast.errors import JobDefinitionError

SCHEMA = pa.schema([("x", pa.int64())])


def make_dag(*edges: tuple[str, str, int]) -> Dag:
    dag = Dag("test")
    for name in sorted({name for source, destination, _ in edges for name in (source, destination)}):
        dag.add_vertex(Vertex(name, Processor))
    for source, destination, ordinal in edges:
        dag.add_edge(Edge(source, destination, SCHEMA, ordinal=ordinal))
    return dag


def test_two_steps_of_one_name_are_refused():
    dag = make_dag(("a", "b", 0))
    with pytest.raises(JobDefinitionError, match="two steps are named 'a'"):
        dag.add_vertex(Vertex("a", Processor))


def test_two_edges_at_one_ordinal_are_refused():
    with pytest.raises(JobDefinitionError, match="two edges enter 'c' at ordinal 0"):
        make_dag(("a", "c", 0), ("b", "c", 0))


def test_an_edge_to_a_vertex_that_is_not_there_is_refused():
    dag = make_dag(("a", "b", 0))
    with pytest.raises(JobDefinitionError, match="names no vertex 'z'"):
        dag.add_edge(Edge("a", "z", SCHEMA))


def test_sources_come_first():
    dag = make_dag(("z", "m", 0), ("y", "m", 1), ("m", "a", 0))
    assert [vertex.name for vertex in dag.topological_order()][2:] == ["m", "a"]


def test_a_circle_is_refused_and_named():
    dag = make_dag(("s", "a", 0), ("a", "b", 0), ("b", "a", 1))
    with pytest.raises(JobDefinitionError, match="a, b feed each other in a circle"):
        dag.topological_order()


def test_inbound_edges_are_sorted_by_ordinal():
    dag = make_dag(("b", "c", 1), ("a", "c", 0))
    assert [edge.source for edge in dag.inbound("c")] == ["a", "b"]


def joined(*, endless: bool = False, shared: bool = False) -> Dag:
    """build -> prepared -> join, read before probe -> join."""
    dag = Dag("dag")
    for name in ("build", "prepared", "probe", "join"):
        dag.add_vertex(Vertex(name, Processor, endless=endless and name == "build"))
    dag.add_edge(Edge("build", "prepared", SCHEMA))
    dag.add_edge(Edge("prepared", "join", SCHEMA))
    dag.add_edge(Edge("build" if shared else "probe", "join", SCHEMA, ordinal=1, priority=1))
    return dag


def test_an_edge_that_is_read_first_may_come_from_a_source_that_ends():
    joined().check_priorities()


def test_an_edge_that_is_read_first_and_never_ends_is_refused_naming_both_edges():
    message = "'prepared' -> 'join' is read to its end before edge 'probe' -> 'join', but its source 'build' never ends"
    with pytest.raises(JobDefinitionError, match=message):
        joined(endless=True).check_priorities()


def test_one_source_that_feeds_an_edge_and_another_that_is_read_before_it_is_refused():
    with pytest.raises(JobDefinitionError, match="source 'build' feeds both, and would wait for room"):
        joined(shared=True).check_priorities()


def test_sources_that_wait_for_each_other_are_refused_in_their_order():
    dag = Dag("dag")
    for name in ("a", "b", "c", "ab", "bc", "ca"):
        dag.add_vertex(Vertex(name, Processor))
    for join in ("ab", "bc", "ca"):
        stream, table = join
        dag.add_edge(Edge(stream, join, SCHEMA, priority=1))
        dag.add_edge(Edge(table, join, SCHEMA, ordinal=1))
    with pytest.raises(JobDefinitionError, match="wait for each other for ever, 'a' for 'b' for 'c' for 'a': each is"):
        dag.check_priorities()
