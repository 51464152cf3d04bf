"""Joins rows of two streams that have equal keys and lie near each other in time, as they come."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from jetfast.core.batch import Batch
from jetfast.core.items import Output, Watermark
from jetfast.core.joins import LEFT, RIGHT, Join
from jetfast.core.processor import ProcessorContext, StateBatch
from jetfast.kernels.joins import NO_SLOT
from jetfast.processors import kept_rows
from jetfast.processors.join_keys import KeySlots
from jetfast.processors.kept_rows import KeptRows
from jetfast.processors.keyed_rows import Times
from jetfast.processors.stream_join import StreamJoin
from jetfast.types import BATCH_ROWS_MAX, MAX_TIME, MIN_TIME

MATCHED = pa.field("\x01matched", pa.bool_())
"""Column of saved rows: has the row met one of the other side?"""


class IntervalJoinProcessor(StreamJoin):
    """A row of the left side at time t meets those of the right side with a time in [t + lower_us, t + upper_us].

    A pair leaves when the later of its rows has come, and bears the greater of their times. Rows without a match leave
    when the watermark says that none can come any more; the watermark is held back by as much.

    Parameters
    ----------
    join : its result has the time of the pair (timestamp[us]) at the end
    lower_us, upper_us : bounds of the time of the right row less that of the left one; lower_us <= upper_us
    """

    forwards_watermark = False

    def __init__(self, join: Join, lower_us: int, upper_us: int) -> None:
        super().__init__(join)
        self.lower_us = lower_us
        self.upper_us = upper_us
        keeps_left, keeps_right = join.join_type.keeps
        self.held_back_us = max(upper_us if keeps_left else 0, -lower_us if keeps_right else 0, 0)

    def open(self, context: ProcessorContext) -> None:
        self.counters = context.counters
        super().open(context)
        self.begin()
        self.sent = MIN_TIME

    def begin(self) -> None:
        """Keep no rows."""
        self.keys = KeySlots(self.join)
        self.kept = [KeptRows(side.schema) for side in self.join.sides]

    def least_time(self, ordinal: int) -> int:
        """Rows of a side before it can meet no row any more that is on time."""
        reach_us = -self.upper_us if ordinal == LEFT else self.lower_us
        return max(MIN_TIME, min(MAX_TIME, self.bounds.watermark + reach_us))

    def process(self, ordinal: int, batch: Batch) -> Iterator[Output]:
        batch, times, late = self.inputs[ordinal].on_time(batch, self.bounds)
        yield from late
        slots = self.keys.of_rows(ordinal, batch)
        other = self.kept[1 - ordinal]
        lower_us, upper_us = (self.lower_us, self.upper_us) if ordinal == LEFT else (-self.upper_us, -self.lower_us)
        matched = other.chains.probe(slots, times, lower_us, upper_us)
        part = self.result.left_part(batch) if ordinal == LEFT else self.result.right_part(batch)
        while (pairs := other.chains.next(BATCH_ROWS_MAX)) is not None:
            probed, found = pairs
            later = np.maximum(times[probed], other.chains.times_of(found))
            mine, theirs = part.take(probed), other.rows.take(found)
            if ordinal == LEFT:
                left, right = mine, self.result.right_part(theirs)
            else:
                left, right = self.result.left_part(theirs), mine
            yield self.result.pairs(left, right, [self.time_column(later)])
        self.keep(ordinal, batch, slots, times, matched)

    def keep(
        self, ordinal: int, batch: Batch, slots: npt.NDArray[np.uint32], times: Times, matched: npt.NDArray[np.uint8]
    ) -> None:
        """Keep rows for those that are to come; without the ones that are of no use."""
        if not self.join.join_type.keeps[ordinal]:
            useful = (slots != NO_SLOT) & (times >= self.least_time(ordinal))
            if not useful.all():
                rows = np.flatnonzero(useful).astype(np.int32)
                batch, slots, times, matched = batch.take(rows), slots[rows], times[rows], matched[rows]
        self.kept[ordinal].rows.append(batch)
        self.kept[ordinal].chains.append(slots, times, self.keys.limit, matched)

    def process_watermark(self, watermark: int) -> Iterable[Output]:
        self.bounds.advance(watermark)
        if self.join.join_type.keeps != (False, False):
            return self.expire(watermark)
        self.compact()
        return self.forward(watermark)

    def complete(self) -> Iterable[Output]:
        self.bounds.advance(MAX_TIME)
        return self.expire(None)

    def expire(self, watermark: int | None) -> Iterator[Output]:
        """Rows for which no match can come any more; then the watermark, if there is one."""
        for ordinal in (LEFT, RIGHT):
            if not self.join.join_type.keeps[ordinal]:
                continue
            kept = self.kept[ordinal]
            bound = MAX_TIME if watermark is None else self.least_time(ordinal)
            expired = kept.chains.expire(bound)
            for start in range(0, len(expired), BATCH_ROWS_MAX):
                numbers = expired[start : start + BATCH_ROWS_MAX]
                rows, time = kept.rows.take(numbers), [self.time_column(kept.chains.times_of(numbers))]
                if ordinal == LEFT:
                    yield self.result.left_only(self.result.left_part(rows), time)
                else:
                    yield self.result.right_only(rows, time)
        if watermark is not None:
            self.compact()
            yield from self.forward(watermark)

    def forward(self, watermark: int) -> tuple[Output, ...]:
        """The watermark, held back as far as a row may leave that long after its time."""
        value = watermark - self.held_back_us
        if value <= max(self.sent, MIN_TIME):
            return ()
        self.sent = value
        return (Watermark(value),)

    def time_column(self, times: Times) -> Batch:
        """The last column of the result."""
        column = pa.array(times).cast(pa.timestamp("us"))
        return Batch.from_arrow(pa.RecordBatch.from_arrays([column], names=[self.join.schema.names[-1]]))

    def compact(self) -> None:
        """Let go of rows that nothing can meet, when they are more than the others."""
        dead = sum(kept.chains.count_before(self.least_time(ordinal)) for ordinal, kept in enumerate(self.kept))
        living = sum(len(kept.rows) for kept in self.kept) - dead
        if dead <= max(living, kept_rows.COMPACT_ROWS):
            return
        useful = [self.useful_rows(ordinal) for ordinal in (LEFT, RIGHT)]
        self.begin()
        for ordinal, (batch, matched) in enumerate(useful):
            self.keep_again(ordinal, batch, matched)

    def useful_rows(self, ordinal: int) -> tuple[Batch, npt.NDArray[np.uint8]]:
        """Rows of a side that may still meet others, and which have met one."""
        kept = self.kept[ordinal]
        rows = kept.chains.keep(self.least_time(ordinal))
        return kept.rows.take(rows), kept.chains.matched()[rows].view(np.uint8)

    def keep_again(self, ordinal: int, batch: Batch, matched: npt.NDArray[np.uint8]) -> None:
        """Keep rows that were kept before."""
        times = self.inputs[ordinal].with_times(batch)[1]
        self.keep(ordinal, batch, self.keys.of_rows(ordinal, batch), times, matched)

    def save_snapshot(self) -> Iterator[StateBatch]:
        for ordinal, side in enumerate(self.inputs):
            batch, matched = self.useful_rows(ordinal)
            flags = pa.record_batch([pa.array(matched.view(np.bool_))], schema=pa.schema([MATCHED]))
            yield from side.saved(batch.with_columns(Batch.from_arrow(flags)))
        yield from self.bounds.save()

    def take_back(self, ordinal: int, rows: Batch, states: Sequence[pa.RecordBatch]) -> None:
        flags = pa.concat_arrays([state.column(MATCHED.name) for state in states])
        self.keep_again(ordinal, rows, flags.to_numpy(zero_copy_only=False).view(np.uint8))
