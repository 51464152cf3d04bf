"""The slow twin of WindowTable: keeps every row, works each window out from its rows, in plain Python and exactly."""

import math
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

from jetfast.types import MAX_TIME, MIN_TIME

Row = dict[str, Any]
Result = dict[str, Any]


class ReferenceWindows:
    """`accumulate` rows (dicts; times are int microseconds or None), `advance`, compare. See WindowTable for the rules.

    aggregates : (result name, kind, column or None). Values are int, float, Fraction (decimals) or None.
    """

    def __init__(
        self,
        keys: list[str],
        time: str,
        aggregates: list[tuple[str, str, str | None]],
        size: int,
        slide: int,
        offset: int = 0,
    ) -> None:
        self.keys, self.time, self.aggregates = keys, time, aggregates
        self.size, self.slide, self.offset = size, slide, offset
        self.watermark = MIN_TIME
        self.kept: list[tuple[tuple[Any, ...], list[int], Row]] = []  # key, ends of windows that it counts in
        self.rows = self.late_rows = self.partly_late_rows = self.rejected_rows = 0

    def frame_of(self, time: int) -> int:
        return min(MAX_TIME, (time - self.offset) // self.slide * self.slide + self.offset + self.slide)

    def windows_of(self, time: int) -> list[int]:
        frame = self.frame_of(time)
        return sorted({min(MAX_TIME, frame + number * self.slide) for number in range(self.size // self.slide)})

    def accumulate(self, rows: Iterable[Row]) -> list[tuple[Row, int]]:
        """Return the rows that missed a window, and the end of the last one missed."""
        missed = []
        for row in rows:
            self.rows += 1
            time = row[self.time]
            if time is None:
                self.rejected_rows += 1
                continue
            ends = self.windows_of(time)
            gone = [end for end in ends if end <= self.watermark]
            left = [end for end in ends if end > self.watermark]
            if gone:
                missed.append((row, gone[-1]))
            if not left:
                self.late_rows += 1
                continue
            self.partly_late_rows += bool(gone)
            self.kept.append((tuple(canonical(row[key]) for key in self.keys), left, row))
        return missed

    def advance(self, watermark: int) -> dict[tuple[Any, ...], Result]:
        """Return the windows that are due now, by (window end, key ...)."""
        self.watermark = watermark
        groups: dict[tuple[Any, ...], list[Row]] = {}
        still: list[tuple[tuple[Any, ...], list[int], Row]] = []
        for key, ends, row in self.kept:
            for end in ends:
                if end <= watermark:
                    groups.setdefault((end, *key), []).append(row)
            left = [end for end in ends if end > watermark]
            if left:
                still.append((key, left, row))
        self.kept = still
        return {
            group: {
                name: aggregate(kind, [row[column] if column else None for row in rows])
                for name, kind, column in self.aggregates
            }
            for group, rows in groups.items()
        }


def canonical(key: Any) -> Any:
    """One form for keys that are equal: every NaN, and both zeros."""
    if isinstance(key, float):
        return "NaN" if math.isnan(key) else key + 0.0
    return key


def aggregate(kind: str, column: list[Any]) -> Any:
    """The result of one aggregate over one group; Fractions where it can be exact."""
    if kind == "count":
        return len(column)
    values = [value for value in column if value is not None]
    if kind == "count_values":
        return len(values)
    if not values:
        return None
    if kind in ("min", "max"):
        order = sorted(values, key=lambda value: (isinstance(value, float) and math.isnan(value), value))
        return order[0] if kind == "min" else order[-1]
    if any(isinstance(value, float) and not math.isfinite(value) for value in values):
        if kind in ("sum", "mean"):
            return (
                math.nan
                if any(math.isnan(v) for v in values) or {math.inf, -math.inf} <= set(values)
                else max(values, key=abs)
            )
        return None if kind.endswith("samp") and len(values) < 2 else math.nan
    exact = [Fraction(value) for value in values]
    total = sum(exact, Fraction(0))
    if kind == "sum":
        return total
    mean = total / len(exact)
    if kind == "mean":
        return mean
    if kind.endswith("samp") and len(exact) < 2:
        return None
    squares = sum(((value - mean) ** 2 for value in exact), Fraction(0))
    variance = squares / (len(exact) - 1 if kind.endswith("samp") else len(exact))
    return math.sqrt(variance) if kind.startswith("stddev") else variance
