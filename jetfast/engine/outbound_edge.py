"""Sends what a processor emits into the queues of one outbound edge, by the edge's routing.

Nothing blocks: `send` and `broadcast` return False when some queue had no room. Then what is left is kept here,
`resume` tries again, and nothing new may be sent before it returns True. A queue that has taken its part never gets
it twice.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from jetfast.core.batch import Batch
from jetfast.core.items import ControlItem

Offer = Callable[[Any, int], bool]
"""Puts an item of so many bytes into a queue; False: no room now."""

Split = Callable[[Batch], Sequence[Batch | None]]
"""`Splitter.split`: one part per queue, None where it gets no row."""


class Target(NamedTuple):
    """One downstream queue."""

    member: int
    processor: int
    """Index of the downstream processor in the whole cluster."""
    offer: Offer


class OutboundEdge:
    """What all routings share: control items go to every queue, and what found no room is offered again."""

    __slots__ = ("blocked", "measured", "offers", "remaining")

    def __init__(self, targets: Sequence[Target], measured: bool) -> None:
        self.offers = [target.offer for target in targets]
        self.measured = measured
        """Are bytes counted? (There is a memory limit.)"""
        self.remaining: list[tuple[Offer, Any, int]] = []
        self.blocked: list[OutboundEdge] = []
        """Of the outbox: an edge that has something left puts itself there."""

    def send(self, batch: Batch) -> bool:
        """Send rows (one or more). False: call `resume` until it gives True."""
        raise NotImplementedError

    def broadcast(self, item: ControlItem) -> bool:
        """Send a control item to every queue. False: call `resume` until it gives True."""
        remaining = self.remaining
        for offer in self.offers:
            if not offer(item, 0):
                remaining.append((offer, item, 0))
        return self.all_sent() if remaining else True

    def all_sent(self) -> bool:
        """True if nothing remains; else the edge is blocked."""
        if not self.remaining:
            return True
        self.blocked.append(self)
        return False

    def count_left(self) -> int:
        """How many items wait for room here."""
        return len(self.remaining)

    def resume(self) -> bool:
        """Offer again what had no room; True when all has left."""
        self.remaining = [left for left in self.remaining if not left[0](left[1], left[2])]
        return not self.remaining


class RoundRobinEdge(OutboundEdge):
    """Unicast and isolated: each batch to the next queue that has room."""

    __slots__ = ("next", "waiting")

    def __init__(self, targets: Sequence[Target], measured: bool) -> None:
        super().__init__(targets, measured)
        self.next = 0
        self.waiting: Batch | None = None

    def send(self, batch: Batch) -> bool:
        nbytes = batch.nbytes if self.measured else 0
        offers = self.offers
        count = len(offers)
        index = self.next
        for _ in range(count):
            if index >= count:
                index = 0
            if offers[index](batch, nbytes):
                self.next = index + 1
                return True
            index += 1
        if count == 0:
            return True
        self.waiting = batch
        self.blocked.append(self)
        return False

    def count_left(self) -> int:
        return len(self.remaining) + (self.waiting is not None)

    def resume(self) -> bool:
        batch = self.waiting
        if batch is None:
            return OutboundEdge.resume(self)
        nbytes = batch.nbytes if self.measured else 0
        for index, offer in enumerate(self.offers):
            if offer(batch, nbytes):
                self.next = index + 1
                self.waiting = None
                return True
        return False


class SingleTargetEdge(OutboundEdge):
    """All rows to one queue: all-to-one, a partitioned edge with one owner."""

    __slots__ = ("offer",)

    def __init__(self, targets: Sequence[Target], measured: bool, target: int) -> None:
        super().__init__(targets, measured)
        self.offer = self.offers[target]

    def send(self, batch: Batch) -> bool:
        nbytes = batch.nbytes if self.measured else 0
        if self.offer(batch, nbytes):
            return True
        self.remaining.append((self.offer, batch, nbytes))
        self.blocked.append(self)
        return False


class PartitionedEdge(OutboundEdge):
    """Each row to the owner of its key's partition; owner i is behind queue i."""

    __slots__ = ("split",)

    def __init__(self, targets: Sequence[Target], measured: bool, split: Split) -> None:
        super().__init__(targets, measured)
        self.split = split

    def send(self, batch: Batch) -> bool:
        measured = self.measured
        remaining = self.remaining
        for offer, part in zip(self.offers, self.split(batch), strict=True):
            if part is not None:
                nbytes = part.nbytes if measured else 0
                if not offer(part, nbytes):
                    remaining.append((offer, part, nbytes))
        return self.all_sent() if remaining else True


class BroadcastEdge(OutboundEdge):
    """Every row to every queue."""

    __slots__ = ()

    def send(self, batch: Batch) -> bool:
        nbytes = batch.nbytes if self.measured else 0
        for offer in self.offers:
            if not offer(batch, nbytes):
                self.remaining.append((offer, batch, nbytes))
        return self.all_sent()


class FanoutEdge(OutboundEdge):
    """Every row to every member, there to the next processor that has room."""

    __slots__ = ("groups",)

    def __init__(self, targets: Sequence[Target], measured: bool) -> None:
        super().__init__(targets, measured)
        members = sorted({target.member for target in targets})
        self.groups = [
            RoundRobinEdge([target for target in targets if target.member == member], measured) for member in members
        ]

    def send(self, batch: Batch) -> bool:
        sent = True
        for group in self.groups:
            if not group.send(batch):
                group.blocked.clear()  # it is this edge that the outbox resumes
                sent = False
        if not sent:
            self.blocked.append(self)
        return sent

    def count_left(self) -> int:
        return len(self.remaining) + sum(group.count_left() for group in self.groups)

    def resume(self) -> bool:
        sent = OutboundEdge.resume(self)
        for group in self.groups:
            if group.waiting is not None and not group.resume():
                sent = False
        return sent


class Outbox:
    """All outbound edges of one processor, by output port."""

    __slots__ = ("blocked", "broadcast", "edges", "main", "ports", "send")

    def __init__(self, edges: Sequence[tuple[int, OutboundEdge]]) -> None:
        """`edges`: (output port, edge)."""
        self.edges = [edge for _, edge in edges]
        self.ports = {port: [edge for p, edge in edges if p == port] for port, _ in edges}
        self.main = self.ports.get(0, [])
        self.blocked: list[OutboundEdge] = []
        """Edges with something left. Nothing new may be sent before `resume` has emptied it."""
        for edge in self.edges:
            edge.blocked = self.blocked
        self.send: Callable[[Batch], bool] = self.main[0].send if len(self.main) == 1 else self.send_to_all
        """Sends rows to the main port. False: call `resume` until it gives True."""
        self.broadcast: Callable[[ControlItem], bool] = (
            self.edges[0].broadcast if len(self.edges) == 1 else self.broadcast_to_all
        )
        """Sends a control item to every queue of every edge. False: call `resume` until it gives True."""

    def send_to_all(self, batch: Batch) -> bool:
        for edge in self.main:
            edge.send(batch)
        return not self.blocked

    def send_to(self, port: int, batch: Batch) -> bool:
        """Send rows to a port; nothing happens if nobody reads it."""
        for edge in self.ports.get(port, ()):
            edge.send(batch)
        return not self.blocked

    def broadcast_to_all(self, item: ControlItem) -> bool:
        for edge in self.edges:
            edge.broadcast(item)
        return not self.blocked

    def count_left(self) -> int:
        """How many items wait for room: 0 when something new may be sent."""
        return sum(edge.count_left() for edge in self.blocked)

    def resume(self) -> bool:
        """Send what had no room; True when all has left."""
        self.blocked[:] = [edge for edge in self.blocked if not edge.resume()]
        return not self.blocked
