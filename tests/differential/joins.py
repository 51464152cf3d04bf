"""Joins of all kinds. Each says which rows of both sides meet, by their places: DuckDB is asked the same."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import pyarrow as pa

from jetfast.api.pipeline import Pipeline
from jetfast.api.stage import Stage
from tests.differential.flows import DoesNotFitError, Flow, choose_key
from tests.differential.values import to_group
from tests.differential.windows import MOMENT, WINDOW_COLUMNS, Window, draw_window

KINDS = {"hash": ["inner", "left"], "window": ["inner", "left", "right", "outer"], "asof": ["left", "inner"]}
KINDS["interval"] = KINDS["window"]
Pair = tuple[int | None, int | None, int | None]
"""Places of a row of either side, and the end of their window or the greater of their times."""


@dataclass(frozen=True)
class Join:
    """Two stages by keys of one name or of two."""

    INPUTS = 2
    kind: str
    how: str
    left_on: tuple[str, ...]
    right_on: tuple[str, ...]
    window: Window
    lower: int
    upper: int
    tolerance: int | None

    @classmethod
    def draw(cls, random: Random, flows: Sequence[Flow]) -> "Join":
        left, right = flows
        timed = left.time is not None and right.time is not None
        kind = random.choice(["hash", "hash", "window", "interval", "asof"] if timed else ["hash"])
        left_on = choose_key(random, left)
        partners = []
        for name in left_on:
            same = [each for each, data_type in right.exact_types.items() if data_type == left.types[name]]
            same += [each for each in right.exact_types if key_type(left.types[name], right.types[each]) is not None]
            if not same:
                raise DoesNotFitError("no key of such a type")
            partners.append(random.choice(same))
        window, scale = Window(1000, 1000), 1000
        if kind != "hash":
            moments = [*left.moments(), *right.moments()]
            window = draw_window(random, moments, sessions=False)
            scale = max(1, (max(moments, default=0) - min(moments, default=0)) // random.choice([1, 3, 10]))
        lower = random.choice([0, -scale, -1])
        tolerance = random.choice([None, scale, 0])
        return cls(kind, random.choice(KINDS[kind]), left_on, tuple(partners), window, lower, lower + scale, tolerance)

    def build(self, pipeline: Pipeline, name: str, stages: Sequence[Stage]) -> Stage:
        left, right = stages
        keys: dict[str, Any] = {"left_on": list(self.left_on), "right_on": list(self.right_on)}
        if self.left_on == self.right_on:
            keys = {"on": list(self.left_on)}
        if self.kind == "hash":
            return left.hash_join(right, how=self.how, name=name, **keys)
        if self.kind == "window":
            return left.window_join(right, self.window.build(), how=self.how, name=name, **keys)
        if self.kind == "interval":
            bounds = {"lower": f"{self.lower}us", "upper": f"{self.upper}us"}
            return left.interval_join(right, how=self.how, name=name, **bounds, **keys)
        tolerance = None if self.tolerance is None else f"{self.tolerance}us"
        return left.asof_join(right, tolerance=tolerance, how=self.how, name=name, **keys)

    def compute(self, node: int, flows: Sequence[Flow]) -> Flow:
        left, right = flows
        left.require_exact(*self.left_on)
        right.require_exact(*self.right_on)
        if self.kind == "hash" and left.sources & right.sources:
            raise DoesNotFitError("one source feeds both sides")
        key_types = [
            key_type(left.types[one], right.types[other])
            for one, other in zip(self.left_on, self.right_on, strict=True)
        ]
        if None in key_types or len(set(self.right_on)) < len(self.right_on):
            raise DoesNotFitError("keys")
        names = self.names(left, right)
        types = self.types(left, right, key_types, names)
        pairs = self.pairs(left, right)
        rows = [self.row(left, right, pair, names) for pair in pairs]
        times: dict[str, tuple[str | None, int]] = {
            "hash": (names[0].get(left.time or ""), left.shift_us),
            "asof": (names[0].get(left.time or ""), left.shift_us),
            "window": ("window_end", -1),
            "interval": ("event_time", 0),
        }
        time, shift = times[self.kind]
        near = {names[0][name] for name in left.near} | {names[1][name] for name in right.near}
        return left.of(
            rows,
            types=types,
            time=time,
            shift_us=shift,
            ordered=False,
            near=frozenset(near),
            sources=left.sources | right.sources,
        )

    def names(self, left: Flow, right: Flow) -> tuple[dict[str, str], dict[str, str]]:
        """What the columns of either side are called in the result."""
        found: tuple[dict[str, str], dict[str, str]] = ({}, {})
        taken = set(self.left_on)
        for side, flow, own in ((0, left, self.left_on), (1, right, self.right_on)):
            found[side].update(zip(own, self.left_on, strict=True))
            for name in flow.names:
                if name in found[side]:
                    continue
                result = name if name not in taken else f"{name}_right"
                if result != name and (side == 0 or result in taken or result in right.types):
                    raise DoesNotFitError("names")
                found[side][name] = result
                taken.add(result)
        added = {"window": set(WINDOW_COLUMNS), "interval": {"event_time"}}.get(self.kind, set())
        if added & taken:
            raise DoesNotFitError("names")
        return found

    def types(
        self, left: Flow, right: Flow, key_types: Sequence[pa.DataType], names: tuple[dict[str, str], dict[str, str]]
    ) -> dict[str, pa.DataType]:
        types = dict(zip(self.left_on, key_types, strict=True))
        for side, flow in enumerate((left, right)):
            types |= {names[side][name]: each for name, each in flow.types.items() if names[side][name] not in types}
        if self.kind == "window":
            types |= dict.fromkeys(WINDOW_COLUMNS, MOMENT)
        return types | ({"event_time": MOMENT} if self.kind == "interval" else {})

    def row(self, left: Flow, right: Flow, pair: Pair, names: tuple[dict[str, str], dict[str, str]]) -> tuple[Any, ...]:
        """The row that two rows make."""
        one = None if pair[0] is None else left.rows[pair[0]]
        other = None if pair[1] is None else right.rows[pair[1]]
        keys = []
        for left_name, right_name in zip(self.left_on, self.right_on, strict=True):
            keys.append(one[left.place(left_name)] if one is not None else other[right.place(right_name)])  # type: ignore[index]
        values: list[Any] = []
        for side, flow, row in ((0, left, one), (1, right, other)):
            for place, name in enumerate(flow.names):
                if names[side][name] not in self.left_on:
                    values.append(None if row is None else row[place])
        if self.kind == "window":
            assert pair[2] is not None
            values += [pair[2] - self.window.size, pair[2]]
        return (*keys, *values, *([pair[2]] if self.kind == "interval" else []))

    def pairs(self, left: Flow, right: Flow) -> list[Pair]:
        """Which rows meet."""
        keys = group_keys(left, self.left_on), group_keys(right, self.right_on)
        if self.kind == "hash":
            return with_outer(self.how, matches(*keys), len(left.rows), len(right.rows))
        times = left.moments(), right.moments()
        if self.kind == "interval":
            met = [
                (one, other, max(times[0][one], times[1][other]))
                for one, other, _ in matches(*keys)
                if self.lower <= times[1][other] - times[0][one] <= self.upper
            ]
            made = with_outer(self.how, met, len(left.rows), len(right.rows))
            return [
                (one, other, time if time is not None else own_time(one, other, times)) for one, other, time in made
            ]
        return self.window_pairs(keys, times) if self.kind == "window" else self.asof_pairs(right, keys, times)

    def window_pairs(self, keys: tuple[list[Any], list[Any]], times: tuple[list[int], list[int]]) -> list[Pair]:
        places: list[dict[int, list[int]]] = [{}, {}]
        for side in (0, 1):
            for place, spans in enumerate(self.window.spans(times[side])):
                for _, end in spans:
                    places[side].setdefault(end, []).append(place)
        found: list[Pair] = []
        for end in sorted({*places[0], *places[1]}):
            own = [places[side].get(end, []) for side in (0, 1)]
            local = matches([keys[0][place] for place in own[0]], [keys[1][place] for place in own[1]])
            for one, other, _ in with_outer(self.how, local, len(own[0]), len(own[1])):
                left_place = None if one is None else own[0][one]
                found.append((left_place, None if other is None else own[1][other], end))
        return found

    def asof_pairs(
        self, right: Flow, keys: tuple[list[Any], list[Any]], times: tuple[list[int], list[int]]
    ) -> list[Pair]:
        found: list[Pair] = []
        for one, key in enumerate(keys[0]):
            earlier = [
                (times[1][other], other)
                for other, its in enumerate(keys[1])
                if key is not None and key == its and times[1][other] <= times[0][one]
            ]
            latest = max(earlier, default=None)
            if latest is not None and not right.ordered and sum(time == latest[0] for time, _ in earlier) > 1:
                raise DoesNotFitError("rows of one time in any order")
            if latest is not None and self.tolerance is not None and times[0][one] - latest[0] > self.tolerance:
                latest = None
            if latest is not None or self.how == "left":
                found.append((one, None if latest is None else latest[1], None))
        return found

    def smaller(self) -> Iterator["Join"]:
        if len(self.left_on) > 1:
            yield replace(self, left_on=self.left_on[:1], right_on=self.right_on[:1])
        if self.how != "inner":
            yield replace(self, how="inner")


def key_type(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """The type of two keys that meet, or None."""
    if left == right:
        return left
    if pa.types.is_signed_integer(left) and pa.types.is_signed_integer(right):
        return max(left, right, key=lambda each: int(each.bit_width))
    return None


def group_keys(flow: Flow, names: Sequence[str]) -> list[Any]:
    """The keys of each row, None if one is null."""
    places = [flow.place(name) for name in names]
    return [
        None if any(row[place] is None for place in places) else to_group(tuple(row[place] for place in places))
        for row in flow.rows
    ]


def matches(left: Sequence[Any], right: Sequence[Any]) -> list[Pair]:
    """Places of equal keys."""
    by_key: dict[Any, list[int]] = {}
    for place, key in enumerate(right):
        if key is not None:
            by_key.setdefault(key, []).append(place)
    return [(place, other, None) for place, key in enumerate(left) if key is not None for other in by_key.get(key, [])]


def with_outer(how: str, met: Sequence[Pair], left_count: int, right_count: int) -> list[Pair]:
    """Pairs, and rows of the sides that are kept without a match."""
    made = list(met)
    if how in ("left", "outer"):
        made += [(place, None, None) for place in sorted(set(range(left_count)) - {pair[0] for pair in met})]
    if how in ("right", "outer"):
        made += [(None, place, None) for place in sorted(set(range(right_count)) - {pair[1] for pair in met})]
    return made


def own_time(one: int | None, other: int | None, times: tuple[list[int], list[int]]) -> int:
    return times[0][one] if one is not None else times[1][other]  # type: ignore[index]
