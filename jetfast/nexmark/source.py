"""Persons, auctions and bids of NEXMark as sources: only the columns that are read are made."""

from collections.abc import Sequence
from typing import Self, TypedDict, Unpack

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from jetfast.connectors.generator import GeneratorSource
from jetfast.errors import JobDefinitionError
from jetfast.nexmark.events import AUCTION, BID, EPOCH_EVENTS, PERSON, Kind

EVENT_RATE = 10_000.0
"""Events in a second of event time, unless another number is asked for."""


class Settings(TypedDict, total=False):
    """How events are made and given out; each source takes these.

    event_rate : events of all kinds in a second of event time; one comes every 1 / event_rate seconds
    rate : events of all kinds in a second of wall time; None: as fast as they are taken
    seed : another seed gives other rows
    partitions : source partitions; how many there are does not change the rows, only who has them
    """

    event_rate: float
    rate: float | None
    seed: int
    partitions: int


def persons(events: int | None = None, **settings: Unpack[Settings]) -> "EventSource":
    """A source of the persons among the first `events` events of all kinds (None: without end), one of 50.

    Raises JobDefinitionError for settings out of range.
    """
    return EventSource(PERSON, events, **settings)


def auctions(events: int | None = None, **settings: Unpack[Settings]) -> "EventSource":
    """As `persons`, of the auctions, three of 50."""
    return EventSource(AUCTION, events, **settings)


def bids(events: int | None = None, **settings: Unpack[Settings]) -> "EventSource":
    """As `persons`, of the bids, 46 of 50."""
    return EventSource(BID, events, **settings)


class EventSource(GeneratorSource):
    """Events of one kind, with `Settings`; the event time is `date_time`, which never goes back.

    A row is a function of its number, so positions, partitions and rates are those of `jf.generator`.
    """

    def __init__(
        self,
        kind: Kind,
        events: int | None = None,
        columns: Sequence[str] | None = None,
        *,
        event_rate: float = EVENT_RATE,
        rate: float | None = None,
        seed: int = 0,
        partitions: int = 1,
    ) -> None:
        label = f"nexmark {kind.name}s"
        if events is not None and events < 0:
            raise JobDefinitionError(f"{label}: events must not be negative, got {events}")
        if not 0 < event_rate <= 1_000_000:
            raise JobDefinitionError(
                f"{label}: event_rate must be greater than 0 and at most 1000000 events/s, got {event_rate}"
            )
        if rate is not None and not 0 < rate < float("inf"):
            raise JobDefinitionError(f"{label}: rate must be greater than zero events/s, got {rate}")
        if seed < 0:
            raise JobDefinitionError(f"{label}: seed must not be negative, got {seed}")
        if partitions < 1:
            raise JobDefinitionError(f"{label}: partitions must be at least 1, got {partitions}")
        self.kind = kind
        self.events = events
        self.settings = Settings(event_rate=event_rate, rate=rate, seed=seed, partitions=partitions)
        super().__init__(
            label,
            self.make_rows,
            None if events is None else kind.count_rows(events),
            None if rate is None else rate * kind.rows_per_epoch / EPOCH_EVENTS,
            seed,
            partitions,
        )
        self.columns: list[str] = list(kind.columns if columns is None else columns)
        self.schema = pa.schema([kind.schema.field(name) for name in self.columns])

    def with_columns(self, names: Sequence[str]) -> Self:
        return type(self)(self.kind, self.events, names, **self.settings)

    def at_rate(self, rate: float | None) -> Self:
        """The same rows at another rate."""
        settings = self.settings.copy()
        settings["rate"] = rate
        return type(self)(self.kind, self.events, self.columns, **settings)

    def make_rows(self, numbers: npt.NDArray[np.int64], random: np.random.Generator) -> pa.RecordBatch:
        """Return rows by their numbers alone, not by the block they are in, of which `random` is."""
        return self.kind.make_rows(numbers, self.columns, self.seed, self.settings["event_rate"])
