"""The slow twin of SessionTable: keeps every row and finds sessions by sorting, in plain Python and exactly."""

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from jetfast.types import MAX_TIME, MIN_TIME
from tests.kernels.reference_windows import Result, Row, aggregate, canonical


class ReferenceSessions:
    """`accumulate` rows (dicts; times are int microseconds or None), `advance`, compare. Rules as of SessionTable."""

    def __init__(self, keys: list[str], time: str, aggregates: list[tuple[str, str, str | None]], timeout: int) -> None:
        self.keys, self.time, self.aggregates, self.timeout = keys, time, aggregates, timeout
        self.watermark = MIN_TIME
        self.kept: dict[tuple[Any, ...], list[Row]] = {}
        self.rows = self.late_rows = self.rejected_rows = 0
        self.partly_late_rows = 0  # there are none

    def accumulate(self, rows: Iterable[Row]) -> list[Row]:
        """Return the late rows."""
        late = []
        for row in rows:
            self.rows += 1
            if row[self.time] is None:
                self.rejected_rows += 1
            elif row[self.time] < self.watermark:
                self.late_rows += 1
                late.append(row)
            else:
                self.kept.setdefault(tuple(canonical(row[key]) for key in self.keys), []).append(row)
        return late

    def sessions(self) -> dict[tuple[Any, ...], list[list[Row]]]:
        """The rows of each open session, by key."""
        found = {}
        for key, rows in self.kept.items():
            ordered = sorted(rows, key=lambda row: row[self.time])
            sessions = [ordered[:1]]
            for before, row in pairwise(ordered):
                if row[self.time] > before[self.time] + self.timeout:
                    sessions.append([])
                sessions[-1].append(row)
            found[key] = sessions
        return found

    def advance(self, watermark: int) -> dict[tuple[Any, ...], Result]:
        """Return the sessions that are due now, by (end, key ...)."""
        self.watermark = watermark
        due: dict[tuple[Any, ...], Result] = {}
        for key, sessions in self.sessions().items():
            left = []
            for rows in sessions:
                end = min(rows[-1][self.time] + self.timeout, MAX_TIME)
                if end >= watermark != MAX_TIME:
                    left += rows
                    continue
                due[end, *key] = {"window_start": rows[0][self.time]} | {
                    name: aggregate(kind, [row[column] if column else None for row in rows])
                    for name, kind, column in self.aggregates
                }
            self.kept[key] = left
        self.kept = {key: rows for key, rows in self.kept.items() if rows}
        return due
