"""Whole jobs that lose members, connections and answers of their store: on one thread, under a virtual clock."""

from collections.abc import Callable
from random import Random
from typing import Any, TypeVar

import pyarrow as pa
import pytest

import jetfast as jf
from jetfast.control.job_status import JobStatus
from jetfast.core.guarantee import Guarantee
from jetfast.engine.memory_snapshot_store import MemorySnapshotStore
from jetfast.engine.snapshot_store import ExecutionRecord, StateTotals, ValidationRecord
from jetfast.errors import (
    JobCancelledError,
    JobFailedError,
    MemberLostError,
    OutcomeUnknown,
    StoreUnavailable,
    TransportError,
)
from jetfast.testing import CRASH, EMPTY, Faults, TransactionalMemory
from tests.simulation.stepped_job import SteppedJob

ROWS = 400
EXACTLY_ONCE, AT_LEAST_ONCE = Guarantee.EXACTLY_ONCE, Guarantee.AT_LEAST_ONCE
KEYS = 7
WINDOW_US = 50
PIECE = 2
Written = TypeVar("Written")


class FailingStore(MemorySnapshotStore):
    """Fails at one of its writes, counted from 1: "refused", or unknown to have been "done" or "not done"."""

    def __init__(self, at: int = 0, how: str = "refused") -> None:
        super().__init__()
        self.at, self.how = at, how
        self.writes = 0

    def _write(self, write: Callable[[], Written]) -> Written:
        self.writes += 1
        if self.writes != self.at:
            return write()
        if self.how == "refused":
            raise StoreUnavailable("the store cannot be reached")
        if self.how == "done":
            write()
        raise OutcomeUnknown("timed out")

    def write_validation(self, job: str, record: ValidationRecord) -> None:
        self._write(lambda: super(FailingStore, self).write_validation(job, record))

    def replace_record(self, record: ExecutionRecord, version: int) -> int:
        return self._write(lambda: super(FailingStore, self).replace_record(record, version))

    def write_file(self, *arguments: Any) -> StateTotals:
        return self._write(lambda: super(FailingStore, self).write_file(*arguments))


def rows(*faults: Any) -> dict[str, list[Any]]:
    """Two partitions of rows with consecutive times: every row lies in one window of WINDOW_US of its key.

    They come a few at a time, with the faults halfway in the first one.
    """
    numbers = range(ROWS)
    table = pa.table(
        {"row": numbers, "key": [n % KEYS for n in numbers], "time": pa.array(numbers, pa.timestamp("us"))}
    )
    parts = {name: table.filter(pa.array([n % 2 == part for n in numbers])) for part, name in enumerate("ab")}
    scripts = {
        name: [item for start in range(0, part.num_rows, PIECE) for item in (part.slice(start, PIECE), EMPTY)]
        for name, part in parts.items()
    }
    scripts["a"][len(scripts["a"]) // 2 : 0] = faults
    return scripts


def copying(outside: TransactionalMemory, *faults: Any) -> jf.Pipeline:
    """Rows to the outside as they are."""
    pipeline = jf.Pipeline("copying")
    pipeline.read(jf.memory(partitions=rows(*faults))).write(outside.sink(), name="outside")
    return pipeline


def summing(outside: TransactionalMemory) -> jf.Pipeline:
    """The rows of each window, by key."""
    pipeline = jf.Pipeline("summing")
    read = pipeline.read(jf.memory(partitions=rows()))
    stage = read.with_event_time("time", jf.watermarks.fixed_lag("1us"))
    aggregates = {"rows": jf.count(), "total": jf.sum("row"), "each": jf.collect_list("row"), "last": jf.last("row")}
    windows = stage.group_by("key").window(jf.tumbling(f"{WINDOW_US}us")).agg(**aggregates)
    windows.write(outside.sink(), name="outside")
    return pipeline


def expected_windows() -> set[tuple[int, int, int, int, tuple[int, ...], int]]:
    found = set()
    for key in range(KEYS):
        for start in range(0, ROWS, WINDOW_US):
            inside = [n for n in range(start, min(start + WINDOW_US, ROWS)) if n % KEYS == key]
            found.add((key, start, len(inside), sum(inside), tuple(inside), inside[-1]))
    return found


def check_rows(outside: TransactionalMemory) -> None:
    assert sorted(row["row"] for row in outside.rows()) == list(range(ROWS)), "each row once, by its identity"
    assert outside.in_doubt() == []


def check_windows(outside: TransactionalMemory) -> None:
    found = [
        (row["key"], row["window_start"].microsecond, row["rows"], row["total"], tuple(row["each"]), row["last"])
        for row in outside.rows()
    ]
    assert len(found) == len(set(found))
    assert set(found) == expected_windows()
    assert outside.in_doubt() == []


def run_and_kill(job: SteppedJob, kills: int) -> None:
    """Kill a member again and again, each time after a while."""
    for _ in range(kills):
        for _ in range(job.random.randrange(60)):
            job.step()
        job.run(lambda: bool(job.members))
        if job.ended:
            return
        job.kill(job.random.choice(list(job.members)))
    job.run()


@pytest.mark.parametrize("members", [1, 2])
@pytest.mark.parametrize("seed", range(2))
def test_each_row_is_written_once_though_members_die(members: int, seed: int) -> None:
    outside = TransactionalMemory.named()
    job = SteppedJob(copying(outside), seed=seed, store=MemorySnapshotStore(), interval="30ms", members=members)
    run_and_kill(job, kills=3)
    assert job.runner.error is None
    assert job.job.guarantee is EXACTLY_ONCE
    assert job.job.metrics["restarts"] >= 1
    assert "<td>last snapshot</td><td>snapshot " in job.job._repr_html_()
    check_rows(outside)


@pytest.mark.parametrize("members", [1, 2])
def test_windows_hold_each_row_once_though_members_die(members: int) -> None:
    outside = TransactionalMemory.pooled(2)
    job = SteppedJob(summing(outside), seed=5, store=MemorySnapshotStore(), interval="30ms", members=members)
    run_and_kill(job, kills=3)
    check_windows(outside)


@pytest.mark.simulation
@pytest.mark.parametrize(
    "make", [TransactionalMemory.named, lambda **o: TransactionalMemory.pooled(2, **o), TransactionalMemory.staged]
)
@pytest.mark.parametrize("members", [1, 2])
@pytest.mark.parametrize("seed", range(30))
def test_each_row_is_written_once_whatever_fails(
    make: Callable[..., TransactionalMemory], members: int, seed: int
) -> None:
    random = Random(seed)
    outside = make(faults=Faults(random, dict.fromkeys(("prepare", "commit", "list", "slow"), 0.05)))
    store = FailingStore(random.randrange(60), random.choice(["refused", "done", "not done"]))
    windows = seed % 2 == 0
    job = SteppedJob(
        (summing if windows else copying)(outside), seed=seed, store=store, interval="30ms", members=members
    )
    run_and_kill(job, kills=random.randrange(6))
    assert job.runner.error is None
    (check_windows if windows else check_rows)(outside)


@pytest.mark.parametrize("how", ["refused", "done", "not done"])
@pytest.mark.parametrize("at", range(1, 7))
def test_each_row_is_written_once_whichever_write_of_the_store_fails(at: int, how: str) -> None:
    outside = TransactionalMemory.named()
    store = FailingStore(at, how)
    job = SteppedJob(copying(outside), seed=at, store=store, interval="1s")
    job.run()
    assert store.writes >= at
    assert job.runner.error is None
    check_rows(outside)


def test_at_least_once_loses_no_row() -> None:
    outside = TransactionalMemory.named()
    job = SteppedJob(copying(outside), seed=1, store=MemorySnapshotStore(), guarantee=AT_LEAST_ONCE, members=2)
    run_and_kill(job, kills=2)
    assert {row["row"] for row in outside.rows()} == set(range(ROWS))


class Forgetful:
    """A sink that holds rows until they are flushed, and forgets them if that fails, as it does once."""

    name = "forgetful"
    cooperative = True
    parallelism_one = True
    target = None

    def __init__(self, error: Exception) -> None:
        self.error: Exception | None = error
        self.held: list[int] = []
        self.kept: list[int] = []

    def check(self, schema: pa.Schema) -> None:
        pass

    def check_target(self) -> None:
        pass

    def open_writer(self, schema: pa.Schema, context: Any) -> "Forgetful":
        self.held = []
        return self

    def write(self, batch: Any) -> None:
        self.held += batch.to_arrow()["row"].to_pylist()

    def flush(self) -> None:
        held, self.held = self.held, []
        if self.error is not None and held:
            error, self.error = self.error, None
            raise error
        self.kept += held

    finish = flush

    def abort(self) -> None:
        self.held = []


def test_rows_that_a_sink_could_not_flush_are_written_again_or_the_job_fails() -> None:
    pipeline = jf.Pipeline("flushing")
    lost = Forgetful(TransportError("the connection broke"))
    pipeline.read(jf.memory(partitions=rows())).write(lost)
    job = SteppedJob(pipeline, seed=1, store=MemorySnapshotStore(), interval="20ms")
    job.run()
    assert job.job.guarantee is AT_LEAST_ONCE
    assert job.job.metrics["restarts"] == 1
    assert set(lost.kept) == set(range(ROWS))
    pipeline = jf.Pipeline("refused")
    pipeline.read(jf.memory(partitions=rows())).write(Forgetful(ValueError("too long")), name="out")
    job = SteppedJob(pipeline, seed=1, store=MemorySnapshotStore(), interval="20ms")
    job.run()
    assert isinstance(job.runner.error, JobFailedError)
    assert "step 'out' failed in snapshot " in str(job.runner.error)
    assert "forgetful: cannot flush: ValueError: too long" in str(job.runner.error)
    assert job.job.metrics["restarts"] == 0


def test_a_lost_connection_of_a_source_begins_again_and_a_poison_row_does_not() -> None:
    outside = TransactionalMemory.named()
    job = SteppedJob(copying(outside, CRASH), seed=2, store=MemorySnapshotStore())
    job.run()
    assert job.job.metrics["restarts"] == 1
    check_rows(outside)


def poisoned(outside: TransactionalMemory) -> jf.Pipeline:
    pipeline = jf.Pipeline("poisoned")
    read = pipeline.read(jf.memory(partitions=rows()))
    read.with_column("quotient", 1 / (jf.col("row") - 300)).write(outside.sink(), name="outside")
    return pipeline


def test_an_error_of_a_row_fails_at_once_and_the_rows_of_the_last_snapshot_stay() -> None:
    outside = TransactionalMemory.named()
    store = MemorySnapshotStore()
    job = SteppedJob(poisoned(outside), seed=3, store=store, interval="20ms")
    job.run()
    assert isinstance(job.runner.error, JobFailedError)
    assert job.job.metrics["restarts"] == 0
    assert job.job.metrics["snapshots_taken"] > 0
    assert outside.in_doubt() == [], "the last snapshot is committed, all else is rolled back"
    written = [row["row"] for row in outside.rows()]
    assert len(written) == len(set(written)) < ROWS
    record = store.read_record("poisoned")
    assert record is not None
    assert record.record.snapshot is not None, "a mended pipeline can start from it"


def test_a_job_that_failed_goes_on_from_its_last_snapshot_under_its_name() -> None:
    outside = TransactionalMemory.named()
    store = MemorySnapshotStore()
    first = SteppedJob(copying(outside), seed=4, store=store, interval="20ms")
    first.run(lambda: first.runner.snapshots.taken == 3)
    first.runner.cancel()
    first.run()
    assert isinstance(first.runner.error, JobCancelledError)
    assert outside.in_doubt() == []
    before = len(outside.rows())
    assert 0 < before < ROWS
    second = SteppedJob(copying(outside), seed=5, store=store)
    second.run()
    assert second.runner.job_id == first.runner.job_id
    check_rows(outside)
    with pytest.raises(jf.errors.JobDefinitionError, match="is completed"):
        SteppedJob(copying(outside), seed=6, store=store)
    third = SteppedJob(copying(outside), seed=7, store=store, fresh=True)
    third.run()
    assert len(outside.rows()) == 2 * ROWS


def test_a_coordinator_that_dies_is_followed_by_one_that_goes_on_whenever_that_was() -> None:
    for seed in range(6):
        outside = TransactionalMemory.named()
        store = MemorySnapshotStore()
        old = SteppedJob(copying(outside), seed=seed, store=store, interval="20ms")
        for _ in range(20 * seed):
            old.step()
        assert not old.ended
        new = SteppedJob(copying(outside), seed=seed, store=store)  # nobody steps the old one any more
        new.run()
        check_rows(outside)


def test_an_old_coordinator_stops_when_another_has_taken_over() -> None:
    outside = TransactionalMemory.named()
    store = MemorySnapshotStore()
    old = SteppedJob(copying(outside), seed=1, store=store, interval="20ms")
    old.run(lambda: old.runner.snapshots.taken == 2)
    new = SteppedJob(copying(outside), seed=2, store=store)
    new.run(lambda: new.runner.status is JobStatus.RUNNING)
    old.run()
    assert isinstance(old.runner.error, jf.errors.RestartableError)
    assert "another coordinator" in str(old.runner.error)
    new.run()
    check_rows(outside)


def test_a_store_that_hangs_holds_up_neither_rows_nor_a_cancellation() -> None:
    outside = TransactionalMemory.named()
    job = SteppedJob(copying(outside), seed=1, store=MemorySnapshotStore(), interval="20ms")
    job.run(lambda: job.runner.snapshots.taken == 1)
    job.works.hangs = True
    job.run(lambda: job.job.metrics["rows_read"] == ROWS and bool(job.works.waiting))
    assert "writing the validation record; waits for memory" in job.job.explain_snapshot()
    job.runner.cancel()
    job.run()
    assert isinstance(job.runner.error, JobCancelledError)
    assert "could not be committed" in job.runner.error.__notes__[0]


def test_a_snapshot_that_is_stuck_says_which_member_and_which_of_its_processors_it_waits_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    outside = TransactionalMemory.named(faults=Faults(Random(1), {"slow": 1.0}))
    job = SteppedJob(copying(outside), seed=1, store=MemorySnapshotStore(), interval="20ms", members=2)
    job.run(lambda: job.job.explain_snapshot().count("transactions to be prepared") == 2)
    first, *_ = job.job.explain_snapshot().splitlines()
    assert first.startswith("job copying: snapshot 1, for ")
    assert first.endswith("saving state; waits for member(s) 0, 1")
    assert "outside-0 waits for its transactions to be prepared" in job.job.explain_snapshot()
    job.clock.advance("61s")
    told = job.job.explain_progress()
    assert "  snapshot 1, for " in told, "one that is slow is told of by the job, too"
    assert "  member 0: outside-0 waits for its transactions to be prepared" in told
    job.step()
    job.run(lambda: "outside-0 waits for its transactions" in caplog.text)
    outside.faults.active = False
    job.run()
    assert job.job.explain_snapshot().startswith("job copying: snapshot ")
    check_rows(outside)


def test_restarts_are_limited_by_max_restarts() -> None:
    outside = TransactionalMemory.named()
    job = SteppedJob(copying(outside), seed=1, store=MemorySnapshotStore(), max_restarts=1)
    run_and_kill(job, kills=2)
    assert isinstance(job.runner.error, MemberLostError)
    assert outside.in_doubt() == []


def test_without_a_guarantee_a_lost_member_fails_the_job() -> None:
    job = SteppedJob(copying(TransactionalMemory.named()), seed=1)
    job.run(lambda: job.runner.status is JobStatus.RUNNING)
    job.kill(0)
    job.run()
    assert isinstance(job.runner.error, MemberLostError)
    assert job.job.metrics["snapshots"] == []
