"""State of keys: kept by slot, let go of when its time to live has passed, saved and restored by key."""

from collections.abc import Iterable, Iterator
from itertools import chain

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from jetfast.core.batch import Batch
from jetfast.core.items import Output
from jetfast.core.keyed_input import KeyedInput
from jetfast.core.processor import BY_KEYS, Processor, ProcessorContext, StateBatch
from jetfast.kernels.keyed_state import NEVER_SEEN, note_times
from jetfast.kernels.keys import KeyIndex, plain_field
from jetfast.processors import partition_bounds
from jetfast.processors.keyed_rows import KeyedRows, Times
from jetfast.processors.partition_bounds import PartitionBounds
from jetfast.types import MAX_TIME

Slots = npt.NDArray[np.uint32]

LATE_PORT = 1
"""Rows behind the watermark, of steps with a time to live."""
SEEN = pa.field("\x01seen", pa.int64())
"""Column of saved state: when the key was seen last."""
EVICTIONS = 8
"""So often within a time to live keys are looked through whose state nobody hears of when it goes."""


class KeyedState(Processor):
    """What steps with state by key have in common. With a time to live rows behind the watermark are late.

    The state of a key goes when the watermark has passed the time at which it was seen last by more than the time to
    live.

    Parameters
    ----------
    rows : what comes in
    ttl_us : time to live; None: for ever, and times do not count
    """

    state_fields: tuple[pa.Field, ...] = ()
    """Columns of saved state besides the keys and the time."""

    def __init__(self, rows: KeyedInput, ttl_us: int | None) -> None:
        self.input = rows
        self.ttl_us = ttl_us

    def open(self, context: ProcessorContext) -> None:
        rows = self.input
        self.door = KeyedRows(rows, LATE_PORT, "states", context)
        self.index = KeyIndex(pa.schema([plain_field(rows.schema.field(key)) for key in rows.keys]), rows.keys)
        self.bounds = PartitionBounds(context)
        self.seen = np.empty(0, np.int64)
        """By slot, NEVER_SEEN where it is free."""
        self.evicted_at = NEVER_SEEN
        """The watermark when keys were looked through last."""
        self.state_schema = pa.schema([*self.index.key_schema, SEEN, *self.state_fields])
        self.begin()

    def begin(self) -> None:
        """Prepare the state of no keys."""

    def grow(self, slot_count: int) -> None:
        """Make room for the state of so many slots."""

    def process(self, ordinal: int, batch: Batch) -> Iterable[Output]:
        late: tuple[Output, ...] = ()
        if self.ttl_us is None:
            times = np.zeros(batch.row_count, np.int64)
            self.door.counters["on_time_rows"] += batch.row_count
        else:
            batch, times, late = self.door.on_time(batch, self.bounds)
        if batch.row_count == 0:
            return late
        slots = self.slots_of(batch.select(self.input.keys))
        output = self.process_rows(batch, slots, times)
        return chain(late, output) if late else output

    def slots_of(self, keys: Batch) -> Slots:
        """Slots of keys, with room for the state of each."""
        slots = self.index.assign_slots(keys)
        limit = self.index.slot_limit
        if limit > len(self.seen):
            room = max(limit, 2 * len(self.seen), 64)
            self.seen = np.concatenate([self.seen, np.full(room - len(self.seen), NEVER_SEEN)])
            self.grow(room)
        return slots

    def process_rows(self, batch: Batch, slots: Slots, times: Times) -> Iterable[Output]:
        """Take in rows, 1 or more."""
        raise NotImplementedError

    def process_watermark(self, watermark: int) -> Iterable[Output]:
        self.bounds.advance(watermark)
        if self.ttl_us is None or watermark < self.evicted_at + self.ttl_us // EVICTIONS:
            return ()
        self.evicted_at = watermark
        expired = self.expired(watermark)
        if len(expired):
            self.release(expired)
        return ()

    def expired(self, watermark: int) -> Slots:
        """Slots of the keys whose time to live has passed."""
        assert self.ttl_us is not None
        oldest = max(NEVER_SEEN + 1, watermark - self.ttl_us)
        return np.flatnonzero((self.seen < oldest) & (self.seen != NEVER_SEEN)).astype(np.uint32)

    def release(self, slots: Slots) -> None:
        """Forget keys and their state."""
        self.index.release(slots)
        self.seen[slots] = NEVER_SEEN

    def state_of(self, slots: Slots) -> list[pa.Array]:
        """Columns of `state_fields` for some slots."""
        return []

    def take_state(self, slots: Slots, columns: list[pa.Array]) -> None:
        """Take back what `state_of` gave."""

    def save_snapshot(self) -> Iterator[StateBatch]:
        # What has expired and was not looked for yet is not saved: whether it is there makes no difference.
        slots = np.flatnonzero(self.seen != NEVER_SEEN).astype(np.uint32)
        if self.ttl_us is not None and len(slots):
            slots = np.setdiff1d(slots, self.expired(self.bounds.watermark), assume_unique=True)
        if len(slots):
            keys = self.index.keys_of(slots).to_arrow().columns
            columns = [*keys, pa.array(self.seen[slots]), *self.state_of(slots)]
            saved = pa.RecordBatch.from_arrays(columns, schema=self.state_schema)
            yield StateBatch(BY_KEYS, "states", saved, self.input.keys)
        yield from self.bounds.save()

    def restore_snapshot(self, state: StateBatch) -> None:
        if state.kind == partition_bounds.KIND:
            self.bounds.restore(state)
            return
        rows = state.rows
        slots = self.slots_of(Batch.from_arrow(rows.select(list(self.input.keys))))
        note_times(slots, rows.column(SEEN.name).to_numpy(), self.seen)
        self.take_state(slots, [rows.column(field.name) for field in self.state_fields])

    def finish_restore(self) -> None:
        self.bounds.finish_restore()

    def complete(self) -> Iterable[Output]:
        self.bounds.advance(MAX_TIME)
        return ()
