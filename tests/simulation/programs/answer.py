"""What must be in the sink of a random program in the end."""

import datetime
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.programs.flow import Row

EPOCH = datetime.datetime(1970, 1, 1)
MICROSECOND = datetime.timedelta(microseconds=1)


@dataclass(frozen=True)
class Answer:
    """Rows in any order."""

    columns: tuple[str, ...]
    expected: "Counter[tuple[Any, ...]]"
    sums: bool = False
    """Do only the sums of each first column count? Where rows belong differs from run to run then."""
    digits: Mapping[str, int | None] = field(default_factory=dict)
    """Of columns that are not exact: digits behind the point that are."""
    any_order: bool = False
    """Of lists: values may come in any order."""

    def of(self, rows: Iterable[Mapping[str, Any]]) -> "Counter[tuple[Any, ...]]":
        """Rows of a sink in the form of `expected`."""
        found = Counter(tuple(self.plain(row[name], self.digits.get(name)) for name in self.columns) for row in rows)
        return sums_of(found) if self.sums else found

    def plain(self, value: Any, digits: int | None) -> Any:
        made = plain(value, digits)
        return tuple(sorted(made)) if self.any_order and isinstance(made, tuple) else made


def rows_answer(rows: Iterable[Row]) -> Answer:
    """Rows as they are."""
    return Answer(Row._fields, Counter(tuple(plain(value) for value in row) for row in rows))


def ids_answer(rows: Iterable[Row]) -> Answer:
    """Their ids alone."""
    return Answer(("id",), Counter((plain(row.id),) for row in rows))


def sums_of(rows: "Counter[tuple[Any, ...]]") -> "Counter[tuple[Any, ...]]":
    """The first column, and the sum of each other."""
    sums: dict[Any, list[int]] = {}
    for (key, *numbers), count in rows.items():
        of_key = sums.setdefault(key, [0] * len(numbers))
        for place, number in enumerate(numbers):
            of_key[place] += int(number or 0) * count
    return Counter((key, *numbers) for key, numbers in sums.items())


def plain(value: Any, digits: int | None = None) -> Any:
    """A value that can be compared: times in microseconds; floats to nine digits, for they are added in any order."""
    if isinstance(value, datetime.datetime):
        return (value - EPOCH) // MICROSECOND
    if isinstance(value, float):
        rounded = float(f"{value:.9g}") if digits is None else round(value, digits)
        return int(rounded) if rounded.is_integer() else rounded
    if isinstance(value, list):
        return tuple(plain(each, digits) for each in value)
    if isinstance(value, dict):
        return tuple(plain(each, digits) for each in value.values())
    return value
