"""A source that gives the same events again and again, each time later: runs of any length out of little memory."""

import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc

from jetfast.core.batch import batches_with_origin
from jetfast.core.guarantee import Delivery
from jetfast.core.processor import ProcessorContext
from jetfast.core.source import Position, ReadyRows, Rows

from .batches import BATCH_ROWS, ROWS_PER_SECOND, SCHEMA, Events

BATCHES_AT_ONCE = 16
TURN_ROWS = BATCHES_AT_ONCE * BATCH_ROWS
"""Events are a multiple of so many."""
_POSITION = struct.Struct("<q")  # batches given out


@dataclass(frozen=True)
class RepeatedEvents:
    """`rounds` times these events in each partition; whole batches. Each round comes where the last one ended."""

    events: pa.RecordBatch
    rounds: int
    partition_count: int = 1
    schema: pa.Schema = SCHEMA
    name: str = "repeated events"
    bounded: bool = True
    cooperative: bool = True
    source_delivery: Delivery = Delivery.REPLAYABLE

    @classmethod
    def of(cls, events: Events, rounds: int, partition_count: int = 1) -> Self:
        """A source of these."""
        if len(events) % TURN_ROWS:
            raise ValueError(f"{len(events)} events are no multiple of {TURN_ROWS}")
        return cls(events.table().combine_chunks().to_batches()[0], rounds, partition_count)

    @property
    def total_rows(self) -> int:
        return self.partition_count * self.partition_rows

    @property
    def partition_rows(self) -> int:
        return self.rounds * self.events.num_rows

    def partitions(self) -> Sequence[str]:
        return [str(number) for number in range(self.partition_count)]

    def open_reader(
        self, partition: str, position: Position | None, context: ProcessorContext
    ) -> "RepeatedEventsReader":
        return RepeatedEventsReader(self, partition, position)

    def with_columns(self, names: Sequence[str]) -> Self:
        return replace(self, schema=pa.schema([self.schema.field(name) for name in names]))


class RepeatedEventsReader:
    """Makes batches when they are asked for, 128 Ki rows at a time; only times are new memory."""

    def __init__(self, source: RepeatedEvents, partition: str, position: Position | None) -> None:
        self.source = source
        self.partition = partition
        self.ready: list[Rows] = []
        self.batch = 0 if position is None else _POSITION.unpack(position)[0]
        """The first one that `ready` does not hold."""
        self.batches = source.partition_rows // BATCH_ROWS

    def read(self) -> Rows | None:
        if not self.ready and not self.make():
            return None
        return self.ready.pop(0)

    def read_ready(self, rows_max: int) -> ReadyRows | None:
        if not self.ready and not self.make():
            return None
        count = -(-rows_max // BATCH_ROWS)
        given, self.ready = self.ready[:count], self.ready[count:]
        return ReadyRows([rows.batch for rows in given], given[-1].position, len(given) * BATCH_ROWS)

    def make(self) -> bool:
        """Make the next batches; False: there are no more."""
        if self.batch == self.batches:
            return False
        source = self.source
        first = self.batch * BATCH_ROWS
        turn, row = divmod(first, source.events.num_rows)
        count = BATCHES_AT_ONCE - self.batch % BATCHES_AT_ONCE
        rows = source.events.slice(row, count * BATCH_ROWS)
        later_us = _duration(turn * source.events.num_rows * 1_000_000 // ROWS_PER_SECOND)
        columns = [
            pc.add(rows.column(name), later_us) if name == "time" else rows.column(name) for name in source.schema.names
        ]
        made = pa.record_batch(columns, schema=source.schema)
        pieces = [made.slice(start, BATCH_ROWS) for start in range(0, len(made), BATCH_ROWS)]
        for batch in batches_with_origin(pieces, self.partition, first):
            self.batch += 1
            self.ready.append(Rows(batch, _POSITION.pack(self.batch), first))
            first += BATCH_ROWS
        return True

    def close(self) -> None:
        """Nothing is held."""


def _duration(microseconds: int) -> pa.Scalar:
    """As `pa.scalar`, which imports pandas first: 0.13 s in each process."""
    value = pa.py_buffer(microseconds.to_bytes(8, sys.byteorder, signed=True))
    return pa.Array.from_buffers(pa.duration("us"), 1, [None, value])[0]
