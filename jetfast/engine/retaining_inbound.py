"""Inbound queues that do not wait for ever: a watermark is forwarded at most `max_watermark_retention` after it came.

What lags behind it then is late: the user has chosen so. It is applied at the first vertex on the way of rows that
coalesces; applied again at each further one, the times would add up.
"""

from collections.abc import Callable, Sequence
from typing import Any

from jetfast.core.guarantee import Guarantee
from jetfast.core.items import Watermark
from jetfast.core.watermark_policies import SAMPLES_PER_DELAY, TopHistory
from jetfast.engine.execution_plan import ExecutionPlan
from jetfast.engine.inbound_edge import Inbound, InboundEdge, InboundQueue
from jetfast.types import MIN_TIME


class RetainingInbound(Inbound):
    """As Inbound, and the greatest watermark that came on any queue is forwarded `retention_us` later at the latest.

    Exact to a sixteenth of the retention: between 15/16 of it and all of it. Invariant: watermarks handed on strictly
    rise; those that coalescing gives later, and that are not above what was forced, are dropped.
    """

    __slots__ = ("forced", "history")

    def __init__(
        self,
        vertex: str,
        edges: Sequence[InboundEdge],
        now_us: Callable[[], int],
        retention_us: int,
        guarantee: Guarantee = Guarantee.NONE,
    ) -> None:
        super().__init__(vertex, edges, now_us, guarantee)
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
                return Watermark(matured)
        while True:
            event = super().poll()
            if type(event) is not Watermark or event.value > self.forced:
                return event

    def take(self, queue: InboundQueue, item: Any) -> Any:
        """Take in an item that is not rows of a queue that is awake."""
        if type(item) is Watermark:
            self.history.observe(item.value, self.now_us())
        return super().take(queue, item)


def retaining_vertices(plan: ExecutionPlan) -> set[str]:
    """The vertices that coalesce, and that some rows reach without having passed another such vertex before."""
    retaining: set[str] = set()
    covered: set[str] = set()
    for name, vertex in plan.vertices.items():
        inbound = plan.inbound(name)
        if not inbound:
            continue
        covers = all(edge.edge.source in covered for edge in inbound)
        queues = max(sum(len(edge.upstreams(index)) for edge in inbound) for index in range(vertex.total))
        if queues > 1 and not covers:
            retaining.add(name)
        if covers or name in retaining:
            covered.add(name)
    return retaining
