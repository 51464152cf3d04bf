"""Ends of random programs: what is not rows of the common form, or certain only in part."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from random import Random
from typing import Any, NamedTuple

import pyarrow as pa

import jetfast as jf
from jetfast import col
from jetfast.api.stage import Stage
from jetfast.core.aggregate import Aggregate
from tests.processors.slow_aggregates import slope_of
from tests.simulation.programs.answer import Answer, ids_answer, sums_of
from tests.simulation.programs.flow import DoesNotFitError, Flow, Row, total
from tests.simulation.programs.joins import HOW
from tests.simulation.programs.operator import Builder
from tests.simulation.programs.spans import FRAMED, WINDOWS, Framed, Session

VALUE_MAX = 1000
"""Of greater ones floats differ by more than is let pass."""


class Choice(NamedTuple):
    """An aggregate, and its slow twin over rows by time."""

    aggregate: Callable[[], Aggregate]
    twin: Callable[[list[Row]], Any]
    by_time: bool = False
    """Does it depend on the order of rows?"""


def values(rows: list[Row]) -> list[int]:
    return [row.v for row in rows if row.v is not None]


def variance(rows: list[Row], less: int) -> float | None:
    """Divided by the number of values less so many."""
    known = values(rows)
    if len(known) <= less:
        return None
    middle = sum(known) / len(known)
    return sum((value - middle) ** 2 for value in known) / (len(known) - less)


def quantile(rows: list[Row], q: float) -> int | None:
    ascending = sorted(values(rows))
    return ascending[max(math.ceil(q * len(ascending)), 1) - 1] if ascending else None


def slope(rows: list[Row]) -> float | None:
    return slope_of([(Fraction(value * value), Fraction(value)) for value in values(rows)])


def count_nulls() -> Aggregate:
    """An aggregate of a user."""
    return jf.aggregate(
        "v",
        create=int,
        accumulate=lambda state, rows: state + rows["v"].null_count,
        combine=lambda left, right: left + right,
        state=pa.int64(),
    )


def root(value: float | None) -> float | None:
    return None if value is None else math.sqrt(value)


AGGREGATES: dict[str, Choice] = {
    "rows": Choice(jf.count, len),
    "known": Choice(lambda: jf.count("v"), lambda rows: len(values(rows))),
    "total": Choice(lambda: jf.sum("v"), lambda rows: total(values(rows))),
    "doubled": Choice(lambda: jf.sum(col("v") * 2), lambda rows: total(2 * value for value in values(rows))),
    "mean": Choice(lambda: jf.mean("v"), lambda rows: sum(values(rows)) / len(values(rows)) if values(rows) else None),
    "low": Choice(lambda: jf.min("v"), lambda rows: min(values(rows), default=None)),
    "high": Choice(lambda: jf.max("v"), lambda rows: max(values(rows), default=None)),
    "var_samp": Choice(lambda: jf.var_samp("v"), lambda rows: variance(rows, 1)),
    "var_pop": Choice(lambda: jf.var_pop("v"), lambda rows: variance(rows, 0)),
    "spread": Choice(lambda: jf.stddev_samp("v"), lambda rows: root(variance(rows, 1))),
    "spread_pop": Choice(lambda: jf.stddev_pop("v"), lambda rows: root(variance(rows, 0))),
    "first": Choice(lambda: jf.first("v"), lambda rows: rows[0].v, by_time=True),
    "last": Choice(lambda: jf.last("v"), lambda rows: rows[-1].v, by_time=True),
    "latest": Choice(
        lambda: jf.last("v", ignore_nulls=True), lambda rows: values(rows)[-1] if values(rows) else None, by_time=True
    ),
    "top": Choice(lambda: jf.top_n("v", 2), lambda rows: sorted(values(rows), reverse=True)[:2]),
    "bottom": Choice(
        lambda: jf.bottom_n("key", 2, by="v"),
        lambda rows: [
            row.key for row in sorted((row for row in rows if row.v is not None), key=lambda row: row.v or 0)
        ][:2],
        by_time=True,
    ),
    "different": Choice(lambda: jf.count_distinct("v"), lambda rows: len(set(values(rows)))),
    "about": Choice(lambda: jf.approx_count_distinct("key"), lambda rows: len({row.key for row in rows} - {None})),
    "middle": Choice(lambda: jf.quantile("v", 0.5, error=1e-6), lambda rows: quantile(rows, 0.5)),
    "ends": Choice(
        lambda: jf.quantiles("v", [0.1, 0.9], error=1e-6),
        lambda rows: [quantile(rows, 0.1), quantile(rows, 0.9)] if values(rows) else None,
    ),
    "slope": Choice(lambda: jf.linear_trend("v", col("v") * col("v")), slope),
    "each": Choice(lambda: jf.collect_list("v"), values, by_time=True),
    "set": Choice(lambda: jf.collect_set("v"), lambda rows: sorted(set(values(rows)))),
    "texts": Choice(
        lambda: jf.concat("key", ","),
        lambda rows: ",".join(row.key for row in rows if row.key is not None) or None,
        by_time=True,
    ),
    "nulls": Choice(count_nulls, lambda rows: sum(row.v is None for row in rows)),
}
ROUNDED = {"middle": 3, "ends": 3, "slope": 6}
"""Digits behind the point of what is approximate, or loses digits."""


@dataclass(frozen=True)
class Aggregates:
    """Any aggregates of windows."""

    INPUTS = 1
    window: Framed | Session
    keys: tuple[str, ...]
    names: tuple[str, ...]

    @classmethod
    def draw(cls, random: Random) -> "Aggregates":
        names = random.sample(sorted(AGGREGATES), random.randint(1, 5))
        return cls(random.choice(WINDOWS), random.choice([(), ("key",), ("key", "positive")]), tuple(names))

    def build(self, builder: Builder, name: str, stages: Sequence[Stage]) -> Stage:
        keys = [(col("v") > 0).alias(key) if key == "positive" else key for key in self.keys]
        windowed = (stages[0].group_by(*keys) if keys else stages[0]).window(self.window.window)
        return windowed.agg(**{each: AGGREGATES[each].aggregate() for each in self.names}, name=name)

    def compute(self, node: int, flows: Sequence[Flow]) -> Answer:
        (flow,) = flows
        flow.require(timed=True)
        if any(abs(row.v or 0) > VALUE_MAX for row in flow.rows):
            raise DoesNotFitError("not certain")
        if any(AGGREGATES[name].by_time for name in self.names) and len({row.time for row in flow.rows}) < len(
            flow.rows
        ):
            raise DoesNotFitError("not certain")
        groups: dict[tuple[Any, ...], list[Row]] = {}
        for row in flow.rows:
            positive = None if row.v is None else row.v > 0
            groups.setdefault(tuple(row.key if key == "key" else positive for key in self.keys), []).append(row)
        expected: Counter[tuple[Any, ...]] = Counter()
        answer = Answer(
            (*self.keys, "window_start", "window_end", *self.names),
            expected,
            digits={n: ROUNDED.get(n) for n in self.names},
        )
        for key, rows in groups.items():
            for (start, end), held in self.window.spans(flow, rows).items():
                by_time = sorted(held, key=lambda row: row.time)
                made = {name: AGGREGATES[name].twin(by_time) for name in self.names}
                found = {**dict(zip(self.keys, key, strict=True)), "window_start": start, "window_end": end, **made}
                expected += answer.of([found])
        return Answer(answer.columns, expected, digits=answer.digits)


@dataclass(frozen=True)
class ProcessingTime:
    """Windows of the time at which rows come: only that each row is counted once is certain."""

    INPUTS = 1
    size_ms: int

    @classmethod
    def draw(cls, random: Random) -> "ProcessingTime":
        return cls(random.choice([1, 20, 500]))

    def build(self, builder: Builder, name: str, stages: Sequence[Stage]) -> Stage:
        came = stages[0].with_processing_time("came", name=f"{name} (clock)")
        windowed = came.group_by("key").window(jf.tumbling(f"{self.size_ms}ms"))
        return windowed.agg(n=jf.count(), total=jf.sum("v"), name=name)

    def compute(self, node: int, flows: Sequence[Flow]) -> Answer:
        (flow,) = flows
        if flow.marked:
            raise DoesNotFitError("there are watermarks already")
        sums = sums_of(Counter((row.key, 1, row.v, place) for place, row in enumerate(flow.rows)))
        return Answer(("key", "n", "total"), Counter(row[:3] for row in sums), sums=True)


@dataclass(frozen=True)
class LateRows:
    """Rows of a step that may miss some, and those that it missed: together they are all, each once."""

    INPUTS = 1
    kind: str

    @classmethod
    def draw(cls, random: Random) -> "LateRows":
        return cls(random.choice(["tumbling", "all rows", "session", "rolling", "stateful"]))

    def build(self, builder: Builder, name: str, stages: Sequence[Stage]) -> Stage:
        (stage,) = stages
        grouped = stage.group_by("key")
        if self.kind == "rolling":
            step = grouped.rolling_agg(n=jf.count(), ttl="300ms", name=name)
            on_time: Stage = step
        elif self.kind == "stateful":
            step = grouped.map_stateful(keep, state=pa.int64(), schema=stage.schema, ttl="300ms", name=name)
            on_time = step
        else:
            window = jf.session("200ms") if self.kind == "session" else jf.tumbling("500ms")
            windowed = stage.window(window) if self.kind == "all rows" else grouped.window(window)
            step = windowed.agg(ids=jf.collect_list("id"), name=name)
            on_time = step.explode("ids", name=f"{name} (ids)").rename({"ids": "id"}, name=f"{name} (id)")
        missed = step.late_rows.select("id", name=f"{name} (late)")
        return on_time.select("id", name=f"{name} (on time)").union(missed, name=f"{name} (all)")

    def compute(self, node: int, flows: Sequence[Flow]) -> Answer:
        flows[0].require(timed=True, punctual=False)
        require_ids(flows[0])
        return ids_answer(flows[0].rows)


def keep(rows: pa.RecordBatch, groups: Any, states: pa.Array) -> Any:
    """For `map_stateful`: rows as they are."""
    return rows, states.fill_null(0)


def require_ids(flow: Flow) -> None:
    """Raise DoesNotFitError unless all rows have an id."""
    if any(row.id is None for row in flow.rows):
        raise DoesNotFitError("rows cannot be told apart")


@dataclass(frozen=True)
class LateRowsOfJoin:
    """Rows of the left side that are in a join which keeps them, and those that it missed."""

    INPUTS = 2
    kind: str
    how: str

    @classmethod
    def draw(cls, random: Random) -> "LateRowsOfJoin":
        return cls(random.choice(["window", "interval", "asof"]), random.choice(HOW[1::2]))

    def build(self, builder: Builder, name: str, stages: Sequence[Stage]) -> Stage:
        left, right = stages
        right = right.select("key", "time", "v", name=f"{name} (right)")
        if self.kind == "window":
            step = left.window_join(right, FRAMED[0].window, on="key", how=self.how, name=name)
        elif self.kind == "interval":
            step = left.interval_join(right, lower="-1s", upper="500ms", on="key", how=self.how, name=name)
        else:
            step = left.asof_join(right, on="key", how="left", name=name)
        there = step.where(col("id").is_valid(), name=f"{name} (left)").distinct("id", name=f"{name} (once)")
        return there.union(step.late_left_rows.select("id", name=f"{name} (late)"), name=f"{name} (all)")

    def compute(self, node: int, flows: Sequence[Flow]) -> Answer:
        for flow in flows:
            flow.require(timed=True, punctual=False)
        require_ids(flows[0])
        if len({row.id for row in flows[0].rows}) < len(flows[0].rows):
            raise DoesNotFitError("rows cannot be told apart")
        return ids_answer(flows[0].rows)


@dataclass(frozen=True)
class LateRowsOfCogroup:
    """Rows of both sides that are in windows, and those that missed theirs."""

    INPUTS = 2

    @classmethod
    def draw(cls, random: Random) -> "LateRowsOfCogroup":
        return cls()

    def build(self, builder: Builder, name: str, stages: Sequence[Stage]) -> Stage:
        left, right = (stage.group_by("key") for stage in stages)
        ids = jf.collect_list("id")
        step = left.cogroup(right).window(jf.tumbling("500ms")).agg({"left": ids}, {"right": ids}, name=name)
        parts = []
        for number, side in enumerate(("left", "right")):
            on_time = step.select(col(side).alias("id"), name=f"{name} ({side} lists)")
            parts.append(on_time.explode("id", name=f"{name} ({side})"))
            parts.append(step.late_rows_of(number).select("id", name=f"{name} (late {side})"))
        return parts[0].union(*parts[1:], name=f"{name} (all)")

    def compute(self, node: int, flows: Sequence[Flow]) -> Answer:
        left, right = flows
        for flow in flows:
            flow.require(timed=True, punctual=False)
            require_ids(flow)
        if left.shift_us != right.shift_us:
            raise DoesNotFitError("times of two kinds")
        return ids_answer(left.rows + right.rows)
