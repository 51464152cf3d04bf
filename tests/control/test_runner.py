"""The runner: it performs the machine's decisions over links, drops what is stale, and ends whatever happens."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from jetfast.control import messages
from jetfast.control.job_settings import JobSettings
from jetfast.control.job_status import JobStatus
from jetfast.control.messages import CoordinatorMessage, Registered, Versions
from jetfast.control.runner import Runner
from jetfast.control.versions import running_versions
from jetfast.core.guarantee import Guarantee
from jetfast.engine.memory_snapshot_store import MemorySnapshotStore
from jetfast.engine.snapshot_store import ExecutionRecord, StateTotals, VersionedRecord
from jetfast.engine.submission_record import CoordinatorRecord
from jetfast.errors import (
    InvalidTransition,
    JobCancelledError,
    JobFailedError,
    MemberLostError,
    ProtocolError,
    RecordConflict,
    ResourcesError,
    StoreUnavailable,
    TransportError,
)

EXECUTION = 7
PATIENCE_S = 30.0
TOTALS = StateTotals(1, 10, 100)


def make(member_count: int, **arguments: Any) -> Runner:
    plan = JobSettings("job", "id", b"dag", member_count, 1, Guarantee.NONE, 2**20)
    return Runner(plan, new_execution_id=lambda last: EXECUTION, **arguments)


class Link:
    """A member that does at once what it is told; `answers` replaces its answer to Start."""

    def __init__(self, runner: Runner, member: int, answer: messages.MemberMessage | None = None) -> None:
        self.runner, self.member, self.answer = runner, member, answer
        self.sent: list[CoordinatorMessage] = []
        self.dismissed = self.closed = 0
        self.others_dismissed: list[bool] = []
        """When it was closed: had the other members been told to go?"""
        self.others: tuple[Link, ...] = ()

    @property
    def kinds(self) -> list[str]:
        return [type(message).__name__ for message in self.sent]

    def register(self, versions: Versions | None = None) -> None:
        address, versions = f"host:{self.member}", versions or running_versions()
        self.runner.register(
            self.member,
            self,
            Registered(
                execution_id=0,
                member=self.member,
                incarnation=0,
                pid=self.member,
                host="host",
                address=address,
                versions=versions,
            ),
        )

    def send(self, message: CoordinatorMessage) -> None:
        self.sent.append(message)
        ids = {"execution_id": message.execution_id, "member": self.member}
        if isinstance(message, messages.Prepare):
            self.runner.receive(self.member, messages.Prepared(**ids))
        elif isinstance(message, messages.Start):
            self.runner.receive(self.member, self.answer or messages.Finished(**ids))
        elif isinstance(message, messages.Cancel):
            self.runner.receive(
                self.member, messages.Failed(**ids, kind="JobCancelledError", error="stopped", traceback="")
            )

    def dismiss(self) -> None:
        self.dismissed += 1

    def close(self) -> None:
        self.closed += 1
        self.others_dismissed += [other.dismissed > 0 for other in self.others]


class SilentLink(Link):
    """A member that says nothing by itself."""

    def send(self, message: CoordinatorMessage) -> None:
        self.sent.append(message)


def start(runner: Runner, *links: Link) -> None:
    runner.start()
    for link in links:
        link.register()


def test_a_job_runs_to_completion_and_every_link_is_closed_before_it_has_ended() -> None:
    runner = make(2)
    links = [Link(runner, 0), Link(runner, 1)]
    start(runner, *links)
    assert runner.wait(PATIENCE_S)
    assert runner.status is JobStatus.COMPLETED
    assert runner.error is None
    for link in links:
        assert link.kinds == ["Prepare", "Start", "Release"]
        assert link.closed == 1
    prepare = links[1].sent[0]
    assert isinstance(prepare, messages.Prepare)
    assert (prepare.member, prepare.member_count, prepare.peers) == (1, 2, ["host:0", "host:1"])
    assert prepare.dag == b"dag"


def test_all_members_are_told_to_go_before_the_end_of_any_is_waited_for() -> None:
    runner = make(3)
    links = [Link(runner, member) for member in range(3)]
    for link in links:
        link.others = tuple(links)
    start(runner, *links)
    assert runner.wait(PATIENCE_S)
    assert [link.dismissed for link in links] == [1, 1, 1]
    assert [link.others_dismissed for link in links] == [[True] * 3] * 3


def test_an_error_of_a_member_comes_back_as_its_class_with_the_members_traceback() -> None:
    runner = make(2)
    failed = messages.Failed(execution_id=EXECUTION, member=1, kind="ZeroDivisionError", error="x / 0", traceback="tb")
    silent = SilentLink(runner, 0)
    start(runner, silent, Link(runner, 1, failed))
    runner.receive(0, messages.Prepared(execution_id=EXECUTION, member=0))
    while "Cancel" not in silent.kinds:
        assert not runner.wait(0.001), "it must wait for member 0"
    assert runner.status is JobStatus.COMPLETING
    runner.receive(0, messages.Finished(execution_id=EXECUTION, member=0))
    assert runner.wait(PATIENCE_S)
    assert isinstance(runner.error, JobFailedError)
    assert str(runner.error) == "member 1: x / 0"
    assert "tb" in str(runner.error.__cause__)


def test_a_cancelled_job_ends_with_job_cancelled_error() -> None:
    runner = make(1)
    runner.start()
    runner.cancel()
    assert runner.wait(PATIENCE_S)
    assert isinstance(runner.error, JobCancelledError)
    assert runner.status is JobStatus.FAILED


def test_a_member_that_cannot_be_reached_is_lost() -> None:
    class BrokenLink(Link):
        def send(self, message: CoordinatorMessage) -> None:
            raise TransportError("broken pipe")

    runner = make(2)
    other = Link(runner, 1)
    start(runner, BrokenLink(runner, 0), other)
    assert runner.wait(PATIENCE_S)
    assert isinstance(runner.error, MemberLostError)
    assert "member 0 cannot be reached: broken pipe" in str(runner.error)
    assert other.closed == 1


def test_losing_a_member_twice_or_after_the_end_is_no_matter() -> None:
    runner = make(1)
    start(runner, SilentLink(runner, 0))
    runner.lost(0, MemberLostError("died"))
    runner.lost(0, MemberLostError("died again"))
    assert runner.wait(PATIENCE_S)
    runner.lost(0, MemberLostError("died once more"))
    assert str(runner.error) == "died"


def test_messages_of_another_execution_are_dropped() -> None:
    runner = make(1)
    link = SilentLink(runner, 0)
    start(runner, link)
    runner.receive(0, messages.Failed(execution_id=EXECUTION - 1, member=0, kind="JobFailedError", error="old"))
    runner.receive(0, messages.Prepared(execution_id=EXECUTION, member=0))
    runner.receive(0, messages.Finished(execution_id=EXECUTION, member=0))
    assert runner.wait(PATIENCE_S)
    assert runner.error is None


def test_other_versions_on_a_member_are_refused_by_name() -> None:
    runner = make(2)
    good, bad = Link(runner, 0), Link(runner, 1)
    runner.start()
    good.register()
    bad.register(Versions("2.7.18", "0.0.1", "1.0.0"))
    assert runner.wait(PATIENCE_S)
    assert isinstance(runner.error, ResourcesError)
    for part in ("member 1 on host", "Python 2.7.18", "jetfast 0.0.1", "pyarrow 1.0.0"):
        assert part in str(runner.error)
    assert (good.closed, bad.closed) == (1, 1)
    assert good.kinds == ["Release"]


def test_a_bug_in_a_link_ends_the_job_instead_of_leaving_it_waiting() -> None:
    class BuggyLink(Link):
        def send(self, message: CoordinatorMessage) -> None:
            raise KeyError("a bug")

    runner = make(1)
    link = BuggyLink(runner, 0)
    start(runner, link)
    assert runner.wait(PATIENCE_S)
    assert runner.status is JobStatus.FAILED
    assert isinstance(runner.error, ProtocolError)
    assert isinstance(runner.error.__cause__, KeyError)
    assert link.closed == 1


def test_a_message_that_cannot_be_at_this_moment_fails_the_job_and_does_not_hang_it() -> None:
    runner = make(1)
    link = SilentLink(runner, 0)
    start(runner, link)
    runner.receive(0, messages.Finished(execution_id=EXECUTION, member=0))  # it has not even prepared
    runner.receive(0, messages.Failed(execution_id=EXECUTION, member=0, kind="JobCancelledError", error="stopped"))
    assert runner.wait(PATIENCE_S)
    assert isinstance(runner.error, InvalidTransition)


def test_a_member_that_does_not_stop_is_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    runner = make(2, ending_warning_s=0.001)
    deaf = SilentLink(runner, 1)
    start(runner, Link(runner, 0), deaf)
    runner.receive(1, messages.Prepared(execution_id=EXECUTION, member=1))
    runner.cancel()
    while "still waiting for member(s) [1] to stop" not in caplog.text:
        assert not runner.wait(0.001)
    runner.lost(1, MemberLostError("killed"))
    assert runner.wait(PATIENCE_S)
    assert isinstance(runner.error, JobCancelledError)


def test_seconds_stand_still_after_the_end() -> None:
    now = [10.0]
    runner = make(1, clock=lambda: now[0])
    now[0] = 12.5
    assert runner.seconds == 2.5
    start(runner, Link(runner, 0))
    assert runner.wait(PATIENCE_S)
    now[0] = 99.0
    assert runner.seconds == 2.5


class Claiming(Link):
    """A member that answers snapshot rounds, too, and takes in all its input at once."""

    def send(self, message: CoordinatorMessage) -> None:
        ids = {"execution_id": message.execution_id, "member": self.member}
        if isinstance(message, messages.Start):
            self.sent.append(message)
            self.runner.receive(self.member, messages.InputTaken(**ids))
        elif isinstance(message, messages.StartSnapshot):
            self.sent.append(message)
            saved = messages.SnapshotSaved(**ids, snapshot_id=message.snapshot_id, vertices={"v": TOTALS}, pause_us=7)
            self.runner.receive(self.member, saved)
        elif isinstance(message, messages.EndSnapshot):
            self.sent.append(message)
            self.runner.receive(self.member, messages.SnapshotEnded(**ids, snapshot_id=message.snapshot_id))
            self.runner.receive(self.member, messages.Finished(**ids))
        else:
            super().send(message)


def test_a_job_with_a_guarantee_ends_with_a_last_snapshot_on_one_thread_if_nobody_starts_one() -> None:
    now = [0.0]
    works: list[Callable[[], None]] = []
    store = MemorySnapshotStore()
    plan = JobSettings(
        "job", "id", b"dag", 2, 1, Guarantee.EXACTLY_ONCE, 2**20, parallelism={"v": 4}, snapshot_store=store
    )
    runner = Runner(plan, clock=lambda: now[0], run_store=works.append, new_execution_id=lambda last: last + 1)
    links = [Claiming(runner, 0), Claiming(runner, 1)]
    runner.summon = lambda member: links[member].register()
    runner.begin()
    while runner.handle_next() or works:
        now[0] += 1
        if works:
            works.pop(0)()
    assert runner.wait(0)
    assert (runner.status, runner.error) == (JobStatus.COMPLETED, None)
    assert links[0].kinds == ["Prepare", "Start", "StartSnapshot", "EndSnapshot", "Release"]
    prepare = links[1].sent[0]
    assert isinstance(prepare, messages.Prepare)
    assert (prepare.execution_id, prepare.restore, prepare.parallelism_max, prepare.settle_only) == (1, None, 4, False)
    (figures,) = runner.snapshots.last
    assert (figures["kind"], figures["entries"], figures["bytes"], figures["pause_us"]) == ("final", 2, 20, 7)
    assert figures["seconds"] > 0
    found = store.read_record("job")
    assert found is not None
    assert (found.record.completed, found.record.settled) == (True, True)
    assert runner.timers == {}


def test_a_lost_member_is_summoned_again_when_the_delay_is_over_and_not_before() -> None:
    now = [0.0]
    plan = JobSettings("job", "id", b"dag", 1, 1, Guarantee.EXACTLY_ONCE, 2**20, snapshot_store=MemorySnapshotStore())
    runner = Runner(plan, clock=lambda: now[0], run_store=lambda work: work(), new_execution_id=lambda last: last + 1)
    links: list[SilentLink] = []

    def summon(member: int) -> None:
        links.append(SilentLink(runner, member))
        links[-1].register()

    runner.summon = summon
    runner.begin()
    while runner.handle_next():
        pass
    for execution_id in (1, 2):
        assert links[-1].sent[0].execution_id == execution_id
        runner.lost(0, MemberLostError("died"))
        while runner.handle_next():
            pass
        if execution_id == 1:
            assert runner.deadline == 0.0, "the first one is replaced at once"
            assert runner.handle_timers()
            while runner.handle_next():
                pass
    assert (runner.status, runner.deadline) == (JobStatus.NOT_RUNNING, 1.0)
    now[0] = 0.999
    assert not runner.handle_timers()
    now[0] = 1.0
    assert runner.handle_timers()
    while runner.handle_next():
        pass
    assert [link.kinds for link in links] == [["Prepare"], ["Prepare"], ["Prepare"]]
    assert links[2].sent[0].execution_id == 3
    assert [link.closed for link in links] == [1, 1, 0], "the dead ones are let go"


def coordinating(now: list[float], store: MemorySnapshotStore, **arguments: Any) -> tuple[Runner, list[SilentLink]]:
    """A job that other coordinators may take over, without threads; its members come as soon as they are summoned."""
    plan = JobSettings(
        "job",
        "id",
        b"dag",
        1,
        1,
        Guarantee.EXACTLY_ONCE,
        2**20,
        snapshot_store=store,
        coordinator=CoordinatorRecord(lease_us=4_000_000),
        lease_s=4.0,
    )
    runner = Runner(
        plan,
        clock=lambda: now[0],
        lease_clock=lambda: now[0],
        run_store=lambda work: work(),
        run_look=lambda work: work(),
        new_execution_id=lambda last: last + 1,
        **arguments,
    )
    links: list[SilentLink] = []

    def summon(member: int) -> None:
        links.append(SilentLink(runner, member))
        links[-1].register()

    runner.summon = summon
    runner.begin()
    return runner, links


def go_on(runner: Runner, now: list[float], until_s: float) -> None:
    """Let time pass, from one timer to the next."""
    while True:
        while runner.handle_next() or runner.handle_timers():
            pass
        if runner.deadline is None or runner.deadline > until_s:
            now[0] = until_s
            return
        now[0] = runner.deadline


def test_a_job_of_another_coordinator_begins_when_the_leases_of_its_members_have_run_out() -> None:
    now, store = [100.0], MemorySnapshotStore()
    before = CoordinatorRecord(lease_us=9_000_000)
    store.replace_record(ExecutionRecord("job", "first", 7, coordinators=(before,)), 0)
    runner, links = coordinating(now, store)
    go_on(runner, now, 108.9)
    assert links == []
    go_on(runner, now, 109.0)
    go_on(runner, now, 109.1)
    assert [link.kinds for link in links] == [["Prepare"]]
    assert links[0].sent[0].execution_id == 8


def test_a_coordinator_grants_leases_as_long_as_its_record_says_that_the_job_is_its_own() -> None:
    now, store = [100.0], MemorySnapshotStore()
    runner, links = coordinating(now, store)
    assert runner.leases.grant(0, now[0]) == 0.0
    go_on(runner, now, 150.5)
    assert runner.leases.grant(0, now[0]) >= 3.0, "it looks once a second"
    found = store.read_record("job")
    assert found is not None
    store.replace_record(msgspec.structs.replace(found.record, execution_id=50), found.version)
    go_on(runner, now, 151.5)
    assert [type(link.sent[-1]).__name__ for link in links] == ["Cancel"]
    go_on(runner, now, 154.5)
    assert runner.leases.grant(0, now[0]) == 0.0
    runner.receive(0, messages.Failed(execution_id=1, member=0, kind="JobCancelledError", error="", traceback=""))
    go_on(runner, now, 154.6)
    assert isinstance(runner.error, RecordConflict)
    assert "taken over by execution 50 of another coordinator" in str(runner.error)


def test_no_leases_are_granted_while_a_store_hangs_or_cannot_be_read() -> None:
    class Broken(MemorySnapshotStore):
        broken = False

        def read_record(self, job: str) -> VersionedRecord | None:
            if self.broken:
                raise StoreUnavailable("nobody there")
            return super().read_record(job)

    now, store = [100.0], Broken()
    runner, _ = coordinating(now, store)
    go_on(runner, now, 110.0)
    assert runner.leases.left_s(now[0]) > 0
    store.broken = True
    go_on(runner, now, 115.0)
    assert runner.leases.left_s(now[0]) <= 0
    store.broken = False
    go_on(runner, now, 117.0)
    assert runner.leases.left_s(now[0]) > 0


def test_figures_outlive_an_execution_that_only_settles() -> None:
    now, store = [100.0], MemorySnapshotStore()
    runner, links = coordinating(now, store)
    go_on(runner, now, 101.0)
    runner.receive(0, messages.Prepared(execution_id=1, member=0))
    runner.receive(0, messages.Metrics(execution_id=1, member=0, values={"rows_read": 7}))
    go_on(runner, now, 102.0)
    runner.cancel()
    runner.receive(0, messages.Failed(execution_id=1, member=0, kind="JobCancelledError", error="", traceback=""))
    go_on(runner, now, 103.0)
    settling = links[0].sent[-1]
    assert isinstance(settling, messages.Prepare)
    assert settling.settle_only
    runner.receive(0, messages.Metrics(execution_id=settling.execution_id, member=0, values={"rows_read": 0}))
    assert runner.members[0].metrics == {"rows_read": 0}
    assert runner.members[0].figures == {"rows_read": 7}
