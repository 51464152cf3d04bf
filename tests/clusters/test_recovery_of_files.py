"""Files are written exactly once, or at least once, by jobs whose members die, which fail, or which are cancelled."""

import errno
import os
import re
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import jetfast as jf
from jetfast.control import restarts
from jetfast.control.job_events import ResumeAsked
from jetfast.core.crash_points import CRASH_POINTS, CrashPoint, set_crash_hook
from jetfast.engine.memory_snapshot_store import MemorySnapshotStore
from jetfast.errors import DataLostError, JobCancelledError, JobDefinitionError, JobFailedError
from jetfast.testing import EMPTY, VirtualClock, kill_member
from tests.clusters.test_recovery import run_and_kill
from tests.connectors.reading import read_all
from tests.simulation.simulated_run import SimulatedCrash
from tests.simulation.stepped_job import SteppedJob

ROWS = 300
PATIENCE_S = 60.0
REACHED_BY_OTHERS = {
    "after_ids_saved",
    "before_validation_record",
    "between_records",
    "after_execution_record",
    "before_phase2",
}
"""Crash points to which no thread of a processor comes, but the coordinator or whoever stores state."""


def rows_in(directory: Path) -> list[int]:
    return sorted(row["row"] for row in read_all(jf.files(directory)))


def temporary_files(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir() if path.name.startswith(".")]


def copying(target: Path, function: Callable[[Any], Any] | None = None) -> jf.Pipeline:
    """Two partitions of rows, a few at a time, to files of a few rows."""
    table = pa.table({"row": range(ROWS)})
    pieces: list[Any] = [item for start in range(0, ROWS, 3) for item in (table.slice(start, 3), EMPTY)]
    pipeline = jf.Pipeline("copying")
    stage: Any = pipeline.read(jf.memory(partitions={"a": pieces[: ROWS // 3], "b": pieces[ROWS // 3 :]}), name="in")
    if function is not None:
        stage = stage.map_batches(function, schema=table.schema, name="function")
    stage.write(jf.files(target, "ipc", file_size="1KB"), name="out")
    return pipeline


@pytest.mark.parametrize("steps", [3, 20])
def test_a_cancelled_job_leaves_the_rows_of_its_last_snapshot_and_no_temporary_file(steps: int, tmp_path: Path) -> None:
    store = MemorySnapshotStore()
    job = SteppedJob(copying(tmp_path), seed=1, store=store, interval="20ms", members=2)
    job.run(lambda: job.runner.snapshots.taken == 1)
    for _ in range(steps):
        job.step()
    job.runner.cancel()
    job.run()
    assert isinstance(job.runner.error, JobCancelledError)
    assert temporary_files(tmp_path) == []
    written = rows_in(tmp_path)
    assert 0 < len(written) == len(set(written)) < ROWS
    later = SteppedJob(copying(tmp_path), seed=5, store=store)
    later.run()
    assert later.runner.error is None
    assert rows_in(tmp_path) == list(range(ROWS))


def test_a_job_whose_function_fails_leaves_no_temporary_file_and_a_mended_one_goes_on(tmp_path: Path) -> None:
    def poisoned(rows: pa.RecordBatch) -> pa.RecordBatch:
        if 250 in rows["row"].to_pylist():
            raise ValueError("250 is too much")
        return rows

    store = MemorySnapshotStore()
    job = SteppedJob(copying(tmp_path, poisoned), seed=8, store=store, interval="10ms")
    job.run()
    assert isinstance(job.runner.error, JobFailedError)
    assert "250 is too much" in str(job.runner.error)
    assert temporary_files(tmp_path) == []
    assert 0 < len(rows_in(tmp_path)) < ROWS
    mended = SteppedJob(copying(tmp_path, lambda rows: rows), seed=3, store=store)
    mended.run()
    assert rows_in(tmp_path) == list(range(ROWS))


def test_at_least_once_no_row_is_missing_from_the_files_and_no_temporary_one_stays(tmp_path: Path) -> None:
    at_least_once = jf.Guarantee.AT_LEAST_ONCE
    store = MemorySnapshotStore()
    job = SteppedJob(
        copying(tmp_path), seed=4, store=store, guarantee=at_least_once, interval="20ms", members=2, workers=2
    )
    run_and_kill(job, kills=3)
    assert job.runner.error is None
    assert job.job.metrics["restarts"] >= 1
    assert set(rows_in(tmp_path)) == set(range(ROWS))
    assert temporary_files(tmp_path) == []


def test_at_least_once_a_cancelled_job_keeps_what_it_has_flushed(tmp_path: Path) -> None:
    store = MemorySnapshotStore()
    job = SteppedJob(
        copying(tmp_path), seed=1, store=store, guarantee=jf.Guarantee.AT_LEAST_ONCE, interval="20ms", members=2
    )
    job.run(lambda: job.runner.snapshots.taken == 2)
    flushed = set(rows_in(tmp_path))
    assert flushed
    job.runner.cancel()
    job.run()
    assert flushed <= set(rows_in(tmp_path))
    later = SteppedJob(copying(tmp_path), seed=2, store=store, guarantee=jf.Guarantee.AT_LEAST_ONCE)
    later.run()
    assert set(rows_in(tmp_path)) == set(range(ROWS))


def test_a_file_of_a_decided_snapshot_that_was_removed_is_lost_data_and_no_reason_to_restart(tmp_path: Path) -> None:
    store = MemorySnapshotStore()
    job = SteppedJob(copying(tmp_path), seed=1, store=store, interval="10ms")

    def decided() -> bool:
        found = store.read_record("copying")
        return found is not None and found.record.snapshot is not None and bool(temporary_files(tmp_path))

    job.run(decided)  # and then all of it dies, before phase 2
    for name in temporary_files(tmp_path):
        (tmp_path / name).unlink()
    later = SteppedJob(copying(tmp_path), seed=2, store=store)
    later.run()
    assert isinstance(later.runner.error, DataLostError)
    assert "is gone, which the snapshot counts on" in str(later.runner.error)
    assert later.job.metrics["restarts"] == 0


def test_a_full_disk_fails_snapshots_and_not_the_job_and_leaves_nothing_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store, target = jf.snapshots.directory(tmp_path / "snapshots"), tmp_path / "out"
    job = SteppedJob(copying(target), seed=1, store=store, interval="10ms")
    job.run(lambda: job.runner.snapshots.taken == 1)

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        of_the_store = SimpleNamespace(**{**vars(os), "fsync": full})  # the disk of the sink has room
        patched.setattr("jetfast.engine.directory_blobs.os", of_the_store)
        job.run(lambda: job.runner.snapshots.failed == 3)
    assert "cannot be written: [Errno 28] No space left on device" in caplog.text
    job.run()
    assert job.runner.error is None
    assert job.job.metrics["restarts"] == 0
    assert rows_in(target) == list(range(ROWS))
    assert temporary_files(target) == []
    assert [path for path in (tmp_path / "snapshots").rglob(".*")] == []


def number(rows: Any, random: Any) -> pa.RecordBatch:
    return pa.record_batch({"row": rows})


def give_rows_with_snapshots(job: jf.Job, clock: VirtualClock, until: Callable[[], bool]) -> None:
    """Let rows become due as snapshots are taken, however slow the machine is; then all of them. Wait for the end."""
    deadline = time.monotonic() + PATIENCE_S
    taken = -1
    while not job.runner.wait(0.001):
        assert time.monotonic() < deadline, job.explain_snapshot()
        if until():
            clock.advance("1s")
        elif job.metrics["snapshots_taken"] != taken:
            taken = job.metrics["snapshots_taken"]
            clock.advance("2ms")
    job.wait()


@pytest.mark.parametrize(
    "point",
    [
        point if point == "before_ack" else pytest.param(point, marks=pytest.mark.simulation)
        for point in CRASH_POINTS
        if point != "between_two_commits"  # of two in one processor, which needs a failed round: the simulator has it
    ],
)
def test_each_row_is_in_one_file_though_all_members_die_at_a_crash_point(
    point: CrashPoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restarts, "RESTART_DELAY_MIN_S", 0.001)
    deaths: list[CrashPoint] = ["before_ack", point] if point.startswith("restore_") else [point]
    submitted: list[jf.Job] = []

    def die(reached: CrashPoint) -> None:
        if not submitted or not deaths or reached != deaths[0] or submitted[0].metrics["snapshots_taken"] < 2:
            return
        deaths.pop(0)
        for member in range(2):
            kill_member(submitted[0], member)
        if reached not in REACHED_BY_OTHERS:
            raise SystemExit  # what the processor was about to do is not done

    pipeline = jf.Pipeline("copying")
    source = jf.generator(number, rows=6000, rate=30_000.0, partitions=3)
    pipeline.read(source, name="in").write(jf.files(tmp_path / "out", "ipc", file_size="4KB"), name="out")
    store = jf.snapshots.directory(tmp_path / "snapshots")
    set_crash_hook(die)
    try:
        clock = VirtualClock()
        cluster = jf.LocalCluster(members=2, workers=1, snapshot_store=store, clock=clock)
        submitted.append(cluster.submit(pipeline, snapshot_interval="2ms", progress=False))
        give_rows_with_snapshots(submitted[0], clock, until=lambda: not deaths)
    finally:
        set_crash_hook(None)
    assert deaths == []
    assert submitted[0].metrics["restarts"] >= 1
    assert rows_in(tmp_path / "out") == list(range(6000))
    assert temporary_files(tmp_path / "out") == []


def lose_a_file(tmp_path: Path, store: MemorySnapshotStore) -> str:
    """Remove what a decided snapshot counts on; return the transaction that the job names then."""
    job = SteppedJob(copying(tmp_path), seed=1, store=store, interval="10ms")

    def decided() -> bool:
        found = store.read_record("copying")
        return found is not None and found.record.snapshot is not None and bool(temporary_files(tmp_path))

    job.run(decided)  # and then all of it dies, before phase 2
    for name in temporary_files(tmp_path):
        (tmp_path / name).unlink()
    later = SteppedJob(copying(tmp_path), seed=2, store=store)
    later.run()
    assert isinstance(later.runner.error, DataLostError)
    found = re.search(r"accept_loss=\['([^']+)'\]", str(later.runner.error))
    assert found is not None
    return found[1]


@pytest.mark.parametrize("point", ["", "restore_before_commit", "restore_between_commit_and_rollback"])
def test_a_job_goes_on_without_the_rows_of_a_loss_that_the_user_accepts(tmp_path: Path, point: str) -> None:
    """The record keeps the note, so that it counts after a crash at any point of the restore, too."""
    store = MemorySnapshotStore()
    transaction = lose_a_file(tmp_path, store)
    refused = SteppedJob(copying(tmp_path), seed=3, store=store, accept_loss=["another"])
    refused.run()
    assert isinstance(refused.runner.error, DataLostError)
    job = SteppedJob(copying(tmp_path), seed=4, store=store, accept_loss=[transaction])
    if point:

        def crash(here: str) -> None:
            if here == point:
                raise SimulatedCrash

        set_crash_hook(crash)
        try:
            with pytest.raises(SimulatedCrash):
                job.run()
        finally:
            set_crash_hook(None)
        job = SteppedJob(copying(tmp_path), seed=5, store=store)  # nothing is said of the loss this time
    job.run()
    assert job.runner.error is None
    found = store.read_record("copying")
    assert found is not None
    assert found.record.accepted_losses == ("another", transaction)
    written = rows_in(tmp_path)
    assert len(written) == len(set(written))
    assert 0 < len(set(range(ROWS)) - set(written)) < ROWS
    assert temporary_files(tmp_path) == []


def test_a_suspended_job_is_resumed_without_the_rows_of_a_loss(tmp_path: Path) -> None:
    store = MemorySnapshotStore()
    transaction = lose_a_file(tmp_path, store)
    job = SteppedJob(copying(tmp_path), seed=6, store=store, suspend_on_failure=True)
    job.run(lambda: job.job.status is jf.JobStatus.SUSPENDED)
    assert isinstance(job.job.suspension_cause, DataLostError)
    job.runner.ask(partial(ResumeAsked, accept_loss=(transaction,)))
    job.run()
    assert job.runner.error is None
    found = store.read_record("copying")
    assert found is not None
    assert found.record.accepted_losses == (transaction,)


@pytest.mark.parametrize("wrong", ["text", [""], [7], 7])
def test_what_is_no_list_of_names_is_refused(tmp_path: Path, wrong: object) -> None:
    with pytest.raises(TypeError, match="accept_loss must be a list of names of transactions"):
        jf.LocalCluster().submit(copying(tmp_path), accept_loss=wrong)


def test_a_job_that_begins_anew_has_no_loss_to_accept(tmp_path: Path) -> None:
    with pytest.raises(JobDefinitionError, match="leave out fresh and initial_snapshot"):
        jf.LocalCluster().submit(copying(tmp_path), accept_loss=["a"], fresh=True)
