"""Decides the snapshots of one execution, one round after the other: a pure machine, events in, commands out.

              interval over, all input taken, asked          all saved              written
    WAITING ---------------------------------> SAVING ----------------> VALIDATING -------> DECIDING
       ^                                         | a member has failed       | failed         |    | replaced:
       |                                         v                           v    not written |    | decided
       +------ all answered ------------ ENDING, success False <-------------+----------------+    |
       |                                         | TERMINAL: cancel the execution                  |
       |                                         v                                                 |
       |                                       OVER                                                |
       |                                         ^ all answered, TERMINAL or FINAL                 |
       +------ all answered, REGULAR --- ENDING, success True  <-----------------------------------+
       |                                         |
       +---- copied, or not ---- EXPORTING <-----+ all answered, somebody wants it under a name

    OVER      from WAITING and SAVING, too: the execution is to end while a member reads edges that must end before
              others are read. No snapshot can be taken until then, so it ends without one
    STOPPED   from anywhere: the execution ends. From DECIDING also: the outcome is unknown, or the record is another
              coordinator's; then the execution fails without a phase 2 of either kind

A round that was started is never given up: members answer both phases whatever happens, failure is only a flag, and
the next round starts when all have answered (SEMANTICS 4). What a failed round has prepared the next one stores again.
Its area is deleted then, for it is known not to be decided; that of an unknown decision is left to the next execution.
The interval counts from the end of the previous round. When every member has taken in all its input the FINAL round
starts at once; if it fails, another follows after the interval. TERMINAL is for a restart, suspension or cancellation
that is asked for: nothing is read after its barrier, so the execution ends whether it succeeds or not.
An export is a REGULAR round that is asked for. It is copied before another round begins: so its area is still there.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, get_args

import msgspec

from jetfast.control.job_events import AnswerRequest, ExportAsked
from jetfast.control.store_commands import (
    DeleteAreas,
    DeleteUndecided,
    ExportSnapshot,
    ReplaceRecord,
    StoreFailed,
    StoreWritten,
    WriteValidation,
)
from jetfast.core.snapshot_kind import SnapshotKind
from jetfast.engine.snapshot_store import (
    NO_STATE,
    ExecutionRecord,
    SnapshotArea,
    StateTotals,
    ValidationRecord,
    VersionedRecord,
)
from jetfast.errors import InvalidTransition, OperationRefused, OutcomeUnknown, RecordConflict, RestartableError


class RoundPhase(Enum):
    """Where the present round stands; the value is what users see."""

    NEW = "not started"
    WAITING = "waiting for the next snapshot"
    SAVING = "saving state"
    VALIDATING = "writing the validation record"
    DECIDING = "writing the execution record"
    ENDING = "ending transactions"
    EXPORTING = "copying the snapshot to its name"
    OVER = "the last snapshot is taken"
    STOPPED = "stopped"


@dataclass(frozen=True)
class Begin:
    """Every member has been told to start."""


@dataclass(frozen=True)
class IntervalOver:
    """The time between two rounds has passed."""


@dataclass(frozen=True)
class MemberReadFirstEdges:
    """A member has read the edges that must end before others are read: it can save from now on."""

    member: int


@dataclass(frozen=True)
class MemberTookInput:
    """All processors of a member have taken in all their input."""

    member: int


@dataclass(frozen=True)
class MemberSaved:
    """Phase 1 is over on a member; `errors` says what failed."""

    member: int
    snapshot_id: int
    vertices: Mapping[str, StateTotals]
    errors: tuple[str, ...] = ()
    pause_us: int = 0
    align_us: int = 0


@dataclass(frozen=True)
class MemberEndedRound:
    """Phase 2 is over on a member."""

    member: int
    snapshot_id: int


@dataclass(frozen=True)
class TerminalAsked:
    """The execution is to end with a snapshot. While no member can save yet, the one before serves instead."""

    needs_snapshot: bool = False
    """Is there nothing to end with if the job has no snapshot at all? (It is to be exported.)"""


@dataclass(frozen=True)
class Stop:
    """The execution is ending without one."""


RoundEvent = (
    Begin
    | IntervalOver
    | MemberReadFirstEdges
    | MemberTookInput
    | MemberSaved
    | MemberEndedRound
    | TerminalAsked
    | ExportAsked
    | Stop
    | StoreWritten
    | StoreFailed
)


@dataclass(frozen=True)
class SaveMember:
    """Phase 1: tell a member to take a snapshot."""

    member: int
    snapshot_id: int
    kind: SnapshotKind


@dataclass(frozen=True)
class EndMember:
    """Phase 2: tell a member to commit, or that the round has failed."""

    member: int
    snapshot_id: int
    success: bool


@dataclass(frozen=True)
class AwaitInterval:
    """Say IntervalOver when the interval between snapshots has passed."""


@dataclass(frozen=True)
class FailExecution:
    """The execution cannot go on."""

    error: Exception


@dataclass(frozen=True)
class ReportRound:
    """A round is over. `errors` is empty if it has succeeded."""

    snapshot_id: int
    kind: SnapshotKind
    totals: StateTotals
    pause_us: int
    align_us: int
    errors: tuple[str, ...]


RoundCommand = (
    SaveMember
    | EndMember
    | WriteValidation
    | ReplaceRecord
    | DeleteAreas
    | DeleteUndecided
    | ExportSnapshot
    | AwaitInterval
    | FailExecution
    | ReportRound
    | AnswerRequest
)


class SnapshotRounds:
    """The snapshots of one execution. Not thread-safe. Who calls `handle` performs the commands in order.

    Parameters
    ----------
    claimed : the execution record with the id of this execution, and its version
    member_count : members, each of which answers each phase once
    partition_count, parallelism : as in `ValidationRecord`
    reads_edges_first : do members say MemberReadFirstEdges before they can save?
    """

    def __init__(
        self,
        claimed: VersionedRecord,
        member_count: int,
        partition_count: int,
        parallelism: Mapping[str, int],
        reads_edges_first: bool = False,
    ) -> None:
        self.phase = RoundPhase.NEW
        self.claimed = claimed
        """The execution record as this coordinator last wrote it."""
        self.snapshot_id = 0
        """Of the present round, or of the last one."""
        self.kind = SnapshotKind.REGULAR
        self.waiting_for: set[int] = set()
        """Members that owe an answer in this phase."""
        self.took_input: set[int] = set()
        self.reading_first: set[int] = set(range(member_count)) if reads_edges_first else set()
        """Members that cannot save yet."""
        self._members = range(member_count)
        self._partition_count = partition_count
        self._parallelism = dict(parallelism)
        self._terminal_asked = False
        self._exports: deque[ExportAsked] = deque()
        """Asked for, and not begun."""
        self._exporting: ExportAsked | None = None
        """What the present round is for."""
        self._success = False
        self._vertices: dict[str, StateTotals] = {}
        self._errors: list[str] = []
        self._pause_us = self._align_us = 0

    def handle(self, event: RoundEvent) -> list[RoundCommand]:
        """Take in an event and return what is to be done.

        Raises InvalidTransition, with the state unchanged, if the event cannot happen now.
        """
        method = _TRANSITIONS.get((self.phase, type(event)))
        if method is None:
            raise InvalidTransition(f"{event} cannot happen while the snapshot round is {self.phase.name}")
        return method(self, event)

    @property
    def area(self) -> SnapshotArea:
        """Where the present round is stored."""
        return SnapshotArea(self.claimed.record.execution_id, self.snapshot_id)

    @property
    def _next_area(self) -> SnapshotArea:
        return SnapshotArea(self.claimed.record.execution_id, self.snapshot_id + 1)

    # Each method checks first and changes then, so that an InvalidTransition changes nothing.

    def _begin(self, event: Begin) -> list[RoundCommand]:
        self.phase = RoundPhase.WAITING
        return self._start_if_due()

    def _take_input_while_waiting(self, event: MemberTookInput) -> list[RoundCommand]:
        self._take_input(event)
        if len(self.took_input) < len(self._members):
            return []
        return self._start(SnapshotKind.FINAL)

    def _take_input(self, event: MemberTookInput) -> list[RoundCommand]:
        self._require_member(event, event.member)
        if event.member in self.took_input:
            raise InvalidTransition(f"{event} has happened before")
        self.took_input.add(event.member)
        return []

    def _interval_over(self, event: IntervalOver) -> list[RoundCommand]:
        return self._start(self._due or SnapshotKind.REGULAR)

    def _read_first_edges(self, event: MemberReadFirstEdges) -> list[RoundCommand]:
        self._require_member(event, event.member)
        if event.member not in self.reading_first:
            raise InvalidTransition(f"{event} has happened before, or there are no such edges")
        self.reading_first.discard(event.member)
        return []

    def _ask_while_waiting(self, event: TerminalAsked) -> list[RoundCommand]:
        if self._must_end_without(event):
            return self._end_without_snapshot()
        self._terminal_asked = True
        return self._start(SnapshotKind.TERMINAL) if self._due is SnapshotKind.TERMINAL else []

    def _ask(self, event: TerminalAsked) -> list[RoundCommand]:
        self._terminal_asked = True
        return []

    def _ask_while_saving(self, event: TerminalAsked) -> list[RoundCommand]:
        return self._end_without_snapshot() if self._must_end_without(event) else self._ask(event)

    def _must_end_without(self, event: TerminalAsked) -> bool:
        """Would a snapshot wait for edges that are read first, which may take as long as the job?"""
        return bool(self.reading_first) and not (event.needs_snapshot and self.claimed.record.snapshot is None)

    def _end_without_snapshot(self) -> list[RoundCommand]:
        self.phase = RoundPhase.OVER
        waits = RestartableError(
            f"member(s) {', '.join(map(str, sorted(self.reading_first)))} still read an input that must end before "
            "another one is read, and no snapshot can be taken before: the last one serves instead"
        )
        return [*self._refuse_exports(), FailExecution(waits)]

    def _export_while_waiting(self, event: ExportAsked) -> list[RoundCommand]:
        self._exports.append(event)
        return [] if self._due is SnapshotKind.FINAL else self._start(SnapshotKind.REGULAR)

    def _export(self, event: ExportAsked) -> list[RoundCommand]:
        self._exports.append(event)
        return []

    def _export_too_late(self, event: ExportAsked) -> list[RoundCommand]:
        return [_no_round(event)]

    def _copied(self, event: StoreWritten | StoreFailed) -> list[RoundCommand]:
        exported = self._exporting
        assert exported is not None
        self._exporting = None
        self.phase = RoundPhase.WAITING
        error = event.error if isinstance(event, StoreFailed) else None
        return [AnswerRequest(exported.request, error), *self._start_if_due()]

    def _refuse_exports(self) -> list[RoundCommand]:
        """Nothing that was asked for comes any more."""
        refused = [] if self._exporting is None else [self._exporting]
        refused += self._exports
        self._exporting = None
        self._exports.clear()
        return [_no_round(event) for event in refused]

    @property
    def _due(self) -> SnapshotKind | None:
        """The kind of a round that is to come as soon as possible. Nothing is left to suspend, restart or export when
        all input has been taken in."""
        if len(self.took_input) == len(self._members):
            return SnapshotKind.FINAL
        if self._exports:
            return SnapshotKind.REGULAR
        return SnapshotKind.TERMINAL if self._terminal_asked else None

    def _start_if_due(self) -> list[RoundCommand]:
        return [AwaitInterval()] if self._due is None else self._start(self._due)

    def _start(self, kind: SnapshotKind) -> list[RoundCommand]:
        self.phase = RoundPhase.SAVING
        self.snapshot_id += 1
        self.kind = kind
        if kind is SnapshotKind.REGULAR and self._exports:
            self._exporting = self._exports.popleft()
        self.waiting_for = set(self._members)
        self._success = False
        self._vertices = {}
        self._errors = []
        self._pause_us = self._align_us = 0
        return [SaveMember(member, self.snapshot_id, kind) for member in self._members]

    def _saved(self, event: MemberSaved) -> list[RoundCommand]:
        self._require_answer(event, event.member, event.snapshot_id)
        self.waiting_for.discard(event.member)
        for vertex, totals in event.vertices.items():
            self._vertices[vertex] = self._vertices.get(vertex, NO_STATE) + totals
        self._errors += (f"member {event.member}: {error}" for error in event.errors)
        self._pause_us = max(self._pause_us, event.pause_us)
        self._align_us = max(self._align_us, event.align_us)
        if self.waiting_for:
            return []
        if self._errors:
            return self._end(success=False)
        self.phase = RoundPhase.VALIDATING
        record = ValidationRecord(self.area, self._vertices, self._partition_count, self._parallelism)
        return [WriteValidation(record)]

    def _validated(self, event: StoreWritten) -> list[RoundCommand]:
        self.phase = RoundPhase.DECIDING
        record = self._record_with_this_snapshot()
        # THE DECISION: when the store has taken this record, the snapshot is the truth, and phase 2 must succeed.
        return [ReplaceRecord(record, self.claimed.version)]

    def _not_written(self, event: StoreFailed) -> list[RoundCommand]:
        self._errors.append(str(event.error))
        return self._end(success=False)

    def _decided(self, event: StoreWritten) -> list[RoundCommand]:
        previous = self.claimed.record.snapshot
        self.claimed = VersionedRecord(self._record_with_this_snapshot(), event.version)
        keep = (self.area,) if previous is None else (self.area, previous)
        return [*self._end(success=True), DeleteAreas(keep)]

    def _not_decided(self, event: StoreFailed) -> list[RoundCommand]:
        if isinstance(event.error, OutcomeUnknown | RecordConflict) or not isinstance(event.error, RestartableError):
            self.phase = RoundPhase.STOPPED
            return [FailExecution(event.error)]
        return self._not_written(event)

    def _end(self, success: bool) -> list[RoundCommand]:
        self.phase = RoundPhase.ENDING
        self.waiting_for = set(self._members)
        self._success = success
        return [EndMember(member, self.snapshot_id, success) for member in self._members]

    def _ended(self, event: MemberEndedRound) -> list[RoundCommand]:
        self._require_answer(event, event.member, event.snapshot_id)
        self.waiting_for.discard(event.member)
        if self.waiting_for:
            return []
        # The decision is known to be "no": an unknown one ends in STOPPED. Nothing of the area is written any more.
        failed = DeleteUndecided(self.claimed.record.snapshot, self._next_area)
        return [self._report(), *([] if self._success else [failed]), *self._go_on()]

    def _go_on(self) -> list[RoundCommand]:
        self.phase = RoundPhase.WAITING
        failed = RestartableError("the snapshot failed: " + "; ".join(self._errors))
        if self.kind is SnapshotKind.TERMINAL and not self._success:
            self.phase = RoundPhase.OVER
            return [*self._refuse_exports(), FailExecution(failed)]
        if self.kind is not SnapshotKind.REGULAR and self._success:
            self.phase = RoundPhase.OVER
            return self._refuse_exports()
        if self._exporting is not None:
            if self._success:
                self.phase = RoundPhase.EXPORTING
                return [ExportSnapshot(self.claimed.record.job_id, self.area, self._exporting.name)]
            request, self._exporting = self._exporting.request, None
            return [AnswerRequest(request, failed), *self._start_if_due()]
        if self.kind is SnapshotKind.FINAL:  # what failed may well fail again: not at once
            return [AwaitInterval()]
        return self._start_if_due()

    def _report(self) -> ReportRound:
        totals = sum(self._vertices.values(), NO_STATE)
        return ReportRound(
            self.snapshot_id, self.kind, totals, self._pause_us, self._align_us, errors=tuple(self._errors)
        )

    def _stop(self, event: Stop) -> list[RoundCommand]:
        self.phase = RoundPhase.STOPPED
        return self._refuse_exports()

    def _ignore(self, event: RoundEvent) -> list[RoundCommand]:
        return []

    def _record_with_this_snapshot(self) -> ExecutionRecord:
        final = self.kind is SnapshotKind.FINAL
        return msgspec.structs.replace(self.claimed.record, snapshot=self.area, completed=final)

    def _require_answer(self, event: RoundEvent, member: int, snapshot_id: int) -> None:
        self._require_member(event, member)
        if snapshot_id != self.snapshot_id:
            raise InvalidTransition(f"{event} came in the round of snapshot {self.snapshot_id}")
        if member not in self.waiting_for:
            raise InvalidTransition(f"{event} has happened before")

    def _require_member(self, event: RoundEvent, member: int) -> None:
        if member not in self._members:
            raise InvalidTransition(f"{event} names a member that is not in [0, {len(self._members)})")


def _no_round(event: ExportAsked) -> AnswerRequest:
    refused = OperationRefused(f"no snapshot was exported to {event.name!r}: the execution of the job ends")
    return AnswerRequest(event.request, refused)


_Method = Callable[[SnapshotRounds, Any], list[RoundCommand]]  # Any: the event class of its key

_TRANSITIONS: dict[tuple[RoundPhase, type], _Method] = {  # the protocol; what is not here is an InvalidTransition
    (RoundPhase.NEW, Begin): SnapshotRounds._begin,
    (RoundPhase.NEW, TerminalAsked): SnapshotRounds._ask,
    (RoundPhase.NEW, ExportAsked): SnapshotRounds._export,
    (RoundPhase.NEW, IntervalOver): SnapshotRounds._ignore,  # of an earlier execution
    (RoundPhase.WAITING, IntervalOver): SnapshotRounds._interval_over,
    (RoundPhase.WAITING, MemberReadFirstEdges): SnapshotRounds._read_first_edges,
    (RoundPhase.WAITING, MemberTookInput): SnapshotRounds._take_input_while_waiting,
    (RoundPhase.WAITING, TerminalAsked): SnapshotRounds._ask_while_waiting,
    (RoundPhase.WAITING, ExportAsked): SnapshotRounds._export_while_waiting,
    (RoundPhase.SAVING, MemberSaved): SnapshotRounds._saved,
    (RoundPhase.VALIDATING, StoreWritten): SnapshotRounds._validated,
    (RoundPhase.VALIDATING, StoreFailed): SnapshotRounds._not_written,
    (RoundPhase.DECIDING, StoreWritten): SnapshotRounds._decided,
    (RoundPhase.DECIDING, StoreFailed): SnapshotRounds._not_decided,
    (RoundPhase.ENDING, MemberEndedRound): SnapshotRounds._ended,
    (RoundPhase.EXPORTING, StoreWritten): SnapshotRounds._copied,
    (RoundPhase.EXPORTING, StoreFailed): SnapshotRounds._copied,
    **{
        (phase, event): method
        for phase in (
            RoundPhase.SAVING,
            RoundPhase.VALIDATING,
            RoundPhase.DECIDING,
            RoundPhase.ENDING,
            RoundPhase.EXPORTING,
        )
        for event, method in (
            (MemberReadFirstEdges, SnapshotRounds._read_first_edges),
            (MemberTookInput, SnapshotRounds._take_input),
            (TerminalAsked, SnapshotRounds._ask),
            (ExportAsked, SnapshotRounds._export),
            (IntervalOver, SnapshotRounds._ignore),  # it was set before a last round that came earlier
        )
    },
    (RoundPhase.SAVING, TerminalAsked): SnapshotRounds._ask_while_saving,
    **{
        (phase, Stop): SnapshotRounds._stop
        for phase in RoundPhase
        if phase not in (RoundPhase.OVER, RoundPhase.STOPPED)
    },
    (RoundPhase.OVER, Stop): SnapshotRounds._ignore,
    (RoundPhase.OVER, IntervalOver): SnapshotRounds._ignore,
    (RoundPhase.OVER, TerminalAsked): SnapshotRounds._ignore,
    (RoundPhase.OVER, ExportAsked): SnapshotRounds._export_too_late,
    (RoundPhase.OVER, MemberTookInput): SnapshotRounds._take_input,
    **{  # of an execution that ends while members read edges first
        (RoundPhase.OVER, event): SnapshotRounds._ignore for event in (MemberReadFirstEdges, MemberSaved)
    },
    **{
        (RoundPhase.STOPPED, event): SnapshotRounds._ignore  # answers that were under way
        for event in get_args(RoundEvent)
        if event is not Begin
    },
    (RoundPhase.STOPPED, ExportAsked): SnapshotRounds._export_too_late,
}
