"""Rows made up from a seed: the same for every parallelism, batch size and restart."""

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from jetfast.core.batch import Batch
from jetfast.core.guarantee import Delivery
from jetfast.core.processor import ProcessorContext
from jetfast.core.source import Position, Rows
from jetfast.errors import JobDefinitionError, JobFailedError

BLOCK_ROWS = 8192
"""Rows are always made in blocks of this size, each with random numbers of its own: (seed, partition, block)."""
BATCH_DELAY_US = 1_000
"""With a rate, due rows are gathered for this long before they are given out."""

_POSITION = struct.Struct("<qq")  # rows of the partition given out so far; partitions, which decide on its row numbers
_START = np.datetime64("2024-01-01T00:00:00", "us").astype(np.int64)

MakeRows = Callable[[npt.NDArray[np.int64], np.random.Generator], Any]
"""(row numbers, shape (rows,); random generator of the block) -> RecordBatch, Table or dict of columns, `rows` rows
long.
"""


def generator(
    columns: pa.Schema | Mapping[str, pa.DataType] | MakeRows,
    *,
    rows: int | None = None,
    rate: float | None = None,
    seed: int = 0,
    partitions: int = 1,
    name: str | None = None,
) -> "GeneratorSource":
    """A source of random rows.

    Parameters
    ----------
    columns : names and types (integers in [0, 1000), floats in [0, 1), booleans, text out of 100 values, times that
        advance by 1/rate s a row, or 1 ms, from 2024-01-01); or a function of row numbers and a random generator that
        gives a record batch, a table or a dict of columns, and is picklable
    rows : rows of all partitions together; None: without end
    rate : rows per second of all partitions together, by the wall clock; None: as fast as they are taken
    seed : another seed gives other rows
    partitions : source partitions; partition p holds the row numbers p, p + partitions, ...

    Raises JobDefinitionError for numbers out of range, types it cannot make, or a function that fails on its first
    block.
    """
    label = name or "generator"
    if rows is not None and rows < 0:
        raise JobDefinitionError(f"{label}: rows must not be negative, got {rows}")
    if rate is not None and not 0 < rate < float("inf"):
        raise JobDefinitionError(f"{label}: rate must be greater than zero rows/s, got {rate}")
    if partitions < 1:
        raise JobDefinitionError(f"{label}: partitions must be at least 1, got {partitions}")
    if seed < 0:
        raise JobDefinitionError(f"{label}: seed must not be negative, got {seed}")
    if isinstance(columns, pa.Schema | Mapping):
        schema = columns if isinstance(columns, pa.Schema) else _schema_of(label, columns)
        make: MakeRows = RandomColumns(schema, max(1, round(1_000_000 / rate)) if rate else 1_000)
    elif callable(columns):
        make = columns
    else:
        raise JobDefinitionError(
            f'{label}: it needs columns such as {{"x": pa.int64()}}, or a function that makes rows, got {columns!r}'
        )
    source = GeneratorSource(label, make, rows, rate, seed, partitions)
    try:
        source.schema = source.make_block(0, 0, 1).schema
    except JobDefinitionError:
        raise
    except Exception as error:
        raise JobDefinitionError(f"{label}: the function failed on row 0: {type(error).__name__}: {error}") from error
    return source


def _schema_of(label: str, columns: Mapping[str, pa.DataType]) -> pa.Schema:
    try:
        return pa.schema(list(columns.items()))
    except (TypeError, ValueError) as error:
        raise JobDefinitionError(
            f'{label}: columns are names with types of pyarrow, such as {{"x": pa.int64()}}, got {columns!r}: {error}'
        ) from error


class RandomColumns:
    """Makes a block of columns by their types."""

    def __init__(self, schema: pa.Schema, step_us: int) -> None:
        self.schema = schema.remove_metadata()
        self.step_us = step_us

    def __call__(self, row_numbers: npt.NDArray[np.int64], random: np.random.Generator) -> pa.RecordBatch:
        columns = [self._column(field, row_numbers, random) for field in self.schema]
        return pa.record_batch(columns, schema=self.schema)

    def _column(self, field: pa.Field, row_numbers: npt.NDArray[np.int64], random: np.random.Generator) -> pa.Array:
        types, wanted, count = pa.types, field.type, len(row_numbers)
        if types.is_integer(wanted):
            return pa.array(random.integers(0, 100 if wanted.bit_width == 8 else 1000, count)).cast(wanted)
        if types.is_floating(wanted):
            return pa.array(random.random(count)).cast(wanted)
        if types.is_boolean(wanted):
            return pa.array(random.random(count) < 0.5)
        if types.is_string(wanted) or types.is_large_string(wanted):
            words = pa.array([f"{field.name}-{i:02d}" for i in range(100)], wanted)
            return words.take(pa.array(random.integers(0, 100, count)))
        if types.is_timestamp(wanted):
            times = pa.array(_START + row_numbers * self.step_us, pa.timestamp("us"))
            return times.cast(pa.timestamp(wanted.unit), safe=False).cast(wanted)
        if types.is_date(wanted):
            return pa.array(_START + row_numbers * self.step_us, pa.timestamp("us")).cast(pa.date32()).cast(wanted)
        raise JobDefinitionError(f"generator: column {field.name!r} of type {wanted} needs a function")


class GeneratorSource:
    """See `generator`. Position: rows of the partition given out so far, and the number of partitions."""

    cooperative = True
    source_delivery = Delivery.REPLAYABLE
    discovery_interval = None  # its partitions never change
    schema: pa.Schema

    def __init__(
        self, name: str, make: MakeRows, rows: int | None, rate: float | None, seed: int, partition_count: int
    ) -> None:
        self.name = name
        self.make = make
        self.rows = rows
        self.rate = rate
        self.seed = seed
        self.partition_count = partition_count
        self.bounded = rows is not None
        self.columns: list[str] | None = None

    @property
    def total_rows(self) -> int | None:
        """Rows of all partitions, for progress; None without end."""
        return self.rows

    def partitions(self) -> Sequence[str]:
        return [str(partition) for partition in range(self.partition_count)]

    def partition_rows(self, partition: int) -> int | None:
        """Rows of one partition; None without end."""
        if self.rows is None:
            return None
        return self.rows // self.partition_count + (partition < self.rows % self.partition_count)

    def open_reader(self, partition: str, position: Position | None, context: ProcessorContext) -> "GeneratorReader":
        return GeneratorReader(self, int(partition), position, context.now_us)

    def with_columns(self, names: Sequence[str]) -> Self:
        copy = type(self)(self.name, self.make, self.rows, self.rate, self.seed, self.partition_count)
        copy.schema = pa.schema([self.schema.field(name) for name in names])
        copy.columns = list(names)
        return copy

    def make_block(self, partition: int, block: int, row_count: int) -> pa.RecordBatch:
        """Return the first `row_count` rows of a block, all columns before projection."""
        rows = block * BLOCK_ROWS + np.arange(row_count, dtype=np.int64)
        random = np.random.Generator(np.random.Philox(np.random.SeedSequence([self.seed, partition, block])))
        made = self.make(rows * self.partition_count + partition, random)
        if isinstance(made, pa.RecordBatch):
            batch = made
        else:
            table = pa.table(made).combine_chunks()
            batch = table.to_batches()[0] if table.num_rows else pa.RecordBatch.from_pylist([], schema=table.schema)
        if batch.num_rows != row_count:
            raise ValueError(f"{self.name}: the function was to give {row_count} rows and gave {batch.num_rows}")
        if self.columns is not None:
            batch = batch.select(self.columns)
        return batch.replace_schema_metadata(None)


class GeneratorReader:
    """Gives out blocks, not before they are due."""

    def __init__(
        self, source: GeneratorSource, partition: int, position: Position | None, now_us: Callable[[], int]
    ) -> None:
        self.source = source
        self.partition = partition
        self.now_us = now_us
        self.row: int
        self.row, count = (0, source.partition_count) if position is None else _POSITION.unpack(position)
        if count != source.partition_count:
            raise JobFailedError(
                f"{source.name}: the snapshot was taken with {count} partitions, now there are "
                f"{source.partition_count}: they hold other rows. Give it partitions={count} again"
            )
        self.row_end = source.partition_rows(partition)
        self.block_index = -1
        self.block: Batch | None = None
        self.first_row = self.row  # due at `start_us`
        self.start_us: int | None = None
        self.given_us = 0
        self.empty = Batch.empty(source.schema)

    def read(self) -> Rows | None:
        if self.row_end is not None and self.row >= self.row_end:
            return None
        block_index, row_in_block = divmod(self.row, BLOCK_ROWS)
        row_count = BLOCK_ROWS if self.row_end is None else min(BLOCK_ROWS, self.row_end - block_index * BLOCK_ROWS)
        due = min(row_count - row_in_block, self.due_rows())
        if due <= 0:
            return Rows(self.empty, self._position())
        if self.block_index != block_index:
            self.block = Batch.from_arrow(self.source.make_block(self.partition, block_index, row_count))
            self.block_index = block_index
        assert self.block is not None
        batch = self.block if due == self.block.row_count else self.block.slice(row_in_block, due)
        first_row = self.row
        self.row += due
        return Rows(batch, self._position(), first_row)

    def _position(self) -> Position:
        return _POSITION.pack(self.row, self.source.partition_count)

    def due_rows(self) -> int:
        """Rows that the schedule wants now. The first is due at once, row k after k / rate."""
        if self.source.rate is None:
            return BLOCK_ROWS
        now = self.now_us()
        if self.start_us is None:
            self.start_us = now
        elif now - self.given_us < BATCH_DELAY_US:
            return 0
        rate = self.source.rate / self.source.partition_count
        due = self.first_row + 1 + int((now - self.start_us) * rate / 1_000_000) - self.row
        if due > 0:
            self.given_us = now
        return due

    def close(self) -> None:
        self.block = None
