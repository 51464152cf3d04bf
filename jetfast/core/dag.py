"""The graph that a cluster runs: vertices (what is done) and edges (where rows go). Plain, picklable data."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter

import pyarrow as pa

from jetfast.core.guarantee import Delivery, Guarantee, JobGuarantees, Part, job_guarantees
from jetfast.core.items import MAIN_PORT
from jetfast.core.processor import ProcessorSupplier
from jetfast.core.routing import UNICAST, Routing
from jetfast.errors import JobDefinitionError


@dataclass(frozen=True)
class Vertex:
    """One step. `parallelism` is the number of processors per member; None: one per worker."""

    name: str
    supplier: ProcessorSupplier
    parallelism: int | None = None
    total_parallelism_one: bool = False
    """One single processor in the whole cluster, on member 0."""
    delivery: Delivery | None = None
    """How a source or a sink keeps its part of the guarantee of the job; None: it is neither."""
    counts: bool = True
    """Of a sink: does the guarantee of the job depend on it?"""
    tells_latest: bool = False
    """Of a sink: does what it has written show that a snapshot store was put back from a backup?"""
    keeps_state: bool = True
    """Of a step that is neither source nor sink: can what it computes of a row depend on other rows?"""
    endless: bool = False
    """It is a source that need not end."""
    check_target: Callable[[], None] | None = None
    """Of a sink: raises JobDefinitionError if what it writes to cannot be written now."""


@dataclass(frozen=True)
class Edge:
    """Rows of one output port of `source` to inbound edge `ordinal` of `destination`."""

    source: str
    destination: str
    schema: pa.Schema
    source_port: int = MAIN_PORT
    ordinal: int = 0
    routing: Routing = UNICAST
    distributed: bool = False
    """May rows leave their member? Otherwise they stay inside it."""
    priority: int = 0
    """An edge is read only after all edges into the vertex with a lower number are done."""
    queue_items: int = 16
    """Batches that wait at most in each queue of this edge; `memory_limit` bounds their bytes."""
    time_column: str | None = None
    """The column that holds the event time of its rows, if there is one and it is known: debug builds check by it."""


@dataclass
class Dag:
    """Vertices by name, edges, and checks that hold for every graph."""

    name: str
    vertices: dict[str, Vertex] = field(default_factory=dict)
    edges: list[Edge] = field(default_factory=list)
    max_watermark_retention_us: int | None = None
    """How long the first vertex that coalesces may keep a watermark back for inputs that lag; None: as long as they do.
    """

    def add_vertex(self, vertex: Vertex) -> Vertex:
        if vertex.name in self.vertices:
            raise JobDefinitionError(f"two steps are named {vertex.name!r}; give one of them another name=")
        self.vertices[vertex.name] = vertex
        return vertex

    def add_edge(self, edge: Edge) -> Edge:
        for name in (edge.source, edge.destination):
            if name not in self.vertices:
                raise JobDefinitionError(f"edge {edge.source!r} -> {edge.destination!r} names no vertex {name!r}")
        if any(e.destination == edge.destination and e.ordinal == edge.ordinal for e in self.edges):
            raise JobDefinitionError(f"two edges enter {edge.destination!r} at ordinal {edge.ordinal}")
        self.edges.append(edge)
        return edge

    def side_sinks(self) -> set[str]:
        """Sinks that get nothing but what steps have put aside: rows that were rejected or late."""
        main = {vertex.name for vertex in self.vertices.values() if not self.inbound(vertex.name)}
        for vertex in self.topological_order():
            edges = self.inbound(vertex.name)
            if any(edge.source in main and edge.source_port == MAIN_PORT for edge in edges):
                main.add(vertex.name)
        return {name for name in self.vertices if name not in main and not self.outbound(name)}

    def inbound(self, name: str) -> list[Edge]:
        """Edges into a vertex, by ordinal."""
        return sorted((e for e in self.edges if e.destination == name), key=lambda e: e.ordinal)

    def outbound(self, name: str) -> list[Edge]:
        """Edges out of a vertex, by port, then in the order they were added."""
        return sorted((e for e in self.edges if e.source == name), key=lambda e: e.source_port)

    def guarantees(self, wanted: Guarantee) -> JobGuarantees:
        """What the job and each of its sinks keep of the guarantee that is wanted, and which steps weaken it."""
        return job_guarantees(
            wanted,
            (
                Part(vertex.name, vertex.delivery, vertex.counts, vertex.delivery is None and vertex.keeps_state)
                for vertex in self.vertices.values()
            ),
        )

    def settling_steps(self) -> tuple[str, ...]:
        """The sinks of which phase 2 commits or publishes something, if the guarantee is EXACTLY_ONCE."""
        settling = (Delivery.TRANSACTIONAL, Delivery.PUBLISHING)
        return tuple(sorted(vertex.name for vertex in self.vertices.values() if vertex.delivery in settling))

    @property
    def reads_edges_first(self) -> bool:
        """Must an edge be read to its end before another one is read? (The build side of a hash join.)"""
        return any(len({edge.priority for edge in self.inbound(name)}) > 1 for name in self.vertices)

    def tells_latest(self) -> bool:
        """Can any sink tell that the snapshot store was put back from a backup?"""
        return any(vertex.tells_latest for vertex in self.vertices.values())

    def sources_of(self, name: str) -> set[str]:
        """The vertices without inbound edges that a vertex gets its rows from; itself, if it is one."""
        inbound = self.inbound(name)
        return set().union(*(self.sources_of(edge.source) for edge in inbound)) if inbound else {name}

    def check_priorities(self) -> None:
        """Raise JobDefinitionError for an edge that would never be read, because one that is read first cannot end.

        That never ends whose source is endless. And one source must not feed both: queues are bounded, so the edge that
        is not read yet would hold up the source, and with it the edge that is. So no source may wait for itself, nor by
        way of others that wait for it.
        """
        waits: dict[str, set[str]] = {}
        """Of each source, those that must end before it is read to its end."""
        for first in self.edges:
            later = [edge for edge in self.inbound(first.destination) if edge.priority > first.priority]
            if not later:
                continue
            names = f"edge {first.source!r} -> {first.destination!r} is read to its end before edge "
            names += f"{later[0].source!r} -> {later[0].destination!r}"
            sources = self.sources_of(first.source)
            for name in sorted(sources):
                if self.vertices[name].endless:
                    raise JobDefinitionError(f"{names}, but its source {name!r} never ends: exchange the two sides")
            for edge in later:
                if shared := sources & self.sources_of(edge.source):
                    raise JobDefinitionError(
                        f"{names}, but source {min(shared)!r} feeds both, and would wait for room in the second for "
                        "ever: read it twice, as two sources"
                    )
                for source in self.sources_of(edge.source):
                    waits.setdefault(source, set()).update(sources)
        try:
            TopologicalSorter(waits).prepare()
        except CycleError as error:
            circle = " for ".join(map(repr, reversed(error.args[1])))
            raise JobDefinitionError(
                f"sources would wait for each other for ever, {circle}: each is read to its end before another "
                "that must end before it. Read one of them twice, as two sources"
            ) from None

    def digest(self) -> str:
        """Return a text that is equal for graphs of equal steps, edges and types; what functions do is not in it."""
        steps = sorted(self.vertices)
        edges = sorted(
            f"{edge.source} {edge.source_port} -> {edge.destination} {edge.ordinal} {edge.routing}\n{edge.schema}"
            for edge in self.edges
        )
        return hashlib.blake2b("\n".join([*steps, *edges]).encode(), digest_size=16).hexdigest()

    def check_targets(self) -> None:
        """Raise JobDefinitionError if a sink cannot write now. Not asked of a job that goes on: its output is there."""
        for vertex in self.vertices.values():
            if vertex.check_target is not None:
                vertex.check_target()

    def topological_order(self) -> list[Vertex]:
        """Vertices, sources first. Raises JobDefinitionError if there is a cycle."""
        waiting = {name: len(self.inbound(name)) for name in self.vertices}
        ready = [name for name, count in waiting.items() if count == 0]
        order = []
        while ready:
            name = ready.pop(0)
            order.append(self.vertices[name])
            for edge in self.outbound(name):
                waiting[edge.destination] -= 1
                if waiting[edge.destination] == 0:
                    ready.append(edge.destination)
        if len(order) != len(self.vertices):
            cycle = sorted(name for name, count in waiting.items() if count > 0)
            raise JobDefinitionError(f"the steps {', '.join(cycle)} feed each other in a circle")
        return order
