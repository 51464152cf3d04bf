"""Reading a source: which partition when, batches, rejected rows, positions, errors."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetfast.connectors.memory import CRASH, EMPTY, memory
from jetfast.core.batch import Batch, BatchRun
from jetfast.core.items import ACTIVE, IDLE, Emit, Watermark, one_by_one
from jetfast.core.processor import ProcessorContext
from jetfast.core.watermark_policies import FixedLag
from jetfast.errors import JobDefinitionError, JobFailedError, RestartableError
from jetfast.processors.source import FRAMES_PER_WATERMARK, READY_ROWS, REJECTED_PORT, ReadSource, SourceReader
from jetfast.testing import OnPort, verify_processor
from jetfast.types import MIN_TIME

US = pa.timestamp("us")
SCHEMA = pa.schema([("time", US), ("value", pa.int64())])


def rows(*pairs: tuple[int | None, int]) -> pa.Table:
    return pa.table({"time": [time for time, _ in pairs], "value": [value for _, value in pairs]}, schema=SCHEMA)


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000

    def __call__(self) -> int:
        return self.now


def opened(supplier: ReadSource, index: int = 0, parallelism: int = 1, clock: Any = lambda: 0) -> SourceReader:
    processor = supplier()
    processor.open(
        ProcessorContext(
            "source", local_index=index, local_parallelism=parallelism, now_us=clock, connected_ports=frozenset({0, 1})
        )
    )
    return processor


def shown(output: Sequence[Any]) -> list[Any]:
    """Values of batches as lists, rejected rows as (position, reason), control items as they are."""
    result = []
    for item in one_by_one(output):
        if isinstance(item, Emit):
            assert item.port == REJECTED_PORT
            result += [(row["position"], row["reason"]) for row in item.batch.to_arrow().to_pylist()]
        else:
            result.append(item.to_arrow().column("value").to_pylist() if isinstance(item, Batch) else item)
    return result


def drain(processor: SourceReader) -> list[Any]:
    result = []
    while (output := processor.poll()) is not None:
        result += shown(output)
    return result


def timed(source: Any, lag_us: int = 0, **options: Any) -> ReadSource:
    return ReadSource(source, "time", FixedLag(lag_us), **options)


def test_partition_i_is_read_by_processor_i_mod_n() -> None:
    source = memory(partitions={name: rows((i, i)) for i, name in enumerate("abcde")})
    assert [drain(opened(ReadSource(source), i, 3)) for i in range(3)] == [[[0], [3]], [[1], [4]], [[2]]]


def test_the_partition_with_the_lowest_watermark_is_read_first() -> None:
    source = memory(
        partitions=[[rows((1, 1)), rows((5, 2)), rows((9, 3))], [rows((3, 10)), rows((4, 11)), rows((8, 12))]]
    )
    got = drain(opened(timed(source)))
    assert got == [
        [1], [10], Watermark(1), [2], Watermark(3), [11], Watermark(4), [12], Watermark(5), [3], Watermark(8),
        Watermark(9),
    ]  # fmt: skip


def test_without_event_time_a_bounded_source_is_read_partition_by_partition() -> None:
    source = memory(partitions=[[rows((1, 1)), rows((2, 2))], [rows((1, 3)), rows((1, 4))]])
    assert drain(opened(ReadSource(source))) == [[1], [2], [3], [4]]


def test_without_event_time_an_unbounded_source_is_read_in_rotation() -> None:
    source = memory(partitions=[[rows((1, 1)), rows((2, 2))], [rows((1, 3)), rows((1, 4))]], unbounded=True)
    processor = opened(ReadSource(source))
    got = [shown(processor.poll() or ()) for _ in range(6)]
    assert sorted(map(str, got[:2])) == ["[[1]]", "[[3]]"]
    assert sorted(map(str, got)) == ["[[1]]", "[[2]]", "[[3]]", "[[4]]", "[]", "[]"]


def test_an_empty_partition_does_not_keep_others_from_being_read() -> None:
    source = memory(partitions=[[EMPTY, EMPTY, EMPTY, rows((1, 1))], [rows((3, 10)), rows((4, 11))]])
    assert drain(opened(timed(source))) == [[10], [11], [1], Watermark(1)]


def test_big_answers_are_cut_and_a_watermark_follows_each_batch() -> None:
    source = memory(rows(*((i, i) for i in range(1, 8))))
    got = drain(opened(timed(source, batch_rows=3)))
    assert got == [[1, 2, 3], Watermark(3), [4, 5, 6], Watermark(6), [7], Watermark(7)]


def sizes(times: Any, frame_us: int | None, batch_rows: int = 65536) -> list[int]:
    """Rows of each batch that a source cuts rows with these times into."""
    table = pa.table({"time": pa.array(times, US), "value": pa.array(np.arange(len(times)))})
    processor = opened(timed(memory(table), frame_us=frame_us, batch_rows=batch_rows))
    output: list[Any] = []
    while (polled := processor.poll()) is not None:
        output += polled
    return [item.row_count for item in one_by_one(output) if isinstance(item, Batch)]


def test_batches_are_cut_where_more_than_4096_rows_span_more_than_64_frames() -> None:
    assert sizes(np.arange(10_000), frame_us=1000) == [10_000]  # 10 frames
    assert sizes(np.arange(10_000) * 1000, frame_us=1000) == [4096, 4096, 1808]  # one row a frame
    assert sizes(np.arange(10_000)[::-1] * 10, frame_us=1000) == [6401, 3599]  # 64 frames are 64 ms: 6401 rows
    assert sizes(np.arange(4096) * 10**9, frame_us=1) == [4096]
    assert sizes(np.arange(10_000) * 10**9, frame_us=None) == [10_000]
    assert sizes(np.arange(10_000) * 1000, frame_us=1000, batch_rows=3000) == [3000, 3000, 3000, 1000]
    assert sizes(np.array([-(2**62), 2**62] * 5000), frame_us=1) == [4096, 4096, 1808]


@settings(max_examples=30)
@given(st.integers(0, 2**31), st.sampled_from([1, 7, 50, 10**7]), st.sampled_from([0, 100, 10**6]))
def test_no_batch_is_longer_than_the_cut_allows_and_none_is_cut_early(
    seed: int, step_us: int, disorder_us: int
) -> None:
    generator = np.random.default_rng(seed)
    times = np.arange(9000) * step_us + generator.integers(-disorder_us, 1, 9000)
    start = 0
    for size in sizes(times, frame_us=1000):
        batch, longer = times[start : start + size], times[start : start + size + 1]
        assert size <= 4096 or np.ptp(batch) <= 64_000
        assert start + size == 9000 or (size >= 4096 and np.ptp(longer) > 64_000)
        start += size
    assert start == 9000


def test_rows_with_null_time_are_rejected_and_counted() -> None:
    processor = opened(timed(memory(rows((1, 1), (None, 2), (3, 3), (None, 4)))))
    output = [item for _ in range(2) for item in processor.poll() or ()]
    assert shown(output) == [(1, "time is null"), (3, "time is null"), [1, 3], Watermark(3)]
    rejected = output[0]
    assert isinstance(rejected, Emit)
    assert rejected.batch.to_arrow().to_pylist()[1] == {
        "partition": "0", "position": 3, "reason": "time is null", "row": '{"time":null,"value":4}',
    }  # fmt: skip
    assert processor.context.counters == {"rows_read": 4, "rejected_rows": 2}


def test_a_batch_of_rejected_rows_alone_gives_no_rows_and_no_watermark() -> None:
    assert drain(opened(timed(memory([rows((None, 1)), rows((2, 2))])))) == [(0, "time is null"), [2], Watermark(2)]


def test_times_that_do_not_fit_64_bits_of_microseconds_are_rejected() -> None:
    table = pa.table({"time": pa.array([1, 2**60, None, 3], pa.timestamp("s")), "value": [1, 2, 3, 4]})
    processor = opened(timed(memory(table)))
    got = drain(processor)
    assert got == [
        (1, "time does not fit 64 bits of microseconds"), (2, "time is null"), [1, 4], Watermark(3_000_000),
    ]  # fmt: skip
    assert processor.context.counters == {"rows_read": 4, "rejected_rows": 2}


def test_rejected_rows_are_counted_when_nobody_reads_them() -> None:
    processor = timed(memory(rows((None, 1), (2, 2))))()
    context = ProcessorContext("source")
    processor.open(context)
    assert drain(processor) == [[2], Watermark(2)]
    assert context.counters["rejected_rows"] == 1


@pytest.mark.parametrize(
    ("column_type", "values", "expected"),
    [
        (pa.timestamp("s"), [5], 5_000_000),
        (pa.timestamp("ms"), [-1], -1_000),
        (pa.timestamp("ns", "Europe/Berlin"), [-1], -1),
        (pa.date32(), [2], 2 * 86_400_000_000),
        (pa.date64(), [86_400_000], 86_400_000_000),
    ],
)
def test_event_time_comes_from_any_timestamp_or_date(
    column_type: pa.DataType, values: list[int], expected: int
) -> None:
    table = pa.table({"time": pa.array(values, pa.int64()).cast(pa.int32()).cast(column_type) if
                      pa.types.is_date32(column_type) else pa.array(values, column_type), "value": [1]})  # fmt: skip
    assert drain(opened(timed(memory(table)))) == [[1], Watermark(expected)]


def test_an_event_time_column_must_be_there_and_hold_times() -> None:
    source = memory(rows((1, 1)))
    with pytest.raises(JobDefinitionError, match="no event time column 'when'; there are time, value"):
        ReadSource(source, "when", FixedLag(0))
    with pytest.raises(JobDefinitionError, match="'value' must be a timestamp or a date, it is int64"):
        ReadSource(source, "value", FixedLag(0))
    with pytest.raises(JobDefinitionError, match="need each other"):
        ReadSource(source, "time")


@pytest.mark.parametrize("unbounded", [False, True])
def test_a_processor_without_partitions_ends_at_once_and_is_not_idle_before(unbounded: bool) -> None:
    processor = opened(timed(memory(rows((1, 1)), unbounded=unbounded)), index=1, parallelism=2)
    assert processor.poll() is None
    untimed = opened(ReadSource(memory(rows((1, 1)), unbounded=unbounded)), index=1, parallelism=2)
    assert untimed.poll() is None


def test_a_silent_source_turns_idle_and_a_row_wakes_it_active_first() -> None:
    clock = Clock()
    script = [rows((7, 1)), *[EMPTY] * 12, rows((9, 2))]
    processor = opened(timed(memory(script, unbounded=True), idle_timeout_us=10_000_000), clock=clock)
    got = []
    for _ in range(14):
        got += shown(processor.poll() or ())
        clock.now += 1_000_000
    assert got == [[1], Watermark(7), IDLE, ACTIVE, [2], Watermark(9)]


def test_time_downstream_does_not_count_towards_idleness() -> None:
    clock = Clock()
    source = memory(partitions=[[rows((i, i)) for i in range(50)], []], unbounded=True)
    processor = opened(timed(source, idle_timeout_us=10_000_000), clock=clock)
    got = []
    for _ in range(50):
        got += shown(processor.poll() or ())
        clock.now += 30_000_000  # each batch waits for room downstream
    assert IDLE not in got
    assert not any(isinstance(item, Watermark) for item in got)


def test_a_source_processor_passes_verification() -> None:
    source = memory(
        partitions={
            "a": [rows((1, 1), (None, 2)), EMPTY, rows((5, 3), (4, 4))],
            "b": [rows((2, 10)), rows((3, 11), (8, 12))],
        },
        batch_rows=1,
    )
    at = {"partition": "a", "position": 1, "reason": "time is null", "row": '{"time":null,"value":2}'}
    output = verify_processor(timed(source, lag_us=1))
    assert OnPort(REJECTED_PORT, at) in output
    assert sorted(row["value"] for row in output if isinstance(row, dict)) == [1, 3, 4, 10, 11, 12]


def moved(old: list[SourceReader], supplier: ReadSource, parallelism: int) -> list[SourceReader]:
    """Save the state of processors and give it to others."""
    states = [state for processor in old for state in processor.save_snapshot()]
    new = [opened(supplier, index, parallelism) for index in range(parallelism)]
    for processor in new:
        for state in states:
            processor.restore_snapshot(state)
        processor.finish_restore()
    return new


@given(st.lists(st.integers(1, 4), min_size=1, max_size=6), st.integers(1, 5), st.data())
@settings(max_examples=60)
def test_positions_and_watermarks_move_to_other_parallelism_without_loss(
    parallelisms: list[int], partition_count: int, data: st.DataObject
) -> None:
    scripts = [[rows((10 * k + p, 100 * p + k)) for k in range(5)] for p in range(partition_count)]
    supplier = timed(memory(partitions=scripts))
    processors = [opened(supplier)]
    got: list[int] = []
    for parallelism in parallelisms:
        for processor in processors:
            for _ in range(data.draw(st.integers(0, 3))):
                got += [v for item in shown(processor.poll() or ()) if isinstance(item, list) for v in item]
        processors = moved(processors, supplier, parallelism)
    for processor in processors:
        got += [value for item in drain(processor) if isinstance(item, list) for value in item]
    assert sorted(got) == sorted(100 * p + k for p in range(partition_count) for k in range(5))


def test_a_restored_processor_sends_its_watermark_once_and_first() -> None:
    supplier = timed(memory(partitions=[[rows((5, 1)), rows((6, 2))], [rows((8, 3)), rows((9, 4))]]))
    processor = opened(supplier)
    processor.poll()
    processor.poll()
    (restored,) = moved([processor], supplier, 1)
    assert drain(restored) == [Watermark(5), [2], Watermark(6), Watermark(8), [4], Watermark(9)]


def test_a_partition_that_is_newer_than_the_snapshot_starts_active_at_the_least_time() -> None:
    processor = opened(timed(memory(partitions={"a": [rows((5, 1)), rows((6, 2))]})))
    processor.poll()
    grown = timed(memory(partitions={"a": [rows((5, 1)), rows((6, 2))], "b": [rows((2, 3))]}))
    (restored,) = moved([processor], grown, 1)
    assert restored.event_time is not None
    assert restored.event_time.watermarks == [5, MIN_TIME]
    assert restored.event_time.idle == [False, False]
    # It holds the watermark at once: that of "a" does not leave until it has caught up, or ended.
    assert drain(restored) == [[3], Watermark(2), Watermark(5), [2], Watermark(6)]


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_new_partitions_go_to_readers_that_have_not_ended_and_the_others_stay_where_they_are(parallelism: int) -> None:
    scripts = {"b": [rows((0, 1))], "c": [rows((0, 2)), rows((1, 3))], "d": [rows((0, 4)), rows((1, 5))]}
    supplier = timed(memory(partitions=scripts))
    processors = [opened(supplier, index, 2) for index in range(2)]
    drain(processors[1])  # it had "c" and has ended
    processors[0].poll()
    del scripts["c"]
    grown = timed(memory(partitions={"a": [rows((0, 0))], **scripts}))
    restored = moved(processors, grown, parallelism)
    assert sorted(name for processor in restored for name in processor.partitions) == ["a", "b", "d"]
    if parallelism == 2:
        assert restored[1].partitions == []
    assert sorted(v for one in restored for item in drain(one) if isinstance(item, list) for v in item) == [0, 4, 5]


@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_partition_that_was_read_is_not_read_again_if_it_was_away_for_a_while(parallelism: int) -> None:
    parts = {"a": [rows((0, 1))], "b": [rows((0, 2)), rows((1, 3))]}
    processors = [opened(timed(memory(partitions=parts)), index, 2) for index in range(2)]
    drain(processors[0])
    for partitions in ({"b": parts["b"]}, {"b": parts["b"]}, parts):
        processors = moved(processors, timed(memory(partitions=partitions)), parallelism)
    assert sorted(v for one in processors for item in drain(one) if isinstance(item, list) for v in item) == [2, 3]


@pytest.mark.parametrize("parallelism", [1, 2])
def test_partitions_that_come_after_all_input_was_read_are_not_read_and_named(
    parallelism: int, caplog: pytest.LogCaptureFixture
) -> None:
    processor = opened(timed(memory(partitions={"a": [rows((5, 1))]})))
    drain(processor)
    grown = timed(memory(partitions={"0": [rows((2, 3))], "a": [rows((5, 1))]}))
    assert all(not one.partitions or one.partitions == ["a"] for one in moved([processor], grown, parallelism))
    assert "had read all of its input before these came, and does not read them: 0" in caplog.text
    assert len(caplog.records) == 1


def test_a_position_in_a_partition_that_is_gone_is_an_error() -> None:
    processor = opened(timed(memory(partitions={"a": [rows((1, 1)), rows((2, 2))], "b": rows((3, 3))})))
    processor.poll()
    with pytest.raises(JobFailedError, match="partitions that are gone: a"):
        moved([processor], timed(memory(partitions={"b": rows((3, 3))})), 1)


def test_a_crash_in_a_script_happens_once() -> None:
    supplier = ReadSource(memory([rows((1, 1)), CRASH, rows((2, 2))]))
    processor = opened(supplier)
    assert shown(processor.poll() or ()) == [[1]]
    with pytest.raises(RestartableError, match="scripted crash at item 1 of partition '0'"):
        processor.poll()
    assert drain(opened(supplier)) == [[1], [2]]


class Broken:
    """A source whose second read raises."""

    name, schema, bounded, cooperative = "broken", SCHEMA, True, True

    def partitions(self) -> list[str]:
        return ["p"]

    def open_reader(self, partition: str, position: bytes | None, context: ProcessorContext) -> Any:
        reader = memory([rows((1, 1), (2, 2))]).open_reader("0", None, context)
        answers = iter([reader.read()])
        reader.read = lambda: next(answers, None) or 1 // 0  # type: ignore[method-assign, return-value]
        return reader

    def with_columns(self, names: Sequence[str]) -> "Broken":
        return self


def test_an_error_names_source_partition_and_row() -> None:
    processor = opened(ReadSource(Broken()))
    processor.poll()
    with pytest.raises(JobFailedError, match="broken: source partition 'p' cannot be read at row 2: ZeroDivisionError"):
        processor.poll()


def test_close_without_open_does_nothing() -> None:
    ReadSource(memory(rows((1, 1))))().close(None)


@given(st.lists(st.one_of(st.none(), st.integers(0, 50)), max_size=60), st.integers(1, 20), st.integers(1, 3))
@settings(max_examples=60)
def test_every_row_is_given_out_or_rejected_once(times: list[int | None], batch_rows: int, partitions: int) -> None:
    table = rows(*((time, value) for value, time in enumerate(times)))
    processor = opened(timed(memory(table, partitions=partitions), batch_rows=batch_rows))
    output = [item for answer in iter(processor.poll, None) for item in one_by_one(answer)]
    good = [
        value for item in output if isinstance(item, Batch) for value in item.to_arrow().column("value").to_pylist()
    ]
    bad = [row for item in output if isinstance(item, Emit) for row in item.batch.to_arrow().column("row").to_pylist()]
    assert sorted(good) == [value for value, time in enumerate(times) if time is not None]
    assert len(bad) == times.count(None)
    assert processor.context.counters["rows_read"] == len(times)
    assert np.all(np.array([len(item) for item in one_by_one(output) if isinstance(item, Batch)]) <= batch_rows)


class MeanTimePolicy:
    """A user's own: needs every time of a batch."""

    def report(self, timestamps: np.ndarray, now_us: int) -> int:
        return int(timestamps.mean())

    def current(self, now_us: int) -> int:
        return 0


def test_a_policy_that_needs_every_time_gets_every_time() -> None:
    source = memory([rows((10, 1), (30, 2)), rows((50, 3))])
    processor = opened(ReadSource(source, "time", MeanTimePolicy))
    assert drain(processor) == [[1, 2], Watermark(20), [3], Watermark(50)]


def test_rows_from_memory_know_where_they_come_from() -> None:
    source = memory(partitions={"west": [rows((1, 1), (2, 2)), EMPTY, rows((3, 3))]}, batch_rows=1)
    processor = opened(timed(source))
    origins = []
    while (output := processor.poll()) is not None:
        origins += [item.origin for item in one_by_one(output) if isinstance(item, Batch)]
    assert origins == [("west", 0), ("west", 1), ("west", 2)]


def large(start: int) -> pa.RecordBatch:
    return rows(*((start + index, start + index) for index in range(2048)))


def firsts(output: Sequence[Any]) -> list[Any]:
    return [item.origin if isinstance(item, Batch) else item for item in one_by_one(output)]


def test_a_poll_goes_on_while_batches_are_large_and_come_from_the_partition_that_is_next() -> None:
    processor = opened(timed(memory([large(0), large(10_000), rows((20_000, 1)), large(30_000)])))
    assert firsts(processor.poll() or ()) == [
        *[("0", 0), ("0", 2048), Watermark(12_047)],
        *[("0", 4096), Watermark(20_000)],
    ]
    assert firsts(processor.poll() or ()) == [("0", 4097), Watermark(32_047)]
    assert processor.poll() is None


def test_the_partition_that_is_behind_is_read_next_some_batches_at_a_time() -> None:
    a, b = [large(at) for at in range(0, 100_000, 2000)], [large(at) for at in range(500, 100_000, 2000)]
    processor = opened(timed(memory(partitions={"a": a, "b": b})))
    polls = []
    while (output := processor.poll()) is not None:
        polls.append([item.origin[0] for item in one_by_one(output) if isinstance(item, Batch)])
    names = "".join(name for poll in polls for name in sorted(set(poll)))
    assert names[:4] == "abab"
    assert max(len(poll) for poll in polls) >= 16
    assert sorted("".join(map("".join, polls))) == ["a"] * 50 + ["b"] * 50


def test_fewer_batches_of_a_partition_are_read_at_a_time_where_they_reach_far_in_time() -> None:
    sparse = [large(at) for at in range(0, 5_000_000, 100_000)]
    processor = opened(ReadSource(memory(partitions={"a": sparse, "b": sparse}), "time", FixedLag(0), frame_us=1000))
    ahead_us = []
    while processor.poll() is not None:
        assert processor.event_time is not None
        low, high = sorted(processor.event_time.watermarks)
        ahead_us.append(high - max(low, 0))
    assert max(ahead_us) <= 300_000  # of the five seconds that there are


def test_a_poll_ends_after_so_many_rows() -> None:
    count = READY_ROWS // 2048
    processor = opened(timed(memory([large(index * 2048) for index in range(count + 16)])))
    assert len([item for item in one_by_one(processor.poll() or ()) if isinstance(item, Batch)]) == count
    assert len([item for item in one_by_one(processor.poll() or ()) if isinstance(item, Batch)]) == 16


def test_batches_leave_together_with_a_watermark_every_few_frames() -> None:
    batches = [large(at) for at in range(0, 40_000, 2000)]
    processor = opened(ReadSource(memory(batches), "time", FixedLag(0), frame_us=1000))
    output = processor.poll() or ()
    lengths = [len(item) if isinstance(item, BatchRun) else item for item in output if not isinstance(item, Batch)]
    runs = 1000 * FRAMES_PER_WATERMARK // 2000 + 1
    assert lengths[:2] == [runs, Watermark(2000 * runs + 47)]
    assert lengths[-1] == Watermark(40_047)
    assert sum(length for length in lengths if isinstance(length, int)) == 20


def test_batches_leave_with_one_watermark_behind_all_of_them_if_there_is_no_window() -> None:
    processor = opened(timed(memory([large(0), large(0), large(10_000)])))
    output = processor.poll() or ()
    assert [len(item) if isinstance(item, BatchRun) else item for item in output] == [3, Watermark(12_047)]


def test_a_row_without_time_is_rejected_among_batches_that_are_read_together() -> None:
    nearly = rows(*((None if index == 5 else 2048 + index, 2048 + index) for index in range(2048)))
    processor = opened(timed(memory([large(0), nearly, large(4096)])))
    output = processor.poll() or ()
    assert [item for item in shown(output) if type(item) is tuple] == [(2053, "time is null")]
    assert [item.row_count for item in one_by_one(output) if isinstance(item, Batch)] == [2048, 2047, 2048]
    assert firsts(output)[-2:] == [("0", 4096), Watermark(6143)]
    assert processor.poll() is None
