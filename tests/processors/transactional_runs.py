"""Runs the processors of one transactional sink through executions, rounds and crashes, without an engine.

It stands for engine, coordinator and snapshot store: rows are dealt to processors, rounds are decided, a crash drops
all processors, and the next execution starts from the last decided snapshot, perhaps with another parallelism.
"""

from dataclasses import dataclass, field
from random import Random
from typing import Any

import pyarrow as pa

from jetfast.core import crash_points
from jetfast.core.batch import Batch
from jetfast.core.guarantee import Guarantee
from jetfast.core.processor import ProcessorContext, StateBatch
from jetfast.errors import DataLostError, RestartableError
from jetfast.processors.sink import WriteSink
from jetfast.processors.transactional_sink import TransactionalSinkProcessor

SCHEMA = pa.schema([("id", pa.int64())])


def rows_of(*ids: int) -> Batch:
    return Batch.from_arrow(pa.record_batch([list(ids)], schema=SCHEMA))


class Crash(Exception):
    """A member dies here."""


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
    return list(processor.save_snapshot())


def names(states: list[StateBatch]) -> list[str]:
    return [row["transaction"] for state in states for row in state.rows.to_pylist()]


@dataclass
class Snapshot:
    """A decided one."""

    position: int = 0
    states: list[StateBatch] = field(default_factory=list)


class Course:
    """One seeded course of a job whose sink writes the rows 0 .. row_count - 1."""

    def __init__(self, outside: Any, random: Random, row_count: int, crash_rate: float) -> None:
        self.outside = outside
        self.random = random
        self.row_count = row_count
        self.crash_rate = crash_rate
        self.decided = Snapshot()
        self.execution = 0
        self.parallelism_max = 0
        self.zombies: list[TransactionalSinkProcessor] = []
        self.restarts = self.failed_rounds = 0
        self.crashes: dict[str, int] = {}

    def run(self, executions_max: int) -> None:
        """Until all rows are in a decided snapshot whose phase 2 is over, and then settle what others left.

        After so many executions nothing fails any more.
        """
        crash_points.set_crash_hook(self.reach)
        try:
            while True:
                assert self.execution < executions_max + 5, "it does not come to an end though nothing fails any more"
                if self.execution >= executions_max:
                    self.crash_rate = 0.0
                    self.outside.faults.active = False
                try:
                    if self.execute():
                        break
                except DataLostError:
                    raise
                except (Crash, RestartableError):
                    self.restarts += 1
            self.crash_rate, self.outside.faults.active = 0.0, False
            restored(
                self.outside, self.decided.states, execution=self.execution + 1, parallelism_max=self.parallelism_max
            ).close(None)
        finally:
            crash_points.set_crash_hook(None)

    def reach(self, point: str) -> None:
        if self.random.random() < self.crash_rate:
            self.crashes[point] = self.crashes.get(point, 0) + 1
            raise Crash(point)

    def execute(self) -> bool:
        self.execution += 1
        parallelism = self.random.choice([1, 1, 2, 3, 5])
        processors: list[TransactionalSinkProcessor] = []
        try:
            for index in range(parallelism):
                where = {"index": index, "parallelism": parallelism, "execution": self.execution}
                processor = opened(self.outside, parallelism_max=self.parallelism_max, **where)
                for state in self.random.sample(self.decided.states, len(self.decided.states)):
                    processor.restore_snapshot(state)
                processor.finish_restore()
                processors.append(processor)
                self.parallelism_max = max(self.parallelism_max, parallelism)
            self.job(processors)
        except BaseException as error:
            # Some close in an orderly way, others are just gone; and some live on for a while, unheard.
            for processor in processors:
                fate = self.random.random()
                if fate < 0.5:
                    processor.close(error)
                elif fate < 0.8:
                    self.zombies.append(processor)
            raise
        self.let_zombies_act()
        for processor in self.zombies:
            processor.close(Crash("found out"))
        for processor in processors:
            processor.close(None)
        return True

    def job(self, processors: list[TransactionalSinkProcessor]) -> None:
        position = self.decided.position
        snapshot_id = 0
        while True:
            position = self.feed(processors, position, self.random.randrange(6))
            final = position == self.row_count
            if final:
                for processor in processors:
                    processor.complete()
            snapshot_id += 1
            if self.round(processors, snapshot_id, position) and final:
                return
            position = max(position, self.position)

    def feed(self, processors: list[TransactionalSinkProcessor], position: int, count: int) -> int:
        for _ in range(min(count, self.row_count - position)):
            takers = [processor for processor in processors if processor.takes_input]
            if not takers:
                break
            taker = self.random.choice(takers)
            taker.process(0, rows_of(position))
            assert taker.current is not None
            assert taker.current.text not in names(self.decided.states), "an id of the decided snapshot is begun again"
            position += 1
        self.position = position
        return position

    def round(self, processors: list[TransactionalSinkProcessor], snapshot_id: int, position: int) -> bool:
        self.reach("before_barrier")
        states = [state for processor in processors for state in saved(processor)]
        self.reach("after_state_saved")
        finished = position == self.row_count
        if self.random.random() < 0.5 and not finished:
            self.feed(processors, position, 2)
        success = self.random.random() >= self.crash_rate  # somebody else's failure, before we prepare
        if success:
            self.reach("after_ids_saved")
            for processor in processors:
                try:
                    while not processor.prepare(snapshot_id):
                        self.reach("after_ids_saved")
                except RestartableError:
                    success = False
        self.reach("after_prepare")
        if not finished:
            self.feed(processors, self.position, self.random.randrange(3))
        self.let_zombies_act()
        success = success and self.random.random() >= self.crash_rate  # somebody else's, after we prepared
        self.failed_rounds += not success
        if success:
            self.decided = Snapshot(position, states)
        self.reach("after_execution_record")
        for processor in processors:
            while not processor.commit(snapshot_id, success):
                self.reach("before_phase2")
        self.reach("after_commit_before_ack")
        return success

    def let_zombies_act(self) -> None:
        """Processors of earlier executions that do not know yet write and prepare, or close."""
        for processor in list(self.zombies):
            action = self.random.random()
            try:
                if action < 0.1:
                    self.zombies.remove(processor)
                    processor.close(Crash("found out"))
                elif action < 0.4 and processor.transactions is not None:
                    if processor.takes_input:
                        processor.process(0, rows_of(-1))
                    saved(processor)
                    processor.prepare(99)
            except RestartableError as error:
                if processor in self.zombies:
                    self.zombies.remove(processor)
                    processor.close(error)
