"""Runs a transactional sink through rounds, failures and crashes that a seed chooses, and looks at what is visible.

It stands for engine, coordinator and snapshot store: rows are dealt to processors, rounds succeed or fail, a crash (at
any of the named points of `jetfast.core.crash_points`, or by an error of the sink) drops all processors, and the next
execution starts from the last decided snapshot, perhaps with another parallelism. Processors of earlier executions live
on for a while, as those of a member that is cut off: they write, prepare or close, and nothing of it may be seen.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from random import Random

import pyarrow as pa

from jetfast.core import crash_points
from jetfast.core.batch import Batch
from jetfast.core.guarantee import Guarantee
from jetfast.core.processor import ProcessorContext, StateBatch
from jetfast.core.transaction import TRANSACTIONS, TransactionalSink
from jetfast.errors import JobCancelledError, RestartableError
from jetfast.processors.transactional_sink import TransactionalSinkProcessor
from jetfast.testing.outside_system import Faults

UNSEEN = -1
"""Number of rows that are written by processors of dead executions."""


class _Crash(Exception):
    """All members die here."""


def one_column(numbers: Sequence[int]) -> pa.RecordBatch:
    """The rows of these numbers, if a sink does not need others: one int64 column "id"."""
    return pa.record_batch([list(numbers)], schema=pa.schema([("id", pa.int64())]))


def verify_sink(
    sink: TransactionalSink,
    visible: Callable[[], Iterable[int]],
    *,
    seed: int | str = 0,
    row_count: int = 40,
    crash_rate: float = 0.05,
    executions_max: int = 20,
    faults: Faults | None = None,
    rows: Callable[[Sequence[int]], pa.RecordBatch] = one_column,
) -> dict[str, int]:
    """Run one course of events and raise AssertionError if a row is lost, seen twice, too early or after all.

    Rows have numbers, from 0. What is visible is looked at after each round that succeeds, and at the end.

    Parameters
    ----------
    sink : writes to a target that is empty
    visible : gives the numbers of the rows that can be seen in the target now, in any order
    seed : chooses what happens; one course is one seed
    crash_rate : probability of a crash at each of the places where there may be one, and of a round that fails
    executions_max : after so many nothing fails any more
    faults : of the system that is written to, if it has some (`jetfast.testing.Faults`)
    rows : gives the row of a number, as the sink wants it

    Returns
    -------
    how often it crashed, by the name of the place
    """
    course = _Course(sink, visible, Random(seed), row_count, crash_rate, faults or Faults(), rows)
    crash_points.set_crash_hook(course.reach)
    try:
        course.run(executions_max)
    except AssertionError as error:
        raise AssertionError(f"seed {seed!r}, execution {course.execution}: {error}") from error
    finally:
        crash_points.set_crash_hook(None)
    return course.crashes


@dataclass
class _Snapshot:
    """The last decided one."""

    position: int = 0
    """Rows below it were written before."""
    states: list[StateBatch] = field(default_factory=list)

    @property
    def transactions(self) -> set[str]:
        found = [state.rows.column("transaction").to_pylist() for state in self.states if state.kind == TRANSACTIONS]
        return {text for texts in found for text in texts}


class _Course:
    """One course of events."""

    def __init__(
        self,
        sink: TransactionalSink,
        visible: Callable[[], Iterable[int]],
        random: Random,
        row_count: int,
        crash_rate: float,
        faults: Faults,
        rows: Callable[[Sequence[int]], pa.RecordBatch],
    ) -> None:
        self.sink = sink
        self.visible = visible
        self.random = random
        self.row_count = row_count
        self.crash_rate = crash_rate
        self.faults = faults
        self.rows = rows
        self.schema = rows([]).schema
        self.decided = _Snapshot()
        self.execution = 0
        self.parallelism_max = 0
        self.position = 0
        """The next row to be written."""
        self.unheard: list[TransactionalSinkProcessor] = []
        self.crashes: dict[str, int] = {}

    def run(self, executions_max: int) -> None:
        """Until all rows are in a decided snapshot whose phase 2 is over; then settle what others left."""
        while True:
            if self.execution >= executions_max + 5:
                raise AssertionError("it does not come to an end, though nothing fails any more")
            if self.execution >= executions_max:
                self.let_nothing_fail()
            try:
                self.execute()
                break
            except (_Crash, RestartableError):
                continue
        self.let_nothing_fail()
        self.execution += 1
        end(self.start(0, 1))
        self.look(self.row_count)

    def let_nothing_fail(self) -> None:
        self.crash_rate = 0.0
        self.faults.active = False

    def happens(self) -> bool:
        return self.random.random() < self.crash_rate

    def reach(self, point: str) -> None:
        """Crash here, perhaps."""
        if self.happens():
            self.crashes[point] = self.crashes.get(point, 0) + 1
            raise _Crash(point)

    def look(self, position: int) -> None:
        """Compare what is visible with the rows below `position`."""
        seen = sorted(self.visible())
        if seen != list(range(position)):
            wanted = set(range(position))
            raise AssertionError(
                f"rows 0 to {position - 1} should be visible, once each. Lost: {sorted(wanted - set(seen))}, "
                f"too many: {[row for row in seen if row not in wanted or seen.count(row) > 1]}"
            )

    def start(self, index: int, parallelism: int) -> TransactionalSinkProcessor:
        """Make a processor and give it the state of all, in any order."""
        processor = TransactionalSinkProcessor(self.sink, self.schema)
        processor.open(
            ProcessorContext(
                "sink",
                local_index=index,
                local_parallelism=parallelism,
                guarantee=Guarantee.EXACTLY_ONCE,
                parallelism_max=self.parallelism_max,
                job="verify_sink",
                execution_id=self.execution,
            )
        )
        for state in self.random.sample(self.decided.states, len(self.decided.states)):
            processor.restore_snapshot(state)
        processor.finish_restore()
        return processor

    def execute(self) -> None:
        """One execution, until it crashes or all is written."""
        self.execution += 1
        parallelism = self.random.choice([1, 1, 2, 3, 5])
        processors: list[TransactionalSinkProcessor] = []
        try:
            for index in range(parallelism):
                processors.append(self.start(index, parallelism))
                self.parallelism_max = max(self.parallelism_max, parallelism)
            self.write_all(processors)
        except BaseException as error:
            for processor in processors:
                fate = self.random.random()
                if fate < 0.5:
                    end(processor, error)
                elif fate < 0.8:
                    self.unheard.append(processor)
            raise
        self.let_the_unheard_act()
        for processor in self.unheard:
            end(processor, JobCancelledError("its lease has run out"))
        for processor in processors:
            end(processor)

    def write_all(self, processors: list[TransactionalSinkProcessor]) -> None:
        """Rows and rounds by turns."""
        self.position = self.decided.position
        snapshot_id = 0
        while True:
            self.write(processors, self.random.randrange(6))
            final = self.position == self.row_count
            if final:
                for processor in processors:
                    processor.complete()
            snapshot_id += 1
            if self.take_snapshot(processors, snapshot_id) and final:
                return

    def write(self, processors: list[TransactionalSinkProcessor], count: int) -> None:
        """Write the next rows, each to any processor that takes input."""
        for _ in range(min(count, self.row_count - self.position)):
            takers = [processor for processor in processors if processor.takes_input]
            if not takers:
                return
            taker = self.random.choice(takers)
            taker.process(0, Batch.from_arrow(self.rows([self.position])))
            assert taker.current is not None
            if taker.current.text in self.decided.transactions:
                raise AssertionError(f"{taker.current.text} is begun again, which the last decided snapshot contains")
            self.position += 1

    def take_snapshot(self, processors: list[TransactionalSinkProcessor], snapshot_id: int) -> bool:
        """One round; rows follow the barrier at once. Return whether it succeeded."""
        self.reach("before_barrier")
        snapshot = _Snapshot(self.position, [state for processor in processors for state in processor.save_snapshot()])
        self.reach("after_state_saved")
        finished = self.position == self.row_count
        if not finished:
            self.write(processors, self.random.randrange(3))
        success = not self.happens()  # somebody else may fail before this vertex prepares
        if success:
            self.reach("after_ids_saved")
            for processor in processors:
                success = self.prepare(processor, snapshot_id) and success
        self.reach("after_prepare")
        if not finished:
            self.write(processors, self.random.randrange(3))
        self.let_the_unheard_act()
        success = success and not self.happens()  # or after it has
        if success:
            self.decided = snapshot
        self.reach("after_execution_record")
        for processor in processors:
            if success:
                processor.commit_prepared(snapshot_id)
            while not processor.commit(snapshot_id, success):
                self.reach("before_phase2")
        self.reach("after_commit_before_ack")
        if success:
            self.look(snapshot.position)
        return success

    def prepare(self, processor: TransactionalSinkProcessor, snapshot_id: int) -> bool:
        """As the engine does; an error fails the round."""
        try:
            while not processor.prepare(snapshot_id):
                self.reach("after_ids_saved")
        except RestartableError:
            return False
        return True

    def let_the_unheard_act(self) -> None:
        """Processors of earlier executions that do not know yet write and prepare, or close."""
        for processor in list(self.unheard):
            action = self.random.random()
            if action > 0.4:
                continue
            try:
                if action < 0.1:
                    raise RestartableError("the coordinator is silent")
                if processor.takes_input:
                    processor.process(0, Batch.from_arrow(self.rows([UNSEEN])))
                list(processor.save_snapshot())
                processor.prepare(99)
            except RestartableError as error:
                self.unheard.remove(processor)
                end(processor, error)


def end(processor: TransactionalSinkProcessor, error: BaseException | None = None) -> None:
    """Close a processor as the engine does."""
    processor.close(error)
    processor.end_commits()
