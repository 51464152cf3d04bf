"""What flows through a random pipeline as its oracle sees it: exact rows, their types, and what is certain of them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Protocol

import pyarrow as pa

from jetfast.api.pipeline import Pipeline
from jetfast.api.stage import Stage
from tests.differential.values import microseconds
from tests.simulation.programs.flow import DoesNotFitError

ROWS_MAX = 3000
Rows = Sequence[tuple[Any, ...]]


class FailsError(Exception):
    """The job must fail: a row is an error. `mentions` are texts that its message must hold."""

    def __init__(self, *mentions: str) -> None:
        super().__init__(*mentions)
        self.mentions = mentions


@dataclass(frozen=True)
class Flow:
    """The rows that a step gives."""

    types: Mapping[str, pa.DataType]
    """Of the columns in their order, without their layout."""
    rows: tuple[tuple[Any, ...], ...]
    time: str | None = None
    """Name of the column with event time."""
    shift_us: int = 0
    """-1 if event time is the last moment of a window."""
    ordered: bool = False
    """Do rows come in this order at any worker that sees several of them?"""
    near: frozenset[str] = frozenset()
    """Columns whose values are known but for the last digits: no step may compute with them."""
    sources: frozenset[int] = frozenset()
    """Nodes of sources behind it."""
    sorted_output: bool = False
    """Must a sink hold the rows in this order?"""

    def of(self, rows: Iterable[tuple[Any, ...]], **changes: Any) -> "Flow":
        """Other rows."""
        made = replace(self, rows=tuple(rows), **{"sorted_output": False, **changes})
        made = replace(made, near=made.near & set(made.types))
        if len(made.rows) > ROWS_MAX:
            raise DoesNotFitError("too many rows")
        return made

    @property
    def names(self) -> list[str]:
        return list(self.types)

    @property
    def exact_types(self) -> dict[str, pa.DataType]:
        """Of columns that steps may compute with."""
        return {name: data_type for name, data_type in self.types.items() if name not in self.near}

    def place(self, name: str) -> int:
        """Where a column is. Raises DoesNotFitError if there is none."""
        if name not in self.types:
            raise DoesNotFitError(name)
        return self.names.index(name)

    def column(self, name: str) -> list[Any]:
        """Values of a column."""
        place = self.place(name)
        return [row[place] for row in self.rows]

    def moments(self) -> list[int]:
        """Event times in microseconds."""
        if self.time is None:
            raise DoesNotFitError("no event time")
        data_type = self.types[self.time]
        return [microseconds(ticks, data_type) + self.shift_us for ticks in self.column(self.time)]

    def require_exact(self, *names: str) -> None:
        """Raise DoesNotFitError unless all columns (these, if given) are there and exact."""
        for name in names or self.names:
            self.place(name)
            if name in self.near:
                raise DoesNotFitError(f"{name} is not exact")


class Operator(Protocol):
    """A node of a pipeline: a frozen dataclass whose fields are all that it is."""

    INPUTS: int

    @classmethod
    def draw(cls, random: Random, flows: Sequence[Flow]) -> "Operator":
        """One that fits these inputs, most likely. Raises DoesNotFitError."""

    def build(self, pipeline: Pipeline, name: str, stages: Sequence[Stage]) -> Stage:
        """Add its steps."""

    def compute(self, node: int, flows: Sequence[Flow]) -> Flow:
        """What it gives. Raises DoesNotFitError or FailsError."""


def choose(random: Random, names: Iterable[str], why: str = "no such column") -> str:
    """One of the names. Raises DoesNotFitError if there are none."""
    known = list(names)
    if not known:
        raise DoesNotFitError(why)
    return random.choice(known)


def choose_key(random: Random, flow: Flow, *, most: int = 2) -> tuple[str, ...]:
    """Columns to group by: mostly those that were made for it."""
    likely = [name for name in flow.exact_types if name.startswith("k")]
    keys = [choose(random, likely if likely and random.random() < 0.7 else flow.exact_types)]
    if random.random() < 0.3 and most > 1:
        keys.append(choose(random, flow.exact_types))
    return tuple(dict.fromkeys(keys))


Check = Callable[[pa.DataType], bool]
