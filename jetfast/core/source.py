"""What a connector implements: a Source lists partitions, a PartitionReader reads one; a Sink opens SinkWriters.

`jetfast.processors.source.ReadSource` turns any Source into a processor: it assigns source partitions to processors,
reads the unfinished partition with the lowest watermark first, makes event time, and handles idleness and positions.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, Self, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from jetfast.core.batch import Batch, BatchRun
from jetfast.core.guarantee import Delivery
from jetfast.core.processor import ProcessorContext
from jetfast.types import Duration, positive_duration_us

DISCOVERY_INTERVAL: Duration = "30s"
"""How often an unbounded source that does not say is asked for its partitions."""

LARGE_BATCH_ROWS = 1024
"""Batches of so many rows are read several at a time from a source that never waits."""

Position = bytes
"""Where a reader stands, as the connector writes it (stable across versions of Python): goes into snapshots as is."""

REJECTED_SCHEMA = pa.schema(
    [
        pa.field("partition", pa.string()),  # source partition: the file, the topic partition
        pa.field("position", pa.int64()),  # line, row number or offset in it, counted from 0
        pa.field("reason", pa.string()),
        pa.field("row", pa.string()),  # the raw line, or the row as JSON
    ]
)
"""Rows of `source.rejected_rows`: malformed rows, and rows whose event time is null or cannot be converted."""


class Rows(NamedTuple):
    """One answer of a reader: rows, and where the reader stands after them.

    `first_row` is the index of the batch's first row in its partition (line, row number or offset), for messages.
    """

    batch: Batch
    position: Position
    first_row: int = 0
    rejected: Batch | None = None
    """Malformed rows met on the way (REJECTED_SCHEMA); None for none."""
    filtered_rows: int = 0
    """Rows that the reader itself dropped by a pushed-down filter: they count as activity."""
    origin: str | None = None
    """What `first_row` counts in, when that is not the whole partition: the file of a partition of several files."""
    row_numbers: npt.NDArray[np.int64] | None = None
    """Line, row number or offset of each row, shape (rows,), when they do not simply follow `first_row`."""
    receipts: Sequence[Any] | None = None
    """Of an acknowledging source: what acknowledges each row's message, then each rejected row's."""
    message_ids: Sequence[str | None] | None = None
    """Of an acknowledging source: the ids of these messages, as their producer has set them; None: it has not."""


class ReadyRows(NamedTuple):
    """Batches that follow each other in a partition and know it (`BatchRun.with_origin`), and where the reader stands
    after them.
    """

    batches: BatchRun
    position: Position


class PartitionReader(Protocol):
    """Reads one source partition, from one thread."""

    def read(self) -> "Rows | None":
        """The next rows; a batch of 0 rows is a sound empty answer (nothing at present); None: the end, for ever.

        Raises RestartableError when the system cannot be reached, JobFailedError for data that cannot be read at all.
        Of other errors those that pass by themselves restart the job (`core.transient_errors`); all others fail it.
        """

    def close(self) -> None:
        """Release files and connections. Called once."""


class ReadsSeveral(Protocol):
    """What a PartitionReader that never waits may offer besides, if it has rows in memory before they are read."""

    def read_ready(self, rows_max: int) -> ReadyRows | None:
        """What the next calls of `read` would give, as far as it is batches of LARGE_BATCH_ROWS rows and more.

        It ends with the one that makes it `rows_max` rows or more, if not before. None: `read` says what comes next.
        """


class Source(Protocol):
    """Where rows come from. Picklable; a copy is used on every member. Construction has checked that it can be read."""

    @property
    def name(self) -> str:
        """For messages and as default step name, e.g. "files(flights/*.parquet)"."""

    @property
    def schema(self) -> pa.Schema:
        """Names and types of the columns."""

    @property
    def bounded(self) -> bool:
        """True: every partition ends. A bounded partition is never idle."""

    @property
    def cooperative(self) -> bool:
        """True: `read` never blocks (memory, generator)."""

    @property
    def source_delivery(self) -> Delivery:
        """REPLAYABLE, if a reader that is opened at a position gives the rows that followed it, in their order."""

    def partitions(self) -> Sequence[str]:
        """Names of the source partitions; a name always stands for the same rows.

        Of a bounded source it is called when a job is submitted, and that list holds for all its members and
        restarts: partition i is read by processor i mod parallelism. An unbounded one is asked again while the job
        runs, see `DiscoversPartitions`.
        """

    def open_reader(self, partition: str, position: Position | None, context: ProcessorContext) -> PartitionReader:
        """Open a partition at a saved position (None: from the start). `context` has the clock."""

    def with_columns(self, names: Sequence[str]) -> Self:
        """Return a copy that reads only these columns (one or more), in this order; unknown names are a KeyError."""


def source_delivery(source: Source) -> Delivery:
    """Return how a source keeps its part of a guarantee; one that does not say is replayable, as its readers are."""
    delivery: Delivery = getattr(source, "source_delivery", Delivery.REPLAYABLE)
    return delivery


class DiscoversPartitions(Protocol):
    """What an unbounded Source may say of its partitions, which may come while the job runs.

    One processor calls `partitions` every `discovery_interval`; what is new is read, each partition by one processor,
    from its beginning. One that is listed no more has not ended, nor has the source when it lists none: a partition
    ends when its reader says so.
    """

    @property
    def discovery_interval(self) -> "Duration | None":
        """Time between two calls of `partitions`; None: they never change. A source that does not say: 30 s."""

    def partitions_complete(self) -> bool:
        """True: `partitions` lists, from now on, all that there will ever be. The source ends when these have ended.

        Optional; called ahead of `partitions`. A source without it never ends.
        """


def discovery_interval_us(source: Source) -> int | None:
    """Return how often a source is asked for its partitions, in microseconds; None: once, at submission."""
    if source.bounded or source_delivery(source) is Delivery.ACKNOWLEDGING:
        return None
    interval: Duration | None = getattr(source, "discovery_interval", DISCOVERY_INTERVAL)
    return None if interval is None else positive_duration_us(interval, f"{source.name}: discovery_interval")


def partitions_complete(source: Source) -> bool:
    """Return whether a source has said that no more partitions come."""
    complete = getattr(source, "partitions_complete", None)
    return complete is not None and bool(complete())


@runtime_checkable
class ChecksEventTime(Protocol):
    """What a Source may offer besides, if it cannot always be read by event time."""

    def check_event_time(self, column: str) -> None:
        """Raise JobDefinitionError if rows cannot be read by the time in `column`. Called when the pipeline is built.

        That there is such a column, of a type that holds times, is checked elsewhere.
        """


class SinkWriter(Protocol):
    """One writer of a sink: belongs to one processor, called by one thread."""

    def write(self, batch: Batch) -> None:
        """Take rows. May block (a sink has its own thread unless `cooperative`)."""

    def flush(self) -> None:
        """All rows written so far must outlive this process. Called before state is saved: only with a guarantee.

        An error is one of the rows, and fails the job; RestartableError: they are read and written again.
        """

    def finish(self) -> None:
        """All rows have been written: make them visible."""

    def abort(self) -> None:
        """Not all rows have been written: leave nothing half-written behind. What was flushed last stays."""


class Sink(Protocol):
    """Where rows go. Picklable; each processor opens one writer.

    A sink may also have `counts = False`, if its rows are only looked at: see `sink_counts`; and `tells_latest = True`,
    if its writers can tell which transaction was committed last: see `TransactionalWriter.latest_known`.
    """

    @property
    def name(self) -> str:
        """For messages and as default step name, e.g. "files(out/windows)"."""

    @property
    def cooperative(self) -> bool:
        """True: `write` never blocks."""

    @property
    def sink_delivery(self) -> Delivery:
        """TRANSACTIONAL (a `core.transaction.TransactionalSink`), PUBLISHING (a `core.publishing.PublishingSink`),
        IDEMPOTENT, REPEATING or WHOLE."""

    @property
    def parallelism_one(self) -> bool:
        """True: one single writer in the whole cluster (console, a single file)."""

    @property
    def target(self) -> str | None:
        """What is written to, such as an absolute path: two sinks of one target are an error. None: no clash."""

    def check(self, schema: pa.Schema) -> None:
        """Raise JobDefinitionError if rows of this schema cannot be written. Called when the pipeline is built."""

    def check_target(self) -> None:
        """Raise JobDefinitionError if the target cannot be written now (it exists, say). Called at each submission."""

    def open_writer(self, schema: pa.Schema, context: ProcessorContext) -> SinkWriter:
        """Open the writer of processor `context.index` of `context.parallelism`."""


def sink_delivery(sink: Sink) -> Delivery:
    """Return how a sink keeps its part of a guarantee; one that does not say repeats rows."""
    delivery: Delivery = getattr(sink, "sink_delivery", Delivery.REPEATING)
    return delivery


def sink_counts(sink: Sink) -> bool:
    """Return whether the guarantee of a job depends on a sink; one that does not say counts."""
    return bool(getattr(sink, "counts", True))


def sink_tells_latest(sink: Sink) -> bool:
    """Return whether a sink can tell which of its transactions was committed last; one that does not say cannot."""
    return bool(getattr(sink, "tells_latest", False))
