"""A snapshot store that was put back whole from a backup: only what sinks have written tells, and it is asked."""

import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest

import jetfast as jf
from jetfast.errors import SnapshotDamaged
from jetfast.testing import EMPTY, StoredRows, TransactionalMemory
from tests.connectors.postgres_server import PostgresServer
from tests.connectors.reading import read_all
from tests.simulation.stepped_job import SteppedJob

ROWS = 900


def copying(sink: Any) -> jf.Pipeline:
    table = pa.table({"id": range(ROWS)})
    script = [item for start in range(0, ROWS, 3) for item in (table.slice(start, 3), EMPTY)]
    pipeline = jf.Pipeline("copying")
    pipeline.read(jf.memory(script), name="in").write(sink, name="out")
    return pipeline


def run_and_put_the_store_back(
    sink: Callable[[], Any], visible: Callable[[], list[int]], place: Path, *, later_execution: bool
) -> None:
    """Back up the store, let the job go on, put the backup back: the job is refused and writes nothing."""
    store = jf.snapshots.directory(place / "store")
    job = SteppedJob(copying(sink()), seed=1, store=store, interval="10ms", members=2)
    job.run(lambda: job.runner.snapshots.taken == 2)
    shutil.copytree(place / "store", place / "backup")
    if later_execution:
        job = SteppedJob(copying(sink()), seed=2, store=store, interval="10ms", members=1)
        job.run(lambda: job.runner.snapshots.taken == 2)
    else:
        job.run(lambda: job.runner.snapshots.taken == 4)
    shutil.copytree(place / "store", place / "newest")
    seen = visible()
    assert seen
    shutil.rmtree(place / "store")
    shutil.copytree(place / "backup", place / "store")
    again = SteppedJob(copying(sink()), seed=3, store=jf.snapshots.directory(place / "store"), members=2)
    again.run()
    assert isinstance(again.runner.error, SnapshotDamaged)
    assert "was committed later. The snapshot store was put back from an older copy" in str(again.runner.error)
    assert visible() == seen
    shutil.rmtree(place / "store")
    shutil.copytree(place / "newest", place / "store")
    mended = SteppedJob(copying(sink()), seed=4, store=jf.snapshots.directory(place / "store"), members=3)
    mended.run()
    assert mended.runner.error is None
    assert sorted(visible()) == list(range(ROWS))


@pytest.mark.parametrize("later_execution", [False, True])
def test_files_tell_a_store_that_was_put_back(later_execution: bool, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run_and_put_the_store_back(
        lambda: jf.files(out, "csv"),
        lambda: [row["id"] for row in read_all(jf.files(out))],
        tmp_path,
        later_execution=later_execution,
    )


@pytest.mark.services
@pytest.mark.parametrize("later_execution", [False, True])
@pytest.mark.parametrize("kind", ["prepared", "staged"])
def test_a_database_tells_a_store_that_was_put_back(
    kind: str, later_execution: bool, tmp_path: Path, postgres_server: PostgresServer
) -> None:
    postgres_server.clear()
    with psycopg.connect(postgres_server.conninfo, autocommit=True) as connection:
        connection.execute("create table target (id bigint)")
        run_and_put_the_store_back(
            lambda: jf.postgres(postgres_server.conninfo, "target", transactions=kind),
            lambda: [id for (id,) in connection.execute("select id from target order by id").fetchall()],
            tmp_path,
            later_execution=later_execution,
        )


def test_files_that_were_written_at_least_once_do_not_tell_of_a_later_snapshot(tmp_path: Path) -> None:
    out, store = tmp_path / "out", jf.snapshots.directory(tmp_path / "store")
    job = SteppedJob(copying(jf.files(out, "csv")), seed=1, store=store, interval="10ms")
    job.run(lambda: job.runner.snapshots.taken == 2)
    weaker = SteppedJob(
        copying(jf.files(out, "csv", file_size="1B")),
        seed=2,
        store=store,
        interval="10s",
        guarantee=jf.Guarantee.AT_LEAST_ONCE,
    )
    files = len(list(out.iterdir()))
    weaker.run(lambda: len(list(out.iterdir())) > files + 3)  # visible, though nothing was decided
    assert weaker.runner.snapshots.taken == 0
    again = SteppedJob(copying(jf.files(out, "csv")), seed=3, store=store)
    again.run()
    assert again.runner.error is None
    assert {row["id"] for row in read_all(jf.files(out))} == set(range(ROWS))


@pytest.mark.parametrize(
    ("sink", "tells"),
    [
        (TransactionalMemory.named().sink(), True),
        (TransactionalMemory.pooled(3).sink(), False),
        (StoredRows("id").sink(), False),
    ],
)
def test_a_job_none_of_whose_sinks_can_tell_says_so_at_submission(
    sink: Any, tells: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "jetfast"):
        SteppedJob(copying(sink), seed=1, store=jf.snapshots.directory(tmp_path))
    assert ("never put the store back from a backup" in caplog.text) is not tells
