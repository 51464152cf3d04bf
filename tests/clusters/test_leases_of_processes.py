"""Members and coordinators that are frozen, and wake up when others are in their place: no row is lost or doubled."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import jetfast as jf
from jetfast.engine.snapshot_store import SnapshotArea
from tests.clusters.copied_rows import LEASE, ROWS, Copied, copy_on_processes
from tests.connectors.postgres_server import PostgresServer

pytestmark = pytest.mark.services

PROGRAM = Path(__file__).with_name("leased_program.py")
ALL_ROWS = list(range(ROWS))


@pytest.fixture(params=["files", "postgres"])
def copied(request: pytest.FixtureRequest, tmp_path: Path) -> Copied:
    if request.param == "files":
        return Copied(str(tmp_path))
    server: PostgresServer = request.getfixturevalue("postgres_server")
    into_table = Copied(str(tmp_path), server.conninfo)
    into_table.execute("drop table if exists copied; create table copied (row bigint)")
    return into_table


def until(condition: Callable[[], object], seconds: float = 60) -> None:
    give_up = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up, condition
        threading.Event().wait(0.005)


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def runs(job: jf.Job) -> bool:
    return job.status is jf.JobStatus.RUNNING and job.metrics["snapshots_taken"] > 0


@contextmanager
def program(copied: Copied) -> Iterator[tuple["subprocess.Popen[str]", list[int]]]:
    """Another process that coordinates the job, and its members when snapshots are taken."""
    command = [sys.executable, str(PROGRAM), copied.folder, copied.conninfo]
    # Without a place where jobs of this host are found it is as if it were on another host, and not refused.
    elsewhere = {**os.environ, "HOME": copied.folder, "XDG_RUNTIME_DIR": ""}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=elsewhere) as started:
        assert started.stdout is not None
        members = [int(pid) for pid in started.stdout.readline().split()]
        try:
            assert len(members) == 2, started.communicate()
            yield started, members
        finally:
            for pid in (started.pid, *members):
                if lives(pid):
                    os.kill(pid, signal.SIGKILL)


def test_a_member_that_is_frozen_is_killed_within_a_lease_and_the_job_begins_again(
    copied: Copied, caplog: pytest.LogCaptureFixture
) -> None:
    job = copy_on_processes(copied, LEASE)
    until(lambda: runs(job))
    frozen = job.metrics["members"][1]["pid"]
    os.kill(frozen, signal.SIGSTOP)
    until(lambda: not lives(frozen))
    job.wait()
    assert f"(pid {frozen} on " in caplog.text
    assert "is lost: nothing was heard from it for 3 s" in caplog.text
    assert job.metrics["restarts"] >= 1
    assert copied.rows == ALL_ROWS


def test_a_member_that_wakes_up_behind_its_successors_can_do_no_harm_and_ends(copied: Copied) -> None:
    with program(copied) as (coordinator, members):
        zombie, other = members
        # Not killed: a stopped process that loses its parent gets SIGHUP from the kernel, and would be no zombie.
        coordinator.send_signal(signal.SIGSTOP)
        os.kill(zombie, signal.SIGSTOP)
        frozen_s = time.monotonic()
        old = find(copied)
        job = copy_on_processes(copied, LEASE)
        until(lambda: runs(job))
        assert time.monotonic() - frozen_s >= 3.0, "nobody can be certain that it does nothing before"
        assert lives(zombie)
        assert not lives(other)
        os.kill(zombie, signal.SIGCONT)
        until(lambda: not lives(zombie))
        job.wait()
        assert copied.rows == ALL_ROWS
        new = find(copied)
        assert new.execution_id > old.execution_id
        assert copied.store.list_areas("copy") == [new]


def test_members_of_a_frozen_coordinator_end_with_their_lease_and_it_finds_out_when_it_wakes_up(tmp_path: Path) -> None:
    copied = Copied(str(tmp_path))
    with program(copied) as (coordinator, members):
        coordinator.send_signal(signal.SIGSTOP)
        job = copy_on_processes(copied, LEASE)
        until(lambda: not any(map(lives, members)))
        until(lambda: runs(job))
        coordinator.send_signal(signal.SIGCONT)
        said, _ = coordinator.communicate(timeout=60)
        assert said.startswith("RecordConflict job 'copy' has been taken over by execution ")
        job.wait()
    assert copied.rows == ALL_ROWS


def test_of_two_coordinators_the_older_one_finds_out_and_its_members_end_before_others_begin(
    tmp_path: Path,
) -> None:
    copied = Copied(str(tmp_path))
    with program(copied) as (coordinator, members):
        job = copy_on_processes(copied, LEASE)
        until(lambda: runs(job))
        assert not any(map(lives, members))
        said, _ = coordinator.communicate(timeout=60)
        assert said.startswith("RecordConflict ")
        assert "another coordinator" in said
        job.wait()
    assert copied.rows == ALL_ROWS


def test_a_job_whose_coordinator_and_members_are_dead_for_certain_goes_on_at_once(tmp_path: Path) -> None:
    copied = Copied(str(tmp_path))
    with program(copied) as (coordinator, members):
        coordinator.kill()
        coordinator.wait()
        until(lambda: not any(map(lives, members)))
        job = copy_on_processes(copied, "1h")
        until(lambda: runs(job))  # sooner than in an hour
        job.wait()
    assert copied.rows == ALL_ROWS


def find(copied: Copied) -> SnapshotArea:
    """The last decided snapshot."""
    found = copied.store.read_record("copy")
    assert found is not None
    assert found.record.snapshot is not None
    area: SnapshotArea = found.record.snapshot
    return area
