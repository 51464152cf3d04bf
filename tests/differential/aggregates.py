"""Aggregates, slowly and exactly: each over the values of the rows of one key and window."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction
from random import Random
from typing import Any

import pyarrow as pa

import jetfast as jf
from jetfast.core.aggregate import Aggregate as JetfastAggregate
from tests.differential.expressions import is_number
from tests.differential.flows import DoesNotFitError, FailsError, Flow, choose
from tests.differential.values import Near, positive_zero, to_group, to_key, to_order

SUMS = ["sum", "mean", "var_samp", "var_pop", "stddev_samp", "stddev_pop"]
BY_TIME = ["first", "last", "collect_list", "concat"]
OTHERS = ["min", "max", "count_distinct", "approx_count_distinct", "collect_set", "top_n", "bottom_n"]
GREATEST = 1e300
"""Sums of greater floats overflow on the way, in one order of adding and not in another."""


class Held:
    """A row of one group: its values by column, its event time, and its place among all rows that come."""

    __slots__ = ("moment", "place", "row")

    def __init__(self, row: dict[str, Any], moment: int, place: int) -> None:
        self.row = row
        self.moment = moment
        self.place = place


@dataclass(frozen=True)
class Aggregate:
    """A function of up to three columns."""

    kind: str
    columns: tuple[str, ...] = ()
    number: float = 0
    """How many, or which quantile."""
    flag: bool = False

    def build(self) -> JetfastAggregate:
        kind, columns = self.kind, self.columns
        if kind in ("first", "last"):
            made = getattr(jf, kind)(columns[0], ignore_nulls=self.flag)
        elif kind in ("top_n", "bottom_n"):
            made = getattr(jf, kind)(columns[0], int(self.number))
        elif kind in ("top_by", "bottom_by"):
            named = columns[0] if len(columns) == 2 else list(columns[:-1])
            made = getattr(jf, kind.replace("by", "n"))(named, int(self.number), by=columns[-1])
        elif kind == "concat":
            made = jf.concat(columns[0], ", ")
        elif kind == "quantile":
            made = jf.quantile(columns[0], self.number, error=0.01)
        elif kind == "quantiles":
            made = jf.quantiles(columns[0], [self.number, 1.0], error=0.01)
        else:
            made = getattr(jf, kind)(*columns)
        assert isinstance(made, JetfastAggregate)
        return made

    def result_type(self, flow: Flow) -> pa.DataType | None:
        """Its type where a rule is written, else None."""
        if self.kind.startswith("count") or self.kind == "approx_count_distinct":
            return pa.int64()
        if self.kind in ("var_samp", "var_pop", "stddev_samp", "stddev_pop", "linear_trend", "quantile"):
            return pa.float64()
        data_type = flow.types[self.columns[0]]
        if self.kind in ("first", "last"):
            return data_type
        if self.kind == "concat":
            return pa.string()
        if self.kind in ("min", "max"):
            return data_type
        if self.kind in ("collect_list", "collect_set", "top_n", "bottom_n"):
            return pa.list_(data_type)
        if self.kind in ("top_by", "bottom_by"):
            if len(self.columns) == 2:
                return pa.list_(data_type)
            return pa.list_(pa.struct([(name, flow.types[name]) for name in self.columns[:-1]]))
        if self.kind == "quantiles":
            return pa.list_(pa.float64())
        if pa.types.is_decimal(data_type):
            more, scale = (10, 0) if self.kind == "sum" else (4, 4)
            if data_type.precision + more > 38:
                return None
            return pa.decimal128(data_type.precision + more, data_type.scale + scale)
        if self.kind == "sum" and pa.types.is_integer(data_type):
            return pa.int64()
        return pa.float64()

    def compute(self, flow: Flow, group: Sequence[Held]) -> Any:
        """The value for the rows of a group."""
        kind = self.kind
        by = {"top_by": -1, "bottom_by": -1, **dict.fromkeys(("min", "max", "collect_set", "top_n", "bottom_n"), 0)}
        if kind in by and not can_sort(flow.types[self.columns[by[kind]]]):
            return None  # refused when it is built
        if kind in SUMS and not is_number(flow.types[self.columns[0]]):
            return None  # likewise
        if kind == "count":
            return len(group) if not self.columns else len(values_of(self.columns[0], group))
        if kind in ("first", "last", "collect_list", "concat"):
            return self.by_time(flow, group)
        if kind in ("top_by", "bottom_by"):
            return self.of_best_rows(flow, group)
        if kind == "linear_trend":
            return trend(self.columns, group)
        values = values_of(self.columns[0], group)
        if kind in SUMS:
            return summed(kind, values, flow.types[self.columns[0]])
        if kind in ("min", "max"):
            return extreme(kind, values)
        if kind in ("count_distinct", "approx_count_distinct"):
            count = len({to_group(value) for value in values})
            return count if kind == "count_distinct" else Near(count, max(2.0, 0.4 * count))
        if kind == "collect_set":
            different = {to_group(value): positive_zero(value) for value in values}
            return tuple(sorted(different.values(), key=to_order))
        if kind in ("top_n", "bottom_n"):
            return tuple(sorted(map(positive_zero, values), key=to_order, reverse=kind == "top_n")[: int(self.number)])
        if kind == "quantile":
            return quantile(values, self.number)
        if not values:
            return None
        return tuple(quantile(values, each) for each in (self.number, 1.0))

    def by_time(self, flow: Flow, group: Sequence[Held]) -> Any:
        name = self.columns[0]
        skips = self.flag if self.kind in ("first", "last") else True
        counted = [held for held in group if not skips or held.row[name] is not None]
        ordered = in_order(flow, counted, [name])
        values = [held.row[name] for held in ordered]
        if self.kind in ("first", "last"):
            return values[0 if self.kind == "first" else -1] if values else None
        if self.kind == "concat":
            return ", ".join(values) if values else None
        return tuple(values)

    def of_best_rows(self, flow: Flow, group: Sequence[Held]) -> Any:
        *names, by = self.columns
        ordered = in_order(flow, [held for held in group if held.row[by] is not None], names)
        is_top = self.kind == "top_by"
        ranks = {key: rank for rank, key in enumerate(sorted({to_order(held.row[by]) for held in ordered}))}
        ordered.sort(key=lambda held: ranks[to_order(held.row[by])] * (-1 if is_top else 1))
        best = ordered[: int(self.number)]
        if len(names) == 1:
            return tuple(held.row[names[0]] for held in best)
        return tuple(tuple(held.row[name] for name in names) for held in best)


def values_of(name: str, group: Sequence[Held]) -> list[Any]:
    return [held.row[name] for held in group if held.row[name] is not None]


def in_order(flow: Flow, group: Sequence[Held], names: Sequence[str]) -> list[Held]:
    """By event time, of equal times by arrival. Raises DoesNotFitError if that is not known."""
    if not flow.ordered:
        seen: dict[int, Any] = {}
        for held in group:
            values = to_key(tuple(held.row[name] for name in names))
            if seen.setdefault(held.moment, values) != values:
                raise DoesNotFitError("rows of one time in any order")
    return sorted(group, key=lambda held: (held.moment, held.place))


def require_one_zero(values: Sequence[Any]) -> None:
    """Of two zeros either may stand for both."""
    zeros = {math.copysign(1, value) for value in values if isinstance(value, float) and value == 0}
    if len(zeros) > 1:
        raise DoesNotFitError("two zeros")


def extreme(kind: str, values: Sequence[Any]) -> Any:
    if not values:
        return None
    require_one_zero(values)
    return (min if kind == "min" else max)(values, key=to_order)


def quantile(values: Sequence[Any], q: float) -> Any:
    """The value of rank ceil(q * n), within one hundredth of it."""
    if not values:
        return None
    ordered = sorted((float(value) for value in values), key=to_order)
    rank = max(1, math.ceil(Fraction(q) * len(ordered)))
    value = ordered[rank - 1]
    if math.isfinite(value) and 0 < abs(value) < 1e-290:
        raise DoesNotFitError("too small for buckets")
    return Near(value, abs(value) * 0.0100001 if math.isfinite(value) else 0.0)


def summed(kind: str, values: Sequence[Any], data_type: pa.DataType) -> Any:
    """Sums, means and variances."""
    if not values or (kind in ("var_samp", "stddev_samp") and len(values) < 2):
        return None
    if kind in ("sum", "mean") and pa.types.is_decimal(data_type):
        return decimal_sum(kind, values, data_type)
    if pa.types.is_integer(data_type) and kind == "sum":
        total = sum(values)
        if not -(2**63) <= total < 2**63:
            raise FailsError()
        return total
    numbers = [float(value) if isinstance(value, float) else Fraction(value) for value in values]
    special = [number for number in numbers if isinstance(number, float) and not math.isfinite(number)]
    if special:
        if kind not in ("sum", "mean") or any(map(math.isnan, special)) or len(set(special)) > 1:
            return float("nan")
        return special[0]
    exact = [Fraction(number) for number in numbers]
    if sum(map(abs, exact)) > GREATEST or (kind not in ("sum", "mean") and sum(x * x for x in exact) > GREATEST):
        raise DoesNotFitError("sums overflow")
    total = sum(exact, Fraction(0))
    size = float(sum(map(abs, exact)))
    if kind == "sum":
        return Near(float(total), 1e-9 * size + 1e-320)
    mean = total / len(exact)
    if kind == "mean":
        return Near(float(mean), 1e-9 * size / len(exact) + 1e-320)
    squares = sum(((number - mean) ** 2 for number in exact), Fraction(0))
    variance = float(squares / (len(exact) - (1 if kind.endswith("samp") else 0)))
    tolerance = 1e-9 * float(sum(number * number for number in exact)) / max(1, len(exact) - 1) + 1e-9 * variance
    if kind.startswith("var"):
        return Near(variance, tolerance + 1e-320)
    root = math.sqrt(variance)
    return Near(
        root, max(math.sqrt(variance + tolerance) - root, root - math.sqrt(max(0.0, variance - tolerance))) + 1e-160
    )


def decimal_sum(kind: str, values: Sequence[Decimal], data_type: pa.DataType) -> Decimal:
    """Exact, and of a mean rounded half up."""
    total = sum(values, Decimal(0))
    precision = min(38, data_type.precision + (10 if kind == "sum" else 4))
    if data_type.precision + 10 > 38 or not pa.types.is_decimal128(data_type):
        raise DoesNotFitError("more digits than decimals have")
    if kind == "mean":
        scale = data_type.scale + 4
        exact = Fraction(total) / len(values) * 10**scale
        rounded = Decimal(int(abs(exact) + Fraction(1, 2))).scaleb(-scale)
        total = rounded if exact >= 0 else -rounded
    if abs(total) >= Decimal(10) ** (precision - data_type.scale - (4 if kind == "mean" else 0)):
        raise FailsError()
    return total if kind == "mean" else total.quantize(Decimal(1).scaleb(-data_type.scale), ROUND_HALF_UP)


def trend(columns: Sequence[str], group: Sequence[Held]) -> Any:
    """Slope by least squares."""
    points = []
    for held in group:
        y, x = held.row[columns[0]], held.row[columns[1]] if len(columns) > 1 else Fraction(held.moment, 1_000_000)
        if y is not None and x is not None:
            points.append((x, y))
    if any(isinstance(value, float) and not math.isfinite(value) for point in points for value in point):
        raise DoesNotFitError("not finite")
    exact = [(Fraction(x), Fraction(y)) for x, y in points]
    if len({x for x, _ in exact}) < 2:
        return None
    if any(abs(value) > 10**12 for point in exact for value in point):
        raise DoesNotFitError("too many digits")
    mean_x, mean_y = (sum(values) / len(exact) for values in zip(*exact, strict=True))
    above = sum((x - mean_x) * (y - mean_y) for x, y in exact)
    below = sum((x - mean_x) ** 2 for x, _ in exact)
    size = float(sum(abs(x - mean_x) * (abs(y - mean_y) + abs(y)) for x, y in exact) / below)
    return Near(float(above / below), 1e-6 * size + 1e-300)


def can_sort(data_type: pa.DataType) -> bool:
    """Have its values an order that is written?"""
    is_plain = not pa.types.is_nested(data_type) and not pa.types.is_interval(data_type)
    return is_plain and not pa.types.is_null(data_type)


def draw_aggregate(random: Random, flow: Flow) -> Aggregate:
    """One that fits the columns of a flow, most likely."""
    types = flow.exact_types
    numbers = [name for name, each in types.items() if is_number(each)]
    sortable = [name for name, each in types.items() if can_sort(each)]
    texts = [name for name, each in types.items() if pa.types.is_string(each)]
    if random.random() < 0.08:
        return Aggregate(random.choice([*SUMS, "min", "max", *BY_TIME[:3]]), (choose(random, types),))
    kind = random.random()
    if kind < 0.2:
        return Aggregate("count", (choose(random, types),) if random.random() < 0.5 else ())
    if kind < 0.5 and numbers:
        return Aggregate(random.choice(SUMS), (random.choice(numbers),))
    if kind < 0.6 and numbers:
        if random.random() < 0.5:
            return Aggregate("linear_trend", (random.choice(numbers), *random.sample(numbers, random.randint(0, 1))))
        return Aggregate(
            random.choice(["quantile", "quantiles"]), (random.choice(numbers),), random.choice([0.0, 0.5, 0.9])
        )
    if kind < 0.7:
        return Aggregate(random.choice(["first", "last"]), (choose(random, types),), flag=random.random() < 0.5)
    if kind < 0.75:
        return (
            Aggregate("concat", (random.choice(texts),))
            if texts
            else Aggregate("collect_list", (choose(random, types),))
        )
    if kind < 0.8:
        return Aggregate("collect_list", (choose(random, types),))
    if kind < 0.87 and sortable:
        columns = [choose(random, types) for _ in range(random.randint(1, 2))]
        return Aggregate(random.choice(["top_by", "bottom_by"]), (*dict.fromkeys(columns), random.choice(sortable)), 2)
    return Aggregate(random.choice(OTHERS), (choose(random, sortable),), 2)


def is_near(aggregate: Aggregate, flow: Flow) -> bool:
    """Is its result known but for the last digits?"""
    if aggregate.kind in ("sum", "mean"):
        data_type = flow.types[aggregate.columns[0]]
        is_exact = pa.types.is_decimal(data_type) or (aggregate.kind == "sum" and pa.types.is_integer(data_type))
        return not is_exact
    return aggregate.kind in (*SUMS, "linear_trend", "quantile", "quantiles", "approx_count_distinct")
