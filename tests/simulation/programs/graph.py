"""Nodes of random pipelines and what they read: how a graph prints, and how one that fails is made smaller."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self, TypeVar

from tests.simulation.programs.flow import DoesNotFitError


class Node(NamedTuple):
    """One operator, and the numbers of the nodes that it reads.

    An operator is a frozen dataclass. Its `smaller()`, if it has one, yields simpler operators of its kind.
    """

    operator: Any
    inputs: tuple[int, ...] = ()


@dataclass(frozen=True)
class Graph:
    """Nodes, each behind those that it reads."""

    nodes: tuple[Node, ...]

    @property
    def ends(self) -> list[int]:
        """Nodes that no other reads."""
        read = {number for node in self.nodes for number in node.inputs}
        return [number for number in range(len(self.nodes)) if number not in read]

    def flows(self) -> Any:
        """What each node gives. Raises DoesNotFitError where an operator cannot stand."""
        raise NotImplementedError

    def of(self, nodes: Iterable[Node]) -> Self:
        """The same with other nodes."""
        return replace(self, nodes=tuple(nodes))

    def __str__(self) -> str:
        return "\n".join(
            f"{name_of(number)} = {node.operator}"
            + (f" of {', '.join(map(name_of, node.inputs))}" if node.inputs else "")
            for number, node in enumerate(self.nodes)
        )


AnyGraph = TypeVar("AnyGraph", bound=Graph)


def name_of(number: int) -> str:
    """Name of a node."""
    return f"n{number}"


def require_tables_first(tables: Iterable[tuple[frozenset[int], frozenset[int]]]) -> None:
    """Raise DoesNotFitError if sources wait for each other: a stream is not read before its table was.

    `tables`: of each join with a table, the sources of the stream and those of the table.
    """
    waits: dict[int, set[int]] = {}
    for stream, table in tables:
        for source in stream:
            waits.setdefault(source, set()).update(table)
    for source in waits:
        reached: set[int] = set()
        ahead = [source]
        while ahead:
            for other in waits.get(ahead.pop(), ()):
                if other == source:
                    raise DoesNotFitError("sources wait for each other")
                if other not in reached:
                    reached.add(other)
                    ahead.append(other)


def smaller(graph: AnyGraph) -> Iterator[AnyGraph]:
    """Graphs with a node less or a simpler one, the smallest first."""
    for number in range(len(graph.nodes) - 1, -1, -1):
        yield from without(graph, number)
    for number, node in enumerate(graph.nodes):
        for operator in node.operator.smaller() if hasattr(node.operator, "smaller") else ():
            changed = node._replace(operator=operator)
            yield graph.of((*graph.nodes[:number], changed, *graph.nodes[number + 1 :]))


def without(graph: AnyGraph, number: int) -> Iterator[AnyGraph]:
    """The graph without a node: who read it reads what it read."""
    node = graph.nodes[number]
    if not node.inputs and number not in graph.ends:
        return
    if len(graph.nodes) == 1:
        return
    for place in node.inputs or (0,):

        def moved(each: int, place: int = place) -> int:
            each = place if each == number else each
            return each - (each > number)

        kept = [other for index, other in enumerate(graph.nodes) if index != number]
        yield graph.of(other._replace(inputs=tuple(map(moved, other.inputs))) for other in kept)


def shrink(graph: AnyGraph, fails: Callable[[AnyGraph], bool]) -> AnyGraph:
    """The smallest graph found that still fails."""
    found = True
    while found:
        found = False
        for candidate in smaller(graph):
            try:
                candidate.flows()
            except DoesNotFitError:
                continue
            if fails(candidate):
                graph, found = candidate, True
                break
    return graph
