"""Steps of random programs without state: rows in, some rows out; and those that only move or delay rows."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from jetfast import col
from jetfast.api.stage import Stage
from tests.simulation.programs.flow import SCHEMA, Flow, Row
from tests.simulation.programs.operator import Builder


@dataclass(frozen=True)
class Filter:
    """Rows with a value above a bound."""

    INPUTS = 1
    bound: int

    @classmethod
    def draw(cls, random: Random) -> "Filter":
        return cls(random.randint(-15, 5))

    def build(self, builder: Builder, name: str, stages: Sequence[Stage]) -> Stage:
        return stages[0].where(col("v") > self.bound, name=name)

    def compute(self, node: int, flows: Sequence[Flow]) -> Flow:
        return flows[0].of(row for row in flows[0].rows if row.v is not None and row.v > self.bound)


@dataclass(frozen=True)
class Expressions:
    """Values times a factor, through every way to name columns."""

    INPUTS = 1
    factor: int

    @classmethod
    def draw(cls, random: Random) -> "Expressions":
        return cls(random.choice([-1, 2, 3]))

    def build(self, builder: Builder, name: str, stages: Sequence[Stage]) -> Stage:
        more = stages[0].with_column("more", col("v") * self.factor, name=f"{name} (with)").drop("v")
        return more.rename({"more": "v", "time": "moment"}).select(
            "id", col("moment").alias("time"), "key", "v", name=name
        )

    def compute(self, node: int, flows: Sequence[Flow]) -> Flow:
        return flows[0].of(row._replace(v=None if row.v is None else row.v * self.factor) for row in flows[0].rows)


def value_above_zero(row: dict[str, Any]) -> dict[str, Any] | None:
    """For `map_rows`."""
    return None if row["v"] is None else {**row, "v": row["v"] + 1}


def as_often_as_it_says(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """For `flat_map`."""
    return ({**row, "v": place} for place in range((row["v"] or 0) % 3))


def negated(rows: pa.RecordBatch) -> pa.RecordBatch:
    """For `map_batches`."""
    return rows.set_column(3, "v", pc.negate(rows["v"]))


@dataclass(frozen=True)
class Function:
    """A function over rows or batches: none, one or several rows from each."""

    INPUTS = 1
    kind: str

    @classmethod
    def draw(cls, random: Random) -> "Function":
        return cls(random.choice(["rows", "flat", "batches"]))

    def build(self, builder: Builder, name: str, stages: Sequence[Stage]) -> Stage:
        if self.kind == "rows":
            return stages[0].map_rows(value_above_zero, schema=SCHEMA, name=name)
        if self.kind == "flat":
            return stages[0].flat_map(as_often_as_it_says, schema=SCHEMA, name=name)
        return stages[0].map_batches(negated, name=name)

    def compute(self, node: int, flows: Sequence[Flow]) -> Flow:
        return flows[0].of(made for row in flows[0].rows for made in self.rows_of(row))

    def rows_of(self, row: Row) -> list[Row]:
        if self.kind == "rows":
            return [] if row.v is None else [row._replace(v=row.v + 1)]
        if self.kind == "flat":
            return [row._replace(v=place) for place in range((row.v or 0) % 3)]
        return [row._replace(v=None if row.v is None else -row.v)]


def as_list(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The values as lists: none of those that are even, itself and the next of others."""
    lists = [None if value is None else [value, value + 1] if value % 2 else [] for value in rows["v"].to_pylist()]
    return rows.set_column(3, "v", pa.array(lists, pa.list_(pa.int64())))


@dataclass(frozen=True)
class Explode:
    """A row for each element of a list."""

    INPUTS = 1

    @classmethod
    def draw(cls, random: Random) -> "Explode":
        return cls()

    def build(self, builder: Builder, name: str, stages: Sequence[Stage]) -> Stage:
        return stages[0].map_batches(as_list, name=f"{name} (lists)").explode("v", name=name)

    def compute(self, node: int, flows: Sequence[Flow]) -> Flow:
        odd = [row for row in flows[0].rows if row.v is not None and row.v % 2]
        return flows[0].of(row._replace(v=value) for row in odd for value in (row.v, (row.v or 0) + 1))


@dataclass(frozen=True)
class Union:
    """All rows of two stages; without event time if they have it in different ways."""

    INPUTS = 2

    @classmethod
    def draw(cls, random: Random) -> "Union":
        return cls()

    def build(self, builder: Builder, name: str, stages: Sequence[Stage]) -> Stage:
        return stages[0].union(stages[1], name=name)

    def compute(self, node: int, flows: Sequence[Flow]) -> Flow:
        left, right = flows
        return left.of(
            left.rows + right.rows,
            ordered=False,
            timed=left.timed and right.timed and left.shift_us == right.shift_us,
            punctual=left.punctual and right.punctual,
            marked=left.marked or right.marked,
            sources=left.sources | right.sources,
        )


@dataclass(frozen=True)
class Rebalance:
    """To all workers in turn, or by key."""

    INPUTS = 1
    keys: tuple[str, ...]

    @classmethod
    def draw(cls, random: Random) -> "Rebalance":
        return cls(random.choice([(), ("key",), ("key", "v")]))

    def build(self, builder: Builder, name: str, stages: Sequence[Stage]) -> Stage:
        return stages[0].rebalance(*self.keys, name=name)

    def compute(self, node: int, flows: Sequence[Flow]) -> Flow:
        return flows[0].of(flows[0].rows, ordered=flows[0].ordered and self.keys == ("key",))


@dataclass(frozen=True)
class Sort:
    """All rows in order: the one of all columns, so that equal rows are the same."""

    INPUTS = 1
    first: str
    descending: bool

    @classmethod
    def draw(cls, random: Random) -> "Sort":
        return cls(random.choice(Row._fields), random.random() < 0.5)

    def build(self, builder: Builder, name: str, stages: Sequence[Stage]) -> Stage:
        return stages[0].sort(*self.columns, descending=self.descending, name=name)

    @property
    def columns(self) -> list[str]:
        return [self.first, *(column for column in Row._fields if column != self.first)]

    def compute(self, node: int, flows: Sequence[Flow]) -> Flow:
        rows = list(flows[0].rows)
        for column in reversed(self.columns):
            there = [row for row in rows if getattr(row, column) is not None]
            there.sort(key=lambda row: getattr(row, column), reverse=self.descending)
            rows = there + [row for row in rows if getattr(row, column) is None]
        return flows[0].of(rows, ordered=True)


class Doubling:
    """A service: what it is asked about, twice."""

    def ask(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        return rows.set_column(3, "v", pc.multiply(rows["v"], 2))


def ask(service: Doubling, rows: pa.RecordBatch) -> pa.RecordBatch:
    """For `map_using_service`."""
    return service.ask(rows)


@dataclass(frozen=True)
class Service:
    """Calls of a service, several at a time."""

    INPUTS = 1
    ordered: bool
    in_flight: str
    concurrency: int
    batch_rows: int

    @classmethod
    def draw(cls, random: Random) -> "Service":
        return cls(random.random() < 0.5, random.choice(["wait", "save"]), random.randint(1, 4), random.randint(1, 4))

    def build(self, builder: Builder, name: str, stages: Sequence[Stage]) -> Stage:
        return stages[0].map_using_service(
            Doubling,
            ask,
            schema=SCHEMA,
            concurrency=self.concurrency,
            batch_rows=self.batch_rows,
            ordered=self.ordered,
            in_flight=self.in_flight,
            timeout="5m",
            name=name,
        )

    def compute(self, node: int, flows: Sequence[Flow]) -> Flow:
        rows = (row._replace(v=None if row.v is None else 2 * row.v) for row in flows[0].rows)
        return flows[0].of(rows, ordered=flows[0].ordered and self.ordered)


@dataclass(frozen=True)
class Peek:
    """The first rows are printed."""

    INPUTS = 1

    @classmethod
    def draw(cls, random: Random) -> "Peek":
        return cls()

    def build(self, builder: Builder, name: str, stages: Sequence[Stage]) -> Stage:
        return stages[0].peek(1, name=name)

    def compute(self, node: int, flows: Sequence[Flow]) -> Flow:
        return flows[0]
