"""NEXMark's q0 to q8: whole pipelines over Arrow data made beforehand, against DuckDB's bounded answers."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

import jetfast as jf
from benchmarks.goals.options import Options
from benchmarks.measure import side_by_side, timed
from benchmarks.peers.duckdb import connect
from benchmarks.report import Entry, ratio
from jetfast.core.source import Source
from jetfast.nexmark.answer import answer_with_jetfast
from jetfast.nexmark.check import find_difference
from jetfast.nexmark.events import Kind, kind_named
from jetfast.nexmark.queries import QUERIES
from jetfast.nexmark.query import Events, Query

NAMES = tuple(f"q{number}" for number in range(9))
PEER = "duckdb"


@dataclass(frozen=True)
class HeldEvents(Events):
    """Events that were made before the clocks start."""

    tables: Mapping[str, pa.Table] = field(default_factory=dict)
    """By the name of the kind; columns that no query reads are not there."""

    def source(self, kind: Kind) -> Source:
        return jf.memory(self.tables[kind.name].to_batches(), name=f"{kind.name}s")


def hold(events: Events) -> HeldEvents:
    """Make what the queries read of the events."""
    names: dict[str, dict[str, None]] = {}
    for name in NAMES:
        for kind, columns in QUERIES[name].reads.items():
            names.setdefault(kind, {"date_time": None}).update(dict.fromkeys(columns))
    tables = {kind: events.table(kind_named(kind), tuple(columns)) for kind, columns in names.items()}
    return HeldEvents(events.count, events.event_rate, events.seed, tables=tables)


def nexmark(options: Options) -> Iterator[Entry]:
    """From building the pipeline, or from the SQL, to the table of all rows of the answer, in memory on both sides."""
    if not options.chosen({PEER: None}):
        return
    events = hold(Events(options.nexmark_events))
    connection = connect(events.tables)
    try:
        for name in NAMES:
            yield compare(options, QUERIES[name], events, connection)
    finally:
        connection.close()


def compare(options: Options, query: Query, events: HeldEvents, connection: Any) -> Entry:
    """Check both answers, row by row, and measure both."""
    cluster = jf.LocalCluster(workers=1)

    def ours() -> pa.Table:
        return answer_with_jetfast(query, events, cluster)

    def theirs() -> pa.Table:
        return connection.sql(query.sql).to_arrow_table()

    equal = find_difference(ours(), theirs()) is None
    costs = side_by_side(timed(ours), {PEER: {"": timed(theirs)}}, options.repeats)
    rows = sum(events.tables[kind].num_rows for kind in query.reads)
    return ratio(f"nexmark-{query.name}", query.question, PEER, costs["jetfast"], costs[PEER], rows, equal)
