"""Decides what happens in one execution of a job: a pure machine, events in, commands out.

                   all members registered             all members prepared
    GATHERING -----------------------------> PREPARING ---------------------> RUNNING
         |                                       |                           /      |
         | stop                                  | failed, lost, stop       /       | all members
         |                                       v                         /        | finished
         |                                    ENDING <--------------------+         |
         |                                       | every member has ended           |
         +---------------> FAILED <--------------+                                  +-----> COMPLETED

    one member:  ABSENT -> REGISTERED -> PREPARING -> PREPARED -> STARTED -> ENDED
                   ^            |              (from PREPARING on: LOST instead of ENDED, at any time)
                   +--- lost ---+  before the start a lost member's successor is waited for

ENDING means that the outcome is decided and the remaining members have been told to cancel; the outcome is told when
every member has ended, so that nothing of the execution runs any more when the job is restarted or a user sees FAILED.
The execution fails with the *first* cause. One exception: a TransportError only says that a peer went away, and a
PeerUnreachableError that it did not come; when the reason for that arrives while the others still end, it takes its
place.

What follows an execution (the end of the job, a restart) is decided by `job_state`, its snapshots by `snapshot_round`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from jetfast.errors import InvalidTransition, JobCancelledError, PeerUnreachableError, TransportError


class ExecutionPhase(Enum):
    """Where an execution stands."""

    GATHERING = "gathering its members"
    PREPARING = "preparing"
    RUNNING = "running"
    ENDING = "ending"
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


ENDED = frozenset({ExecutionPhase.FAILED, ExecutionPhase.COMPLETED})
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
class MemberFoundPartitions:
    """A source on a member has partitions that came while it runs."""

    member: int
    vertex: str
    names: tuple[str, ...]
    complete: bool


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
class StopExecution:
    """It cannot or shall not go on: somebody cancelled the job, the cluster cannot carry on, ..."""

    error: Exception


ExecutionEvent = (
    MemberRegistered
    | MemberPrepared
    | MemberFoundPartitions
    | MemberFinished
    | MemberFailed
    | MemberLost
    | StopExecution
)


@dataclass(frozen=True)
class PrepareMember:
    """Tell a member to set up the execution."""

    member: int


@dataclass(frozen=True)
class StartMember:
    """Tell a member to begin."""

    member: int


@dataclass(frozen=True)
class AddPartitionsOnMember:
    """Tell a member of partitions of a source; all members hear of the same ones in the same order."""

    member: int
    vertex: str
    names: tuple[str, ...]
    complete: bool


@dataclass(frozen=True)
class CancelMember:
    """Tell a member to stop."""

    member: int


@dataclass(frozen=True)
class ReleaseMember:
    """Tell a member that the execution has ended everywhere."""

    member: int


@dataclass(frozen=True)
class EndExecution:
    """Tell the outcome: the error it failed with, or None. Always the last command of an execution."""

    error: Exception | None


ExecutionCommand = PrepareMember | StartMember | AddPartitionsOnMember | CancelMember | ReleaseMember | EndExecution


class ExecutionState:
    """One execution on `member_count` members. Not thread-safe. Who calls `handle` performs the commands in order."""

    def __init__(self, member_count: int) -> None:
        if member_count < 1:
            raise ValueError(f"member_count must be at least 1, got {member_count}")
        self.phase = ExecutionPhase.GATHERING
        self.members = [MemberPhase.ABSENT] * member_count
        self.error: Exception | None = None
        """What it fails with; decided from ENDING on."""
        self._error_member: int | None = None

    def handle(self, event: ExecutionEvent) -> list[ExecutionCommand]:
        """Take in an event and return what is to be done.

        Raises InvalidTransition, with the state unchanged, if the event cannot happen now.
        """
        method = _TRANSITIONS.get((self.phase, type(event)))
        if method is None:
            raise InvalidTransition(f"{event} cannot happen while the execution is {self.phase.value}")
        return method(self, event)

    @property
    def waiting_for(self) -> list[int]:
        """Members that have not ended yet."""
        return [member for member, phase in enumerate(self.members) if phase not in GONE]

    # Each method checks first and changes then, so that an InvalidTransition changes nothing.

    def _register(self, event: MemberRegistered) -> list[ExecutionCommand]:
        self._require(event, event.member, MemberPhase.ABSENT)
        self.members[event.member] = MemberPhase.REGISTERED
        if any(phase is not MemberPhase.REGISTERED for phase in self.members):
            return []
        self.phase = ExecutionPhase.PREPARING
        self.members = [MemberPhase.PREPARING] * len(self.members)
        return [PrepareMember(member) for member in range(len(self.members))]

    def _lose_before_start(self, event: MemberLost) -> list[ExecutionCommand]:
        self._require(event, event.member, MemberPhase.REGISTERED)
        self.members[event.member] = MemberPhase.ABSENT
        return []

    def _give_up(self, event: StopExecution) -> list[ExecutionCommand]:
        self.error = event.error
        self.phase = ExecutionPhase.FAILED
        present = [member for member, phase in enumerate(self.members) if phase is MemberPhase.REGISTERED]
        return [*(ReleaseMember(member) for member in present), EndExecution(self.error)]

    def _prepare(self, event: MemberPrepared) -> list[ExecutionCommand]:
        self._require(event, event.member, MemberPhase.PREPARING)
        self.members[event.member] = MemberPhase.PREPARED
        if any(phase is not MemberPhase.PREPARED for phase in self.members):
            return []
        self.phase = ExecutionPhase.RUNNING
        self.members = [MemberPhase.STARTED] * len(self.members)
        return [StartMember(member) for member in range(len(self.members))]

    def _prepare_too_late(self, event: MemberPrepared) -> list[ExecutionCommand]:
        self._require(event, event.member, MemberPhase.PREPARING)
        self.members[event.member] = MemberPhase.PREPARED
        return []  # its Cancel is on the way

    def _add_partitions(self, event: MemberFoundPartitions) -> list[ExecutionCommand]:
        self._require(event, event.member, MemberPhase.STARTED)
        return [AddPartitionsOnMember(member, event.vertex, event.names, event.complete) for member in self.waiting_for]

    def _finish(self, event: MemberFinished) -> list[ExecutionCommand]:
        self._require(event, event.member, MemberPhase.STARTED)
        self.members[event.member] = MemberPhase.ENDED
        return self._end_if_all_gone()

    def _fail(self, event: MemberFailed) -> list[ExecutionCommand]:
        self._require(event, event.member, MemberPhase.PREPARING, MemberPhase.PREPARED, MemberPhase.STARTED)
        self.members[event.member] = MemberPhase.ENDED
        return self._complete(event.error, event.member)

    def _lose(self, event: MemberLost) -> list[ExecutionCommand]:
        # A member that has ended may still be needed: rows it sent can be under way until its peers have ended too.
        self._require(event, event.member, *(set(MemberPhase) - {MemberPhase.ABSENT, MemberPhase.LOST}))
        self.members[event.member] = MemberPhase.LOST
        return self._complete(event.error, event.member)

    def _stop(self, event: StopExecution) -> list[ExecutionCommand]:
        return self._complete(event.error, None)

    def _ignore(self, event: ExecutionEvent) -> list[ExecutionCommand]:
        return []

    def _complete(self, error: Exception, member: int | None) -> list[ExecutionCommand]:
        """The outcome is failure: cancel whoever still runs, unless that has been done."""
        commands: list[ExecutionCommand] = []
        if self.phase is not ExecutionPhase.ENDING:
            self.phase = ExecutionPhase.ENDING
            self.error, self._error_member = error, member
            commands = [CancelMember(waiting) for waiting in self.waiting_for]
        elif (
            isinstance(self.error, TransportError | PeerUnreachableError)
            and not isinstance(error, TransportError | PeerUnreachableError | JobCancelledError)
            and member != self._error_member
        ):
            self.error, self._error_member = error, member
        return commands + self._end_if_all_gone()

    def _end_if_all_gone(self) -> list[ExecutionCommand]:
        if self.waiting_for:
            return []
        self.phase = ExecutionPhase.COMPLETED if self.error is None else ExecutionPhase.FAILED
        reachable = [member for member, phase in enumerate(self.members) if phase is MemberPhase.ENDED]
        return [*(ReleaseMember(member) for member in reachable), EndExecution(self.error)]

    def _require(self, event: ExecutionEvent, member: int, *allowed: MemberPhase) -> None:
        if not 0 <= member < len(self.members):
            raise InvalidTransition(f"{event} names a member that is not in [0, {len(self.members)})")
        if self.members[member] not in allowed:
            raise InvalidTransition(f"{event} cannot happen while member {member} is {self.members[member].value}")


_Method = Callable[[ExecutionState, Any], list[ExecutionCommand]]  # Any: the event class of its key

_TRANSITIONS: dict[tuple[ExecutionPhase, type], _Method] = {  # the protocol; what is not here is an InvalidTransition
    (ExecutionPhase.GATHERING, MemberRegistered): ExecutionState._register,
    (ExecutionPhase.GATHERING, MemberLost): ExecutionState._lose_before_start,
    (ExecutionPhase.GATHERING, StopExecution): ExecutionState._give_up,
    (ExecutionPhase.PREPARING, MemberPrepared): ExecutionState._prepare,
    (ExecutionPhase.PREPARING, MemberFailed): ExecutionState._fail,
    (ExecutionPhase.PREPARING, MemberLost): ExecutionState._lose,
    (ExecutionPhase.PREPARING, StopExecution): ExecutionState._stop,
    (ExecutionPhase.RUNNING, MemberFoundPartitions): ExecutionState._add_partitions,
    (ExecutionPhase.RUNNING, MemberFinished): ExecutionState._finish,
    (ExecutionPhase.RUNNING, MemberFailed): ExecutionState._fail,
    (ExecutionPhase.RUNNING, MemberLost): ExecutionState._lose,
    (ExecutionPhase.RUNNING, StopExecution): ExecutionState._stop,
    (ExecutionPhase.ENDING, MemberPrepared): ExecutionState._prepare_too_late,
    **{  # the next execution asks again
        (phase, MemberFoundPartitions): ExecutionState._ignore
        for phase in (ExecutionPhase.ENDING, ExecutionPhase.FAILED, ExecutionPhase.COMPLETED)
    },
    (ExecutionPhase.ENDING, MemberFinished): ExecutionState._finish,
    (ExecutionPhase.ENDING, MemberFailed): ExecutionState._fail,
    (ExecutionPhase.ENDING, MemberLost): ExecutionState._lose,
    (ExecutionPhase.ENDING, StopExecution): ExecutionState._ignore,  # it is ending already
    (ExecutionPhase.FAILED, MemberLost): ExecutionState._ignore,  # members may leave once all has ended
    (ExecutionPhase.FAILED, StopExecution): ExecutionState._ignore,
    (ExecutionPhase.COMPLETED, MemberLost): ExecutionState._ignore,
    (ExecutionPhase.COMPLETED, StopExecution): ExecutionState._ignore,
}
