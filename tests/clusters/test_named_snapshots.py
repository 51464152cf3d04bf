"""Jobs that export snapshots under a name, and jobs that start from them: changed, or with another parallelism."""

from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

import jetfast as jf
from jetfast.control.job_events import CancelAndExportAsked, ExportAsked, SuspendAsked
from jetfast.core.transaction import SETTLED_KINDS
from jetfast.engine.memory_snapshot_store import MemorySnapshotStore
from jetfast.engine.snapshot_copy import EXPORTED, export_snapshot, find_exported
from jetfast.engine.snapshot_store import (
    ExecutionRecord,
    SnapshotArea,
    SnapshotStore,
    StateEntry,
    ValidationRecord,
    check_totals,
)
from jetfast.errors import (
    JobCancelledError,
    JobDefinitionError,
    OperationRefused,
    RecordConflict,
    SnapshotDamaged,
    StoreUnavailable,
)
from jetfast.testing import TransactionalMemory
from tests.clusters.test_recovery import ROWS, FailingStore, check_rows, check_windows, copying, summing
from tests.simulation.stepped_job import SteppedJob

FIRST, SECOND = SnapshotArea(5, 1), SnapshotArea(5, 2)


@pytest.fixture(params=["memory", "directory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> SnapshotStore:
    return jf.snapshots.memory() if request.param == "memory" else jf.snapshots.directory(tmp_path)


def write(store: SnapshotStore, area: SnapshotArea, rows: bytes) -> None:
    entries = [StateEntry(0, "state", (3,), (), (rows,)), StateEntry(0, "transactions", (-1,), (), (b"ids",))]
    totals = store.write_file("job", area, "sink", "0", entries)
    store.write_validation("job", ValidationRecord(area, {"sink": totals}, 271, {"sink": 2}))


def kept(store: SnapshotStore, name: str) -> list[StateEntry]:
    record = find_exported(store, name)
    assert check_totals(store, EXPORTED + name, record.area) == record
    return [entry for vertex in record.vertices for entry in store.read_files(EXPORTED + name, record.area, vertex)]


def test_an_exported_snapshot_is_whole_has_no_transactions_and_survives_the_job(store: SnapshotStore) -> None:
    write(store, FIRST, b"one")
    export_snapshot(store, "job", "id", FIRST, "daily")
    store.delete_area("job", FIRST)
    (found,) = kept(store, "daily")
    assert (found.processor, found.kind, tuple(found.partitions), b"".join(found.pieces)) == (0, "state", (3,), b"one")
    assert "transactions" in SETTLED_KINDS
    assert find_exported(store, "daily").parallelism == {"sink": 2}


def test_an_export_replaces_that_of_its_name_when_it_is_whole_and_not_before(store: SnapshotStore) -> None:
    write(store, FIRST, b"one")
    export_snapshot(store, "job", "id", FIRST, "daily")
    write(store, SECOND, b"two")
    store.delete_area("job", SECOND)
    with pytest.raises(SnapshotDamaged):
        export_snapshot(store, "job", "id", SECOND, "daily")
    assert [b"".join(entry.pieces) for entry in kept(store, "daily")] == [b"one"]
    write(store, SECOND, b"two")
    for _ in range(2):
        export_snapshot(store, "job", "id", SECOND, "daily")
        assert [b"".join(entry.pieces) for entry in kept(store, "daily")] == [b"two"]
        assert store.list_areas(EXPORTED + "daily") == [SECOND]


def test_of_two_who_export_under_one_name_one_learns_that_it_lost() -> None:
    store = MemorySnapshotStore()
    write(store, FIRST, b"one")
    write_validation = store.write_validation

    def overtaken(job: str, record: ValidationRecord) -> None:
        write_validation(job, record)
        store.replace_record(ExecutionRecord(job, "other", 9, SnapshotArea(9, 9)), 0)

    store.write_validation = overtaken  # type: ignore[method-assign]
    with pytest.raises(RecordConflict):
        export_snapshot(store, "job", "id", FIRST, "daily")


def test_named_snapshots_are_listed_by_name_with_the_job_that_they_were_taken_of(store: SnapshotStore) -> None:
    assert jf.snapshots.named(store) == ()
    write(store, FIRST, b"one")
    assert jf.snapshots.named(store) == (), "a job is no named snapshot"
    for name in ("é/..", "daily"):
        export_snapshot(store, "job", "id", FIRST, name, now_us=17)
    daily, other = jf.snapshots.named(store)
    assert (daily.name, other.name) == ("daily", "é/..")
    assert (daily.job, daily.exported_at_us, daily.steps) == ("job", 17, ("sink",))
    assert (daily.entries, daily.nbytes, daily.partition_count, daily.problem) == (1, 3, 271, "")
    assert jf.snapshots.named(store, "job") == (daily, other)
    assert jf.snapshots.named(store, "another") == ()


def test_a_deleted_snapshot_is_gone_and_its_name_may_be_used_again(store: SnapshotStore) -> None:
    write(store, FIRST, b"one")
    export_snapshot(store, "job", "id", FIRST, "other")
    for _ in range(2):
        export_snapshot(store, "job", "id", FIRST, "daily")
        assert [b"".join(entry.pieces) for entry in kept(store, "daily")] == [b"one"]
        jf.snapshots.delete(store, "daily")
        assert store.list_areas(EXPORTED + "daily") == []
        with pytest.raises(JobDefinitionError, match="has no snapshot named 'daily'"):
            jf.snapshots.delete(store, "daily")
        with pytest.raises(JobDefinitionError, match="has no snapshot named 'daily'"):
            find_exported(store, "daily")
    assert [found.name for found in jf.snapshots.named(store)] == ["other"]
    assert store.list_jobs() == [EXPORTED + "other", "job"]
    assert check_totals(store, "job", FIRST).area == FIRST, "the job's own snapshot is its own"


def test_who_exports_while_the_name_is_deleted_learns_of_it_and_what_he_exports_next_is_whole() -> None:
    store = MemorySnapshotStore()
    write(store, FIRST, b"one")
    export_snapshot(store, "job", "id", FIRST, "daily")
    write(store, SECOND, b"two")
    write_validation = store.write_validation

    def deleted(job: str, record: ValidationRecord) -> None:
        write_validation(job, record)
        jf.snapshots.delete(store, "daily")

    store.write_validation = deleted  # type: ignore[method-assign]
    with pytest.raises(RecordConflict):
        export_snapshot(store, "job", "id", SECOND, "daily")
    assert jf.snapshots.named(store) == ()
    store.write_validation = write_validation  # type: ignore[method-assign]
    export_snapshot(store, "job", "id", SECOND, "daily")
    assert [b"".join(entry.pieces) for entry in kept(store, "daily")] == [b"two"]


def test_a_deletion_that_was_cut_off_leaves_a_name_that_stands_for_nothing_and_is_finished_by_the_next() -> None:
    store = MemorySnapshotStore()
    write(store, FIRST, b"one")
    export_snapshot(store, "job", "id", FIRST, "daily")

    def fail(job: str, area: SnapshotArea) -> None:
        raise StoreUnavailable("it hangs")

    delete_area, store.delete_area = store.delete_area, fail  # type: ignore[method-assign]
    with pytest.raises(StoreUnavailable):
        jf.snapshots.delete(store, "daily")
    assert jf.snapshots.named(store) == ()
    store.delete_area = delete_area  # type: ignore[method-assign]
    jf.snapshots.delete(store, "daily")
    assert store.list_jobs() == ["job"]


def test_a_named_snapshot_that_is_damaged_is_listed_with_what_is_wrong(tmp_path: Path) -> None:
    store = jf.snapshots.directory(tmp_path)
    write(store, FIRST, b"one")
    export_snapshot(store, "job", "id", FIRST, "daily")
    (validation,) = tmp_path.glob("exported*/areas/*.validation")
    validation.unlink()
    (found,) = jf.snapshots.named(store)
    assert (found.name, found.job) == ("daily", "job")
    assert "is missing" in found.problem
    (record,) = tmp_path.glob("exported*/records/*")
    record.write_bytes(b"?")
    (found,) = jf.snapshots.named(store)
    assert found.problem != ""


def stepped(pipeline: jf.Pipeline, seed: int, store: SnapshotStore, **options: object) -> SteppedJob:
    return SteppedJob(pipeline, seed=seed, store=store, interval="30ms", **options)  # type: ignore[arg-type]


def rows_of(outside: TransactionalMemory) -> list[int]:
    return sorted(row["row"] for row in outside.rows())


def started(job: SteppedJob, steps: int = 150) -> SteppedJob:
    job.run(lambda: job.runner.status is jf.JobStatus.RUNNING)
    for _ in range(steps):
        job.step()
    return job


@pytest.mark.parametrize("members", [1, 2])
def test_a_job_goes_on_where_a_cancelled_one_was_exported_and_each_row_is_written_once(members: int) -> None:
    outside, store = TransactionalMemory.named(), MemorySnapshotStore()
    old = started(stepped(copying(outside), members, store, members=2))
    old.do(partial(CancelAndExportAsked, name="last"))
    old.run()
    assert isinstance(old.runner.error, JobCancelledError)
    assert outside.in_doubt() == []
    assert 0 < len(rows_of(outside)) < ROWS
    elsewhere = exports_of(store) if members == 2 else store
    new = stepped(copying(outside), members, elsewhere, members=members, initial_snapshot="last")
    new.run()
    assert new.runner.error is None
    check_rows(outside)


def exports_of(store: MemorySnapshotStore) -> MemorySnapshotStore:
    """A store that knows the exports of another one, and none of its jobs."""
    copy = MemorySnapshotStore()
    copy._records = {name: record for name, record in store._records.items() if name.startswith(EXPORTED)}
    copy._areas = {name: areas for name, areas in store._areas.items() if name.startswith(EXPORTED)}
    return copy


def test_a_running_job_is_exported_and_runs_on_and_what_starts_from_it_writes_what_followed() -> None:
    outside, store = TransactionalMemory.named(), MemorySnapshotStore()
    old = started(stepped(copying(outside), 1, store, members=2))
    old.do(partial(ExportAsked, name="now"))
    at = len(kept(store, "now"))
    assert at > 0
    old.run()
    check_rows(outside)
    again = TransactionalMemory.named()
    new = stepped(copying(again), 2, store, members=1, initial_snapshot="now")
    new.run()
    assert new.runner.error is None
    written = rows_of(again)
    assert 0 < len(written) < ROWS
    assert len(set(written)) == len(written)
    assert again.in_doubt() == []


@pytest.mark.parametrize("how", ["refused", "not done"])
@pytest.mark.parametrize("write", [2, 4, *(pytest.param(n, marks=pytest.mark.simulation) for n in (1, 3, 5, 6))])
def test_an_export_that_fails_says_so_and_the_job_runs_on(write: int, how: str) -> None:
    outside, store = TransactionalMemory.named(), FailingStore(how=how)
    job = started(stepped(copying(outside), 1, store))
    job.run(lambda: job.job.metrics["snapshots_taken"] >= 1)
    store.at = store.writes + write
    try:
        job.do(partial(ExportAsked, name="now"))
    except OperationRefused:
        assert job.job.metrics["restarts"] == 1, "nobody knew whether the snapshot was decided"
    except jf.errors.RestartableError:
        with pytest.raises(JobDefinitionError, match="no snapshot named 'now'"):
            find_exported(store, "now")
    else:
        kept(store, "now")
    job.run()
    assert job.runner.error is None
    check_rows(outside)


def test_a_suspended_job_is_exported_and_stays_suspended() -> None:
    outside, store = TransactionalMemory.named(), MemorySnapshotStore()
    old = started(stepped(summing(outside), 1, store), 100)
    old.do(SuspendAsked)
    old.do(partial(ExportAsked, name="half"))
    assert old.runner.status is jf.JobStatus.SUSPENDED
    old.runner.cancel()
    old.run()
    new = stepped(summing(outside), 2, store, members=2, workers=2, initial_snapshot="half")
    new.run()
    assert new.runner.error is None
    check_windows(outside)


def test_a_snapshot_that_is_not_there_or_has_no_store_is_refused_at_submission() -> None:
    p = jf.Pipeline("p")
    p.read(jf.memory(pa.table({"x": [1]}))).write(TransactionalMemory.named().sink())
    cluster = jf.LocalCluster(workers=1)
    with pytest.raises(JobDefinitionError, match="memory has no snapshot named 'gone'"):
        cluster.submit(p, snapshot_store=jf.snapshots.memory(), initial_snapshot="gone")
    with pytest.raises(JobDefinitionError, match="its guarantee is NONE"):
        cluster.submit(p, initial_snapshot="gone")
    with pytest.raises(JobDefinitionError, match="must not begin with 'exported:'"):
        cluster.submit(p, name="exported:p")
    with cluster.submit(p, progress=False) as job, pytest.raises(JobDefinitionError, match="a snapshot's name"):
        job.export_snapshot("")


def test_without_a_guarantee_there_is_nothing_to_export() -> None:
    p = jf.Pipeline("p")
    p.read(jf.generator({"x": pa.int64()}, rate=100)).collect()
    job = jf.LocalCluster(workers=1).submit(p, progress=False)
    with job, pytest.raises(OperationRefused, match="it takes no snapshots"):
        job.export_snapshot("x")
