"""What killed processes leave in temporary folders and in stores is swept at the next start, and nothing else is."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jetfast.api import snapshots
from jetfast.control.temporary_folders import SOCKET, TemporaryFolder, sweep
from jetfast.engine.directory_blobs import DirectoryBlobs

LISTENING = """
import sys
from jetfast.control.endpoint import Listener
from jetfast.control.wire import Token
listener = Listener(Token(bytes(32)), "test", lambda hello: None, lambda proven, hello: None, unix=True)
print(listener.address.unix_path, flush=True)
sys.stdin.read()
"""
WRITING = """
import sys
from jetfast.engine.directory_blobs import DirectoryBlobs
def pieces():
    yield b"half"
    print("writing", flush=True)
    sys.stdin.read()
DirectoryBlobs(sys.argv[1]).put(sys.argv[2], pieces())
"""


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., "subprocess.Popen[str]"]]:
    """Starts programs; they end at the end of the test. Their folders lie near the root: names of sockets are short."""
    folder = Path(tempfile.mkdtemp(prefix="folders-"))
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    started: list[subprocess.Popen[str]] = []

    def run(program: str, *arguments: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [sys.executable, "-c", program, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": str(folder)},
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.communicate()
    shutil.rmtree(folder)


def line_of(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def kill(process: "subprocess.Popen[str]") -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()


def test_the_folder_of_a_killed_process_is_swept_and_that_of_a_living_one_is_not(
    start: Callable[..., "subprocess.Popen[str]"], tmp_path: Path
) -> None:
    dead, living = start(LISTENING), start(LISTENING)
    left, used = (Path(line_of(process)).parent for process in (dead, living))
    kill(dead)
    assert (left / SOCKET).exists()
    own = TemporaryFolder()
    assert not left.exists()
    assert (used / SOCKET).exists()
    assert Path(own.path).exists()
    kill(living)
    assert sweep() == [str(used)]
    own.remove()
    assert list((Path(tempfile.gettempdir())).iterdir()) == []


def test_folders_of_earlier_versions_go_when_nobody_listens_and_other_folders_stay(
    start: Callable[..., "subprocess.Popen[str]"], tmp_path: Path
) -> None:
    folder = Path(tempfile.gettempdir())
    names = ("jetfast-abandoned", "jetfast-living", "jetfast-rows-1", "other-held-1")
    abandoned, living, rows, other = (folder / name for name in names)
    for made in (abandoned, living, rows, other):
        made.mkdir()
    (rows / "part.arrow").touch()
    with socket.socket(socket.AF_UNIX) as gone, socket.socket(socket.AF_UNIX) as listening:
        gone.bind(str(abandoned / SOCKET))
        listening.bind(str(living / SOCKET))
        listening.listen()
        assert sweep() == [str(abandoned)]
    assert sorted(folder.iterdir()) == sorted([living, rows, other])


def test_a_folder_that_was_swept_before_it_was_locked_is_made_again(
    start: Callable[..., "subprocess.Popen[str]"], monkeypatch: pytest.MonkeyPatch
) -> None:
    import tempfile

    made: list[str] = []

    def make(prefix: str, mkdtemp: Callable[..., str] = tempfile.mkdtemp) -> str:
        made.append(mkdtemp(prefix=prefix))
        if len(made) == 1:
            assert sweep() == made
        return made[-1]

    monkeypatch.setattr(tempfile, "mkdtemp", make)
    folder = TemporaryFolder()
    assert [folder.path] == made[1:]
    assert sweep() == []


def age(path: Path, seconds: float) -> None:
    time_s = path.stat().st_mtime - seconds
    os.utime(path, (time_s, time_s))


@pytest.mark.parametrize("name", ["job/records/1", "job/areas/7-1/sum/0", "probe-1"])
def test_what_a_killed_writer_left_in_a_store_is_swept_and_what_a_living_one_writes_is_not(
    name: str, start: Callable[..., "subprocess.Popen[str]"], tmp_path: Path
) -> None:
    store = tmp_path / "store"
    blobs = DirectoryBlobs(store)
    blobs.put("job/records/2", [b"whole"])
    blobs.put("other/records/2", [b"whole"])
    process = start(WRITING, str(store), name)
    assert line_of(process) == "writing"
    (half,) = store.rglob(".writing-*")
    age(half, 60.0)
    snapshots.directory(store).sweep("job")
    assert half.exists(), "its writer lives"
    kill(process)
    snapshots.directory(store).sweep("another job")
    assert half.exists() is (name != "probe-1")
    snapshots.directory(store).sweep("job")
    files = {file.relative_to(store).as_posix() for file in store.rglob("*") if file.is_file()}
    assert files == {"job/records/2", "other/records/2"}


def test_what_writers_on_other_hosts_have_left_goes_after_a_day(tmp_path: Path) -> None:
    blobs = DirectoryBlobs(tmp_path)
    blobs.put("job/records/1", [b"whole"])
    young, old, older_version = (tmp_path / f"job/records/.writing-{name}" for name in ("ab-1", "ab-2", "0" * 32))
    for file in (young, old, older_version):
        file.touch()
    age(young, 3_600)
    age(old, 100_000)
    age(older_version, 100_000)
    probe = tmp_path / "probe-0"
    probe.touch()
    age(probe, 100_000)
    blobs.sweep("job")
    assert sorted(file.name for file in tmp_path.rglob("*") if file.is_file()) == sorted([young.name, "1"])
