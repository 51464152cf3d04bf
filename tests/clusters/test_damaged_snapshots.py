"""Jobs whose snapshot is not whole any more refuse to start, say what is missing, and change nothing outside."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import jetfast as jf
from jetfast.engine.memory_snapshot_store import MemorySnapshotStore
from jetfast.engine.snapshot_store import SnapshotArea, SnapshotStore, StateEntry
from jetfast.errors import SnapshotDamaged
from jetfast.testing import TransactionalMemory
from tests.clusters.test_recovery import ROWS, copying
from tests.simulation.stepped_job import SteppedJob


def stop_after_a_decision(outside: TransactionalMemory, store: SnapshotStore) -> SnapshotArea:
    """Let the whole cluster die when the third snapshot has been decided, before phase 2; return where it is."""
    job = SteppedJob(copying(outside), seed=1, store=store, interval="10ms", members=2)

    def decided() -> bool:
        found = store.read_record("copying")
        return found is not None and found.record.snapshot is not None and found.record.snapshot.snapshot_id == 3

    job.run(decided)
    found = store.read_record("copying")
    assert found is not None
    assert found.record.snapshot is not None
    return found.record.snapshot


@pytest.mark.parametrize("damage", ["no entry", "one entry more", "another entry"])
def test_a_job_does_not_start_from_state_that_is_not_what_was_saved_and_loses_no_transaction(damage: str) -> None:
    outside, store = TransactionalMemory.named(), MemorySnapshotStore()
    area = stop_after_a_decision(outside, store)
    entries = list(store.read_files("copying", area, "outside"))
    assert outside.in_doubt() != []
    assert entries != []
    altered: dict[str, list[StateEntry]] = {
        "no entry": [],
        "one entry more": [*entries, entries[0]],
        "another entry": [entries[0]._replace(processor=entries[0].processor + 1), *entries[1:]],
    }
    for index in range(2):
        store.write_file("copying", area, "outside", str(index), altered[damage] if index == 0 else [])
    before = outside.rows(), outside.in_doubt()
    job = SteppedJob(copying(outside), seed=2, store=store)
    job.run()
    assert isinstance(job.runner.error, SnapshotDamaged)
    assert f"snapshot {area} of job 'copying' in memory: step 'outside' has" in str(job.runner.error)
    assert f"but {len(entries)} entries of" in str(job.runner.error)
    assert job.job.metrics["restarts"] == 0, "it would be as damaged then"
    assert (outside.rows(), outside.in_doubt()) == before, "a decided transaction is not rolled back"


def run_to_its_end(pipeline: jf.Pipeline, store: SnapshotStore) -> None:
    job = SteppedJob(pipeline, seed=2, store=store)
    job.run()
    if job.runner.error is not None:
        raise job.runner.error


def delete_the_area(area: Path) -> None:
    shutil.rmtree(area)
    area.with_name(area.name + ".validation").unlink()


def delete_a_file(area: Path) -> None:
    next(path for path in area.rglob("*") if path.is_file()).unlink()


def tear_a_file(area: Path) -> None:
    file = next(path for path in area.rglob("*") if path.is_file())
    file.write_bytes(file.read_bytes()[:-5])


def alter_a_file(area: Path) -> None:
    file = max((path for path in area.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (delete_the_area, r"cannot go on from its last snapshot: .*validation is missing.*fresh=True"),
        (delete_a_file, r"step '.*' has \d+ entries of \d+ bytes .*, but \d+ entries of"),
        (tear_a_file, r"it ends after \d+ bytes"),
        (alter_a_file, r"the entry at byte \d+ was altered: its checksum does not fit"),
    ],
)
def test_files_of_a_snapshot_that_were_deleted_torn_or_altered_are_named_and_a_fresh_job_begins_anew(
    damage: Callable[[Path], None], text: str, tmp_path: Path
) -> None:
    outside, store = TransactionalMemory.named(), jf.snapshots.directory(tmp_path)
    area = stop_after_a_decision(outside, store)
    damage(tmp_path / "copying" / "areas" / str(area))
    with pytest.raises(SnapshotDamaged, match=text):
        run_to_its_end(copying(outside), store)
    visible = len(outside.rows())
    job = SteppedJob(copying(outside), seed=3, store=store, fresh=True)
    job.run()
    assert job.runner.error is None
    assert len(outside.rows()) == visible + ROWS
    assert outside.in_doubt() == [], "transactions of the job before are rolled back"


def lose_the_record(newest: Path) -> None:
    newest.unlink()


def put_an_older_copy_in_its_place(newest: Path) -> None:
    newest.write_bytes(min(newest.parent.iterdir()).read_bytes())


@pytest.mark.parametrize("damage", [lose_the_record, put_an_older_copy_in_its_place])
def test_a_job_does_not_start_from_a_record_that_is_not_the_newest(
    damage: Callable[[Path], None], tmp_path: Path
) -> None:
    outside, store = TransactionalMemory.named(), jf.snapshots.directory(tmp_path)
    stop_after_a_decision(outside, store)
    before = outside.rows(), outside.in_doubt()
    damage(max((tmp_path / "copying/records").iterdir()))
    with pytest.raises(SnapshotDamaged, match="would write rows twice"):
        run_to_its_end(copying(outside), jf.snapshots.directory(tmp_path))
    assert (outside.rows(), outside.in_doubt()) == before
    visible = len(outside.rows())
    job = SteppedJob(copying(outside), seed=3, store=jf.snapshots.directory(tmp_path), fresh=True)
    job.run()
    assert job.runner.error is None
    assert len(outside.rows()) == visible + ROWS
    assert outside.in_doubt() == [], "transactions of the job before are rolled back"


def test_records_of_another_job_or_snapshot_are_refused(tmp_path: Path) -> None:
    outside, store = TransactionalMemory.named(), jf.snapshots.directory(tmp_path)
    area = stop_after_a_decision(outside, store)
    areas = tmp_path / "copying" / "areas"
    (areas / f"{area}.validation").rename(areas / f"{area.execution_id}-7.validation")
    with pytest.raises(SnapshotDamaged, match=f"is that of snapshot {area}"):
        store.read_validation("copying", SnapshotArea(area.execution_id, 7))
    (tmp_path / "copying").rename(tmp_path / "other")
    with pytest.raises(SnapshotDamaged, match="is that of job 'copying', not of 'other'"):
        store.read_record("other")
