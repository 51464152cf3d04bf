"""Which results of a window are kept: the best ones by one aggregate, and what "best" means."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from jetfast.core.sort_order import Order, SortKey, order_of, sortable, take_rows

RANK = "rank"
WINDOW_END = "window_end"


@dataclass(frozen=True)
class TopResults:
    """The `count` best results of each window, or of each group of keys in it.

    The greatest values of `by` are best (`ascending`: the least), NaN counts as greater than any number, null is worst.
    Of equal values the least keys are best, column by column, ascending, nulls last: so there are never more than
    `count`, and always the same. kernels.windows.WindowTable.keep_top chooses in the same way.
    """

    by: str
    count: int
    keys: tuple[str, ...]
    """All keys of the window, in their order."""
    ascending: bool = False
    per: tuple[str, ...] = ()
    """Those of the keys that make a group."""

    def choose(self, results: pa.Table) -> tuple[pa.Table, npt.NDArray[np.int64]]:
        """Return the best results of each window and group in order, and the rank of each, from 1 on."""
        direction: Order = "ascending" if self.ascending else "descending"
        # Arrow puts nulls last.
        order: list[SortKey] = [(WINDOW_END, "ascending"), *((key, "ascending") for key in self.per)]
        sorted_by = results
        if pa.types.is_floating(results.schema.field(self.by).type):  # Arrow puts NaN last, whatever the direction
            sorted_by = results.append_column("\x01nan", pc.is_nan(sortable(results[self.by])))
            order.append(("\x01nan", direction))
        order += [(self.by, direction), *((key, "ascending") for key in self.keys if key not in self.per)]
        chosen = take_rows(results, order_of(sorted_by, order))
        ranks = self._ranks(chosen)
        best = np.flatnonzero(ranks <= self.count)
        return take_rows(chosen, pa.array(best)), ranks[best]

    def _ranks(self, ordered: pa.Table) -> npt.NDArray[np.int64]:
        """Number the rows of each window and group, from 1 on; shape (rows,)."""
        row = np.arange(len(ordered))
        starts = row == 0
        for name in (WINDOW_END, *self.per):
            codes = (
                sortable(ordered[name]).combine_chunks().dictionary_encode(null_encoding="encode").indices.to_numpy()
            )
            starts[1:] |= codes[1:] != codes[:-1]
        ranks: npt.NDArray[np.int64] = row - np.maximum.accumulate(np.where(starts, row, 0)) + 1
        return ranks
