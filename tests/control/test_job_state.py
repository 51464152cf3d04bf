"""The machine of a job: which executions it has, what it claims, when it begins again, settles, ends."""

from collections.abc import Callable

import msgspec
import pytest

from jetfast.control.job_events import (
    AnswerRequest,
    AwaitDelay,
    AwaitPredecessors,
    AwaitSettleTime,
    BeginExecution,
    CancelRequested,
    ClusterFailed,
    DelayOver,
    EndJob,
    EndPresentExecution,
    ExecutionEnded,
    JobCommand,
    JobEvent,
    PredecessorsGone,
    ReportSuspension,
    SettleTimeOver,
    StartJob,
    SuspendAsked,
)
from jetfast.control.job_state import JobPhase, JobState
from jetfast.control.job_terms import JobTerms
from jetfast.control.store_commands import (
    DeleteAreas,
    DeleteUndecided,
    ReadRecord,
    RecordRead,
    RecordSeen,
    ReplaceRecord,
    StoreFailed,
    StoreWritten,
)
from jetfast.core.guarantee import Guarantee
from jetfast.engine.snapshot_store import ExecutionRecord, SnapshotArea, VersionedRecord
from jetfast.engine.submission_record import CoordinatorRecord, SubmissionRecord
from jetfast.errors import (
    InvalidTransition,
    JobCancelledError,
    JobDefinitionError,
    JobFailedError,
    MemberLostError,
    OutcomeUnknown,
    RecordConflict,
    ResourcesError,
    RestartableError,
    SnapshotDamaged,
    StoreUnavailable,
)

LOST = MemberLostError("member 1 is gone")
CUT_OFF = StoreUnavailable("the store does not answer")
POISON = JobFailedError("x / 0")
SNAPSHOT = SnapshotArea(50, 3)
BEFORE = ExecutionRecord("job", "first", 50, SNAPSHOT, parallelism_max=8, members_max=4)


def job(**terms: object) -> JobState:
    ids = iter(range(100, 1000))
    settings = {"keeps_record": True, "parallelism_max": 2, "members_max": 1, **terms}
    return JobState(JobTerms("job", "id", **settings), lambda last: max(next(ids), last + 1))  # type: ignore[arg-type]


def run(state: JobState, *events: JobEvent) -> list[JobCommand]:
    return [command for event in events for command in state.handle(event)]


def found(record: ExecutionRecord | None, version: int = 9) -> RecordRead:
    return RecordRead(None if record is None else VersionedRecord(record, version))


def executing(state: JobState, record: ExecutionRecord | None = None) -> VersionedRecord:
    """Bring a job into an execution; return its claim."""
    *_, begin = run(state, StartJob(), found(record), StoreWritten(10))
    assert isinstance(begin, BeginExecution)
    assert begin.claimed is not None
    return begin.claimed


def again(state: JobState, claimed: VersionedRecord) -> VersionedRecord:
    """Bring a delayed job into its next execution; the record is as it was left."""
    *_, begin = run(state, DelayOver(), RecordRead(claimed), StoreWritten(claimed.version + 1))
    assert isinstance(begin, BeginExecution)
    assert begin.claimed is not None
    return begin.claimed


def closing(claimed: VersionedRecord, *, suspended: bool = False) -> ReplaceRecord:
    """What is written when all transactions are settled."""
    closed = msgspec.structs.replace(claimed.record, settled=True, suspended=suspended)
    return ReplaceRecord(closed, claimed.version)


def settled(claimed: VersionedRecord) -> list[JobEvent]:
    """An execution has ended as it should, and the record says that all is settled."""
    return [ExecutionEnded(None, claimed), StoreWritten(claimed.version + 1)]


def with_snapshot(claimed: VersionedRecord, completed: bool = False) -> VersionedRecord:
    record = claimed.record
    area = SnapshotArea(record.execution_id, 1)
    decided = ExecutionRecord(record.job, record.job_id, record.execution_id, area, completed=completed)
    return VersionedRecord(decided, claimed.version + 1)


def test_without_a_guarantee_nothing_is_read_or_claimed_and_the_first_execution_is_the_only_one() -> None:
    for error in (None, LOST, POISON):
        state = job(keeps_record=False)
        assert run(state, StartJob()) == [BeginExecution(100, None, settle_only=False)]
        assert run(state, ExecutionEnded(error, None)) == [EndJob(error)]
        assert state.error is error


def test_starting_an_execution_is_a_compare_and_set_of_the_record_with_a_new_execution_id() -> None:
    state = job()
    assert run(state, StartJob()) == [ReadRecord()]
    claim = ExecutionRecord("job", "id", 100, parallelism_max=2, members_max=1)
    assert run(state, found(None)) == [ReplaceRecord(claim, 0)]
    assert run(state, StoreWritten(1)) == [
        DeleteUndecided(None, SnapshotArea(100, 0)),
        BeginExecution(100, VersionedRecord(claim, 1), settle_only=False),
    ]


def test_a_record_with_a_decided_snapshot_is_restored_from_and_keeps_the_largest_sizes_and_the_id_of_its_job() -> None:
    claimed = executing(job(), BEFORE)
    assert claimed.record == ExecutionRecord("job", "first", 100, SNAPSHOT, parallelism_max=8, members_max=4)


def test_an_execution_id_is_greater_than_that_of_the_record_whatever_the_clock_says() -> None:
    claimed = executing(job(), ExecutionRecord("job", "first", 5000, SNAPSHOT))
    assert claimed.record.execution_id == 5001


def test_who_claims_the_job_of_another_coordinator_waits_for_the_end_of_its_members() -> None:
    unsure, other = CoordinatorRecord(lease_us=5_000_000), CoordinatorRecord(lease_us=1)
    own = CoordinatorRecord(lease_us=7)
    state = job(coordinator=own)
    found_them = RecordRead(VersionedRecord(BEFORE, 9), uncertain=(unsure, other))
    (claim,) = run(state, StartJob(), found_them)[1:]
    assert isinstance(claim, ReplaceRecord)
    assert claim.record.coordinators == (unsure, other, own), "if this one dies, the next one waits for all of them"
    assert run(state, StoreWritten(10)) == [AwaitPredecessors((unsure, other))]
    assert state.phase is JobPhase.FENCING
    claimed = VersionedRecord(claim.record, 10)
    assert run(state, PredecessorsGone()) == [
        DeleteUndecided(SNAPSHOT, SnapshotArea(100, 0)),  # not before: their members may write to it
        BeginExecution(100, claimed, settle_only=False),
    ]
    run(state, ExecutionEnded(LOST, claimed))
    (again_claimed,) = run(state, DelayOver(), RecordRead(claimed, uncertain=(unsure, own)))[1:]
    assert isinstance(again_claimed, ReplaceRecord)
    assert again_claimed.record.coordinators == (own,), "it has waited for the others"
    *_, begin = run(state, StoreWritten(11))
    assert isinstance(begin, BeginExecution)


def test_who_waits_for_others_can_be_cancelled_and_settles_only_after_them() -> None:
    state = job()
    unsure = CoordinatorRecord(lease_us=5_000_000)
    run(state, StartJob(), RecordRead(VersionedRecord(BEFORE, 9), uncertain=(unsure,)), StoreWritten(10))
    assert run(state, CancelRequested()) == [AwaitSettleTime()]
    *_, begin = run(state, PredecessorsGone())
    assert isinstance(begin, BeginExecution)
    assert begin.settle_only


def test_a_coordinator_that_sees_another_ones_execution_in_the_record_ends_in_whatever_phase() -> None:
    stranger = RecordSeen(777)
    state = job()
    assert run(state, stranger, StartJob(), stranger) == [ReadRecord()], "it has not claimed anything yet"

    state = job()
    claimed = executing(state, BEFORE)
    assert run(state, RecordSeen(BEFORE.execution_id), RecordSeen(claimed.record.execution_id)) == []
    (stop,) = run(state, stranger)
    assert isinstance(stop, EndPresentExecution)
    assert "has been taken over by execution 777" in str(stop.error)
    assert run(state, ExecutionEnded(stop.error, claimed)) == [EndJob(stop.error)]

    state = job()
    run(state, ExecutionEnded(LOST, executing(state, BEFORE)))
    (end,) = run(state, RecordSeen(None))
    assert isinstance(end, EndJob)
    assert "the execution record of job 'job' has gone" in str(end.error)


def test_a_fresh_job_forgets_the_snapshot_but_only_once() -> None:
    state = job(fresh=True)
    claimed = executing(state, BEFORE)
    assert claimed.record.snapshot is None
    assert claimed.record.job_id == "first", "transactions that are left are rolled back as those of this job"
    decided = with_snapshot(claimed)
    run(state, ExecutionEnded(LOST, decided))
    assert again(state, decided).record.snapshot == decided.record.snapshot


def test_a_completed_job_is_refused_unless_it_is_fresh() -> None:
    closed = ExecutionRecord("job", "first", 50, SNAPSHOT, completed=True, settled=True)
    (end,) = run(job(), StartJob(), found(closed))[1:]
    assert isinstance(end, EndJob)
    assert isinstance(end.error, JobDefinitionError)
    again = executing(job(fresh=True), closed).record
    assert (again.completed, again.settled, again.job_id) == (False, False, "id")


def test_a_crash_after_the_last_decision_leaves_only_to_commit() -> None:
    state = job()
    claimed = executing_settle(state, ExecutionRecord("job", "first", 50, SNAPSHOT, completed=True))
    _, closing, _ = run(state, ExecutionEnded(None, claimed))
    assert isinstance(closing, ReplaceRecord)
    assert closing.record.settled
    assert run(state, StoreWritten(11)) == [EndJob(None)]


def executing_settle(state: JobState, record: ExecutionRecord) -> VersionedRecord:
    *_, begin = run(state, StartJob(), found(record), StoreWritten(10))
    assert isinstance(begin, BeginExecution)
    assert begin.settle_only
    assert begin.claimed is not None
    return begin.claimed


def test_a_completed_job_tries_for_ever_to_commit_when_that_may_succeed_later() -> None:
    state = job(max_restarts=0)
    claimed = executing_settle(state, ExecutionRecord("job", "first", 50, SNAPSHOT, completed=True))
    assert run(state, ExecutionEnded(CUT_OFF, claimed)) == [AwaitDelay(1.0, CUT_OFF)]
    assert again(state, claimed).record.completed


def test_a_job_is_completed_when_its_last_snapshot_is_decided_and_its_execution_has_ended() -> None:
    state = job()
    decided = with_snapshot(executing(state), completed=True)
    cleaning, closing, timer = run(state, ExecutionEnded(None, decided))
    assert isinstance(closing, ReplaceRecord)
    assert (closing.record.settled, closing.version) == (True, decided.version)
    assert decided.record.snapshot is not None
    assert (cleaning, timer) == (DeleteAreas((decided.record.snapshot,)), AwaitSettleTime())
    assert run(state, StoreWritten(12)) == [EndJob(None)]


@pytest.mark.parametrize("event", [StoreFailed(CUT_OFF), CancelRequested(), SettleTimeOver()], ids=repr)
def test_a_completed_job_does_not_hang_on_a_store_that_cannot_take_down_that_nothing_is_left(event: JobEvent) -> None:
    state = job()
    run(state, ExecutionEnded(None, with_snapshot(executing(state), completed=True)))
    assert run(state, event) == [EndJob(None)]


def test_members_that_finish_before_the_last_snapshot_are_an_error_and_not_a_completed_job() -> None:
    state = job()
    assert run(state, ExecutionEnded(None, executing(state)))[-1] == ReadRecord()
    assert "before the last snapshot" in str(state.error)


def test_a_restartable_error_begins_again_after_1_s_doubling_to_60_s_until_a_snapshot_is_decided() -> None:
    state = job()
    claimed = executing(state)
    for seconds in (1, 2, 4, 8, 16, 32, 60, 60):
        assert run(state, ExecutionEnded(CUT_OFF, claimed)) == [AwaitDelay(seconds, CUT_OFF)]
        claimed = again(state, claimed)
    assert state.restarts == 8
    assert run(state, ExecutionEnded(CUT_OFF, with_snapshot(claimed))) == [AwaitDelay(1, CUT_OFF)]


def test_the_first_member_that_is_lost_since_a_snapshot_was_decided_is_replaced_at_once_the_next_ones_are_not() -> None:
    state = job()
    claimed = executing(state)
    for seconds in (0, 1, 2):
        assert run(state, ExecutionEnded(LOST, claimed)) == [AwaitDelay(seconds, LOST)]
        claimed = again(state, claimed)
    assert run(state, ExecutionEnded(LOST, with_snapshot(claimed))) == [AwaitDelay(0, LOST)]
    assert state.restarts == 4


def test_a_store_out_of_reach_is_a_restartable_error_of_an_attempt() -> None:
    state = job()
    assert run(state, StartJob(), StoreFailed(CUT_OFF))[1:] == [AwaitDelay(1, CUT_OFF)]
    unknown = OutcomeUnknown("?")
    assert run(state, DelayOver(), found(None), StoreFailed(unknown))[2:] == [AwaitDelay(2, unknown)]
    own = ExecutionRecord("job", "id", 100)  # it was written after all
    assert isinstance(run(state, DelayOver(), found(own, 1))[-1], ReplaceRecord)


def test_restarts_end_with_max_restarts() -> None:
    state = job(max_restarts=1)
    claimed = executing(state)
    run(state, ExecutionEnded(LOST, claimed))
    claimed = again(state, claimed)
    assert run(state, ExecutionEnded(LOST, claimed)) == [AwaitSettleTime(), ReadRecord()]
    *_, settle = run(state, RecordRead(claimed), StoreWritten(99))
    assert isinstance(settle, BeginExecution)
    assert settle.settle_only
    assert settle.claimed is not None
    assert run(state, *settled(settle.claimed))[1:] == [EndJob(LOST)]


def test_a_poison_row_does_not_restart_and_its_job_settles_what_the_last_snapshot_names() -> None:
    state = job()
    decided = with_snapshot(executing(state))
    assert run(state, ExecutionEnded(POISON, decided)) == [AwaitSettleTime(), ReadRecord()]
    *_, settle = run(state, RecordRead(decided), StoreWritten(99))
    assert isinstance(settle, BeginExecution)
    assert settle.claimed is not None
    assert (settle.settle_only, settle.claimed.record.snapshot) == (True, decided.record.snapshot)
    assert run(state, ExecutionEnded(None, settle.claimed)) == [closing(settle.claimed)]
    assert run(state, StoreWritten(12)) == [EndJob(POISON)]


def submission(*settling_steps: str) -> SubmissionRecord:
    return SubmissionRecord(
        cluster="local", members=1, workers=1, pipeline="p", pipeline_digest="", settling_steps=settling_steps,
        guarantee=Guarantee.EXACTLY_ONCE, snapshot_interval_us=1, memory_limit_bytes=1,
    )  # fmt: skip


def test_a_pipeline_that_lacks_a_sink_is_refused_until_all_its_transactions_are_settled() -> None:
    state = job(submission=submission("in", "out"))
    left = with_snapshot(executing(state)).record
    left = msgspec.structs.replace(left, submission=submission("in", "out"))
    changed = job(submission=submission("in", "more"))
    (end,) = run(changed, StartJob(), found(left))[1:]
    assert isinstance(end, EndJob)
    assert isinstance(end.error, JobDefinitionError)
    assert "cannot go on without 'out'" in str(end.error)
    for accepted in (msgspec.structs.replace(left, settled=True), msgspec.structs.replace(left, submission=None)):
        claimed = executing(job(submission=submission("in", "more")), accepted).record
        assert (claimed.snapshot, claimed.job_id, claimed.settled) == (left.snapshot, left.job_id, False)
    assert executing(job(submission=submission("in", "out", "more")), left).record.snapshot == left.snapshot
    assert executing(job(submission=submission(), fresh=True), left).record.snapshot is None


@pytest.mark.parametrize("event", [StoreWritten(12), StoreFailed(LOST), SettleTimeOver()], ids=repr)
def test_a_suspended_job_records_that_and_that_all_is_settled_if_the_store_takes_it(event: JobEvent) -> None:
    state = job()
    decided = with_snapshot(executing(state))
    run(state, SuspendAsked(1))
    assert run(state, ExecutionEnded(None, decided)) == [closing(decided, suspended=True), AwaitSettleTime()]
    assert run(state, SuspendAsked(2)) == []
    assert run(state, event) == [ReportSuspension(None), AnswerRequest(1), AnswerRequest(2)]


def test_a_job_that_is_cancelled_while_it_says_that_all_is_settled_ends_at_once() -> None:
    state = job()
    decided = with_snapshot(executing(state))
    run(state, SuspendAsked(1), ExecutionEnded(None, decided))
    (end,) = run(state, CancelRequested())
    assert isinstance(end, EndJob)
    assert isinstance(end.error, JobCancelledError)


def test_settling_goes_on_until_its_time_is_over_and_then_the_outcome_says_so() -> None:
    state = job()
    claimed = executing(state)
    error = JobFailedError("x / 0")
    run(state, ExecutionEnded(error, claimed))
    assert run(state, StoreFailed(CUT_OFF)) == [AwaitDelay(1, CUT_OFF)]
    assert run(state, SettleTimeOver()) == [EndJob(error)]
    assert "submitting the job again does both" in error.__notes__[0]


def test_a_settling_execution_that_takes_too_long_is_stopped() -> None:
    state = job()
    claimed = executing(state)
    error = JobFailedError("x / 0")
    run(state, ExecutionEnded(error, claimed), RecordRead(claimed), StoreWritten(11))
    (stop,) = run(state, SettleTimeOver())
    assert isinstance(stop, EndPresentExecution)
    assert run(state, ExecutionEnded(stop.error, claimed)) == [EndJob(error)]


def test_a_commit_that_fails_for_good_is_said_with_the_outcome() -> None:
    state = job()
    claimed = executing(state)
    error = JobFailedError("x / 0")
    run(state, ExecutionEnded(error, claimed), RecordRead(claimed), StoreWritten(11))
    assert run(state, ExecutionEnded(JobFailedError("data is lost"), claimed)) == [EndJob(error)]
    assert "data is lost" in error.__notes__[0]


def test_a_commit_of_a_completed_job_that_fails_for_good_is_its_outcome() -> None:
    state = job()
    claimed = executing_settle(state, ExecutionRecord("job", "first", 50, SNAPSHOT, completed=True))
    assert run(state, ExecutionEnded(POISON, claimed)) == [EndJob(POISON)]


def test_a_coordinator_that_finds_the_execution_of_another_in_the_record_stops_and_settles_nothing() -> None:
    state = job()
    run(state, ExecutionEnded(LOST, executing(state)))
    (end,) = run(state, DelayOver(), found(ExecutionRecord("job", "other", 777)))[1:]
    assert isinstance(end, EndJob)
    assert isinstance(end.error, RecordConflict)
    assert "execution 777" in str(end.error)


def test_a_conflict_inside_an_execution_ends_the_job_at_once() -> None:
    state = job()
    conflict = RecordConflict("version 9, not 4")
    assert run(state, ExecutionEnded(conflict, executing(state))) == [EndJob(conflict)]


def test_a_claim_that_meets_a_write_of_its_own_that_nobody_knew_of_reads_again() -> None:
    state = job()
    claimed = executing(state)
    late = with_snapshot(claimed)
    run(state, ExecutionEnded(OutcomeUnknown("?"), claimed), DelayOver(), RecordRead(claimed))
    assert run(state, StoreFailed(RecordConflict("version 11, not 10"))) == [ReadRecord()]
    (claim,) = run(state, RecordRead(late))
    assert isinstance(claim, ReplaceRecord)
    assert claim.record.snapshot == late.record.snapshot


def test_a_record_that_cannot_be_read_is_no_reason_to_try_again() -> None:
    damaged = SnapshotDamaged("the execution record cannot be read")
    assert run(job(), StartJob(), StoreFailed(damaged))[1:] == [EndJob(damaged)]


CANCELLED = "the job was cancelled"
PATHS: dict[str, Callable[[JobState], object]] = {
    "new": lambda state: None,
    "reading": lambda state: run(state, StartJob()),
    "claiming": lambda state: run(state, StartJob(), found(BEFORE)),
    "executing": lambda state: executing(state, BEFORE),
    "delayed": lambda state: run(state, ExecutionEnded(LOST, executing(state, BEFORE))),
}


@pytest.mark.parametrize("path", list(PATHS))
def test_a_cancelled_job_settles_wherever_it_is_and_a_store_that_hangs_does_not_stop_that(path: str) -> None:
    for store_hangs in (True, False):
        state = job()
        PATHS[path](state)
        commands = run(state, CancelRequested(), CancelRequested())
        claimed = VersionedRecord(BEFORE, 9)
        while not isinstance(commands[-1], EndJob):
            commands = [command for command in commands if not isinstance(command, AwaitSettleTime)]
            if commands and isinstance(commands[-1], EndPresentExecution):
                commands = run(state, ExecutionEnded(commands[-1].error, claimed))
            elif store_hangs:
                commands = run(state, SettleTimeOver())
            elif state.phase is JobPhase.READING:
                own = state._claim or BEFORE
                commands = run(state, found(own))
            elif state.phase in (JobPhase.CLAIMING, JobPhase.CLOSING):
                commands = run(state, StoreWritten(20))
            else:
                assert isinstance(commands[-1], BeginExecution)
                assert commands[-1].settle_only
                commands = run(state, ExecutionEnded(None, commands[-1].claimed))
        assert isinstance(commands[-1].error, JobCancelledError)
        assert str(commands[-1].error) == CANCELLED


def test_a_cluster_that_cannot_give_members_ends_the_job() -> None:
    no_slots = ResourcesError("no slots")
    assert run(job(), StartJob(), ClusterFailed(no_slots))[1:] == [EndJob(no_slots)]
    state = job()
    executing(state)
    assert run(state, ClusterFailed(no_slots)) == [EndPresentExecution(no_slots)]


def test_what_is_not_in_the_table_is_an_invalid_transition_and_changes_nothing() -> None:
    for event in (ExecutionEnded(None, None), StoreWritten(), RecordRead(None), StartJob()):
        state = job()
        executing(state)
        if isinstance(event, ExecutionEnded):
            run(state, ExecutionEnded(LOST, None))
        before = repr(vars(state))
        with pytest.raises(InvalidTransition):
            state.handle(event)
        assert repr(vars(state)) == before


def test_restartable_means_restartable() -> None:
    state = job()
    executing(state)
    assert state.goes_on_after(RestartableError("?"))
    assert not state.goes_on_after(RecordConflict("?"))
    assert not state.goes_on_after(POISON)
