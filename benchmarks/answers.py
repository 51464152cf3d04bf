"""Row-by-row checks of what engines gave, against numpy. Values are k/64, so sums are exact in any order."""

from collections import deque
from collections.abc import Iterator, Mapping
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks.suite.batches import Events

Arrays = Mapping[str, npt.NDArray]
KINDS = ("count", "sum", "mean", "min", "max")


class WindowReference:
    """What each window must hold, in ascending order of its end.

    Frames are told apart once; a running total enters the frame that comes and leaves the one that goes. Least and
    greatest values, where asked for, are taken over the frames of each window anew. `value_nulls` tells which values
    are NULL: they count as rows, and in nothing else.
    """

    def __init__(
        self,
        events: Events,
        key_count: int,
        size_us: int,
        slide_us: int,
        extremes: bool = False,
        value_nulls: npt.NDArray[np.bool_] | None = None,
    ) -> None:
        self.key_count = key_count
        self.size_us = size_us
        self.slide_us = slide_us
        self.extremes = extremes
        frames = events.times // slide_us
        self.first_frame = int(frames.min())
        self.frame_count = int(frames.max()) - self.first_frame + 1
        short = (frames - self.first_frame).astype(np.uint16)  # the radix sort of numpy is for 16 bits
        assert self.frame_count <= np.iinfo(np.uint16).max
        order = np.argsort(short, kind="stable")
        self.keys, self.values = events.keys[order], events.values[order]
        self.valid = None if value_nulls is None else ~value_nulls[order]
        self.starts = np.concatenate([[0], np.cumsum(np.bincount(short, minlength=self.frame_count))])

    def rows(self, index: int) -> slice:
        """Where the rows of one frame are; none outside the input."""
        return slice(self.starts[index], self.starts[index + 1]) if 0 <= index < self.frame_count else slice(0, 0)

    def totals(self, rows: slice) -> tuple[npt.NDArray, npt.NDArray, npt.NDArray]:
        """Rows, values and sum of values by key."""
        keys, values = self.keys[rows], self.values[rows]
        counts = np.bincount(keys, minlength=self.key_count)
        if self.valid is None:
            return counts, counts, np.bincount(keys, values, self.key_count)
        valid = self.valid[rows]
        valid_counts = np.bincount(keys[valid], minlength=self.key_count)
        return counts, valid_counts, np.bincount(keys[valid], values[valid], self.key_count)

    def windows(self, watermark: int) -> Iterator[tuple[int, dict[str, npt.NDArray]]]:
        """Yield (end, aggregates by key) of every window with a row that the watermark closes; arrays are reused."""
        hops = self.size_us // self.slide_us
        counts, value_counts = (np.zeros(self.key_count, dtype=np.int64) for _ in range(2))
        sums = np.zeros(self.key_count)
        lows: deque[npt.NDArray] = deque(maxlen=hops)
        highs: deque[npt.NDArray] = deque(maxlen=hops)
        for index in range(self.frame_count + hops - 1):
            end = (self.first_frame + index + 1) * self.slide_us
            if end > watermark:
                return
            entering, leaving = self.rows(index), self.rows(index - hops)
            totals = zip((counts, value_counts, sums), self.totals(entering), self.totals(leaving), strict=True)
            for total, entered, left in totals:
                total += entered
                total -= left
            window = {"count": counts, "values": value_counts, "sum": sums}
            if self.extremes:
                for kept, ufunc, start in ((lows, np.minimum, np.inf), (highs, np.maximum, -np.inf)):
                    frame = np.full(self.key_count, start)
                    ufunc.at(frame, self.keys[entering], self.values[entering])
                    kept.append(frame)
                window |= {"min": np.min(lows, axis=0), "max": np.max(highs, axis=0)}
            yield end, window


class WindowCheck:
    """Takes results in ascending order of window end, in pieces of any size; `finish` tells whether all were right.

    Right: no window and key more, none less, none twice, every aggregate equal to the last bit.
    """

    def __init__(self, reference: WindowReference, watermark: int) -> None:
        self.windows = reference.windows(watermark)
        self.equal = True
        self.end: int | None = None
        self.window: dict[str, npt.NDArray] = {}
        self.seen = np.zeros(reference.key_count, dtype=bool)
        self.rows = 0

    def take(self, keys: npt.NDArray, ends: npt.NDArray, aggregates: Arrays) -> None:
        """Check some rows. Ends: int64 microseconds; aggregates by kind: count, sum, mean, min, max."""
        if not self.equal or not len(keys):
            return
        cuts = [0, *(np.flatnonzero(np.diff(ends)) + 1).tolist(), len(ends)]
        for start, stop in pairwise(cuts):
            self.equal = self.equal and self._take_one_end(
                keys[start:stop], int(ends[start]), {kind: array[start:stop] for kind, array in aggregates.items()}
            )

    def take_batch(self, batch: pa.RecordBatch, size_us: int, keys: npt.NDArray | None = None) -> None:
        """Check results of jetfast, whose aggregates are named by their kind. `keys`: if they are not int64 there."""
        starts, ends = (batch.column(name).cast(pa.int64()).to_numpy() for name in ("window_start", "window_end"))
        self.equal = self.equal and bool((ends - starts == size_us).all())
        keys = batch.column("key").to_numpy() if keys is None else keys
        kinds = [name for name in batch.schema.names if name in KINDS]
        self.take(keys, ends, {kind: batch.column(kind).to_numpy(zero_copy_only=False) for kind in kinds})

    def finish(self) -> bool:
        """True if everything was right and nothing is missing."""
        return self.equal and self._is_complete() and all(not window["count"].any() for _, window in self.windows)

    def _take_one_end(self, keys: npt.NDArray, end: int, aggregates: Arrays) -> bool:
        if end != self.end and not self._go_to(end):
            return False
        if keys.min() < 0 or keys.max() >= len(self.seen):
            return False
        self.seen[keys] = True
        self.rows += len(keys)
        for kind, found in aggregates.items():
            expected = self.window[kind][keys]
            # The mean of no values is NULL, and NaN as a numpy array; comparing with NaN in mind costs, so only then.
            if not (np.array_equal(found, expected) or np.array_equal(found, expected, equal_nan=True)):
                return False
        return True

    def _go_to(self, end: int) -> bool:
        """Leave the window that stands and go to that with this end; False if a window between them has rows."""
        if not self._is_complete():
            return False
        self.seen[:] = False
        self.rows = 0
        for found, window in self.windows:
            self.end, self.window = found, window
            if found == end:
                with np.errstate(invalid="ignore"):  # keys without values
                    window["mean"] = window["sum"] / window["values"]
                return True
            if window["count"].any():
                return False
        return False

    def _is_complete(self) -> bool:
        """Was each key with rows in the window that stands seen, exactly once?"""
        if not self.window:
            return True
        present = self.window["count"] > 0
        return self.rows == np.count_nonzero(present) and bool((self.seen == present).all())


def same_windows(
    reference: WindowReference, watermark: int, keys: npt.NDArray, ends: npt.NDArray, aggregates: Arrays
) -> bool:
    """Check results in any order."""
    frames = ends // reference.slide_us - reference.first_frame
    if len(frames) and (frames.min() < 0 or frames.max() > np.iinfo(np.uint16).max):
        return False
    order = np.argsort(frames.astype(np.uint16), kind="stable")
    check = WindowCheck(reference, watermark)
    check.take(keys[order], ends[order], {kind: array[order] for kind, array in aggregates.items()})
    return check.finish()


def same_groups(events: Events, key_count: int, keys: npt.NDArray, aggregates: Arrays) -> bool:
    """Check counts and sums of a plain group by key, in any order."""
    counts = np.bincount(events.keys, minlength=key_count)
    sums = np.bincount(events.keys, events.values, key_count)
    return (
        len(keys) == np.count_nonzero(counts)
        and len(np.unique(keys)) == len(keys)
        and np.array_equal(aggregates["count"], counts[keys])
        and np.array_equal(aggregates["sum"], sums[keys])
    )


def same_split(columns: list[npt.NDArray], pieces: list[list[npt.NDArray]]) -> bool:
    """Every row in exactly one piece, each key in one piece, and the order of rows kept inside a piece."""
    keys = columns[0]
    home = np.full(int(keys.max()) + 1, -1)
    for index, piece in enumerate(pieces):
        if ((home[piece[0]] != -1) & (home[piece[0]] != index)).any():
            return False
        home[piece[0]] = index
    ids = home[keys]
    for index, piece in enumerate(pieces):
        if not all(np.array_equal(column[ids == index], part) for column, part in zip(columns, piece, strict=True)):
            return False
    return sum(len(piece[0]) for piece in pieces) == len(keys)
