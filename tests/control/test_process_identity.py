"""A process that has ended is known to have, and nothing else is."""

import subprocess
import sys
from dataclasses import dataclass

import msgspec
import pytest

from jetfast.control import process_identity
from jetfast.control.process_identity import ProcessIdentity, has_ended, this_process

TELL = (
    "import msgspec, sys; from jetfast.control.process_identity import this_process;"
    "sys.stdout.buffer.write(msgspec.msgpack.encode(this_process()) + b'\\n'); sys.stdout.flush(); sys.stdin.read()"
)


@dataclass
class Another:
    """Another process."""

    running: "subprocess.Popen[bytes]"
    identity: ProcessIdentity


@pytest.fixture
def another() -> Another:
    running = subprocess.Popen([sys.executable, "-c", TELL], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert running.stdout is not None
    return Another(running, msgspec.msgpack.decode(running.stdout.readline()[:-1], type=ProcessIdentity))


def test_a_process_has_ended_when_it_is_killed_though_nobody_has_waited_for_it(another: Another) -> None:
    assert another.identity.pid == another.running.pid
    assert not has_ended(another.identity)
    another.running.kill()
    assert another.running.stdout is not None
    another.running.stdout.read()  # its end closes it
    while not has_ended(another.identity):
        pass  # a moment later it is a zombie
    another.running.communicate()
    assert has_ended(another.identity)


def test_another_process_of_the_same_number_is_not_taken_for_it() -> None:
    here = this_process()
    assert here is not None
    assert not has_ended(here)
    assert has_ended(msgspec.structs.replace(here, started="0"))


def test_nothing_is_known_of_processes_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    here = this_process()
    assert here is not None
    assert not has_ended(msgspec.structs.replace(here, space="another container", started="0"))
    assert not has_ended(None)
    monkeypatch.setattr(process_identity, "_this_space", lambda: None)  # no /proc
    assert this_process() is None
    assert not has_ended(msgspec.structs.replace(here, started="0"))
