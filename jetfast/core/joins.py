"""Joins of two stages: which rows are in the result, and what a processor needs to know."""

from dataclasses import dataclass

import pyarrow as pa

from jetfast.core.keyed_input import KeyedInput
from jetfast.types import SpelledEnum

LEFT, RIGHT = 0, 1
"""Inbound edges of a join, and indices of its sides."""
LATE_PORTS = (1, 2)
"""Output ports with the late rows of either side: its columns, and `missed_until`."""

SIDE_KINDS = ("left rows", "right rows")
"""Kinds of the rows of either side that are saved."""


class JoinType(SpelledEnum):
    """Which rows without a match are in the result, with nulls beside them."""

    INNER = "inner"
    LEFT = "left"
    RIGHT = "right"
    OUTER = "outer"

    @classmethod
    def _spell(cls, text: str) -> str:
        """Spark's "left_outer", "fullouter" and "full" mean the same joins."""
        word = super()._spell(text)
        return "outer" if word.startswith("full") else word.removesuffix("outer") or word

    @property
    def keeps(self) -> tuple[bool, bool]:
        """Are rows without a match kept, of the left and of the right side?"""
        return self in (JoinType.LEFT, JoinType.OUTER), self in (JoinType.RIGHT, JoinType.OUTER)


@dataclass(frozen=True)
class Join:
    """Two sides and their result, which has the keys, columns of the left and of the right, and what the join adds."""

    sides: tuple[KeyedInput, KeyedInput]
    """Their keys are of equal types; a row with a null among them has no match."""
    join_type: JoinType
    schema: pa.Schema

    @property
    def key_count(self) -> int:
        return len(self.sides[LEFT].keys)
