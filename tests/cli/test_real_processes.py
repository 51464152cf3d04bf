"""The program `jetfast` and jobs in other processes: steered, killed, started again, gone on with; each row once."""

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from jetfast.cli import exit_status
from jetfast.control.job_client import find_job, find_jobs
from jetfast.control.job_sockets import job_sockets
from jetfast.errors import JobUnreachable
from tests.cli.command_line import CommandLine
from tests.cli.copying import COPYING
from tests.cli.programs import PATIENCE_S, running, until

pytestmark = [pytest.mark.services, pytest.mark.timeout(900)]  # many processes start, perhaps on a busy machine

ROWS = 60_000
FORKING = """
import os, sys, time
import jetfast as jf
p = jf.Pipeline("forked")
p.read(jf.memory({"n": [1]}, unbounded=True)).collect()
job = jf.LocalCluster(workers=1).submit(p, progress=False)
end = os.dup(0)
if os.fork() == 0:
    os.read(end, 1)  # until the test ends it
    os._exit(0)
print("forked", flush=True)
job.wait()
"""


def test_a_job_of_another_process_is_steered_survives_its_coordinator_and_is_gone_on_with(
    tmp_path: Path,
    started: Callable[..., subprocess.Popen[str]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "copying.py").write_text(COPYING.replace("ROWS", str(ROWS)))
    monkeypatch.chdir(tmp_path)
    command_line = CommandLine(monkeypatch, capsys)

    def jetfast(*arguments: str) -> Any:
        ended = command_line(*arguments, "--json")
        assert ended.status == 0, ended
        return ended.json

    arguments = ["copying.py", "--cluster", "processes", "--store", "snapshots", "--snapshot-interval", "100ms"]
    supervised = started("-m", "jetfast", "run", *arguments, "--supervise", RATE="100")
    first = until(running, supervised)
    assert jetfast("suspend", "copy", "--timeout", "100s")["status"] == "suspended"
    assert jetfast("snapshot", "save", "copy", "kept", "--timeout", "100s")["status"] == "suspended"
    jetfast("resume", "copy")
    until(running, supervised)
    os.kill(first.pid, signal.SIGKILL)
    second = until(lambda: running(but=first.pid), supervised)
    assert second.execution_id > first.execution_id
    assert jetfast("cancel", "copy", "--timeout", "100s")["error"].startswith("JobCancelledError")
    _, errors = supervised.communicate(timeout=PATIENCE_S)
    assert supervised.returncode == exit_status.CANCELLED, errors
    assert "the program was killed by SIGKILL" in errors
    written = ds.dataset(tmp_path / "out", format="parquet").count_rows()
    assert 0 < written < ROWS
    resumed = started("-m", "jetfast", "resume", "copy", "--store", "snapshots", "--pipeline", "copying.py", "--json")
    out, errors = resumed.communicate(timeout=PATIENCE_S)
    assert resumed.returncode == 0, errors
    report = json.loads(out)
    assert (report["status"], report["cluster"], report["members_wanted"]) == ("completed", "processes", 2)
    rows = ds.dataset(tmp_path / "out", format="parquet").to_table()["row"].to_pylist()
    assert sorted(rows) == list(range(ROWS))
    (named,) = jetfast("snapshot", "list", "copy", "--store", "snapshots")["snapshots"]
    assert (named["name"], named["problem"]) == ("kept", "")


def test_an_interrupt_cancels_the_job_and_is_the_status_and_a_stopped_process_is_told_of(
    tmp_path: Path, started: Callable[..., subprocess.Popen[str]]
) -> None:
    (tmp_path / "copying.py").write_text(COPYING.replace("ROWS", str(ROWS)))
    program = started("-m", "jetfast", "run", "copying.py", "--workers", "1", RATE="100")
    until(running, program)
    os.kill(program.pid, signal.SIGSTOP)
    try:
        with pytest.raises(JobUnreachable, match=f"process {program.pid}, .* has not answered"):
            find_job("copy", timeout_s=0.1)
    finally:
        os.kill(program.pid, signal.SIGCONT)
    program.send_signal(signal.SIGINT)
    _, errors = program.communicate(timeout=PATIENCE_S)
    assert program.returncode == exit_status.INTERRUPTED, errors
    assert "job copy: cancelled by Ctrl-C" in errors
    assert job_sockets() == []


def test_a_process_that_a_job_has_forked_does_not_seem_to_be_the_job(
    started: Callable[..., subprocess.Popen[str]],
) -> None:
    program = started("-c", FORKING)
    assert program.stdout is not None
    assert program.stdout.readline() == "forked\n"
    until(lambda: [report for _, report in find_jobs()[0] if report.status == "running"], program)
    program.kill()
    program.wait()
    assert find_jobs() == ([], []), "the child has not kept the socket"
    assert job_sockets() == []
