"""Windows of all kinds with aggregates of all kinds, the best results of windows, and windows over several streams."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import pyarrow as pa

import jetfast as jf
from jetfast import col
from jetfast.api.grouped import AggregateStage
from jetfast.api.pipeline import Pipeline
from jetfast.api.stage import Stage
from jetfast.core.windows import AnyWindow
from tests.differential.aggregates import Aggregate, Held, draw_aggregate, is_near
from tests.differential.flows import DoesNotFitError, FailsError, Flow, choose_key
from tests.differential.steps import keys_of
from tests.differential.values import positive_zero, to_group, to_order

Span = tuple[int, int]
Groups = dict[tuple[Any, Span], list[Held]]
WINDOW_COLUMNS = ("window_start", "window_end")
MOMENT = pa.timestamp("us")


@dataclass(frozen=True)
class Window:
    """All in microseconds; a slide of 0: a session with the timeout `size`."""

    size: int
    slide: int
    offset: int = 0

    @property
    def is_session(self) -> bool:
        return self.slide == 0

    def build(self) -> AnyWindow:
        if self.is_session:
            return jf.session(f"{self.size}us")
        if self.size == self.slide:
            return jf.tumbling(f"{self.size}us", offset=f"{self.offset}us")
        return jf.sliding(f"{self.size}us", f"{self.slide}us", offset=f"{self.offset}us")

    def spans(self, moments: Sequence[int]) -> list[list[Span]]:
        """The windows of each moment of one key."""
        if not self.is_session:
            found = []
            for moment in moments:
                first = (moment - self.offset) // self.slide * self.slide + self.offset + self.slide
                found.append([(end - self.size, end) for end in range(first, first + self.size, self.slide)])
            return found
        sessions: list[list[int]] = []
        for moment in sorted(moments):
            if sessions and moment <= sessions[-1][1]:
                sessions[-1][1] = moment + self.size
            else:
                sessions.append([moment, moment + self.size])
        return [[(start, end) for start, end in sessions if start <= moment < end] for moment in moments]


def draw_window(random: Random, moments: Sequence[int], *, sessions: bool = True) -> Window:
    """One that holds some of these moments."""
    spread = max(moments, default=0) - min(moments, default=0)
    scale = max(1, spread // random.choice([1, 3, 10]))
    size = random.choice([scale, 1_000, 1_000_000, 3_600_000_000, 86_400_000_000, 7_000])
    if sessions and random.random() < 0.25:
        return Window(max(1, size // random.choice([1, 5])), 0)
    slide = max(1, size // random.choice([1, 1, 2, 5]))
    count = random.choice([1, 1, 2, 5])
    return Window(slide * count, slide, random.choice([0, 0, slide // 3]))


def grouped(flow: Flow, keys: Sequence[str], window: Window, rows_before: int = 0) -> Groups:
    """Rows by key and window."""
    moments = flow.moments()
    by_key: dict[Any, list[int]] = {}
    for place, key in enumerate(keys_of(flow, keys)):
        by_key.setdefault(to_group(key), []).append(place)
    found: Groups = {}
    for key, places in by_key.items():
        spans = window.spans([moments[place] for place in places])
        for place, own in zip(places, spans, strict=True):
            held = Held(dict(zip(flow.types, flow.rows[place], strict=True)), moments[place], rows_before + place)
            for span in own:
                found.setdefault((key, span), []).append(held)
    return found


def first_keys(flow: Flow, keys: Sequence[str]) -> dict[Any, tuple[Any, ...]]:
    """The value of each key, with one zero."""
    return {to_group(key): tuple(map(positive_zero, key)) for key in keys_of(flow, keys)}


def in_order_of_rows(rows: Sequence[Held]) -> list[Held]:
    return sorted(rows, key=lambda held: held.place)


@dataclass(frozen=True)
class WindowAggregate:
    """Aggregates by key and window, or over all rows, and the best of each window, perhaps."""

    INPUTS = 1
    keys: tuple[str, ...]
    window: Window
    aggregates: tuple[tuple[str, Aggregate], ...]
    early: bool
    best: int
    per: tuple[str, ...]
    ascending: bool

    @classmethod
    def draw(cls, random: Random, flows: Sequence[Flow]) -> "WindowAggregate":
        (flow,) = flows
        moments = flow.moments()
        keys = choose_key(random, flow) if random.random() < 0.8 else ()
        window = draw_window(random, moments)
        aggregates = tuple((f"a{number}", draw_aggregate(random, flow)) for number in range(random.randint(1, 4)))
        best = 0 if window.is_session or random.random() < 0.75 else random.randint(1, 3)
        early = not best and random.random() < 0.1
        per = keys[:1] if random.random() < 0.4 else ()
        return cls(keys, window, aggregates, early, best, per, random.random() < 0.4)

    def build(self, pipeline: Pipeline, name: str, stages: Sequence[Stage]) -> Stage:
        windowed = (stages[0].group_by(*self.keys) if self.keys else stages[0]).window(self.window.build())
        if self.early:
            windowed = windowed.early_results("1h")
        made: Stage = windowed.agg(name=name, **{result: each.build() for result, each in self.aggregates})
        if self.best:
            assert isinstance(made, AggregateStage)
            by = self.aggregates[0][0]
            return made.top(self.best, by=by, per=self.per, ascending=self.ascending, name=f"{name} (best)")
        if self.early:
            return made.where(~col("is_early"), name=f"{name} (final)").drop("is_early", name=f"{name} (columns)")
        return made

    def compute(self, node: int, flows: Sequence[Flow]) -> Flow:
        (flow,) = flows
        if set(self.keys) & set(WINDOW_COLUMNS) or {result for result, _ in self.aggregates} & set(self.keys):
            raise DoesNotFitError("names")
        flow.require_exact(*self.keys) if self.keys else None
        for _, aggregate in self.aggregates:
            flow.require_exact(*aggregate.columns) if aggregate.columns else None
        keys = first_keys(flow, self.keys)
        rows = []
        for (key, (start, end)), held in grouped(flow, self.keys, self.window).items():
            values = [self.value(aggregate, flow, in_order_of_rows(held), node) for _, aggregate in self.aggregates]
            rows.append((*keys[key], start, end, *values))
        types: dict[str, Any] = {name: flow.types[name] for name in self.keys}
        types |= dict.fromkeys(WINDOW_COLUMNS, MOMENT)
        types |= {result: aggregate.result_type(flow) for result, aggregate in self.aggregates}
        near = frozenset(result for result, aggregate in self.aggregates if is_near(aggregate, flow))
        near |= {result for result, data_type in types.items() if data_type is None}
        shift = 0 if self.window.is_session else -1
        made = flow.of(rows, types=types, time="window_end", shift_us=shift, ordered=False, near=near)
        return self.best_of(made) if self.best else made

    def value(self, aggregate: Aggregate, flow: Flow, held: Sequence[Held], node: int) -> Any:
        try:
            return aggregate.compute(flow, held)
        except FailsError as error:
            raise FailsError(f"n{node}") from error

    def best_of(self, flow: Flow) -> Flow:
        by = self.aggregates[0][0]
        if by in flow.near or flow.types[by] is None or pa.types.is_nested(flow.types[by]):
            raise DoesNotFitError("the order of results is not certain")
        place = flow.place(by)
        windows: dict[Any, list[tuple[Any, ...]]] = {}
        for row in flow.rows:
            group = [row[flow.place(name)] for name in (*self.per, "window_end")]
            windows.setdefault(to_group(tuple(group)), []).append(row)
        found = []
        for rows in windows.values():
            for name in reversed(self.keys):
                own = flow.place(name)
                if not can_order(flow.types[name]):
                    raise DoesNotFitError("keys without order")
                rows.sort(key=lambda row: (row[own] is None, to_order(row[own]) if row[own] is not None else 0))
            known = [row for row in rows if row[place] is not None]
            ranks = {key: rank for rank, key in enumerate(sorted({to_order(row[place]) for row in known}))}
            sign = 1 if self.ascending else -1
            known.sort(key=lambda row: sign * ranks[to_order(row[place])])
            ordered = known + [row for row in rows if row[place] is None]
            found += [(*row, rank + 1) for rank, row in enumerate(ordered[: self.best])]
        return flow.of(found, types={**flow.types, "rank": pa.int64()})

    def smaller(self) -> Iterator["WindowAggregate"]:
        for place in range(len(self.aggregates)):
            if len(self.aggregates) > 1:
                yield replace(self, aggregates=self.aggregates[:place] + self.aggregates[place + 1 :])
        if self.best:
            yield replace(self, best=0, per=())
        if self.early:
            yield replace(self, early=False)
        for place in range(len(self.keys)):
            left = self.keys[:place] + self.keys[place + 1 :]
            yield replace(self, keys=left, per=tuple(each for each in self.per if each in left))


def can_order(data_type: pa.DataType) -> bool:
    return not pa.types.is_nested(data_type) and not pa.types.is_interval(data_type)


@dataclass(frozen=True)
class Cogroup:
    """Aggregates of two stages in one window."""

    INPUTS = 2
    keys: tuple[str, str]
    window: Window
    aggregates: tuple[tuple[Aggregate, ...], tuple[Aggregate, ...]]

    @classmethod
    def draw(cls, random: Random, flows: Sequence[Flow]) -> "Cogroup":
        left, right = flows
        keys = choose_key(random, left, most=1)[0], choose_key(random, right, most=1)[0]
        aggregates = [tuple(draw_aggregate(random, flow) for _ in range(random.randint(1, 2))) for flow in flows]
        return cls(keys, draw_window(random, left.moments()), (aggregates[0], aggregates[1]))

    def named(self) -> list[dict[str, Aggregate]]:
        """Aggregates of both stages by the names of their results."""
        return [
            {f"{side}{number}": each for number, each in enumerate(own)}
            for side, own in zip("ab", self.aggregates, strict=True)
        ]

    def build(self, pipeline: Pipeline, name: str, stages: Sequence[Stage]) -> Stage:
        left, right = (stage.group_by(col(key).alias("key")) for stage, key in zip(stages, self.keys, strict=True))
        made = [{result: each.build() for result, each in own.items()} for own in self.named()]
        return left.cogroup(right).window(self.window.build()).agg(*made, name=name)

    def compute(self, node: int, flows: Sequence[Flow]) -> Flow:
        left, right = flows
        for flow, key, own in zip(flows, self.keys, self.aggregates, strict=True):
            flow.require_exact(key)
            if flow.shift_us or ("key" in flow.types and key != "key"):
                raise DoesNotFitError("times or names")
            for aggregate in own:
                flow.require_exact(*aggregate.columns) if aggregate.columns else None
        if left.types[self.keys[0]] != right.types[self.keys[1]]:
            raise DoesNotFitError("keys of two types are for joins")
        keys = first_keys(left, self.keys[:1]) | first_keys(right, self.keys[1:])
        groups = self.groups(left, right)
        rows = []
        for (key, (start, end)), sides in groups.items():
            values: list[Any] = []
            for flow, held, own in zip(flows, sides, self.aggregates, strict=True):
                for aggregate in own:
                    try:
                        values.append(aggregate.compute(flow, in_order_of_rows(held)))
                    except FailsError as error:
                        raise FailsError(f"n{node}") from error
            rows.append((*keys[key], start, end, *values))
        types: dict[str, Any] = {"key": left.types[self.keys[0]], **dict.fromkeys(WINDOW_COLUMNS, MOMENT)}
        near = set()
        for flow, named in zip(flows, self.named(), strict=True):
            for result, aggregate in named.items():
                types[result] = aggregate.result_type(flow)
                if is_near(aggregate, flow) or types[result] is None:
                    near.add(result)
        return left.of(
            rows,
            types=types,
            time="window_end",
            shift_us=0 if self.window.is_session else -1,
            ordered=False,
            near=frozenset(near),
            sources=left.sources | right.sources,
        )

    def groups(self, left: Flow, right: Flow) -> dict[tuple[Any, Span], tuple[list[Held], list[Held]]]:
        """Rows of both stages by key and window; sessions are made of both."""
        both = Flow(
            {"key": left.types[self.keys[0]], "at": MOMENT},
            (
                *zip(left.column(self.keys[0]), left.moments(), strict=True),
                *zip(right.column(self.keys[1]), right.moments(), strict=True),
            ),
            "at",
        )
        found: dict[tuple[Any, Span], tuple[list[Held], list[Held]]] = {}
        for group, rows in grouped(both, ("key",), self.window).items():
            sides: tuple[list[Held], list[Held]] = ([], [])
            for held in rows:
                side = int(held.place >= len(left.rows))
                flow, place = (right, held.place - len(left.rows)) if side else (left, held.place)
                sides[side].append(Held(dict(zip(flow.types, flow.rows[place], strict=True)), held.moment, place))
            found[group] = sides
        return found
