"""A snapshot store on a disk that is full for a while: what failed leaves nothing behind, and the job recovers."""

import errno
import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

import jetfast as jf
from jetfast.engine.blob_snapshot_store import BlobSnapshotStore
from jetfast.engine.directory_blobs import DirectoryBlobs
from jetfast.engine.snapshot_store import SnapshotStore
from jetfast.testing import EMPTY, TransactionalMemory
from tests.simulation.stepped_job import SteppedJob

DISK_BYTES = 4 << 20
ROWS = 40_000
BATCH = 500


class QuotaBlobs(DirectoryBlobs):
    """A directory with a quota, where a file system cannot be mounted."""

    def _write(self, target: Path, pieces: Sequence[bytes | memoryview]) -> Path:
        used = sum(file.stat().st_size for file in self.path.parent.rglob("*") if file.is_file())
        if used + sum(map(len, pieces)) > DISK_BYTES:
            target.parent.mkdir(parents=True, exist_ok=True)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super()._write(target, pieces)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[tuple[Path, SnapshotStore]]:
    """A file system of DISK_BYTES and a store on it; a quota where this user may not mount one."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES},mode=700", "tmpfs", place], capture_output=True
    )
    if mounted.returncode != 0:
        yield place, BlobSnapshotStore(QuotaBlobs(place / "store"))
        return
    try:
        yield place, jf.snapshots.directory(place / "store")
    finally:
        subprocess.run(["umount", place], check=True)


def fill(place: Path, spared: int) -> Path:
    """Leave about so many bytes free."""
    ballast = place / "ballast"
    used = sum(file.stat().st_blocks * 512 for file in place.rglob("*"))
    ballast.write_bytes(bytes(DISK_BYTES - used - spared))
    return ballast


def keyed_rows(outside: TransactionalMemory) -> jf.Pipeline:
    """Every row is a key of its own, so each snapshot is larger than the last one."""
    table = pa.table({"row": range(ROWS)})
    script = [item for start in range(0, ROWS, BATCH) for item in (table.slice(start, BATCH), EMPTY)]
    pipeline = jf.Pipeline("keyed")
    pipeline.read(jf.memory(script), name="in").drop_duplicates("row", name="known").write(outside.sink(), name="out")
    return pipeline


def test_a_store_that_was_full_for_a_while_holds_no_rubbish_and_the_job_recovers(
    disk: tuple[Path, SnapshotStore],
) -> None:
    place, store = disk
    outside = TransactionalMemory.named()
    job = SteppedJob(keyed_rows(outside), seed=1, store=store, interval="20ms", members=2)
    history = job.runner.snapshots
    job.run(lambda: history.taken == 3)
    ballast = fill(place, spared=100_000)
    inodes = len(list((place / "store").rglob("*")))
    failed = history.failed
    job.run(lambda: history.failed >= failed + 12)
    assert any("No space left" in error for error in history.last[-1]["errors"])
    found = store.read_record("keyed")
    assert found is not None
    kept = store.list_areas("keyed")
    assert found.record.snapshot is not None
    assert found.record.snapshot in kept
    assert len([area for area in kept if area > found.record.snapshot]) <= 1, "only what is written just now"
    assert len(list((place / "store").rglob("*"))) < inodes + 20, "folders go, too"
    ballast.unlink()
    taken = history.taken
    job.run(lambda: history.taken > taken)
    job.run()
    assert job.runner.error is None
    assert sorted(row["row"] for row in outside.rows()) == list(range(ROWS))
