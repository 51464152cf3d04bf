"""Second stage of a window in two: combines the partials of all first stages, and judges which rows are late."""

from collections.abc import Iterable

from jetfast.core.batch import Batch, BatchRun
from jetfast.core.items import Output
from jetfast.processors.sliding_window import SlidingWindowProcessor

PARTIALS = 0
"""Inbound edge of partials. Any other brings rows as they are: of a first stage that lets them pass."""


class CombineFrames(SlidingWindowProcessor):
    """Takes the partials of first stages; gives results as `SlidingWindowProcessor` does, without late rows.

    Late rows are counted in rows: each partial carries its count. What is saved is the same as in one stage, so that
    a restart may change the plan. Parameters as of `SlidingWindowProcessor`; `schema` is that of the first stage's
    input.
    """

    def process(self, ordinal: int, batch: Batch) -> tuple[Output, ...]:
        if ordinal != PARTIALS:
            return super().process(ordinal, batch)
        self.table.accumulate_partials(batch)
        self.count_rows()
        return ()

    def process_batches(self, ordinal: int, batches: BatchRun) -> Iterable[Output]:
        if ordinal != PARTIALS:
            return super().process_batches(ordinal, batches)
        self.table.accumulate_all_partials(batches)
        self.count_rows()
        return ()
