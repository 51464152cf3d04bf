"""A function of the user over batches of rows and the states of their keys."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from jetfast.core.batch import Batch, batches_from_arrow
from jetfast.core.items import Output
from jetfast.core.keyed_input import KeyedInput
from jetfast.core.processor import ProcessorContext
from jetfast.errors import JobFailedError
from jetfast.kernels.keyed_state import NEVER_SEEN, number_states
from jetfast.processors.keyed_rows import Times
from jetfast.processors.keyed_state import KeyedState, Slots
from jetfast.processors.map_batches import checked_batches
from jetfast.processors.row_store import RowStore
from jetfast.types import BATCH_ROWS_MAX, MAX_TIME

StatefulFunction = Callable[[pa.RecordBatch, npt.NDArray[np.int64], pa.Array], tuple[Any, Any]]
"""Takes rows, the number of each row's state, and the states (null: a new one). Gives rows (a record batch, a table or
None) and the new states (an array or a list; null: forget the key)."""
EvictFunction = Callable[[pa.RecordBatch, pa.Array, pa.Array], Any]
"""Takes keys, their states, and the times (timestamp[us]) to which these lived. Gives rows, or None."""
COMPACT_STATES = 65_536
"""So many states that were replaced are kept at least before they are let go."""


class MapStateful(KeyedState):
    """Calls `function` with each batch and the states that its rows meet, and keeps what it gives.

    Parameters
    ----------
    rows : what comes in; its columns are given to the function
    function, on_evict : see StatefulFunction and EvictFunction
    state_type : of the states
    schema : of the results
    ttl_us : a state lives so long after the last row of its key; None: for ever
    """

    def __init__(
        self,
        rows: KeyedInput,
        function: StatefulFunction,
        on_evict: EvictFunction | None,
        state_type: pa.DataType,
        schema: pa.Schema,
        ttl_us: int | None,
    ) -> None:
        super().__init__(rows, ttl_us)
        self.function = function
        self.on_evict = on_evict
        self.state_type = state_type
        self.schema = schema
        self.state_fields = (pa.field("\x01state", state_type),)

    def open(self, context: ProcessorContext) -> None:
        self.group_of_slot = np.empty(0, np.int32)
        self.numbers = np.empty(0, np.int32)
        """By slot: number of its state in the store; -1: it has none."""
        self.states = RowStore(pa.schema([("state", self.state_type)]))
        super().open(context)

    def grow(self, slot_count: int) -> None:
        self.group_of_slot = np.full(slot_count, -1, np.int32)
        self.numbers = np.concatenate([self.numbers, np.full(slot_count - len(self.numbers), -1, np.int32)])

    def process_rows(self, batch: Batch, slots: Slots, times: Times) -> Iterator[Output]:
        ttl_us = MAX_TIME if self.ttl_us is None else self.ttl_us
        groups, group_slots, before, ended = number_states(slots, times, ttl_us, self.seen, self.group_of_slot)
        over = ended != NEVER_SEEN
        numbers = np.where(over, -1, self.numbers[group_slots])
        rows = batch.select(self.input.columns).to_arrow()
        made, states = self.call(self.function, rows, groups, self.take_states(numbers))
        states = self.checked_states(states, len(group_slots))
        if self.on_evict is not None and over.any():
            places = np.flatnonzero(over)
            earlier = before[places]
            stored = np.where(earlier < 0, self.numbers[group_slots[places]], -1)
            left = pa.concat_arrays([states, self.take_states(stored)])
            old = left.take(pa.array(np.where(earlier < 0, len(states) + np.arange(len(places)), earlier)))
            yield from self.evict(group_slots[places], old, ended[places])
        self.keep(group_slots, states)
        yield from self.results(made)

    def keep(self, slots: Slots, states: pa.Array) -> None:
        """Keep states; of several of one slot, the last."""
        self.numbers[slots] = np.arange(len(slots), dtype=np.int32)
        lasting = np.flatnonzero(self.numbers[slots] == np.arange(len(slots)))
        slots, states = slots[lasting], states.take(pa.array(lasting))
        kept = np.flatnonzero(states.is_valid().to_numpy(zero_copy_only=False))
        first = len(self.states)
        self.numbers[slots] = -1
        self.numbers[slots[kept]] = first + np.arange(len(kept), dtype=np.int32)
        self.states.append(state_batch(self.states.schema, states.take(pa.array(kept))))
        if len(kept) < len(slots):
            self.release(np.delete(slots, kept))
        if len(self.states) > 2 * len(self.index) + COMPACT_STATES:
            living = np.flatnonzero(self.numbers >= 0)
            states = self.take_states(self.numbers[living])
            self.states = RowStore(self.states.schema)
            self.states.append(state_batch(self.states.schema, states))
            self.numbers[living] = np.arange(len(living), dtype=np.int32)

    def take_states(self, numbers: npt.NDArray[np.int32]) -> pa.Array:
        """States by number; null for -1."""
        there = np.flatnonzero(numbers >= 0)
        states = self.states.take(numbers[there].astype(np.int32)).to_arrow().column(0)
        if len(there) == len(numbers):
            return states
        places = np.zeros(len(numbers), np.int64)
        places[there] = np.arange(len(there))
        return states.take(pa.array(places, mask=numbers < 0))

    def process_watermark(self, watermark: int) -> Iterable[Output]:
        if self.on_evict is None:
            return super().process_watermark(watermark)
        self.bounds.advance(watermark)
        return () if self.ttl_us is None else self.evict_slots(self.expired(watermark))

    def complete(self) -> Iterable[Output]:
        super().complete()
        return () if self.on_evict is None else self.evict_slots(np.flatnonzero(self.numbers >= 0).astype(np.uint32))

    def evict_slots(self, slots: Slots) -> Iterator[Output]:
        """Give the states of keys to the user's function, and forget them."""
        for start in range(0, len(slots), BATCH_ROWS_MAX):
            part = slots[start : start + BATCH_ROWS_MAX]
            ended = self.seen[part]
            if self.ttl_us is not None:
                ended = np.minimum(ended, MAX_TIME - self.ttl_us) + self.ttl_us
            yield from self.evict(part, self.take_states(self.numbers[part]), ended)
            self.release(part)

    def evict(self, slots: Slots, states: pa.Array, ended: Times) -> Iterator[Output]:
        """Give states that have ended to the user's function."""
        assert self.on_evict is not None
        there = states.is_valid()
        keys = self.index.keys_of(slots).to_arrow().filter(there)
        ended = np.minimum(ended, MAX_TIME + min(self.input.time_shift_us, 0)) - self.input.time_shift_us
        times = pa.array(ended).cast(pa.timestamp("us"))
        if self.ttl_us is None:
            times = pa.nulls(len(ended), pa.timestamp("us"))
        if keys.num_rows:
            yield from self.results(self.call(self.on_evict, keys, states.filter(there), times.filter(there)))

    def release(self, slots: Slots) -> None:
        super().release(slots)
        self.numbers[slots] = -1

    def call(self, function: Callable[..., Any], rows: pa.RecordBatch, *arguments: Any) -> Any:
        try:
            return function(rows, *arguments)
        except Exception as error:
            raise self.failure(function, rows, f"{type(error).__name__}: {error}") from error

    def failure(self, function: Callable[..., Any], rows: pa.RecordBatch, what: str) -> JobFailedError:
        name = getattr(function, "__qualname__", type(function).__name__)
        return JobFailedError(
            f"{name} failed on {rows.num_rows} rows, the first of them {rows.slice(0, 1).to_pylist()[0]}: {what}"
        )

    def checked_states(self, states: Any, count: int) -> pa.Array:
        """The states that the function gave, as an array of the declared type."""
        try:
            if isinstance(states, pa.ChunkedArray):
                states = states.combine_chunks()
            elif not isinstance(states, pa.Array):
                states = pa.array(states, self.state_type)
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise JobFailedError(f"the states that it returned are no {self.state_type}: {error}") from error
        if states.type != self.state_type:
            raise JobFailedError(f"it returned states of {states.type}; declared is {self.state_type}")
        if len(states) != count:
            raise JobFailedError(f"it returned {len(states)} states; {count} are needed")
        return states

    def results(self, made: Any) -> Iterator[Batch]:
        """Rows that a function gave."""
        if made is not None:
            for batch in checked_batches(made, self.schema):
                yield from batches_from_arrow(batch)

    def state_of(self, slots: Slots) -> list[pa.Array]:
        return [self.take_states(self.numbers[slots])]

    def take_state(self, slots: Slots, columns: list[pa.Array]) -> None:
        self.keep(slots, columns[0])


def state_batch(schema: pa.Schema, states: pa.Array) -> Batch:
    """States as rows of a store."""
    return Batch.from_arrow(pa.RecordBatch.from_arrays([states], schema=schema))
