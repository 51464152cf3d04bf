"""Writes rows to a Sink as they come."""

from collections.abc import Callable
from typing import Any, TypeVar

import pyarrow as pa

from jetfast.core.batch import Batch, BatchRun, put_beside
from jetfast.core.items import Output
from jetfast.core.processor import Processor, ProcessorContext, StateBatch
from jetfast.core.source import Sink, SinkWriter
from jetfast.errors import JetfastError, JobFailedError
from jetfast.kernels.carried import carried_schema

Result = TypeVar("Result")


class SinkWriterProcessor(Processor):
    """Hands batches to one writer of a sink; what was not finished when the processor is closed is aborted.

    `schema` is that of the rows that will come, with the extension types that they had before they were carried.
    """

    def __init__(self, sink: Sink, schema: pa.Schema) -> None:
        self.sink = sink
        self.schema = schema
        self.restores_types = carried_schema(schema) is not schema
        self.cooperative = sink.cooperative
        self.writer: SinkWriter | None = None

    def open(self, context: ProcessorContext) -> None:
        self.context = context
        context.counters.setdefault("rows_written", 0)
        self.writer = self.sink.open_writer(self.schema, context)

    def process(self, ordinal: int, batch: Batch) -> tuple[Output, ...]:
        assert self.writer is not None
        call_writer(self.sink, "write", self.writer.write, self.with_types(batch))
        self.context.counters["rows_written"] += batch.row_count
        return ()

    def with_types(self, batch: Batch) -> Batch:
        """The rows with their extension types."""
        return put_beside(self.schema, [batch]) if self.restores_types else batch

    def save_snapshot(self) -> tuple[StateBatch, ...]:
        """Nothing is saved: what was written before the snapshot must be there whatever happens to this process."""
        if self.writer is not None:
            call_writer(self.sink, "flush", self.writer.flush)
        return ()

    def restore_snapshot(self, state: StateBatch) -> None:
        raise JobFailedError(
            f"{self.sink.name}: the snapshot holds {state.kind!r} of another kind of sink, which had this step's name: "
            f"give the step a name of its own"
        )

    def complete(self) -> tuple[Output, ...]:
        assert self.writer is not None
        call_writer(self.sink, "finish", self.writer.finish)
        self.writer = None
        return ()

    def close(self, error: BaseException | None) -> None:
        writer, self.writer = self.writer, None
        if writer is not None:
            writer.abort()


class PlainSinkProcessor(SinkWriterProcessor):
    """One that may be given several batches at a time, for it never waits for a transaction between two of them."""

    def process_batches(self, ordinal: int, batches: BatchRun) -> tuple[Output, ...]:
        assert self.writer is not None
        write = self.writer.write
        for batch in batches:
            call_writer(self.sink, "write", write, self.with_types(batch))
        self.context.counters["rows_written"] += batches.row_count
        return ()


def call_writer(sink: Sink, what: str, function: Callable[..., Result], *arguments: Any) -> Result:
    """Call the writer of a sink; errors of the system that is written to name the sink and what it was to do."""
    try:
        return function(*arguments)
    except JetfastError:
        raise
    except Exception as error:
        raise JobFailedError(f"{sink.name}: cannot {what}: {type(error).__name__}: {error}") from error
