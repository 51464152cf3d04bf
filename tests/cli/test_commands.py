"""What commands do to jobs of this process and to stores, what they print, and with which status they end."""

import logging
import os
import re
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import cloudpickle
import msgspec
import pytest

import jetfast as jf
from jetfast.cli import exit_status
from jetfast.cli.pipeline_file import MODULE
from jetfast.cli.stored_jobs import StoredJob
from jetfast.control.job_report import JobReport
from jetfast.control.job_sockets import socket_name
from jetfast.engine.named_snapshots import NamedSnapshot
from tests.cli.command_line import CommandLine
from tests.clusters.test_job_sockets import endless, until

DOCS = Path(__file__).parents[2] / "docs" / "command_line.md"
FILE = """
import pyarrow as pa
import jetfast as jf

p = jf.Pipeline("letters")
p.read(jf.memory({"letter": list("abc")}), name="letters").write(jf.files(OUT, format="csv"), name="out")

bad = jf.Pipeline("bad")
bad.read(jf.memory({"x": [0]})).with_column("y", 1 / jf.col("x")).collect()

endless = jf.Pipeline("endless")
endless.read(jf.memory({"n": [1, 2]}, unbounded=True), name="rows").collect("shown")

printing = jf.Pipeline("printing")
printing.read(jf.memory({"letter": list("abc")})).write(jf.console())
"""


@pytest.fixture(autouse=True)
def runtime(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """Jobs are found in a directory of this test; what a file does to this process is undone."""
    runtime = tmp_path_factory.mktemp("run")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield runtime / "jetfast"
    module = sys.modules.pop(MODULE, None)
    if module is not None:
        cloudpickle.unregister_pickle_by_value(module)


@pytest.fixture
def jetfast(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(monkeypatch, capsys)


@pytest.fixture
def job(tmp_path: Path) -> Iterator[jf.Job]:
    with endless(snapshot_store=jf.snapshots.directory(tmp_path / "store")) as running:
        until(lambda: running.status is jf.JobStatus.RUNNING and running.metrics["rows_read"] == 10)
        yield running


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "pipelines.py"
    path.write_text(f"OUT = {str(tmp_path / 'out')!r}\n{FILE}")
    return path


def test_running_jobs_are_listed(jetfast: CommandLine, job: jf.Job, tmp_path: Path) -> None:
    ended = jetfast("jobs", "--json", "--store", tmp_path / "store")
    assert ended.status == 0
    (report,), silent, (stored,) = (ended.json[key] for key in ("jobs", "silent", "stored"))
    assert report["job"] == "endless"
    assert silent == []
    assert (stored["job"], stored["completed"], stored["cluster"], stored["workers"]) == ("endless", False, "local", 1)
    heading, line, stored_heading, stored_line = jetfast("jobs", "--store", tmp_path / "store").out.splitlines()
    assert heading.split()[:3] == ["JOB", "ID", "STATUS"]
    assert line.split()[:3] == ["endless", job.id[:12], "running"]
    assert stored_heading.startswith("STORED JOB")
    assert stored_line.split()[:3] == ["endless", "not", "completed"]


def test_the_status_of_a_job_is_printed_for_people_and_for_programs(jetfast: CommandLine, job: jf.Job) -> None:
    report = msgspec.convert(jetfast("status", "endless", "--json").json, JobReport)
    assert (report.job, report.status, report.rows_read, report.pid) == ("endless", "running", 10, os.getpid())
    text = jetfast("status", job.id[:6]).out
    for line in (
        rf"job +endless  \(id {job.id[:12]}, process {os.getpid()} on ",
        r"status +running, ",
        r"cluster +local: 1 of 1 members, 1 worker\(s\) each",
        r"guarantee +AT_LEAST_ONCE",
        r"snapshots +0 taken, 0 failed, every 10s",
        r"rows in +10",
        r"steps +rows: 0 rows in, 10 out",
    ):
        assert re.search(f"^{line}", text, re.MULTILINE), (line, text)


def test_a_job_is_steered(jetfast: CommandLine, job: jf.Job, tmp_path: Path) -> None:
    assert jetfast("suspend", "endless") == (0, "job endless  suspended: 10 rows in, 10 out\n", "")
    assert job.status is jf.JobStatus.SUSPENDED
    assert re.search("^waits for +waits for somebody to resume it$", jetfast("status", "endless").out, re.MULTILINE)
    assert jetfast("resume", "endless", "--json").json["job"] == "endless"
    until(lambda: job.status is jf.JobStatus.RUNNING)
    assert jetfast("restart", "endless", "--json").json["last_snapshot"]["kind"] == "terminal"
    until(lambda: job.status is jf.JobStatus.RUNNING)
    assert jetfast("snapshot", "save", "endless", "daily").status == 0
    assert jetfast("snapshot", "save", "endless", "last", "--cancel", "--json").json["status"] == "failed"
    listed = jetfast("snapshot", "list", "--store", tmp_path / "store", "--json").json["snapshots"]
    daily, last = msgspec.convert(listed, list[NamedSnapshot])
    assert (daily.name, daily.job, daily.problem) == ("daily", "endless", "")
    assert set(daily.steps) == {"rows", "shown"}
    assert daily.exported_at_us > 10**15
    assert last.name == "last"
    heading, *lines = jetfast("snapshot", "list", "--store", tmp_path / "store", "endless").out.splitlines()
    assert heading.split()[:2] == ["SNAPSHOT", "JOB"]
    assert [line.split()[:2] for line in lines] == [["daily", "endless"], ["last", "endless"]]
    assert jetfast("snapshot", "list", "--store", tmp_path / "store", "other", "--json").json == {"snapshots": []}
    assert jetfast("snapshot", "delete", "daily", "--store", tmp_path / "store", "--json").json == {"deleted": "daily"}
    assert [named.name for named in jf.snapshots.named(jf.snapshots.directory(tmp_path / "store"))] == ["last"]


def test_a_job_is_cancelled(jetfast: CommandLine, job: jf.Job) -> None:
    ended = jetfast("cancel", "endless", "--json")
    assert (ended.status, ended.json["error"]) == (0, "JobCancelledError: the job was cancelled")
    assert jetfast("status", "endless").status == exit_status.NOT_FOUND


def test_each_kind_of_error_has_an_exit_status_and_says_what_went_wrong(
    jetfast: CommandLine, job: jf.Job, tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jetfast.clusters.running_jobs.ANSWER_TIMEOUT_S", 60.0)
    (tmp_path / "empty").mkdir()
    cases = [
        (("status", "absent"), exit_status.NOT_FOUND, "no job named 'absent' runs here; running: 'endless'"),
        (("resume", "endless"), exit_status.REFUSED, "job 'endless' cannot be resumed: it is running"),
        (("cancel", "endless", "--timeout", "soon"), exit_status.WRONG, "--timeout 'soon' cannot be read"),
        (("resume", "endless", "--store", tmp_path), exit_status.WRONG, "needs both --store DIR"),
        (("resume", "endless", "--supervise"), exit_status.WRONG, "give both"),
        (
            ("resume", "x", "--store", tmp_path / "no", "--pipeline", f"{file}:p"),
            exit_status.WRONG,
            "there is no directory",
        ),
        (("resume", "letters", "--store", tmp_path / "empty", "--pipeline", file), exit_status.WRONG, "knows no job"),
        (("run", tmp_path / "absent.py"), exit_status.WRONG, "there is no file"),
        (("run", file), exit_status.WRONG, "has 4 pipelines"),
        (("run", file, "--supervise"), exit_status.WRONG, "--supervise needs --store"),
        (("run", f"{file}:endless", "--store", tmp_path / "store"), exit_status.WRONG, "runs already in process"),
        (("run", f"{file}:p", "--memory-limit", "much"), exit_status.WRONG, "memory_limit 'much' cannot be read"),
        (("snapshot", "delete", "x", "--store", tmp_path / "empty"), exit_status.WRONG, "has no snapshot named 'x'"),
        (("snapshot", "list", "--store", tmp_path / "none"), exit_status.WRONG, "there is no directory"),
    ]
    for arguments, status, message in cases:
        ended = jetfast(*arguments)
        assert (ended.status, ended.out) == (status, ""), (arguments, ended)
        assert ended.err.splitlines()[-1].startswith("jetfast: ")
        assert message in ended.err, arguments
        ended = jetfast(*arguments, "--json")
        assert ended.status == status, arguments
        assert message in ended.json["error"]["message"]
    assert jetfast("run", file, "--cluster", "moon").status == exit_status.WRONG
    assert jetfast("fly").status == exit_status.WRONG
    assert jetfast("--version").out == f"jetfast {jf.__version__}\n"
    assert job.status is jf.JobStatus.RUNNING


def test_a_job_that_does_not_answer_is_listed_and_has_a_status_of_its_own(
    jetfast: CommandLine, runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    monkeypatch.setattr("jetfast.control.job_client.find_jobs.__defaults__", (None, 0.01))
    monkeypatch.setattr("jetfast.control.job_client.find_job.__defaults__", (0.01,))
    runtime.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as listening:
        path = runtime / socket_name("stopped", "0" * 32)
        listening.bind(str(path))
        listening.listen()
        ended = jetfast("status", "stopped")
        assert ended.status == exit_status.UNREACHABLE
        assert f"process {os.getpid()}" in ended.err
        (silent,) = jetfast("jobs", "--json").json["silent"]
        assert silent["socket"] == str(path)


def test_a_pipeline_of_a_file_runs_to_its_end_and_a_completed_job_is_refused(
    jetfast: CommandLine, file: Path, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    ended = jetfast("run", f"{file}:p", "--store", store, "--workers", 1, "--json")
    assert ended.status == 0
    report = msgspec.convert(ended.json, JobReport)
    assert (report.job, report.status, report.guarantee, report.rows_written) == (
        "letters",
        "completed",
        "EXACTLY_ONCE",
        3,
    )
    assert report.store == f"directory {store}"
    again = jetfast("run", f"{file}:p", "--store", store)
    assert (again.status, "is completed" in again.err) == (exit_status.WRONG, True)
    (stored,) = msgspec.convert(jetfast("jobs", "--store", store, "--json").json["stored"], list[StoredJob])
    assert (stored.job, stored.completed, stored.guarantee, stored.problem) == ("letters", True, "EXACTLY_ONCE", None)
    ended = jetfast("resume", "letters", "--store", store, "--pipeline", f"{file}:p")
    assert (ended.status, "is completed" in ended.err) == (exit_status.WRONG, True)
    for command in (("run", f"{file}:p"), ("resume", "letters", "--pipeline", f"{file}:p")):
        ended = jetfast(*command, "--store", store, "--unless-completed", "--json")
        assert (ended.status, msgspec.convert(ended.json, StoredJob)) == (0, stored)
        assert jetfast(*command, "--store", store, "--unless-completed").out == "job letters  completed before\n"
    ended = jetfast("run", f"{file}:printing", "--store", store, "--unless-completed", "--json")
    assert ended.json["status"] == "completed"


def test_what_a_pipeline_prints_does_not_mix_with_json(jetfast: CommandLine, file: Path) -> None:
    ended = jetfast("run", f"{file}:printing", "--json")
    assert ended.json["rows_written"] == 3
    assert "a" in ended.err


def test_a_job_that_fails_ends_the_command_with_its_error(jetfast: CommandLine, file: Path) -> None:
    ended = jetfast("run", f"{file}:bad")
    assert (ended.status, ended.out) == (exit_status.FAILED, "")
    assert "jetfast: job bad failed: " in ended.err
    ended = jetfast("run", f"{file}:bad", "--json")
    assert (ended.status, ended.json["error"][:16]) == (exit_status.FAILED, "JobFailedError: ")


def in_background(jetfast: CommandLine, *arguments: object) -> tuple[threading.Thread, list[int]]:
    """Run a command that goes on until its job ends; its status is in the list then."""
    from jetfast.cli.application import app

    statuses: list[int] = []

    def run() -> None:
        try:
            app([str(argument) for argument in arguments], prog_name="jetfast")
        except SystemExit as end:
            statuses.append(end.code if isinstance(end.code, int) else 0)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, statuses


def test_a_job_goes_on_by_its_name_and_starts_from_a_named_snapshot(
    jetfast: CommandLine, file: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "jetfast")
    store = tmp_path / "store"
    at_least_once = ("--guarantee", "at-least-once", "--workers", 1)

    def running(name: str) -> bool:
        jobs = jetfast("jobs", "--json").json["jobs"]
        return any(report["job"] == name and report["status"] == "running" for report in jobs)

    thread, statuses = in_background(
        jetfast, "run", f"{file}:endless", "--store", store, *at_least_once, "--snapshot-interval", "20ms"
    )
    until(lambda: running("endless"))
    assert jetfast("snapshot", "save", "endless", "kept", "--cancel").status == 0
    thread.join()
    assert statuses == [exit_status.CANCELLED]
    thread, statuses = in_background(jetfast, "resume", "endless", "--store", store, "--pipeline", file)
    until(lambda: running("endless"))
    assert "it goes on from snapshot" in caplog.text
    report = jetfast("cancel", "endless", "--json").json
    assert (report["guarantee"], report["snapshot_interval_s"], report["workers"]) == ("AT_LEAST_ONCE", 0.02, 1)
    thread.join()
    arguments = ("--store", store, "--pipeline", f"{file}:endless", "--name", "copy", *at_least_once)
    thread, statuses = in_background(jetfast, "snapshot", "restore", "kept", *arguments)
    until(lambda: running("copy"))
    assert "job copy: starts from snapshot 'kept'" in caplog.text
    jetfast("cancel", "copy")
    thread.join()
    assert statuses == [exit_status.CANCELLED]
    assert jetfast("snapshot", "restore", "none", *arguments).status == exit_status.WRONG


def test_a_command_begins_a_job_anew_unless_the_store_knows_that_it_has_begun_since(
    jetfast: CommandLine, file: Path, tmp_path: Path
) -> None:
    command = ("run", f"{file}:printing", "--store", tmp_path / "store", "--fresh", "--unless-completed", "--json")
    first = jetfast("run", f"{file}:printing", "--store", tmp_path / "store", "--json").json
    before = jetfast(*command, "--begun-since", first["execution_id"] - 1).json
    assert (before["completed"], before["execution_id"]) == (True, first["execution_id"])
    second = jetfast(*command, "--begun-since", first["execution_id"]).json
    assert (second["status"], second["rows_written"]) == ("completed", 3)
    assert second["execution_id"] > first["execution_id"]


def test_supervised_commands_that_begin_a_job_anew_are_told_since_when_it_counts_as_begun(
    jetfast: CommandLine, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = []

    def supervise(command: list[str], *, again: list[str], away_statuses: frozenset[int]) -> int:
        assert away_statuses == {exit_status.UNREACHABLE}
        programs.append((command, again))
        return 6

    monkeypatch.setattr("jetfast.cli.pipeline_commands.supervise_program", supervise)
    monkeypatch.setattr("jetfast.cli.pipeline_commands.new_execution_id", lambda: 77)
    assert jetfast("run", file, "--store", tmp_path, "--fresh", "--supervise", "--json").status == 6
    assert jetfast("run", file, "--store", tmp_path, "--supervise").status == 6
    restored = ("snapshot", "restore", "kept", "--store", tmp_path, "--pipeline", file)
    assert jetfast(*restored, "--supervise").status == 6
    assert jetfast("resume", "x", "--store", tmp_path, "--pipeline", file, "--supervise").status == 6
    start = programs[0][0][: programs[0][0].index("run")]
    assert start[:3] == [sys.executable, "-P", "-c"]
    assert "from jetfast.cli import main" in start[3]
    run = [*start, "run", str(file), "--store", str(tmp_path)]
    restore = [*start, *map(str, restored)]
    resume = [*start, "resume", "x", "--store", str(tmp_path), "--pipeline", str(file)]
    assert programs == [
        ([*run, "--fresh", "--json"], [*run, "--fresh", "--json", "--unless-completed", "--begun-since", "77"]),
        (run, [*run, "--unless-completed"]),
        (restore, [*restore, "--unless-completed", "--begun-since", "77"]),
        (resume, [*resume, "--unless-completed"]),
    ]


@pytest.mark.parametrize("struct", [JobReport, StoredJob, NamedSnapshot])
def test_the_page_names_all_that_programs_can_rely_on(struct: type) -> None:
    page = DOCS.read_text()
    fields = struct.__struct_fields__ if issubclass(struct, msgspec.Struct) else struct.__dataclass_fields__
    missing = [field for field in fields if f"`{field}`" not in page]
    assert missing == []


def test_the_page_names_all_exit_statuses() -> None:
    page = DOCS.read_text()
    statuses = [value for name, value in vars(exit_status).items() if name.isupper() and isinstance(value, int)]
    assert len(statuses) == 8
    for status in (0, *statuses):
        assert f"| {status} |" in page


def test_losses_that_the_user_accepts_are_kept_in_the_record(jetfast: CommandLine, file: Path, tmp_path: Path) -> None:
    def accepted() -> tuple[str, ...]:
        found = jf.snapshots.directory(tmp_path / "store").read_record("bad")
        assert found is not None
        return found.record.accepted_losses

    assert jetfast("run", f"{file}:bad", "--store", tmp_path / "store", "--accept-loss", "a").status == 1
    assert accepted() == ("a",)
    again = ("--store", tmp_path / "store", "--pipeline", f"{file}:bad", "--accept-loss", "b", "--accept-loss", "c")
    assert jetfast("resume", "bad", *again).status == 1
    assert accepted() == ("a", "b", "c")
