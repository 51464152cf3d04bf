"""Signals and outages, on real processes: what ends a command, what it leaves in the store, and with which status."""

import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

import jetfast as jf
from jetfast.cli import exit_status
from tests.cli.command_line import CommandLine
from tests.cli.copying import COPYING
from tests.cli.programs import PATIENCE_S, running, until
from tests.connectors.postgres_server import PostgresServer

pytestmark = [pytest.mark.services, pytest.mark.timeout(900), pytest.mark.usefixtures("runtime")]

Start = Callable[..., subprocess.Popen[str]]
ROWS = 3_000
BLOCKED = """
import threading
import pyarrow as pa
import jetfast as jf

def number(rows, random):
    return pa.record_batch({"row": rows})

def block(batch):
    print("blocks", flush=True)
    threading.Event().wait()

p = jf.Pipeline("copy")
rows = p.read(jf.generator(number, rows=10), name="numbers")
rows.map_batches(block, schema=rows.schema, name="block").collect()
"""
STORED = ["copying.py", "--store", "snapshots", "--snapshot-interval", "100ms", "--workers", "1"]


@pytest.fixture
def copying(tmp_path: Path) -> None:
    (tmp_path / "copying.py").write_text(COPYING.replace("ROWS", str(ROWS)))


@pytest.fixture
def blocked(tmp_path: Path) -> None:
    """A job that nothing but the end of its process ends."""
    (tmp_path / "copying.py").write_text(BLOCKED)


def end(program: subprocess.Popen[str]) -> tuple[int, str]:
    """The status of a program that ends, and what it said."""
    _, errors = program.communicate(timeout=PATIENCE_S)
    return program.returncode, errors


def record(folder: Path) -> Any:
    known = jf.snapshots.directory(folder / "snapshots").read_record("copy")
    assert known is not None
    return known.record


def copied(folder: Path) -> list[int]:
    return sorted(ds.dataset(folder / "out", format="parquet").to_table()["row"].to_pylist())


@pytest.mark.parametrize("how", ["alone", "supervised", "processes"])
def test_sigterm_suspends_the_job_and_the_next_run_continues_it(
    tmp_path: Path,
    copying: None,
    started: Start,
    how: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = {"alone": [], "supervised": ["--supervise"], "processes": ["--cluster", "processes"]}[how]
    program = started("-m", "jetfast", "run", *STORED, *options, RATE="300")
    until(running, program)
    program.send_signal(signal.SIGTERM)
    status, errors = end(program)
    assert (status, "job copy suspended" in errors) == (0, True), errors
    assert "Traceback" not in errors
    left = record(tmp_path)
    assert (left.suspended, left.settled, left.completed, left.snapshot is None) == (True, True, False, False)
    monkeypatch.chdir(tmp_path)
    jobs = CommandLine(monkeypatch, capsys)("jobs", "--store", "snapshots", "--json").json
    assert [job["suspended"] for job in jobs["stored"]] == [True]
    before = copied(tmp_path)
    status, errors = end(started("-m", "jetfast", "run", *STORED))
    assert status == 0, errors
    assert not record(tmp_path).suspended
    assert copied(tmp_path) == list(range(ROWS))
    assert set(before) < set(range(ROWS)), "it was suspended on its way"


def test_a_suspended_job_says_so_to_programs(tmp_path: Path, copying: None, started: Start) -> None:
    program = started("-m", "jetfast", "run", *STORED, "--json", RATE="300")
    until(running, program)
    program.send_signal(signal.SIGTERM)
    out, errors = program.communicate(timeout=PATIENCE_S)
    assert program.returncode == 0, errors
    assert '"status":"suspended"' in out
    assert '"error":null' in out


def test_sigterm_cancels_a_job_without_snapshots(copying: None, started: Start) -> None:
    program = started("-m", "jetfast", "run", "copying.py", RATE="100")
    until(running, program)
    program.send_signal(signal.SIGTERM)
    status, errors = end(program)
    assert status == exit_status.STOPPED == 128 + signal.SIGTERM, errors


@pytest.mark.parametrize("supervised", [False, True])
def test_a_second_sigterm_ends_the_process_as_a_crash_does(
    tmp_path: Path, blocked: None, started: Start, supervised: bool
) -> None:
    program = started("-m", "jetfast", "run", *STORED, *(["--supervise"] if supervised else []))
    assert program.stdout is not None
    assert program.stderr is not None
    assert program.stdout.readline() == "blocks\n"
    program.send_signal(signal.SIGTERM)
    while "is being suspended" not in program.stderr.readline():
        assert program.poll() is None
    program.send_signal(signal.SIGTERM)
    status, errors = end(program)
    assert status == exit_status.STOPPED, errors
    assert not record(tmp_path).suspended


def test_a_job_that_is_not_suspended_in_time_ends_as_in_a_crash(blocked: None, started: Start) -> None:
    program = started("-m", "jetfast", "run", *STORED, "--stop-timeout", "100ms")
    assert program.stdout is not None
    assert program.stdout.readline() == "blocks\n"
    program.send_signal(signal.SIGTERM)
    status, errors = end(program)
    assert status == exit_status.STOPPED
    assert "could not be suspended within 0.1 s" in errors


@pytest.mark.parametrize("supervised", [False, True])
def test_two_interrupts_end_a_command_without_a_traceback(blocked: None, started: Start, supervised: bool) -> None:
    program = started("-m", "jetfast", "run", *STORED, *(["--supervise"] if supervised else []))
    assert program.stdout is not None
    assert program.stderr is not None
    assert program.stdout.readline() == "blocks\n"
    program.send_signal(signal.SIGINT)
    while "cancelled by Ctrl-C" not in program.stderr.readline():
        assert program.poll() is None
    program.send_signal(signal.SIGINT)
    status, errors = end(program)
    assert (status, errors) == (exit_status.INTERRUPTED, "")


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """A server that the test stops and starts."""
    with PostgresServer() as server:
        yield server
        if not (server.folder / "data" / "postmaster.pid").exists():
            server.start()  # it is stopped once more


def test_a_system_that_is_away_at_submission_is_waited_for_by_a_supervised_command(
    tmp_path: Path, started: Start, server: PostgresServer
) -> None:
    import psycopg

    with psycopg.connect(server.conninfo, autocommit=True) as connection:
        connection.execute("create table numbers (row bigint)")
    server.stop()
    (tmp_path / "copying.py").write_text(
        COPYING.replace("ROWS", "10").replace(
            'jf.files("out", format="parquet")', f"jf.postgres({server.conninfo!r}, 'numbers')"
        )
    )
    status, errors = end(started("-m", "jetfast", "run", *STORED))
    assert status == exit_status.UNREACHABLE, errors
    assert "cannot be reached" in errors
    program = started("-m", "jetfast", "run", *STORED, "--supervise")
    assert program.stderr is not None
    while "a system is away; it is started again" not in program.stderr.readline():
        assert program.poll() is None
    server.start()
    status, errors = end(program)
    assert status == 0, errors
    with psycopg.connect(server.conninfo) as connection:
        rows = connection.execute("select row from numbers order by row").fetchall()
    assert rows == [(row,) for row in range(10)]


def test_a_server_that_refuses_the_user_is_not_away(tmp_path: Path, started: Start, server: PostgresServer) -> None:
    conninfo = server.conninfo.replace("dbname=postgres", "dbname=absent")
    (tmp_path / "copying.py").write_text(
        COPYING.replace("ROWS", "10").replace(
            'jf.files("out", format="parquet")', f"jf.postgres({conninfo!r}, 'numbers')"
        )
    )
    status, errors = end(started("-m", "jetfast", "run", *STORED))
    assert (status, 'database "absent" does not exist' in errors) == (exit_status.WRONG, True), errors


@pytest.mark.parametrize(
    "line",
    [
        "import socket; socket.create_connection(('127.0.0.1', 1))",
        "jf.Pipeline('copy').read(jf.files('bucket/x.parquet', filesystem=s3)).collect()",
        "p.read(jf.generator(number, rows=1), name='n').write(jf.files('bucket/out', format='csv', filesystem=s3))",
    ],
)
def test_each_kind_of_system_that_is_away_has_the_same_status(tmp_path: Path, started: Start, line: str) -> None:
    s3 = "s3 = fs.S3FileSystem(access_key='k', secret_key='s', endpoint_override='127.0.0.1:1', scheme='http', "
    s3 += "retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=1))\n"
    text = "from pyarrow import fs\n" + COPYING.replace("ROWS", "10")[: COPYING.index("rate =")] + s3
    (tmp_path / "copying.py").write_text(f"{text}p = jf.Pipeline('copy')\n{line}\n")
    status, errors = end(started("-m", "jetfast", "run", *STORED))
    assert status == exit_status.UNREACHABLE, errors
    assert "Traceback" not in errors
