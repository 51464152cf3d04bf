"""Who can write to a snapshot store, and stores that are encrypted: what others read, alter or exchange in them."""

import logging
import os
import pickle
import secrets
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import jetfast as jf
from jetfast.api import snapshots
from jetfast.engine import directory_blobs
from jetfast.engine.encrypted_blobs import SEGMENT_BYTES, EncryptedBlobs
from jetfast.engine.object_store_blobs import ObjectStoreBlobs
from jetfast.engine.snapshot_copy import export_snapshot
from jetfast.engine.snapshot_store import SnapshotArea, SnapshotStore, StateEntry, ValidationRecord, check_totals
from jetfast.errors import JobDefinitionError, SnapshotDamaged, StoreUnavailable
from jetfast.testing import EMPTY, TransactionalMemory
from tests.engine.test_snapshot_stores import AREA, decided, files_of, record, save
from tests.simulation.stepped_job import SteppedJob

KEY, OTHER_KEY = bytes(range(32)), bytes(32)
PLANTED = "a secret that no one may read"


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    before = os.umask(0o077)
    yield
    os.umask(before)


# Who can write


@pytest.mark.parametrize("below", ["", "job"])
def test_a_directory_that_everybody_can_write_to_is_refused_unless_that_is_allowed(
    below: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = tmp_path / "store"
    (place / "job").mkdir(parents=True)
    (place / below).chmod(0o777)
    with pytest.raises(JobDefinitionError, match=f"everybody can write to {place / below}.*allow_shared_store=True"):
        snapshots.directory(place).check()
    snapshots.directory(place, allow_shared_store=True).check()
    assert "everybody can write" in caplog.text
    (place / below).chmod(0o1777)
    snapshots.directory(place).check()


def test_a_directory_of_another_ordinary_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "store"
    (place / "job").mkdir(parents=True)
    if os.geteuid() == 0:
        os.chown(place / "job", 65534, -1)
        where = place / "job"
    else:  # only root gives files away
        monkeypatch.setattr(directory_blobs.os, "geteuid", lambda: 65534)
        where = place
    with pytest.raises(JobDefinitionError, match=f"{where} belongs to another user, "):
        snapshots.directory(place).check()
    snapshots.directory(place, allow_shared_store=True).check()


def test_a_directory_that_a_group_can_write_to_is_a_warning_that_names_the_group(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    import grp

    tmp_path.chmod(0o770)
    snapshots.directory(tmp_path).check()
    assert f"group {grp.getgrgid(tmp_path.stat().st_gid).gr_name} can write to {tmp_path}" in caplog.text


def test_a_directory_of_its_own_is_nothing_to_speak_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    snapshots.directory(tmp_path / "new").check()
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700
    assert caplog.text == ""


def test_an_object_store_says_that_it_cannot_be_judged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "jetfast"):
        ObjectStoreBlobs("memory:///").check_access()
    assert "cannot judge who else can write to it" in caplog.text


# Encryption


@pytest.fixture
def encrypted(tmp_path: Path) -> SnapshotStore:
    return snapshots.encrypted(snapshots.directory(tmp_path), KEY)


def big() -> list[StateEntry]:
    return [StateEntry(0, "rows", (0,), (), (secrets.token_bytes(SEGMENT_BYTES), b"", secrets.token_bytes(77)))]


def test_an_encrypted_store_keeps_what_a_store_keeps(encrypted: SnapshotStore) -> None:
    encrypted.check()
    validation = save(encrypted)
    version = encrypted.replace_record(record(7, 1), 0)
    entries = big()
    encrypted.write_file("job", AREA, "big", "0", entries)
    for store in (encrypted, pickle.loads(pickle.dumps(encrypted))):
        assert check_totals(store, "job", AREA) == validation
        found = store.read_record("job")
        assert (found.record, found.version) == (record(7, 1), version)
        (entry,) = store.read_files("job", AREA, "big")
        assert b"".join(entry.pieces) == b"".join(entries[0].pieces)
        assert KEY.hex() not in repr(store)
        assert str(KEY) not in repr(store)


def test_a_planted_value_is_nowhere_in_an_encrypted_store(tmp_path: Path) -> None:
    rows = [{"text": [f"{PLANTED} {number}"]} for number in range(60)]
    pipeline = jf.Pipeline("planted")
    outside = TransactionalMemory.named()
    source = jf.memory([item for row in rows for item in (row, EMPTY)], schema=pa.schema([("text", pa.string())]))
    pipeline.read(source, name="in").drop_duplicates("text", name="known").write(outside.sink(), name="out")
    openers = (snapshots.directory, lambda path: snapshots.encrypted(snapshots.directory(path), KEY))
    for number, open_store in enumerate(openers):
        place = tmp_path / str(number)
        job = SteppedJob(pipeline, seed=1, store=open_store(place), interval="10ms")
        job.run(lambda job=job: job.runner.snapshots.taken == 3)
        store = open_store(place)
        found = store.read_record("planted")
        assert found is not None
        assert found.record.snapshot is not None
        export_snapshot(store, "planted", found.record.job_id, found.record.snapshot, "named")
        content = {str(file.relative_to(place)): file.read_bytes() for file in place.rglob("*") if file.is_file()}
        assert any("exported" in name for name in content)
        assert any("records" in name for name in content)
        leaks = [name for name, data in content.items() if PLANTED.encode() in data]
        assert bool(leaks) is (number == 0), "the plain store shows that the test can see it"
        if number == 1:
            assert [name for name, data in content.items() if b"JETFAST\0" in data or b"job_id" in data] == []
        again = SteppedJob(pipeline, seed=2, store=open_store(place))
        again.run()
        assert again.runner.error is None


def test_files_that_change_places_are_refused(tmp_path: Path, encrypted: SnapshotStore) -> None:
    save(encrypted)
    save(encrypted, SnapshotArea(7, 2))
    first, second = (tmp_path / f"job/areas/7-{number}/sum/0" for number in (1, 2))
    contents = first.read_bytes(), second.read_bytes()
    first.write_bytes(contents[1])
    second.write_bytes(contents[0])
    for area in (AREA, SnapshotArea(7, 2)):
        with pytest.raises(SnapshotDamaged, match="a file of another place or age"):
            check_totals(encrypted, "job", area)
    first.write_bytes(contents[0])
    second.write_bytes(contents[1])
    first.with_name("1").write_bytes(contents[0])
    with pytest.raises(SnapshotDamaged, match="sum/1 was altered"):
        check_totals(encrypted, "job", AREA)


def test_an_older_record_in_place_of_the_newest_and_a_plain_one_are_refused(
    tmp_path: Path, encrypted: SnapshotStore
) -> None:
    version = encrypted.replace_record(record(7), 0)
    encrypted.replace_record(record(7, 1), version)
    older, newest = files_of(tmp_path, "/records/")
    newest.write_bytes(older.read_bytes())
    with pytest.raises(SnapshotDamaged, match="a file of another place or age"):
        encrypted.read_record("job")
    decided(snapshots.directory(tmp_path / "plain"))
    newest.write_bytes(files_of(tmp_path / "plain", "/records/")[-1].read_bytes())
    with pytest.raises(SnapshotDamaged, match="is not encrypted: it was written without a key"):
        encrypted.read_record("job")


def test_every_altered_byte_and_every_cut_is_refused(tmp_path: Path, encrypted: SnapshotStore) -> None:
    encrypted.write_validation("job", ValidationRecord(AREA, {}, 271, {}))
    file = tmp_path / "job/areas/7-1.validation"
    whole = file.read_bytes()
    altered = [whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in range(len(whole))]
    for data in [*altered, *(whole[:end] for end in range(len(whole))), whole + b"\0"]:
        file.write_bytes(data)
        with pytest.raises((SnapshotDamaged, JobDefinitionError), match="7-1.validation"):
            encrypted.read_validation("job", AREA)


def test_segments_that_are_left_out_or_exchanged_are_refused(tmp_path: Path, encrypted: SnapshotStore) -> None:
    rows = (secrets.token_bytes(3 * SEGMENT_BYTES),)
    encrypted.write_file("job", AREA, "big", "0", [StateEntry(0, "rows", (0,), (), rows)])
    file = tmp_path / "job/areas/7-1/big/0"
    whole, step = file.read_bytes(), SEGMENT_BYTES + 16
    assert whole[:8] == b"JETFASTE"
    head = 8 + 3 + 16 + 12 + 48 + 16
    parts = [whole[at : at + step] for at in range(head, len(whole), step)]
    assert len(parts) == 4
    for order in ([0, 1, 2], [0, 1], [1, 0, 2, 3], [0, 2, 3], [0, 1, 2, 3, 3], []):
        file.write_bytes(whole[:head] + b"".join(parts[index] for index in order))
        with pytest.raises(SnapshotDamaged):
            list(encrypted.read_files("job", AREA, "big"))


def test_a_wrong_key_a_missing_key_and_no_key_are_errors_that_say_so(tmp_path: Path, encrypted: SnapshotStore) -> None:
    encrypted.replace_record(record(7), 0)
    plain = snapshots.directory(tmp_path)
    with pytest.raises(JobDefinitionError, match="was encrypted with the key '.*', and the key that was given is"):
        snapshots.encrypted(plain, OTHER_KEY).read_record("job")
    with pytest.raises(SnapshotDamaged, match=r"it is encrypted: open the store with jetfast\.snapshots\.encrypted"):
        plain.read_record("job")
    with pytest.raises(JobDefinitionError, match="32 bytes, got 5 bytes"):
        snapshots.encrypted(plain, b"short")
    with pytest.raises(TypeError, match="32 bytes or a function, got str"):
        snapshots.encrypted(plain, "text")  # type: ignore[arg-type]
    for store in (snapshots.memory(), encrypted):
        with pytest.raises(TypeError, match="can be encrypted"):
            snapshots.encrypted(store, KEY)


class Keys:
    """Keys by id; the last one encrypts."""

    def __init__(self, **keys: bytes) -> None:
        self.keys = keys
        self.asked = 0

    def __call__(self, key_id: str | None) -> tuple[str, bytes]:
        self.asked += 1
        wanted = list(self.keys)[-1] if key_id is None else key_id
        return wanted, self.keys[wanted]


def test_keys_can_be_changed_while_files_of_the_old_one_are_left(tmp_path: Path) -> None:
    plain = snapshots.directory(tmp_path)
    old = snapshots.encrypted(plain, Keys(first=KEY))
    version = old.replace_record(record(7), 0)
    save(old)
    keys = Keys(first=KEY, second=OTHER_KEY)
    both = snapshots.encrypted(plain, keys)
    assert check_totals(both, "job", AREA).area == AREA
    assert both.read_record("job") is not None
    version = both.replace_record(record(7, 1), version)
    assert keys.asked < 8, "not for each file"
    with pytest.raises(JobDefinitionError, match="the key 'second' is not known"):
        old.read_record("job")
    new = snapshots.encrypted(plain, Keys(second=OTHER_KEY))
    both.replace_record(record(7, 2), version)
    assert new.read_record("job") is not None, "the newest record and its mark are of the new key"
    with pytest.raises(JobDefinitionError, match="the key 'first' is not known"):
        check_totals(new, "job", AREA)
    with pytest.raises(JobDefinitionError, match="another key was given under that id"):
        snapshots.encrypted(plain, Keys(second=KEY)).read_record("job")

    def away(key_id: str | None) -> tuple[str, bytes]:
        raise ConnectionError("no route")

    with pytest.raises(StoreUnavailable, match="cannot be had: no route"):
        snapshots.encrypted(plain, away).read_record("job")


def test_each_execution_and_each_process_has_a_data_key_of_its_own(tmp_path: Path) -> None:
    blobs = EncryptedBlobs(ObjectStoreBlobs("memory:///"), KEY)
    heads = {blobs._data_key(f"job/areas/{execution}-1/v/0")[1] for execution in (7, 7, 8)}
    assert len(heads) == 2
    assert pickle.loads(pickle.dumps(blobs))._data_key("job/areas/7-1/v/0")[1] not in heads
