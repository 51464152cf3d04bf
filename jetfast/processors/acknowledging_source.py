"""Reads a source whose messages are acknowledged, in phase 2 of the snapshot that covers them."""

from collections.abc import Sequence
from typing import cast

import numpy as np
import pyarrow as pa

from jetfast.core.acknowledging import AcknowledgingReader, AcknowledgingSource
from jetfast.core.guarantee import Guarantee
from jetfast.core.items import Output
from jetfast.core.processor import BROADCAST, ProcessorContext, StateBatch
from jetfast.core.source import PartitionReader, ReadyRows, Rows
from jetfast.errors import JetfastError, JobFailedError, RestartableError
from jetfast.processors.acknowledgements import Acknowledgements, Receipt, SavedId
from jetfast.processors.source import ReadSource, SourceReader

MESSAGE_IDS = "message_ids"
"""Kind of the state that holds ids of messages that may come again."""

_STATE_SCHEMA = pa.schema([pa.field("message_id", pa.string(), nullable=False), pa.field("since", pa.int64())])


class AcknowledgingSourceReader(SourceReader):
    """Reads all queues of an AcknowledgingSource, together with the other processors.

    NONE: a message is acknowledged when it is received. AT_LEAST_ONCE: in phase 2; what comes again counts again.
    EXACTLY_ONCE: what comes again is known by its id, dropped and acknowledged with the next phase 2.

    Messages that come again after a restart go to those that had not ended: the others have told their end, which is in
    the state of what reads from them.
    """

    stays_ended = True

    def __init__(self, settings: ReadSource) -> None:
        super().__init__(settings)
        self.retention_us = cast(AcknowledgingSource, settings.source).redelivery_retention_us
        self.ended: dict[int, PartitionReader] = {}
        """Readers of queues that have ended: their messages are yet to be acknowledged."""

    def open(self, context: ProcessorContext) -> None:
        super().open(context)
        self.guarantee = context.guarantee
        self.acknowledgements = Acknowledgements(context.index, context.parallelism, self.retention_us)
        context.counters.setdefault("redelivered_rows", 0)

    def _assigned(self, context: ProcessorContext) -> list[str]:
        return self.all_partitions

    def _assigned_again(self) -> list[str]:
        return self.all_partitions

    def _read(self, partition: int) -> Rows | ReadyRows | None:
        rows = super()._read(partition)
        if not isinstance(rows, Rows) or not rows.receipts:
            return rows
        if self.guarantee is Guarantee.NONE:
            self._acknowledge([Receipt(partition, None, receipt) for receipt in rows.receipts])
            return rows
        ids = rows.message_ids or [None] * len(rows.receipts)
        if self.guarantee is Guarantee.AT_LEAST_ONCE:
            ids = [None] * len(ids)
        elif None in ids:
            raise JobFailedError(
                f"{self.source.name}: a message in {self.partitions[partition]!r} has no id, so that it would not be "
                f"known when it comes again. Let the producer set message ids, name a column that holds a unique id, "
                f"or run the job with AT_LEAST_ONCE"
            )
        new = self.acknowledgements.receive(partition, ids, rows.receipts)
        if all(new):
            return rows
        self.context.counters["redelivered_rows"] += new.count(False)
        row_count = rows.batch.row_count
        kept = np.flatnonzero(new[:row_count]).astype(np.int32)
        rejected = rows.rejected
        if rejected is not None:
            rejected = rejected.take(np.flatnonzero(new[row_count:]).astype(np.int32))
        return rows._replace(
            batch=rows.batch.take(kept),
            rejected=rejected if rejected is not None and rejected.row_count else None,
            filtered_rows=rows.filtered_rows + row_count - len(kept),
        )

    def _finish(self, partition: int, output: list[Output]) -> None:
        reader, self.readers[partition] = self.readers[partition], None
        if reader is not None:
            self.ended[partition] = reader
        super()._finish(partition, output)

    def save_snapshot(self) -> Sequence[StateBatch]:
        saved = list(self.acknowledgements.save(self.context.now_us()))
        state = super().save_snapshot()
        if not saved:
            return state
        rows = pa.record_batch([list(column) for column in zip(*saved, strict=True)], schema=_STATE_SCHEMA)
        return (*state, StateBatch(BROADCAST, MESSAGE_IDS, rows))

    def restore_snapshot(self, state: StateBatch) -> None:
        if state.kind == MESSAGE_IDS:
            now = self.context.now_us()
            for saved in state.rows.to_pylist():
                self.acknowledgements.restore(SavedId(saved["message_id"], saved["since"]), now)
            return
        # Each processor had a watermark of its own for each queue. The lowest lets no row be late that was not.
        for saved in state.rows.to_pylist():
            saved |= {"finished": False, "position": None}  # what was not acknowledged comes again
            other = self.restored.get(saved["partition"])
            if other is not None and (other["idle"], other["watermark"]) < (saved["idle"], saved["watermark"]):
                saved = other
            self.restored[saved["partition"]] = saved

    def commit(self, snapshot_id: int, success: bool) -> bool:
        if success:
            due, self.acknowledgements.due = self.acknowledgements.due, []
            self._acknowledge(due)
        return True

    def _acknowledge(self, receipts: Sequence[Receipt]) -> None:
        by_partition: dict[int, list[Receipt]] = {}
        for receipt in receipts:
            by_partition.setdefault(receipt.partition, []).append(receipt)
        for partition, received in by_partition.items():
            reader = cast(AcknowledgingReader, self.readers[partition] or self.ended[partition])
            try:
                reader.acknowledge([receipt.receipt for receipt in received])
            except JetfastError:
                raise
            except Exception as error:
                raise RestartableError(f"{self.source.name}: messages could not be acknowledged: {error}") from error
            self.acknowledgements.acknowledged(received, reader.confirms, self.context.now_us())

    def close(self, error: BaseException | None) -> None:
        self.readers += self.ended.values()
        self.ended = {}
        super().close(error)
