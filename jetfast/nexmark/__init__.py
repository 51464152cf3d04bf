"""NEXMark, the public benchmark of stream engines: its events as sources, its queries as pipelines."""

from jetfast.nexmark.source import EVENT_RATE, EventSource, auctions, bids, persons

__all__ = ["EVENT_RATE", "EventSource", "auctions", "bids", "persons"]
