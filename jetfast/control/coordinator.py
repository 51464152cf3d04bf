"""Wires the machines of one job: what one of them decides is an event of another. Pure: events in, commands out.

    job_state         which executions there are            BeginExecution ... ExecutionEnded
      execution_state   one execution on all members          members prepare, start, end
      snapshot_round    the snapshots of that execution       StartMember begins them, its end stops them

Members outlive executions: who has registered takes part in the next one, and who was lost is summoned again, when an
execution begins or while it still gathers its members. Another shape counts for the next execution, or for the present
one while it gathers: members that have no place in it are not there any more.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from jetfast.control.execution_state import (
    ENDED,
    EndExecution,
    ExecutionCommand,
    ExecutionEvent,
    ExecutionPhase,
    ExecutionState,
    MemberLost,
    MemberPhase,
    MemberRegistered,
    StopExecution,
)
from jetfast.control.job_events import (
    AnswerRequest,
    AwaitDelay,
    AwaitPredecessors,
    AwaitSettleTime,
    BeginExecution,
    ClusterFailed,
    EndJob,
    EndPresentExecution,
    ExecutionEnded,
    ExportAsked,
    JobCommand,
    JobEvent,
    OperationAsked,
    ReportRestart,
    ReportSuspension,
)
from jetfast.control.job_state import JobPhase, JobState
from jetfast.control.job_status import JobStatus, Operation, refusal
from jetfast.control.job_terms import JobTerms
from jetfast.control.snapshot_round import (
    Begin,
    FailExecution,
    IntervalOver,
    RoundCommand,
    RoundEvent,
    RoundPhase,
    SnapshotRounds,
    Stop,
    TerminalAsked,
)
from jetfast.control.store_commands import (
    ExportSnapshot,
    ImportSnapshot,
    ReadRecord,
    RecordRead,
    ReplaceRecord,
    StoreAnswer,
    StoreCommand,
    WriteValidation,
)
from jetfast.errors import InvalidTransition, ProtocolError


@dataclass(frozen=True)
class StoreAnswered:
    """The store has done, or failed to do, what `command` says."""

    command: StoreCommand
    answer: StoreAnswer


@dataclass(frozen=True)
class SummonMember:
    """An execution gathers its members, and this one is not there: let it come."""

    member: int


@dataclass(frozen=True)
class JobShape:
    """How large each execution is: members, partitions, and processors in the whole cluster by vertex."""

    member_count: int
    partition_count: int
    parallelism: Mapping[str, int]


@dataclass(frozen=True)
class ShapeGiven:
    """The cluster can give so many members."""

    shape: JobShape


@dataclass(frozen=True)
class AdoptShape:
    """Executions have this shape from now on; let the members go that it has no place for."""

    shape: JobShape
    surplus: tuple[int, ...]


Event = ExecutionEvent | RoundEvent | JobEvent | StoreAnswered | ShapeGiven
Command = (
    ExecutionCommand
    | RoundCommand
    | SummonMember
    | AdoptShape
    | StoreCommand
    | AwaitPredecessors
    | AwaitDelay
    | AwaitSettleTime
    | AnswerRequest
    | ReportRestart
    | ReportSuspension
    | EndJob
)


class Coordinator:
    """All decisions about one job. Not thread-safe. Who calls `handle` performs the commands in order."""

    def __init__(self, terms: JobTerms, shape: JobShape, new_execution_id: Callable[[int], int]) -> None:
        self.shape = shape
        self.job = JobState(terms, new_execution_id)
        self.execution = ExecutionState(shape.member_count)
        """The present execution, or the last one; before the first: nothing has happened to it."""
        self.begun: BeginExecution | None = None
        """What was decided of the present execution."""
        self.rounds: SnapshotRounds | None = None
        """Its snapshots; None: it takes none."""
        self.members: set[int] = set()
        """Members that are there."""
        self._next_shape: JobShape | None = None
        """What was given, and does not count yet."""
        self._awaited: StoreCommand | None = None

    def handle(self, event: Event) -> list[Command]:
        """Take in an event and return what is to be done. An event that cannot happen fails the job."""
        commands: list[Command] = []
        try:
            self._take(event, commands)
        except InvalidTransition as error:  # a bug, ours or a member's: the job must not hang because of it
            self._job(ClusterFailed(error), commands)
        return commands

    @property
    def execution_id(self) -> int:
        """Of the present execution, or of the last one; 0 before the first."""
        return 0 if self.begun is None else self.begun.execution_id

    @property
    def absent(self) -> list[int]:
        """Members that the present execution waits for, to begin."""
        if not self._is_gathering:
            return []
        return [member for member, phase in enumerate(self.execution.members) if phase is MemberPhase.ABSENT]

    @property
    def status(self) -> JobStatus:
        """Where the job stands."""
        job = self.job
        if job.phase is JobPhase.OVER:
            return JobStatus.COMPLETED if job.error is None else JobStatus.FAILED
        if job.phase is JobPhase.SUSPENDED:
            return JobStatus.SUSPENDED
        if job.phase is JobPhase.EXPORTING and job.error is None:
            return JobStatus.SUSPENDED_EXPORTING_SNAPSHOT
        if (job.settling or job.phase is JobPhase.CLOSING) and job.asked is Operation.SUSPEND:
            return JobStatus.NOT_RUNNING
        if job.settling or job.phase in (JobPhase.CLOSING, JobPhase.EXPORTING):
            return JobStatus.COMPLETING
        if job.phase is not JobPhase.EXECUTING:
            return JobStatus.NOT_RUNNING
        if self.execution.phase is ExecutionPhase.ENDING and job.goes_on_after(self.execution.error):
            return JobStatus.NOT_RUNNING
        return {
            ExecutionPhase.GATHERING: JobStatus.NOT_RUNNING,
            ExecutionPhase.PREPARING: JobStatus.STARTING,
            ExecutionPhase.RUNNING: JobStatus.RUNNING,
        }.get(self.execution.phase, JobStatus.COMPLETING)

    def _take(self, event: Event, commands: list[Command]) -> None:
        if isinstance(event, StoreAnswered):
            if event.command is self._awaited:
                self._awaited = None
                self._answer(event.answer, commands)
        elif isinstance(event, MemberRegistered):
            self._register(event, commands)
        elif isinstance(event, MemberLost):
            self._lose(event, commands)
        elif isinstance(event, ExecutionEvent):
            self._execution(event, commands)
        elif isinstance(event, OperationAsked):
            self._operate(event, commands)
        elif isinstance(event, ShapeGiven):
            self._reshape(event, commands)
        elif isinstance(event, RoundEvent):
            self._rounds(event, commands)
        else:
            self._job(event, commands)

    def _operate(self, event: OperationAsked, commands: list[Command]) -> None:
        terms, status = self.job.terms, self.status
        refused = refusal(terms.job, event.operation, status, self.job.asked, takes_snapshots=terms.keeps_record)
        if refused is not None:
            commands.append(AnswerRequest(event.request, refused))
        elif isinstance(event, ExportAsked) and status is JobStatus.RUNNING:
            self._rounds(event, commands)
        else:
            self._job(event, commands)

    def _answer(self, answer: StoreAnswer, commands: list[Command]) -> None:
        if self.job.phase is JobPhase.EXECUTING and not isinstance(answer, RecordRead):
            self._rounds(answer, commands)
        else:
            self._job(answer, commands)

    def _register(self, event: MemberRegistered, commands: list[Command]) -> None:
        if not 0 <= event.member < self.shape.member_count or event.member in self.members:
            raise InvalidTransition(f"{event} cannot happen: these are there: {sorted(self.members)}")
        self.members.add(event.member)
        if self._is_gathering:
            self._execution(event, commands)

    def _reshape(self, event: ShapeGiven, commands: list[Command]) -> None:
        self._next_shape = event.shape
        if self._is_gathering:
            assert self.begun is not None
            self._begin(self.begun, commands)

    def _adopt_shape(self, commands: list[Command]) -> None:
        if self._next_shape is None:
            return
        surplus = tuple(range(self._next_shape.member_count, self.shape.member_count))
        self.members.difference_update(surplus)
        self.shape, self._next_shape = self._next_shape, None
        commands.append(AdoptShape(self.shape, surplus))

    def _lose(self, event: MemberLost, commands: list[Command]) -> None:
        """May come more than once, and after all has ended."""
        if event.member not in self.members:
            return
        self.members.discard(event.member)
        if self._is_executing and self.execution.members[event.member] not in (MemberPhase.ABSENT, MemberPhase.LOST):
            self._execution(event, commands)
            if self.execution.phase is ExecutionPhase.GATHERING:
                commands.append(SummonMember(event.member))

    @property
    def _is_executing(self) -> bool:
        return self.begun is not None and self.execution.phase not in ENDED

    @property
    def _is_gathering(self) -> bool:
        return self._is_executing and self.execution.phase is ExecutionPhase.GATHERING

    def _job(self, event: JobEvent, commands: list[Command]) -> None:
        decided: Sequence[JobCommand] = self.job.handle(event)
        for command in decided:
            if isinstance(command, BeginExecution):
                self._begin(command, commands)
            elif isinstance(command, EndPresentExecution):
                self._end_present(command, commands)
            else:
                self._await(command)
                commands.append(command)
                if isinstance(command, EndJob):
                    self._awaited = None

    def _begin(self, command: BeginExecution, commands: list[Command]) -> None:
        self._adopt_shape(commands)
        shape = self.shape
        self.begun = command
        self.execution = ExecutionState(shape.member_count)
        self.rounds = None
        if command.claimed is not None and not command.settle_only:
            self.rounds = SnapshotRounds(
                command.claimed,
                shape.member_count,
                shape.partition_count,
                shape.parallelism,
                self.job.terms.reads_edges_first,
            )
        for member in range(shape.member_count):
            if member in self.members:
                self._execution(MemberRegistered(member), commands)
            else:
                commands.append(SummonMember(member))

    def _end_present(self, command: EndPresentExecution, commands: list[Command]) -> None:
        if command.with_snapshot and self.rounds is not None and self.execution.phase is ExecutionPhase.RUNNING:
            self._rounds(TerminalAsked(self.job.asked is Operation.CANCEL_AND_EXPORT), commands)
        else:
            self._execution(StopExecution(command.error), commands)

    def _execution(self, event: ExecutionEvent, commands: list[Command]) -> None:
        phase_before = self.execution.phase
        decided: Sequence[ExecutionCommand] = self.execution.handle(event)
        phase = self.execution.phase
        commands += (command for command in decided if not isinstance(command, EndExecution))
        if phase is ExecutionPhase.RUNNING and phase_before is not phase:
            self._rounds(Begin(), commands)
        elif phase is ExecutionPhase.ENDING and phase_before is not phase:
            self._rounds(Stop(), commands)
        if decided and isinstance(decided[-1], EndExecution):
            self._end_execution(decided[-1].error, commands)

    def _end_execution(self, error: Exception | None, commands: list[Command]) -> None:
        begun, rounds = self.begun, self.rounds
        assert begun is not None
        self._awaited = None  # what its snapshots wait for concerns nobody any more
        if rounds is None:
            self._job(ExecutionEnded(error, begun.claimed), commands)
            return
        if rounds.phase is not RoundPhase.STOPPED:
            if error is None and rounds.phase is not RoundPhase.OVER:
                error = ProtocolError("all members finished before the end of the last snapshot")
            self._rounds(Stop(), commands)
        self._job(ExecutionEnded(error, rounds.claimed), commands)

    def _rounds(self, event: RoundEvent, commands: list[Command]) -> None:
        if self.rounds is None:
            if not isinstance(event, Begin | IntervalOver | Stop):
                raise InvalidTransition(f"{event} cannot happen: this execution takes no snapshots")
            return
        decided: Sequence[RoundCommand] = self.rounds.handle(event)
        for command in decided:
            if isinstance(command, FailExecution):
                self._execution(StopExecution(command.error), commands)
            else:
                self._await(command)
                commands.append(command)

    def _await(self, command: Command) -> None:
        if isinstance(command, ReadRecord | WriteValidation | ReplaceRecord | ExportSnapshot | ImportSnapshot):
            self._awaited = command
