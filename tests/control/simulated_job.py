"""A model of members that obey a coordinator, with a real store that fails now and then: rows are counted by identity.

Each member reads the rows 0 .. ROWS - 1, one a step, into a transaction. Saving puts position and ids of transactions
into the snapshot; only a commit makes rows visible. A member that dies forgets all but that. Everything that is under
way arrives in any order (of one member: in its order), and each seed is one run.
"""

from collections import deque
from dataclasses import dataclass, field
from random import Random

from jetfast.control.coordinator import Command, Coordinator, Event, JobShape, StoreAnswered, SummonMember
from jetfast.control.execution_state import (
    CancelMember,
    MemberFailed,
    MemberFinished,
    MemberLost,
    MemberPrepared,
    MemberRegistered,
    PrepareMember,
    StartMember,
)
from jetfast.control.job_events import (
    AnswerRequest,
    AwaitDelay,
    AwaitSettleTime,
    CancelAndExportAsked,
    CancelRequested,
    DelayOver,
    EndJob,
    ExportAsked,
    OperationAsked,
    SettleTimeOver,
    StartJob,
)
from jetfast.control.job_status import JobStatus
from jetfast.control.job_terms import JobTerms
from jetfast.control.snapshot_round import (
    AwaitInterval,
    EndMember,
    IntervalOver,
    MemberEndedRound,
    MemberSaved,
    MemberTookInput,
    RoundPhase,
    SaveMember,
)
from jetfast.control.store_commands import (
    DeleteAreas,
    ExportSnapshot,
    ImportSnapshot,
    ReadRecord,
    ReplaceRecord,
    StoreFailed,
    StoreWritten,
    WriteValidation,
    perform,
)
from jetfast.core.snapshot_kind import SnapshotKind
from jetfast.engine.memory_snapshot_store import MemorySnapshotStore
from jetfast.engine.snapshot_store import NO_STATE, ExecutionRecord, SnapshotArea
from jetfast.errors import JobCancelledError, JobFailedError, MemberLostError, OutcomeUnknown, RestartableError

ROWS = 12
POISON = JobFailedError("a poison row")

TransactionId = tuple[int, int, int]
"""Execution, member, sequence."""


@dataclass
class Transaction:
    identity: TransactionId
    rows: list[int] = field(default_factory=list)


@dataclass
class World:
    """What outlives members: snapshots by area and member, and what the sink shows."""

    snapshots: dict[SnapshotArea, dict[int, tuple[int, list[Transaction]]]] = field(default_factory=dict)
    visible: dict[int, dict[TransactionId, list[int]]] = field(default_factory=dict)
    """By member."""
    exports: dict[str, dict[int, tuple[int, list[Transaction]]]] = field(default_factory=dict)
    """By name; without transactions."""
    first: dict[int, int] = field(default_factory=dict)
    """By member, the first row that this world is to see; else 0."""

    def rows(self, member: int) -> list[int]:
        return [row for rows in self.visible.get(member, {}).values() for row in rows]

    def commit(self, member: int, transactions: list[Transaction]) -> None:
        shown = self.visible.setdefault(member, {})
        for transaction in transactions:
            shown.setdefault(transaction.identity, list(transaction.rows))  # committing again changes nothing


class Member:
    """One member in one execution."""

    def __init__(self, world: World, index: int, execution_id: int, restore: SnapshotArea | None) -> None:
        self.world, self.index, self.execution_id = world, index, execution_id
        self.position, pending = (0, []) if restore is None else world.snapshots[restore][index]
        world.commit(index, pending)  # and what no snapshot names is gone
        self.open = Transaction((execution_id, index, 0))
        self.prepared: list[Transaction] = []
        """Saved, and not committed yet."""
        self.frozen: dict[int, int] = {}
        """By snapshot: how many of `prepared` it names."""
        self.started = self.took_input = self.stopped = False

    def read(self) -> bool:
        """Take in a row; True when that was the last one."""
        if not self.started or self.stopped or self.took_input:
            return False
        if self.position < ROWS:
            self.open.rows.append(self.position)
            self.position += 1
        self.took_input = self.position == ROWS
        return self.took_input

    def save(self, snapshot_id: int, kind: SnapshotKind) -> None:
        self.prepared.append(self.open)
        self.open = Transaction((self.execution_id, self.index, self.open.identity[2] + 1))
        self.frozen[snapshot_id] = len(self.prepared)
        area = SnapshotArea(self.execution_id, snapshot_id)
        copies = [Transaction(t.identity, list(t.rows)) for t in self.prepared]
        self.world.snapshots.setdefault(area, {})[self.index] = (self.position, copies)
        self.stopped = kind is SnapshotKind.TERMINAL

    def end(self, snapshot_id: int, success: bool) -> None:
        count = self.frozen.pop(snapshot_id)
        if success:
            self.world.commit(self.index, self.prepared[:count])
            del self.prepared[:count]


class FaultyStore(MemorySnapshotStore):
    """Fails with a probability: before it has done anything, or so that nobody knows."""

    def __init__(self, random: Random, fault: float) -> None:
        super().__init__()
        self.random, self.fault = random, fault

    def read_record(self, job):
        self._fail_before()
        return super().read_record(job)

    def write_validation(self, job, record) -> None:
        self._fail_before()
        super().write_validation(job, record)

    def replace_record(self, record: ExecutionRecord, version: int) -> int:
        self._fail_before()
        if self.random.random() < self.fault / 2:
            raise OutcomeUnknown("timed out on the way there")
        written = super().replace_record(record, version)
        if self.random.random() < self.fault / 2:
            raise OutcomeUnknown("timed out on the way back")
        return written

    def _fail_before(self) -> None:
        if self.random.random() < self.fault:
            raise RestartableError("the store cannot be reached")

    def truth(self) -> ExecutionRecord | None:
        found = MemorySnapshotStore.read_record(self, "job")
        return None if found is None else found.record


class SimulatedJob:
    """A coordinator, its members, and what is under way between them."""

    def __init__(
        self,
        seed: int,
        store: FaultyStore,
        world: World,
        *,
        members: int,
        deaths: float = 0.0,
        poison: float = 0.0,
        suspend_on_failure: bool = False,
        initial_snapshot: str | None = None,
    ) -> None:
        self.random = Random(seed)
        self.store, self.world = store, world
        self.deaths, self.poison = deaths, poison
        ids = iter(range(1, 10_000))
        terms = JobTerms(
            "job",
            "id",
            keeps_record=True,
            members_max=members,
            suspend_on_failure=suspend_on_failure,
            initial_snapshot=initial_snapshot,
        )
        self.coordinator = Coordinator(terms, JobShape(members, 271, {}), lambda last: max(next(ids), last + 1))
        self.members: dict[int, Member | None] = {}
        """Those that live, by index, and the execution that they are in."""
        self.under_way: dict[object, deque[tuple[int | None, Event]]] = {}
        """By sender; with the execution that a member speaks of."""
        self.timers: dict[type, Event] = {}
        self.outcome: list[Exception | None] = []
        self.answers: dict[int, Exception | None] = {}
        """By request."""
        self.requests = 0
        self.hung = False
        """Does the store answer nothing any more?"""
        self.put("user", StartJob())

    def put(self, sender: object, event: Event, execution_id: int | None = None) -> None:
        self.under_way.setdefault(sender, deque()).append((execution_id, event))

    def run(self, steps_max: int = 20_000) -> None:
        while not self.outcome:
            steps_max -= 1
            assert steps_max > 0, "the job must come to its end"
            self.step()

    def run_until(self, status: JobStatus) -> None:
        for _ in range(20_000):
            if self.coordinator.status is status:
                return
            self.step()
        raise AssertionError(f"the job must come to be {status.value}, it is {self.coordinator.status.value}")

    def ask(self, operation: type[OperationAsked], name: str = "named") -> int:
        """Ask for an operation at once; return the number of the request."""
        request = self.requests = self.requests + 1
        named = issubclass(operation, ExportAsked | CancelAndExportAsked)
        self.handle(operation(request, name) if named else operation(request))
        return request

    def step(self) -> None:
        random = self.random
        alive = [member for member in self.members.values() if member is not None]
        if self.members and random.random() < self.deaths:
            self.kill(random.choice(list(self.members)))
            return
        for member in alive:
            if random.random() < 0.5 and member.read():
                self.put(member.index, MemberTookInput(member.index), member.execution_id)
            if member.started and random.random() < self.poison:
                self.stop(member, POISON)
        senders = [sender for sender, events in self.under_way.items() if events]
        if self.timers and (not senders or random.random() < 0.1):
            timer = random.choice(list(self.timers))
            self.handle(self.timers.pop(timer))
        elif senders:
            execution_id, event = self.under_way[random.choice(senders)].popleft()
            if execution_id is None or execution_id == self.coordinator.execution_id:
                self.handle(event)

    def handle(self, event: Event) -> None:
        for command in self.coordinator.handle(event):
            assert not self.outcome or isinstance(command, AnswerRequest), "nothing follows the end"
            self.perform(command)
        self.check()

    def perform(self, command: Command) -> None:
        execution_id = self.coordinator.execution_id
        if isinstance(command, SummonMember):
            self.members[command.member] = None
            self.put(command.member, MemberRegistered(command.member))
        elif isinstance(
            command, ReadRecord | WriteValidation | ReplaceRecord | ExportSnapshot | ImportSnapshot | DeleteAreas
        ):
            answer = StoreFailed(OutcomeUnknown("hangs")) if self.hung else perform(self.store, "job", command)
            if isinstance(answer, StoreWritten):
                self.copy(command)
            if answer is not None and not self.hung:
                self.put("store", StoreAnswered(command, answer))
        elif isinstance(command, AwaitInterval):
            self.timers[IntervalOver] = IntervalOver()
        elif isinstance(command, AwaitDelay):
            self.timers[DelayOver] = DelayOver()
        elif isinstance(command, AwaitSettleTime):
            if self.hung:
                self.timers[SettleTimeOver] = SettleTimeOver()
        elif isinstance(command, AnswerRequest):
            assert command.request not in self.answers, "a request is answered once"
            self.answers[command.request] = command.error
        elif isinstance(command, EndJob):
            self.outcome.append(command.error)
        elif getattr(command, "member", None) in self.members:
            self.tell(command, execution_id)

    def copy(self, command: Command) -> None:
        """What the store has copied, copy in the world."""
        snapshots, exports = self.world.snapshots, self.world.exports
        if isinstance(command, ExportSnapshot):
            states = snapshots[command.area]
            for member, (position, transactions) in states.items():
                seen = self.world.visible.get(member, {})
                assert all(t.identity in seen for t in transactions), "what is exported is committed"
                assert set(self.world.rows(member)) >= set(range(self.world.first.get(member, 0), position))
            exports[command.name] = {member: (position, []) for member, (position, _) in states.items()}
        elif isinstance(command, ImportSnapshot):
            snapshots[command.area] = dict(exports[command.name])

    def tell(self, command: Command, execution_id: int) -> None:
        index: int = command.member  # type: ignore[union-attr]
        member = self.members[index]
        if isinstance(command, PrepareMember):
            begun = self.coordinator.begun
            assert begun is not None
            assert begun.claimed is not None
            restore = begun.claimed.record.snapshot
            truth = self.store.truth()
            assert truth is not None
            assert truth.execution_id == execution_id, "the record is claimed before anything is restored"
            assert truth.snapshot == restore
            others = [m for m in self.members.values() if m is not None and m.execution_id != execution_id]
            assert all(m.index not in self.coordinator.members for m in others), "nothing of an older execution runs"
            self.members[index] = Member(self.world, index, execution_id, restore)
            self.put(index, MemberPrepared(index), execution_id)
        elif member is None or member.execution_id != execution_id:
            return
        elif isinstance(command, StartMember):
            begun = self.coordinator.begun
            if begun is not None and begun.settle_only:
                self.finish(member)
            else:
                member.started = True
        elif isinstance(command, SaveMember):
            member.save(command.snapshot_id, command.kind)
            errors = ("disk full",) * (self.random.random() < self.store.fault)
            saved = MemberSaved(index, command.snapshot_id, {"v": NO_STATE}, errors)
            self.put(index, saved, execution_id)
        elif isinstance(command, EndMember):
            rounds = self.coordinator.rounds
            assert rounds is not None
            truth = self.store.truth()
            assert truth is not None
            assert command.success == (truth.snapshot == rounds.area), "phase 2 says what the record says"
            member.end(command.snapshot_id, command.success)
            self.put(index, MemberEndedRound(index, command.snapshot_id), execution_id)
            if command.success and rounds.kind.ends_execution:
                self.finish(member)
        elif isinstance(command, CancelMember):
            self.stop(member, JobCancelledError("stopped"))

    def finish(self, member: Member) -> None:
        self.members[member.index] = None
        self.put(member.index, MemberFinished(member.index), member.execution_id)

    def stop(self, member: Member, error: Exception) -> None:
        self.members[member.index] = None
        self.put(member.index, MemberFailed(member.index, error), member.execution_id)

    def kill(self, index: int) -> None:
        del self.members[index]
        self.put(index, MemberLost(index, MemberLostError(f"member {index} was killed")))

    def cancel(self) -> None:
        self.put("user", CancelRequested())

    def check(self) -> None:
        for index in self.world.visible:
            rows = self.world.rows(index)
            assert len(rows) == len(set(rows)), f"rows of member {index} are seen twice: {rows}"
            first = self.world.first.get(index, 0)
            assert sorted(rows) == list(range(first, first + len(rows))), f"rows of member {index} are missing: {rows}"
        truth = self.store.truth()
        if truth is not None and truth.snapshot is not None:
            assert truth.snapshot in self.world.snapshots
            assert self.store.list_areas("job") == [] or truth.snapshot in self.store.list_areas("job")
        rounds = self.coordinator.rounds
        if rounds is not None and rounds.phase is RoundPhase.OVER and truth is not None and not self.outcome:
            assert truth.completed or rounds.kind is SnapshotKind.TERMINAL
        if self.coordinator.status is JobStatus.SUSPENDED:
            assert all(member is None for member in self.members.values()), "nothing of a suspended job runs"
