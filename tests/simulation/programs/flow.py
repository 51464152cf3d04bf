"""Rows of random programs as their slow twins see them: plain Python, and what is certain of their order and time."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pyarrow as pa

ROWS_MAX = 250
NUMBER_MAX = 10**7
"""Greater ones are left to tests of kernels: here all sums are exact."""
SCHEMA = pa.schema([("id", pa.int64()), ("time", pa.timestamp("us")), ("key", pa.string()), ("v", pa.int64())])


class Row(NamedTuple):
    """What every step of a program takes and gives."""

    id: int | None
    time: int
    """Microseconds."""
    key: str | None
    v: int | None


class DoesNotFitError(Exception):
    """An operator cannot stand here: what it gives would not be certain, or cannot be asked for."""


@dataclass(frozen=True)
class Flow:
    """The rows that a step gives."""

    rows: tuple[Row, ...]
    """If they are `ordered`, those of each key in the order in which they come."""
    ordered: bool = False
    timed: bool = True
    """Have they event time?"""
    shift_us: int = 0
    """-1 if it is that of windows."""
    punctual: bool = True
    """Never behind the watermark."""
    marked: bool = True
    """Does any source before make watermarks?"""
    sources: frozenset[int] = frozenset()
    """Nodes of the program."""

    def of(self, rows: Iterable[Row], **changes: Any) -> "Flow":
        """Other rows."""
        made = replace(self, rows=tuple(rows), **changes)
        if len(made.rows) > ROWS_MAX or any(
            abs(n) > NUMBER_MAX for row in made.rows for n in (row.id or 0, row.v or 0)
        ):
            raise DoesNotFitError("too much")
        return made

    def moment(self, row: Row) -> int:
        """Event time of a row."""
        return row.time + self.shift_us

    def require(self, *, timed: bool = False, ordered: bool = False, punctual: bool = True) -> None:
        """Raise DoesNotFitError unless it is so."""
        if (timed and not self.timed) or (ordered and not self.ordered) or (punctual and not self.punctual):
            raise DoesNotFitError("not certain")

    def require_different_times(self) -> None:
        """Raise DoesNotFitError if two rows of a key have one time: then the order in which they come would count."""
        if len({(row.key, row.time) for row in self.rows}) < len(self.rows):
            raise DoesNotFitError("rows of one time")

    def by_key(self) -> dict[str | None, list[Row]]:
        """Rows by their keys."""
        found: dict[str | None, list[Row]] = {}
        for row in self.rows:
            found.setdefault(row.key, []).append(row)
        return found


def total(numbers: Iterable[int | None]) -> int | None:
    """SQL's sum: null of nothing but nulls."""
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None


def both(left: int | None, right: int | None) -> int:
    """The sum of what is there."""
    return (left or 0) + (right or 0)
