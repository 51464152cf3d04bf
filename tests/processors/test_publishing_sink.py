"""A publishing sink: rows are given away when their snapshot is decided, and after a restart under the same ids."""

from random import Random
from typing import Any

import pyarrow as pa
import pytest

from jetfast.core.batch import Batch
from jetfast.core.guarantee import Delivery, Guarantee
from jetfast.core.processor import ProcessorContext, StateBatch
from jetfast.core.routing import local_partition_owners
from jetfast.core.source import SinkWriter
from jetfast.errors import RestartableError
from jetfast.processors.publishing_sink import PublishingSinkProcessor
from jetfast.processors.sink import WriteSink
from jetfast.testing import Faults, StoredRows
from jetfast.testing.outside_system import OutsideSystem
from jetfast.types import PARTITION_COUNT

SCHEMA = pa.schema([("id", pa.int64())])


class Receiver(OutsideSystem):
    """Keeps what is published, once for each id."""

    name, cooperative, parallelism_one, target, sink_delivery = "receiver", True, False, None, Delivery.PUBLISHING

    def __init__(self, faults: Faults | None = None) -> None:
        super().__init__("receiver", faults)
        self.received: dict[str, list[int]] = {}
        self.publications = 0
        self.plain = StoredRows()

    def check(self, schema: pa.Schema) -> None: ...

    def check_target(self) -> None: ...

    def open_writer(self, schema: pa.Schema, context: ProcessorContext) -> SinkWriter:
        return self.plain.sink().open_writer(schema, context)

    def open_publisher(self, schema: pa.Schema, context: ProcessorContext) -> "Receiver":
        return self

    def publish(self, publication: str, rows: pa.RecordBatch) -> None:
        self.perform("publish", self._publish, publication, rows)

    def _publish(self, publication: str, rows: pa.RecordBatch) -> None:
        self.publications += 1
        ids = rows.column(0).to_pylist()
        assert self.received.setdefault(publication, ids) == ids

    def close(self) -> None: ...

    def ids(self) -> list[int]:
        return sorted(row for rows in self.received.values() for row in rows)


def opened(
    receiver: Receiver, states: list[StateBatch] | None = None, index: int = 0, parallelism: int = 1, **more: Any
) -> PublishingSinkProcessor:
    processor = WriteSink(receiver, SCHEMA)()
    assert isinstance(processor, PublishingSinkProcessor)
    more.setdefault("guarantee", Guarantee.EXACTLY_ONCE)
    processor.open(ProcessorContext("sink", local_index=index, local_parallelism=parallelism, **more))
    owners = local_partition_owners(PARTITION_COUNT, parallelism)
    for state in states or ():
        if owners[state.partition] == index:
            processor.restore_snapshot(state)
    processor.finish_restore()
    return processor


def write(processor: PublishingSinkProcessor, *rows: int) -> None:
    processor.process(0, Batch.from_arrow(pa.record_batch([list(rows)], schema=SCHEMA)))


def test_rows_are_published_in_phase_2_of_the_snapshot_that_holds_them() -> None:
    receiver = Receiver()
    processor = opened(receiver)
    write(processor, 1, 2)
    processor.save_snapshot()
    write(processor, 3)
    assert receiver.ids() == []
    processor.commit(1, True)
    assert receiver.ids() == [1, 2]
    processor.complete()
    processor.save_snapshot()
    processor.commit(2, True)
    processor.close(None)
    assert receiver.ids() == [1, 2, 3]


def test_rows_of_a_failed_round_are_in_the_next_snapshot() -> None:
    receiver = Receiver()
    processor = opened(receiver)
    for row, success in ((1, False), (2, True)):
        write(processor, row)
        (state,) = processor.save_snapshot()
        processor.commit(row, success)
    assert state.rows.num_rows == 2
    assert receiver.ids() == [1, 2]


def test_a_restart_publishes_the_rows_of_the_snapshot_again_and_nobody_else_s() -> None:
    receiver = Receiver()
    first = [opened(receiver, index=index, parallelism=3) for index in range(3)]
    states = []
    for index, processor in enumerate(first):
        write(processor, index)
        states += list(processor.save_snapshot())
        write(processor, 10 + index)  # after the snapshot: lost with the member, and read again
    first[0].commit(1, True)
    for index in range(2):
        opened(receiver, states, index, 2, execution_id=2)
    assert receiver.ids() == [0, 1, 2]
    assert receiver.publications == 4


def test_a_publication_that_is_not_certain_asks_for_a_restart() -> None:
    receiver = Receiver(Faults(Random(1), {"publish": 1.0}))
    processor = opened(receiver)
    write(processor, 1)
    processor.save_snapshot()
    with pytest.raises(RestartableError):
        processor.commit(1, True)


@pytest.mark.parametrize("guarantee", [Guarantee.AT_LEAST_ONCE, Guarantee.NONE])
def test_without_exactly_once_rows_are_written_as_they_come(guarantee: Guarantee) -> None:
    receiver = Receiver()
    processor = opened(receiver, guarantee=guarantee)
    write(processor, 1)
    assert processor.save_snapshot() == ()
    assert receiver.plain.rows() == [{"id": 1}]
    write(processor, 2)
    processor.complete()
    processor.close(None)
    assert receiver.plain.rows() == [{"id": 1}, {"id": 2}]
    assert receiver.publications == 0


def test_a_job_whose_guarantee_was_lowered_publishes_the_rows_of_its_snapshot() -> None:
    receiver = Receiver()
    first = opened(receiver)
    write(first, 1)
    states = list(first.save_snapshot())
    second = opened(receiver, states, execution_id=2, guarantee=Guarantee.AT_LEAST_ONCE)
    assert receiver.ids() == [1]
    assert second.save_snapshot() == ()


def test_each_row_has_an_effect_once_whatever_fails() -> None:
    for seed in range(30):
        random = Random(seed)
        receiver = Receiver(Faults(random, {"publish": 0.1}))
        position, states = 0, list[StateBatch]()
        for execution in range(1, 200):
            try:
                parallelism = random.choice([1, 2, 3])
                processors = [
                    opened(receiver, states, i, parallelism, execution_id=execution) for i in range(parallelism)
                ]
                now = position
                while now < 30 or position < 30:
                    for _ in range(min(random.randrange(4), 30 - now)):
                        write(random.choice(processors), now)
                        now += 1
                    saved = [state for processor in processors for state in processor.save_snapshot()]
                    success = random.random() < 0.7
                    if success:
                        position, states = now, saved
                    for processor in processors:
                        if random.random() < 0.05:
                            raise RestartableError("lost")
                        processor.commit(1, success)
                break
            except RestartableError:
                continue
        assert receiver.ids() == list(range(30)), f"seed {seed}"


def test_a_column_of_a_dictionary_is_published_after_a_restart() -> None:
    rows = pa.record_batch({"id": pa.array(["a", None, "a"]).dictionary_encode()})
    processor = PublishingSinkProcessor(Receiver(), rows.schema)
    context = ProcessorContext("sink", guarantee=Guarantee.EXACTLY_ONCE)
    processor.open(context)
    processor.process(0, Batch.from_arrow(rows))
    states = processor.save_snapshot()
    receiver = Receiver()
    restored = PublishingSinkProcessor(receiver, rows.schema)
    restored.open(context)
    for state in states:
        restored.restore_snapshot(state)
    restored.finish_restore()
    assert list(receiver.received.values()) == [["a", None, "a"]]
