"""Port: carries the items of channels from this member to its peers, in order, with back-pressure.

A channel is one bounded queue between one upstream and one downstream processor. Inside a member it is an SpscQueue;
between members it has two ends, and the sender may have at most `capacity` items under way that the receiver has not
taken (credits). Implementations: `MemoryNetwork` (below; members in one process) and `jetfast.engine.socket_transport`.
"""

import threading
from typing import NamedTuple, Protocol, cast

import pyarrow as pa

from jetfast.core.batch import Batch
from jetfast.core.items import Item
from jetfast.errors import TransportError
from jetfast.kernels.queues import MemoryBudget, SpscQueue


class ChannelId(NamedTuple):
    """Names a channel in one execution: index of the edge in the Dag, processors by their indices in the cluster."""

    edge: int
    upstream: int
    downstream: int


class SendingEnd(Protocol):
    """The upstream end; used by one thread."""

    def offer(self, item: Item) -> bool:
        """Hand over an item; False when there is no room now (nothing was taken: offer the same again later)."""


class ReceivingEnd(Protocol):
    """The downstream end; used by one thread."""

    def poll(self) -> Item | None:
        """Take the next item, or None if there is none now. Raises TransportError if the peer is gone."""


class PeerStatistics(NamedTuple):
    """What crossed between this member and one peer so far."""

    peer: int
    rows_sent: int
    rows_received: int
    bytes_sent: int
    bytes_received: int


class Transport(Protocol):
    """One member's end of the connections of one execution."""

    def sender(self, peer: int, channel: ChannelId, schema: pa.Schema, capacity: int) -> SendingEnd:
        """Open the upstream end of a channel whose downstream processor is on member `peer`."""

    def receiver(self, peer: int, channel: ChannelId, schema: pa.Schema, capacity: int) -> ReceivingEnd:
        """Open the downstream end of a channel whose upstream processor is on `peer`, before any sender sends."""

    def statistics(self) -> list[PeerStatistics]:
        """One entry per peer."""

    def close(self) -> None:
        """Drop all connections; ends may not be used any more."""


class _MemoryChannel:
    """One channel of a MemoryNetwork. Each count has one writer."""

    __slots__ = ("bytes_received", "bytes_sent", "network", "queue", "receiver", "rows_received", "rows_sent", "sender")

    def __init__(self, network: "MemoryNetwork", sender: int, receiver: int, capacity: int) -> None:
        self.network = network
        self.sender = sender
        self.receiver = receiver
        self.queue = SpscQueue(capacity, network.budget)
        self.rows_sent = self.bytes_sent = self.rows_received = self.bytes_received = 0

    def offer(self, item: Item) -> bool:
        if self.receiver in self.network.closed:
            raise TransportError(f"member {self.receiver} has left: it takes nothing more from member {self.sender}")
        if type(item) is not Batch:
            return self.queue.offer(item)
        nbytes = item.nbytes
        if not self.queue.offer(item, nbytes):
            return False
        self.rows_sent += item.row_count
        self.bytes_sent += nbytes
        return True

    def poll(self) -> Item | None:
        # Asked before the queue: what the peer sent before it left is in the queue by then.
        gone = self.sender in self.network.closed
        item = cast("Item | None", self.queue.poll())
        if item is None:
            if gone:
                raise TransportError(f"member {self.sender} has left; member {self.receiver} still waits for its rows")
        elif type(item) is Batch:
            self.rows_received += item.row_count
            self.bytes_received += item.nbytes
        return item


class MemoryNetwork:
    """Connects members that live in one process. Nothing is copied; bytes are those that the rows take.

    Parameters
    ----------
    member_count : members
    memory_limit : bytes that may be under way between all of them; None: only the number of items is bounded
    """

    def __init__(self, member_count: int, memory_limit: int | None = None) -> None:
        self.member_count = member_count
        self.budget = None if memory_limit is None else MemoryBudget(memory_limit)
        self.closed: frozenset[int] = frozenset()
        self._channels: dict[tuple[int, int, ChannelId], _MemoryChannel] = {}
        self._lock = threading.Lock()

    def transport(self, member: int) -> Transport:
        """The end of one member."""
        if not 0 <= member < self.member_count:
            raise ValueError(f"there is no member {member}, only 0 to {self.member_count - 1}")
        return _MemoryTransport(self, member)

    def channel(self, sender: int, receiver: int, channel: ChannelId, capacity: int) -> _MemoryChannel:
        """The channel, made by whichever end asks first."""
        with self._lock:
            return self._channels.setdefault(
                (sender, receiver, channel), _MemoryChannel(self, sender, receiver, capacity)
            )

    def channels_of(self, member: int) -> list[_MemoryChannel]:
        """All channels from or to a member."""
        with self._lock:
            return [channel for channel in self._channels.values() if member in (channel.sender, channel.receiver)]

    def close(self, member: int) -> None:
        """A member leaves."""
        with self._lock:
            self.closed = self.closed | {member}


class _MemoryTransport:
    """One member's end of a MemoryNetwork."""

    def __init__(self, network: MemoryNetwork, member: int) -> None:
        self.network = network
        self.member = member

    def sender(self, peer: int, channel: ChannelId, schema: pa.Schema, capacity: int) -> SendingEnd:
        return self.network.channel(self.member, peer, channel, capacity)

    def receiver(self, peer: int, channel: ChannelId, schema: pa.Schema, capacity: int) -> ReceivingEnd:
        return self.network.channel(peer, self.member, channel, capacity)

    def statistics(self) -> list[PeerStatistics]:
        channels = self.network.channels_of(self.member)
        totals = []
        for peer in range(self.network.member_count):
            if peer != self.member:
                sent = [channel for channel in channels if channel.receiver == peer]
                received = [channel for channel in channels if channel.sender == peer]
                totals.append(
                    PeerStatistics(
                        peer,
                        rows_sent=sum(channel.rows_sent for channel in sent),
                        rows_received=sum(channel.rows_received for channel in received),
                        bytes_sent=sum(channel.bytes_sent for channel in sent),
                        bytes_received=sum(channel.bytes_received for channel in received),
                    )
                )
        return totals

    def close(self) -> None:
        self.network.close(self.member)
