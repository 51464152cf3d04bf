"""Goal 13: joins and state by key, with emission, against the bounded question over whole tables."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import polars as pl
import pyarrow as pa

from benchmarks.goals.feed import cached_events, watermarks_of
from benchmarks.goals.options import Options
from benchmarks.measure import Work, measure, side_by_side, timed
from benchmarks.peers.duckdb import Database
from benchmarks.report import Entry, Goal, ratio
from benchmarks.suite.batches import BATCH_ROWS, SCHEMA, make_events
from jetfast.core.aggregate import AggregateColumn, AggregateKind
from jetfast.core.batch import Batch
from jetfast.core.joins import Join, JoinType
from jetfast.core.keyed_input import KeyedInput
from jetfast.core.processor import Processor, ProcessorContext
from jetfast.core.windows import Window
from jetfast.processors.drop_duplicates import DropDuplicates
from jetfast.processors.interval_join import IntervalJoinProcessor
from jetfast.processors.rolling_aggregate import RollingAggregate
from jetfast.processors.window_join import WindowJoinProcessor

KEYS = 10_000
WINDOW_US = 10_000
"""A pair for each row of either side, about."""
GOAL = Goal(13, 0.33, 1.0)
TIMES = [("window_start", pa.timestamp("us")), ("window_end", pa.timestamp("us"))]
RIGHT_SCHEMA = SCHEMA.set(2, pa.field("right_value", pa.float64()))


def joined(*added: tuple[str, pa.DataType]) -> Join:
    """An inner join of both streams on their key."""
    sides = (
        KeyedInput(SCHEMA, ("key",), ("value",), "time"),
        KeyedInput(RIGHT_SCHEMA, ("key",), ("right_value",), "time"),
    )
    values = [("key", pa.int64()), ("value", pa.float64()), ("right_value", pa.float64())]
    return Join(sides, JoinType.INNER, pa.schema([*values, *added]))


class Streams:
    """Two streams of one length, as batches and as tables."""

    def __init__(self, rows: int) -> None:
        events = cached_events(rows, KEYS), make_events(rows, KEYS, seed=2)
        self.tables = events[0].table(), events[1].table().rename_columns(RIGHT_SCHEMA.names)
        self.batches = [[Batch.from_arrow(part) for part in table.to_batches(BATCH_ROWS)] for table in self.tables]
        self.watermarks = watermarks_of(events[0])

    def feed(self, make: Callable[[], Processor], sides: int, results: list[Batch] | None = None) -> None:
        """Rows of one or both streams, then the watermark behind them. Results are dropped as they come."""
        processor = make()
        processor.open(ProcessorContext("measured"))

        def take(output: Any) -> None:
            for item in output:
                if results is not None and isinstance(item, Batch):
                    results.append(item)

        for number, watermark in enumerate(self.watermarks):
            for ordinal in range(sides):
                take(processor.process(ordinal, self.batches[ordinal][number]))
            take(processor.process_watermark(watermark))
        take(processor.complete())


def goal_13(options: Options) -> Iterator[Entry]:
    """10k keys: joins against DuckDB; running aggregates and duplicates against polars."""
    streams = Streams(options.rows // 4)
    compare = partial(compared, options, streams)
    if options.chosen({"duckdb": None}):
        database = Database(streams.tables[0])
        database.connection.register("right_events", streams.tables[1])
        query = partial(join_of_tables, database)
        near = f"epoch_us(r.time) between epoch_us(l.time) and epoch_us(l.time) + {WINDOW_US}"
        window = f"epoch_us(l.time) // {WINDOW_US} = epoch_us(r.time) // {WINDOW_US}"
        make = partial(WindowJoinProcessor, joined(*TIMES), Window(WINDOW_US, WINDOW_US))
        yield compare("window-join-10k", "tumbling 10 ms", "duckdb", make, 2, partial(query, window))
        make = partial(IntervalJoinProcessor, joined(("event_time", pa.timestamp("us"))), 0, WINDOW_US)
        yield compare("interval-join-10k", "0 to 10 ms", "duckdb", make, 2, partial(query, near))
    if options.chosen({"polars": None}):
        frame = pl.DataFrame(streams.tables[0])
        rows = KeyedInput(SCHEMA, ("key",), tuple(SCHEMA.names))
        aggregates = AggregateColumn("n", AggregateKind.COUNT), AggregateColumn("sum", AggregateKind.SUM, "value")
        schema = pa.schema([*SCHEMA, pa.field("n", pa.int64()), pa.field("sum", pa.float64())])
        make_running = partial(RollingAggregate, rows, aggregates, schema, None)
        yield compare("running-10k", "count and sum", "polars", make_running, 1, partial(running, frame))
        first = partial(frame.unique, "key", keep="first", maintain_order=True)
        yield compare("first-rows-10k", "of each key", "polars", partial(DropDuplicates, rows, None), 1, first)


def join_of_tables(database: Database, condition: str) -> pl.DataFrame:
    return pl.DataFrame(
        database.query(
            f"select l.key, value, right_value from own_events l join right_events r on l.key = r.key and {condition}"
        )
    )


def running(frame: pl.DataFrame) -> pl.DataFrame:
    value = pl.col("value")
    return frame.with_columns(n=value.cum_count().over("key").cast(pl.Int64), sum=value.cum_sum().over("key"))


def compared(
    options: Options,
    streams: Streams,
    name: str,
    what: str,
    peer: str,
    make: Callable[[], Processor],
    sides: int,
    theirs: Callable[[], pl.DataFrame],
) -> Entry:
    """Check both answers, row by row, and measure both."""
    found: list[Batch] = []
    streams.feed(make, sides, found)
    answer = theirs()
    ours = pl.DataFrame(pa.Table.from_batches([batch.to_arrow() for batch in found])).select(answer.columns)
    equal = in_order(ours).equals(in_order(answer))

    def turn() -> Any:
        return measure(lambda: streams.feed(make, sides))

    peers: dict[str, dict[str, Work]] = {peer: {"": timed(theirs)}}
    costs = side_by_side(turn, peers, options.repeats)
    rows = sides * len(streams.tables[0])
    return ratio(f"{name}-vs-{peer}", f"{KEYS} keys, {what}", peer, costs["jetfast"], costs[peer], rows, equal, GOAL)


def in_order(frame: pl.DataFrame) -> pl.DataFrame:
    """Rows in an order of their own."""
    return frame.sort(frame.columns)
