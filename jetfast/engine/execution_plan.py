"""Who feeds whom: processors and channels of every vertex and edge, from the Dag and the sizes alone.

Each member computes the same plan, so that nothing about channels needs to be sent. Processors of a vertex are
numbered over the whole cluster, in [0, total); those of member m are m * local .. (m + 1) * local - 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from jetfast.core.dag import Dag, Edge, Vertex
from jetfast.core.routing import RoutingKind, local_partition_owners, partition_owners
from jetfast.errors import JobDefinitionError
from jetfast.types import BATCH_ROWS_MAX


@dataclass(frozen=True)
class VertexPlan:
    """The processors of one vertex."""

    vertex: Vertex
    member_count: int
    """Members that run it: all, or 1 (member 0) for `total_parallelism_one`."""
    local_parallelism: int

    @property
    def total(self) -> int:
        """Number of processors in the cluster."""
        return self.member_count * self.local_parallelism

    def indices_on(self, member: int) -> range:
        """Indices of the processors on a member; empty if it runs none."""
        if member >= self.member_count:
            return range(0)
        return range(member * self.local_parallelism, (member + 1) * self.local_parallelism)

    def member_of(self, index: int) -> int:
        """The member that runs a processor."""
        return index // self.local_parallelism


@dataclass(frozen=True)
class EdgePlan:
    """The channels of one edge: one for each pair of an upstream and a downstream processor that it connects."""

    index: int
    """Index of the edge in the Dag: part of each ChannelId."""
    edge: Edge
    source: VertexPlan
    destination: VertexPlan

    @property
    def crosses_members(self) -> bool:
        """May rows leave their member?"""
        members = max(self.source.member_count, self.destination.member_count)
        return members > 1 and self.edge.distributed and self.edge.routing.kind is not RoutingKind.ISOLATED

    def partition_owners(self, partition_count: int) -> npt.NDArray[np.int32]:
        """By partition, the processor that a partitioned edge leads to: its place among those the edge reaches."""
        destination = self.destination
        if self.crosses_members:
            return partition_owners(partition_count, destination.member_count, destination.local_parallelism)
        return local_partition_owners(partition_count, destination.local_parallelism)

    def remote_channel_count(self, member: int) -> int:
        """Channels that lead into a member from others."""
        if not self.crosses_members:
            return 0
        upstreams = self.source.total - len(self.source.indices_on(member))
        return upstreams * len(self.destination.indices_on(member))

    def downstreams(self, upstream: int) -> list[int]:
        """Processors of the destination that processor `upstream` of the source feeds, ascending."""
        if self.crosses_members:
            return list(range(self.destination.total))
        return self._connected(upstream, self.source, self.destination)

    def upstreams(self, downstream: int) -> list[int]:
        """Processors of the source that feed processor `downstream` of the destination, ascending."""
        if self.crosses_members:
            return list(range(self.source.total))
        return self._connected(downstream, self.destination, self.source)

    def _connected(self, index: int, here: VertexPlan, there: VertexPlan) -> list[int]:
        member = here.member_of(index)
        others = there.indices_on(member)
        if self.edge.routing.kind is not RoutingKind.ISOLATED or not others:
            return list(others)
        # Upstream u feeds downstream d iff d mod U = u mod D, which is the same read from either side.
        local = index - here.indices_on(member).start
        count = len(here.indices_on(member))
        return [other for other in others if (other - others.start) % count == local % len(others)]


@dataclass(frozen=True)
class ExecutionPlan:
    """All vertices in topological order, and all edges by their index in the Dag."""

    vertices: dict[str, VertexPlan]
    edges: list[EdgePlan]

    def inbound(self, vertex: str) -> list[EdgePlan]:
        """Edges into a vertex, by ordinal."""
        return sorted((e for e in self.edges if e.edge.destination == vertex), key=lambda e: e.edge.ordinal)

    def outbound(self, vertex: str) -> list[EdgePlan]:
        """Edges out of a vertex, by port, then in the order they were added."""
        return sorted((e for e in self.edges if e.edge.source == vertex), key=lambda e: e.edge.source_port)

    def vertices_read_first(self) -> set[str]:
        """The vertices that lead, directly or not, into an edge that must be done before another one is read."""
        first: set[str] = set()
        for plan in self.edges:
            others = self.inbound(plan.edge.destination)
            if any(other.edge.priority > plan.edge.priority for other in others):
                first.add(plan.edge.source)
        for name in reversed(self.vertices):  # those downstream of a vertex come before it
            if any(plan.edge.destination in first for plan in self.outbound(name)):
                first.add(name)
        return first

    def port_owners(self, vertex: str, partition_count: int) -> dict[int, npt.NDArray[np.int32]]:
        """As `ProcessorContext.partition_owners`."""
        by_port: dict[int, list[EdgePlan]] = {}
        for plan in self.outbound(vertex):
            by_port.setdefault(plan.edge.source_port, []).append(plan)
        return {
            port: edges[0].partition_owners(partition_count)
            for port, edges in by_port.items()
            if len(edges) == 1 and edges[0].edge.routing.kind is RoutingKind.PARTITIONED and edges[0].edge.routing.keys
        }

    def state_owners(self, vertex: str, partition_count: int) -> npt.NDArray[np.int32]:
        """The processor, by its index in the cluster, that each partition's state is given to when it is restored.

        That is the processor that gets the partition's rows. If each member has one, or none does, each partition still
        goes to exactly one processor: state must not be doubled.
        """
        plan = self.vertices[vertex]
        partition = np.arange(partition_count, dtype=np.int32)
        for edge in self.inbound(vertex):
            if edge.edge.routing.kind is RoutingKind.PARTITIONED:
                if edge.crosses_members or plan.member_count == 1:
                    return edge.partition_owners(partition_count)
                owners = partition % plan.member_count * plan.local_parallelism + edge.partition_owners(partition_count)
                return owners.astype(np.int32)
        return partition % np.int32(plan.total)


def make_execution_plan(dag: Dag, member_count: int, workers: int) -> ExecutionPlan:
    """Return the plan of a Dag on `member_count` members of `workers` workers; JobDefinitionError if there is none."""
    if member_count < 1 or workers < 1:
        raise JobDefinitionError(f"a job needs one member and one worker at least, got {member_count} and {workers}")
    vertices = {}
    order = dag.topological_order()
    dag.check_priorities()
    for vertex in order:
        parallelism = 1 if vertex.total_parallelism_one else vertex.parallelism or workers
        if parallelism < 1:
            raise JobDefinitionError(f"step {vertex.name!r}: parallelism must be at least 1, got {parallelism}")
        members = 1 if vertex.total_parallelism_one else member_count
        vertices[vertex.name] = VertexPlan(vertex, members, parallelism)
    edges = [
        EdgePlan(index, edge, vertices[edge.source], vertices[edge.destination]) for index, edge in enumerate(dag.edges)
    ]
    for plan in edges:
        if plan.destination.member_count < plan.source.member_count and not plan.crosses_members:
            raise JobDefinitionError(
                f"edge {plan.edge.source!r} -> {plan.edge.destination!r} must be distributed (and not isolated): "
                f"{plan.edge.destination!r} runs on member 0 only, {plan.edge.source!r} on {plan.source.member_count}"
            )
    return ExecutionPlan(vertices, edges)


def remote_queue_items(edges: Sequence[EdgePlan], memory_limit: int | None) -> list[int]:
    """Return for each edge how many items a channel between members may hold: part of `memory_limit` bytes for all.

    A sender does not see what the receiver has not taken yet, so bytes are bounded by counting items of the greatest
    size that is usual: a batch of BATCH_ROWS_MAX rows, or its share where a batch is split. At least one item, at
    most `queue_items`.
    """
    if memory_limit is None:
        return [plan.edge.queue_items for plan in edges]
    item_bytes = [
        BATCH_ROWS_MAX
        * row_bytes(plan.edge.schema)
        // (plan.destination.total if plan.edge.routing.kind is RoutingKind.PARTITIONED else 1)
        for plan in edges
    ]
    # Member 0 runs every vertex: no other has more channels.
    needed = sum(size * plan.remote_channel_count(0) for size, plan in zip(item_bytes, edges, strict=True))
    affordable = max(1, memory_limit // needed) if needed else 1
    return [min(plan.edge.queue_items, affordable) for plan in edges]


def row_bytes(schema: pa.Schema) -> int:
    """Bytes that one row takes, about: 24 for a value of variable length."""
    total = 0
    for field in schema:
        try:
            total += max(1, field.type.bit_width // 8)
        except ValueError:
            total += 24
    return total
