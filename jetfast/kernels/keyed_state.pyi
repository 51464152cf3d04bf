"""Types of keyed_state.pyx: state of keys by slot, followed row by row."""

from typing import Any

import numpy as np
import numpy.typing as npt

Slots = npt.NDArray[np.uint32]
Times = npt.NDArray[np.int64]
Flags = npt.NDArray[np.uint8]

NEVER_SEEN: int

def note_times(slots: Slots, times: Times, seen: Times) -> None: ...  # seen, by slot, is raised
def keep_first(slots: Slots, times: Times, horizon: int, seen: Times) -> npt.NDArray[np.int32]: ...

# groups, shape (rows,); of each group its slot, the group before it (-1: none), and to when that state lived
def number_states(
    slots: Slots, times: Times, ttl: int, seen: Times, group_of_slot: npt.NDArray[np.int32]
) -> tuple[Times, Slots, npt.NDArray[np.int32], Times]: ...
def run_counts(slots: Slots, valid: Flags | None, counts: Times) -> Times: ...
def run_sums(
    slots: Slots, values: npt.NDArray[Any], valid: Flags | None, sums: npt.NDArray[Any]
) -> npt.NDArray[Any]: ...  # OverflowError
def run_extremes(
    slots: Slots,
    values: npt.NDArray[Any],
    valid: Flags | None,
    greatest: bool,
    counts: Times,
    extremes: npt.NDArray[Any],
) -> npt.NDArray[Any]: ...
