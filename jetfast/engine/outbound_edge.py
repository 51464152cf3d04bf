"""Sends what a processor emits into the queues of one outbound edge, by the edge's routing.

Nothing blocks: `send` and `broadcast` return False when some queue had no room. Then what is left is kept here,
`resume` tries again, and nothing new may be sent before it returns True. A queue that has taken its part never gets
it twice. `send_run` sends several batches in fewer calls, and says how many it has taken: to a queue of this member
they go as one item, if they are small beside the memory limit.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from jetfast.core.batch import Batch, BatchRun
from jetfast.core.items import ControlItem

Offer = Callable[[Any, int], bool]
"""Puts an item of so many bytes into a queue; False: no room now."""

Split = Callable[[Batch], Sequence[Batch | None]]
"""`Splitter.split`: one part per queue, None where it gets no row."""

SplitAll = Callable[[BatchRun], list[BatchRun | None]]
"""`Splitter.split_all`: the parts of each queue."""


class Target(NamedTuple):
    """One downstream queue."""

    member: int
    processor: int
    """Index of the downstream processor in the whole cluster."""
    offer: Offer
    run_bytes_max: int | None = None
    """A BatchRun of so many bytes at most goes as one item; None: they are sent batch by batch, to another member."""


class OutboundEdge:
    """What all routings share: control items go to every queue, and what found no room is offered again."""

    __slots__ = ("blocked", "measured", "offers", "processors", "remaining", "targets")

    def __init__(self, targets: Sequence[Target], measured: bool) -> None:
        self.targets = targets
        self.offers = [target.offer for target in targets]
        self.processors = [target.processor for target in targets]
        self.measured = measured
        """Are bytes counted? (There is a memory limit.)"""
        self.remaining: list[tuple[Offer, Any, int]] = []
        self.blocked: list[OutboundEdge] = []
        """Of the outbox: an edge that has something left puts itself there."""

    def send(self, batch: Batch) -> bool:
        """Send rows (one or more). False: call `resume` until it gives True."""
        raise NotImplementedError

    def send_run(self, batches: BatchRun) -> int:
        """Send batches (one or more rows each) one after the other, as many as go before one has no room.

        Returns how many are sent or kept here. If any is kept, the edge is blocked.
        """
        for index, batch in enumerate(batches, 1):
            if not self.send(batch):
                return index
        return len(batches)

    def send_to(self, owner: int, batch: Batch) -> bool:
        """Send rows whose keys one target of a partitioned edge owns. False: call `resume` until it gives True."""
        offer = self.offers[owner]
        nbytes = batch.nbytes if self.measured else 0
        if not offer(batch, nbytes):
            self.remaining.append((offer, batch, nbytes))
        return self.all_sent()

    def send_run_to(self, owner: int, batches: BatchRun) -> None:
        """`send_to` of several batches that follow each other; they are sent or kept here."""
        self.offer_run(self.targets[owner], batches)
        self.all_sent()

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

    def full(self) -> list[int]:
        """Downstream processors (indices) whose queues have no room for what is left. Any thread."""
        offers = [offer for offer, _, _ in list(self.remaining)]
        return [processor for offer, processor in zip(self.offers, self.processors, strict=True) if offer in offers]

    def resume(self) -> bool:
        """Offer again what had no room; True when all has left."""
        remaining: list[tuple[Offer, Any, int]] = []
        for offer, item, nbytes in self.remaining:
            # What is behind an item that has still no room must not overtake it.
            if (remaining and remaining[-1][0] == offer) or not offer(item, nbytes):
                remaining.append((offer, item, nbytes))
        self.remaining = remaining
        return not remaining

    def offer_run(self, target: Target, batches: BatchRun) -> None:
        """Offer batches to one queue, to which nothing remains to be sent; those that have no room remain."""
        offer = target.offer
        if target.run_bytes_max is not None:
            nbytes = batches.nbytes if self.measured else 0
            if nbytes <= target.run_bytes_max:
                if not offer(batches, nbytes):
                    self.remaining.append((offer, batches, nbytes))
                return
        has_room = True
        for batch in batches:
            nbytes = batch.nbytes if self.measured else 0
            has_room = has_room and offer(batch, nbytes)
            if not has_room:
                self.remaining.append((offer, batch, nbytes))


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

    def full(self) -> list[int]:
        return self.processors if self.waiting is not None else super().full()

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

    __slots__ = ("offer", "target")

    def __init__(self, targets: Sequence[Target], measured: bool, target: int) -> None:
        super().__init__(targets, measured)
        self.target = targets[target]
        self.offer = self.target.offer

    def send(self, batch: Batch) -> bool:
        nbytes = batch.nbytes if self.measured else 0
        if self.offer(batch, nbytes):
            return True
        self.remaining.append((self.offer, batch, nbytes))
        self.blocked.append(self)
        return False

    def send_run(self, batches: BatchRun) -> int:
        self.offer_run(self.target, batches)
        if self.remaining:
            self.all_sent()
        return len(batches)


class PartitionedEdge(OutboundEdge):
    """Each row to the owner of its key's partition; owner i is behind queue i."""

    __slots__ = ("split", "split_all")

    def __init__(
        self, targets: Sequence[Target], measured: bool, split: Split, split_all: SplitAll | None = None
    ) -> None:
        super().__init__(targets, measured)
        self.split = split
        self.split_all = split_all
        """Splits several batches at once; None: they are split one by one."""

    def send(self, batch: Batch) -> bool:
        measured = self.measured
        remaining = self.remaining
        for offer, part in zip(self.offers, self.split(batch), strict=True):
            if part is not None:
                nbytes = part.nbytes if measured else 0
                if not offer(part, nbytes):
                    remaining.append((offer, part, nbytes))
        return self.all_sent() if remaining else True

    def send_run(self, batches: BatchRun) -> int:
        if self.split_all is None:
            return super().send_run(batches)
        for target, parts in zip(self.targets, self.split_all(batches), strict=True):
            if parts is not None:
                self.offer_run(target, parts)
        self.all_sent()
        return len(batches)


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

    def full(self) -> list[int]:
        return sorted({*super().full(), *(processor for group in self.groups for processor in group.full())})

    def resume(self) -> bool:
        sent = OutboundEdge.resume(self)
        for group in self.groups:
            if group.waiting is not None and not group.resume():
                sent = False
        return sent


class Outbox:
    """All outbound edges of one processor, by output port."""

    __slots__ = ("blocked", "broadcast", "edges", "main", "ports", "send", "send_run")

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
        self.send_run: Callable[[BatchRun], int] = (
            self.main[0].send_run if len(self.main) == 1 else self.send_one_by_one
        )
        """Sends batches to the main port; how many it has taken. If `blocked`, call `resume` until it gives True."""
        self.broadcast: Callable[[ControlItem], bool] = (
            self.edges[0].broadcast if len(self.edges) == 1 else self.broadcast_to_all
        )
        """Sends a control item to every queue of every edge. False: call `resume` until it gives True."""

    def send_to_all(self, batch: Batch) -> bool:
        for edge in self.main:
            edge.send(batch)
        return not self.blocked

    def send_one_by_one(self, batches: BatchRun) -> int:
        for index, batch in enumerate(batches, 1):
            if not self.send(batch):
                return index
        return len(batches)

    def send_to(self, port: int, batch: Batch, owner: int | None = None) -> bool:
        """Send rows to a port (and there to `owner`); nothing happens if nobody reads it."""
        for edge in self.ports.get(port, ()):
            if owner is None:
                edge.send(batch)
            else:
                edge.send_to(owner, batch)
        return not self.blocked

    def send_run_to(self, port: int, batches: BatchRun, owner: int) -> bool:
        """`send_to` of several batches of one row or more."""
        for edge in self.ports.get(port, ()):
            edge.send_run_to(owner, batches)
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
