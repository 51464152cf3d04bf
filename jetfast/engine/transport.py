"""Port: carries the items of channels from this member to its peers, in order, with back-pressure.

A channel is one bounded queue between one upstream and one downstream processor. Inside a member it is an SpscQueue; between
members it has two ends, and the sender may have at most `capacity` items under way that the receiver has not taken (credits).
Implementations: `MemoryNetwork` (below; members in one process) and `jetfast.engine.socket_transport`.
"""

from typing import NamedTuple, Protocol

import pyarrow as pa

from jetfast.core.items import Item


class ChannelId(NamedTuple):
    """Names a channel in one execution: index of the edge in the Dag, and the processors' indices in the whole cluster."""

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
        """Open the downstream end of a channel whose upstream processor is on member `peer`. Before any sender sends."""

    def statistics(self) -> list[PeerStatistics]:
        """One entry per peer."""

    def close(self) -> None:
        """Drop all connections; ends may not be used any more."""
