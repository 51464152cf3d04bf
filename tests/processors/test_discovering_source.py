"""Partitions that come while a source is read: each is read by exactly one processor."""

from collections.abc import Sequence
from itertools import pairwise
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jetfast as jf
from jetfast.core.batch import Batch, BatchRun
from jetfast.core.items import ACTIVE, IDLE, Watermark
from jetfast.core.processor import AnnouncedPartitions, ProcessorContext, StateBatch
from jetfast.errors import JobDefinitionError, JobFailedError, RestartableError
from jetfast.processors.discovering_source import DiscoveringSourceReader
from jetfast.processors.source import ReadSource, SourceReader
from jetfast.testing import VirtualClock
from tests.simulation.growing_source import GrowingSource

SCHEMA = pa.schema([("id", pa.int64()), ("t", pa.timestamp("us"))])
INTERVAL_US = 5_000


def batch(*ids: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(ids), pa.array(ids, pa.timestamp("us"))], schema=SCHEMA)


def growing(births: dict[str, int], clock: VirtualClock, seed: int = 0, batches: int = 3) -> GrowingSource:
    """Partitions come so many microseconds from now. Number i has the rows 100 i, 100 i + 1 ..., one in each batch."""
    scripts: dict[str, Any] = {
        name: [batch(100 * number + row) for row in range(batches)] for number, name in enumerate(births)
    }
    start_us = clock()
    times = {name: start_us + born_us for name, born_us in births.items()}
    return GrowingSource(jf.memory(partitions=scripts, schema=SCHEMA), times, clock, Random(seed))


class Readers:
    """All processors of a source in one execution; announcements are handed on when the test says so."""

    def __init__(
        self, source: Any, parallelism: int, clock: VirtualClock, states: Sequence[StateBatch] = (), **times: Any
    ) -> None:
        self.waiting: list[tuple[list[AnnouncedPartitions], AnnouncedPartitions]] = []
        settings = ReadSource(source, **times)
        self.contexts = [
            ProcessorContext("source", member_count=parallelism, member=index, now_us=clock, announce=self.announce)
            for index in range(parallelism)
        ]
        self.readers: list[DiscoveringSourceReader] = []
        self.clock = clock
        for context in self.contexts:
            reader = settings()
            assert isinstance(reader, DiscoveringSourceReader)
            reader.open(context)
            for state in states:
                reader.restore_snapshot(state)
            reader.finish_restore()
            self.readers.append(reader)
        self.given: list[list[Any]] = [[] for _ in self.readers]
        self.ended = [False] * parallelism

    def announce(self, announced: AnnouncedPartitions) -> None:
        """Each processor hears of it at another time; all hear of everything in the same order."""
        self.waiting += ((context.announced, announced) for context in self.contexts)

    def hand_on(self, index: int) -> None:
        announced = self.contexts[index].announced
        for number, (to, what) in enumerate(self.waiting):
            if to is announced:
                to.append(what)
                del self.waiting[number]
                return

    def poll(self, index: int) -> list[Any]:
        if self.ended[index]:
            return []
        output = self.readers[index].poll()
        if output is None:
            self.ended[index] = True
            return []
        self.given[index] += output
        return list(output)

    def save(self, index: int) -> list[StateBatch]:
        return list(self.readers[index].save_snapshot())

    def rows(self, index: int) -> list[int]:
        return rows_of(self.given[index])

    def run(self) -> None:
        """Until all have ended."""
        for _ in range(10_000):
            for index in range(len(self.readers)):
                self.hand_on(index)
                self.poll(index)
            self.clock.advance_us(1_000)
            if all(self.ended):
                return
        raise AssertionError("it does not end")

    def check_readers(self) -> None:
        """No partition has two readers."""
        read = [name for reader in self.readers for name in reader.partitions]
        assert sorted(read) == sorted(set(read))


def rows_of(output: Sequence[Any]) -> list[int]:
    batches: list[Batch] = []
    for item in output:
        batches += [item] if isinstance(item, Batch) else list(item) if isinstance(item, BatchRun) else []
    return [value for each in batches for value in each.to_arrow().column("id").to_pylist()]


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    births=st.lists(st.integers(0, 60_000), min_size=1, max_size=8),
    parallelisms=st.lists(st.integers(1, 4), min_size=1, max_size=4),
)
def test_each_partition_is_read_by_exactly_one_processor_over_crashes_and_other_parallelism(
    seed: int, births: list[int], parallelisms: list[int]
) -> None:
    random, clock = Random(seed), VirtualClock()
    source = growing({f"p{number}": born for number, born in enumerate(births)}, clock, seed)
    expected = sorted(100 * number + row for number in range(len(births)) for row in range(3))
    states: list[StateBatch] = []
    committed: list[int] = []
    reader_of: dict[str, int] = {}
    for before, parallelism in pairwise([0, *parallelisms]):
        execution = Readers(source, parallelism, clock, states)
        if before != parallelism:
            reader_of.clear()
        execution.check_readers()
        saved: dict[int, list[StateBatch]] = {}
        covered: list[int] = []
        steps = random.randrange(200)
        for step in range(steps):
            index = random.randrange(parallelism)
            action = random.random()
            if action < 0.3:
                execution.hand_on(index)
            elif action < 0.9 or step < steps // 2:
                execution.poll(index)
            elif index not in saved:  # the snapshot of each processor is taken at a moment of its own
                saved[index] = execution.save(index)
                covered += execution.rows(index)
            clock.advance_us(random.randrange(2_000))
            execution.check_readers()
        for index in range(parallelism):
            if index not in saved:
                saved[index] = execution.save(index)
                covered += execution.rows(index)
            for name in execution.readers[index].partitions:
                assert reader_of.setdefault(name, index) == index or name not in known_to(states)
        if random.random() < 0.7:  # else the snapshot fails, and the one before counts
            states = [state for of_one in saved.values() for state in of_one]
            committed += covered
        else:
            reader_of = {name: reader for name, reader in reader_of.items() if name in known_to(states)}
    last = Readers(source, random.randint(1, 4), clock, states)
    last.run()
    assert sorted(committed + [row for index in range(len(last.readers)) for row in last.rows(index)]) == expected


def known_to(states: Sequence[StateBatch]) -> set[str]:
    """Partitions in a snapshot."""
    return {row["partition"] for state in states for row in state.rows.to_pylist() if "partition" in row}


def test_new_partitions_go_to_the_reader_with_the_fewest() -> None:
    clock = VirtualClock()
    execution = Readers(growing({f"p{number}": 0 for number in range(7)}, clock), 3, clock)
    execution.run()
    assert sorted(len(reader.partitions) for reader in execution.readers) == [2, 2, 3]


def test_only_one_processor_asks_and_not_more_often_than_the_interval() -> None:
    clock = VirtualClock()
    source = growing({"a": 0, "b": 10**9}, clock)
    execution = Readers(source, 3, clock)
    listed = source.lists
    for _ in range(100):
        for index in range(3):
            execution.hand_on(index)
            execution.poll(index)
        clock.advance_us(INTERVAL_US // 5)
    assert source.lists - listed == 20


def test_a_source_without_partitions_is_idle_and_wakes_when_one_comes() -> None:
    clock = VirtualClock()
    source = growing({"a": 20_000}, clock)
    lag = {"event_time_column": "t", "policy": jf.watermarks.fixed_lag("0s")}
    execution = Readers(source, 1, clock, **lag)
    assert execution.poll(0) == []  # it has not been told that there is none
    execution.hand_on(0)
    assert execution.poll(0) == [IDLE]
    assert execution.poll(0) == []
    clock.advance_us(20_000)
    execution.poll(0)
    execution.hand_on(0)
    assert execution.poll(0) == [ACTIVE]
    output = execution.poll(0)
    assert rows_of(output) == [0]


def test_a_new_partition_holds_the_watermark_and_the_restored_one_leaves_first() -> None:
    clock = VirtualClock()
    source = growing({"a": 0, "b": 50_000, "c": 10**9}, clock)
    lag = {"event_time_column": "t", "policy": jf.watermarks.fixed_lag("0s")}
    first = Readers(source, 1, clock, **lag)
    while not first.rows(0):
        first.poll(0)
        first.hand_on(0)
        clock.advance_us(1_000)
    second = Readers(source, 1, clock, first.save(0), **lag)
    clock.advance_us(50_000)
    second.contexts[0].announced.append(AnnouncedPartitions(("b",), False))
    assert [item.value for item in second.poll(0) if isinstance(item, Watermark)][:1] == [0]
    while len(second.readers[0].partitions) < 2:
        second.poll(0)
    before = second.readers[0].event_time.last
    output = second.poll(0)
    assert rows_of(output) == [100]  # the one that is furthest behind is read first
    assert second.readers[0].event_time.last >= before


def test_a_partition_that_is_not_listed_any_more_is_read_on() -> None:
    clock = VirtualClock()
    source = growing({"a": 0, "b": 10**9}, clock)
    first = Readers(source, 1, clock)
    while not first.rows(0):
        first.poll(0)
        first.hand_on(0)
        clock.advance_us(INTERVAL_US)
    source.births_us = {"b": source.births_us["b"]}
    second = Readers(source, 2, clock, first.save(0))
    for _ in range(20):
        for index in range(2):
            second.poll(index)
    assert sorted(first.rows(0) + second.rows(0) + second.rows(1)) == [0, 1, 2]
    assert not any(second.ended)


def test_a_reader_that_has_ended_takes_no_partition_after_a_restore() -> None:
    clock = VirtualClock()
    source = growing({"a": 0, "b": 0, "c": 0}, clock)
    first = Readers(source, 2, clock)
    first.poll(0)
    first.hand_on(1)
    while not first.ended[1]:
        first.poll(1)
    second = Readers(source, 2, clock, [*first.save(0), *first.save(1)])  # the first one had taken no partition
    second.run()
    assert second.rows(1) == []
    assert sorted(first.rows(1) + second.rows(0)) == [0, 1, 2, 100, 101, 102, 200, 201, 202]


def test_a_list_that_fails_at_first_ends_the_execution_and_later_is_asked_for_again() -> None:
    clock = VirtualClock()
    source = growing({"a": 0, "b": 10**9}, clock)
    partitions = source.partitions
    answers: list[Exception | None] = [ConnectionResetError("away")]

    def failing() -> Sequence[str]:
        problem = answers.pop() if answers else None
        if problem is not None:
            raise problem
        return partitions()

    execution = Readers(source, 1, clock)
    source.partitions = failing  # type: ignore[method-assign]
    with pytest.raises(RestartableError, match="its partitions cannot be listed: ConnectionResetError: away"):
        execution.poll(0)
    execution = Readers(source, 1, clock)
    execution.poll(0)
    answers.append(ValueError("not now"))
    clock.advance_us(INTERVAL_US)
    execution.poll(0)
    assert execution.contexts[0].counters["failed_discoveries"] == 1
    clock.advance_us(INTERVAL_US)
    execution.hand_on(0)
    execution.poll(0)
    assert execution.contexts[0].counters["failed_discoveries"] == 1
    answers.append(JobFailedError("never"))
    clock.advance_us(INTERVAL_US)
    with pytest.raises(JobFailedError, match="never"):
        execution.poll(0)


def test_sources_that_cannot_get_more_partitions_are_read_as_before() -> None:
    assert type(ReadSource(jf.memory({"x": [1]}))()) is SourceReader
    assert type(ReadSource(jf.generator({"x": pa.int64()}, rate=10))()) is SourceReader


def test_a_source_that_never_ends_and_has_no_partition_is_refused_if_none_can_come() -> None:
    clock = VirtualClock()
    source = growing({"a": 10**9}, clock)
    source.discovery_interval = None
    with pytest.raises(JobDefinitionError, match="it never ends, but has no partition to be read"):
        ReadSource(source)


def test_the_members_of_a_bounded_source_go_by_one_list() -> None:
    class Listing(type(jf.memory({"x": [1]}))):  # type: ignore[misc]
        def partitions(self) -> Sequence[str]:
            names = list(super().partitions())
            self.asked = getattr(self, "asked", 0) + 1
            return names[: 1 if self.asked > 1 else None]

    source = jf.memory(partitions={"a": [batch(1)], "b": [batch(2)]}, schema=SCHEMA)
    settings_ = ReadSource(
        Listing(source.name, source.schema, source.scripts, True, source.batch_rows, source.identity)
    )
    found = []
    for index in range(2):
        reader = settings_()
        reader.open(ProcessorContext("source", member_count=2, member=index))
        found += reader.partitions
    assert found == ["a", "b"]
