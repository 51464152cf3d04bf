"""Stores of earlier releases continue under this one: every row of the second half, none of the first half again."""

import json
import tarfile
from collections import Counter
from pathlib import Path

import pytest

import jetfast as jf
from tests.golden.pipeline import JOB, NAMED, ROWS, build
from tests.golden.write import rows_of

RELEASES = sorted(Path(__file__).parent.glob("*.tar.gz"))


@pytest.fixture(params=RELEASES, ids=lambda path: path.name.removesuffix(".tar.gz"))
def release(request, tmp_path):
    with tarfile.open(request.param) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


def expected(release: Path) -> dict[str, Counter]:
    return {name: Counter(rows) for name, rows in json.loads((release / "expected.json").read_text()).items()}


def written(release: Path, out: str) -> dict[str, Counter]:
    return {name: Counter(rows) for name, rows in rows_of(release / out).items()}


def test_there_is_a_store_of_the_first_release():
    assert [path.name for path in RELEASES][:1] == ["0.1.tar.gz"]


def test_a_suspended_job_continues(release):
    job = jf.LocalCluster(workers=2).submit(
        build(str(release / "out"), ROWS, unbounded=False),
        snapshot_store=jf.snapshots.directory(release / "store"),
        guarantee=jf.Guarantee.EXACTLY_ONCE,
        progress=False,
    )
    job.wait()
    found = written(release, "out")
    assert {name: found.get(name, Counter()) for name in expected(release)} == expected(release)


@pytest.mark.parametrize("workers", [1, 3])
def test_a_named_snapshot_continues_with_other_parallelism(release, workers):
    before = written(release, "out")
    job = jf.LocalCluster(workers=workers).submit(
        build(str(release / "second"), ROWS, unbounded=False),
        name="from the named snapshot",
        snapshot_store=jf.snapshots.directory(release / "store"),
        initial_snapshot=NAMED,
        guarantee=jf.Guarantee.EXACTLY_ONCE,
        progress=False,
    )
    job.wait()
    after = written(release, "second")
    for name, rows in expected(release).items():
        assert before.get(name, Counter()) + after.get(name, Counter()) == rows, name


def test_what_the_store_holds_is_listed(release):
    store = jf.snapshots.directory(release / "store")
    assert [snapshot.name for snapshot in jf.snapshots.named(store)] == [NAMED]
    assert JOB in store.list_jobs()
