"""Windows of random programs: by key or over all rows, with early results, the best ones, of several stages."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import jetfast as jf
from jetfast import col
from jetfast.api.grouped import AggregateStage
from jetfast.api.stage import Stage
from tests.simulation.programs.flow import DoesNotFitError, Flow, Row, both, total
from tests.simulation.programs.operator import Builder
from tests.simulation.programs.spans import WINDOWS, Framed, Session, Span

ALL = jf.lit(None).cast("string").alias("key")
"""The key of windows over all rows."""
Window = Framed | Session


def windows_of(flow: Flow, window: Window, keyed: bool) -> list[tuple[str | None, Span, list[Row]]]:
    """Key, window and rows."""
    groups = flow.by_key() if keyed else {None: list(flow.rows)}
    return [(key, *span) for key, rows in groups.items() for span in window.spans(flow, rows).items()]


def value_of(kind: str, rows: Sequence[Row]) -> int | None:
    """An aggregate of the values."""
    values = [row.v for row in rows if row.v is not None]
    if kind == "count":
        return len(values)
    return {"sum": total(values), "min": min(values, default=None), "max": max(values, default=None)}[kind]


@dataclass(frozen=True)
class WindowAggregate:
    """An aggregate of each window; of its early results none are kept."""

    INPUTS = 1
    window: Window
    keyed: bool
    kind: str
    early: bool
    best: int
    """0: all results."""
    ascending: bool
    per_key: bool

    @classmethod
    def draw(cls, random: Random) -> "WindowAggregate":
        window = random.choice(WINDOWS)
        keyed = random.random() < 0.75
        early = random.random() < 0.25
        best = random.choice([0, 1, 2]) if isinstance(window, Framed) and not early else 0
        return cls(
            window,
            keyed,
            random.choice(["sum", "min", "max", "count"]),
            early,
            best,
            random.random() < 0.5,
            keyed and random.random() < 0.3,
        )

    def build(self, builder: Builder, name: str, stages: Sequence[Stage]) -> Stage:
        windowed = (stages[0].group_by("key") if self.keyed else stages[0]).window(self.window.window)
        if self.early:
            windowed = windowed.early_results(every="20ms")
        made: Stage = windowed.agg(made=getattr(jf, self.kind)("v"), id=jf.max("id"), name=name)
        if self.early:
            made = made.where(~col("is_early"), name=f"{name} (final)")
        if self.best:
            assert isinstance(made, AggregateStage)
            per = "key" if self.per_key else ()
            made = made.top(self.best, by="made", per=per, ascending=self.ascending, name=f"{name} (best)")
        key = "key" if self.keyed else ALL
        return made.select("id", col("window_end").alias("time"), key, col("made").alias("v"), name=f"{name} (rows)")

    def compute(self, node: int, flows: Sequence[Flow]) -> Flow:
        (flow,) = flows
        flow.require(timed=True)
        made = [
            Row(max((row.id for row in rows if row.id is not None), default=None), end, key, value_of(self.kind, rows))
            for key, (_, end), rows in windows_of(flow, self.window, self.keyed)
        ]
        if self.best:
            made = self.best_of(made)
        made.sort(key=lambda row: row.time)
        ordered = isinstance(self.window, Framed)
        return flow.of(made, ordered=ordered, shift_us=self.window.shift_us)

    def best_of(self, results: Sequence[Row]) -> list[Row]:
        """The best results of each window; values that are null are worst, of equal ones the least keys are best."""
        groups: dict[tuple[int, str | None], list[Row]] = {}
        for row in results:
            groups.setdefault((row.time, row.key if self.per_key else None), []).append(row)
        sign = 1 if self.ascending else -1
        for rows in groups.values():
            rows.sort(key=lambda row: (row.v is None, sign * (row.v or 0), row.key is None, row.key or ""))
        return [row for rows in groups.values() for row in rows[: self.best]]


@dataclass(frozen=True)
class Cogroup:
    """Aggregates of several stages in one window."""

    INPUTS = 2
    window: Window
    third: bool
    """Is the first stage there again?"""

    @classmethod
    def draw(cls, random: Random) -> "Cogroup":
        return cls(random.choice(WINDOWS), random.random() < 0.3)

    def build(self, builder: Builder, name: str, stages: Sequence[Stage]) -> Stage:
        left, right = (stage.group_by("key") for stage in stages)
        grouped = (left.cogroup(right, left) if self.third else left.cogroup(right)).window(self.window.window)
        third = [{"again": jf.count()}] if self.third else []
        made = grouped.agg(
            {"id": jf.sum("id"), "left": jf.sum("v")}, {"most": jf.max("v"), "n": jf.count()}, *third, name=name
        )
        value = jf.coalesce(col("left"), 0) + jf.coalesce(col("most"), 0) + col("n")
        if self.third:
            value = value + col("again")
        return made.select("id", col("window_end").alias("time"), "key", value.alias("v"), name=f"{name} (result)")

    def compute(self, node: int, flows: Sequence[Flow]) -> Flow:
        left, right = flows
        left.require(timed=True)
        right.require(timed=True)
        if left.shift_us != right.shift_us:
            raise DoesNotFitError("times of two kinds")
        made = []
        sides = (left.by_key(), right.by_key())
        for key in {**sides[0], **sides[1]}:
            own = [(0, row) for row in sides[0].get(key, [])] + [(1, row) for row in sides[1].get(key, [])]
            for (_, end), held in self.spans_of(left, own):
                first, second = ([row for side, row in held if side == wanted] for wanted in (0, 1))
                value = both(total(row.v for row in first), value_of("max", second)) + len(second)
                value += len(first) if self.third else 0
                made.append(Row(total(row.id for row in first), end, key, value))
        return left.of(
            sorted(made, key=lambda row: row.time),
            ordered=isinstance(self.window, Framed),
            shift_us=self.window.shift_us,
            sources=left.sources | right.sources,
            marked=True,
        )

    def spans_of(self, flow: Flow, rows: Sequence[tuple[int, Row]]) -> list[tuple[Span, list[tuple[int, Row]]]]:
        """Windows of rows of both stages; rows may be equal, so that it is their places that go into windows."""
        places = [row._replace(v=place) for place, (_, row) in enumerate(rows)]
        spans = self.window.spans(flow, places).items()
        return [(span, [rows[row.v] for row in held if row.v is not None]) for span, held in spans]
