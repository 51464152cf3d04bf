"""Windows over a streaming DataFrame: the first stage of a bounded one, and a second whose state Spark keeps.

    rows of a micro-batch, in any order
      -> mapInArrow: one state per key and frame -> pieces (partition of the keys, first frame, states)
      -> applyInPandasWithState by partition: open frames of the last batch + pieces, advanced to the watermark
      -> mapInArrow: the results, which came as Arrow bytes, as rows

What Spark keeps for each partition of the keys is one row: the watermark up to which windows were given, and the frames
that open windows hold. It is part of the query's checkpoint, so a batch that runs again finds what it found before.

Late as in Spark: a row counts in every window that ends behind the watermark of the batch before. All partitions learn
of each watermark: a batch with rows tells every one, and a state times out as soon as the watermark moves.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from jetfast.core.batch import Batch
from jetfast.core.windows import AnyWindow, Window
from jetfast.errors import JobDefinitionError
from jetfast.processors.combine_frames import CombineFrames
from jetfast.spark.window_stages import PIECES, AccumulateRows, CombineStates

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql.streaming.state import GroupState

WATERMARK_MARK = "spark.watermarkDelayMs"
"""In the metadata of a column that has a watermark."""
_NEVER_LATE_US = 9_214_646_400_000_000  # 2262, the last year that pandas knows
STATE_BYTES_MAX = 1 << 30
"""Of one partition of the keys. Arrow's limit for a value is twice that, and Spark copies it several times."""


def check_stream(rows: Any, time: str, said: str, window: AnyWindow) -> None:
    """Raise JobDefinitionError for a stream that has no watermark on `time` (which the user calls `said`), and for
    sessions.
    """
    if not isinstance(window, Window):
        raise JobDefinitionError(
            f"window_aggregate: a streaming DataFrame takes tumbling and sliding windows, not a {window}; take Spark's "
            "groupBy(..., session_window(...)), which copies no rows"
        )
    if WATERMARK_MARK not in rows.schema[time].metadata:
        raise JobDefinitionError(
            f"window_aggregate: the streaming DataFrame has no watermark on {said!r}, so that no window would ever "
            f"end; call df.withWatermark({said!r}, ...) first, on the column itself"
        )


def aggregate_stream(rows: Any, accumulate: AccumulateRows, combine: CombineStates, schema: Any) -> Any:
    """Return the streaming DataFrame of results, of Spark's `schema`."""
    from pyspark.sql.streaming.state import GroupStateTimeout
    from pyspark.sql.types import BinaryType, LongType, StringType, StructType

    pieces = rows.mapInArrow(AccumulateBatch(accumulate), _pieces_schema())
    results = pieces.groupBy("partition").applyInPandasWithState(
        AdvanceWindows(combine),
        StructType().add("results", BinaryType()),
        StructType().add("definition", StringType()).add("watermark_ms", LongType()).add("frames", BinaryType()),
        "append",
        GroupStateTimeout.EventTimeTimeout,
    )
    return results.mapInArrow(DecodeResults(combine.result), schema)


def _pieces_schema() -> Any:
    """Spark's schema of pieces, with a column by which Spark sees that the query has a watermark.

    What leaves `mapInArrow` are new columns. Without one that bears the mark of `withWatermark` no state may time out;
    by its values Spark drops late rows, and here it must drop none.
    """
    from pyspark.sql.types import BinaryType, IntegerType, LongType, StructType, TimestampType

    schema = StructType().add("partition", IntegerType()).add("start", LongType()).add("states", BinaryType())
    return schema.add("at", TimestampType(), metadata={WATERMARK_MARK: 0})


def _of_any_time(pieces: pa.RecordBatch) -> pa.RecordBatch:
    return pieces.append_column("at", pa.array([_NEVER_LATE_US] * pieces.num_rows, pa.timestamp("us", "UTC")))


@dataclass(frozen=True)
class AccumulateBatch:
    """What `mapInArrow` calls for the first stage: pieces, and from one Spark partition an empty one for everybody."""

    accumulate: AccumulateRows

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        for pieces in self.accumulate(batches):
            yield _of_any_time(pieces)
        task = TaskContext.get()
        if task is not None and task.partitionId() == 0:
            count = len(self.accumulate.labels)
            columns = [self.accumulate.labels, [0] * count, [b""] * count]
            arrays = [pa.array(column, field.type) for column, field in zip(columns, PIECES, strict=True)]
            yield _of_any_time(pa.record_batch(arrays, schema=PIECES))


@dataclass(frozen=True)
class AdvanceWindows:
    """What `applyInPandasWithState` calls for each partition of the keys, by its label."""

    combine: CombineStates

    def __call__(
        self, key: tuple[Any, ...], frames: Iterator["pd.DataFrame"], state: "GroupState"
    ) -> Iterator["pd.DataFrame"]:
        import pandas as pd

        windows = OpenWindows(self.combine, int(key[0]), state.getOption)
        for pieces in frames:
            windows.add(pieces["states"])
        watermark_ms = state.getCurrentWatermarkMs()
        for results in windows.advance(watermark_ms * 1000):
            yield pd.DataFrame({"results": [results.serialize().to_pybytes()]})
        state.update((windows.definition, watermark_ms, windows.save()))
        state.setTimeoutTimestamp(max(watermark_ms, 1))  # comes when the watermark is greater


class OpenWindows:
    """The windows of one partition of the keys, for one micro-batch.

    Parameters
    ----------
    combine : what the second stage knows
    label : of the partition
    state : definition, watermark (milliseconds) and frames, as after the last batch; None: there was none

    Raises JobDefinitionError if the state is of other windows.
    """

    def __init__(self, combine: CombineStates, label: int, state: tuple[str, int, bytes] | None) -> None:
        rows = combine.rows
        assert isinstance(rows.window, Window)
        processor = CombineFrames(rows.schema, rows.keys, rows.time, rows.aggregates, rows.window)
        # A label that is unknown has a state of another definition.
        partition = combine.labels.index(label) if label in combine.labels else 0
        self.combine = combine
        self.table = processor.make_table(rows.context_of(partition))
        definition, watermark_ms, frames = state or (self.definition, 0, b"")  # Spark's watermark before the first
        if definition != self.definition:
            raise JobDefinitionError(
                f"window_aggregate: the checkpoint is of other windows ({definition}) than the query now "
                f"({self.definition}): change back what differs, or begin with a new checkpoint"
            )
        if frames:
            for saved in pa.ipc.open_stream(frames):
                self.table.restore(saved)
        self.table.restore_bound(partition, watermark_ms * 1000)
        self.table.finish_restore()

    @property
    def definition(self) -> str:
        """What a state must agree with."""
        fields = ", ".join(f"{field.name} {field.type}" for field in self.table.partial_schema)
        return f"{self.combine.rows.window}, spark.sql.shuffle.partitions {len(self.combine.labels)}, {fields}"

    def add(self, pieces: Iterable[bytes]) -> None:
        """Add what rows came to. Rows none of whose windows is open are dropped."""
        for states in pieces:
            if states:
                found = pa.ipc.read_record_batch(pa.py_buffer(states), self.table.partial_schema)
                self.table.accumulate_partials(Batch.from_arrow(found))

    def advance(self, watermark: int) -> Iterator[pa.RecordBatch]:
        """Give the results of all windows that end at or before the watermark (microseconds)."""
        if self.table.advance(watermark):
            while (results := self.table.emit()) is not None:
                yield self.combine.named(results.to_arrow())

    def save(self) -> bytes:
        """Frames of the open windows. Raises JobDefinitionError if they are too many for Spark's state store."""
        saved = self.table.save()
        size = sum(rows.nbytes for rows in saved)
        if size > STATE_BYTES_MAX:
            raise JobDefinitionError(
                f"window_aggregate: the open windows of one of {len(self.combine.labels)} partitions of the keys take "
                f"{size >> 20} MiB, Spark's state store can keep {STATE_BYTES_MAX >> 20}; begin the query anew with a "
                "greater spark.sql.shuffle.partitions"
            )
        return _stream_of(saved)


@dataclass(frozen=True)
class DecodeResults:
    """What `mapInArrow` calls behind the second stage: Arrow bytes to rows of the schema."""

    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for results in batch.column(0):
                yield pa.ipc.read_record_batch(results.as_buffer(), self.schema)


def _stream_of(batches: Sequence[pa.RecordBatch]) -> bytes:
    if not batches:
        return b""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as stream:
        for batch in batches:
            stream.write_batch(batch)
    found: bytes = sink.getvalue().to_pybytes()
    return found
