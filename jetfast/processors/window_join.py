"""Joins rows of two streams that have equal keys and lie in one window, when the window ends."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from jetfast.core.batch import Batch, concatenate
from jetfast.core.items import Output
from jetfast.core.joins import LEFT, RIGHT, Join
from jetfast.core.processor import ProcessorContext, StateBatch
from jetfast.core.windows import Window
from jetfast.kernels.joins import SlotMatches
from jetfast.processors.join_keys import KeySlots
from jetfast.processors.keyed_rows import Times
from jetfast.processors.stream_join import StreamJoin
from jetfast.types import BATCH_ROWS_MAX, MAX_TIME

WINDOW_SCHEMA = pa.schema([("window_start", pa.timestamp("us")), ("window_end", pa.timestamp("us"))])

WINDOW = pa.field("\x01window", pa.int64())
"""Column of rows of several windows that are joined together: the end of the window."""

GATHERED_ROWS = 8192
"""Windows that have so many rows together are joined at once: a join by itself costs as much as thousands of rows."""


class WindowRows(NamedTuple):
    """The rows of both sides in one window."""

    end: int
    sides: tuple[list[Batch], list[Batch]]

    def count(self, ordinal: int) -> int:
        """Rows of one side."""
        return sum(batch.row_count for batch in self.sides[ordinal])

    @property
    def row_count(self) -> int:
        """Rows of both sides."""
        return self.count(LEFT) + self.count(RIGHT)


class WindowJoinProcessor(StreamJoin):
    """Rows wait by the frame in which they lie; when the watermark ends a window its rows are joined, all at once.

    Late rows, and those that missed a window, go to the late port of their side.

    Parameters
    ----------
    join : its result has window_start and window_end at the end
    window : tumbling or sliding
    """

    def __init__(self, join: Join, window: Window) -> None:
        super().__init__(join)
        self.window = window

    def open(self, context: ProcessorContext) -> None:
        self.counters = context.counters
        super().open(context)
        self.keys = KeySlots(self.join)
        self.keys_and_windows = KeySlots(self.join, [WINDOW])
        """Both for the rows of one join."""
        self.frames: tuple[dict[int, list[Batch]], dict[int, list[Batch]]] = ({}, {})
        """Of each side, the rows of each frame by its end."""

    def process(self, ordinal: int, batch: Batch) -> Iterable[Output]:
        side = self.inputs[ordinal]
        batch, times = side.with_times(batch)
        frames = self.window.frames_of(times)
        late: tuple[Output, ...] = ()
        if not self.bounds.is_open:
            bounds = self.bounds.of_rows(batch.to_arrow(), side.input.keys)
            missed = np.flatnonzero(frames <= bounds)
            if len(missed):
                last = self.window.last_windows_of(frames)
                ended = self.window.frames_of(np.broadcast_to(bounds, len(frames))) - self.window.slide_us
                late = side.late(batch, missed, np.minimum(ended, last)[missed])
                kept = np.flatnonzero(last > bounds)
                partly_late = len(missed) - (len(frames) - len(kept))
                self.counters["late_rows"] += len(frames) - len(kept)
                self.counters["partly_late_rows"] += partly_late
                self.counters["on_time_rows"] -= partly_late
                batch, frames = batch.take(kept.astype(np.int32)), frames[kept]
        self.counters["on_time_rows"] += batch.row_count
        self.hold(ordinal, batch, frames)
        return late

    def hold(self, ordinal: int, batch: Batch, frames: Times) -> None:
        """Keep rows by their frames."""
        if batch.row_count == 0:
            return
        held = self.frames[ordinal]
        first, last = int(frames.min()), int(frames.max())
        if first == last:
            held.setdefault(first, []).append(batch)
            return
        order = np.argsort(frames, kind="stable")
        ends = frames[order]
        for rows in np.split(order, np.flatnonzero(np.diff(ends)) + 1):
            held.setdefault(int(frames[rows[0]]), []).append(batch.take(rows.astype(np.int32)))

    def process_watermark(self, watermark: int) -> Iterable[Output]:
        ends = self.ended_windows(watermark)
        if not ends:
            self.bounds.advance(watermark)
            return ()
        return self.end_windows(ends, watermark)

    def complete(self) -> Iterable[Output]:
        return self.process_watermark(MAX_TIME)

    def ended_windows(self, watermark: int) -> list[int]:
        """Ends of the windows with rows that end at or before a watermark and were not joined yet, ascending."""
        size_us, slide_us = self.window.size_us, self.window.slide_us
        before = self.bounds.watermark
        ends: set[int] = set()
        for held in self.frames:
            for frame in held:
                if frame <= watermark:
                    first = max(frame, self.window.frame_of(before))
                    ends.update(range(first, min(frame + size_us - slide_us, watermark) + 1, slide_us))
        return sorted(ends)

    def end_windows(self, ends: list[int], watermark: int) -> Iterator[Output]:
        """The results of windows, ascending; then rows that are in no further window are let go."""
        for windows in self.gather(ends):
            yield from self.join_windows(windows)
        reach_us = self.window.size_us - self.window.slide_us
        for held in self.frames:
            for frame in [frame for frame in held if frame + reach_us <= watermark]:
                del held[frame]
        self.bounds.advance(watermark)

    def gather(self, ends: list[int]) -> Iterator[list[WindowRows]]:
        """Windows that may have a result, those that have few rows several together."""
        keeps_left, keeps_right = self.join.join_type.keeps
        frames = [sorted(held) for held in self.frames]
        gathered: list[WindowRows] = []
        row_count = 0
        for end in ends:
            left, right = (self.rows_of_window(ordinal, end, frames[ordinal]) for ordinal in (LEFT, RIGHT))
            if (not left and not keeps_right) or (not right and not keeps_left):
                continue
            window = WindowRows(end, (left, right))
            if gathered and row_count + window.row_count > GATHERED_ROWS:
                yield gathered
                gathered, row_count = [], 0
            gathered.append(window)
            row_count += window.row_count
        if gathered:
            yield gathered

    def rows_of_window(self, ordinal: int, end: int, frames: list[int]) -> list[Batch]:
        """All rows of one side in the window that ends at `end`. `frames`: those that have rows, ascending."""
        chosen = frames[bisect_right(frames, end - self.window.size_us) : bisect_right(frames, end)]
        return [batch for frame in chosen for batch in self.frames[ordinal][frame]]

    def join_windows(self, windows: list[WindowRows]) -> Iterator[Batch]:
        """The results of windows: rows of several meet by their window, too."""
        keeps_left, keeps_right = self.join.join_type.keeps
        (left, left_ends), (right, right_ends) = (self.rows_of_side(ordinal, windows) for ordinal in (LEFT, RIGHT))
        keys = self.keys if len(windows) == 1 else self.keys_and_windows
        keys.index.clear()
        if right.row_count <= left.row_count:
            right_slots = keys.of_rows(RIGHT, right)
            left_slots = keys.find(LEFT, left)
        else:
            left_slots = keys.of_rows(LEFT, left)
            right_slots = keys.find(RIGHT, right)
        matches = SlotMatches(right_slots, keys.limit)
        matches.probe(left_slots)
        left_part, right_part = self.result.left_part(left), self.result.right_part(right)
        if keeps_left:
            right_part = self.result.nulls[RIGHT].behind(right_part)
        while (pairs := matches.next(BATCH_ROWS_MAX, keeps_left)) is not None:
            left_rows, right_rows = pairs
            bounds = self.bounds_of_windows(left_ends[left_rows])
            yield self.result.pairs(left_part.take(left_rows), right_part.take(right_rows), [bounds])
        if keeps_right:
            unmatched = matches.unmatched()
            for start in range(0, len(unmatched), BATCH_ROWS_MAX):
                rows = unmatched[start : start + BATCH_ROWS_MAX]
                yield self.result.right_only(right.take(rows), [self.bounds_of_windows(right_ends[rows])])

    def rows_of_side(self, ordinal: int, windows: list[WindowRows]) -> tuple[Batch, Times]:
        """Rows of one side, with their windows as a column if these are several; and the end of each one's window.

        Those for which a window was joined before a restart are left out.
        """
        side = self.join.sides[ordinal]
        batches = [batch for window in windows for batch in window.sides[ordinal]]
        rows = concatenate(batches) if batches else Batch.empty(side.schema)
        ends = np.repeat([window.end for window in windows], [window.count(ordinal) for window in windows])
        if self.bounds.restored and rows.row_count:
            kept = np.flatnonzero(self.bounds.of_rows(rows.to_arrow(), side.keys) < ends)
            rows, ends = rows.take(kept.astype(np.int32)), ends[kept]
        if len(windows) > 1:
            rows = rows.with_columns(Batch.from_arrow(pa.record_batch([pa.array(ends)], schema=pa.schema([WINDOW]))))
        return rows, ends

    def bounds_of_windows(self, ends: Times) -> Batch:
        """The columns window_start and window_end."""
        columns = [
            pa.Array.from_buffers(field.type, len(times), [None, pa.py_buffer(times)])
            for field, times in zip(WINDOW_SCHEMA, (ends - self.window.size_us, ends), strict=True)
        ]
        return Batch.from_arrow(pa.RecordBatch.from_arrays(columns, schema=WINDOW_SCHEMA))

    def save_snapshot(self) -> Iterator[StateBatch]:
        for side, held in zip(self.inputs, self.frames, strict=True):
            batches = [batch for rows in held.values() for batch in rows]
            if batches:
                yield from side.saved(concatenate(batches))
        yield from self.bounds.save()

    def take_back(self, ordinal: int, rows: Batch, states: Sequence[pa.RecordBatch]) -> None:
        times = self.inputs[ordinal].with_times(rows)[1]
        self.hold(ordinal, rows, self.window.frames_of(times))
