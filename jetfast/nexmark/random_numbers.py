"""Random numbers by place instead of by order: those of a row are the same, whoever makes it beside which others."""

import numpy as np
import numpy.typing as npt

_STEP = 0x9E3779B97F4A7C15
_WORD = (1 << 64) - 1


def draw_words(rows: npt.NDArray[np.int64], seed: int, column: int) -> npt.NDArray[np.uint64]:
    """Return 64 random bits for each row number: SplitMix64 (Steele, Lea and Flood, 2014) at place `row`.

    Parameters
    ----------
    rows : row numbers, int64, shape (rows,)
    seed : not negative; another seed gives other numbers
    column : which of the independent series of a seed
    """
    words = rows.astype(np.uint64)
    words *= np.uint64(_STEP)
    words += np.uint64(_mix((seed * 64 + column + 1) * _STEP & _WORD))
    words ^= words >> np.uint64(30)
    words *= np.uint64(0xBF58476D1CE4E5B9)
    words ^= words >> np.uint64(27)
    words *= np.uint64(0x94D049BB133111EB)
    words ^= words >> np.uint64(31)
    return words


def pick_below(words: npt.NDArray[np.uint64], limits: npt.NDArray[np.int64] | int) -> npt.NDArray[np.int64]:
    """Return a number in [0, limit) of the upper 32 bits of each word; limits are at least 1 and below 2**31."""
    picked = words >> np.uint64(32)
    picked *= np.asarray(limits).astype(np.uint64)
    picked >>= np.uint64(32)
    return picked.view(np.int64)


def one_in(words: npt.NDArray[np.uint64], power_of_two: int) -> npt.NDArray[np.bool_]:
    """Return true for one row of `power_of_two`, by the lower bits of its word."""
    chosen: npt.NDArray[np.bool_] = (words & np.uint64(power_of_two - 1)) == 0
    return chosen


def _mix(word: int) -> int:
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 & _WORD
    word = (word ^ word >> 27) * 0x94D049BB133111EB & _WORD
    return word ^ word >> 31
