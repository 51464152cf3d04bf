"""Jobs that other processes ask over their sockets: operations, refusals, strangers, garbage; nothing is left."""

import logging
import os
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import jetfast as jf
from jetfast.control import job_server
from jetfast.control.job_client import ask_job, find_job, find_jobs
from jetfast.control.job_protocol import (
    REQUEST_BYTES_MAX,
    Cancel,
    ExportSnapshot,
    Restart,
    Resume,
    Status,
    Suspend,
    decode_request,
    encode_line,
)
from jetfast.control.job_server import JobServer
from jetfast.control.job_sockets import connect_to_job, is_trusted, job_directories, job_sockets, socket_name
from jetfast.errors import (
    JobCancelledError,
    JobDefinitionError,
    JobNotFound,
    JobUnreachable,
    OperationRefused,
    ProtocolError,
)

PATIENCE_S = 60.0


@pytest.fixture(autouse=True)
def runtime(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of this test's own, in which its jobs are found."""
    directory = tmp_path_factory.mktemp("run")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(directory))
    monkeypatch.setenv("HOME", str(directory / "home"))
    return directory / "jetfast"


def endless(name: str = "endless", **options: object) -> jf.Job:
    pipeline = jf.Pipeline(name)
    rows = jf.memory({"n": list(range(10))}, partitions=2, unbounded=True)
    pipeline.read(rows, name="rows").collect("shown")
    options = {"guarantee": jf.Guarantee.AT_LEAST_ONCE, "progress": False, **options}
    return jf.LocalCluster(workers=1).submit(pipeline, **options)  # type: ignore[arg-type]


@pytest.fixture
def job() -> Iterator[jf.Job]:
    with endless() as running:
        until(lambda: running.status is jf.JobStatus.RUNNING)
        yield running


def until(condition: Callable[[], object]) -> None:
    moment = threading.Event()
    for _ in range(int(PATIENCE_S / 0.005)):
        if condition():
            return
        moment.wait(0.005)
    raise AssertionError(condition)


def test_a_running_job_says_where_it_stands(job: jf.Job) -> None:
    until(lambda: job.metrics["rows_read"] == 10)
    path, report = find_job("endless")
    assert (report.job, report.pid, report.cluster, report.status) == ("endless", os.getpid(), "local", "running")
    assert (report.guarantee, report.store, report.snapshot_interval_s) == ("AT_LEAST_ONCE", "memory", 10.0)
    assert (report.members_wanted, report.workers, report.rows_read, report.restarts) == (1, 1, 10, 0)
    assert [member.pid for member in report.members] == [os.getpid()]
    assert report.execution_id == job.runner.coordinator.execution_id
    assert report.steps.keys() == {"rows", "shown"}
    assert (report.error, report.suspension_cause, report.held_back_by) == (None, None, None)
    assert [found for found, _ in find_jobs()[0]] == [path]


def test_a_running_job_obeys_as_it_obeys_its_handle(job: jf.Job) -> None:
    path, _ = find_job("endless")
    assert ask_job(path, ExportSnapshot("now"), PATIENCE_S).status == "running"
    report = ask_job(path, Restart(), PATIENCE_S)
    assert report.last_snapshot is not None
    assert report.last_snapshot.kind == "terminal"
    until(lambda: job.status is jf.JobStatus.RUNNING)
    report = ask_job(path, Suspend(), PATIENCE_S)
    assert (report.status, report.waits_for) == ("suspended", ("waits for somebody to resume it",))
    assert job.status is jf.JobStatus.SUSPENDED
    ask_job(path, Resume(), PATIENCE_S)
    until(lambda: job.status is jf.JobStatus.RUNNING)
    report = ask_job(path, ExportSnapshot("last", cancel=True), PATIENCE_S)
    assert (report.status, report.error) == ("failed", "JobCancelledError: the job was cancelled")
    with pytest.raises(JobCancelledError):
        job.wait()


def test_what_a_job_refuses_is_refused_over_its_socket_with_the_same_error(job: jf.Job) -> None:
    path, _ = find_job("endless")
    with pytest.raises(OperationRefused, match="cannot be resumed: it is running"):
        ask_job(path, Resume(), PATIENCE_S)
    assert job.status is jf.JobStatus.RUNNING


def test_who_cancels_is_answered_when_the_job_has_ended_and_nothing_of_it_is_left(job: jf.Job, runtime: Path) -> None:
    path, _ = find_job("endless")
    assert [stat.S_IMODE(os.lstat(found).st_mode) for found in (runtime, path)] == [0o700, 0o600]
    assert ask_job(path, Cancel(), PATIENCE_S).error == "JobCancelledError: the job was cancelled"
    with pytest.raises(JobCancelledError):
        job.wait()
    assert list(runtime.iterdir()) == []
    until(lambda: not [thread.name for thread in threading.enumerate() if "endless" in thread.name])
    with pytest.raises(JobNotFound, match="no job named 'endless' runs here; running: none"):
        find_job("endless")


def test_jobs_of_one_name_are_told_apart_by_their_ids(job: jf.Job) -> None:
    with endless() as second:
        with pytest.raises(OperationRefused, match="2 jobs named 'endless' run here, say which by its id"):
            find_job("endless")
        ids = sorted(report.id for _, report in find_jobs("endless")[0])
        assert ids == sorted([job.id, second.id])
        assert find_job(second.id[:12])[1].id == second.id
    with pytest.raises(JobNotFound, match="running: 'endless'"):
        find_job("another")


@pytest.mark.parametrize("name", ["é" * 200, "a/../b", "", "x" * 5000], ids=["long", "path", "empty", "longer"])
def test_a_job_of_any_name_gets_a_short_file_name(name: str) -> None:
    assert len(os.fsencode(socket_name(name, "0" * 32))) < 60
    assert "/" not in socket_name(name, "0" * 32)


def test_a_directory_whose_path_is_too_long_for_a_socket_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runtime: Path
) -> None:
    deep = tmp_path / ("d" * 120)
    deep.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(deep))
    with endless("deep"):
        path, report = find_job("deep")
        assert (path.parent, report.job) == (deep / "jetfast", "deep")


def test_without_a_runtime_directory_jobs_are_found_in_the_home_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    for useless in ("", "relative", str(tmp_path / "file")):
        monkeypatch.setenv("XDG_RUNTIME_DIR", useless)
        monkeypatch.setenv("HOME", str(tmp_path))
        with endless("at home"):
            assert find_job("at home")[0].parent == tmp_path / ".jetfast" / "run"


def test_a_job_that_cannot_make_a_socket_runs_all_the_same_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "jetfast")
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "file"))
    monkeypatch.setenv("HOME", str(tmp_path / "file"))
    with endless("hidden") as hidden:
        until(lambda: hidden.status is jf.JobStatus.RUNNING)
        assert find_jobs() == ([], [])
    assert "job hidden: the command line cannot reach it" in caplog.text


def test_sockets_of_processes_that_have_died_are_removed(job: jf.Job, runtime: Path) -> None:
    dead = runtime / socket_name("endless", "0" * 32)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(dead))
        listening.listen()
    assert dead in job_sockets("endless")
    assert find_job("endless")[1].id == job.id
    assert not dead.exists()


def test_a_directory_that_others_may_enter_is_not_looked_at(job: jf.Job, runtime: Path) -> None:
    assert len(job_sockets()) == 1
    runtime.chmod(0o755)
    assert job_sockets() == []
    link = runtime.parent / "elsewhere"
    runtime.rename(link)
    runtime.symlink_to(link)
    link.chmod(0o700)
    assert job_sockets() == []
    assert runtime in job_directories()


def test_a_process_that_does_not_answer_is_told_of(runtime: Path) -> None:
    runtime.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(runtime / socket_name("stopped", "0" * 32)))
        listening.listen()
        with pytest.raises(JobUnreachable, match=f"process {os.getpid()}, .* has not answered within"):
            find_job("stopped", timeout_s=0.01)
        jobs, silent = find_jobs(timeout_s=0.01)
        assert (jobs, len(silent)) == ([], 1)


def test_a_process_of_another_user_is_not_answered(
    job: jf.Job, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stranger = os.geteuid() + 1
    assert not is_trusted(stranger)
    monkeypatch.setattr(job_server, "peer_of", lambda connected: (7, stranger))
    (path,) = job_sockets()
    with pytest.raises(JobNotFound, match="has ended, or hung up, before it answered"):
        ask_job(path, Cancel(), PATIENCE_S)
    assert f"refused process 7 of user {stranger}" in caplog.text
    assert job.status is jf.JobStatus.RUNNING


def said_to(path: Path, data: bytes) -> bytes:
    connected = connect_to_job(path, PATIENCE_S)
    assert connected is not None
    with connected:
        answer = b""
        try:
            connected.sendall(data)
            connected.shutdown(socket.SHUT_WR)
            while part := connected.recv(65536):
                answer += part
        except OSError:  # it was not read to its end
            return answer
        return answer


REQUESTS = [Status(), Cancel(), Suspend(), Resume(), Restart(), ExportSnapshot("x")]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.one_of(
        st.binary(max_size=200).map(lambda line: line.replace(b"\n", b"") + b"\n"),
        st.tuples(st.sampled_from(REQUESTS), st.integers(1, 40)).map(lambda cut: encode_line(cut[0])[: -cut[1]]),
        st.sampled_from(
            [
                b'{"do": "cancel", "protocol": 2}\n',
                b'{"do": "cancel", "protocol": "1"}\n',
                b'{"do": "exec", "code": "1"}\n',
                b'{"do": "cancel", "and": "more"}\n',
                b'{"do": "export_snapshot"}\n',
                b"[" * 4000 + b"\n",
                b"x" * (REQUEST_BYTES_MAX + 1),
                b"x" * 300_000,
            ]
        ),
    )
)
def test_what_is_no_request_is_refused_and_harms_nothing(job: jf.Job, data: bytes) -> None:
    (path,) = job_sockets()
    answer = said_to(path, data)
    assert b'"is":"done"' not in answer
    assert ask_job(path, Status(), PATIENCE_S).status == "running"


def test_what_is_refused_is_logged_with_the_process_that_asked(job: jf.Job, caplog: pytest.LogCaptureFixture) -> None:
    (path,) = job_sockets()
    assert b'"kind":"ProtocolError"' in said_to(path, b"cancel!\n")
    assert f"job endless: refused a request of process {os.getpid()}: this is no request to a job" in caplog.text
    assert b"version 2 of the protocol is spoken there, 1 here" in said_to(path, b'{"do": "status", "protocol": 2}\n')


def test_who_says_nothing_is_let_go_in_time(job: jf.Job) -> None:
    server = JobServer(job, request_timeout_s=0.01)
    server.start()
    assert server.path is not None
    connected = connect_to_job(server.path, PATIENCE_S)
    assert connected is not None
    with connected:
        assert b"no whole line has come" in connected.recv(65536)
    server.close()
    assert not server.path.exists()


def test_many_who_say_nothing_do_not_keep_a_job_from_its_end(job: jf.Job) -> None:
    (path,) = job_sockets()
    silent = [connect_to_job(path, PATIENCE_S) for _ in range(job_server.REQUESTS_MAX + 8)]
    job.cancel()
    with pytest.raises(JobCancelledError):
        job.wait()
    for connected in silent:
        assert connected is not None
        connected.close()


def test_a_request_that_cannot_be_read_says_why() -> None:
    assert decode_request(encode_line(ExportSnapshot("x", cancel=True))) == ExportSnapshot("x", cancel=True)
    with pytest.raises(ProtocolError, match="this is no request to a job"):
        decode_request(b'{"do": "status", "code": "import os"}')


def test_a_name_that_runs_already_with_the_same_store_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jetfast.clusters.running_jobs.ANSWER_TIMEOUT_S", PATIENCE_S)
    memory = jf.snapshots.memory()
    with endless(snapshot_store=memory):
        with pytest.raises(JobDefinitionError, match="a job named 'endless' runs already in this process, with its"):
            endless(snapshot_store=memory)
        with endless(snapshot_store=jf.snapshots.memory()), endless(guarantee=jf.Guarantee.NONE):
            pass
    with endless(snapshot_store=memory):
        pass
    with endless(snapshot_store=jf.snapshots.directory(tmp_path)) as first:
        with pytest.raises(JobDefinitionError, match=f"runs already in process {os.getpid()}, with its .* {tmp_path}"):
            endless(snapshot_store=jf.snapshots.directory(tmp_path))
        until(lambda: first.status is jf.JobStatus.RUNNING)
        with endless("another", snapshot_store=jf.snapshots.directory(tmp_path)):
            pass


def test_a_job_whose_process_does_not_answer_may_be_taken_over(
    tmp_path: Path, runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jetfast.clusters.running_jobs.ANSWER_TIMEOUT_S", 0.01)
    runtime.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(runtime / socket_name("endless", "0" * 32)))
        listening.listen()
        with endless(snapshot_store=jf.snapshots.directory(tmp_path)) as job:
            until(lambda: job.status is jf.JobStatus.RUNNING)
