"""Data sources of Spark: `jetfast.files` and `jetfast.postgres`, exactly-once sinks of Structured Streaming.

Spark makes a DataSource, and of it a writer, in Python processes of its own: once for the tasks of each batch, once
more to commit it. The writer knows its options; query and batch it learns from Spark's properties of the task.
"""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage

from jetfast.connectors.file_formats import format_named
from jetfast.connectors.files import Files, files
from jetfast.connectors.postgres import Postgres, postgres
from jetfast.core.batch import Batch
from jetfast.engine.blob_snapshot_store import Blobs
from jetfast.errors import JobDefinitionError
from jetfast.spark.batch_records import BatchWrite, BlobBatchRecords, PostgresBatchRecords
from jetfast.spark.batch_writes import BatchOfQuery, Target, abort_batch, commit_batch, prepare_write
from jetfast.spark.conversion import in_utc
from jetfast.spark.sink_folders import S3_OPTIONS, sink_folder

_QUERY = "sql.streaming.queryId"
_BATCH = "streaming.sql.batchId"
_SPARKS_OWN = frozenset({"checkpointlocation", "queryname"})


@dataclass
class PreparedWrite(WriterCommitMessage):  # type: ignore[misc]  # pyspark counts as Any
    """What a task tells the driver."""

    query: str
    write: BatchWrite | None


class BatchWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]
    """Writes the batches of one query to one target. Picklable: it holds no connection."""

    def __init__(self, names: Sequence[str]) -> None:
        self.columns = pa.schema([(name, pa.null()) for name in names])
        """What to commit takes: names; of types only rows tell."""

    @abstractmethod
    def open_target(self, batch: BatchOfQuery, schema: pa.Schema) -> Target:
        """Open the target for rows of this schema."""

    @abstractmethod
    def check(self, schema: pa.Schema) -> None:
        """Raise JobDefinitionError if rows of this schema cannot be written."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> PreparedWrite:
        batch, partition = _place_of_task()

        def open_target(first: Batch) -> Target:
            self.check(first.schema)
            return self.open_target(batch, first.schema)

        rows = (Batch.from_arrow(in_utc(some)) for some in iterator)
        return PreparedWrite(batch.query, prepare_write(batch, partition, rows, open_target))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        self._settle(messages, batchId, commit=True)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        self._settle(messages, batchId, commit=False)

    def _settle(self, messages: Sequence[WriterCommitMessage | None], number: int, commit: bool) -> None:
        told = [message for message in messages if isinstance(message, PreparedWrite)]
        if not told:
            return  # no task has come to its end
        batch = BatchOfQuery(told[0].query, number)
        writes = [message.write for message in told if message.write is not None]
        target = self.open_target(batch, self.columns)
        try:
            (commit_batch if commit else abort_batch)(batch, writes, target)
        finally:
            target.close()


class FilesBatchWriter(BatchWriter):
    """Part files in a folder."""

    def __init__(self, names: Sequence[str], sink: Files, blobs: Blobs) -> None:
        super().__init__(names)
        self.sink = sink
        self.blobs = blobs

    def open_target(self, batch: BatchOfQuery, schema: pa.Schema) -> Target:
        writer = self.sink.open_batch(schema, batch.context)
        return Target(writer, BlobBatchRecords(self.blobs, batch.query))

    def check(self, schema: pa.Schema) -> None:
        self.sink.check(schema)


class PostgresBatchWriter(BatchWriter):
    """Rows of a table."""

    def __init__(self, names: Sequence[str], sink: Postgres) -> None:
        super().__init__(names)
        self.sink = sink

    def open_target(self, batch: BatchOfQuery, schema: pa.Schema) -> Target:
        writer = self.sink.open_transactions(schema, batch.context)
        return Target(writer, PostgresBatchRecords(writer.table.twin(), batch.query))

    def check(self, schema: pa.Schema) -> None:
        self.sink.check(schema)


class JetfastSink(DataSource):  # type: ignore[misc]
    """What the data sources share: they are written to by streams, in append mode, with options that they know."""

    kinds: dict[str, str]
    """Options by name, with what they are."""
    required: tuple[str, ...]

    def streamWriter(self, schema: Any, overwrite: bool) -> BatchWriter:
        if overwrite:
            raise JobDefinitionError(f'{self.name()} takes outputMode("append") only: rows that are written stay')
        options = {name: value for name, value in self.options.items() if name not in _SPARKS_OWN}
        unknown = sorted(set(options) - set(self.kinds))
        if unknown:
            known = "; ".join(f"{name}: {what}" for name, what in self.kinds.items())
            raise JobDefinitionError(f"{self.name()} has no option {unknown[0]!r}; there are {known}")
        for name in self.required:
            if name not in options:
                raise JobDefinitionError(f"{self.name()} needs option {name!r}: {self.kinds[name]}")
        return self.make_writer(schema.fieldNames(), options)

    @abstractmethod
    def make_writer(self, names: Sequence[str], options: dict[str, str]) -> BatchWriter:
        """Make the writer of these options. Raises JobDefinitionError."""


class FilesSink(JetfastSink):
    """`jetfast.files`: see `jetfast.spark.register`."""

    kinds = {
        "path": "a directory that all executors reach, or s3://bucket/folder",
        "format": "parquet (default), csv, json, ipc or ipc_stream",
        **S3_OPTIONS,
    }
    required = ("path",)

    @classmethod
    def name(cls) -> str:
        return "jetfast.files"

    def make_writer(self, names: Sequence[str], options: dict[str, str]) -> BatchWriter:
        folder = sink_folder(options["path"], {name: options[name] for name in S3_OPTIONS if name in options})
        file_format = format_named(options.get("format", "parquet")) or options["format"]
        sink = files(folder.path, file_format, filesystem=folder.filesystem)
        if sink.parallelism_one:
            raise JobDefinitionError(
                f"jetfast.files: {folder.path} has the name of one file; a directory of part files is written there"
            )
        return FilesBatchWriter(names, sink, folder.blobs)


class PostgresSink(JetfastSink):
    """`jetfast.postgres`: see `jetfast.spark.register`."""

    kinds = {
        "conninfo": "as libpq takes it; without it the environment of the executors counts (PGHOST, ...)",
        "table": "a table that is there",
        "transactions": "prepared or staged; without it what server and table allow",
    }
    required = ("table",)

    @classmethod
    def name(cls) -> str:
        return "jetfast.postgres"

    def make_writer(self, names: Sequence[str], options: dict[str, str]) -> BatchWriter:
        sink = postgres(options.get("conninfo", ""), options["table"], transactions=options.get("transactions"))
        return PostgresBatchWriter(names, sink.staged_if_unique())


def _place_of_task() -> tuple[BatchOfQuery, int]:
    """Return the batch that this task belongs to, and its Spark partition."""
    context = TaskContext.get()
    query = None if context is None else context.getLocalProperty(_QUERY)
    batch = None if context is None else context.getLocalProperty(_BATCH)
    if context is None or query is None or batch is None:
        raise JobDefinitionError(
            f"this Spark does not tell its tasks which batch of which query they write ({_QUERY}, {_BATCH}); "
            "a sink cannot write exactly once there"
        )
    return BatchOfQuery(query.replace("-", ""), int(batch)), int(context.partitionId())
