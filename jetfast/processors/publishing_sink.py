"""Keeps rows until the snapshot that holds them is decided, and then publishes them under ids that never change."""

import pyarrow as pa

from jetfast.core.batch import Batch
from jetfast.core.crash_points import reach
from jetfast.core.guarantee import Guarantee
from jetfast.core.items import Output
from jetfast.core.processor import BY_KEYS, ProcessorContext, StateBatch
from jetfast.core.publishing import UNPUBLISHED, Publisher, PublishingSink
from jetfast.core.transaction import TransactionId, TransactionOwner
from jetfast.errors import JetfastError, RestartableError
from jetfast.processors.sink_writer import SinkWriterProcessor

_STATE_SCHEMA = pa.schema(
    [
        pa.field("publication", pa.string(), nullable=False),
        pa.field("rows", pa.large_binary(), nullable=False),  # an Arrow record batch of the sink's schema
    ]
)
_STATE_KEYS = ("publication",)
"""It does not matter who publishes, as long as it is one processor."""


class PublishingSinkProcessor(SinkWriterProcessor):
    """Drives a Publisher; under weaker guarantees than EXACTLY_ONCE it is the plain sink."""

    def __init__(self, sink: PublishingSink, schema: pa.Schema) -> None:
        super().__init__(sink, schema)
        self.publishing_sink = sink
        self.has_dictionaries = any(pa.types.is_dictionary(data_type) for data_type in schema.types)
        self.publisher: Publisher | None = None
        self.gathered: dict[str, pa.RecordBatch] = {}
        """Rows since the last snapshot, by publication."""
        self.waiting: dict[str, pa.RecordBatch] = {}
        """Rows in a snapshot that is not decided."""

    def open(self, context: ProcessorContext) -> None:
        if context.guarantee is not Guarantee.EXACTLY_ONCE:
            super().open(context)
            return
        self.context = context
        context.counters.setdefault("rows_written", 0)
        self.publisher = self.publishing_sink.open_publisher(self.schema, context)
        self.owner = TransactionOwner.of(context)
        self.sequence = 0

    def process(self, ordinal: int, batch: Batch) -> tuple[Output, ...]:
        if self.publisher is None:
            return super().process(ordinal, batch)
        identity = TransactionId(self.context.execution_id, self.context.index, self.sequence)
        self.sequence += 1
        self.gathered[self.owner.text(identity)] = self.with_types(batch).to_arrow()
        self.context.counters["rows_written"] += batch.row_count
        return ()

    def complete(self) -> tuple[Output, ...]:
        return super().complete() if self.publisher is None else ()

    def save_snapshot(self) -> tuple[StateBatch, ...]:
        if self.publisher is None:
            return super().save_snapshot()
        self.waiting |= self.gathered
        self.gathered = {}
        if not self.waiting:
            return ()
        columns = [list(self.waiting), [self._encode(rows) for rows in self.waiting.values()]]
        return (StateBatch(BY_KEYS, UNPUBLISHED, pa.record_batch(columns, schema=_STATE_SCHEMA), _STATE_KEYS),)

    def restore_snapshot(self, state: StateBatch) -> None:
        if state.kind != UNPUBLISHED:
            super().restore_snapshot(state)
        for publication, rows in zip(*state.rows.columns, strict=True):
            self.waiting[publication.as_py()] = self._decode(rows.as_buffer())

    def _encode(self, rows: pa.RecordBatch) -> bytes:
        """A message of Arrow's; where there are dictionaries a stream, for a message does not hold them."""
        if not self.has_dictionaries:
            return bytes(rows.serialize().to_pybytes())
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_batch(rows)
        return bytes(sink.getvalue().to_pybytes())

    def _decode(self, rows: pa.Buffer) -> pa.RecordBatch:
        if not self.has_dictionaries:
            return pa.ipc.read_record_batch(rows, self.schema)
        return pa.ipc.open_stream(rows).read_next_batch()

    def finish_restore(self) -> None:
        reach("restore_before_commit")
        if self.publisher is not None:
            self._publish(self.publisher)
        elif self.waiting:  # the guarantee was lowered after that snapshot
            publisher = self.publishing_sink.open_publisher(self.schema, self.context)
            self._publish(publisher)
            publisher.close()

    def commit(self, snapshot_id: int, success: bool) -> bool:
        if self.publisher is not None and success:
            self._publish(self.publisher)
        return True

    def _publish(self, publisher: Publisher) -> None:
        waiting, self.waiting = self.waiting, {}
        for number, (publication, rows) in enumerate(waiting.items()):
            if number:
                reach("between_two_commits")
            try:
                publisher.publish(publication, rows)
            except JetfastError:
                raise
            except Exception as error:
                raise RestartableError(f"{self.sink.name}: rows could not be published: {error}") from error

    def close(self, error: BaseException | None) -> None:
        publisher, self.publisher = self.publisher, None
        if publisher is None:
            super().close(error)
        else:
            publisher.close()
