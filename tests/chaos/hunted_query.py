"""A query of NEXMark as a hunted pipeline: its rows must be those of DuckDB, whoever was killed."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import pyarrow as pa

import jetfast as jf
from jetfast.core.batch import Batch
from jetfast.core.processor import ProcessorContext
from jetfast.core.source import Position, Rows, Source
from jetfast.nexmark.check import answer_with_duckdb
from jetfast.nexmark.events import Kind
from jetfast.nexmark.queries import QUERIES
from jetfast.nexmark.query import Events
from jetfast.nexmark.source import EventSource
from tests.chaos.watched import Watched

EVENT_RATE = 2_000.0
PARTITIONS = 6


@dataclass(frozen=True)
class HuntedEvents(Events):
    """Events that come at a rate, and whose readers are watched."""

    rate: float = 0.0
    """Events of all kinds in a second of wall time."""
    watched: Watched | None = None

    def source(self, kind: Kind) -> Source:
        assert self.watched is not None
        return WatchedEvents(EventSource(kind, self.count, **self.settings), self.rate, self.watched)


class WatchedEvents:
    """Rows at a rate, and no end, until somebody says that the source ends; then as fast as they are taken.

    So whoever is to be killed is killed while rows flow.
    """

    bounded = True
    cooperative = True

    def __init__(self, source: EventSource, rate: float, watched: Watched) -> None:
        self.source = source
        self.rate = rate
        self.watched = watched
        self.name = source.name
        self.schema = source.schema
        self.source_delivery = source.source_delivery

    def partitions(self) -> Sequence[str]:
        return self.source.partitions()

    def with_columns(self, names: Sequence[str]) -> Self:
        return type(self)(self.source.with_columns(names), self.rate, self.watched)

    def open_reader(self, partition: str, position: Position | None, context: ProcessorContext) -> "WatchedReader":
        return WatchedReader(self, partition, position, context)


class WatchedReader:
    """Reads rows as they are due, and from where that stands the others."""

    def __init__(self, source: WatchedEvents, partition: str, position: Position | None, context: ProcessorContext):
        self.source = source
        self.partition = partition
        self.position = position
        self.context = context
        self.keeps_rate = True
        self.reader = source.source.at_rate(source.rate).open_reader(partition, position, context)
        self.empty = Batch.empty(source.schema)

    def read(self) -> Rows | None:
        ends = self.source.watched.rows is not None
        if ends and self.keeps_rate:
            self.keeps_rate = False
            self.reader = self.source.source.open_reader(self.partition, self.position, self.context)
        rows = self.reader.read()
        if rows is None:
            return None if ends or self.position is None else Rows(self.empty, self.position)
        self.position = rows.position
        if len(rows.batch):
            self.source.watched.begin(self.context)
        return rows

    def close(self) -> None:
        self.reader.close()


class SeeResults:
    """A step that notes that results have come."""

    def __init__(self, watched: Watched) -> None:
        self.watched = watched

    def __call__(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        if rows.num_rows:
            self.watched.see_results()
        return rows


def hunted_query(name: str, events: int, sink: Any, rate: float, watched: Watched) -> jf.Pipeline:
    """Return the pipeline of a query, writing to `sink`."""
    hunted = HuntedEvents(events, EVENT_RATE, partitions=PARTITIONS, rate=rate, watched=watched)
    pipeline, answer = QUERIES[name].make_pipeline(hunted)
    answer.map_batches(SeeResults(watched), schema=answer.schema, name="see").write(sink, name="sink")
    return pipeline


def answer_of(name: str, events: int) -> pa.Table:
    """Return the rows that DuckDB gives."""
    return answer_with_duckdb(QUERIES[name], Events(events, EVENT_RATE))


def count_rows(table: pa.Table, names: Sequence[str]) -> Counter[tuple[Any, ...]]:
    """Return how often each row is there, whatever the order of its columns."""
    return Counter(zip(*(table[name].to_pylist() for name in names), strict=True))
