"""A supervised program: started again when a signal has killed it, and only then."""

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from jetfast.clusters.supervisor import CALM_S, supervise

KILLED = 128 + signal.SIGKILL


def dies(folder: Path, by: int, times: int, status: int = 0) -> list[str]:
    """A shell that notes each of its lives in `folder` and dies by a signal so many times; then it ends."""
    noted = (
        f'echo "$*" >> "{folder}/lives"; [ $(wc -l < "{folder}/lives") -gt {times} ] && exit {status}; kill -{by} $$'
    )
    return ["/bin/sh", "-c", noted, "sh", "first"]


def lives(folder: Path) -> list[str]:
    return (folder / "lives").read_text().split()


def test_a_program_that_is_killed_is_started_again_with_a_delay_that_doubles(tmp_path: Path) -> None:
    pauses: list[float] = []
    assert supervise(dies(tmp_path, signal.SIGKILL, times=8), pause=pauses.append) == 0
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]
    assert len(lives(tmp_path)) == 9


def test_the_delay_is_short_again_after_a_program_has_run_for_long(tmp_path: Path) -> None:
    pauses: list[float] = []
    now = iter([0.0, 1.0, 10.0, 10.0 + CALM_S, 0.0, 0.0, 0.0])
    assert supervise(dies(tmp_path, signal.SIGKILL, times=3), pause=pauses.append, clock=lambda: next(now)) == 0
    assert pauses == [1, 1, 2]


def test_a_program_that_ends_by_itself_is_not_started_again_whatever_its_status(tmp_path: Path) -> None:
    assert supervise(dies(tmp_path, signal.SIGKILL, times=0, status=3)) == 3
    assert len(lives(tmp_path)) == 1


def test_a_program_that_finds_a_system_away_is_started_again(tmp_path: Path) -> None:
    noted = f'echo life >> "{tmp_path}/lives"; [ $(wc -l < "{tmp_path}/lives") -gt 3 ] && exit 2; exit 5'
    pauses: list[float] = []
    assert supervise(["/bin/sh", "-c", noted], away_statuses={5}, pause=pauses.append) == 2
    assert pauses == [1, 2, 4]
    (tmp_path / "lives").unlink()
    assert supervise(["/bin/sh", "-c", noted], away_statuses={5}, max_restarts=1, pause=pauses.append) == 5


def test_a_signal_between_two_attempts_ends_the_supervisor(tmp_path: Path) -> None:
    def end(seconds: float) -> None:
        signal.raise_signal(signal.SIGTERM)

    assert supervise(["/bin/sh", "-c", "exit 5"], away_statuses={5}, pause=end) == 128 + signal.SIGTERM
    assert supervise(dies(tmp_path, signal.SIGKILL, times=9), pause=end) == 128 + signal.SIGTERM


def test_what_began_anew_does_not_do_so_again(tmp_path: Path) -> None:
    command = dies(tmp_path, signal.SIGSEGV, times=2)
    assert supervise(command, again=[*command[:-1], "again"], pause=lambda seconds: None) == 0
    assert lives(tmp_path) == ["first", "again", "again"]


@pytest.mark.parametrize("restarts", [0, 2])
def test_a_program_is_started_again_so_often_at_most(restarts: int, tmp_path: Path) -> None:
    command = dies(tmp_path, signal.SIGKILL, times=9)
    assert supervise(command, max_restarts=restarts, pause=lambda seconds: None) == KILLED
    assert len(lives(tmp_path)) == 1 + restarts


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_program_that_somebody_has_ended_is_not_started_again(by: int, tmp_path: Path) -> None:
    assert supervise(dies(tmp_path, by, times=1)) == 128 + by
    assert len(lives(tmp_path)) == 1


def test_a_signal_that_ends_programs_is_passed_on() -> None:
    program = "import jetfast.clusters.supervisor as s; raise SystemExit(s.supervise(['/bin/sh', '-c', {shell!r}]))"
    shell = "trap 'exit 7' TERM; echo runs; while :; do sleep 0.01; done"
    with subprocess.Popen([sys.executable, "-c", program.format(shell=shell)], stdout=subprocess.PIPE) as supervisor:
        assert supervisor.stdout is not None
        assert supervisor.stdout.readline() == b"runs\n"
        supervisor.terminate()
        assert supervisor.wait(60) == 7


def test_it_works_on_other_threads_than_the_main_one(tmp_path: Path) -> None:
    outcomes: list[int] = []
    thread = threading.Thread(target=lambda: outcomes.append(supervise(dies(tmp_path, signal.SIGKILL, times=0))))
    thread.start()
    thread.join(60)
    assert outcomes == [0]
