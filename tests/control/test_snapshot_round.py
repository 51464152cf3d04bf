"""The machine of snapshot rounds: each rule of SEMANTICS 4 that it keeps, and random orders with its invariants."""

from random import Random

import pytest

from jetfast.control.snapshot_round import (
    AwaitInterval,
    Begin,
    EndMember,
    FailExecution,
    IntervalOver,
    MemberEndedRound,
    MemberReadFirstEdges,
    MemberSaved,
    MemberTookInput,
    ReportRound,
    RoundCommand,
    RoundEvent,
    RoundPhase,
    SaveMember,
    SnapshotRounds,
    Stop,
    TerminalAsked,
)
from jetfast.control.store_commands import (
    DeleteAreas,
    DeleteUndecided,
    ReplaceRecord,
    StoreFailed,
    StoreWritten,
    WriteValidation,
)
from jetfast.core.snapshot_kind import SnapshotKind
from jetfast.engine.snapshot_store import ExecutionRecord, SnapshotArea, StateTotals, ValidationRecord, VersionedRecord
from jetfast.errors import InvalidTransition, JetfastError, OutcomeUnknown, RecordConflict, RestartableError

EXECUTION = 7
BEFORE = SnapshotArea(5, 3)
REGULAR, TERMINAL, FINAL = SnapshotKind.REGULAR, SnapshotKind.TERMINAL, SnapshotKind.FINAL
TOTALS = {"source": StateTotals(1, 10, 100)}
OUT_OF_REACH = StoreFailed(RestartableError("the store cannot be reached"))


def rounds_of(member_count: int, restored: SnapshotArea | None = None) -> SnapshotRounds:
    claimed = VersionedRecord(ExecutionRecord("job", "id", EXECUTION, restored), 4)
    return SnapshotRounds(claimed, member_count, 271, {"source": 2})


def run(rounds: SnapshotRounds, *events: RoundEvent) -> list[RoundCommand]:
    return [command for event in events for command in rounds.handle(event)]


def saved(member: int, snapshot_id: int = 1, *errors: str) -> MemberSaved:
    return MemberSaved(member, snapshot_id, TOTALS, errors, pause_us=10 * member, align_us=20 * member)


def begun(member_count: int, restored: SnapshotArea | None = None) -> SnapshotRounds:
    """A machine in its first round, which has just started."""
    rounds = rounds_of(member_count, restored)
    run(rounds, Begin(), IntervalOver())
    return rounds


def deciding(member_count: int) -> SnapshotRounds:
    rounds = begun(member_count)
    run(rounds, *map(saved, range(member_count)), StoreWritten())
    assert rounds.phase is RoundPhase.DECIDING
    return rounds


def test_a_round_saves_on_all_members_and_writes_the_validation_record_then_the_execution_record() -> None:
    rounds = rounds_of(2)
    assert run(rounds, Begin()) == [AwaitInterval()]
    assert run(rounds, IntervalOver()) == [SaveMember(0, 1, REGULAR), SaveMember(1, 1, REGULAR)]
    assert run(rounds, saved(1)) == []
    area = SnapshotArea(EXECUTION, 1)
    validation = ValidationRecord(area, {"source": StateTotals(2, 20, 200)}, 271, {"source": 2})
    assert run(rounds, saved(0)) == [WriteValidation(validation)]
    decision = ReplaceRecord(ExecutionRecord("job", "id", EXECUTION, area), 4)
    assert run(rounds, StoreWritten()) == [decision]
    assert run(rounds, StoreWritten(5)) == [EndMember(0, 1, True), EndMember(1, 1, True), DeleteAreas((area,))]
    assert run(rounds, MemberEndedRound(0, 1)) == []
    report, waits = run(rounds, MemberEndedRound(1, 1))
    assert report == ReportRound(1, REGULAR, StateTotals(2, 20, 200), pause_us=10, align_us=20, errors=())
    assert waits == AwaitInterval()
    assert rounds.claimed == VersionedRecord(decision.record, 5)


def test_rounds_come_one_at_a_time_with_consecutive_ids_and_the_interval_counts_from_the_end_of_the_previous() -> None:
    rounds = begun(1)
    for event in (saved(0), StoreWritten(), StoreWritten(5)):
        assert run(rounds, IntervalOver()) == []  # a timer that is late starts nothing
        run(rounds, event)
    assert run(rounds, MemberEndedRound(0, 1))[-1] == AwaitInterval()
    assert run(rounds, IntervalOver()) == [SaveMember(0, 2, REGULAR)]


def test_phase_2_goes_to_every_member_also_after_a_failed_phase_1() -> None:
    rounds = begun(2)
    assert run(rounds, saved(0, 1, "step 'sink': disk full")) == []  # the other one answers, too
    assert run(rounds, saved(1)) == [EndMember(0, 1, False), EndMember(1, 1, False)]
    report, *_ = run(rounds, MemberEndedRound(0, 1), MemberEndedRound(1, 1))
    assert isinstance(report, ReportRound)
    assert report.errors == ("member 0: step 'sink': disk full",)
    assert rounds.claimed.record.snapshot is None
    assert run(rounds, IntervalOver()) == [SaveMember(0, 2, REGULAR), SaveMember(1, 2, REGULAR)]


def test_a_validation_record_that_cannot_be_written_fails_the_round_and_not_the_job() -> None:
    rounds = begun(1)
    assert run(rounds, saved(0), OUT_OF_REACH) == [
        WriteValidation(ValidationRecord(SnapshotArea(EXECUTION, 1), TOTALS, 271, {"source": 2})),
        EndMember(0, 1, False),
    ]


def test_an_execution_record_that_was_surely_not_written_fails_the_round_and_not_the_job() -> None:
    rounds = deciding(1)
    assert run(rounds, OUT_OF_REACH) == [EndMember(0, 1, False)]
    assert rounds.claimed.version == 4


def test_an_unknown_outcome_of_the_decision_is_followed_by_no_phase_2_of_either_kind() -> None:
    rounds = deciding(2)
    unknown = OutcomeUnknown("timed out")
    assert run(rounds, StoreFailed(unknown)) == [FailExecution(unknown)]
    assert rounds.phase is RoundPhase.STOPPED
    assert run(rounds, IntervalOver(), MemberTookInput(0), Stop()) == []


@pytest.mark.parametrize("error", [RecordConflict("version 9, not 4"), JetfastError("what is this")])
def test_a_coordinator_whose_record_was_replaced_stops(error: Exception) -> None:
    assert run(deciding(1), StoreFailed(error)) == [FailExecution(error)]


def test_two_areas_are_kept_and_no_older_one() -> None:
    rounds = begun(1, BEFORE)
    first, second = SnapshotArea(EXECUTION, 1), SnapshotArea(EXECUTION, 2)
    assert run(rounds, saved(0), StoreWritten(), StoreWritten(5))[-1] == DeleteAreas((first, BEFORE))
    run(rounds, MemberEndedRound(0, 1), IntervalOver(), saved(0, 2), StoreWritten())
    assert run(rounds, StoreWritten(6))[-1] == DeleteAreas((second, first))


def test_the_area_of_a_failed_round_is_deleted_when_all_have_answered_and_never_while_its_decision_is_unknown() -> None:
    first, second = SnapshotArea(EXECUTION, 1), SnapshotArea(EXECUTION, 2)
    rounds = begun(2, BEFORE)
    assert run(rounds, saved(0, 1, "disk full"), saved(1), MemberEndedRound(0, 1))[2:] == []
    assert DeleteUndecided(BEFORE, second) in run(rounds, MemberEndedRound(1, 1))

    for refused in ([OUT_OF_REACH], [StoreWritten(), OUT_OF_REACH]):  # validation record, execution record
        rounds = begun(1, BEFORE)
        commands = run(rounds, saved(0), *refused)
        assert not any(isinstance(command, DeleteUndecided) for command in commands)
        assert DeleteUndecided(BEFORE, second) in run(rounds, MemberEndedRound(0, 1))

    for error in (OutcomeUnknown("timed out"), RecordConflict("version 9, not 4")):
        rounds = begun(1, BEFORE)
        commands = run(rounds, saved(0), StoreWritten(), StoreFailed(error), MemberEndedRound(0, 1), Stop())
        assert not any(isinstance(command, DeleteUndecided) for command in commands)

    rounds = begun(1, BEFORE)
    commands = run(rounds, saved(0), StoreWritten(), StoreWritten(5), MemberEndedRound(0, 1))
    assert [command for command in commands if isinstance(command, DeleteUndecided)] == []
    assert rounds.claimed.record.snapshot == first


def test_the_final_round_starts_at_once_when_every_member_has_taken_in_all_input() -> None:
    rounds = rounds_of(2)
    run(rounds, Begin())
    assert run(rounds, MemberTookInput(1)) == []
    assert run(rounds, MemberTookInput(0)) == [SaveMember(0, 1, FINAL), SaveMember(1, 1, FINAL)]
    *_, decision = run(rounds, saved(0), saved(1), StoreWritten())
    assert isinstance(decision, ReplaceRecord)
    assert decision.record.completed
    run(rounds, StoreWritten(5), MemberEndedRound(0, 1))
    assert [type(command) for command in run(rounds, MemberEndedRound(1, 1))] == [ReportRound]
    assert rounds.phase is RoundPhase.OVER


def test_a_round_under_way_is_ended_before_the_final_one() -> None:
    rounds = begun(1)
    assert run(rounds, MemberTookInput(0)) == []
    *_, start = run(rounds, saved(0), StoreWritten(), StoreWritten(5), MemberEndedRound(0, 1))
    assert start == SaveMember(0, 2, FINAL)
    assert not rounds.claimed.record.completed


def test_a_final_round_that_fails_is_followed_by_another() -> None:
    rounds = rounds_of(1)
    run(rounds, Begin(), MemberTookInput(0), saved(0, 1, "disk full"))
    assert run(rounds, MemberEndedRound(0, 1))[-1] == AwaitInterval()
    assert run(rounds, IntervalOver()) == [SaveMember(0, 2, FINAL)]


def test_a_terminal_round_starts_at_once_and_ends_the_execution_without_completing_the_job() -> None:
    rounds = rounds_of(1)
    assert run(rounds, Begin(), TerminalAsked())[-1] == SaveMember(0, 1, TERMINAL)
    run(rounds, saved(0), StoreWritten(), StoreWritten(5), MemberEndedRound(0, 1))
    assert rounds.phase is RoundPhase.OVER
    assert not rounds.claimed.record.completed


def test_a_terminal_round_that_fails_ends_the_execution_at_the_last_good_snapshot() -> None:
    rounds = begun(1)
    run(rounds, TerminalAsked(), saved(0, 1, "disk full"))
    *_, start = run(rounds, MemberEndedRound(0, 1))
    assert start == SaveMember(0, 2, TERMINAL)  # the regular one failed and was ended first
    *_, failed = run(rounds, saved(0, 2, "disk full"), MemberEndedRound(0, 2))
    assert isinstance(failed, FailExecution)
    assert isinstance(failed.error, RestartableError)
    assert rounds.phase is RoundPhase.OVER


@pytest.mark.parametrize(
    "event", [saved(0, 2), saved(2), MemberEndedRound(0, 1), Begin(), StoreWritten(), MemberTookInput(2)], ids=repr
)
def test_an_answer_that_nobody_waits_for_is_an_invalid_transition_and_changes_nothing(event: RoundEvent) -> None:
    rounds = begun(2)
    before = repr(vars(rounds))
    with pytest.raises(InvalidTransition):
        rounds.handle(event)
    assert repr(vars(rounds)) == before


def reading_first(member_count: int, restored: SnapshotArea | None = None) -> SnapshotRounds:
    """A machine whose members must read edges to their end before they can save."""
    claimed = VersionedRecord(ExecutionRecord("job", "id", EXECUTION, restored), 4)
    rounds = SnapshotRounds(claimed, member_count, 271, {"source": 2}, reads_edges_first=True)
    run(rounds, Begin())
    return rounds


@pytest.mark.parametrize("saving", [False, True])
@pytest.mark.parametrize("restored", [None, BEFORE])
def test_what_is_asked_for_while_edges_are_read_first_waits_for_no_snapshot(
    saving: bool, restored: SnapshotArea | None
) -> None:
    rounds = reading_first(2, restored)
    run(rounds, *([IntervalOver()] if saving else []), MemberReadFirstEdges(1))
    (failed,) = run(rounds, TerminalAsked())
    assert isinstance(failed, FailExecution)
    assert isinstance(failed.error, RestartableError)
    assert "member(s) 0 still read an input that must end before" in str(failed.error)
    assert run(rounds, MemberReadFirstEdges(0), saved(1), Stop()) == []


def test_when_all_edges_are_read_that_come_first_a_terminal_snapshot_is_taken() -> None:
    rounds = reading_first(2)
    run(rounds, MemberReadFirstEdges(1), MemberReadFirstEdges(0))
    assert run(rounds, TerminalAsked()) == [SaveMember(0, 1, TERMINAL), SaveMember(1, 1, TERMINAL)]


def test_an_export_waits_for_edges_that_are_read_first_if_there_is_no_other_snapshot() -> None:
    assert run(reading_first(1), TerminalAsked(needs_snapshot=True)) == [SaveMember(0, 1, TERMINAL)]
    (failed,) = run(reading_first(1, BEFORE), TerminalAsked(needs_snapshot=True))
    assert isinstance(failed, FailExecution)


class Model:
    """Members and a store that answer in any order, and what must hold after each event."""

    def __init__(self, member_count: int) -> None:
        self.member_count = member_count
        self.rounds = rounds_of(member_count)
        self.pending: list[RoundEvent] = []
        """Answers that are under way."""
        self.decided: list[int] = []
        self.saving: dict[int, set[int]] = {}
        """By snapshot: members that were told to save and have not been told its end."""
        self.ended: set[tuple[int, int]] = set()

    def handle(self, event: RoundEvent, random: Random) -> None:
        if isinstance(event, StoreWritten) and self.rounds.phase is RoundPhase.DECIDING:
            self.decided.append(self.rounds.snapshot_id)
        for command in self.rounds.handle(event):
            if isinstance(command, SaveMember):
                assert not any(members for s, members in self.saving.items() if s != command.snapshot_id), "one a time"
                self.saving.setdefault(command.snapshot_id, set()).add(command.member)
                errors = ("failed",) * (random.random() < 0.1)
                self.pending.append(MemberSaved(command.member, command.snapshot_id, TOTALS, errors))
            elif isinstance(command, EndMember):
                assert command.success == (command.snapshot_id in self.decided), "phase 2 commits what is decided only"
                assert (command.snapshot_id, command.member) not in self.ended, "each member is told once"
                self.ended.add((command.snapshot_id, command.member))
                self.saving[command.snapshot_id].discard(command.member)
                self.pending.append(MemberEndedRound(command.member, command.snapshot_id))
            elif isinstance(command, WriteValidation | ReplaceRecord):
                lost = random.choice([OUT_OF_REACH, StoreFailed(OutcomeUnknown("?"))])
                self.pending.append(lost if random.random() < 0.2 else StoreWritten(command_version(command)))
            elif isinstance(command, AwaitInterval):
                self.pending.append(IntervalOver())
        snapshot = self.rounds.claimed.record.snapshot
        assert (snapshot.snapshot_id if snapshot else 0) == max(self.decided, default=0)


def command_version(command: WriteValidation | ReplaceRecord) -> int:
    return command.version + 1 if isinstance(command, ReplaceRecord) else 0


@pytest.mark.parametrize("seed", range(30))
def test_whatever_the_order_of_answers_only_decided_snapshots_are_committed_and_the_last_round_comes(seed: int) -> None:
    random = Random(seed)
    member_count = random.randint(1, 4)
    model = Model(member_count)
    model.handle(Begin(), random)
    model.pending += map(MemberTookInput, range(member_count))
    while model.pending:
        model.handle(model.pending.pop(random.randrange(len(model.pending))), random)
    if model.rounds.phase is not RoundPhase.STOPPED:
        assert model.rounds.phase is RoundPhase.OVER
        assert model.rounds.claimed.record.completed
        assert not any(model.saving.values()), "a round that was started is never given up"
