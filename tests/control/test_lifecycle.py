"""What may be asked of a job, in every state; and that each row is seen once, whatever is asked, and when."""

from random import Random

import pytest

from jetfast.control.job_events import (
    AnswerRequest,
    CancelAndExportAsked,
    CancelRequested,
    ExportAsked,
    RestartAsked,
    ResumeAsked,
    SuspendAsked,
)
from jetfast.control.job_status import JobStatus
from jetfast.control.store_commands import ReadRecord
from jetfast.errors import JobCancelledError, OperationRefused
from tests.control.simulated_job import POISON, ROWS, FaultyStore, SimulatedJob, World

SEEDS = [*range(12), *(pytest.param(seed, marks=pytest.mark.simulation) for seed in range(12, 200))]
NOT_RUNNING, STARTING, RUNNING = JobStatus.NOT_RUNNING, JobStatus.STARTING, JobStatus.RUNNING
SUSPENDED, COMPLETING = JobStatus.SUSPENDED, JobStatus.COMPLETING
FAILED, COMPLETED = JobStatus.FAILED, JobStatus.COMPLETED
EXPORTING = JobStatus.SUSPENDED_EXPORTING_SNAPSHOT
SUSPEND, RESUME, RESTART, CANCEL = SuspendAsked, ResumeAsked, RestartAsked, CancelRequested
EXPORT, CANCEL_AND_EXPORT = ExportAsked, CancelAndExportAsked
OPERATIONS = [SUSPEND, RESUME, RESTART, EXPORT, CANCEL_AND_EXPORT]

# state x operation -> where the job comes to rest; None: the operation is refused, and the job goes on as it was.
REFUSED: dict[type, JobStatus | None] = dict.fromkeys(OPERATIONS)
OUTCOMES: dict[JobStatus, dict[type, JobStatus | None]] = {
    NOT_RUNNING: {**REFUSED, SUSPEND: SUSPENDED, CANCEL: FAILED},
    STARTING: {**REFUSED, SUSPEND: SUSPENDED, CANCEL: FAILED},
    RUNNING: {
        SUSPEND: SUSPENDED,
        RESUME: None,
        RESTART: COMPLETED,
        EXPORT: COMPLETED,
        CANCEL_AND_EXPORT: FAILED,
        CANCEL: FAILED,
    },
    SUSPENDED: {
        SUSPEND: SUSPENDED,
        RESUME: COMPLETED,
        RESTART: None,
        EXPORT: SUSPENDED,
        CANCEL_AND_EXPORT: FAILED,
        CANCEL: FAILED,
    },
    EXPORTING: {**REFUSED, CANCEL: FAILED},
    COMPLETING: {**REFUSED, CANCEL: FAILED},
    FAILED: {**REFUSED, CANCEL: FAILED},
    COMPLETED: {**REFUSED, CANCEL: COMPLETED},
}


def simulate(seed: int, fault: float = 0.0, **faults: float) -> SimulatedJob:
    random = Random(seed)
    return SimulatedJob(seed, FaultyStore(random, fault), World(), members=random.randint(1, 3), **faults)


def brought_to(status: JobStatus, seed: int = 1) -> SimulatedJob:
    job = simulate(seed)
    if status in (SUSPENDED, EXPORTING):
        job.run_until(RUNNING)
        job.ask(SuspendAsked)
        job.run_until(SUSPENDED)
        if status is EXPORTING:
            job.ask(ExportAsked)
    elif status in (COMPLETING, FAILED):
        job.run_until(RUNNING)
        job.cancel()
    job.run_until(status)
    return job


def comes_to_rest(job: SimulatedJob) -> JobStatus:
    for _ in range(20_000):
        if job.outcome or job.coordinator.status is SUSPENDED:
            return job.coordinator.status
        job.step()
    raise AssertionError("the job must come to rest")


def check_rows(job: SimulatedJob) -> None:
    """What is seen is what the last snapshot holds, no more and no less; at the end that is all."""
    truth = job.store.truth()
    for member in range(job.coordinator.shape.member_count):
        rows = job.world.rows(member)
        saved = 0 if truth is None or truth.snapshot is None else job.world.snapshots[truth.snapshot][member][0]
        assert sorted(rows) == list(range(saved))
        assert job.coordinator.status is not COMPLETED or saved == ROWS


@pytest.mark.parametrize("status", list(JobStatus), ids=lambda status: status.name)
@pytest.mark.parametrize("operation", [*OPERATIONS, CANCEL], ids=lambda operation: operation.__name__)
def test_every_operation_in_every_state_does_what_the_table_says(status: JobStatus, operation: type) -> None:
    job = brought_to(status)
    undisturbed = comes_to_rest(brought_to(status))
    executions = job.coordinator.execution_id
    outcome = OUTCOMES[status][operation]
    if operation is CancelRequested:
        job.handle(CancelRequested())
        assert comes_to_rest(job) is outcome
    else:
        request = job.ask(operation)
        if outcome is None:
            assert isinstance(job.answers[request], OperationRefused)
            assert "must be" in str(job.answers[request])
            assert job.coordinator.status is status
            assert comes_to_rest(job) is undisturbed
        else:
            job.step()
            while not job.outcome and request not in job.answers:
                job.step()
            assert job.answers[request] is None
            assert comes_to_rest(job) is outcome
            assert operation not in (RESUME, RESTART) or job.coordinator.execution_id > executions
            assert ("named" in job.world.exports) == (operation in (EXPORT, CANCEL_AND_EXPORT))
    check_rows(job)


@pytest.mark.parametrize("seed", SEEDS)
def test_each_row_is_seen_once_whatever_is_asked_and_fails_and_when(seed: int) -> None:
    job = simulate(seed, fault=0.1 * (seed % 2), deaths=0.01 * (seed % 3))
    random = Random(seed)
    for _ in range(200):
        if job.outcome:
            break
        if random.random() < 0.1:
            job.ask(random.choice([SUSPEND, RESUME, RESTART, EXPORT]))
        job.step()
        if job.coordinator.status is SUSPENDED and job.coordinator.job.suspension_cause is None:
            check_rows(job)
    while not job.outcome:
        if job.coordinator.status is SUSPENDED:
            job.ask(ResumeAsked)
        job.run_until(COMPLETED if job.coordinator.job.asked is None else job.coordinator.status)
        job.step()
    assert job.outcome == [None]
    check_rows(job)


@pytest.mark.parametrize("seed", SEEDS[:12])
def test_a_job_that_is_asked_to_suspend_is_suspended_once_though_its_last_snapshot_fails(seed: int) -> None:
    job = simulate(seed)
    job.run_until(RUNNING)
    for _ in range(seed):
        job.step()
    if job.coordinator.status is not RUNNING:
        return
    job.store.fault = 0.4
    first, second = job.ask(SuspendAsked), job.ask(SuspendAsked)
    assert comes_to_rest(job) in (SUSPENDED, COMPLETED)
    check_rows(job)
    assert [job.answers.get(request, "never") for request in (first, second)] in ([None, None], ["never", "never"])


def test_one_operation_is_done_after_the_other() -> None:
    job = brought_to(RUNNING)
    job.ask(SuspendAsked)
    refused = job.ask(RestartAsked)
    assert "it is just being suspended" in str(job.answers[refused])
    assert comes_to_rest(job) is SUSPENDED


def test_a_job_that_is_being_suspended_can_be_cancelled() -> None:
    for steps in range(12):
        job = brought_to(RUNNING)
        job.ask(SuspendAsked)
        for _ in range(steps):
            job.step()
        job.handle(CancelRequested())
        assert comes_to_rest(job) is FAILED
        assert isinstance(job.outcome[0], JobCancelledError)
        check_rows(job)


@pytest.mark.parametrize("seed", range(6))
def test_a_failure_suspends_a_job_if_that_was_chosen_and_it_goes_on_when_resumed(seed: int) -> None:
    job = simulate(seed, poison=0.02, suspend_on_failure=True)
    while comes_to_rest(job) is SUSPENDED:
        assert job.coordinator.job.suspension_cause is POISON
        check_rows(job)
        assert job.answers[job.ask(ResumeAsked)] is None
        assert job.coordinator.job.suspension_cause is None
    assert job.outcome == [None]
    assert job.coordinator.job.restarts == 0


def test_a_store_that_hangs_does_not_keep_a_job_from_being_suspended_and_the_cause_says_what_is_left() -> None:
    job = brought_to(RUNNING)
    job.poison = 1.0
    job.coordinator.job.terms = type(job.coordinator.job.terms)("job", "id", keeps_record=True, suspend_on_failure=True)
    job.hung = True
    assert comes_to_rest(job) is SUSPENDED
    assert "submitting the job again does both" in POISON.__notes__[-1]
    POISON.__notes__.clear()
    assert isinstance(job.coordinator.handle(ResumeAsked(9))[0], AnswerRequest)
    assert isinstance(job.coordinator._awaited, ReadRecord)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_job_that_starts_from_a_named_snapshot_shows_the_rows_that_follow_it_and_no_others(seed: int) -> None:
    old = simulate(seed, fault=0.1 * (seed % 2), deaths=0.01 * (seed % 3))
    old.run_until(RUNNING)
    for _ in range(seed % 40):
        old.step()
    request = old.ask(EXPORT if seed % 5 else CANCEL_AND_EXPORT)
    while not old.outcome and request not in old.answers:
        old.step()
    if old.answers.get(request, POISON) is not None:  # it has failed, or the job has ended before
        return
    start = old.world.exports["named"]
    if seed % 5 == 0:
        comes_to_rest(old)
        assert {member: position for member, (position, _) in start.items()} == {
            member: len(old.world.rows(member)) for member in start
        }, "nothing was written after the last snapshot"
    first = {member: position for member, (position, _) in start.items()}
    world = World(dict(old.world.snapshots), exports=old.world.exports, first=first)
    members = old.coordinator.shape.member_count
    new = SimulatedJob(seed, old.store, world, members=members, initial_snapshot="named")
    new.run()
    assert new.outcome == [None]
    for member, position in first.items():
        assert sorted(world.rows(member)) == list(range(position, ROWS))
