"""Performs what the machines of one job decide: owns the thread, the clock, the timers and the links to members.

All that happens is put into one queue (`register`, `receive`, `lost`, `cancel`, `fail`: any thread, never block); one
thread takes it out, asks the coordinator, and performs the commands. Delivered rows and metrics bypass the machines.
The snapshot store has a thread of its own, so that one that hangs holds up neither rows nor a cancellation; another one
looks now and then whether the execution record is still that of this coordinator, by which members live (`leases`).

Without threads (a simulator): do not call `start` but `begin`; then `handle_next` handles one event if there is one,
`deadline` tells when `handle_timers` has something to do, and `run_store` and `run_look` call the store when and where
they like.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, get_args

import pyarrow as pa

from jetfast.control import messages
from jetfast.control.coordinator import (
    AdoptShape,
    Command,
    Coordinator,
    Event,
    JobShape,
    ShapeGiven,
    StoreAnswered,
    SummonMember,
)
from jetfast.control.delivered_rows import DeliveredRows
from jetfast.control.execution_ids import new_execution_id
from jetfast.control.execution_state import (
    AddPartitionsOnMember,
    CancelMember,
    ExecutionPhase,
    MemberLost,
    MemberRegistered,
    PrepareMember,
    ReleaseMember,
    StartMember,
)
from jetfast.control.job_events import (
    AnswerRequest,
    AwaitDelay,
    AwaitPredecessors,
    AwaitSettleTime,
    CancelRequested,
    ClusterFailed,
    DelayOver,
    EndJob,
    OperationAsked,
    PredecessorsGone,
    ReportRestart,
    ReportSuspension,
    SettleTimeOver,
    StartJob,
)
from jetfast.control.job_outcomes import SETTLE_TIMEOUT_S
from jetfast.control.job_settings import JobSettings
from jetfast.control.job_status import TERMINAL, JobStatus
from jetfast.control.job_terms import JobTerms
from jetfast.control.leases import GrantedLeases, lease_clock
from jetfast.control.member_messages import event_of, message_of, prepare_message
from jetfast.control.messages import CoordinatorMessage, MemberMessage, Registered
from jetfast.control.open_requests import OpenRequests
from jetfast.control.ownership import Looked, Ownership
from jetfast.control.progress_explanation import explain_progress
from jetfast.control.row_rate import RowRate
from jetfast.control.snapshot_explanation import explain_snapshot
from jetfast.control.snapshot_history import SnapshotHistory
from jetfast.control.snapshot_round import (
    AwaitInterval,
    EndMember,
    IntervalOver,
    ReportRound,
    RoundPhase,
    SaveMember,
)
from jetfast.control.store_commands import (
    ReplaceRecord,
    StoreCommand,
    StoreWritten,
    perform,
)
from jetfast.control.versions import running_versions, version_difference
from jetfast.core.crash_points import reach
from jetfast.core.guarantee import Guarantee
from jetfast.engine.standstill import STANDSTILL_S
from jetfast.engine.state_writer import StateWriter, StateWriterThread
from jetfast.errors import (
    MemberLostError,
    OperationRefused,
    ProtocolError,
    ResourcesError,
    TransportError,
)

logger = logging.getLogger("jetfast")

ENDING_WARNING_S = 10.0
"""Members that have not stopped so long after the outcome was decided are named in the log, again and again."""
SLOW_ROUND_S = 60.0
"""What a snapshot waits for that is not over after so long is told in the log, again and again."""


@dataclass(frozen=True)
class SlowRound:
    """A snapshot takes long; no machine hears of it, for slowness is no reason to do anything."""


@dataclass(frozen=True)
class LookDue:
    """It is time to look whose the job is."""


Timer = (
    type[IntervalOver]
    | type[DelayOver]
    | type[SettleTimeOver]
    | type[PredecessorsGone]
    | type[SlowRound]
    | type[LookDue]
)


class MemberLink(Protocol):
    """Port: the coordinator's end of the connection to one member."""

    def send(self, message: CoordinatorMessage) -> None:
        """Hand over a message, in order; does not wait for an answer. TransportError: it cannot be reached."""

    def dismiss(self) -> None:
        """The job is over: tell the member to go. Does not wait for its end, as `close` does. Called once."""

    def close(self) -> None:
        """The job is over, or another incarnation has taken the member's place: let it go. Called once, last.

        When it returns, a member that lives for this job alone has ended.
        """


@dataclass
class MemberView:
    """What the runner knows of a member."""

    link: MemberLink
    registered: Registered
    metrics: Mapping[str, Any] = field(default_factory=dict)
    """The last Metrics.values of the present execution."""
    figures: Mapping[str, Any] = field(default_factory=dict)
    """Those that count for users: as `metrics`, but an execution that only settles has none of its own."""


@dataclass(frozen=True)
class _Registration:
    member: int
    view: MemberView


@dataclass(frozen=True)
class _Told:
    """What a member says of an execution."""

    execution_id: int
    event: Event


class Runner:
    """Runs one job. Call `start`, then `register` for each member; `wait` returns when all has ended."""

    def __init__(
        self,
        plan: JobSettings,
        *,
        clock: Callable[[], float] = time.monotonic,
        ending_warning_s: float = ENDING_WARNING_S,
        run_store: StateWriter | None = None,
        run_look: StateWriter | None = None,
        lease_clock: Callable[[], float] = lease_clock,
        new_execution_id: Callable[[int], int] = new_execution_id,
    ) -> None:
        """`run_store` and `run_look` call what works with the snapshot store, each in its order; default: threads of
        their own. `lease_clock` is that of leases.
        """
        self.plan = plan
        self.members: dict[int, MemberView] = {}
        self.error: Exception | None = None
        """What the job failed with, once it has ended."""
        self.release: Callable[[], None] = lambda: None
        """Called once at the end, after all links are closed: the cluster ends what it holds for this job, members that
        never registered included. Set before `start`."""
        self.summon: Callable[[int], None] = lambda member: None
        """Called when an execution begins, for each member that has not registered or was lost. Set before `start`."""
        self.stand_down: Callable[[int], None] = lambda member: None
        """Called for each member that has no place in it; it may be summoned again. Set before `start`."""
        self.on_end: Callable[[], None] = lambda: None
        """Called last, when the outcome is known and all that was asked of the job is answered. Set before `start`."""
        self.coordinator = Coordinator(
            JobTerms(
                plan.job,
                plan.job_id,
                keeps_record=plan.guarantee is not Guarantee.NONE,
                fresh=plan.fresh,
                initial_snapshot=plan.initial_snapshot,
                accept_loss=plan.accept_loss,
                parallelism_max=max(plan.parallelism.values(), default=0),
                members_max=plan.member_count,
                reads_edges_first=plan.reads_edges_first,
                max_restarts=plan.max_restarts,
                suspend_on_failure=plan.suspend_on_failure,
                submission=plan.submission,
                coordinator=plan.coordinator,
            ),
            JobShape(plan.member_count, plan.partition_count, plan.parallelism),
            new_execution_id,
        )
        self.snapshots = SnapshotHistory()
        self.rate = RowRate()
        self.timers: dict[Timer, float] = {}
        """When which event is due, by `clock`."""
        self._clock = clock
        self._ending_warning_s = ending_warning_s
        self._store_thread = StateWriterThread(f"jetfast-store-{plan.job}")
        self._run_store = self._store_thread if run_store is None else run_store
        self._ending_since_s: float | None = None
        """Or since members that do not end were named last."""
        self._round_started_s = 0.0
        self._delay_cause: Exception | None = None
        self._started_s = clock()
        self._ended_s: float | None = None
        self._queue: queue.SimpleQueue[Event | _Registration | _Told | Looked] = queue.SimpleQueue()
        self._ownership = Ownership(
            plan.job,
            plan.snapshot_store,
            plan.coordinator,
            plan.lease_s,
            lease_clock=lease_clock,
            run_look=run_look,
            tell=self._queue.put,
        )
        self._delivered = DeliveredRows()
        self._requests = OpenRequests()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"jetfast-coordinator-{plan.job}", daemon=True)

    @property
    def has_ended(self) -> bool:
        """Has the job ended, and are all links closed?"""
        return self._ended.is_set()

    @property
    def status(self) -> JobStatus:
        """Where the job stands. FAILED and COMPLETED are shown once all links are closed too."""
        status = self.coordinator.status
        if self._ended.is_set() and status not in TERMINAL:
            return JobStatus.FAILED  # the coordinator broke
        if status in TERMINAL and not self._ended.is_set():
            return JobStatus.COMPLETING
        return status

    @property
    def leases(self) -> GrantedLeases:
        """Of its members."""
        return self._ownership.leases

    @property
    def job_id(self) -> str:
        """Tells apart jobs of one name; a job that goes on from a snapshot keeps it."""
        begun = self.coordinator.begun
        return self.plan.job_id if begun is None or begun.claimed is None else begun.claimed.record.job_id

    @property
    def seconds(self) -> float:
        """Seconds since the runner was made, until the job ended."""
        return (self._clock() if self._ended_s is None else self._ended_s) - self._started_s

    def start(self) -> None:
        """Let the job begin, on a thread of the coordinator's own."""
        self.begin()
        if self.plan.snapshot_store is not None:
            self._store_thread.start()
        self._ownership.start()
        self._thread.start()

    def begin(self) -> None:
        """Let the job begin when the first event is handled. `start` does it."""
        self._queue.put(StartJob())
        if self._ownership.is_shared:
            self._await_look()

    def register(self, member: int, link: MemberLink, registered: Registered) -> None:
        """A member (its index in the job) is there; from now on it is spoken to through `link`."""
        self._queue.put(_Registration(member, MemberView(link, registered)))

    def receive(self, member: int, message: MemberMessage) -> None:
        """Take a message of a registered member. Those of other executions are dropped.

        ProtocolError: it cannot be what a member says.
        """
        if not isinstance(message, messages.Delivered | messages.Metrics):
            self._queue.put(_Told(message.execution_id, event_of(member, message)))
        elif message.execution_id != self.coordinator.execution_id:
            return
        elif isinstance(message, messages.Metrics):
            if (view := self.members.get(member)) is not None:
                view.metrics = message.values
                if not self._settles:
                    view.figures = message.values
                    self.rate.observe(self._clock(), member, message.values)
        else:
            self._delivered.add(message)

    def lost(self, member: int, error: Exception) -> None:
        """A member died, or its connection broke. May be called more than once, and after the end."""
        self._queue.put(MemberLost(member, error))

    def cancel(self) -> None:
        """Ask the job to stop; `wait` for it."""
        self._queue.put(CancelRequested())

    def ask(self, operation: Callable[[int], OperationAsked]) -> "Future[None]":
        """Ask for what `operation` makes of the number of a request; the future is done when that is done, or refused.

        Its error is OperationRefused, and that of the operation itself.
        """
        request, future = self._requests.add()
        self._queue.put(operation(request))
        return future

    def reshape(self, shape: JobShape) -> None:
        """The cluster can give so many members: for an execution that waits for its members, and those after it."""
        self._queue.put(ShapeGiven(shape))

    def fail(self, error: Exception) -> None:
        """The cluster cannot give the members, or cannot carry on."""
        self._queue.put(ClusterFailed(error))

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the job has ended and all links are closed; False when the time (seconds) ran out before."""
        if not self._ended.wait(timeout):
            return False
        if threading.current_thread() is not self._thread and self._thread.ident is not None:
            self._thread.join()
        return True

    def collected(self, vertex: str) -> list[pa.RecordBatch]:
        """Rows that have been delivered for a vertex so far."""
        return self._delivered.of(vertex)

    def explain_snapshot(self) -> str:
        """Return what the present snapshot waits for, or what became of the last one."""
        store = self.plan.snapshot_store
        return explain_snapshot(
            self.coordinator.rounds,
            self.snapshots,
            self.seconds - self._round_started_s,
            "the store" if store is None else store.name,
            [(member, view.metrics) for member, view in sorted(self.members.items())],
        )

    def waits_for(self) -> tuple[str, ...]:
        """Return what the job, and the snapshot that is being taken, wait for; nothing if there is progress."""
        store = self.plan.snapshot_store
        delay_over = self.timers.get(DelayOver)
        lines = explain_progress(
            self.coordinator,
            "the store" if store is None else store.name,
            None if delay_over is None else delay_over - self._clock(),
            self._delay_cause,
            [(member, view.metrics) for member, view in sorted(self.members.items())],
        )
        if self.timers.get(SlowRound) is not None and self.seconds - self._round_started_s >= STANDSTILL_S:
            lines += self.explain_snapshot().splitlines()
        return tuple(lines)

    @property
    def deadline(self) -> float | None:
        """When the next timer is due, by the clock; None: there is none."""
        return min(self.timers.values(), default=None)

    def handle_timers(self) -> bool:
        """Handle one timer that is due; False: there is none."""
        now = self._clock()
        for timer, due in self.timers.items():
            if due <= now:
                del self.timers[timer]
                event = timer()
                if isinstance(event, SlowRound):
                    self._tell_of_slow_round()
                elif isinstance(event, LookDue):
                    self._ownership.look()
                    self._await_look()
                elif isinstance(event, PredecessorsGone) and not self._ownership.is_fenced(now):
                    self._await_fence()
                else:
                    self._handle(event)
                return True
        return False

    def handle_next(self, timeout: float | None = 0.0) -> bool:
        """Handle the next event, for which it may wait (seconds; None: for ever); False: there was none."""
        try:
            event = self._queue.get(timeout=timeout) if timeout is None or timeout > 0 else self._queue.get_nowait()
        except queue.Empty:
            return False
        self._handle(event)
        return True

    def _run(self) -> None:
        try:
            while not self._ended.is_set():
                if not self.handle_timers():
                    self.handle_next(self._patience_s())
                self._tell_of_slow_end()
        except Exception as error:  # a bug, ours or the cluster's: whoever waits must not wait for ever
            logger.exception("job %s: the coordinator broke", self.plan.job)
            broken = ProtocolError(f"the coordinator broke: {type(error).__name__}: {error}")
            broken.__cause__ = error
            self._end(broken)

    @property
    def _settles(self) -> bool:
        begun = self.coordinator.begun
        return begun is not None and begun.settle_only

    @property
    def _is_ending(self) -> bool:
        return self.coordinator.execution.phase is ExecutionPhase.ENDING

    def _patience_s(self) -> float | None:
        """How long to wait for an event."""
        due_s = None if self.deadline is None else max(0.0, self.deadline - self._clock())
        if not self._is_ending:
            return due_s
        return self._ending_warning_s if due_s is None else min(due_s, self._ending_warning_s)

    def _tell_of_slow_end(self) -> None:
        now = self._clock()
        if not self._is_ending:
            self._ending_since_s = None
        elif self._ending_since_s is None:
            self._ending_since_s = now
        elif now - self._ending_since_s >= self._ending_warning_s:
            waiting_for = self.coordinator.execution.waiting_for
            logger.warning("job %s: still waiting for member(s) %s to stop", self.plan.job, waiting_for)
            self._ending_since_s = now

    def _handle(self, event: "Event | _Registration | _Told | Looked") -> None:
        if self._ended.is_set():
            return
        for command in self._decide(event):
            self._perform(command)

    def _decide(self, event: "Event | _Registration | _Told | Looked") -> list[Command]:
        if isinstance(event, _Registration):
            return self._admit(event)
        if isinstance(event, Looked):
            if self.coordinator.job.owns(event.seen.execution_id):
                self.leases.confirm(event.as_of_s)
                return []
            event = event.seen
        if isinstance(event, _Told):
            if event.execution_id != self.coordinator.execution_id:
                logger.debug("dropped %s: it belongs to another execution", event.event)
                return []
            event = event.event
        return self.coordinator.handle(event)

    def _admit(self, registration: _Registration) -> list[Command]:
        member, view = registration.member, registration.view
        if member >= self.coordinator.shape.member_count:  # it stands down
            return []
        difference = version_difference(running_versions(), view.registered.versions)
        if difference is not None:
            self.members.setdefault(member, view)  # its link is closed at the end, too
            where = f"member {member} on {view.registered.host}"
            return self.coordinator.handle(ClusterFailed(ResourcesError(f"{where} cannot take part: {difference}")))
        earlier = self.members.get(member)
        self.members[member] = view
        if earlier is not None and earlier.link is not view.link and member not in self.coordinator.members:
            self._close(member, earlier.link.close)
        return self.coordinator.handle(MemberRegistered(member))

    def _perform(self, command: Command) -> None:
        _PERFORM[type(command)](self, command)

    def _perform_store(self, command: StoreCommand) -> None:
        store = self.plan.snapshot_store
        assert store is not None

        def work() -> None:
            began_s = self._ownership.lease_clock()
            answer = perform(store, self.plan.job, command)
            if isinstance(command, ReplaceRecord) and isinstance(answer, StoreWritten):
                self.leases.confirm(began_s)
            if answer is not None:
                self._queue.put(StoreAnswered(command, answer))

        self._run_store(work)

    def _await_look(self) -> None:
        self.timers[LookDue] = self._clock() + self._ownership.look_interval_s

    def _await_predecessors(self, command: AwaitPredecessors) -> None:
        self._ownership.fence(command, self._clock())
        self._await_fence()

    def _await_fence(self) -> None:
        self.timers[PredecessorsGone] = self._ownership.next_fence_look_s(self._clock())

    def _summon(self, command: SummonMember) -> None:
        self.summon(command.member)

    def _adopt_shape(self, command: AdoptShape) -> None:
        shape = command.shape
        logger.warning("job %s: goes on with %d member(s)", self.plan.job, shape.member_count)
        self.plan = replace(self.plan, member_count=shape.member_count, parallelism=shape.parallelism)
        for member in command.surplus:
            self.members.pop(member, None)
            self.stand_down(member)

    def _prepare(self, command: PrepareMember) -> None:
        view = self.members[command.member]
        view.metrics = {}
        if not self._settles:
            view.figures = {}  # they count from the beginning of an execution
            self.rate.begin(self._clock())
        begun = self.coordinator.begun
        assert begun is not None
        addresses = [self.members[peer].registered.address for peer in range(self.plan.member_count)]
        self._send(command.member, prepare_message(self.plan, begun, command.member, addresses))

    def _tell(
        self,
        command: StartMember | AddPartitionsOnMember | CancelMember | ReleaseMember | SaveMember | EndMember,
    ) -> None:
        self._send(command.member, message_of(command, self.coordinator.execution_id))

    def _save_member(self, command: SaveMember) -> None:
        if command.member == 0:
            self._round_started_s = self.seconds
        self.timers[SlowRound] = self._clock() + SLOW_ROUND_S
        self._tell(command)

    def _end_round(self, command: EndMember) -> None:
        reach("before_phase2")
        self._tell(command)

    def _tell_of_slow_round(self) -> None:
        rounds = self.coordinator.rounds
        if rounds is not None and rounds.phase is not RoundPhase.STOPPED:
            logger.warning("job %s: %s", self.plan.job, self.explain_snapshot())
            self.timers[SlowRound] = self._clock() + SLOW_ROUND_S

    def _report_round(self, command: ReportRound) -> None:
        self.timers.pop(SlowRound, None)
        self.snapshots.add(self.coordinator.execution_id, command, self._round_started_s, self.seconds)
        if command.errors:
            errors = "; ".join(command.errors)
            logger.warning("job %s: snapshot %d failed: %s", self.plan.job, command.snapshot_id, errors)

    def _await_interval(self, command: AwaitInterval) -> None:
        self.timers[IntervalOver] = self._clock() + self.plan.snapshot_interval_s

    def _await_delay(self, command: AwaitDelay) -> None:
        when = f"in {command.seconds:.0f} s" if command.seconds else "at once"
        logger.warning("job %s: begins again %s: %s", self.plan.job, when, command.error)
        self._delay_cause = command.error
        self.timers[DelayOver] = self._clock() + command.seconds

    def _await_settle_time(self, command: AwaitSettleTime) -> None:
        self.timers[SettleTimeOver] = self._clock() + SETTLE_TIMEOUT_S

    def _end_job(self, command: EndJob) -> None:
        self._end(command.error)

    def _send(self, member: int, message: CoordinatorMessage) -> None:
        try:
            self.members[member].link.send(message)
        except (TransportError, OSError) as error:
            lost = MemberLostError(f"member {member} cannot be reached: {error}")
            lost.__cause__ = error
            self._queue.put(MemberLost(member, lost))

    def _close(self, member: int, close: Callable[[], None]) -> None:
        try:
            close()
        except Exception:
            logger.exception("job %s: closing the link to member %d failed", self.plan.job, member)

    def _end(self, error: Exception | None) -> None:
        self.timers.clear()
        for member, view in self.members.items():  # they end side by side
            self._close(member, view.link.dismiss)
        for member, view in self.members.items():
            self._close(member, view.link.close)
        try:
            self.release()
        except Exception:
            logger.exception("job %s: its cluster could not release all that it held", self.plan.job)
        self._store_thread.stop(finish=True)
        self._ownership.stop()
        self.error = error
        self._ended_s = self._clock()
        self._ended.set()
        self._requests.close(self._ended_before)
        self.on_end()

    def _ended_before(self) -> OperationRefused:
        refused = OperationRefused(f"job {self.plan.job!r} is {self.status.value}: what was asked of it is not done")
        refused.__cause__ = self.error
        return refused

    def _answer_request(self, command: AnswerRequest) -> None:
        self._requests.answer(command.request, command.error)

    def _report_restart(self, command: ReportRestart) -> None:
        if not command.from_beginning:
            logger.info("job %s: restarts from its last snapshot", self.plan.job)
        else:
            why = "it takes no snapshots" if self.plan.snapshot_store is None else "it has no snapshot yet"
            logger.warning("job %s: restarts from the beginning: %s", self.plan.job, why)

    def _report_suspension(self, command: ReportSuspension) -> None:
        goes_on = (
            "from the beginning: it takes no snapshots" if self.plan.snapshot_store is None else "where it stopped"
        )
        if command.cause is None:
            logger.info("job %s: suspended; when resumed it begins %s", self.plan.job, goes_on)
        else:
            logger.warning("job %s: suspended, to begin %s when resumed: %s", self.plan.job, goes_on, command.cause)


_PERFORM: dict[type, Callable[[Runner, Any], None]] = {  # Any: the command class of its key
    SummonMember: Runner._summon,
    AdoptShape: Runner._adopt_shape,
    PrepareMember: Runner._prepare,
    StartMember: Runner._tell,
    AddPartitionsOnMember: Runner._tell,
    CancelMember: Runner._tell,
    ReleaseMember: Runner._tell,
    SaveMember: Runner._save_member,
    EndMember: Runner._end_round,
    ReportRound: Runner._report_round,
    AwaitInterval: Runner._await_interval,
    AwaitPredecessors: Runner._await_predecessors,
    AwaitDelay: Runner._await_delay,
    AwaitSettleTime: Runner._await_settle_time,
    AnswerRequest: Runner._answer_request,
    ReportRestart: Runner._report_restart,
    ReportSuspension: Runner._report_suspension,
    EndJob: Runner._end_job,
    **{command: Runner._perform_store for command in get_args(StoreCommand)},
}
