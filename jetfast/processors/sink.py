"""Writes rows to a Sink."""

from dataclasses import dataclass

import pyarrow as pa

from jetfast.core.batch import Batch
from jetfast.core.items import Output
from jetfast.core.processor import Processor, ProcessorContext
from jetfast.core.source import Sink, SinkWriter
from jetfast.errors import JetfastError, JobFailedError


@dataclass(frozen=True)
class WriteSink:
    """Supplier of sink processors: each opens one writer. `schema` is that of the rows that will come."""

    sink: Sink
    schema: pa.Schema

    def __call__(self) -> "SinkWriterProcessor":
        return SinkWriterProcessor(self)


class SinkWriterProcessor(Processor):
    """Hands batches to one writer of a sink; what was not finished when the processor is closed is aborted."""

    def __init__(self, settings: WriteSink) -> None:
        self.sink = settings.sink
        self.schema = settings.schema
        self.cooperative = settings.sink.cooperative
        self.writer: SinkWriter | None = None

    def open(self, context: ProcessorContext) -> None:
        self.context = context
        context.counters.setdefault("rows_written", 0)
        self.writer = self.sink.open_writer(self.schema, context)

    def process(self, ordinal: int, batch: Batch) -> tuple[Output, ...]:
        assert self.writer is not None
        try:
            self.writer.write(batch)
        except JetfastError:
            raise
        except Exception as error:
            raise JobFailedError(f"{self.sink.name}: cannot write: {type(error).__name__}: {error}") from error
        self.context.counters["rows_written"] += batch.row_count
        return ()

    def complete(self) -> tuple[Output, ...]:
        writer = self.writer
        assert writer is not None
        try:
            writer.finish()
        except JetfastError:
            raise
        except Exception as error:
            raise JobFailedError(f"{self.sink.name}: cannot finish: {type(error).__name__}: {error}") from error
        self.writer = None
        return ()

    def close(self, error: BaseException | None) -> None:
        writer, self.writer = self.writer, None
        if writer is not None:
            writer.abort()
