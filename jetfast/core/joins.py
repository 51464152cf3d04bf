"""Joins of two stages: which rows belong together, and what a processor needs to know of each side."""

from dataclasses import dataclass
from enum import Enum

import pyarrow as pa

LEFT, RIGHT = 0, 1
"""Inbound edges of a join, and indices of its sides."""
LATE_PORTS = (1, 2)
"""Output ports with the late rows of either side: its columns, and `missed_until`."""


class JoinType(Enum):
    """Which rows without a match are in the result, with nulls beside them."""

    INNER = "inner"
    LEFT = "left"
    RIGHT = "right"
    OUTER = "outer"

    @property
    def keeps(self) -> tuple[bool, bool]:
        """Are rows without a match kept, of the left and of the right side?"""
        return self in (JoinType.LEFT, JoinType.OUTER), self in (JoinType.RIGHT, JoinType.OUTER)


@dataclass(frozen=True)
class JoinSide:
    """One side of a join: rows that come over one edge."""

    schema: pa.Schema
    keys: tuple[str, ...]
    """Columns of equal types on both sides. A row with a null among them has no match."""
    columns: tuple[str, ...]
    """What the result has of this side, besides the keys."""
    time: str | None = None
    """Event-time column; None: its rows have no time that counts."""
    time_shift_us: int = 0
    """Added to that column."""
    late_columns: tuple[str, ...] = ()
    """What late rows have of it."""


@dataclass(frozen=True)
class Join:
    """Two sides and their result, which has the keys, columns of the left and of the right, and what the join adds."""

    sides: tuple[JoinSide, JoinSide]
    join_type: JoinType
    schema: pa.Schema

    @property
    def key_count(self) -> int:
        return len(self.sides[LEFT].keys)
