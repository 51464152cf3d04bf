"""Rows by key and time, as a step gets them over one inbound edge: what its processors need to know."""

from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True)
class KeyedInput:
    """Rows that come over one edge, partitioned by their keys."""

    schema: pa.Schema
    keys: tuple[str, ...]
    columns: tuple[str, ...]
    """What the result has of these rows; of a join, besides the keys."""
    time: str | None = None
    """Event-time column; None: the rows have no time that counts."""
    time_shift_us: int = 0
    """Added to that column."""
    late_columns: tuple[str, ...] = ()
    """What late rows have of it."""
