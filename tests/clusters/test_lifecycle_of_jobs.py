"""Whole jobs that are suspended, resumed and restarted: on one thread under a virtual clock, and with threads."""

import logging
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import jetfast as jf
from jetfast.connectors.memory import MemoryReader, MemorySource
from jetfast.control.job_events import RestartAsked, ResumeAsked, SuspendAsked
from jetfast.core.guarantee import Guarantee
from jetfast.core.processor import ProcessorContext
from jetfast.core.source import Position, Rows
from jetfast.engine.memory_snapshot_store import MemorySnapshotStore
from jetfast.errors import JobCancelledError, JobFailedError, OperationRefused
from jetfast.testing import TransactionalMemory
from tests.clusters.test_recovery import FailingStore, check_rows, check_windows, copying, summing
from tests.simulation.stepped_job import SteppedJob

PATIENCE_S = 30.0


def stepped(pipeline: jf.Pipeline, seed: int, members: int = 1, store: MemorySnapshotStore | None = None) -> SteppedJob:
    return SteppedJob(pipeline, seed=seed, store=store or MemorySnapshotStore(), interval="30ms", members=members)


@pytest.mark.parametrize("members", [1, 2])
@pytest.mark.parametrize(
    "kind", [TransactionalMemory.named, partial(TransactionalMemory.pooled, 2)], ids=["named", "pooled"]
)
def test_each_row_is_written_once_over_suspensions_and_restarts_and_no_transaction_is_left_meanwhile(
    members: int, kind: Callable[[], TransactionalMemory]
) -> None:
    outside = kind()
    job = stepped(copying(outside), members, members)
    random = Random(members)
    suspended = 0
    while not job.ended:
        for _ in range(random.randrange(300)):
            job.step()
        job.run(lambda: job.runner.status is jf.JobStatus.RUNNING)
        try:
            job.do(random.choice([SuspendAsked, RestartAsked]))
        except OperationRefused:
            assert job.ended or job.runner.status is jf.JobStatus.COMPLETING
        if job.runner.status is jf.JobStatus.SUSPENDED:
            suspended += 1
            assert outside.in_doubt() == []
            rows = [row["row"] for row in outside.rows()]
            assert len(rows) == len(set(rows))
            for _ in range(50):
                job.step()
            assert len(outside.rows()) == len(rows), "nothing of a suspended job does anything"
            job.do(ResumeAsked)
    assert suspended >= 1
    assert job.runner.error is None
    assert job.job.metrics["restarts"] == 0
    check_rows(outside)


@pytest.mark.parametrize("operation", [SuspendAsked, RestartAsked], ids=lambda operation: operation.__name__)
def test_windows_hold_each_row_once_over_a_terminal_snapshot(operation: type) -> None:
    outside = TransactionalMemory.named()
    job = stepped(summing(outside), 3, 2)
    for _ in range(3):
        job.run(lambda: job.runner.status is jf.JobStatus.RUNNING)
        for _ in range(100):
            job.step()
        job.do(operation)
        if job.runner.status is jf.JobStatus.SUSPENDED:
            job.do(ResumeAsked)
    job.run()
    assert job.runner.error is None
    check_windows(outside)


@pytest.mark.parametrize("how", ["refused", "done", "not done"])
@pytest.mark.parametrize("write", [1, 2, 3])
def test_a_terminal_snapshot_that_fails_leaves_a_job_suspended_at_the_one_before(write: int, how: str) -> None:
    outside = TransactionalMemory.named()
    store = FailingStore(how=how)
    job = stepped(copying(outside), 5, store=store)
    job.run(lambda: job.job.metrics["snapshots_taken"] >= 1 and job.job.explain_snapshot().endswith(" s"))
    store.at = store.writes + write
    job.do(SuspendAsked)
    assert job.runner.status is jf.JobStatus.SUSPENDED
    assert outside.in_doubt() == []
    job.do(ResumeAsked)
    job.run()
    assert job.runner.error is None
    check_rows(outside)


def test_a_suspended_job_that_is_cancelled_leaves_what_its_last_snapshot_holds() -> None:
    outside = TransactionalMemory.named()
    store = MemorySnapshotStore()
    job = stepped(copying(outside), 6, store=store)
    job.run(lambda: job.job.metrics["snapshots_taken"] >= 2)
    job.do(SuspendAsked)
    written = len(outside.rows())
    job.runner.cancel()
    job.run()
    assert isinstance(job.runner.error, JobCancelledError)
    assert (len(outside.rows()), outside.in_doubt()) == (written, [])
    later = stepped(copying(outside), 7, store=store)
    later.run()
    check_rows(outside)


def test_a_member_that_dies_while_its_job_is_suspended_is_followed_by_another() -> None:
    outside = TransactionalMemory.named()
    job = stepped(copying(outside), 8, 2)
    job.run(lambda: job.job.metrics["snapshots_taken"] >= 1)
    job.do(SuspendAsked)
    job.kill(1)
    job.do(ResumeAsked)
    job.run()
    check_rows(outside)


class Broken:
    """Fails at a row until it is mended."""

    def __init__(self) -> None:
        self.mended = False

    def __call__(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        if not self.mended and 2000 in rows["row"].to_pylist():
            raise ValueError("a poison row")
        return rows


def poisoned(outside: TransactionalMemory, broken: Broken) -> jf.Pipeline:
    table = pa.table({"row": range(3000)})
    pipeline = jf.Pipeline("poisoned")
    read = pipeline.read(jf.memory(table, batch_rows=100))
    read.map_batches(broken, schema=table.schema).write(outside.sink(), name="outside")
    return pipeline


def test_a_failure_suspends_a_job_if_that_was_chosen_and_its_rows_go_on_when_that_is_mended() -> None:
    outside, broken = TransactionalMemory.named(), Broken()
    job = jf.LocalCluster(workers=1).submit(
        poisoned(outside, broken), guarantee=Guarantee.EXACTLY_ONCE, suspend_on_failure=True, progress=False
    )
    while job.status is not jf.JobStatus.SUSPENDED:
        assert not job.runner.wait(0.001)
    assert isinstance(job.suspension_cause, JobFailedError)
    assert "a poison row" in str(job.suspension_cause)
    assert outside.in_doubt() == []
    broken.mended = True
    job.resume()
    assert job.suspension_cause is None
    job.wait(PATIENCE_S)
    assert sorted(row["row"] for row in outside.rows()) == list(range(3000))


def test_a_job_on_threads_is_suspended_resumed_restarted_and_cancelled() -> None:
    outside = TransactionalMemory.named()
    endless = jf.Pipeline("endless")
    endless.read(jf.generator({"x": pa.int64()}, rate=100_000, partitions=2)).write(outside.sink(), name="outside")
    cluster = jf.LocalCluster(members=2, workers=1)
    with cluster.submit(endless, guarantee=Guarantee.EXACTLY_ONCE, progress=False) as job:
        with pytest.raises(OperationRefused, match="cannot be resumed: it is .*, and must be suspended"):
            job.resume()
        for _ in range(2):
            while job.status is not jf.JobStatus.RUNNING:
                assert not job.runner.wait(0.001)
            job.suspend(PATIENCE_S)
            assert job.status is jf.JobStatus.SUSPENDED
            assert outside.in_doubt() == []
            job.resume()
        while job.status is not jf.JobStatus.RUNNING:
            assert not job.runner.wait(0.001)
        job.restart(PATIENCE_S)
        assert [taken["kind"] for taken in job.metrics["snapshots"]] == ["terminal"] * 3
        with pytest.raises(TimeoutError, match="job endless is still"):
            job.suspend(0.0)
        job.cancel()
        with pytest.raises(JobCancelledError):
            job.wait(PATIENCE_S)
    with pytest.raises(OperationRefused, match="what was asked of it is not done"):
        job.suspend()


def test_without_a_guarantee_a_job_is_suspended_at_once_begins_from_the_beginning_and_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pipeline = jf.Pipeline("numbers")
    seen: list[int] = []
    table = pa.table({"row": range(200)})

    def note(rows: pa.RecordBatch) -> pa.RecordBatch:
        seen.extend(rows["row"].to_pylist())
        return rows

    pipeline.read(jf.memory(table, batch_rows=1)).map_batches(note, schema=table.schema).collect()
    job = SteppedJob(pipeline, seed=1)
    job.run(lambda: len(seen) >= 20)
    with caplog.at_level(logging.INFO, "jetfast"):
        job.do(SuspendAsked)
    assert "when resumed it begins from the beginning: it takes no snapshots" in caplog.text
    before = len(seen)
    assert before < 200
    job.do(ResumeAsked)
    job.run(lambda: len(seen) > before + 20)
    job.do(RestartAsked)
    again = len(seen)
    job.run()
    assert job.runner.error is None
    assert seen[again:] == list(range(200))


def joining(outside: TransactionalMemory, gate: list[bool]) -> jf.Pipeline:
    """Copies rows past a hash join whose build side has more rows while `gate` is empty."""

    class Gated(MemorySource):
        def open_reader(self, partition: str, position: Position | None, context: ProcessorContext) -> Any:
            return GatedReader(self, partition, position, context.now_us)

    class GatedReader(MemoryReader):
        def read(self) -> Rows | None:
            return super().read() if gate else Rows(self.empty, self._position())

    source = jf.memory(pa.table({"row": range(3000), "name": ["x"] * 3000}), batch_rows=100)
    gated = Gated(
        source.name, source.schema, source.scripts, source.bounded, source.batch_rows, source.identity, source.ends
    )
    pipeline = jf.Pipeline("joining")
    build = pipeline.read(gated, name="build")
    probe = pipeline.read(jf.memory(pa.table({"row": range(3000)}), batch_rows=100), name="probe")
    probe.hash_join(build, on="row").select("row").write(outside.sink(), name="outside")
    return pipeline


@pytest.mark.parametrize("members", [1, 2])
@pytest.mark.parametrize("round_begun", [False, True])
def test_a_restart_or_suspension_does_not_wait_for_the_build_side_of_a_join(members: int, round_begun: bool) -> None:
    outside, gate = TransactionalMemory.named(), list[bool]()
    job = stepped(joining(outside, gate), 3, members)
    for operation in (RestartAsked, SuspendAsked):
        job.run(lambda: job.runner.status is jf.JobStatus.RUNNING)
        if round_begun:
            job.run(lambda: job.job.explain_snapshot().startswith("job joining: snapshot 1, for"))
        job.do(operation)  # the build side does not end meanwhile
        assert job.job.metrics["restarts"] == 0
    assert job.runner.status is jf.JobStatus.SUSPENDED
    assert job.job.suspension_cause is None
    gate.append(True)
    job.do(ResumeAsked)
    job.run()
    assert job.runner.error is None
    assert sorted(row["row"] for row in outside.rows()) == list(range(3000))


@pytest.mark.parametrize(
    ("guarantee", "why"),
    [(Guarantee.NONE, "it takes no snapshots"), (Guarantee.EXACTLY_ONCE, "it has no snapshot yet")],
)
def test_a_restart_without_a_snapshot_says_that_it_begins_from_the_beginning(
    guarantee: Guarantee, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "jetfast")
    outside, gate = TransactionalMemory.named(), list[bool]()
    job = SteppedJob(joining(outside, gate), seed=1, guarantee=guarantee, store=MemorySnapshotStore())
    job.run(lambda: job.runner.status is jf.JobStatus.RUNNING)
    job.do(RestartAsked)
    assert f"job joining: restarts from the beginning: {why}" in caplog.text


def test_a_restart_from_a_snapshot_says_so(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "jetfast")
    job = stepped(copying(TransactionalMemory.named()), 1)
    job.run(lambda: job.job.metrics["snapshots_taken"] >= 1)
    job.do(RestartAsked)
    assert "restarts from its last snapshot" in caplog.text
