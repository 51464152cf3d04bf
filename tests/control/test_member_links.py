"""The submitter's side of members: what it does to one concerns its successor only if it is meant."""

import os
import queue
import threading

import pytest

from jetfast.control import member_links, messages
from jetfast.control.endpoint import dial
from jetfast.control.job_settings import JobSettings
from jetfast.control.member_links import MemberLinks, OnEnd
from jetfast.control.messages import NO_EXECUTION, Cancel, LeaseGranted, Registered, Shutdown
from jetfast.control.remote_member import MemberTask
from jetfast.control.runner import Runner
from jetfast.control.versions import running_versions
from jetfast.control.wire import COORDINATOR, Connection, Hello, Purpose
from jetfast.core.guarantee import Guarantee
from jetfast.engine.memory_snapshot_store import MemorySnapshotStore
from jetfast.errors import MemberLostError, TransportError

PATIENCE_S = 60.0


class HandDriven:
    """MemberCarrier: what it starts ends when it is cancelled."""

    def __init__(self) -> None:
        self.started: queue.Queue[MemberTask] = queue.Queue()
        self.cancelled = 0
        self._end: threading.Event

    def start(self, group: str, description: str, task: MemberTask, on_end: OnEnd) -> threading.Thread:
        end = self._end = threading.Event()

        def live() -> None:
            assert end.wait(PATIENCE_S)
            on_end(None)

        thread = threading.Thread(target=live, name=group, daemon=True)
        thread.start()
        self.started.put(task)
        return thread

    def cancel(self, group: str) -> None:
        self.cancelled += 1
        self._end.set()

    def has_ended(self, registered: Registered) -> bool:
        return True

    def explain_start(self, member: int, error: Exception | None) -> Exception:
        return MemberLostError("it did not start")

    def explain_absence(self, member: int, seconds: float) -> Exception:
        return MemberLostError("it did not come")

    def explain_end(self, error: Exception | None) -> str:
        return "it ended"


def come(task: MemberTask) -> Connection:
    """Register as a member."""
    hello = Hello(Purpose.CONTROL, NO_EXECUTION, task.member, COORDINATOR, task.incarnation)
    connection = Connection(dial(task.coordinator, task.token, hello))
    registered = Registered(
        execution_id=NO_EXECUTION,
        member=task.member,
        incarnation=task.incarnation,
        pid=os.getpid(),
        host="here",
        address="",
        versions=running_versions(),
    )
    connection.send(messages.encode(registered))
    answer = connection.receive()
    assert answer is not None
    assert isinstance(messages.decode_from_coordinator(answer), LeaseGranted)
    return connection


def test_a_member_that_was_told_to_stop_and_died_takes_nothing_out_on_its_successor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(member_links, "END_TIMEOUT_S", 0.0)
    carrier = HandDriven()
    store = MemorySnapshotStore()
    runner = Runner(JobSettings("job", "id", b"", 1, 1, Guarantee.EXACTLY_ONCE, 2**20, snapshot_store=store))
    links = MemberLinks(carrier, runner)
    links.summon(0)
    come(carrier.started.get(timeout=PATIENCE_S)).close()
    carrier.started.get(timeout=PATIENCE_S)  # the successor
    assert carrier.cancelled == 1, "that it is dead is made certain"
    before = set(threading.enumerate())
    with pytest.raises(TransportError):
        links._members[0].send(Cancel(execution_id=1))  # it was under way when the member died
    for timer in set(threading.enumerate()) - before:
        timer.join(PATIENCE_S)
    assert carrier.cancelled == 1
    links.close()


def test_a_member_that_stands_down_goes_and_comes_again_when_it_is_summoned() -> None:
    carrier = HandDriven()
    store = MemorySnapshotStore()
    runner = Runner(JobSettings("job", "id", b"", 1, 1, Guarantee.EXACTLY_ONCE, 2**20, snapshot_store=store))
    links = MemberLinks(carrier, runner)
    links.summon(0)
    first = come(carrier.started.get(timeout=PATIENCE_S))
    links.stand_down(0)
    told = first.receive()
    assert told is not None
    assert isinstance(messages.decode_from_coordinator(told), Shutdown)
    links.summon(0)
    assert carrier.started.empty(), "not while the first one is there"
    first.close()
    second = carrier.started.get(timeout=PATIENCE_S)
    assert second.incarnation == 1
    assert links.awaited_group(0) is not None
    links.stand_down(0)
    assert links.awaited_group(0) is None
    with pytest.raises(AssertionError):
        come(second)  # it is turned away
    assert carrier.started.empty()
    links.close()
