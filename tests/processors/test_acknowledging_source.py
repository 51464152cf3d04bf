"""An acknowledging source: each message counts once, though it may be delivered again and again."""

from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jetfast as jf
from jetfast.core.batch import Batch
from jetfast.core.guarantee import Guarantee
from jetfast.core.items import Watermark
from jetfast.core.processor import ProcessorContext, StateBatch
from jetfast.core.watermark_policies import fixed_lag
from jetfast.errors import JobFailedError, RestartableError
from jetfast.processors.acknowledgements import Acknowledgements
from jetfast.processors.acknowledging_source import MESSAGE_IDS, AcknowledgingSourceReader
from jetfast.processors.source import ReadSource
from jetfast.testing import AcknowledgingQueue, Faults, VirtualClock

SCHEMA = pa.schema([("n", pa.int64())])
HOUR_US = 3_600_000_000


def queue_of(count: int, **options: Any) -> AcknowledgingQueue:
    queue = AcknowledgingQueue(SCHEMA, **options)
    queue.publish({"n": n} for n in range(count))
    return queue


def opened(
    queue: AcknowledgingQueue,
    execution: int = 1,
    index: int = 0,
    parallelism: int = 1,
    states: tuple[StateBatch, ...] = (),
    **context: Any,
) -> AcknowledgingSourceReader:
    processor = ReadSource(queue.source())()
    assert isinstance(processor, AcknowledgingSourceReader)
    context.setdefault("guarantee", Guarantee.EXACTLY_ONCE)
    processor.open(
        ProcessorContext("source", local_index=index, local_parallelism=parallelism, execution_id=execution, **context)
    )
    for state in states:
        processor.restore_snapshot(state)
    processor.finish_restore()
    return processor


def poll(processor: AcknowledgingSourceReader) -> list[int] | None:
    output = processor.poll()
    return output and [row["n"] for item in output if isinstance(item, Batch) for row in item.to_arrow().to_pylist()]


def saved(processor: AcknowledgingSourceReader) -> tuple[StateBatch, ...]:
    return tuple(processor.save_snapshot())


def saved_ids(states: tuple[StateBatch, ...]) -> dict[str, int | None]:
    return {
        row["message_id"]: row["since"]
        for state in states
        if state.kind == MESSAGE_IDS
        for row in state.rows.to_pylist()
    }


def test_messages_are_acknowledged_in_phase_2_of_the_snapshot_that_covers_them():
    queue = queue_of(4, batch_rows=2)
    processor = opened(queue)
    assert poll(processor) == [0, 1]
    states = saved(processor)
    assert poll(processor) == [2, 3]
    assert processor.commit(1, True)
    assert queue.acknowledged == {0, 1}
    assert set(saved_ids(states)) == {"0", "1"}
    assert set(saved_ids(saved(processor))) == {"2", "3"}


def test_a_failed_round_acknowledges_nothing_and_the_next_one_all():
    queue = queue_of(2, batch_rows=1)
    processor = opened(queue)
    for snapshot, success in ((1, False), (2, True)):
        poll(processor)
        saved(processor)
        processor.commit(snapshot, success)
        assert len(queue.acknowledged) == (2 if success else 0)


def test_what_was_received_before_a_restart_is_not_emitted_again_and_is_acknowledged_then():
    queue = queue_of(3, batch_rows=2)
    states = (opened(queue), None)
    assert poll(states[0]) == [0, 1]
    snapshot = saved(states[0])
    processor = opened(queue, execution=2, states=snapshot)
    assert poll(processor) == []
    assert poll(processor) == [2]
    assert processor.context.counters["redelivered_rows"] == 2
    saved(processor)
    processor.commit(1, True)
    assert queue.unacknowledged == 0
    assert saved_ids(saved(processor)) == {}


def test_a_message_that_comes_again_without_a_restart_is_not_emitted_again():
    queue = queue_of(2, batch_rows=2, faults=Faults(Random(1), {"redeliver": 1.0}), bounded=False)
    processor = opened(queue)
    assert poll(processor) == [0, 1]
    assert poll(processor) == []
    saved(processor)
    processor.commit(1, True)
    assert queue.unacknowledged == 0


def test_restored_ids_go_to_all_processors_and_each_saves_its_share():
    queue = queue_of(20, batch_rows=20)
    first = opened(queue)
    assert len(poll(first)) == 20
    snapshot = saved(first)
    processors = [opened(queue, 2, index, 3, snapshot) for index in range(3)]
    shares = [saved_ids(saved(processor)) for processor in processors]
    assert sorted(key for share in shares for key in share) == sorted(map(str, range(20)))
    assert poll(processors[2]) == []


def test_restored_ids_are_kept_for_the_retention_and_in_every_snapshot_until_then():
    clock = VirtualClock()
    queue = queue_of(1)
    first = opened(queue, now_us=clock)
    poll(first)
    snapshot = saved(first)
    queue.acknowledged.add(0)  # by an acknowledgement whose answer was lost
    queue.ready.clear()
    second = opened(queue, 2, states=snapshot, now_us=clock)
    restored_us = clock()
    clock.advance("59m")
    snapshot = saved(second)
    assert saved_ids(snapshot) == {"0": restored_us}
    third = opened(queue, 3, states=snapshot, now_us=clock)
    clock.advance("1m")
    assert saved_ids(saved(third)) == {}
    assert third.acknowledgements.known == {}


def test_an_id_whose_acknowledgement_was_not_confirmed_is_kept():
    clock = VirtualClock()
    queue = queue_of(1, confirms=False, faults=Faults(Random(1), {"lose": 1.0}))
    first = opened(queue, now_us=clock)
    poll(first)
    saved(first)
    first.commit(1, True)
    snapshot = saved(first)
    assert saved_ids(snapshot) == {"0": clock()}
    queue.faults.active = False
    second = opened(queue, 2, states=snapshot, now_us=clock)
    assert poll(second) == []
    assert second.context.counters["redelivered_rows"] == 1


def test_a_message_without_id_is_an_error_that_says_what_to_do():
    queue = AcknowledgingQueue(SCHEMA)
    queue.publish([{"n": 1}], ids=[None])
    with pytest.raises(JobFailedError, match=r"a message in 'queue' has no id.*Let the producer set message ids"):
        opened(queue).poll()
    assert poll(opened(queue, 2, guarantee=Guarantee.AT_LEAST_ONCE)) == [1]


def test_at_least_once_acknowledges_in_phase_2_and_emits_again():
    queue = queue_of(2)
    first = opened(queue, guarantee=Guarantee.AT_LEAST_ONCE)
    assert poll(first) == [0, 1]
    snapshot = saved(first)
    assert saved_ids(snapshot) == {}
    second = opened(queue, 2, states=snapshot, guarantee=Guarantee.AT_LEAST_ONCE)
    assert poll(second) == [0, 1]
    saved(second)
    second.commit(1, True)
    assert queue.unacknowledged == 0


def test_without_guarantee_a_message_is_acknowledged_when_it_is_received():
    queue = queue_of(2)
    assert poll(opened(queue, guarantee=Guarantee.NONE)) == [0, 1]
    assert queue.unacknowledged == 0


def test_messages_of_a_queue_that_has_ended_are_acknowledged_too():
    queue = queue_of(2)
    processor = opened(queue)
    assert poll(processor) == [0, 1]
    assert poll(processor) is None
    saved(processor)
    processor.commit(1, True)
    assert queue.unacknowledged == 0
    processor.close(None)
    assert queue.readers == []


def test_an_acknowledgement_whose_outcome_is_unknown_asks_for_a_restart():
    queue = queue_of(1)
    processor = opened(queue)
    poll(processor)
    saved(processor)
    queue.faults = Faults(Random(1), {"acknowledge": 1.0})
    with pytest.raises(RestartableError):
        processor.commit(1, True)


def test_each_processor_goes_on_with_the_lowest_watermark_that_its_queue_had():
    schema = pa.schema([("at", pa.timestamp("us"))])
    queue = AcknowledgingQueue(schema, batch_rows=1)
    queue.publish({"at": at} for at in (100, 50))
    supplier = ReadSource(queue.source(), "at", lambda: fixed_lag("0s")())
    snapshot: list[StateBatch] = []
    processors = [supplier() for _ in range(2)]
    for index, processor in enumerate(processors):
        processor.open(
            ProcessorContext("source", local_index=index, local_parallelism=2, guarantee=Guarantee.EXACTLY_ONCE)
        )
        processor.finish_restore()
        processor.poll()
        snapshot += processor.save_snapshot()
    for states in (snapshot, snapshot[::-1]):
        processor = supplier()
        processor.open(ProcessorContext("source", execution_id=2, guarantee=Guarantee.EXACTLY_ONCE))
        for state in states:
            processor.restore_snapshot(state)
        processor.finish_restore()
        assert list(processor.poll() or ()) == [Watermark(50)]


def test_rejected_and_projected_rows_keep_their_receipts():
    queue = AcknowledgingQueue(pa.schema([("text", pa.string())]))
    queue.publish([{"text": "2024-01-01"}, {"text": "never"}])
    pipeline = jf.Pipeline("p")
    stage = pipeline.read(queue.source()).with_event_time(
        jf.col("text").cast(pa.timestamp("us")).alias("at"), jf.watermarks.fixed_lag("0s")
    )
    stage.collect()
    vertex = next(iter(pipeline.plan().vertices.values()))
    assert vertex.delivery is not None
    processor = vertex.supplier()
    assert isinstance(processor, AcknowledgingSourceReader)
    processor.open(ProcessorContext("source", guarantee=Guarantee.EXACTLY_ONCE))
    processor.finish_restore()
    assert len([item for item in processor.poll() or () if isinstance(item, Batch)]) == 1
    processor.save_snapshot()
    processor.commit(1, True)
    assert queue.unacknowledged == 0


class Crash(Exception):
    """All members die."""


def run_course(seed: int) -> None:
    """Random polls, rounds, failures and restarts, onto any number of processors."""
    random = Random(seed)
    confirms = seed % 3 > 0
    rates = {"read": 0.02, "acknowledge": 0.05, "redeliver": 0.2, "lose": 0.3} if seed % 2 else {}
    queue = queue_of(60, batch_rows=4, confirms=confirms, faults=Faults(random, rates))
    decided: tuple[list[int], tuple[StateBatch, ...]] = ([], ())
    for execution in range(1, 100):
        if execution > 20:
            queue.faults.active = False
        crash_rate = 0.05 if execution <= 20 else 0.0

        def crash_perhaps() -> None:
            if random.random() < crash_rate:  # noqa: B023
                raise Crash

        try:
            parallelism = random.choice([1, 2, 3])
            processors = [opened(queue, execution, index, parallelism, decided[1]) for index in range(parallelism)]
            emitted, done = list(decided[0]), set()
            while True:
                for _ in range(random.randrange(8)):
                    index = random.randrange(parallelism)
                    if index not in done:
                        rows = poll(processors[index])
                        emitted += rows or []
                        if rows is None:
                            done.add(index)
                crash_perhaps()
                finished = len(done) == parallelism
                snapshot = (list(emitted), tuple(state for processor in processors for state in saved(processor)))
                for index in range(parallelism):
                    if index not in done and random.random() < 0.5:
                        emitted += poll(processors[index]) or []
                success = random.random() < 0.8
                if success:
                    decided = snapshot
                for processor in processors:
                    crash_perhaps()
                    processor.commit(1, success)
                if success and finished:
                    for processor in processors:
                        processor.close(None)
                    break
        except (Crash, RestartableError):
            continue
        break
    assert sorted(decided[0]) == list(range(60)), f"seed {seed}"
    if confirms:
        assert queue.unacknowledged == 0, f"seed {seed}"


def test_no_message_is_lost_and_none_counts_twice_whatever_crashes():
    for seed in range(12):
        run_course(seed)


@pytest.mark.simulation
def test_no_message_is_lost_and_none_counts_twice_in_many_courses():
    for seed in range(12, 1000):
        run_course(seed)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.sampled_from(["receive", "save", "ok", "fail"]), max_size=20), st.data())
def test_what_is_known_at_a_snapshot_is_in_it(steps, data):
    acknowledgements = Acknowledgements(0, 1, HOUR_US)
    received: set[str] = set()
    for step in steps:
        if step == "receive":
            ids = data.draw(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=3))
            new = acknowledgements.receive(0, ids, ids)
            for message_id, is_new in zip(ids, new, strict=True):
                assert is_new == (message_id not in received)
                received.add(message_id)
        elif step == "save":
            assert {saved.message_id for saved in acknowledgements.save(0)} == received
        elif step == "ok":
            due, acknowledgements.due = acknowledgements.due, []
            acknowledgements.acknowledged(due, True, 0)
            again = {receipt.message_id for receipt in acknowledgements.pending}
            received -= {receipt.message_id for receipt in due if receipt.message_id not in again}
