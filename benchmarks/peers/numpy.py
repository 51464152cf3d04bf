"""NumPy: splitting a batch by a hash of its key."""

import numpy as np
import numpy.typing as npt

MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # Fibonacci hashing (Knuth 1973): the cheapest that mixes

Columns = list[npt.NDArray]


def part_ids(keys: npt.NDArray[np.int64], parts: int) -> npt.NDArray[np.uint8]:
    """The part of each row; parts: a power of two."""
    return ((keys.view(np.uint64) * MULTIPLIER) >> np.uint64(65 - parts.bit_length())).astype(np.uint8)


def split_by_sort(columns: Columns, parts: int) -> list[Columns]:
    """Stable radix sort of one byte a row, gather each column, cut."""
    ids = part_ids(columns[0], parts)
    order = np.argsort(ids, kind="stable")
    ends = np.cumsum(np.bincount(ids, minlength=parts))[:-1]
    return [list(pieces) for pieces in zip(*(np.split(column[order], ends) for column in columns), strict=True)]


def split_by_filter(columns: Columns, parts: int) -> list[Columns]:
    """Find the rows of each part, gather each column for it."""
    ids = part_ids(columns[0], parts)
    rows_of_parts = [np.flatnonzero(ids == part) for part in range(parts)]
    return [[column.take(rows) for column in columns] for rows in rows_of_parts]


SPLIT = {"sort": split_by_sort, "filter": split_by_filter}
