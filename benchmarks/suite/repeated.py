"""A source that gives the same events again and again, each time later: runs of any length out of little memory."""

import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc

from jetfast.core.batch import BatchRun, batches_with_origin
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
        self.ready: BatchRun | None = None
        """What is made and not given yet."""
        self.batch = 0 if position is None else _POSITION.unpack(position)[0]
        """The next one."""
        self.batches = source.partition_rows // BATCH_ROWS

    def read(self) -> Rows | None:
        given = self.read_ready(1)
        return None if given is None else Rows(given.batches[0], given.position)

    def read_ready(self, rows_max: int) -> ReadyRows | None:
        if not self.ready:
            if self.batch == self.batches:
                return None
            self.ready = self.make()
        count = min(-(-rows_max // BATCH_ROWS), len(self.ready))
        given, self.ready = self.ready.slice(0, count), self.ready.slice(count)
        self.batch += count
        return ReadyRows(given, _POSITION.pack(self.batch))

    def make(self) -> BatchRun:
        """Make the next batches."""
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
        return batches_with_origin(pieces, 0, len(made), self.partition, first)

    def close(self) -> None:
        """Nothing is held."""


def _duration(microseconds: int) -> pa.Scalar:
    """As `pa.scalar`, which imports pandas first: 0.13 s in each process."""
    value = pa.py_buffer(microseconds.to_bytes(8, sys.byteorder, signed=True))
    return pa.Array.from_buffers(pa.duration("us"), 1, [None, value])[0]
