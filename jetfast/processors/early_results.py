"""Early results: every period of wall time, what the open windows of a step would give if they ended now."""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from jetfast.core.batch import Batch
from jetfast.core.items import Emit, Output, one_by_one
from jetfast.core.processor import Processor, ProcessorContext, StateBatch
from jetfast.processors.keyed_window import KeyedWindow
from jetfast.types import MAX_TIME

IS_EARLY = "is_early"


class EarlyResults(Processor):
    """A window step and its early results: the results of the step with a column is_early.

    An early result is made from a copy of the state that is saved in snapshots, so it is what the end of input would
    give now. Nothing is given while no row has come in since the last time. The period is not part of the state: after
    a restore it begins anew.

    Parameters
    ----------
    window : in one stage; this processor opens and closes it
    period_us : wall time between early results, at least 1
    """

    watches_clock = True

    def __init__(self, window: KeyedWindow[Any, Any], period_us: int) -> None:
        self.window = window
        self.period_us = period_us

    def open(self, context: ProcessorContext) -> None:
        self.context = context
        self.window.open(context)
        self.has_news = False
        self.next_us = context.now_us() + self.period_us

    def process(self, ordinal: int, batch: Batch) -> Iterable[Output]:
        late = self.window.process(ordinal, batch)
        self.has_news = True
        return chain(late, self.give()) if self.is_time() else late

    def process_watermark(self, watermark: int) -> Iterable[Output]:
        return flagged(self.window.process_watermark(watermark), is_early=False)

    def process_silence(self) -> Iterable[Output]:
        return self.give() if self.is_time() else ()

    def is_time(self) -> bool:
        """Is there anything to tell, and has a period passed?"""
        return self.has_news and self.context.now_us() >= self.next_us

    def give(self) -> Iterator[Output]:
        """The results of all open windows so far."""
        self.next_us = self.context.now_us() + self.period_us
        self.has_news = False
        table = self.window.make_table(self.context)
        for rows in self.window.table.save():
            table.restore(rows)
        for partition, bound in self.window.table.bounds().items():
            table.restore_bound(partition, bound)
        table.finish_restore()
        table.advance(MAX_TIME)
        while (results := table.emit()) is not None:
            yield from flagged((results,), is_early=True)

    def complete(self) -> Iterable[Output]:
        return flagged(self.window.complete(), is_early=False)

    def save_snapshot(self) -> Iterable[StateBatch]:
        return self.window.save_snapshot()

    def restore_snapshot(self, state: StateBatch) -> None:
        self.window.restore_snapshot(state)

    def finish_restore(self) -> None:
        self.window.finish_restore()
        self.has_news = True

    def close(self, error: BaseException | None) -> None:
        self.window.close(error)


def flagged(results: Iterable[Output], *, is_early: bool) -> Iterator[Output]:
    """Results with the column is_early."""
    for result in one_by_one(results):
        if isinstance(result, Batch):
            flags = pa.record_batch([pa.array(np.full(result.row_count, is_early))], names=[IS_EARLY])
            yield result.with_columns(Batch.from_arrow(flags))
        else:
            assert isinstance(result, Emit), result
            yield result
