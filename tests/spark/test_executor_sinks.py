"""Streaming sinks write exactly once while attempts fail, and workers, executors and drivers are killed."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jetfast.spark import register
from tests.connectors.postgres_server import PostgresServer
from tests.connectors.s3_server import CREDENTIALS, S3Server

pytestmark = [pytest.mark.spark, pytest.mark.services, pytest.mark.timeout(900)]

ROWS_OF_FILE = 50
FILES = 6
EVERY = list(range(FILES * ROWS_OF_FILE))
PATIENCE_S = 400.0


@pytest.fixture(scope="module")
def session(make_spark_session: Any) -> Any:
    import pyspark

    os.environ.setdefault("SPARK_HOME", str(Path(pyspark.__file__).parent))  # local-cluster starts executors from it
    return make_spark_session("local-cluster[2,2,1024]")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Files that a stream takes two at a time: three batches."""
    directory = tmp_path / "source"
    directory.mkdir()
    for number in range(FILES):
        rows = pa.table({"id": range(number * ROWS_OF_FILE, (number + 1) * ROWS_OF_FILE)})
        pq.write_table(rows, directory / f"{number}.parquet")
        os.utime(directory / f"{number}.parquet", (1_000_000_000 + number,) * 2)  # a stream takes the oldest first
    return directory


@pytest.fixture
def table(postgres_server: PostgresServer) -> PostgresServer:
    postgres_server.clear()
    with psycopg.connect(postgres_server.conninfo, autocommit=True) as connection:
        connection.execute("create table rows (id bigint)")
    return postgres_server


def ids_in_files(directory: Path) -> list[int]:
    """The ids in the files that can be seen; there are no others but the records of the query."""
    assert {path.name for path in directory.iterdir() if not path.name.startswith("part-")} <= {"_jetfast"}
    return sorted(number for path in directory.glob("part-*") for number in pq.read_table(path)["id"].to_pylist())


def ids_in_table(server: PostgresServer) -> list[int]:
    with psycopg.connect(server.conninfo, autocommit=True) as connection:
        assert connection.execute("select gid from pg_prepared_xacts").fetchall() == []
        return sorted(number for (number,) in connection.execute("select id from rows"))


def until(what: Callable[[], Any]) -> None:
    """Wait for what other processes do."""
    give_up = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < give_up
        threading.Event().wait(0.05)  # leave the cores to them


def test_attempts_workers_and_executors_that_die_leave_nothing_and_lose_nothing(
    session: Any, source: Path, table: PostgresServer, tmp_path: Path
) -> None:
    from tests.spark.striking_sinks import STRIKES, StrickenFiles, StrickenPostgres

    session.dataSource.register(StrickenFiles)
    session.dataSource.register(StrickenPostgres)
    rows = session.readStream.schema("id long").option("maxFilesPerTrigger", "2").parquet(str(source))
    queries = []
    for sink, options in (
        ("files", {"path": str(tmp_path / "out")}),
        ("postgres", {"conninfo": table.conninfo, "table": "rows"}),
    ):
        stream = rows.writeStream.format(f"jetfast.{sink}").options(**options).option(STRIKES, "strike_attempts")
        stream = stream.option("checkpointLocation", str(tmp_path / sink)).trigger(availableNow=True)
        queries.append(stream.start())
    for query in queries:
        query.awaitTermination()
    assert ids_in_files(tmp_path / "out") == EVERY
    assert ids_in_table(table) == EVERY


def test_a_stream_writes_exactly_once_into_a_bucket(session: Any, source: Path, tmp_path: Path) -> None:
    from tests.spark.striking_sinks import STRIKES, StrickenFiles

    session.dataSource.register(StrickenFiles)
    with S3Server() as server:

        def start() -> None:
            """Three files a batch: the first attempt fails in the first one, its worker dies in the second."""
            rows = session.readStream.schema("id long").option("maxFilesPerTrigger", "3").parquet(str(source))
            stream = rows.writeStream.format("jetfast.files").option("path", "s3://bucket/out")
            stream = stream.options(endpoint=server.endpoint, **CREDENTIALS).option(STRIKES, "strike_attempts")
            stream = stream.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
            stream.start().awaitTermination()

        start()
        for name in ("1", ".1.crc"):  # as if the driver had died before it noted the last batch
            (tmp_path / "checkpoint" / "commits" / name).unlink()
        start()
        parts = [name for name in server.names("out") if not name.startswith("_jetfast/")]
        assert all(name.startswith("part-") for name in parts)
        tables = [pq.read_table(f"bucket/out/{part}", filesystem=server.filesystem) for part in parts]
        assert sorted(pa.concat_tables(tables)["id"].to_pylist()) == EVERY


def test_a_stream_that_is_started_again_goes_on(session: Any, source: Path, tmp_path: Path) -> None:
    register(session)
    rows = session.readStream.schema("id long").parquet(str(source))
    stream = rows.writeStream.format("jetfast.files").option("checkpointLocation", str(tmp_path / "checkpoint"))
    stream = stream.option("path", str(tmp_path / "out")).trigger(availableNow=True)
    stream.start().awaitTermination()
    assert ids_in_files(tmp_path / "out") == EVERY
    pq.write_table(pa.table({"id": [len(EVERY)]}), source / "more.parquet")
    stream.start().awaitTermination()
    assert ids_in_files(tmp_path / "out") == [*EVERY, len(EVERY)]


def test_a_driver_that_is_killed_loses_nothing_and_doubles_nothing(
    source: Path, table: PostgresServer, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {
        "source": str(source),
        "out": str(tmp_path / "out"),
        "checkpoints": str(tmp_path / "checkpoints"),
        "conninfo": table.conninfo,
        "spark": {
            "spark.ui.enabled": "false",
            "spark.local.dir": str(tmp_path),
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
        },
    }

    def start(strikes: dict[str, str] | None) -> subprocess.Popen[bytes]:
        arguments = json.dumps({**settings, "strikes": strikes})
        command = [sys.executable, "-m", "tests.spark.driver_of_streams", arguments]
        root = Path(__file__).parents[2]
        return subprocess.Popen(command, cwd=root, start_new_session=True)

    told = {sink: tmp_path / f"{sink} has stopped" for sink in ("files", "postgres")}
    points = {"files": "before_validation_record", "postgres": "between_two_commits"}
    driver = start({sink: f"stop_at:{points[sink]},0,{told[sink]}" for sink in points})
    try:
        until(lambda: all(file.exists() for file in told.values()) or driver.poll() is not None)
        assert driver.poll() is None
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
    driver = start(None)
    try:
        assert driver.wait(PATIENCE_S) == 0
    finally:
        if driver.poll() is None:
            os.killpg(driver.pid, signal.SIGKILL)
    assert ids_in_files(tmp_path / "out") == EVERY
    assert ids_in_table(table) == EVERY
