"""Rows that are kept and found again by number: few large batches that grow as rows come."""

from bisect import bisect_right

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from jetfast.core.batch import Batch, concatenate

Rows = npt.NDArray[np.int32]


class RowStore:
    """Rows numbered as they come. Batches that follow each other are joined when they are of like size (as in a binary
    counter): a row is copied O(log n) times, and O(log n) batches are looked at.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.batches: list[Batch] = []
        self.starts: list[int] = [0]
        """Number of the first row of each batch, and of the next one that will come."""

    def __len__(self) -> int:
        return self.starts[-1]

    @property
    def nbytes(self) -> int:
        """Bytes that the rows take."""
        return sum(batch.nbytes for batch in self.batches)

    def append(self, batch: Batch) -> None:
        """Add rows behind the others."""
        if batch.row_count == 0:
            return
        batches, starts = self.batches, self.starts
        first, row_count = len(batches), batch.row_count
        while first > 0 and batches[first - 1].row_count <= 2 * row_count:
            first -= 1
            row_count += batches[first].row_count
        batches[first:] = [concatenate([*batches[first:], batch])]
        starts[first + 1 :] = [starts[first] + row_count]

    def take(self, rows: Rows) -> Batch:
        """Rows by number, in that order."""
        batches = self.batches
        if len(rows) == 0:
            return Batch.empty(self.schema)
        if len(batches) > 1:
            lowest, highest = (bisect_right(self.starts, int(row)) - 1 for row in (rows.min(), rows.max()))
            batches = batches[lowest : highest + 1]
            if len(batches) > 1:
                return self.take_of_several(rows, lowest, highest)
            rows = rows - np.int32(self.starts[lowest])
        return batches[0].take(rows)

    def take_of_several(self, rows: Rows, lowest: int, highest: int) -> Batch:
        """As `take`, of rows that are in more than one of the batches from `lowest` to `highest`."""
        starts = np.array(self.starts[lowest + 1 : highest + 1], np.int32)
        homes = np.searchsorted(starts, rows, "right").astype(np.uint8)
        order = np.argsort(homes, kind="stable").astype(np.int32)
        bounds = np.searchsorted(homes[order], np.arange(highest - lowest + 2, dtype=np.uint8))
        parts = []
        for number in range(highest - lowest + 1):
            own = rows[order[bounds[number] : bounds[number + 1]]]
            if len(own):
                parts.append(self.batches[lowest + number].take(own - np.int32(self.starts[lowest + number])))
        places = np.empty(len(rows), np.int32)
        places[order] = np.arange(len(rows), dtype=np.int32)
        return concatenate(parts).take(places)
