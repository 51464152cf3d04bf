"""Decides what happens in one execution of a job: a pure machine, events in, commands out.

                     all members registered            all members prepared
    NOT_RUNNING -----------------------------> STARTING ---------------------> RUNNING
         |                                        |                           /      |
         | cancel, cluster failed                 | failed, lost, cancel     /       | all members
         |                                        v                         /        | finished
         |                                    COMPLETING <-----------------+         |
         |                                        | every member has ended           |
         +----------------> FAILED <--------------+                                  +-----> COMPLETED

    one member:  ABSENT -> REGISTERED -> PREPARING -> PREPARED -> STARTED -> ENDED
                   ^            |              (from PREPARING on: LOST instead of ENDED, at any time)
                   +--- lost ---+  before the start a lost member's successor is waited for

COMPLETING means that the outcome is decided and the remaining members have been told to cancel; the outcome is
published when every member has ended, so that nothing of the job runs any more when a user sees FAILED. A cancelled
job is FAILED with a JobCancelledError, as in Jet. The job fails with the *first* cause. One exception: a TransportError
only says that a peer went away; when the reason for that arrives while the others still end, it takes its place.

Suspension, snapshots and restarts come with their own states (SEMANTICS 6): more rows in the table below.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from jetfast.errors import InvalidTransition, JobCancelledError, TransportError


class JobStatus(Enum):
    """Where a job stands; the value is what users see."""

    NOT_RUNNING = "not running"
    STARTING = "starting"
    RUNNING = "running"
    COMPLETING = "completing"
    FAILED = "failed"
    COMPLETED = "completed"


class MemberPhase(Enum):
    """Where one member stands in the execution."""

    ABSENT = "absent"
    REGISTERED = "registered"
    PREPARING = "preparing"
    PREPARED = "prepared"
    STARTED = "started"
    ENDED = "ended"
    LOST = "lost"


TERMINAL = frozenset({JobStatus.FAILED, JobStatus.COMPLETED})
GONE = frozenset({MemberPhase.ENDED, MemberPhase.LOST})


@dataclass(frozen=True)
class MemberRegistered:
    """A member is there."""

    member: int


@dataclass(frozen=True)
class MemberPrepared:
    """A member has set up the execution."""

    member: int


@dataclass(frozen=True)
class MemberFinished:
    """All processors of a member are done."""

    member: int


@dataclass(frozen=True)
class MemberFailed:
    """The execution ended on a member with an error (JobCancelledError if it was told to cancel)."""

    member: int
    error: Exception


@dataclass(frozen=True)
class MemberLost:
    """A member died, or cannot be reached."""

    member: int
    error: Exception


@dataclass(frozen=True)
class CancelRequested:
    """The user wants the job to stop."""


@dataclass(frozen=True)
class ClusterFailed:
    """The cluster cannot give the members that the job needs, or cannot carry on."""

    error: Exception


Event = MemberRegistered | MemberPrepared | MemberFinished | MemberFailed | MemberLost | CancelRequested | ClusterFailed


@dataclass(frozen=True)
class PrepareMember:
    """Tell a member to set up the execution."""

    member: int


@dataclass(frozen=True)
class StartMember:
    """Tell a member to begin."""

    member: int


@dataclass(frozen=True)
class CancelMember:
    """Tell a member to stop."""

    member: int


@dataclass(frozen=True)
class ReleaseMember:
    """Tell a member that the execution has ended everywhere."""

    member: int


@dataclass(frozen=True)
class EndJob:
    """Publish the outcome: the error it failed with, or None. Always the last command of an execution."""

    error: Exception | None


Command = PrepareMember | StartMember | CancelMember | ReleaseMember | EndJob


class JobState:
    """One execution on `member_count` members. Not thread-safe. Who calls `handle` performs the commands in order."""

    def __init__(self, member_count: int) -> None:
        if member_count < 1:
            raise ValueError(f"member_count must be at least 1, got {member_count}")
        self.status = JobStatus.NOT_RUNNING
        self.members = [MemberPhase.ABSENT] * member_count
        self.error: Exception | None = None
        """What the job fails with; decided from COMPLETING on."""
        self._error_member: int | None = None

    def handle(self, event: Event) -> list[Command]:
        """Take in an event and return what is to be done.

        Raises InvalidTransition, with the state unchanged, if the event cannot happen now.
        """
        method = _TRANSITIONS.get((self.status, type(event)))
        if method is None:
            raise InvalidTransition(f"{event} cannot happen while the job is {self.status.value}")
        return method(self, event)

    @property
    def waiting_for(self) -> list[int]:
        """Members that have not ended yet."""
        return [member for member, phase in enumerate(self.members) if phase not in GONE]

    # Each method checks first and changes then, so that an InvalidTransition changes nothing.

    def _register(self, event: MemberRegistered) -> list[Command]:
        self._require(event, event.member, MemberPhase.ABSENT)
        self.members[event.member] = MemberPhase.REGISTERED
        if any(phase is not MemberPhase.REGISTERED for phase in self.members):
            return []
        self.status = JobStatus.STARTING
        self.members = [MemberPhase.PREPARING] * len(self.members)
        return [PrepareMember(member) for member in range(len(self.members))]

    def _lose_before_start(self, event: MemberLost) -> list[Command]:
        self._require(event, event.member, MemberPhase.REGISTERED)
        self.members[event.member] = MemberPhase.ABSENT
        return []

    def _give_up(self, event: CancelRequested | ClusterFailed) -> list[Command]:
        self.error = self._cause_of(event)
        self.status = JobStatus.FAILED
        present = [member for member, phase in enumerate(self.members) if phase is MemberPhase.REGISTERED]
        return [*(ReleaseMember(member) for member in present), EndJob(self.error)]

    def _prepare(self, event: MemberPrepared) -> list[Command]:
        self._require(event, event.member, MemberPhase.PREPARING)
        self.members[event.member] = MemberPhase.PREPARED
        if any(phase is not MemberPhase.PREPARED for phase in self.members):
            return []
        self.status = JobStatus.RUNNING
        self.members = [MemberPhase.STARTED] * len(self.members)
        return [StartMember(member) for member in range(len(self.members))]

    def _prepare_too_late(self, event: MemberPrepared) -> list[Command]:
        self._require(event, event.member, MemberPhase.PREPARING)
        self.members[event.member] = MemberPhase.PREPARED
        return []  # its Cancel is on the way

    def _finish(self, event: MemberFinished) -> list[Command]:
        self._require(event, event.member, MemberPhase.STARTED)
        self.members[event.member] = MemberPhase.ENDED
        return self._end_if_all_gone()

    def _fail(self, event: MemberFailed) -> list[Command]:
        self._require(event, event.member, MemberPhase.PREPARING, MemberPhase.PREPARED, MemberPhase.STARTED)
        self.members[event.member] = MemberPhase.ENDED
        return self._complete(event.error, event.member)

    def _lose(self, event: MemberLost) -> list[Command]:
        # A member that has ended may still be needed: rows it sent can be under way until its peers have ended too.
        self._require(event, event.member, *(set(MemberPhase) - {MemberPhase.ABSENT, MemberPhase.LOST}))
        self.members[event.member] = MemberPhase.LOST
        return self._complete(event.error, event.member)

    def _stop(self, event: CancelRequested | ClusterFailed) -> list[Command]:
        return self._complete(self._cause_of(event), None)

    def _ignore(self, event: Event) -> list[Command]:
        return []

    def _complete(self, error: Exception, member: int | None) -> list[Command]:
        """The outcome is failure: cancel whoever still runs, unless that has been done."""
        commands: list[Command] = []
        if self.status is not JobStatus.COMPLETING:
            self.status = JobStatus.COMPLETING
            self.error, self._error_member = error, member
            commands = [CancelMember(waiting) for waiting in self.waiting_for]
        elif (
            isinstance(self.error, TransportError)
            and not isinstance(error, TransportError | JobCancelledError)
            and member != self._error_member
        ):
            self.error, self._error_member = error, member
        return commands + self._end_if_all_gone()

    def _end_if_all_gone(self) -> list[Command]:
        if self.waiting_for:
            return []
        self.status = JobStatus.COMPLETED if self.error is None else JobStatus.FAILED
        reachable = [member for member, phase in enumerate(self.members) if phase is MemberPhase.ENDED]
        return [*(ReleaseMember(member) for member in reachable), EndJob(self.error)]

    def _cause_of(self, event: CancelRequested | ClusterFailed) -> Exception:
        return JobCancelledError("the job was cancelled") if isinstance(event, CancelRequested) else event.error

    def _require(self, event: Event, member: int, *allowed: MemberPhase) -> None:
        if not 0 <= member < len(self.members):
            raise InvalidTransition(f"{event} names a member that is not in [0, {len(self.members)})")
        if self.members[member] not in allowed:
            raise InvalidTransition(f"{event} cannot happen while member {member} is {self.members[member].value}")


_Method = Callable[[JobState, Any], list[Command]]  # Any: the event class of its key

_TRANSITIONS: dict[tuple[JobStatus, type], _Method] = {  # the protocol; a pair that is not here is an InvalidTransition
    (JobStatus.NOT_RUNNING, MemberRegistered): JobState._register,
    (JobStatus.NOT_RUNNING, MemberLost): JobState._lose_before_start,
    (JobStatus.NOT_RUNNING, CancelRequested): JobState._give_up,
    (JobStatus.NOT_RUNNING, ClusterFailed): JobState._give_up,
    (JobStatus.STARTING, MemberPrepared): JobState._prepare,
    (JobStatus.STARTING, MemberFailed): JobState._fail,
    (JobStatus.STARTING, MemberLost): JobState._lose,
    (JobStatus.STARTING, CancelRequested): JobState._stop,
    (JobStatus.STARTING, ClusterFailed): JobState._stop,
    (JobStatus.RUNNING, MemberFinished): JobState._finish,
    (JobStatus.RUNNING, MemberFailed): JobState._fail,
    (JobStatus.RUNNING, MemberLost): JobState._lose,
    (JobStatus.RUNNING, CancelRequested): JobState._stop,
    (JobStatus.RUNNING, ClusterFailed): JobState._stop,
    (JobStatus.COMPLETING, MemberPrepared): JobState._prepare_too_late,
    (JobStatus.COMPLETING, MemberFinished): JobState._finish,
    (JobStatus.COMPLETING, MemberFailed): JobState._fail,
    (JobStatus.COMPLETING, MemberLost): JobState._lose,
    (JobStatus.COMPLETING, CancelRequested): JobState._ignore,  # it is ending already
    (JobStatus.COMPLETING, ClusterFailed): JobState._ignore,
    (JobStatus.FAILED, MemberLost): JobState._ignore,  # members may leave once the job has ended
    (JobStatus.FAILED, CancelRequested): JobState._ignore,
    (JobStatus.FAILED, ClusterFailed): JobState._ignore,
    (JobStatus.COMPLETED, MemberLost): JobState._ignore,
    (JobStatus.COMPLETED, CancelRequested): JobState._ignore,
    (JobStatus.COMPLETED, ClusterFailed): JobState._ignore,
}
