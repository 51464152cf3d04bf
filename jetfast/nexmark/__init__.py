"""NEXMark: the auctions of the public benchmark of stream engines as sources."""

from jetfast.nexmark.source import EVENT_RATE, EventSource, auctions, bids, persons

__all__ = ["EVENT_RATE", "EventSource", "auctions", "bids", "persons"]
