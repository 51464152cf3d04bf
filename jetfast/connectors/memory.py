"""Rows from the memory of the submitting process, with faults as items of the script."""

import struct
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple, Self

import pyarrow as pa

from jetfast.core.batch import Batch, BatchRun, batches_with_origin
from jetfast.core.guarantee import Delivery
from jetfast.core.processor import ProcessorContext
from jetfast.core.source import LARGE_BATCH_ROWS, Position, ReadyRows, Rows
from jetfast.errors import JobDefinitionError, JobFailedError, RestartableError
from jetfast.types import BATCH_ROWS_MAX, Duration, positive_duration_us


class ScriptItem(Enum):
    """What a script may hold besides rows."""

    CRASH = "crash"
    """The reader raises RestartableError when it comes here: once in the life of this process, so that a restart
    gets past.
    """
    EMPTY = "empty"
    """One sound empty answer: nothing at present."""


CRASH = ScriptItem.CRASH
EMPTY = ScriptItem.EMPTY

ROWS_AT_ONCE = 1 << 17
"""Of small batches: so many rows are taken in together."""
RUNS_AT_ONCE = 4
"""Of large batches that are read in runs: so many runs."""

SILENCE_STEP_US = 500_000
"""A silence moves a virtual clock by so much each time a reader is asked: often enough for idle timeouts of seconds."""


@dataclass(frozen=True)
class Silence:
    """An item of a script: empty answers for so long, by the clock of the job."""

    duration_us: int


def silence(duration: Duration) -> Silence:
    """An item of a script: its partition gives empty answers for so long, by the clock of the job.

    A `jetfast.testing.VirtualClock` is moved on by it; so nobody sleeps.
    """
    return Silence(positive_duration_us(duration, "silence"))


_POSITION = struct.Struct("<qqqq")  # item of the script, row in it, row in the partition; MemorySource.divided_into
_crashed: set[tuple[str, str, int]] = set()  # (source, partition, item) that have crashed in this process

Script = tuple[pa.RecordBatch | ScriptItem | Silence, ...]


def memory(
    data: Any = None,
    *,
    partitions: int | Mapping[str, Any] | Sequence[Any] | None = None,
    schema: pa.Schema | None = None,
    unbounded: bool = False,
    batch_rows: int = BATCH_ROWS_MAX,
    name: str | None = None,
) -> "MemorySource":
    """Rows that this process holds, as a source.

    Parameters
    ----------
    data : a Table, RecordBatch, pandas or polars DataFrame, anything with `__arrow_c_stream__` or
        `__arrow_c_array__`, a dict of columns, or a list of these (each stays a batch of its own) in which CRASH,
        EMPTY and silence("60s") may stand
    partitions : number of source partitions that `data` is divided into (runs of rows, in order); or, instead of
        `data`, the data of each source partition: a mapping by name, or a list (named "0", "1", ...)
    schema : columns and types to convert to; needed if there are no rows at all
    unbounded : after the last row the source stays silent instead of ending
    batch_rows : rows of a batch at most

    Raises JobDefinitionError if pieces differ in columns or types, or the data cannot be read as a table.
    """
    label = name or "memory"
    divided_into = 0
    if isinstance(partitions, int):
        if partitions < 1:
            raise JobDefinitionError(f"{label}: partitions must be at least 1, got {partitions}")
        scripts = _divide(_script(label, data, schema), partitions)
        divided_into = partitions if partitions > 1 else 0
    elif partitions is None:
        scripts = {"0": _script(label, data, schema)}
    else:
        if data is not None:
            raise JobDefinitionError(f"{label}: give data, or partitions with the data of each, not both")
        items = (
            partitions.items() if isinstance(partitions, Mapping) else ((str(i), p) for i, p in enumerate(partitions))
        )
        scripts = {str(key): _script(f"{label}, partition {key!r}", value, schema) for key, value in items}
    if batch_rows < 1:
        raise JobDefinitionError(f"{label}: batch_rows must be at least 1, got {batch_rows}")
    found = schema.remove_metadata() if schema is not None else None
    for key, script in scripts.items():
        for index, item in enumerate(script):
            if not isinstance(item, pa.RecordBatch):
                continue
            if found is None:
                found = item.schema
            elif not item.schema.equals(found):
                raise JobDefinitionError(
                    f"{label}: piece {index} of partition {key!r} has the columns {_columns(item.schema)}; "
                    f"the columns before were {_columns(found)}"
                )
    if found is None:
        raise JobDefinitionError(f"{label}: there are no rows that tell the columns; give schema=")
    return MemorySource(label, found, scripts, not unbounded, batch_rows, uuid.uuid4().hex, divided_into=divided_into)


class MemorySource:
    """See `memory`. Position: item of the script and row in it, and into how many partitions the data was divided."""

    cooperative = True
    source_delivery = Delivery.REPLAYABLE
    discovery_interval = None  # its partitions never change

    def __init__(
        self,
        name: str,
        schema: pa.Schema,
        scripts: dict[str, Script],
        bounded: bool,
        batch_rows: int,
        identity: str,
        ends: bool | None = None,
        divided_into: int = 0,
    ) -> None:
        self.name = name
        self.schema = schema
        self.scripts = scripts
        self.bounded = bounded
        self.ends = bounded if ends is None else ends
        """Do partitions end with their script? One that ends, but is not said to be bounded, may turn idle before."""
        self.batch_rows = batch_rows
        self.divided_into = divided_into
        """Into how many partitions the data was divided here, which decides what each holds; 0: they were given."""
        self.identity = identity
        """Names this source in its copies, so that each CRASH happens once."""
        self._taken_in: dict[str, list[TakenIn | None]] = {}

    def taken_in(self, partition: str) -> "list[TakenIn | None]":
        """What each item of a script was taken in with; None for what has no rows, or was not read yet.

        Taken in once (zero-copy), so that reading again makes nothing.
        """
        return self._taken_in.setdefault(partition, [None] * len(self.scripts[partition]))

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_taken_in": {}}

    def partitions(self) -> Sequence[str]:
        return list(self.scripts)

    @property
    def total_rows(self) -> int:
        """Rows of all partitions, for progress."""
        return sum(
            item.num_rows for script in self.scripts.values() for item in script if isinstance(item, pa.RecordBatch)
        )

    def open_reader(self, partition: str, position: Position | None, context: ProcessorContext) -> "MemoryReader":
        return MemoryReader(self, partition, position, context.now_us)

    def with_columns(self, names: Sequence[str]) -> Self:
        schema = pa.schema([self.schema.field(name) for name in names])
        scripts = {
            key: tuple(item.select(list(names)) if isinstance(item, pa.RecordBatch) else item for item in script)
            for key, script in self.scripts.items()
        }
        return type(self)(
            self.name,
            schema,
            scripts,
            self.bounded,
            self.batch_rows,
            self.identity,
            self.ends,
            self.divided_into,
        )


class TakenIn(NamedTuple):
    """Items of a script that follow each other, as batches that know where they come from."""

    first_item: int
    batches: BatchRun


class MemoryReader:
    """Walks one script."""

    def __init__(
        self, source: MemorySource, partition: str, position: Position | None, now_us: Callable[[], int]
    ) -> None:
        self.source = source
        self.partition = partition
        self.script = source.scripts[partition]
        self.taken_in = source.taken_in(partition)
        self.item, self.row, self.partition_row, divided_into = (
            (0, 0, 0, source.divided_into) if position is None else _POSITION.unpack(position)
        )
        if divided_into != source.divided_into:
            raise JobFailedError(
                f"{source.name}: the snapshot was taken with {_division(divided_into)}, and now there is "
                f"{_division(source.divided_into)}: its partitions hold other rows"
            )
        self.empty = Batch.empty(source.schema)
        self.now_us = now_us
        self.silent_since_us: int | None = None
        self.seen_us: int | None = None  # the clock, when this reader last looked at it in a silence

    def read(self) -> Rows | None:
        while self.item < len(self.script):
            item = self.script[self.item]
            if item is CRASH:
                key = (self.source.identity, self.partition, self.item)
                if key not in _crashed:
                    _crashed.add(key)
                    raise RestartableError(
                        f"{self.source.name}: scripted crash at item {self.item} of partition {self.partition!r}"
                    )
                self.item += 1
            elif item is EMPTY:
                self.item += 1
                return Rows(self.empty, self._position())
            elif isinstance(item, Silence):
                if self._is_silent(item):
                    return Rows(self.empty, self._position())
                self.item += 1
            elif item.num_rows == 0:
                self.item += 1
            else:
                return self._read_rows()
        return None if self.source.ends else Rows(self.empty, self._position())

    def read_ready(self, rows_max: int) -> ReadyRows | None:
        taken_in = self._take_in(RUNS_AT_ONCE * rows_max) if self.row == 0 else None
        if taken_in is None:
            return None
        first = self.item - taken_in.first_item
        batches = taken_in.batches.take_sized(first, LARGE_BATCH_ROWS, self.source.batch_rows, rows_max)
        if not batches:
            return None
        self.item += len(batches)
        self.partition_row += batches.row_count
        return ReadyRows(batches, self._position())

    def _take_in(self, rows_max: int) -> TakenIn | None:
        """Take in this item, and those with rows behind it, up to so many rows; None if it has no rows."""
        if self.item == len(self.script):
            return None
        taken_in: TakenIn | None = self.taken_in[self.item]
        if taken_in is None:
            item = self.script[self.item]
            if not isinstance(item, pa.RecordBatch) or item.num_rows == 0:
                return None
            first_row = self.partition_row - self.row
            batches = batches_with_origin(self.script, self.item, rows_max, self.partition, first_row)
            taken_in = TakenIn(self.item, batches)
            self.taken_in[self.item : self.item + len(batches)] = [taken_in] * len(batches)
        return taken_in

    def _is_silent(self, item: Silence) -> bool:
        """Is the silence not over yet? A virtual clock that nobody has moved since the last look is moved on."""
        now_us = self.now_us()
        if self.silent_since_us is None:
            self.silent_since_us = now_us
        move_us = getattr(self.now_us, "advance_us", None)
        left_us = self.silent_since_us + item.duration_us - now_us
        if left_us <= 0:
            self.silent_since_us = self.seen_us = None
            return False
        if move_us is not None and now_us == self.seen_us:
            # Also when it ends the silence: rows come with the next answer, to a poll that begins at that time.
            now_us = move_us(min(SILENCE_STEP_US, left_us))
        self.seen_us = now_us
        return True

    def _read_rows(self) -> Rows:
        taken_in, first_row = self._take_in(ROWS_AT_ONCE), self.partition_row
        assert taken_in is not None
        batch = taken_in.batches[self.item - taken_in.first_item]
        row_count = min(self.source.batch_rows, batch.row_count - self.row)
        part = batch if row_count == batch.row_count else batch.slice(self.row, row_count)
        self.row += row_count
        self.partition_row += row_count
        if self.row == batch.row_count:
            self.item, self.row = self.item + 1, 0
        return Rows(part, self._position(), first_row)

    def _position(self) -> Position:
        return _POSITION.pack(self.item, self.row, self.partition_row, self.source.divided_into)

    def close(self) -> None:
        """Nothing is held."""


def _script(label: str, data: Any, schema: pa.Schema | None) -> Script:
    """Return data as record batches without metadata, and script items."""
    pieces = data if isinstance(data, list | tuple) else [] if data is None else [data]
    script: list[pa.RecordBatch | ScriptItem | Silence] = []
    for index, piece in enumerate(pieces):
        if isinstance(piece, ScriptItem | Silence):
            script.append(piece)
            continue
        if schema is None and isinstance(piece, pa.RecordBatch):  # as below, and many times as fast
            script.append(piece.replace_schema_metadata(None) if piece.schema.metadata else piece)
            continue
        try:
            table = _table(piece, schema)
        except (TypeError, ValueError, pa.ArrowException) as error:
            raise JobDefinitionError(
                f"{label}: piece {index} ({type(piece).__name__}) cannot be read as a table: {error}"
            ) from error
        # A table without rows stays, as one batch: it tells the columns.
        batches = [batch for batch in table.to_batches() if batch.num_rows]
        script += batches or [
            pa.RecordBatch.from_arrays([pa.nulls(0, each.type) for each in table.schema], schema=table.schema)
        ]
    return tuple(script)


def _table(piece: Any, schema: pa.Schema | None) -> pa.Table:
    pandas = sys.modules.get("pandas")
    if isinstance(piece, pa.RecordBatchReader):
        table = piece.read_all()
    elif isinstance(piece, pa.Table):
        table = piece
    elif isinstance(piece, pa.RecordBatch):
        table = pa.Table.from_batches([piece])
    elif isinstance(piece, Mapping):
        table = pa.table(dict(piece), schema=schema)
    elif pandas is not None and isinstance(piece, pandas.DataFrame):
        table = pa.Table.from_pandas(piece, preserve_index=False)
    elif hasattr(piece, "__arrow_c_stream__"):
        table = pa.table(piece)
    elif hasattr(piece, "__arrow_c_array__"):
        table = pa.Table.from_batches([pa.record_batch(piece)])
    else:
        raise TypeError("it must have __arrow_c_stream__ or __arrow_c_array__, or be a dict of columns")
    if schema is not None and not table.schema.equals(schema):
        table = table.select(schema.names).cast(schema)
    return table.replace_schema_metadata(None)


def _divide(script: Script, count: int) -> dict[str, Script]:
    """Divide rows into `count` runs of nearly equal length; script items are refused, since nothing says where they
    go.
    """
    batches = [item for item in script if isinstance(item, pa.RecordBatch)]
    if len(batches) < len(script):
        raise JobDefinitionError("memory: CRASH and EMPTY need partitions= with the script of each, not a number")
    total = sum(batch.num_rows for batch in batches)
    scripts: dict[str, Script] = {}
    for index in range(count):
        first, last = total * index // count, total * (index + 1) // count
        pieces = []
        start = 0
        for batch in batches:
            low, high = max(first, start), min(last, start + batch.num_rows)
            if low < high:
                pieces.append(batch.slice(low - start, high - low))
            start += batch.num_rows
        scripts[str(index)] = tuple(pieces)
    if not total and script:
        scripts["0"] = script  # it tells the columns
    return scripts


def _division(divided_into: int) -> str:
    return f"partitions={divided_into}" if divided_into else "no number of partitions"


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
