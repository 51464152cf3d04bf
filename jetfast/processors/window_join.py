"""Joins rows of two streams that have equal keys and lie in one window, when the window ends."""

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from jetfast.core.batch import Batch, concatenate
from jetfast.core.items import Output
from jetfast.core.joins import LATE_PORTS, LEFT, RIGHT, SIDE_KINDS, Join
from jetfast.core.processor import Processor, ProcessorContext, StateBatch
from jetfast.core.windows import Window
from jetfast.kernels.joins import SlotMatches
from jetfast.processors import partition_bounds
from jetfast.processors.join_keys import KeySlots
from jetfast.processors.joined_rows import JoinedRows
from jetfast.processors.keyed_rows import KeyedRows, Times
from jetfast.processors.partition_bounds import PartitionBounds
from jetfast.types import BATCH_ROWS_MAX, MAX_TIME

WINDOW_SCHEMA = pa.schema([("window_start", pa.timestamp("us")), ("window_end", pa.timestamp("us"))])


class WindowJoinProcessor(Processor):
    """Rows wait by the frame in which they lie; when the watermark ends a window its rows are joined, all at once.

    Late rows, and those that missed a window, go to the late port of their side.

    Parameters
    ----------
    join : its result has window_start and window_end at the end
    window : tumbling or sliding
    """

    def __init__(self, join: Join, window: Window) -> None:
        self.join = join
        self.window = window

    def open(self, context: ProcessorContext) -> None:
        self.counters = context.counters
        self.inputs = [
            KeyedRows(side, port, kind, context)
            for side, port, kind in zip(self.join.sides, LATE_PORTS, SIDE_KINDS, strict=True)
        ]
        self.result = JoinedRows(self.join)
        self.bounds = PartitionBounds(context)
        """Windows that end at or before them were joined."""
        self.frames: tuple[dict[int, list[Batch]], dict[int, list[Batch]]] = ({}, {})
        """Of each side, the rows of each frame by its end."""
        self.restored: tuple[list[pa.RecordBatch], list[pa.RecordBatch]] = ([], [])

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
        for end in ends:
            yield from self.join_window(end)
        reach_us = self.window.size_us - self.window.slide_us
        for held in self.frames:
            for frame in [frame for frame in held if frame + reach_us <= watermark]:
                del held[frame]
        self.bounds.advance(watermark)

    def join_window(self, end: int) -> Iterator[Batch]:
        """The result of one window."""
        left, right = self.rows_of_window(LEFT, end), self.rows_of_window(RIGHT, end)
        keeps_left, keeps_right = self.join.join_type.keeps
        if (left.row_count == 0 and not keeps_right) or (right.row_count == 0 and not keeps_left):
            return
        keys = KeySlots(self.join)
        right_slots = keys.of_rows(RIGHT, right)
        matches = SlotMatches(right_slots, keys.limit)
        matches.probe(keys.of_rows(LEFT, left))
        left_part, right_part = self.result.left_part(left), self.result.right_part(right)
        if keeps_left:
            right_part = self.result.nulls[RIGHT].behind(right_part)
        while (pairs := matches.next(BATCH_ROWS_MAX, keeps_left)) is not None:
            left_rows, right_rows = pairs
            added = self.bounds_of_window(end, len(left_rows))
            yield self.result.pairs(left_part.take(left_rows), right_part.take(right_rows), [added])
        if keeps_right:
            unmatched = matches.unmatched()
            for start in range(0, len(unmatched), BATCH_ROWS_MAX):
                rows = right.take(unmatched[start : start + BATCH_ROWS_MAX])
                yield self.result.right_only(rows, [self.bounds_of_window(end, rows.row_count)])

    def rows_of_window(self, ordinal: int, end: int) -> Batch:
        """All rows of one side in the window that ends at `end`, but those for which it was joined before a restart."""
        held = self.frames[ordinal]
        first = end - self.window.size_us
        batches = [batch for frame in sorted(held) if first < frame <= end for batch in held[frame]]
        rows = concatenate(batches) if batches else Batch.empty(self.join.sides[ordinal].schema)
        if self.bounds.restored and rows.row_count:
            bounds = self.bounds.of_rows(rows.to_arrow(), self.join.sides[ordinal].keys)
            rows = rows.take(np.flatnonzero(np.broadcast_to(bounds, rows.row_count) < end).astype(np.int32))
        return rows

    def bounds_of_window(self, end: int, row_count: int) -> Batch:
        """The columns window_start and window_end."""
        columns = [
            pa.array(np.full(row_count, time, dtype="datetime64[us]")) for time in (end - self.window.size_us, end)
        ]
        return Batch.from_arrow(pa.RecordBatch.from_arrays(columns, schema=WINDOW_SCHEMA))

    def save_snapshot(self) -> Iterator[StateBatch]:
        for side, held in zip(self.inputs, self.frames, strict=True):
            batches = [batch for rows in held.values() for batch in rows]
            if batches:
                yield from side.saved(concatenate(batches))
        yield from self.bounds.save()

    def restore_snapshot(self, state: StateBatch) -> None:
        if state.kind == partition_bounds.KIND:
            self.bounds.restore(state)
        else:
            self.restored[SIDE_KINDS.index(state.kind)].append(state.rows)

    def finish_restore(self) -> None:
        for ordinal, (side, states) in enumerate(zip(self.inputs, self.restored, strict=True)):
            rows = side.joined(states)
            if rows is not None:
                times = side.with_times(rows)[1]
                self.hold(ordinal, rows, self.window.frames_of(times))
        self.restored = ([], [])
        self.bounds.finish_restore()
