"""Windows and sessions with the batch aggregates, as plain lists of rows: what the processors must give."""

import math
from collections import defaultdict
from fractions import Fraction
from typing import Any

import pyarrow as pa

from jetfast.core.items import IDLE, Watermark
from jetfast.core.windows import SessionWindow, Window
from jetfast.types import MAX_TIME, MIN_TIME

Row = dict[str, Any]


def in_us(value: Any) -> int | None:
    return None if value is None else pa.scalar(value, pa.timestamp("us")).value


def as_time(value: int) -> Any:
    return pa.scalar(value, pa.timestamp("us")).as_py()


def order_of(number: float) -> tuple[bool, float]:
    """Ascending, NaN last."""
    return (math.isnan(number), 0.0 if math.isnan(number) else number)


def different(numbers: list[float]) -> list[float]:
    """Ascending, each once; -0.0 is 0.0."""
    result: list[float] = []
    for number in sorted((number + 0.0 for number in numbers), key=order_of):
        if not result or order_of(result[-1]) != order_of(number):
            result.append(number)
    return result


def slope_of(points: list[tuple[Fraction, Fraction]]) -> float | None:
    """By the textbook, in fractions."""
    if not points:
        return None
    mean_x, mean_y = (sum(part) / len(points) for part in zip(*points, strict=True))
    xx = sum((x - mean_x) ** 2 for x, _ in points)
    return None if xx == 0 else float(sum((x - mean_x) * (y - mean_y) for x, y in points) / xx)


def results_of(rows: list[Row]) -> Row:
    """All aggregates of tests/processors/test_batch_aggregates.py; `rows` in the order of arrival, "time" in us."""
    by_time = sorted(rows, key=lambda row: row["time"])
    numbers = [row["x"] for row in by_time if row["x"] is not None]
    texts = [row["s"] for row in by_time if row["s"] is not None]
    ascending = sorted(numbers, key=order_of)
    with_x = [row for row in by_time if row["x"] is not None]
    known = [row["x"] for row in by_time if row["x"] is not None]
    best = sorted(with_x, key=lambda row: order_of(row["x"]), reverse=False)
    descending = sorted(with_x, key=lambda row: tuple(-part for part in order_of(row["x"])))
    return {
        "rows": len(rows),
        "first": by_time[0]["x"],
        "last": by_time[-1]["x"],
        "last_known": known[-1] if known else None,
        "top": sorted((number + 0.0 for number in numbers), key=order_of, reverse=True)[:2],
        "bottom": [number + 0.0 for number in ascending[:3]],
        "top_rows": [{"s": row["s"], "i": row["i"]} for row in descending[:2]],
        "bottom_rows": [row["s"] for row in best[:2]],
        "distinct": len(different(numbers)),
        "about": len(set(texts)),
        "middle": ascending[max(math.ceil(len(ascending) / 2), 1) - 1] if ascending else None,
        "ends": [ascending[0], ascending[-1]] if ascending else None,
        "trend": slope_of(
            [(Fraction(row["i"]), Fraction(row["j"])) for row in rows if row["i"] is not None and row["j"] is not None]
        ),
        "trend_in_time": slope_of(
            [(Fraction(row["time"], 10**6), Fraction(row["i"])) for row in rows if row["i"] is not None]
        ),
        "texts": texts,
        "set": sorted(set(texts)),
        "least": min(texts, default=None),
        "greatest": max(texts, default=None),
        "joined": "-".join(texts) if texts else None,
        "span": (
            max(row["i"] for row in rows if row["i"] is not None)
            - min(row["i"] for row in rows if row["i"] is not None)
        )
        if any(row["i"] is not None for row in rows)
        else None,
        "total": sum(row["i"] for row in rows if row["i"] is not None),
    }


class SlowWindows:
    """Every window keeps all its rows."""

    def __init__(self, window: Window | SessionWindow, keys: list[str]) -> None:
        self.window, self.keys = window, keys
        self.watermark = MIN_TIME
        self.windows: dict[Any, list[Row]] = defaultdict(list)
        self.output: list[Any] = []

    def key_of(self, row: Row) -> tuple[Any, ...]:
        return tuple(row[key] for key in self.keys)

    def take(self, row: Row) -> None:
        time, window = row["time"], self.window
        if isinstance(window, SessionWindow):
            if time < self.watermark:
                return
            key, joined = self.key_of(row), [row]
            first, last = time, time
            for start, end, other in list(self.windows):
                if other == key and start <= last + window.timeout_us and first <= end:
                    joined = self.windows.pop((start, end, other)) + joined
                    first, last = min(first, start), max(last, end - window.timeout_us)
            self.windows[first, last + window.timeout_us, key] = joined
            return
        for step in range(window.frames):
            end = window.frame_of(time) + step * window.slide_us
            if end > self.watermark:
                self.windows[end - window.size_us, end, self.key_of(row)].append(row)

    def advance(self, watermark: int) -> None:
        self.watermark = watermark
        reached = watermark - 1 if isinstance(self.window, SessionWindow) else watermark
        for start, end, key in sorted(self.windows, key=repr):
            if end <= reached:
                rows = self.windows.pop((start, end, key))
                times = {"window_start": as_time(start), "window_end": as_time(end)}
                self.output.append({**dict(zip(self.keys, key, strict=True)), **times, **results_of(rows)})

    def run(self, inputs: list[Any]) -> list[Any]:
        for item in inputs:
            if isinstance(item, Watermark):
                self.advance(item.value)
                self.output.append(item)
            elif item is IDLE:
                self.output.append(item)
            else:
                for number, row in enumerate(item.to_pylist()):
                    if row["time"] is not None:
                        self.take({**row, "time": in_us(row["time"]), "number": number})
        self.advance(MAX_TIME)
        return self.output
