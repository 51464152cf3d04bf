"""Steps of random programs that keep state by key."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import pyarrow as pa

import jetfast as jf
from jetfast import col
from jetfast.api.stage import Stage
from jetfast.core.batch import Batch
from jetfast.core.items import Output
from jetfast.core.processor import BY_KEYS, Processor, ProcessorContext, StateBatch
from tests.simulation.programs.flow import SCHEMA, Flow, Row, both, total
from tests.simulation.programs.operator import Builder

MILLISECOND = 1000
TTLS_MS = [None, 150, 400, 2000]


def asked(ttl_ms: int | None) -> str | None:
    """A time to live as users write it."""
    return None if ttl_ms is None else f"{ttl_ms}ms"


@dataclass(frozen=True)
class DropDuplicates:
    """The first row of each key, and again beyond a horizon."""

    INPUTS = 1
    horizon_ms: int | None

    @classmethod
    def draw(cls, random: Random) -> "DropDuplicates":
        return cls(random.choice(TTLS_MS))

    def build(self, builder: Builder, name: str, stages: Sequence[Stage]) -> Stage:
        return stages[0].drop_duplicates("key", horizon=asked(self.horizon_ms), name=name)

    def compute(self, node: int, flows: Sequence[Flow]) -> Flow:
        (flow,) = flows
        flow.require(timed=self.horizon_ms is not None, ordered=True)
        kept: list[Row] = []
        last: dict[str | None, int] = {}
        for row in flow.rows:
            if row.key not in last or (
                self.horizon_ms is not None and row.time > last[row.key] + self.horizon_ms * MILLISECOND
            ):
                last[row.key] = row.time
                kept.append(row)
        return flow.of(kept)


@dataclass(frozen=True)
class Distinct:
    """Each row once."""

    INPUTS = 1

    @classmethod
    def draw(cls, random: Random) -> "Distinct":
        return cls()

    def build(self, builder: Builder, name: str, stages: Sequence[Stage]) -> Stage:
        return stages[0].distinct(name=name)

    def compute(self, node: int, flows: Sequence[Flow]) -> Flow:
        return flows[0].of(dict.fromkeys(flows[0].rows), ordered=False)


@dataclass
class Living:
    """What is kept of a key."""

    seen: int
    rows: list[Row]


def lives(flow: Flow, ttl_ms: int | None) -> Iterable[tuple[Living, Row, Living | None]]:
    """For each row the life of its key that it belongs to, itself included; and the one that ended before."""
    living: dict[str | None, Living] = {}
    for row in flow.rows:
        ended = None
        of_key = living.get(row.key)
        if of_key is not None and ttl_ms is not None and row.time > of_key.seen + ttl_ms * MILLISECOND:
            ended = of_key
            of_key = None
        if of_key is None:
            of_key = living[row.key] = Living(row.time, [])
        of_key.seen = max(of_key.seen, row.time)
        of_key.rows.append(row)
        yield of_key, row, ended


@dataclass(frozen=True)
class RollingAggregate:
    """Each row with what its key has come to."""

    INPUTS = 1
    ttl_ms: int | None
    kind: str

    @classmethod
    def draw(cls, random: Random) -> "RollingAggregate":
        return cls(random.choice(TTLS_MS), random.choice(["sum", "min", "max", "count"]))

    def build(self, builder: Builder, name: str, stages: Sequence[Stage]) -> Stage:
        grouped = stages[0].group_by("key")
        made = grouped.rolling_agg(made=getattr(jf, self.kind)("v"), n=jf.count(), ttl=asked(self.ttl_ms), name=name)
        value = (jf.coalesce(col("made"), 0) + col("n")).alias("v")
        return made.select("id", "time", "key", value, name=f"{name} (rows)")

    def compute(self, node: int, flows: Sequence[Flow]) -> Flow:
        (flow,) = flows
        flow.require(timed=self.ttl_ms is not None, ordered=True)
        made = []
        for living, row, _ in lives(flow, self.ttl_ms):
            values = [each.v for each in living.rows if each.v is not None]
            running = {"sum": total(values), "min": min(values, default=None), "max": max(values, default=None)}
            made.append(row._replace(v=both(running.get(self.kind, len(values)), len(living.rows))))
        return flow.of(made)


def number_rows(rows: pa.RecordBatch, groups: Any, states: pa.Array) -> Any:
    """For `map_stateful`: each row with its number in its key."""
    counts = states.fill_null(0).to_pylist()
    numbers = []
    for group in groups:
        counts[group] += 1
        numbers.append(counts[group])
    return rows.set_column(3, "v", pa.array(numbers, pa.int64())), counts


def tell(keys: pa.RecordBatch, states: pa.Array, times: pa.Array) -> pa.RecordBatch:
    """For `map_stateful`: how many rows a key had when its state ended."""
    return pa.record_batch([pa.nulls(len(states), pa.int64()), times, keys["key"], states], schema=SCHEMA)


@dataclass(frozen=True)
class MapStateful:
    """Numbers the rows of each key; tells of those that end, perhaps."""

    INPUTS = 1
    ttl_ms: int | None
    tells: bool

    @classmethod
    def draw(cls, random: Random) -> "MapStateful":
        ttl_ms = random.choice(TTLS_MS)
        return cls(ttl_ms, ttl_ms is not None and random.random() < 0.7)

    def build(self, builder: Builder, name: str, stages: Sequence[Stage]) -> Stage:
        return (
            stages[0]
            .group_by("key")
            .map_stateful(
                number_rows,
                state=pa.int64(),
                schema=SCHEMA,
                ttl=asked(self.ttl_ms),
                on_evict=tell if self.tells else None,
                name=name,
            )
        )

    def compute(self, node: int, flows: Sequence[Flow]) -> Flow:
        (flow,) = flows
        flow.require(timed=self.ttl_ms is not None, ordered=True)
        made, ended = [], []
        last: dict[str | None, Living] = {}
        for living, row, before in lives(flow, self.ttl_ms):
            made.append(row._replace(v=len(living.rows)))
            ended += [before] if before is not None else []
            last[row.key] = living
        if self.tells:
            assert self.ttl_ms is not None
            for living in [*ended, *last.values()]:
                time = living.seen + self.ttl_ms * MILLISECOND
                made.append(Row(None, time, living.rows[0].key, len(living.rows)))
        return flow.of(made, ordered=flow.ordered and not self.tells)


class TotalByKey(Processor):
    """A processor of a user: sums of each key, at the end."""

    forwards_watermark = False

    def open(self, context: ProcessorContext) -> None:
        self.rows: list[pa.RecordBatch] = []

    def process(self, ordinal: int, batch: Batch) -> Iterable[Output]:
        self.rows.append(batch.to_arrow())
        return ()

    def totals(self) -> pa.RecordBatch:
        grouped = pa.Table.from_batches(self.rows, SCHEMA).group_by("key")
        sums = grouped.aggregate([("id", "sum"), ("time", "max"), ("v", "sum")])
        sums = sums.rename_columns([name.removesuffix("_sum").removesuffix("_max") for name in sums.column_names])
        return sums.select(SCHEMA.names).cast(SCHEMA).combine_chunks().to_batches()[0]

    def complete(self) -> Iterable[Output]:
        if self.rows:
            yield Batch.from_arrow(self.totals())

    def save_snapshot(self) -> Iterable[StateBatch]:
        if self.rows:
            self.rows = [self.totals()]
            yield StateBatch(BY_KEYS, "totals", self.rows[0], ("key",))

    def restore_snapshot(self, state: StateBatch) -> None:
        self.rows.append(state.rows)


@dataclass(frozen=True)
class Custom:
    """`TotalByKey`."""

    INPUTS = 1

    @classmethod
    def draw(cls, random: Random) -> "Custom":
        return cls()

    def build(self, builder: Builder, name: str, stages: Sequence[Stage]) -> Stage:
        return stages[0].custom(TotalByKey, schema=SCHEMA, keys="key", name=name)

    def compute(self, node: int, flows: Sequence[Flow]) -> Flow:
        totals = (
            Row(total(row.id for row in rows), max(row.time for row in rows), key, total(row.v for row in rows))
            for key, rows in flows[0].by_key().items()
        )
        return flows[0].of(totals, ordered=True)
