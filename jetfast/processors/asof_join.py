"""Joins each row of a stream with the latest row of another that is not after it and has its keys."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from jetfast.core.batch import Batch, concatenate
from jetfast.core.items import Output
from jetfast.core.joins import LEFT, RIGHT, Join
from jetfast.core.processor import ProcessorContext, StateBatch
from jetfast.kernels.joins import NO_SLOT
from jetfast.processors import kept_rows
from jetfast.processors.join_keys import KeySlots
from jetfast.processors.kept_rows import KeptRows
from jetfast.processors.keyed_rows import Times
from jetfast.processors.stream_join import StreamJoin
from jetfast.types import BATCH_ROWS_MAX, MAX_TIME, MIN_TIME


class AsofJoinProcessor(StreamJoin):
    """Left rows wait until the watermark has passed them: then all rows that they may meet have come.

    Of the right side the rows behind the watermark are kept that are the latest of their keys. Of right rows of one key
    and time the one that came last is met.

    Parameters
    ----------
    join : an inner or a left join
    tolerance_us : so much older may the right row be; None: by any time
    """

    def __init__(self, join: Join, tolerance_us: int | None) -> None:
        super().__init__(join)
        self.reach_us = MAX_TIME if tolerance_us is None else tolerance_us
        self.keeps_left = join.join_type.keeps[LEFT]

    def open(self, context: ProcessorContext) -> None:
        super().open(context)
        self.waiting: list[tuple[Batch, Times]] = []
        """Left rows."""
        self.begin()

    def begin(self) -> None:
        """Keep no rows of the right side."""
        self.keys = KeySlots(self.join)
        self.kept = KeptRows(self.join.sides[RIGHT].schema)
        self.row_limit = kept_rows.COMPACT_ROWS
        """With more rows, those that nothing can meet are let go."""

    def process(self, ordinal: int, batch: Batch) -> Iterable[Output]:
        batch, times, late = self.inputs[ordinal].on_time(batch, self.bounds)
        self.keep(ordinal, batch, times)
        return late

    def keep(self, ordinal: int, batch: Batch, times: Times) -> None:
        """Keep rows of either side."""
        if batch.row_count == 0:
            return
        if ordinal == LEFT:
            self.waiting.append((batch, times))
            return
        slots = self.keys.of_rows(RIGHT, batch)
        if (slots == NO_SLOT).any():
            rows = np.flatnonzero(slots != NO_SLOT).astype(np.int32)
            batch, slots, times = batch.take(rows), slots[rows], times[rows]
        self.kept.rows.append(batch)
        self.kept.chains.append(slots, times, self.keys.limit)

    def process_watermark(self, watermark: int) -> Iterable[Output]:
        due: list[tuple[Batch, Times]] = []
        waiting: list[tuple[Batch, Times]] = []
        for batch, times in self.waiting:
            early = times < watermark
            if early.all():
                due.append((batch, times))
            elif not early.any():
                waiting.append((batch, times))
            else:
                for chosen, rows in ((due, np.flatnonzero(early)), (waiting, np.flatnonzero(~early))):
                    chosen.append((batch.take(rows.astype(np.int32)), times[rows]))
        self.waiting = waiting
        self.bounds.advance(watermark)
        return self.meet(due) if due else self.compact()

    def complete(self) -> Iterable[Output]:
        due, self.waiting = self.waiting, []
        return self.meet(due) if due else ()

    def meet(self, due: list[tuple[Batch, Times]]) -> Iterator[Output]:
        """Left rows, by their times, with the right rows that they meet."""
        all_times = np.concatenate([times for _, times in due])
        order = np.argsort(all_times, kind="stable").astype(np.int32)
        rows = concatenate([batch for batch, _ in due])
        for start in range(0, len(order), BATCH_ROWS_MAX):
            chosen = order[start : start + BATCH_ROWS_MAX]
            batch = rows.take(chosen)
            found = self.kept.chains.find_latest(self.keys.find(LEFT, batch), all_times[chosen], self.reach_us)
            left, met = self.result.left_part(batch), np.flatnonzero(found >= 0).astype(np.int32)
            if len(met):
                right = self.result.right_part(self.kept.rows.take(found[met]))
                yield self.result.pairs(left.take(met), right)
            if self.keeps_left and len(met) < len(found):
                yield self.result.left_only(left.take(np.flatnonzero(found < 0).astype(np.int32)))
        yield from self.compact()

    def compact(self) -> tuple[Output, ...]:
        """Let go of right rows that nothing can meet, when there are many."""
        if len(self.kept.rows) > self.row_limit or len(self.keys.index) > 2 * self.row_limit:
            rows = self.kept.rows.take(self.useful_rows())
            self.begin()
            self.keep(RIGHT, *self.inputs[RIGHT].with_times(rows))
            self.row_limit += 2 * len(self.kept.rows)
        return ()

    def useful_rows(self) -> np.ndarray:
        """Numbers of the right rows that left rows may still meet."""
        bound = self.bounds.watermark
        return self.kept.chains.keep(bound, max(MIN_TIME, bound - self.reach_us))

    def save_snapshot(self) -> Iterator[StateBatch]:
        if self.waiting:
            yield from self.inputs[LEFT].saved(concatenate([batch for batch, _ in self.waiting]))
        yield from self.inputs[RIGHT].saved(self.kept.rows.take(self.useful_rows()))
        yield from self.bounds.save()

    def take_back(self, ordinal: int, rows: Batch, states: Sequence[pa.RecordBatch]) -> None:
        self.keep(ordinal, *self.inputs[ordinal].with_times(rows))
