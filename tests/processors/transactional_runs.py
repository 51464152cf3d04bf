"""Processors of one transactional sink, without an engine."""

from typing import Any

import pyarrow as pa

from jetfast.core.batch import Batch
from jetfast.core.guarantee import Guarantee
from jetfast.core.processor import ProcessorContext, StateBatch
from jetfast.core.transaction import NEXT_TRANSACTION
from jetfast.processors.sink import WriteSink
from jetfast.processors.transactional_sink import TransactionalSinkProcessor

SCHEMA = pa.schema([("id", pa.int64())])


def rows_of(*ids: int) -> Batch:
    return Batch.from_arrow(pa.record_batch([list(ids)], schema=SCHEMA))


def context(index: int = 0, parallelism: int = 1, execution: int = 1, **more: Any) -> ProcessorContext:
    more.setdefault("guarantee", Guarantee.EXACTLY_ONCE)
    return ProcessorContext(
        "sink", local_index=index, local_parallelism=parallelism, job="job", execution_id=execution, **more
    )


def opened(outside: Any, sink: Any = None, **where: Any) -> TransactionalSinkProcessor:
    """A processor of a new execution, before anything is restored; it writes to `sink`, or to one of `outside`."""
    processor = WriteSink(sink or outside.sink(), SCHEMA)()
    assert isinstance(processor, TransactionalSinkProcessor)
    processor.open(context(**where))
    return processor


def restored(outside: Any, states: list[StateBatch], **where: Any) -> TransactionalSinkProcessor:
    """A processor that has restored these states."""
    processor = opened(outside, **where)
    for state in states:
        processor.restore_snapshot(state)
    processor.finish_restore()
    return processor


def saved(processor: TransactionalSinkProcessor) -> list[StateBatch]:
    """What a snapshot holds, but for what only tells a store that was put back."""
    return [state for state in saved_whole(processor) if state.kind != NEXT_TRANSACTION]


def saved_whole(processor: TransactionalSinkProcessor) -> list[StateBatch]:
    return list(processor.save_snapshot())


def names(states: list[StateBatch]) -> list[str]:
    return [row["transaction"] for state in states for row in state.rows.to_pylist()]


def phase_2(processor: TransactionalSinkProcessor, snapshot_id: int = 1, success: bool = True) -> bool:
    """Phase 2, as an engine with one thread does it."""
    if success:
        processor.commit_prepared(snapshot_id)
    return processor.commit(snapshot_id, success)
