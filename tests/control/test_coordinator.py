"""A whole job in the machines: whatever fails and whenever, each row is seen once, and the job comes to its end."""

from random import Random

import pytest

from jetfast.control.coordinator import (
    AdoptShape,
    Command,
    Coordinator,
    JobShape,
    ShapeGiven,
    StoreAnswered,
    SummonMember,
)
from jetfast.control.execution_state import MemberLost, MemberRegistered, PrepareMember
from jetfast.control.job_events import StartJob
from jetfast.control.job_status import JobStatus
from jetfast.control.job_terms import JobTerms
from jetfast.control.snapshot_round import RoundPhase
from jetfast.control.store_commands import ReadRecord, RecordRead
from jetfast.errors import JobCancelledError, MemberLostError, RecordConflict
from tests.control.simulated_job import POISON, ROWS, FaultyStore, SimulatedJob, World

SEEDS = [*range(12), *(pytest.param(seed, marks=pytest.mark.simulation) for seed in range(12, 200))]


def simulate(seed: int, fault: float = 0.0, **faults: float) -> SimulatedJob:
    random = Random(seed)
    return SimulatedJob(seed, FaultyStore(random, fault), World(), members=random.randint(1, 3), **faults)


def rows_of_the_last_snapshot(job: SimulatedJob, member: int) -> int:
    truth = job.store.truth()
    return 0 if truth is None or truth.snapshot is None else job.world.snapshots[truth.snapshot][member][0]


@pytest.mark.parametrize("seed", SEEDS)
def test_each_row_is_seen_once_though_members_die_and_the_store_fails_at_any_moment(seed: int) -> None:
    job = simulate(seed, fault=0.15, deaths=0.02)
    job.run()
    assert job.outcome == [None]
    assert job.coordinator.status is JobStatus.COMPLETED
    for member in range(job.coordinator.shape.member_count):
        assert sorted(job.world.rows(member)) == list(range(ROWS))
    truth = job.store.truth()
    assert truth is not None
    assert truth.completed
    assert len(job.store.list_areas("job")) <= 2


@pytest.mark.parametrize("seed", SEEDS)
def test_a_job_that_fails_or_is_cancelled_shows_the_rows_of_its_last_snapshot_and_no_others(seed: int) -> None:
    job = simulate(seed, fault=0.05, deaths=0.01, poison=0.01 * (seed % 2))
    cancel_at = Random(seed).randrange(60)
    while not job.outcome:
        cancel_at -= 1
        if cancel_at == 0 and seed % 2 == 0:
            job.cancel()
        job.step()
    (error,) = job.outcome
    truth = job.store.truth()
    assert error is None or error is POISON or isinstance(error, JobCancelledError)
    assert (error is None) == (truth is not None and truth.completed)
    for member in range(job.coordinator.shape.member_count):
        assert len(job.world.rows(member)) == rows_of_the_last_snapshot(job, member)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_store_that_hangs_does_not_keep_a_cancelled_job_alive(seed: int) -> None:
    job = simulate(seed)
    for _ in range(seed * 2):
        if not job.outcome:
            job.step()
    job.hung = True
    job.cancel()
    job.run(steps_max=500)
    assert job.outcome == [None] or isinstance(job.outcome[0], JobCancelledError)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_coordinator_that_was_taken_over_commits_nothing_more_and_the_other_one_goes_on(seed: int) -> None:
    old = simulate(seed)
    for _ in range(30 + seed):
        old.step()
    new = SimulatedJob(seed + 1000, old.store, old.world, members=old.coordinator.shape.member_count)
    jobs = [old, new]
    random = Random(seed)
    while not (old.outcome and new.outcome):
        job = random.choice([job for job in jobs if not job.outcome])
        job.step()
        rounds = old.coordinator.rounds
        truth = old.store.truth()
        assert truth is not None
        if not old.outcome and rounds is not None and truth.execution_id != old.coordinator.execution_id:
            assert rounds.phase is not RoundPhase.OVER or rounds.claimed.record.completed
    assert new.outcome == [None] or old.outcome == [None]
    assert isinstance(old.outcome[0], RecordConflict) or old.outcome == [None]
    for member in range(new.coordinator.shape.member_count):
        assert sorted(new.world.rows(member)) == list(range(ROWS))


def test_an_answer_of_the_store_to_an_execution_that_has_ended_is_dropped() -> None:
    job = simulate(3)
    for _ in range(5):
        job.step()
    assert job.coordinator.handle(StoreAnswered(ReadRecord(), RecordRead(None))) == []


def shape(members: int) -> JobShape:
    return JobShape(members, 271, {"x": members})


def beginner(members: int) -> Coordinator:
    """A job that has not begun, and takes no snapshots."""
    terms = JobTerms("job", "id", keeps_record=False, parallelism_max=members, members_max=members)
    return Coordinator(terms, shape(members), lambda last: last + 1)


def test_an_execution_that_waits_for_members_which_do_not_come_begins_without_them() -> None:
    coordinator = beginner(4)
    coordinator.handle(StartJob())
    for member in (0, 3):
        assert coordinator.handle(MemberRegistered(member)) == []
    assert coordinator.absent == [1, 2]
    assert coordinator.handle(ShapeGiven(shape(2))) == [AdoptShape(shape(2), (2, 3)), SummonMember(1)]
    assert coordinator.handle(MemberLost(3, MemberLostError("it was told to go"))) == []
    assert coordinator.handle(MemberRegistered(1)) == [PrepareMember(0), PrepareMember(1)]
    assert coordinator.absent == []


def test_an_execution_that_has_begun_keeps_its_shape_and_the_next_one_has_the_other() -> None:
    job = simulate(5)
    members = job.coordinator.shape.member_count
    while job.coordinator.status is not JobStatus.RUNNING:
        job.step()
    assert job.coordinator.handle(ShapeGiven(shape(members + 1))) == []
    assert job.coordinator.shape.member_count == members
    assert job.coordinator.begun is not None
    commands: list[Command] = []
    job.coordinator._begin(job.coordinator.begun, commands)
    assert commands[0] == AdoptShape(shape(members + 1), ())
    assert SummonMember(members) in commands


def test_a_member_that_dies_while_others_are_waited_for_is_summoned_again() -> None:
    coordinator = beginner(2)
    assert coordinator.handle(StartJob()) == [SummonMember(0), SummonMember(1)]
    coordinator.handle(MemberRegistered(0))
    assert coordinator.handle(MemberLost(0, MemberLostError("died"))) == [SummonMember(0)]
    assert coordinator.handle(MemberRegistered(1)) == []
    assert coordinator.handle(MemberRegistered(0)) == [PrepareMember(0), PrepareMember(1)]
