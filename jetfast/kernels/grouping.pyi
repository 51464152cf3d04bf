"""Types of grouping.pyx: numbers for the places that occur, and the order of rows within groups."""

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

def number_places(places: Ints, starts: Ints | None = None) -> tuple[Ints, Ints, Ints]: ...

# groups, shape (rows,); group_places, shape (groups,), ascending within a span; bounds, shape (spans + 1,)
def order_by_group(
    groups: Ints, group_count: int, keys: Ints | None = None, second_keys: Ints | None = None
) -> Ints: ...  # rows by group, keys, second_keys, then as they come
