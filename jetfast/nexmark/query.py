"""What a query of NEXMark is: a pipeline over the three sources, and SQL that gives the same rows over their tables."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from jetfast.api.pipeline import Pipeline
from jetfast.api.stage import Stage
from jetfast.connectors.generator import BLOCK_ROWS
from jetfast.core.source import Source
from jetfast.errors import JobDefinitionError
from jetfast.nexmark.events import BID, Kind, kind_named
from jetfast.nexmark.live_bids import BidClock, LiveBids
from jetfast.nexmark.source import EVENT_RATE, EventSource, Settings


@dataclass(frozen=True)
class Events:
    """Which events a query is asked about."""

    count: int
    event_rate: float = EVENT_RATE
    seed: int = 0
    partitions: int = 1

    def source(self, kind: Kind) -> Source:
        return EventSource(kind, self.count, **self.settings)

    def live_bids(self) -> LiveBids:
        return LiveBids(BID, self.count, **self.settings)

    @property
    def settings(self) -> Settings:
        return Settings(event_rate=self.event_rate, seed=self.seed, partitions=self.partitions)

    def make_clock(self) -> BidClock:
        """Return the clock by which live bids come."""
        times = self.table(BID, ("date_time",))["date_time"]
        return BidClock(times.to_numpy().astype("datetime64[us]").astype(np.int64))

    def table(self, kind: Kind, names: tuple[str, ...]) -> pa.Table:
        """Return columns of all events of a kind."""
        rows = kind.count_rows(self.count)
        schema = pa.schema([kind.schema.field(name) for name in names])
        batches = [
            kind.make_rows(np.arange(row, min(row + BLOCK_ROWS, rows)), names, self.seed, self.event_rate)
            for row in range(0, rows, BLOCK_ROWS)
        ]
        return pa.Table.from_batches(batches, schema)


class Streams:
    """The stages of one pipeline that read persons, auctions and bids, in event time."""

    def __init__(self, pipeline: Pipeline, events: Events, clock: BidClock | None = None) -> None:
        self.pipeline = pipeline
        self.events = events
        self.clock = clock

    @property
    def persons(self) -> Stage:
        return self._read("person")

    @property
    def auctions(self) -> Stage:
        return self._read("auction")

    @property
    def bids(self) -> Stage:
        return self._read("bid")

    def see_bids(self, *names: str) -> Stage:
        """Return columns of bids as they come by the clock, and the time of it as `seen_at`."""
        if self.clock is None:
            raise JobDefinitionError("bids are seen by a clock: make the pipeline with one")
        live = self.pipeline.read(self.events.live_bids(), name="bids").select(*names)
        seen = live.with_processing_time("seen_at")
        return seen.map_batches(self.clock.see, schema=seen.schema, name="seen")

    def _read(self, kind: str) -> Stage:
        source = self.events.source(kind_named(kind))
        return self.pipeline.read(source, name=f"{kind}s").with_event_time("date_time")


@dataclass(frozen=True)
class Query:
    """One of the queries."""

    name: str
    question: str
    reads: Mapping[str, tuple[str, ...]]
    """Columns that the SQL reads of `person`, `auction` and `bid`."""
    build: Callable[[Streams], Stage]
    sql: str
    note: str = ""
    """Where the query is not what the benchmark says word for word."""
    writes_files: bool = False
    """Its answer goes to files, and is compared by what is in them."""

    goes_by_clock: bool = False
    """Its windows go by the time at which bids are seen; the job runs on the clock of the events."""

    def make_pipeline(self, events: Events, clock: BidClock | None = None) -> tuple[Pipeline, Stage]:
        """Return a pipeline, and its stage that gives the answer: no sink takes it yet.

        One that goes by a clock needs that of the events; raises JobDefinitionError without it.
        """
        pipeline = Pipeline(f"nexmark {self.name}")
        return pipeline, self.build(Streams(pipeline, events, clock))
