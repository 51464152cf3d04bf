"""Steps that keep state by key: first rows, running aggregates, functions with state."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import pyarrow as pa

from jetfast.api.pipeline import Pipeline
from jetfast.api.stage import Stage
from tests.differential.aggregates import Aggregate, Held, is_near
from tests.differential.expressions import is_number
from tests.differential.flows import DoesNotFitError, FailsError, Flow, choose, choose_key
from tests.differential.steps import keys_of
from tests.differential.values import to_group


def draw_horizon(random: Random, flow: Flow) -> int | None:
    """A time to live, or None."""
    if flow.time is None or random.random() < 0.6:
        return None
    moments = flow.moments()
    return max(1, (max(moments, default=0) - min(moments, default=0)) // random.choice([1, 4, 20]))


def in_text(duration_us: int | None) -> str | None:
    return None if duration_us is None else f"{duration_us}us"


@dataclass(frozen=True)
class DropDuplicates:
    """The first row of each key, and again beyond a horizon."""

    INPUTS = 1
    keys: tuple[str, ...]
    horizon: int | None

    @classmethod
    def draw(cls, random: Random, flows: Sequence[Flow]) -> "DropDuplicates":
        (flow,) = flows
        return cls(choose_key(random, flow) if random.random() < 0.8 else (), draw_horizon(random, flow))

    def build(self, pipeline: Pipeline, name: str, stages: Sequence[Stage]) -> Stage:
        return stages[0].drop_duplicates(*self.keys, horizon=in_text(self.horizon), name=name)

    def compute(self, node: int, flows: Sequence[Flow]) -> Flow:
        (flow,) = flows
        flow.require_exact(*self.keys)
        if not flow.ordered:
            raise DoesNotFitError("any row may be the first")
        moments = flow.moments() if self.horizon is not None else [0] * len(flow.rows)
        last: dict[Any, int] = {}
        kept = []
        for row, key, moment in zip(flow.rows, keys_of(flow, self.keys or flow.names), moments, strict=True):
            group = to_group(key)
            if group not in last or (self.horizon is not None and moment > last[group] + self.horizon):
                last[group] = moment
                kept.append(row)
        return flow.of(kept, ordered=False)

    def smaller(self) -> Iterator["DropDuplicates"]:
        if self.horizon is not None:
            yield replace(self, horizon=None)


@dataclass(frozen=True)
class Distinct:
    """Each combination of some columns once."""

    INPUTS = 1
    columns: tuple[str, ...]

    @classmethod
    def draw(cls, random: Random, flows: Sequence[Flow]) -> "Distinct":
        return cls(choose_key(random, flows[0]) if random.random() < 0.8 else ())

    def build(self, pipeline: Pipeline, name: str, stages: Sequence[Stage]) -> Stage:
        return stages[0].distinct(*self.columns, name=name)

    def compute(self, node: int, flows: Sequence[Flow]) -> Flow:
        (flow,) = flows
        flow.require_exact(*self.columns)
        names = self.columns or tuple(flow.names)
        first: dict[Any, Any] = {}
        for key in keys_of(flow, names):
            kept = first.setdefault(to_group(key), key)
            if not flow.ordered and repr(kept) != repr(key):
                raise DoesNotFitError("which zero comes first?")
        types = {name: flow.types[name] for name in names}
        return flow.of(first.values(), types=types, time=flow.time if flow.time in names else None, ordered=False)


def lives(flow: Flow, keys: Sequence[str], ttl: int | None) -> Iterator[tuple[list[Held], tuple[Any, ...]]]:
    """For each row the rows of its key before it, itself included, since the key's state began."""
    moments = flow.moments() if ttl is not None else [0] * len(flow.rows)
    living: dict[Any, tuple[int, list[Held]]] = {}
    for place, (row, key, moment) in enumerate(zip(flow.rows, keys_of(flow, keys), moments, strict=True)):
        group = to_group(key)
        seen, held = living.get(group, (moment, []))
        if held and ttl is not None and moment > seen + ttl:
            seen, held = moment, []
        held = [*held, Held(dict(zip(flow.types, row, strict=True)), moment, place)]
        living[group] = (max(seen, moment), held)
        yield held, row


@dataclass(frozen=True)
class RollingAggregate:
    """Each row with running aggregates of its key."""

    INPUTS = 1
    keys: tuple[str, ...]
    aggregates: tuple[Aggregate, ...]
    ttl: int | None

    @classmethod
    def draw(cls, random: Random, flows: Sequence[Flow]) -> "RollingAggregate":
        (flow,) = flows
        numbers = [name for name, each in flow.exact_types.items() if is_number(each)]
        aggregates = []
        for _ in range(random.randint(1, 3)):
            if random.random() < 0.4 or not numbers:
                kind = random.choice(["count", "min", "max"])
                aggregates.append(Aggregate(kind, (choose(random, flow.exact_types),)))
            else:
                aggregates.append(Aggregate(random.choice(["sum", "mean", "min", "max"]), (random.choice(numbers),)))
        return cls(choose_key(random, flow), tuple(aggregates), draw_horizon(random, flow))

    def build(self, pipeline: Pipeline, name: str, stages: Sequence[Stage]) -> Stage:
        made = {f"r{number}": each.build() for number, each in enumerate(self.aggregates)}
        return stages[0].group_by(*self.keys).rolling_agg(**made, ttl=in_text(self.ttl), name=name)

    def compute(self, node: int, flows: Sequence[Flow]) -> Flow:
        (flow,) = flows
        flow.require_exact(*self.keys)
        if not flow.ordered:
            raise DoesNotFitError("rows in any order")
        names = [f"r{number}" for number in range(len(self.aggregates))]
        if set(names) & set(flow.types):
            raise DoesNotFitError("taken")
        for aggregate in self.aggregates:
            flow.require_exact(*aggregate.columns)
        rows = []
        for held, row in lives(flow, self.keys, self.ttl):
            try:
                rows.append((*row, *(each.compute(flow, held) for each in self.aggregates)))
            except FailsError as error:
                raise FailsError(f"n{node}") from error
        types: dict[str, Any] = dict(flow.types)
        types |= {name: each.result_type(flow) for name, each in zip(names, self.aggregates, strict=True)}
        near = {
            name
            for name, each in zip(names, self.aggregates, strict=True)
            if is_near(each, flow) or types[name] is None
        }
        return flow.of(rows, types=types, ordered=False, near=flow.near | near)

    def smaller(self) -> Iterator["RollingAggregate"]:
        for place in range(len(self.aggregates)):
            if len(self.aggregates) > 1:
                yield replace(self, aggregates=self.aggregates[:place] + self.aggregates[place + 1 :])
        if self.ttl is not None:
            yield replace(self, ttl=None)
        if len(self.keys) > 1:
            yield replace(self, keys=self.keys[:1])


def number_rows(rows: pa.RecordBatch, groups: Any, states: pa.Array) -> Any:
    """For `map_stateful`: each row with its number in its key."""
    counts = states.fill_null(0).to_pylist()
    numbers = []
    for group in groups:
        counts[group] += 1
        numbers.append(counts[group])
    return rows.append_column("number", pa.array(numbers, pa.int64())), counts


@dataclass(frozen=True)
class MapStateful:
    """Numbers the rows of each key."""

    INPUTS = 1
    keys: tuple[str, ...]
    ttl: int | None

    @classmethod
    def draw(cls, random: Random, flows: Sequence[Flow]) -> "MapStateful":
        return cls(choose_key(random, flows[0]), draw_horizon(random, flows[0]))

    def build(self, pipeline: Pipeline, name: str, stages: Sequence[Stage]) -> Stage:
        (stage,) = stages
        schema = stage.schema.append(pa.field("number", pa.int64()))
        grouped = stage.group_by(*self.keys)
        return grouped.map_stateful(number_rows, state=pa.int64(), schema=schema, ttl=in_text(self.ttl), name=name)

    def compute(self, node: int, flows: Sequence[Flow]) -> Flow:
        (flow,) = flows
        flow.require_exact(*self.keys)
        if not flow.ordered or "number" in flow.types:
            raise DoesNotFitError("rows in any order")
        rows = [(*row, len(held)) for held, row in lives(flow, self.keys, self.ttl)]
        return flow.of(rows, types={**flow.types, "number": pa.int64()}, ordered=False)
