"""Performs what `job_state` decides for one execution of a job: owns the thread, the clock and the links to members.

All that happens is put into one queue (`register`, `receive`, `lost`, `cancel`, `fail`: any thread, never block); one
thread takes it out, asks the machine, and performs the commands. Delivered rows and metrics bypass the machine.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from jetfast.control import messages
from jetfast.control.failures import Failure, rebuild
from jetfast.control.job_state import (
    TERMINAL,
    CancelMember,
    CancelRequested,
    ClusterFailed,
    Command,
    EndJob,
    Event,
    JobState,
    JobStatus,
    MemberFailed,
    MemberFinished,
    MemberLost,
    MemberPhase,
    MemberPrepared,
    MemberRegistered,
    PrepareMember,
    ReleaseMember,
    StartMember,
)
from jetfast.control.messages import CoordinatorMessage, MemberMessage, Registered
from jetfast.control.versions import running_versions, version_difference
from jetfast.core.guarantee import Guarantee
from jetfast.errors import InvalidTransition, MemberLostError, ProtocolError, ResourcesError, TransportError
from jetfast.types import PARTITION_COUNT

logger = logging.getLogger("jetfast")

ENDING_WARNING_S = 10.0
"""Members that have not stopped so long after the outcome was decided are named in the log, again and again."""


class MemberLink(Protocol):
    """Port: the coordinator's end of the connection to one member, for one execution."""

    def send(self, message: CoordinatorMessage) -> None:
        """Hand over a message, in order; does not wait for an answer. TransportError: it cannot be reached."""

    def close(self) -> None:
        """The execution is over: let the member go. Called once, last.

        When it returns, a member that lives for this job alone has ended.
        """


@dataclass(frozen=True)
class ExecutionSettings:
    """What is to be run, and how. `dag` is as `messages.Prepare.dag`."""

    job: str
    job_id: str
    execution_id: int
    dag: bytes
    member_count: int
    workers: int
    guarantee: Guarantee
    memory_limit_bytes: int
    partition_count: int = PARTITION_COUNT


@dataclass
class MemberView:
    """What the runner knows of a member."""

    link: MemberLink
    registered: Registered
    metrics: Mapping[str, Any] = field(default_factory=dict)
    """The last Metrics.values."""


@dataclass(frozen=True)
class _Registration:
    member: int
    view: MemberView


_execution_id_lock = threading.Lock()
_last_execution_id = 0


def new_execution_id() -> int:
    """Return an id greater than any this process gave out, and than those of earlier coordinators (by the clock)."""
    global _last_execution_id
    with _execution_id_lock:
        _last_execution_id = max(_last_execution_id + 1, time.time_ns() // 1000)
        return _last_execution_id


class Runner:
    """Runs one execution. Call `start`, then `register` for each member; `wait` returns when all has ended."""

    def __init__(
        self,
        plan: ExecutionSettings,
        *,
        clock: Callable[[], float] = time.monotonic,
        ending_warning_s: float = ENDING_WARNING_S,
    ) -> None:
        self.plan = plan
        self.members: dict[int, MemberView] = {}
        self.delivered: dict[str, list[pa.RecordBatch]] = {}
        """Rows of `collect` sinks, by vertex."""
        self.error: Exception | None = None
        """What the job failed with, once it has ended."""
        self.release: Callable[[], None] = lambda: None
        """Called once at the end, after all links are closed: the cluster ends what it holds for this job, members that
        never registered included. Set before `start`."""
        self._state = JobState(plan.member_count)
        self._clock = clock
        self._ending_warning_s = ending_warning_s
        self._started_s = clock()
        self._ended_s: float | None = None
        self._queue: queue.SimpleQueue[Event | _Registration] = queue.SimpleQueue()
        self._delivered_lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"jetfast-coordinator-{plan.job}", daemon=True)

    @property
    def status(self) -> JobStatus:
        """Where the job stands. FAILED and COMPLETED are shown once all links are closed too."""
        status = self._state.status
        if self._ended.is_set() and status not in TERMINAL:
            return JobStatus.FAILED  # the coordinator broke
        if status in TERMINAL and not self._ended.is_set():
            return JobStatus.COMPLETING
        return status

    @property
    def seconds(self) -> float:
        """Seconds since the runner was made, until the job ended."""
        return (self._clock() if self._ended_s is None else self._ended_s) - self._started_s

    def start(self) -> None:
        """Start the coordinator's thread."""
        self._thread.start()

    def register(self, member: int, link: MemberLink, registered: Registered) -> None:
        """A member (its index in this execution) is there; from now on it is spoken to through `link`."""
        self._queue.put(_Registration(member, MemberView(link, registered)))

    def receive(self, member: int, message: MemberMessage) -> None:
        """Take a message of a registered member. Those of other executions are dropped."""
        if message.execution_id != self.plan.execution_id:
            logger.debug("dropped %s of member %d: it belongs to another execution", type(message).__name__, member)
        elif isinstance(message, messages.Delivered):
            with pa.ipc.open_stream(message.rows) as reader:
                batches = list(reader)
            with self._delivered_lock:
                self.delivered.setdefault(message.vertex, []).extend(batches)
        elif isinstance(message, messages.Metrics):
            if (view := self.members.get(member)) is not None:
                view.metrics = message.values
        elif isinstance(message, messages.Prepared):
            self._queue.put(MemberPrepared(member))
        elif isinstance(message, messages.Finished):
            self._queue.put(MemberFinished(member))
        elif isinstance(message, messages.Failed):
            failure = Failure(message.kind, message.error, message.traceback)
            self._queue.put(MemberFailed(member, rebuild(failure, member)))
        else:
            raise InvalidTransition(f"member {member} registered a second time, inside an execution")

    def lost(self, member: int, error: Exception) -> None:
        """A member died, or its connection broke. May be called more than once, and after the end."""
        self._queue.put(MemberLost(member, error))

    def cancel(self) -> None:
        """Ask the job to stop; `wait` for it."""
        self._queue.put(CancelRequested())

    def fail(self, error: Exception) -> None:
        """The cluster cannot give the members, or cannot carry on."""
        self._queue.put(ClusterFailed(error))

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the job has ended and all links are closed; False when the time (seconds) ran out before."""
        if not self._ended.wait(timeout):
            return False
        if threading.current_thread() is not self._thread:
            self._thread.join()
        return True

    def collected(self, vertex: str) -> list[pa.RecordBatch]:
        """Rows that have been delivered for a vertex so far."""
        with self._delivered_lock:
            return list(self.delivered.get(vertex, ()))

    def _run(self) -> None:
        try:
            self._handle_events()
        except Exception as error:  # a bug, ours or the cluster's: whoever waits must not wait for ever
            logger.exception("job %s: the coordinator broke", self.plan.job)
            broken = ProtocolError(f"the coordinator broke: {type(error).__name__}: {error}")
            broken.__cause__ = error
            self._end(broken)

    def _handle_events(self) -> None:
        while not self._ended.is_set():
            ending = self._state.status is JobStatus.COMPLETING
            try:
                event = self._queue.get(timeout=self._ending_warning_s if ending else None)
            except queue.Empty:
                logger.warning("job %s: still waiting for member(s) %s to stop", self.plan.job, self._state.waiting_for)
                continue
            for command in self._decide(event):
                self._perform(command)

    def _decide(self, event: "Event | _Registration") -> list[Command]:
        try:
            if isinstance(event, _Registration):
                return self._admit(event)
            if isinstance(event, MemberLost) and self._state.members[event.member] in (
                MemberPhase.ABSENT,
                MemberPhase.LOST,
            ):
                return []  # known already
            return self._state.handle(event)
        except InvalidTransition as error:  # a bug, ours or a member's: the job must not hang because of it
            logger.exception("job %s: a protocol error", self.plan.job)
            return self._state.handle(ClusterFailed(error))

    def _admit(self, registration: _Registration) -> list[Command]:
        member, view = registration.member, registration.view
        difference = version_difference(running_versions(), view.registered.versions)
        if difference is not None:
            self.members.setdefault(member, view)  # its link is closed at the end, too
            where = f"member {member} on {view.registered.host}"
            return self._state.handle(ClusterFailed(ResourcesError(f"{where} cannot take part: {difference}")))
        commands = self._state.handle(MemberRegistered(member))
        self.members[member] = view
        return commands

    def _perform(self, command: Command) -> None:
        if isinstance(command, EndJob):
            self._end(command.error)
        elif isinstance(command, PrepareMember):
            self._send(command.member, self._prepare_message(command.member))
        elif isinstance(command, StartMember):
            self._send(command.member, messages.Start(execution_id=self.plan.execution_id))
        elif isinstance(command, CancelMember):
            self._send(command.member, messages.Cancel(execution_id=self.plan.execution_id))
        else:
            assert isinstance(command, ReleaseMember)
            self._send(command.member, messages.Release(execution_id=self.plan.execution_id))

    def _prepare_message(self, member: int) -> messages.Prepare:
        plan = self.plan
        return messages.Prepare(
            execution_id=plan.execution_id,
            job=plan.job,
            job_id=plan.job_id,
            member=member,
            member_count=plan.member_count,
            workers=plan.workers,
            peers=[self.members[peer].registered.address for peer in range(plan.member_count)],
            dag=plan.dag,
            guarantee=plan.guarantee,
            memory_limit_bytes=plan.memory_limit_bytes,
            partition_count=plan.partition_count,
        )

    def _send(self, member: int, message: CoordinatorMessage) -> None:
        try:
            self.members[member].link.send(message)
        except (TransportError, OSError) as error:
            lost = MemberLostError(f"member {member} cannot be reached: {error}")
            lost.__cause__ = error
            self._queue.put(MemberLost(member, lost))

    def _end(self, error: Exception | None) -> None:
        for member, view in self.members.items():
            try:
                view.link.close()
            except Exception:
                logger.exception("job %s: closing the link to member %d failed", self.plan.job, member)
        try:
            self.release()
        except Exception:
            logger.exception("job %s: its cluster could not release all that it held", self.plan.job)
        self.error = error
        self._ended_s = self._clock()
        self._ended.set()
