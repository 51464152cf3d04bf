"""What every snapshot store promises, and what each kind does when files are torn, altered or missing."""

import os
import pickle
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetfast.api import snapshots
from jetfast.control.store_commands import DeleteUndecided, perform
from jetfast.engine import directory_blobs
from jetfast.engine.blob_snapshot_store import BlobSnapshotStore, escaped, unescaped
from jetfast.engine.directory_blobs import DirectoryBlobs
from jetfast.engine.snapshot_files import encode_record_file, encode_state_file
from jetfast.engine.snapshot_store import (
    ExecutionRecord,
    HighWaterMark,
    SnapshotArea,
    SnapshotStore,
    StateEntry,
    StateTotals,
    ValidationRecord,
    VersionedRecord,
    check_totals,
    totals_of,
)
from jetfast.errors import JobDefinitionError, OutcomeUnknown, RecordConflict, SnapshotDamaged, StoreUnavailable

AREA = SnapshotArea(7, 1)
ENTRIES = [
    StateEntry(0, "windows", (-2, 5), ("k",), (b"rows of 3", b" and 5")),
    StateEntry(0, "bounds", (-1,), (), (b"",)),
]
MAKERS: dict[str, Callable[[Path], SnapshotStore]] = {
    "memory": lambda path: snapshots.memory(),
    "directory": lambda path: snapshots.directory(path / "store"),
    "object store": lambda path: snapshots.object_store("memory:///"),
}


@pytest.fixture(params=MAKERS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> SnapshotStore:
    made = MAKERS[request.param](tmp_path)
    made.check()
    return made


@pytest.fixture
def directory(tmp_path: Path) -> SnapshotStore:
    return snapshots.directory(tmp_path)


def record(execution_id: int, snapshot_id: int | None = None, job: str = "job") -> ExecutionRecord:
    area = None if snapshot_id is None else SnapshotArea(execution_id, snapshot_id)
    return ExecutionRecord(job=job, job_id="id", execution_id=execution_id, snapshot=area)


def save(store: SnapshotStore, area: SnapshotArea = AREA) -> ValidationRecord:
    saved = store.write_file("job", area, "sum", "0", ENTRIES)
    saved += store.write_file("job", area, "sum", "1", [StateEntry(1, "windows", (4,), ("k",), (b"rows of 4",))])
    validation = ValidationRecord(area, {"sum": saved}, 271, {"sum": 2})
    store.write_validation("job", validation)
    return validation


def test_all_names_under_which_there_is_anything_are_listed(store: SnapshotStore) -> None:
    assert store.list_jobs() == []
    save(store)
    for job in ("another", "a/b", "ü."):
        store.replace_record(record(1, job=job), 0)
    assert store.list_jobs() == sorted(["job", "another", "a/b", "ü."])


def test_a_record_is_forgotten_up_to_a_version_and_a_newer_one_stays(store: SnapshotStore) -> None:
    version = 0
    for execution_id in (1, 2, 3):
        version = store.replace_record(record(execution_id), version)
    store.delete_record("job", version - 1)
    assert store.read_record("job") == VersionedRecord(record(3), version)
    store.delete_record("job", version)
    assert store.read_record("job") is None
    assert store.list_jobs() == []
    assert store.replace_record(record(4), 0) == 1


def whole(entry: StateEntry) -> StateEntry:
    return entry._replace(pieces=(b"".join(entry.pieces),))


def test_a_record_is_replaced_only_by_who_has_seen_the_last_one(store: SnapshotStore) -> None:
    assert store.read_record("job") is None
    first = store.replace_record(record(1), 0)
    second = store.replace_record(record(1, 1), first)
    assert store.read_record("job") == VersionedRecord(record(1, 1), second)
    for stale in (0, first):
        with pytest.raises(RecordConflict, match="another coordinator"):
            store.replace_record(record(9), stale)
    assert store.read_record("job") == VersionedRecord(record(1, 1), second)
    assert store.read_record("other") is None


def test_of_many_who_replace_a_record_at_once_one_succeeds(store: SnapshotStore) -> None:
    version = store.replace_record(record(1), 0)
    succeeded: list[int] = []
    start = threading.Barrier(8)

    def replace(execution_id: int) -> None:
        start.wait()
        try:
            store.replace_record(record(execution_id), version)
        except RecordConflict:
            return
        succeeded.append(execution_id)

    threads = [threading.Thread(target=replace, args=(number,)) for number in range(2, 10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = store.read_record("job")
    assert found is not None
    assert succeeded == [found.record.execution_id]


def test_an_old_coordinator_does_not_win_when_old_records_have_been_deleted(store: SnapshotStore) -> None:
    version = first = store.replace_record(record(1), 0)
    for snapshot_id in range(1, 6):
        version = store.replace_record(record(2, snapshot_id), version)
    with pytest.raises(RecordConflict):
        store.replace_record(record(1, 1), first)
    assert store.read_record("job") == VersionedRecord(record(2, 5), version)


def test_what_was_saved_is_read_again_and_fits_its_totals(store: SnapshotStore) -> None:
    validation = save(store)
    entries = [*ENTRIES, StateEntry(1, "windows", (4,), ("k",), (b"rows of 4",))]
    assert sorted(map(whole, store.read_files("job", AREA, "sum"))) == sorted(map(whole, entries))
    assert list(store.read_files("job", AREA, "other")) == []
    assert validation.vertices["sum"].entries == 3
    assert validation.vertices["sum"].nbytes == 24
    assert check_totals(store, "job", AREA) == validation


def test_a_file_written_again_replaces_the_first(store: SnapshotStore) -> None:
    store.write_file("job", AREA, "sum", "0", [StateEntry(0, "windows", (3,), ("k",), (b"from a round that failed",))])
    validation = save(store)
    assert check_totals(store, "job", AREA) == validation


def test_state_that_is_missing_or_of_another_step_is_named(store: SnapshotStore) -> None:
    with pytest.raises(SnapshotDamaged, match="7-1"):
        check_totals(store, "job", AREA)
    validation = save(store)
    store.write_file("job", AREA, "sum", "1", [])
    with pytest.raises(SnapshotDamaged, match=r"7-1.*'sum' has 2 entries.*but 3 entries"):
        check_totals(store, "job", AREA)
    store.write_file("job", AREA, "sum", "1", [StateEntry(1, "windows", (4,), ("k",), (b"rows of 5",))])
    with pytest.raises(SnapshotDamaged, match="checksum"):
        check_totals(store, "job", AREA)
    store.write_file("job", AREA, "sum", "1", [StateEntry(1, "windows", (4,), ("k",), (b"rows of 4",))])
    assert check_totals(store, "job", AREA) == validation


def test_areas_are_listed_and_deleted(store: SnapshotStore) -> None:
    later, other = SnapshotArea(7, 12), SnapshotArea(10, 1)
    for area in (other, later, AREA):
        save(store, area)
    assert store.list_areas("job") == [AREA, later, other]
    store.delete_area("job", later)
    store.delete_area("job", later)
    assert store.list_areas("job") == [AREA, other]
    assert check_totals(store, "job", AREA).area == AREA
    assert store.list_areas("another job") == []


def test_failed_snapshots_are_deleted_with_their_folders_and_nothing_else_is(
    tmp_path: Path, directory: SnapshotStore
) -> None:
    decided, other_job = SnapshotArea(7, 3), SnapshotArea(7, 4)
    for area in (SnapshotArea(7, 2), decided, SnapshotArea(7, 4), SnapshotArea(8, 1), SnapshotArea(8, 2)):
        save(directory, area)
    directory.write_file("another", other_job, "sum", "0", ENTRIES)
    (tmp_path / "job/areas/7-5/left empty/deep").mkdir(parents=True)  # the store was full before a byte was written
    (tmp_path / "job/areas/7-6").mkdir()
    assert SnapshotArea(7, 6) in directory.list_areas("job")
    assert perform(directory, "job", DeleteUndecided(decided, SnapshotArea(8, 2))) is None
    assert directory.list_areas("job") == [SnapshotArea(7, 2), decided, SnapshotArea(8, 2)]
    save(directory, SnapshotArea(6, 9))  # it could not be deleted when it was time
    assert perform(directory, "job", DeleteUndecided(decided, SnapshotArea(8, 2))) is None
    assert directory.list_areas("job") == [SnapshotArea(7, 2), decided, SnapshotArea(8, 2)]
    kept = {"7-2", "7-2.validation", "7-3", "7-3.validation", "8-2", "8-2.validation"}
    assert {path.name for path in (tmp_path / "job/areas").iterdir()} == kept
    assert directory.list_areas("another") == [other_job]
    assert perform(directory, "job", DeleteUndecided(None, SnapshotArea(9, 0))) is None
    assert not (tmp_path / "job").exists(), "folders go, too"


def test_jobs_and_steps_of_any_name_have_places_of_their_own(store: SnapshotStore) -> None:
    names = ["", ".", "..", "a/b", "a b", "a%2Fb", "ä", "A", "a.validation", "\0", "%"]
    for index, name in enumerate(names):
        store.write_file(name, AREA, name, name, [StateEntry(index, "k", (0,), (), (name.encode(),))])
        store.replace_record(record(index + 1, job=name), 0)
    for index, name in enumerate(names):
        assert [entry.processor for entry in store.read_files(name, AREA, name)] == [index]
        found = store.read_record(name)
        assert found is not None
        assert found.record.job == name


@given(st.text(max_size=20))
def test_escaping_can_be_undone(name: str) -> None:
    assert unescaped(escaped(name)) == name
    assert "/" not in escaped(name)


def test_a_name_too_long_for_a_file_is_an_error_that_says_so() -> None:
    with pytest.raises(JobDefinitionError, match="too long"):
        escaped("x" * 300)


def test_what_is_in_a_directory_is_found_by_another_process(directory: SnapshotStore) -> None:
    validation = save(directory)
    directory.replace_record(record(7, 1), 0)
    copy = pickle.loads(pickle.dumps(directory))
    assert check_totals(copy, "job", AREA) == validation
    assert copy.read_record("job") == directory.read_record("job")


def files_of(path: Path, kind: str) -> list[Path]:
    return sorted(file for file in path.rglob("*") if file.is_file() and kind in file.as_posix())


def test_a_file_torn_or_altered_at_any_byte_is_detected_and_named(tmp_path: Path, directory: SnapshotStore) -> None:
    save(directory)
    directory.replace_record(record(7, 1), 0)
    reads: list[tuple[str, Callable[[], object]]] = [
        ("/sum/", lambda: check_totals(directory, "job", AREA)),
        (".validation", lambda: directory.read_validation("job", AREA)),
        ("/records/", lambda: directory.read_record("job")),
    ]
    for kind, read in reads:
        for file in files_of(tmp_path, kind):
            whole = file.read_bytes()
            damaged = [whole[:end] for end in range(len(whole))]
            damaged += [whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in range(len(whole))]
            for data in [*damaged, whole + b"\0" if kind == "/sum/" else b""]:
                file.write_bytes(data)
                with pytest.raises(SnapshotDamaged, match=file.name):
                    read()
            file.write_bytes(whole)
        read()


def test_files_of_another_version_are_refused_and_it_is_said_what_to_do(
    tmp_path: Path, directory: SnapshotStore
) -> None:
    directory.replace_record(record(7, 1), 0)
    (file,) = files_of(tmp_path, "/records/")
    data = file.read_bytes()
    file.write_bytes(data[:8] + b"\x01\x00" + data[10:])
    with pytest.raises(SnapshotDamaged, match="has format version 1; this version of jetfast reads 2: .* fresh=True"):
        directory.read_record("job")


def test_a_record_that_vanishes_while_it_is_read_is_looked_up_again(tmp_path: Path) -> None:
    class Replacing(DirectoryBlobs):
        def get(self, name: str) -> bytes | None:
            if name.endswith("records/00000000000000000001"):
                snapshots.directory(tmp_path).replace_record(record(2), 1)
                os.unlink(tmp_path / name)
            return super().get(name)

    store = BlobSnapshotStore(Replacing(tmp_path))
    store.replace_record(record(1), 0)
    assert store.read_record("job") == VersionedRecord(record(2), 2)


def decided(store: SnapshotStore, count: int = 3) -> list[Path]:
    """Decide snapshots 7-1, 7-2, ...; return the files of the records that are left, oldest first."""
    version = store.replace_record(record(7), 0)
    for snapshot_id in range(1, count + 1):
        save(store, SnapshotArea(7, snapshot_id))
        version = store.replace_record(record(7, snapshot_id), version)
    assert isinstance(store, BlobSnapshotStore)
    assert isinstance(store.blobs, DirectoryBlobs)
    return files_of(store.blobs.path, "/records/")


def another(store: SnapshotStore) -> SnapshotStore:
    """The store as another process sees it."""
    found: SnapshotStore = pickle.loads(pickle.dumps(store))
    return found


def test_a_newest_record_that_was_lost_is_missed(directory: SnapshotStore) -> None:
    decided(directory)[-1].unlink()
    text = (
        r"is missing: .*3 has version 3 \(execution 7, snapshot 7-2\), but version 4 \(execution 7, snapshot 7-3\) was"
    )
    for store in (directory, another(directory)):
        with pytest.raises(SnapshotDamaged, match=text):
            store.read_record("job")


def test_a_newest_record_in_whose_place_an_older_copy_was_put_is_missed(directory: SnapshotStore) -> None:
    older, newest = decided(directory)
    newest.write_bytes(older.read_bytes())
    with pytest.raises(SnapshotDamaged, match=r"4 is a copy of the record of version 3 \(execution 7, snapshot 7-2\)"):
        another(directory).read_record("job")


def test_a_record_of_the_same_version_from_another_history_is_found_out(tmp_path: Path) -> None:
    mine, other = snapshots.directory(tmp_path / "mine"), snapshots.directory(tmp_path / "other")
    newest = decided(mine)[-1]
    version = other.replace_record(record(8), 0)
    for snapshot_id in (1, 2, 3):
        version = other.replace_record(record(8, snapshot_id), version)
    newest.write_bytes(files_of(tmp_path / "other", "/records/")[-1].read_bytes())
    with pytest.raises(SnapshotDamaged, match="is not the record that was written as version 4"):
        mine.read_record("job")
    for mark in files_of(tmp_path / "mine", "/marks/"):
        mark.unlink()  # the mark lags by one: then the chain tells
    mark = HighWaterMark(3, 4711, 7, SnapshotArea(7, 2))
    DirectoryBlobs(tmp_path / "mine").put(f"job/marks/{3:020d}", [encode_record_file(mark)])
    with pytest.raises(SnapshotDamaged, match="does not follow the record that was written as version 3"):
        mine.read_record("job")


def test_records_that_were_all_lost_are_missed_as_long_as_snapshots_are_left(directory: SnapshotStore) -> None:
    for file in decided(directory):
        file.unlink()
    with pytest.raises(
        SnapshotDamaged, match=r"all execution records of job 'job' are missing; the last was version 4"
    ):
        another(directory).read_record("job")
    for area in directory.list_areas("job"):
        directory.delete_area("job", area)
    assert directory.read_record("job") is None
    assert directory.replace_record(record(9), 0) == 1
    assert another(directory).read_record("job") == VersionedRecord(record(9), 1)


def test_a_mark_that_lags_and_one_that_comes_late_decide_nothing(tmp_path: Path, directory: SnapshotStore) -> None:
    decided(directory, 2)
    (mark,) = files_of(tmp_path, "/marks/")
    late = mark.read_bytes()
    version = directory.replace_record(record(7, 3), 3)
    (newest,) = files_of(tmp_path, "/marks/")
    newest.unlink()
    mark.write_bytes(late)  # the process died between the decision and the mark
    assert another(directory).read_record("job") == VersionedRecord(record(7, 3), version)
    version = another(directory).replace_record(record(7, 4), version)
    version = another(directory).replace_record(record(7, 5), version)
    mark.write_bytes(late)  # by a coordinator that has lost the job, and does not know
    assert another(directory).read_record("job") == VersionedRecord(record(7, 5), version)
    files_of(tmp_path, "/records/")[-1].unlink()
    with pytest.raises(SnapshotDamaged, match="is missing"):
        another(directory).read_record("job")


def test_a_decision_stands_when_the_mark_cannot_be_written(tmp_path: Path) -> None:
    class NoMarks(DirectoryBlobs):
        def put(self, name: str, pieces: Sequence[bytes | memoryview]) -> None:
            if "/marks/" in name:
                raise StoreUnavailable("full")
            super().put(name, pieces)

    store = BlobSnapshotStore(NoMarks(tmp_path))
    decided(store)
    assert store.read_record("job") == VersionedRecord(record(7, 3), 4)


def test_records_that_were_written_without_a_chain_are_read_and_continued(
    tmp_path: Path, directory: SnapshotStore
) -> None:
    (tmp_path / "job/records").mkdir(parents=True)
    for version in (3, 4):
        path = tmp_path / f"job/records/{version:020d}"
        path.write_bytes(encode_record_file(record(7, version - 1)))
    assert directory.read_record("job") == VersionedRecord(record(7, 3), 4)
    assert directory.replace_record(record(7, 4), 4) == 5
    assert another(directory).read_record("job") == VersionedRecord(record(7, 4), 5)
    files_of(tmp_path, "/records/")[-1].unlink()
    with pytest.raises(SnapshotDamaged, match="is missing"):
        another(directory).read_record("job")


def test_a_job_that_starts_afresh_replaces_whatever_is_left_of_the_record(directory: SnapshotStore) -> None:
    decided(directory)[-1].unlink()
    last = directory.read_last("job")
    assert last == VersionedRecord(record(7, 2), 4)
    assert directory.replace_record(record(9), last.version) == 5
    assert another(directory).read_record("job") == VersionedRecord(record(9), 5)


class Failing(DirectoryBlobs):
    """The calls named in `fails` raise; `create` has created the file before."""

    fails: Sequence[str] = ()

    def create(self, name: str, data: bytes) -> bool:
        created = super().create(name, data)
        if "create" in self.fails:
            raise OutcomeUnknown("no answer")
        return created

    def list(self, folder: str) -> list[str]:
        if "list" in self.fails:
            raise StoreUnavailable("no answer")
        return super().list(folder)

    def delete(self, names: Sequence[str]) -> None:
        if "delete" in self.fails:
            raise StoreUnavailable("no answer")
        super().delete(names)


@pytest.mark.parametrize("fails", ["create", "list"])
def test_a_decision_without_an_answer_is_unknown_and_what_is_read_later_is_the_truth(
    tmp_path: Path, fails: str
) -> None:
    blobs = Failing(tmp_path)
    store = BlobSnapshotStore(blobs)
    store.replace_record(record(1), 0)
    blobs.fails = (fails,)
    with pytest.raises(OutcomeUnknown):
        store.replace_record(record(2), 1)
    blobs.fails = ()
    assert store.read_record("job") == VersionedRecord(record(2), 2)


def test_a_request_sent_twice_is_no_conflict(tmp_path: Path) -> None:
    class Repeating(DirectoryBlobs):
        def create(self, name: str, data: bytes) -> bool:
            super().create(name, data)
            return super().create(name, data)

    assert BlobSnapshotStore(Repeating(tmp_path)).replace_record(record(1), 0) == 1


def test_a_decision_stands_when_old_records_cannot_be_deleted(tmp_path: Path) -> None:
    blobs = Failing(tmp_path)
    blobs.fails = ("delete",)
    store = BlobSnapshotStore(blobs)
    version = 0
    for snapshot_id in range(1, 5):
        version = store.replace_record(record(1, snapshot_id), version)
    assert store.read_record("job") == VersionedRecord(record(1, 4), 4)


def test_everything_is_synced_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    for name in ("fsync", "replace", "link"):
        original = getattr(os, name)

        def call(*arguments: object, name: str = name, original: Callable[..., object] = original) -> object:
            calls.append(name)
            return original(*arguments)

        monkeypatch.setattr(directory_blobs.os, name, call)
    blobs = DirectoryBlobs(tmp_path)
    blobs.put("file", [b"1"])
    assert blobs.create("other", b"1")
    assert calls == ["fsync", "replace", "fsync", "fsync", "link", "fsync"]


def test_what_a_dead_writer_left_is_not_listed_and_goes_with_its_area(tmp_path: Path, directory: SnapshotStore) -> None:
    save(directory)
    left = tmp_path / "job/areas/7-1/sum/.writing-1"
    left.write_bytes(b"half")
    assert len(list(directory.read_files("job", AREA, "sum"))) == 3
    directory.delete_area("job", AREA)
    assert files_of(tmp_path, "areas") == []


def test_a_directory_that_cannot_be_written_is_refused_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(JobDefinitionError, match="cannot be kept in directory"):
        snapshots.directory(tmp_path / "file" / "below").check()
    store = snapshots.directory(tmp_path / "file" / "below")
    with pytest.raises(StoreUnavailable):
        store.write_file("job", AREA, "sum", "0", ENTRIES)


def test_an_object_store_that_ignores_conditions_is_refused() -> None:
    store = snapshots.object_store("memory:///")
    assert isinstance(store, BlobSnapshotStore)
    blobs = store.blobs

    def create(name: str, data: bytes) -> bool:
        blobs.put(name, [data])
        return True

    blobs.create = create  # type: ignore[method-assign]
    with pytest.raises(JobDefinitionError, match="conditional puts"):
        store.check()


def test_bad_places_are_errors_that_name_the_right_call() -> None:
    with pytest.raises(TypeError, match="object_store"):
        snapshots.directory("s3://bucket")
    with pytest.raises(TypeError, match="s3://bucket/prefix"):
        snapshots.object_store("/tmp")


def test_the_bytes_of_files_do_not_change_by_accident() -> None:
    pieces, totals = encode_state_file("sum", ENTRIES, 271)
    assert totals == totals_of("sum", ENTRIES)
    state = b"".join(pieces)
    assert state.hex() == GOLDEN_STATE
    validation = encode_record_file(ValidationRecord(AREA, {"sum": StateTotals(1, 2, 3)}, 271, {"sum": 2}))
    assert validation.hex() == GOLDEN_VALIDATION
    assert encode_record_file(record(7, 1)).hex() == GOLDEN_EXECUTION


GOLDEN_STATE = (
    "4a45544641535400020001000f010000100000009400a777696e646f777392fe0591a16b0f00000000000000dfd969a8726f"
    "7773206f66203320616e6420350c0000009400a6626f756e647391ff900000000000000000982d0573ffffffff020000000f"
    "00000000000000b9d9b671"
)
GOLDEN_VALIDATION = (
    "4a45544641535400020002000f01000071000000bd9c46f084a46172656182ac657865637574696f6e5f696407ab736e6170"
    "73686f745f696401a8766572746963657381a373756d83a7656e747269657301a66e627974657302a8636865636b73756d03"
    "af706172746974696f6e5f636f756e74cd010fab706172616c6c656c69736d81a373756d02"
)
GOLDEN_EXECUTION = (
    "4a455446415354000200030000000000cd0000004f503eea8ea36a6f62a36a6f62a66a6f625f6964a26964ac657865637574"
    "696f6e5f696407a8736e617073686f7482ac657865637574696f6e5f696407ab736e617073686f745f696401af706172616c"
    "6c656c69736d5f6d617800ab6d656d626572735f6d617800af61636365707465645f6c6f7373657390a9636f6d706c657465"
    "64c2a7736574746c6564c2a973757370656e646564c2ad6578706f727465645f66726f6da0ae6578706f727465645f61745f"
    "757300aa7375626d697373696f6ec0ac636f6f7264696e61746f727390"
)
