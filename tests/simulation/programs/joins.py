"""Joins of random programs: every pair is looked at."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import jetfast as jf
from jetfast import col
from jetfast.api.stage import Stage
from jetfast.core.joins import JoinType
from tests.simulation.programs.flow import DoesNotFitError, Flow, Row, both
from tests.simulation.programs.operator import Builder
from tests.simulation.programs.spans import FRAMED, Framed

MILLISECOND = 1000
HOW = ["inner", "left", "right", "outer"]
SUM = (jf.coalesce(col("v"), 0) + jf.coalesce(col("v_right"), 0)).alias("v")


def pairs(
    left: Sequence[Row], right: Sequence[Row], how: str, meet: Callable[[Row, Row], bool]
) -> list[tuple[Row | None, Row | None]]:
    """Rows with equal keys, none of them null, that meet; and those without a match that the join keeps."""
    keeps_left, keeps_right = JoinType(how).keeps
    found: list[tuple[Row | None, Row | None]] = []
    met: set[int] = set()
    for row in left:
        matches = [place for place, other in enumerate(right) if row.key is not None and row.key == other.key]
        matches = [place for place in matches if meet(row, right[place])]
        met.update(matches)
        found += [(row, right[place]) for place in matches]
        if not matches and keeps_left:
            found.append((row, None))
    if keeps_right:
        found += [(None, other) for place, other in enumerate(right) if place not in met]
    return found


def joined(left: Row | None, right: Row | None, time: int) -> Row:
    """The row that is made of a pair."""
    there = left or right
    assert there is not None
    return Row(left.id if left else None, time, there.key, both(left and left.v, right and right.v))


def together(left: Flow, right: Flow, rows: Sequence[Row], **changes: Any) -> Flow:
    """What comes of two flows."""
    return left.of(
        rows, ordered=False, sources=left.sources | right.sources, marked=left.marked or right.marked, **changes
    )


@dataclass(frozen=True)
class HashJoin:
    """With all rows of another stage, which has sources of its own."""

    INPUTS = 2
    how: str

    @classmethod
    def draw(cls, random: Random) -> "HashJoin":
        return cls(random.choice(HOW[:2]))

    def build(self, builder: Builder, name: str, stages: Sequence[Stage]) -> Stage:
        made = stages[0].hash_join(stages[1], on="key", how=self.how, name=name)
        return made.select("id", "time", "key", SUM, name=f"{name} (rows)")

    def compute(self, node: int, flows: Sequence[Flow]) -> Flow:
        left, right = flows
        if left.sources & right.sources:
            raise DoesNotFitError("a source of both sides")
        if right.marked and not right.punctual:
            raise DoesNotFitError("not certain")
        found = pairs(left.rows, right.rows, self.how, lambda one, other: True)
        return together(left, right, [joined(one, other, one.time) for one, other in found if one is not None])


@dataclass(frozen=True)
class WindowJoin:
    """Rows of one window."""

    INPUTS = 2
    how: str
    window: Framed

    @classmethod
    def draw(cls, random: Random) -> "WindowJoin":
        return cls(random.choice(HOW), random.choice(FRAMED))

    def build(self, builder: Builder, name: str, stages: Sequence[Stage]) -> Stage:
        made = stages[0].window_join(stages[1], self.window.window, on="key", how=self.how, name=name)
        return made.select("id", col("window_end").alias("time"), "key", SUM, name=f"{name} (rows)")

    def compute(self, node: int, flows: Sequence[Flow]) -> Flow:
        left, right = flows
        left.require(timed=True)
        right.require(timed=True)
        sides = [self.window.spans(flow) for flow in flows]
        rows = []
        for span in sorted({span for side in sides for span in side}):
            held = [side.get(span, []) for side in sides]
            found = pairs(held[0], held[1], self.how, lambda one, other: True)
            rows += [joined(one, other, span[1]) for one, other in found]
        return together(left, right, rows, shift_us=-1)


@dataclass(frozen=True)
class IntervalJoin:
    """Rows that are near each other."""

    INPUTS = 2
    how: str
    lower_ms: int
    upper_ms: int

    @classmethod
    def draw(cls, random: Random) -> "IntervalJoin":
        bounds = sorted(random.choice([-900, -400, -100, 0, 50, 300, 1000]) for _ in range(2))
        return cls(random.choice(HOW), *bounds)

    def build(self, builder: Builder, name: str, stages: Sequence[Stage]) -> Stage:
        made = stages[0].interval_join(
            stages[1], lower=f"{self.lower_ms}ms", upper=f"{self.upper_ms}ms", on="key", how=self.how, name=name
        )
        return made.select("id", col("event_time").alias("time"), "key", SUM, name=f"{name} (rows)")

    def compute(self, node: int, flows: Sequence[Flow]) -> Flow:
        left, right = flows
        left.require(timed=True)
        right.require(timed=True)
        lower_us, upper_us = self.lower_ms * MILLISECOND, self.upper_ms * MILLISECOND
        found = pairs(
            left.rows,
            right.rows,
            self.how,
            lambda one, other: lower_us <= right.moment(other) - left.moment(one) <= upper_us,
        )
        rows = []
        for one, other in found:
            times = ([left.moment(one)] if one else []) + ([right.moment(other)] if other else [])
            rows.append(joined(one, other, max(times)))
        return together(left, right, rows, shift_us=0)


@dataclass(frozen=True)
class AsofJoin:
    """The latest row of another stage."""

    INPUTS = 2
    how: str
    tolerance_ms: int | None

    @classmethod
    def draw(cls, random: Random) -> "AsofJoin":
        return cls(random.choice(HOW[:2]), random.choice([None, 0, 300, 2000]))

    def build(self, builder: Builder, name: str, stages: Sequence[Stage]) -> Stage:
        tolerance = None if self.tolerance_ms is None else f"{self.tolerance_ms}ms"
        made = stages[0].asof_join(stages[1], on="key", how=self.how, tolerance=tolerance, name=name)
        return made.select("id", "time", "key", SUM, name=f"{name} (rows)")

    def compute(self, node: int, flows: Sequence[Flow]) -> Flow:
        left, right = flows
        left.require(timed=True)
        right.require(timed=True)
        right.require_different_times()
        reach_us = None if self.tolerance_ms is None else self.tolerance_ms * MILLISECOND
        rows = []
        for row in left.rows:
            ages = {left.moment(row) - right.moment(other): other for other in right.by_key().get(row.key, [])}
            near = [age for age in ages if age >= 0 and (reach_us is None or age <= reach_us)]
            match = ages[min(near)] if near and row.key is not None else None
            if match is not None or self.how == "left":
                rows.append(joined(row, match, row.time))
        return together(left, right, rows)
