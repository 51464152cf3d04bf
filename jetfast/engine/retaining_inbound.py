"""Inbound queues that wait for others for a limited time: at most `max_watermark_retention` on each way of a watermark.

What lags behind it then is late: the user has chosen so. Where vertices that coalesce follow each other the times must
not add up. So a watermark bears how long it has been kept back (`Watermark.held`), and the next vertex keeps it for the
rest. Rows of inputs that have passed such a vertex are on their way together: inside such an edge (a covered one)
nothing is forced, only ahead of other edges.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any

from jetfast.core.guarantee import Guarantee
from jetfast.core.items import Watermark
from jetfast.core.watermark_policies import SAMPLES_PER_DELAY, TopHistory
from jetfast.engine.execution_plan import ExecutionPlan
from jetfast.engine.inbound_edge import Inbound, InboundEdge, InboundQueue
from jetfast.types import MIN_TIME


class RetainingInbound(Inbound):
    """As Inbound, and the greatest watermark that came on any queue is forwarded `retention_us` later at the latest.

    Exact to a sixteenth of the retention: between 15/16 of it and all of it. `covered` are the ordinals of edges whose
    watermarks have passed another such vertex. Invariant: watermarks handed on strictly
    rise; those that coalescing gives later, and that are not above what was forced, are dropped.
    """

    __slots__ = ("covered", "forced", "held_by", "history")

    def __init__(
        self,
        vertex: str,
        edges: Sequence[InboundEdge],
        now_us: Callable[[], int],
        retention_us: int,
        guarantee: Guarantee = Guarantee.NONE,
        covered: Collection[int] = (),
    ) -> None:
        super().__init__(vertex, edges, now_us, guarantee)
        self.covered = frozenset(covered)
        self.held_by: dict[InboundQueue, int] = {}
        """`Watermark.held` of the last one of each queue of a covered edge."""
        self.history = TopHistory(retention_us, SAMPLES_PER_DELAY)
        self.forced = MIN_TIME

    @property
    def watermark(self) -> int:
        """The last watermark handed on; MIN_TIME before the first."""
        return max(self.forced, super().watermark)

    def poll(self) -> Any:
        """The next event, or None if there is nothing now."""
        if not self.events and not self.idle:
            matured = self.history.matured(self.now_us())
            if matured > self.watermark:
                self.forced = matured
                return Watermark(matured, SAMPLES_PER_DELAY)
        while True:
            event = super().poll()
            if type(event) is not Watermark:
                return event
            if event.value > self.forced:
                return Watermark(event.value, self.history.held(event.value, self.now_us()))

    def take(self, queue: InboundQueue, item: Any) -> Any:
        """Take in an item that is not rows of a queue that is awake."""
        if queue.ordinal not in self.covered:
            if type(item) is Watermark:
                self.history.observe(item.value, self.now_us())
            return super().take(queue, item)
        if type(item) is Watermark:
            self.held_by[queue] = item.held
        coalescer = queue.edge.coalescer
        before = coalescer.watermark
        event = super().take(queue, item)
        if coalescer.watermark > before:
            held = max((self.held_by.get(other, 0) for other in queue.edge.queues), default=0)
            self.history.observe_held(coalescer.watermark, self.now_us(), held)
        return event


def retaining_vertices(plan: ExecutionPlan) -> set[str]:
    """The vertices that coalesce, and that some rows reach without having passed another such vertex before."""
    return _retaining(plan)[0]


def covered_edges(plan: ExecutionPlan) -> dict[str, frozenset[int]]:
    """By vertex that must know for how long watermarks have been kept back: its covered inbound edges, by ordinal.

    Those are the vertices that retain, and, if one of these has covered edges, all that coalesce ahead of it.
    """
    retaining, covered = _retaining(plan)
    edges = {
        name: frozenset(edge.edge.ordinal for edge in plan.inbound(name) if edge.edge.source in covered)
        for name in plan.vertices
    }
    if not any(edges[name] for name in retaining):
        return {name: edges[name] for name in retaining}
    return {name: edges[name] for name in plan.vertices if name in retaining or _queue_count(plan, name) > 1}


def _retaining(plan: ExecutionPlan) -> tuple[set[str], set[str]]:
    """The vertices that retain, and those that they cover: which no row reaches without having passed one."""
    retaining: set[str] = set()
    covered: set[str] = set()
    for name in plan.vertices:
        inbound = plan.inbound(name)
        if not inbound:
            continue
        covers = all(edge.edge.source in covered for edge in inbound)
        if _queue_count(plan, name) > 1 and not covers:
            retaining.add(name)
        if covers or name in retaining:
            covered.add(name)
    return retaining, covered


def _queue_count(plan: ExecutionPlan, name: str) -> int:
    """The largest number of queues that lead into a processor of a vertex."""
    inbound = plan.inbound(name)
    return max(sum(len(edge.upstreams(index)) for edge in inbound) for index in range(plan.vertices[name].total))
