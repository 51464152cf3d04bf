"""The member's agent: what it answers, what it drops, and that nothing is left behind."""

import threading
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest

from jetfast.control import messages
from jetfast.control.member_agent import Deliver, MemberAgent, unpickle_dag
from jetfast.control.messages import MemberMessage, Prepare
from jetfast.core.dag import Dag
from jetfast.core.guarantee import Guarantee
from jetfast.core.snapshot_kind import SnapshotKind
from jetfast.engine.execution_listener import ExecutionListener, SnapshotReport
from jetfast.engine.snapshot_store import StateTotals
from jetfast.engine.transport import PeerStatistics
from jetfast.errors import JobCancelledError, JobFailedError, TransportError

PATIENCE_S = 30.0


class ScriptedExecution:
    """Ends when the test says so, or when it is cancelled."""

    def __init__(self, deliver: Deliver, open_error: Exception | None = None) -> None:
        self.deliver = deliver
        self.open_error = open_error
        self.calls: list[str] = []
        self.listener: ExecutionListener | None = None

    def open(self) -> None:
        self.calls.append("open")
        if self.open_error is not None:
            raise self.open_error

    def start(self, listener: ExecutionListener) -> None:
        self.calls.append("start")
        self.listener = listener

    def cancel(self) -> None:
        self.calls.append("cancel")
        if self.listener is not None:
            self.listener.finished(JobCancelledError("stopped"))

    def start_snapshot(self, snapshot_id: int, kind: SnapshotKind) -> None:
        self.calls.append(f"start snapshot {snapshot_id} {kind.value}")

    def end_snapshot(self, snapshot_id: int, success: bool) -> None:
        self.calls.append(f"end snapshot {snapshot_id} {success}")

    def abandon(self) -> None:
        self.calls.append("abandon")

    def join(self, timeout: float | None = None) -> bool:
        self.calls.append("join")
        return True

    def metrics(self) -> Mapping[str, Any]:
        return {"vertices": {"source": {"rows_out": 3}}}


class ClosableTransport:
    """A transport of which only statistics and close are used."""

    def __init__(self) -> None:
        self.closed = 0

    def statistics(self) -> list[PeerStatistics]:
        return [PeerStatistics(1, 10, 20, 100, 200)]

    def close(self) -> None:
        self.closed += 1


class Member:
    """An agent that is stepped by hand, with everything around it recorded."""

    def __init__(self, open_error: Exception | None = None, transport_error: Exception | None = None) -> None:
        self.sent: list[MemberMessage] = []
        self.executions: list[ScriptedExecution] = []
        self.transports: list[ClosableTransport] = []
        self.open_error, self.transport_error = open_error, transport_error
        self.agent = MemberAgent(
            self.connect,
            self.sent.append,
            load_dag=lambda data: Dag("dag"),
            execution_factory=self.make,
        )

    def connect(self, prepare: Prepare) -> Any:
        if self.transport_error is not None:
            raise self.transport_error
        self.transports.append(ClosableTransport())
        return self.transports[-1]

    def make(self, dag: Dag, prepare: Prepare, transport: Any, deliver: Deliver) -> ScriptedExecution:
        self.executions.append(ScriptedExecution(deliver, self.open_error))
        return self.executions[-1]

    def do(self, *items: messages.CoordinatorMessage) -> list[str]:
        """Handle messages, then whatever the mailbox holds; return the kinds of new answers."""
        before = len(self.sent)
        for item in items:
            self.agent.handle(item)
            while not self.agent._mailbox.empty():
                self.agent.handle(self.agent._mailbox.get())
        return [type(message).__name__ for message in self.sent[before:]]


def prepare(execution_id: int = 5) -> Prepare:
    return Prepare(
        execution_id=execution_id,
        job="job",
        job_id="id",
        member=1,
        member_count=2,
        workers=1,
        peers=["", ""],
        dag=b"",
        guarantee=Guarantee.NONE,
        memory_limit_bytes=100,
    )


START, CANCEL, RELEASE = (kind(execution_id=5) for kind in (messages.Start, messages.Cancel, messages.Release))
SHUTDOWN = messages.Shutdown(execution_id=0)


def test_a_member_prepares_runs_reports_and_keeps_its_connections_until_release() -> None:
    member = Member()
    assert member.do(prepare()) == ["Prepared"]
    assert member.do(START) == []
    execution = member.executions[0]
    assert execution.listener is not None
    execution.listener.finished(None)
    member.agent.handle(member.agent._mailbox.get())
    assert [type(message).__name__ for message in member.sent] == ["Prepared", "Metrics", "Finished"]
    metrics = member.sent[1]
    assert isinstance(metrics, messages.Metrics)
    assert metrics.values["vertices"] == {"source": {"rows_out": 3}}
    assert metrics.values["peers"][0]["rows_received"] == 20
    assert metrics.values["pid"] > 0
    assert metrics.values["peak_rss_bytes"] > 1_000_000
    assert execution.calls == ["open", "start", "join"]
    assert member.transports[0].closed == 0
    member.do(RELEASE)
    assert member.transports[0].closed == 1
    assert member.do(CANCEL, START) == []


def test_an_error_is_reported_with_kind_text_and_traceback() -> None:
    member = Member()
    member.do(prepare(), START)
    assert member.executions[0].listener is not None
    member.executions[0].listener.finished(JobFailedError("step 'x' on member 1: boom"))
    member.agent.handle(member.agent._mailbox.get())
    failed = member.sent[-1]
    assert isinstance(failed, messages.Failed)
    assert (failed.kind, failed.error) == ("JobFailedError", "step 'x' on member 1: boom")
    assert "JobFailedError" in failed.traceback


@pytest.mark.parametrize("where", ["transport", "open"])
def test_what_goes_wrong_while_preparing_is_reported_and_cleaned_up(where: str) -> None:
    error = TransportError("cannot reach member 0 at a:1")
    member = Member(open_error=error) if where == "open" else Member(transport_error=error)
    answers = member.do(prepare())
    assert answers[-1] == "Failed"
    assert "Prepared" not in answers
    failed = member.sent[-1]
    assert isinstance(failed, messages.Failed)
    assert failed.kind == "TransportError"
    assert member.do(START, CANCEL) == [], "it has ended"
    member.do(RELEASE)
    assert all(transport.closed == 1 for transport in member.transports)


@pytest.mark.parametrize("started", [True, False])
def test_cancel_is_answered_once_whether_started_or_not(started: bool) -> None:
    member = Member()
    member.do(prepare())
    if started:
        member.do(START)
    answers = member.do(CANCEL, CANCEL)
    assert [answer for answer in answers if answer != "Metrics"] == ["Failed"]
    failed = member.sent[-1]
    assert isinstance(failed, messages.Failed)
    assert failed.kind == "JobCancelledError"
    assert ("join" in member.executions[0].calls) == started


def test_messages_of_other_executions_are_dropped() -> None:
    member = Member()
    member.do(prepare(5))
    assert member.do(messages.Start(execution_id=4), messages.Cancel(execution_id=4)) == []
    assert member.do(prepare(5), prepare(3)) == [], "an execution id is used once"
    assert member.executions[0].calls == ["open"]


def test_a_newer_execution_ends_the_older_one_first() -> None:
    member = Member()
    member.do(prepare(5), START)
    assert member.do(prepare(6)) == ["Prepared"]
    assert member.executions[0].calls == ["open", "start", "cancel", "join"]
    assert member.transports[0].closed == 1
    assert member.transports[1].closed == 0


def test_shutdown_ends_run_with_nothing_left() -> None:
    member = Member()
    for message in (prepare(), START, SHUTDOWN):
        member.agent.receive(message)
    member.agent.run()
    assert member.executions[0].calls[-2:] == ["cancel", "join"]
    assert member.transports[0].closed == 1


def test_a_coordinator_that_cannot_be_reached_ends_run_with_that_error_and_nothing_left() -> None:
    transport = ClosableTransport()

    def send(message: MemberMessage) -> None:
        raise TransportError("the coordinator is gone")

    agent = MemberAgent(
        lambda prepare: transport,  # type: ignore[arg-type,return-value]
        send,
        load_dag=lambda data: Dag("dag"),
        execution_factory=lambda dag, prepare, transport, deliver: ScriptedExecution(deliver),
    )
    agent.receive(prepare())
    with pytest.raises(TransportError, match="coordinator is gone"):
        agent.run()
    assert transport.closed == 1


def test_metrics_are_reported_while_it_runs() -> None:
    member = Member()
    reported = threading.Event()
    agent = MemberAgent(
        member.connect,
        lambda message: reported.set() if isinstance(message, messages.Metrics) else None,
        load_dag=lambda data: Dag("dag"),
        execution_factory=member.make,
        metrics_interval_s=0.001,
    )
    thread = threading.Thread(target=agent.run)
    thread.start()
    agent.receive(prepare())
    agent.receive(START)
    assert reported.wait(PATIENCE_S)
    agent.receive(SHUTDOWN)
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def test_metrics_are_reported_though_messages_never_stop_coming() -> None:
    member = Member()
    agent = MemberAgent(
        member.connect,
        member.sent.append,
        load_dag=lambda data: Dag("dag"),
        execution_factory=member.make,
        metrics_interval_s=1e-9,
    )
    snapshots = [messages.StartSnapshot(execution_id=5, snapshot_id=number) for number in range(1, 4)]
    for message in (prepare(), START, *snapshots, SHUTDOWN):
        agent.receive(message)
    agent.run()
    assert [type(message).__name__ for message in member.sent].count("Metrics") >= len(snapshots)


def test_delivered_rows_are_handed_over_with_the_id_of_their_publication() -> None:
    member = Member()
    member.do(prepare(), START)
    rows = pa.record_batch({"x": [1, 2, 3]})
    member.executions[0].deliver("collect", rows.slice(1), "id 7")
    delivered = member.sent[-1]
    assert isinstance(delivered, messages.Delivered)
    assert (delivered.vertex, delivered.publication) == ("collect", "id 7")
    assert delivered.rows.to_pydict() == {"x": [2, 3]}


def test_what_is_unpickled_must_be_a_graph() -> None:
    import cloudpickle

    assert unpickle_dag(cloudpickle.dumps(Dag("flights"))).name == "flights"
    with pytest.raises(TypeError, match="a dict where a Dag was expected"):
        unpickle_dag(cloudpickle.dumps({}))


def test_what_the_engine_tells_of_a_snapshot_round_goes_to_the_coordinator_in_order() -> None:
    member = Member()
    member.do(prepare(), START)
    listener = member.executions[0].listener
    assert listener is not None
    totals = StateTotals(1, 2, 3)
    listener.input_taken()
    listener.snapshot_saved(SnapshotReport(7, {"window": totals}, ["step 'sink': full"], pause_us=4, align_us=5))
    listener.snapshot_ended(7)
    assert member.do(START) == ["InputTaken", "SnapshotSaved", "SnapshotEnded"]
    ids = {"execution_id": 5, "member": 1, "snapshot_id": 7}
    assert member.sent[-2:] == [
        messages.SnapshotSaved(
            **ids, vertices={"window": totals}, errors=["step 'sink': full"], pause_us=4, align_us=5
        ),
        messages.SnapshotEnded(**ids),
    ]


def test_both_phases_of_a_snapshot_reach_the_execution_while_it_runs_and_no_other() -> None:
    member = Member()
    start = messages.StartSnapshot(execution_id=5, snapshot_id=1, kind=SnapshotKind.FINAL)
    end = messages.EndSnapshot(execution_id=5, snapshot_id=1, success=True)
    member.do(prepare(), start)  # it has not started
    old = messages.StartSnapshot(execution_id=4, snapshot_id=9)
    member.do(START, old, start, end)
    calls = member.executions[0].calls
    assert calls == ["open", "start", "start snapshot 1 final", "end snapshot 1 True"]
    member.do(CANCEL, start)  # it has ended, and the coordinator will hear of it
    assert calls[4:] == ["cancel", "join"]


def test_a_member_that_is_killed_says_and_closes_nothing_but_its_sockets_break() -> None:
    member = Member()
    member.do(prepare(), START)
    before = len(member.sent)
    member.agent.kill()
    while member.agent.handle_next():
        pass
    listener = member.executions[0].listener
    assert listener is not None
    listener.finished(JobFailedError("too late"))
    while member.agent.handle_next():
        pass
    assert member.executions[0].calls == ["open", "start", "abandon", "join"]
    assert len(member.sent) == before
    assert member.transports[0].closed == 1
    member.agent.run()  # returns at once


def test_a_thread_that_ends_without_an_error_of_a_row_is_a_lost_member() -> None:
    member = Member()
    member.do(prepare(), START)
    listener = member.executions[0].listener
    assert listener is not None
    listener.finished(SystemExit(1))
    while member.agent.handle_next():
        pass
    assert isinstance(member.sent[-1], messages.Failed)
    assert member.sent[-1].kind == "MemberLostError"
