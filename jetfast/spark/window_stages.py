"""A window over a bounded DataFrame in two stages, each a function of the rows of one Spark partition.

    rows of a Spark partition, in any order
      -> first stage: one state per key and frame (or session) -> pieces (partition of the keys, first frame, states)
      -> Spark's shuffle by partition, sorted by first frame
      -> second stage: states of a key meet; a window leaves when no later piece can hold one of its frames

Nothing is late: the end of the rows is the watermark. No row becomes several: a sliding window of 100 frames costs what
its frames cost. States cross the shuffle as Arrow bytes, so that Spark moves a few large values and looks at none.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jetfast.core.aggregate import AnyAggregateColumn
from jetfast.core.batch import Batch
from jetfast.core.processor import BY_KEYS, ProcessorContext, StateBatch
from jetfast.core.state_sharing import share_state
from jetfast.core.windows import AnyWindow, SessionWindow, Window
from jetfast.kernels.partitioning import Splitter
from jetfast.processors.accumulate_by_frame import AccumulateByFrame
from jetfast.processors.combine_frames import CombineFrames
from jetfast.processors.session_window import SessionWindowProcessor
from jetfast.spark.conversion import batch_of
from jetfast.types import BATCH_ROWS_MAX, MAX_TIME

PIECES = pa.schema([("partition", pa.int32()), ("start", pa.int64()), ("states", pa.binary())])
"""What crosses the shuffle: partition of the keys, end of the earliest frame in it (microseconds), rows of states."""
PIECES_SCHEMA = "partition int, start long, states binary"
HELD_ROWS_MAX = 1 << 22
"""A first stage gives its states away after so many rows: it holds at most one for each."""
Piece = tuple[int, int, pa.RecordBatch]


@dataclass(frozen=True)
class WindowedRows:
    """What both stages know.

    Parameters
    ----------
    schema : of the rows: keys, time and arguments
    keys : names; none: all rows together
    time : name of the event time
    aggregates : result columns
    window : its definition
    partition_count : of the keys
    """

    schema: pa.Schema
    keys: tuple[str, ...]
    time: str
    aggregates: tuple[AnyAggregateColumn, ...]
    window: AnyWindow
    partition_count: int

    @property
    def context(self) -> ProcessorContext:
        return ProcessorContext("window_aggregate", partition_count=self.partition_count)

    def context_of(self, partition: int) -> ProcessorContext:
        """That of a table which has the keys of one partition only."""
        return replace(self.context, partitions=(partition,))

    def sessions(self, window: SessionWindow) -> SessionWindowProcessor:
        return SessionWindowProcessor(self.schema, self.keys, self.time, self.aggregates, window)


class FirstStage(Protocol):
    """Takes rows of one Spark partition; `pieces` gives what they came to and forgets it."""

    def accumulate(self, batch: Batch) -> None: ...

    def pieces(self) -> Iterator[Piece]: ...


class SecondStage(Protocol):
    """Takes pieces of some partitions of the keys, in the order of their starts; gives results."""

    def combine(self, piece: Piece) -> Iterator[pa.RecordBatch]: ...

    def finish(self) -> Iterator[pa.RecordBatch]: ...


class FramesOfRows:
    """First stage of tumbling and sliding windows."""

    def __init__(self, rows: WindowedRows, window: Window) -> None:
        self.table = AccumulateByFrame(rows.schema, rows.keys, rows.time, rows.aggregates, window).table
        self.frame = len(rows.keys)  # place of its column
        schema = self.table.partial_schema
        owners = np.arange(rows.partition_count, dtype=np.int32)
        self.splitter = Splitter(schema, rows.keys, owners, rows.partition_count) if rows.keys else None

    def accumulate(self, batch: Batch) -> None:
        self.table.accumulate(batch)

    def pieces(self) -> Iterator[Piece]:
        self.table.flush()
        while (partials := self.table.take_partials()) is not None:
            parts = [partials] if self.splitter is None else self.splitter.split(partials)
            for partition, part in enumerate(parts):
                if part is not None:
                    states = part.to_arrow()
                    yield partition, pc.min(states.column(self.frame)).as_py(), states


class SessionsOfRows:
    """First stage of sessions: those of one Spark partition, which others may extend or join."""

    def __init__(self, rows: WindowedRows, window: SessionWindow) -> None:
        self.processor = rows.sessions(window)
        self.context = rows.context
        self.table = self.processor.make_table(self.context)

    def accumulate(self, batch: Batch) -> None:
        self.table.accumulate(batch)

    def pieces(self) -> Iterator[Piece]:
        saved = self.table.save()
        self.table = self.processor.make_table(self.context)
        partitions = range(self.context.partition_count)
        owners = np.arange(len(partitions), dtype=np.int32)
        for rows in saved:
            state = StateBatch(BY_KEYS, self.processor.state_kind, rows, self.processor.keys)
            for partition, part in share_state(state, owners, partitions):
                for first in range(0, part.rows.num_rows, BATCH_ROWS_MAX):
                    yield partition, 0, part.rows.slice(first, BATCH_ROWS_MAX)


class WindowsOfFrames:
    """Second stage of tumbling and sliding windows."""

    def __init__(self, rows: WindowedRows, window: Window) -> None:
        self.window = window
        combine = CombineFrames(rows.schema, rows.keys, rows.time, rows.aggregates, window)
        self.table = combine.make_table(rows.context)

    def combine(self, piece: Piece) -> Iterator[pa.RecordBatch]:
        _, start, states = piece
        yield from self.results(start - self.window.slide_us)  # no later piece has a frame that ends before `start`
        self.table.accumulate_partials(Batch.from_arrow(states))

    def finish(self) -> Iterator[pa.RecordBatch]:
        return self.results(MAX_TIME)

    def results(self, watermark: int) -> Iterator[pa.RecordBatch]:
        """Results of all windows that end at or before the watermark."""
        if self.table.advance(watermark):
            while (results := self.table.emit()) is not None:
                yield results.to_arrow()


class MergedSessions:
    """Second stage of sessions: nothing leaves before all are there."""

    def __init__(self, rows: WindowedRows, window: SessionWindow) -> None:
        self.table = rows.sessions(window).make_table(rows.context)

    def combine(self, piece: Piece) -> Iterator[pa.RecordBatch]:
        self.table.restore(piece[-1])
        yield from ()

    def finish(self) -> Iterator[pa.RecordBatch]:
        self.table.finish_restore()
        if self.table.advance(MAX_TIME):
            while (results := self.table.emit()) is not None:
                yield results.to_arrow()


@dataclass(frozen=True)
class AccumulateRows:
    """What `mapInArrow` calls for the first stage. `labels`: what stands for each partition in the shuffle."""

    rows: WindowedRows
    labels: tuple[int, ...]

    def stage(self) -> FirstStage:
        window = self.rows.window
        if isinstance(window, SessionWindow):
            return SessionsOfRows(self.rows, window)
        return FramesOfRows(self.rows, window)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        stage = self.stage()
        held = 0
        for rows in batches:
            stage.accumulate(batch_of(rows, self.rows.schema))
            held += rows.num_rows
            if held >= HELD_ROWS_MAX:
                yield from self.pieces(stage)
                held = 0
        yield from self.pieces(stage)

    def pieces(self, stage: FirstStage) -> Iterator[pa.RecordBatch]:
        for partition, start, states in stage.pieces():
            columns = [[self.labels[partition]], [start], [states.serialize().to_pybytes()]]
            yield pa.record_batch(
                [pa.array(column, field.type) for column, field in zip(columns, PIECES, strict=True)], schema=PIECES
            )


@dataclass(frozen=True)
class CombineStates:
    """What `mapInArrow` calls for the second stage. `result`: keys, the window as a struct, the aggregates."""

    rows: WindowedRows
    labels: tuple[int, ...]
    result: pa.Schema

    def stage(self) -> tuple[SecondStage, pa.Schema]:
        """The stage, and the schema of the states."""
        window = self.rows.window
        if isinstance(window, SessionWindow):
            sessions = MergedSessions(self.rows, window)
            return sessions, sessions.table.partial_schema
        windows = WindowsOfFrames(self.rows, window)
        return windows, windows.table.partial_schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        stage, schema = self.stage()
        for pieces in batches:
            for label, start, states in zip(*pieces.columns, strict=True):
                found = pa.ipc.read_record_batch(states.as_buffer(), schema)
                yield from map(self.named, stage.combine((self.labels.index(label.as_py()), start.as_py(), found)))
        yield from map(self.named, stage.finish())

    def named(self, results: pa.RecordBatch) -> pa.RecordBatch:
        """Results as Spark has them."""
        count = len(self.rows.keys)
        columns: Sequence[Any] = results.columns
        start_and_end = self.result.field(count).type
        times = [column.view(start_and_end.field(0).type) for column in columns[count : count + 2]]
        window = pa.StructArray.from_arrays(times, fields=list(start_and_end))
        return pa.RecordBatch.from_arrays([*columns[:count], window, *columns[count + 2 :]], schema=self.result)
