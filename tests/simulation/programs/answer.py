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

    def of(self, rows: Iterable[Mapping[str, Any]], repeats: bool = False) -> "Counter[tuple[Any, ...]]":
        """Rows of a sink in the form of `expected`. `repeats`: the sink may hold rows more than once."""
        found = Counter(tuple(self.plain(row[name], self.digits.get(name)) for name in self.columns) for row in rows)
        if not self.sums:
            return found
        return self.sums_of_some(found) if repeats else sums_of(found)

    def sums_of_some(self, rows: "Counter[tuple[Any, ...]]") -> "Counter[tuple[Any, ...]]":
        """The sums that are expected of each key if some of its rows have them; else those of all of its rows.

        A sink that repeats rows has them of several attempts, and each attempt may put them into other windows.
        """
        reached: dict[Any, set[tuple[int, ...]]] = {}
        for key, *numbers in rows.elements():
            sums = reached.setdefault(key, {(0,) * len(numbers)})
            sums |= {tuple(a + int(b or 0) for a, b in zip(sum_, numbers, strict=True)) for sum_ in sums}
        expected = {key: tuple(numbers) for key, *numbers in self.expected}
        found = Counter[tuple[Any, ...]]()
        for key, *numbers in sums_of(rows):
            wanted = expected.get(key)
            found[(key, *(wanted if wanted in reached[key] else numbers))] += 1
        return found

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
