"""Exactly once per batch of a streaming query: writes are prepared by tasks, decided and committed by the driver.

    task      prepare_write    rows into a transaction of their own, prepared; each attempt has another id
    driver    commit_batch     1. the ids of the batch are recorded in the target: that is the decision
                               2. what is recorded is committed; every other write of this and earlier batches goes
    driver    abort_batch      what the tasks told of is rolled back, unless the batch is decided

Whatever dies between two steps: Spark runs the batch again. If it was decided, the record is completed and the new
writes go; if not, the new writes are decided. An attempt that prepares when its batch is decided already rolls itself
back; so either it sees the record, or whoever made the record sees it.
"""

import contextlib
import logging
import secrets
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from jetfast.core.batch import Batch
from jetfast.core.crash_points import reach
from jetfast.core.processor import ProcessorContext
from jetfast.core.transaction import TransactionalWriter, TransactionId, TransactionOwner
from jetfast.errors import JetfastError, TransportError
from jetfast.spark.batch_records import BatchRecord, BatchRecords, BatchWrite, transactions_of

logger = logging.getLogger("jetfast.spark")

_NUMBER_BITS = 63
"""Of the number of an attempt: drawn, for nobody could count attempts over all drivers of a query."""


class BatchOfQuery(NamedTuple):
    """A batch: the id of its query, which a checkpoint keeps, and its number."""

    query: str
    batch: int

    @property
    def context(self) -> ProcessorContext:
        """Names the transactions of this batch after query and batch."""
        return ProcessorContext("batches", job="spark", job_id=self.query, execution_id=self.batch)

    @property
    def owner(self) -> TransactionOwner:
        return TransactionOwner.of(self.context)


class Target(NamedTuple):
    """Where rows go: what writes there in transactions, and the records of the query."""

    writer: TransactionalWriter
    records: BatchRecords

    def close(self) -> None:
        self.writer.close()
        self.records.close()


def prepare_write(
    batch: BatchOfQuery, partition: int, rows: Iterable[Batch], open_target: Callable[[Batch], Target]
) -> BatchWrite | None:
    """Write the rows of one Spark partition and prepare them; None if there are none. Leaves nothing if it raises.

    `open_target` is told the first rows: they tell the columns.
    """
    transaction = batch.owner.text(TransactionId(batch.batch, partition, secrets.randbits(_NUMBER_BITS)))
    target: Target | None = None
    try:
        for some in rows:
            if some.row_count == 0:
                continue
            if target is None:
                target = open_target(some)
                target.writer.begin(transaction)
            target.writer.write(some)
        if target is None:
            return None
        token = target.writer.seal(transaction)
        while not target.writer.prepare(transaction):
            continue
        reach("after_prepare")
        last = target.records.last()
        if last is not None and last.batch >= batch.batch:
            target.writer.rollback(transaction)  # nobody looks for it any more
        reach("before_ack")
        return BatchWrite(transaction, token)
    except BaseException:
        if target is not None:
            with contextlib.suppress(JetfastError):  # else the next commit of the query rolls it back
                target.writer.rollback(transaction)
        raise
    finally:
        if target is not None:
            target.close()


def commit_batch(batch: BatchOfQuery, writes: Sequence[BatchWrite], target: Target) -> None:
    """Decide on a batch, unless it is decided, and make the rows of the decision visible."""
    writer, records, prefix = target.writer, target.records, batch.owner.prefix
    reach("before_validation_record")
    with records.held():
        last = records.last()
        if last is None or last.batch < batch.batch:
            gone = transactions_of(writes).difference(writer.list_open(prefix))
            if gone:
                raise TransportError(f"batch {batch.batch}: {min(gone)} was rolled back; the batch must be run again")
            last = records.add(BatchRecord(batch.batch, list(writes)))
    reach("after_execution_record")
    if last.batch > batch.batch:  # a driver that has been replaced, or an old copy of the checkpoint
        logger.warning("batch %d is not written again: batch %d is decided already", batch.batch, last.batch)
    else:
        for number, write in enumerate(last.writes):
            if number:
                reach("between_two_commits")
            writer.commit(write.transaction, write.token)
    for transaction in writer.list_open(prefix):
        found = batch.owner.parse(transaction)
        if found is not None and (found.execution_id or 0) <= batch.batch:
            writer.rollback(transaction)
    decided = transactions_of(last.writes)
    forgotten = [transaction for transaction in writer.list_committed(prefix) if transaction not in decided]
    if forgotten:
        writer.forget(forgotten)
    reach("after_commit_before_ack")


def abort_batch(batch: BatchOfQuery, writes: Sequence[BatchWrite], target: Target) -> None:
    """Roll back what tasks have prepared, if the batch is not decided."""
    with target.records.held():
        last = target.records.last()
        if last is None or last.batch < batch.batch:
            for write in writes:
                target.writer.rollback(write.transaction)
