"""Gives the first row of each key, and drops those that follow it within a horizon."""

from jetfast.core.batch import Batch
from jetfast.core.items import Output
from jetfast.core.keyed_input import KeyedInput
from jetfast.kernels.keyed_state import keep_first
from jetfast.processors.keyed_rows import Times
from jetfast.processors.keyed_state import KeyedState, Slots
from jetfast.types import MAX_TIME


class DropDuplicates(KeyedState):
    """A row leaves if none of its key left before, or only rows that are more than the horizon older.

    What is dropped is counted as duplicate_rows. A row that is older than the one that left is a duplicate, too.

    Parameters
    ----------
    rows : what comes in; its columns are those of the result
    horizon_us : None: for ever
    """

    def __init__(self, rows: KeyedInput, horizon_us: int | None) -> None:
        super().__init__(rows, horizon_us)

    def process_rows(self, batch: Batch, slots: Slots, times: Times) -> tuple[Output, ...]:
        kept = keep_first(slots, times, MAX_TIME if self.ttl_us is None else self.ttl_us, self.seen)
        counters = self.door.counters
        counters["duplicate_rows"] = counters.get("duplicate_rows", 0) + batch.row_count - len(kept)
        if len(kept) == 0:
            return ()
        batch = batch.select(self.input.columns)
        return (batch if len(kept) == batch.row_count else batch.take(kept),)
