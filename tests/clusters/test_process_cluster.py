"""Jobs on processes: the same results, whoever is killed; nothing is left of them, and nobody else gets in."""

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from polars.testing import assert_frame_equal

import jetfast as jf
from jetfast.clusters.member_processes import MemberProcesses
from jetfast.control.endpoint import dial
from jetfast.control.job_status import JobStatus
from jetfast.control.member_links import OnEnd
from jetfast.control.remote_member import MemberTask
from jetfast.control.wire import COORDINATOR, HandshakeError, Hello, Purpose, make_token
from jetfast.errors import JobCancelledError, JobDefinitionError, JobFailedError, MemberLostError, ResourcesError
from tests.clusters.whole_jobs import AGGREGATES, Case, source
from tests.clusters.windows_reference import as_sorted

pytestmark = pytest.mark.services

PROGRAM = Path(__file__).with_name("process_program.py")


def until(condition: Callable[[], object], seconds: float = 60) -> None:
    give_up = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up, condition
        threading.Event().wait(0.005)


def pids(job: jf.Job) -> list[int]:
    return [member["pid"] for member in job.metrics["members"]]


def lives(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def endless() -> jf.Pipeline:
    pipeline = jf.Pipeline("endless")
    pipeline.read(jf.memory({"n": list(range(10))}, partitions=2, unbounded=True), name="rows").collect()
    return pipeline


class RecordingProcesses(MemberProcesses):
    """Keeps what members were told, and how their processes have ended."""

    tasks: list[MemberTask] = []
    ends: list[Exception | None] = []

    def start(self, group: str, description: str, task: MemberTask, on_end: OnEnd) -> threading.Thread:
        def ended(error: Exception | None) -> None:
            self.ends.append(error)
            on_end(error)

        self.tasks.append(task)
        return super().start(group, description, task, ended)


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> type[RecordingProcesses]:
    """Of clusters made from now on."""
    monkeypatch.setattr(RecordingProcesses, "tasks", [])
    monkeypatch.setattr(RecordingProcesses, "ends", [])
    monkeypatch.setattr("jetfast.clusters.processes.MemberProcesses", RecordingProcesses)
    return RecordingProcesses


@pytest.fixture
def tasks(recorded: type[RecordingProcesses]) -> list[MemberTask]:
    """What members of clusters made from now on are told."""
    return recorded.tasks


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    until(lambda: not {thread for thread in threading.enumerate() if "jetfast" in thread.name} - before)


def test_windows_of_two_processes_equal_those_of_this_one() -> None:
    case = Case(seed=3, rows=4000, keys=50)

    def pipeline() -> jf.Pipeline:
        made = jf.Pipeline("windows")
        rows = made.read(source(case, 100), name="rows").with_event_time("time", jf.watermarks.fixed_lag("5s"))
        rows.rejected_rows.collect("rejected")
        rows.group_by("key", "code").window(jf.sliding("8s", "2s")).agg(**AGGREGATES, name="windows").collect("result")
        return made

    job = jf.ProcessCluster(2).submit(pipeline(), progress=False)
    job.wait()
    assert len(set(pids(job)) - {os.getpid()}) == 2
    here = jf.LocalCluster(2, 1).submit(pipeline(), progress=False)
    here.wait()
    result = as_sorted(job.collected("result"))
    assert len(result) > 1000
    assert_frame_equal(result, as_sorted(here.collected("result")), rel_tol=1e-9)
    rejected = [pl.DataFrame(ran.collected("rejected")).sort("row") for ran in (job, here)]
    assert_frame_equal(*rejected)
    assert job.metrics["bytes_received"] > 0
    assert not any(map(lives, pids(job)))


def test_a_member_that_is_killed_fails_a_job_without_a_guarantee() -> None:
    job = jf.ProcessCluster(2).submit(endless(), progress=False)
    until(lambda: job.metrics["rows_written"] >= 10)
    killed, other = pids(job)
    os.kill(killed, signal.SIGKILL)
    with pytest.raises(MemberLostError, match=rf"member 0 \(pid {killed} on .*\) is lost: its process was killed by S"):
        job.wait()
    assert not lives(killed)
    assert not lives(other)


def start_program() -> tuple["subprocess.Popen[str]", list[int]]:
    program = subprocess.Popen(
        [sys.executable, str(PROGRAM)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert program.stdout is not None
    found = [int(pid) for pid in program.stdout.readline().split()]
    assert len(found) == 2, program.communicate()
    assert all(map(lives, found))
    return program, found


def test_no_member_outlives_a_submitter_that_is_killed() -> None:
    program, found = start_program()
    program.kill()
    program.communicate(timeout=60)
    until(lambda: not any(map(lives, found)), seconds=5)


def test_ctrl_c_ends_members_and_leaves_no_thread() -> None:
    program, found = start_program()
    program.send_signal(signal.SIGINT)
    output, errors = program.communicate(timeout=60)
    assert output.split() == ["failed"], errors
    assert "KeyboardInterrupt" in errors
    assert not any(map(lives, found))


def test_a_process_with_a_wrong_token_is_refused_and_the_job_unharmed(
    tasks: list[MemberTask], caplog: pytest.LogCaptureFixture
) -> None:
    job = jf.ProcessCluster(2).submit(endless(), progress=False)
    until(lambda: job.metrics["rows_written"] >= 10)
    for purpose, listener in ((Purpose.CONTROL, COORDINATOR), (Purpose.DATA, 0)):
        with pytest.raises(HandshakeError):
            dial(tasks[0].coordinator, make_token(), Hello(purpose, 0, 1, listener))
    assert "the dialer does not hold the token of this job" in caplog.text
    assert job.status is JobStatus.RUNNING
    job.cancel()
    with pytest.raises(JobCancelledError):
        job.wait()


def test_the_token_stands_neither_in_the_arguments_nor_in_the_environment_of_a_member(tasks: list[MemberTask]) -> None:
    job = jf.ProcessCluster(2).submit(endless(), progress=False)
    until(lambda: job.metrics["rows_written"] >= 10)
    token = bytes(tasks[0].token)
    for pid in pids(job):
        for file in ("cmdline", "environ"):
            shown = Path(f"/proc/{pid}/{file}").read_bytes()
            assert shown
            for form in (token, token.hex().encode(), repr(token).encode()):
                assert form not in shown
    job.cancel()
    with pytest.raises(JobCancelledError):
        job.wait()


def test_what_members_log_and_write_is_logged_here_with_the_member_named(caplog: pytest.LogCaptureFixture) -> None:
    def speaks(batch: pa.RecordBatch) -> pa.RecordBatch:
        import logging
        import sys

        logging.getLogger("of.the.user").warning("has %d rows", batch.num_rows)
        print("says so", file=sys.stderr)
        return batch

    pipeline = jf.Pipeline("speaks")
    rows = pipeline.read(jf.memory({"n": [1, 2]}))
    rows.map_batches(speaks, schema=pa.schema({"n": pa.int64()})).collect()
    jf.ProcessCluster(1).submit(pipeline, progress=False).wait()
    assert ("of.the.user", logging.WARNING, "member 0: has 2 rows") in caplog.record_tuples
    assert ("jetfast.member", logging.WARNING, "member 0: says so") in caplog.record_tuples


def test_a_member_ends_in_order_though_threads_of_the_user_run_on(
    recorded: type[RecordingProcesses], capfd: pytest.CaptureFixture[str]
) -> None:
    def leaves_threads(batch: pa.RecordBatch) -> pa.RecordBatch:
        import atexit
        import threading

        import msgspec

        def decodes_for_ever() -> None:
            while True:
                msgspec.json.decode(b'{"rows": [1, 2, 3]}')

        threading.Thread(target=threading.Event().wait, daemon=False).start()
        threading.Thread(target=decodes_for_ever, daemon=True).start()
        atexit.register(print, "and at the end", end="")
        print("in between ", end="")
        return batch

    pipeline = jf.Pipeline("threads")
    rows = pipeline.read(jf.memory({"n": [1, 2]}))
    rows.map_batches(leaves_threads, schema=pa.schema({"n": pa.int64()})).collect()
    jf.ProcessCluster(1).submit(pipeline, progress=False).wait()
    assert recorded.ends == [None], "nobody had to kill it"
    assert capfd.readouterr().out == "in between and at the end"


def test_where_a_member_has_crashed_is_logged_here(caplog: pytest.LogCaptureFixture) -> None:
    def crashes(batch: pa.RecordBatch) -> pa.RecordBatch:
        import signal

        signal.raise_signal(signal.SIGSEGV)  # to this very thread
        return batch

    pipeline = jf.Pipeline("crashes")
    rows = pipeline.read(jf.memory({"n": [1, 2]}))
    rows.map_batches(crashes, schema=pa.schema({"n": pa.int64()})).collect()
    with pytest.raises(MemberLostError, match="its process was killed by SIGSEGV"):
        jf.ProcessCluster(1).submit(pipeline, progress=False).wait()
    assert "member 0: Fatal Python error: Segmentation fault" in caplog.text
    assert "in crashes" in caplog.text


def test_an_error_in_a_function_of_the_user_fails_the_job_with_its_traceback() -> None:
    def breaks(batch: pa.RecordBatch) -> pa.RecordBatch:
        raise ValueError("no good")

    pipeline = jf.Pipeline("breaks")
    rows = pipeline.read(jf.memory({"n": [1, 2]}))
    rows.map_batches(breaks, schema=pa.schema({"n": pa.int64()}), name="breaking").collect()
    with pytest.raises(JobFailedError, match="step 'breaking'.*no good"):
        jf.ProcessCluster(2).submit(pipeline, progress=False).wait()


def test_a_process_that_does_not_start_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(ResourcesError, match="member . did not start: its process ended with status 1"):
        jf.ProcessCluster(2).submit(endless(), progress=False).wait()
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(ResourcesError, match="member . did not start: .*No such file"):
        jf.ProcessCluster(2).submit(endless(), progress=False).wait()


def test_a_store_in_memory_is_refused() -> None:
    with pytest.raises(JobDefinitionError, match=r"cannot share the snapshot store 'memory'.*snapshots\.directory"):
        jf.ProcessCluster(2, snapshot_store=jf.snapshots.memory())
    with pytest.raises(JobDefinitionError, match="cannot share the snapshot store 'memory'"):
        jf.ProcessCluster(2).submit(endless(), snapshot_store=jf.snapshots.memory())
    with pytest.raises(JobDefinitionError, match="needs a place for snapshots"):
        jf.ProcessCluster(2).submit(endless(), guarantee=jf.Guarantee.AT_LEAST_ONCE)
