"""One seed: a whole job with faults on one thread, and what a user finds in the sinks afterwards.

The modules that run are the shipped ones, kernels included; clock, network, store and order are simulated. Whoever has
something to do (coordinator, member, tasklet, store) is chosen at random again and again, so everything that is under
way may be delayed and overtaken; and faults strike where the seed says:

    kill member         it ends in the middle of anything, without a word
    lose member         it lives on, but nobody hears of it: a zombie, which must not be able to do harm
    freeze member       it does nothing for so long that its lease runs out, and wakes up, if it was not killed
    freeze coordinator  as a member; another one goes on
    cut network         a member cannot reach its peers, though it hears the coordinator
    kill coordinator    with its members, or they live on as zombies; another one goes on, perhaps with other members
    two coordinators    another one starts while the first, which knows nothing of it, and its members go on
    stall               a member or a store does nothing for a while
    crash points        as "kill", at a named place of a snapshot round

and besides the store and the systems that are written to refuse, or do something and say that they did not. What users
ask of a job meanwhile is told in `operations`.

In half of the seeds members live by leases: then no execution may begin while a member of another one believes in its
lease, though it may still do something before it looks. In the other half nobody waits for anybody.
"""

import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from jetfast.control.job_status import JobStatus
from jetfast.core.crash_points import CRASH_POINTS, CrashPoint, set_crash_hook
from jetfast.errors import JetfastError, JobCancelledError, JobDefinitionError, RecordConflict, RestartableError
from jetfast.testing import VirtualClock
from tests.simulation.faulty_store import FaultyStore
from tests.simulation.operations import Operations
from tests.simulation.programs.program import Program, draw_program
from tests.simulation.scenario import make_scenario
from tests.simulation.simulated_leases import SimulatedLease
from tests.simulation.simulated_services import services_in_order
from tests.simulation.stepped_job import SteppedJob, SteppedMember

STEPS_MAX = 60_000
"""A run that has not ended by then is stuck."""
FAULTY_STEPS = 6_000
"""Faults strike before; then the job must come to its end."""
STEP_US_MAX = 500
LEASE = "300ms"
FROZEN_STEPS = 2_500
"""So long that a lease runs out, most of the time."""
IDLE_US_MAX = 60_000
COMPLETED = "is completed, says its snapshot store"
KINDS = (
    "kill member",
    "lose member",
    "freeze member",
    "freeze coordinator",
    "cut network",
    "kill coordinator",
    "leave members",
    "two coordinators",
    "stall",
    "hang store",
)


class SimulatedCrash(BaseException):
    """Whoever is at work dies here."""


@dataclass
class Outcome:
    """What came of a seed."""

    seed: int
    lost: int = 0
    duplicated: int = 0
    stuck: int = 0
    commits: int = 0
    steps: int = 0
    faults: "Counter[str]" = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    digest: str = ""
    """Of all that happened: a seed that is run again gives the same."""

    @property
    def good(self) -> bool:
        return not self.problems


@dataclass
class _Fault:
    kind: str
    step: int = 0
    point: CrashPoint | None = None
    visits: int = 0
    """Of the crash point that are let pass."""


class SimulatedRun:
    """See above. `run` may be called once."""

    def __init__(self, seed: int, store_failures: float | None = None, program: Program | None = None) -> None:
        """`store_failures`: the probability that a call of the store fails; None: the seed chooses.

        `program`: what the job does; None: the seed chooses sources, windows and sinks of every kind.
        """
        self.outcome = Outcome(seed)
        self.random = Random(f"order of {seed}")
        choice = Random(f"scenario of {seed}")
        self.clock = VirtualClock()
        self.scenario = make_scenario(choice, self.clock, program)
        rate = choice.choice([0.0, 0.0, 0.02, 0.06])
        rate = rate if store_failures is None else store_failures
        self.store = FaultyStore(Random(f"store of {seed}"), rate, self.note)
        self.interval = choice.choice(["10ms", "50ms", "200ms"])
        self.lease = choice.choice([None, LEASE])
        self.look_rate = choice.choice([1.0, 0.02])
        """How soon a store answers who looks whose the job is."""
        self.choice = choice
        self.operations = Operations(self, Random(f"operations of {seed}"))
        self.faults = [self._make_fault(choice) for _ in range(choice.choice([0, 1, 1, 2, 2, 3, 4]))]
        self.last_execution_id = 0
        self.digest = hashlib.blake2b(digest_size=16)
        self.job: SteppedJob
        self.old_jobs: list[SteppedJob] = []
        """Of coordinators that do not know that they are not needed any more."""
        self.zombies: list[SteppedMember] = []
        self.at_work: SteppedMember | SteppedJob | None = None
        self.stalled: dict[Any, int] = {}
        """Who does nothing until which step."""
        self.step = 0
        self.next_strike = 0
        self.completed = False
        self.actors: list[tuple[Any, Callable[[], bool]]] = []
        """Who may do something, and how."""
        self.awake: list[tuple[Any, Callable[[], bool]]] = []
        """Those that have not been asked in vain since anything has changed."""
        if any(fault.point == "between_two_commits" for fault in self.faults):
            self.store.validation_rate = 0.6  # rounds that fail leave their transactions to the next one
            self.interval = "10ms"

    def note(self, fault: str) -> None:
        self.outcome.faults[fault] += 1
        self.digest.update(f"{fault} at {self.step}\n".encode())

    def run(self) -> Outcome:
        set_crash_hook(self._reach)
        try:
            with services_in_order(Random(f"services of {self.outcome.seed}")):
                self._run()
        except (JetfastError, AssertionError) as error:
            self._problem(f"{type(error).__name__}: {error}")
        finally:
            set_crash_hook(None)
        self.outcome.steps = self.step
        self.outcome.digest = self.digest.hexdigest()
        return self.outcome

    def _run(self) -> None:
        self._submit()
        choose = self.random.random
        while not (self.completed or (self.job.runner.has_ended and self._is_over())):
            self.step += 1
            if self.step > STEPS_MAX:
                self.outcome.stuck = 1
                runner = self.job.runner
                self._problem(f"it does not come to its end: {runner.status}, {self.job.job.explain_snapshot()}")
                return
            if self.step == FAULTY_STEPS:
                self._calm()
            if self.step >= self.next_strike:
                self._strike()
            if not self.awake:
                self._let_time_pass()
                self.awake = self.actors.copy()
            place = int(choose() * len(self.awake))
            owner, actor = self.awake[place]
            self.at_work = owner
            try:
                progressed = self.stalled.get(owner, 0) <= self.step and actor()
            except SimulatedCrash:
                self._die(owner)
                progressed = True
            if progressed:
                self.clock.advance_us(int(choose() * STEP_US_MAX))
                self._look_for_changes()
                self.awake = self.actors.copy()
            else:
                self.awake[place] = self.awake[-1]
                self.awake.pop()
        self.at_work = None
        self._check()

    def _is_over(self) -> bool:
        """Has the job ended? A coordinator that has lost it to another one is not the job."""
        error = self.job.runner.error
        if isinstance(error, RecordConflict):
            if self.old_jobs:
                self.job = self.old_jobs.pop()
                self._rebuild()
            else:
                self._submit()
            return self.completed
        if isinstance(error, JobCancelledError):
            self._submit(**self.operations.next_submission())
            return self.completed
        self.completed = error is None or COMPLETED in str(error)
        return True

    def _submit(self, **options: Any) -> None:
        """Start a coordinator, as often as it takes."""
        choice = self.choice
        while not self.completed:
            try:
                self.job = SteppedJob(
                    self.scenario.pipeline,
                    seed=0,
                    store=self.store,
                    guarantee=self.scenario.guarantee,
                    interval=self.interval,
                    members=choice.choice([1, 2, 2, 3]),
                    workers=choice.choice([1, 1, 2]),
                    partition_count=choice.choice([17, 271]),
                    clock=self.clock,
                    new_execution_id=self._new_execution_id,
                    lease=self.lease,
                    **options,
                )
                self.job.before_execution = partial(self._check_leases, self.job)
                break
            except RestartableError:
                continue
            except JobDefinitionError as error:  # the last coordinator has come to the end without telling anybody
                if COMPLETED not in str(error):
                    raise
                self.completed = True
        self._rebuild()

    def end_unclaimed(self) -> None:
        """Coordinators that have not claimed the job yet end: nothing keeps them from doing so with their pipeline."""
        self.old_jobs = [job for job in self.old_jobs if job.has_claimed]

    def _new_execution_id(self, last: int) -> int:
        self.last_execution_id = max(self.last_execution_id, last) + 1
        return self.last_execution_id

    # Who acts

    def _rebuild(self) -> None:
        self.actors = []
        self.awake = []
        for job in (self.job, *self.old_jobs):
            self.actors += [(job, job.runner.handle_timers), (job, job.runner.handle_next), (job, job.works.step)]
            if job.leased:
                self.actors += [(job, partial(self._look, job)), (job, partial(self._watch_leases, job))]
        self.members = list(self.job.members.values())
        members = [*self.members, *self.zombies]
        for job in self.old_jobs:
            members += job.members.values()
        for member in members:
            self.actors += [(member, member.agent.handle_next), (member, member.works.step)]
            if member.lease is not None:
                self.actors += [(member, partial(self._live, member, member.lease)), (member.job, member.lease.answer)]
            self.actors += [(member, partial(member.step_tasklet, self.random.random))] * 3

    def _look_for_changes(self) -> None:
        """Members that were summoned, and coordinators that have ended."""
        ended = [job for job in self.old_jobs if job.ended]
        if ended or list(self.job.members.values()) != self.members:
            for job in ended:
                self.old_jobs.remove(job)
            self._rebuild()

    def _let_time_pass(self) -> None:
        """Nobody has anything to do now: until a source has, or, if no job executes, until the next timer."""
        if self.job.runner.status is JobStatus.SUSPENDED:
            self.operations.wake()
            return
        jobs = (self.job, *self.old_jobs)
        deadlines = [job.runner.deadline for job in jobs if job.runner.deadline is not None]
        wait_us = self.random.randrange(IDLE_US_MAX)
        if deadlines and all(job.runner.status is JobStatus.NOT_RUNNING for job in jobs):
            wait_us = max(0, round(min(deadlines) * 1e6) - self.clock() + 1)
        self.clock.advance_us(wait_us)

    # Leases

    def _live(self, member: SteppedMember, lease: SimulatedLease) -> bool:
        """What a member does about its lease; it ends when that has run out."""
        if lease.hear() or lease.ask():
            return True
        if not lease.has_run_out:
            return False
        self._die(member)
        return True

    def _look(self, job: SteppedJob) -> bool:
        return self.random.random() < self.look_rate and job.looks.step()

    def _watch_leases(self, job: SteppedJob) -> bool:
        found = job.given_up()
        self.zombies += (member for member in found if member.cut_off)
        if found:
            self._rebuild()
        return bool(found)

    def _check_leases(self, job: SteppedJob, index: int) -> None:
        """An execution of `job` begins, unless a member that nobody coordinates, or without a lease, reads its mail."""
        member = job.members.get(index)
        if member is None or member in self.zombies or (member.lease is not None and member.lease.has_run_out):
            return
        for other in [*self.zombies, *(member for old in self._others(job) for member in old.members.values())]:
            if other.lease is not None and not other.lease.has_run_out:
                self._problem(f"an execution begins while member {other.index} of another one has a lease")

    def _others(self, job: SteppedJob) -> list[SteppedJob]:
        return [other for other in (self.job, *self.old_jobs) if other is not job]

    # Faults

    def _make_fault(self, choice: Random) -> _Fault:
        if choice.random() < 0.5:
            # The one that needs several transactions at once is come by more seldom than the others.
            point = choice.choice((*CRASH_POINTS, *["between_two_commits"] * 12))
            return _Fault("crash point", point=point, visits=choice.choice([0, 0, 1, 2, 4]))
        return _Fault(choice.choice(KINDS), step=int(choice.expovariate(1 / 700)))

    def _strike(self) -> None:
        due = [fault for fault in self.faults if fault.point is None and fault.step <= self.step]
        for fault in due:
            self.faults.remove(fault)
            self._do(fault.kind)
        asked = self.operations.next_step
        if asked is not None and asked <= self.step:
            self.operations.ask_next()
            asked = self.operations.next_step
        steps = [fault.step for fault in self.faults if fault.point is None]
        self.next_strike = min(steps if asked is None else [*steps, asked], default=STEPS_MAX)

    def _do(self, kind: str) -> None:
        job = self.job
        members = sorted(job.members)
        if kind in ("kill member", "lose member", "freeze member", "cut network", "stall"):
            if not members:
                return
            index = self.random.choice(members)
            if kind == "kill member":
                job.kill(index)
            elif kind == "lose member":
                self._lose(index)
            elif kind == "freeze member":
                self.stalled[job.members[index]] = self.step + FROZEN_STEPS
                if self.random.random() < 0.5:
                    self._lose(index)  # nobody can kill it
            elif kind == "cut network":
                job.cut(index)
            else:
                self.stalled[job.members[index]] = self.step + self.random.randrange(2000)
            self.note(kind)
            self._rebuild()
        elif kind == "hang store":
            self.stalled[job] = self.step + self.random.randrange(1000)
            self.note(kind)
        elif kind in ("two coordinators", "freeze coordinator"):
            self.note(kind)
            if kind == "freeze coordinator":
                self.stalled[job] = self.step + FROZEN_STEPS
            self.old_jobs.append(job)
            self._submit()
        else:
            self.note(kind)
            self._kill_coordinator(leave_members=kind == "leave members")

    def _lose(self, index: int) -> None:
        """Nobody hears of a member any more: the coordinator waits for the end of its lease, if it has one."""
        member = self.job.members[index]
        if member.lease is None:
            self.zombies.append(self.job.lose(index))
        else:
            member.cut_off = member.lease.lost = True

    def _kill_coordinator(self, leave_members: bool) -> None:
        for member in list(self.job.members.values()):
            member.cut_off = True
            if member.lease is not None:
                member.lease.lost = True
            if leave_members:
                self.zombies.append(member)
            else:
                member.kill()
        self._submit()

    def _reach(self, point: CrashPoint) -> None:
        if self.step >= FAULTY_STEPS or self.at_work is None:
            return
        for fault in self.faults:
            if fault.point == point:
                fault.visits -= 1
                if fault.visits < 0:
                    self.faults.remove(fault)
                    self.note(point)
                    raise SimulatedCrash

    def _die(self, who: Any) -> None:
        """Whoever was at work has reached the place where it dies."""
        if isinstance(who, SteppedMember):
            for job in (self.job, *self.old_jobs):
                if job.members.get(who.index) is who:
                    job.kill(who.index)
                    break
            else:
                who.kill()
                self.zombies = [zombie for zombie in self.zombies if zombie is not who]
            self._rebuild()
        elif who is self.job:
            self._kill_coordinator(leave_members=self.random.random() < 0.5)
        else:
            self.old_jobs.remove(who)
            for member in who.members.values():
                member.kill()
            self._rebuild()

    def _calm(self) -> None:
        """Nothing goes wrong any more, and who lives on for nothing ends."""
        self.scenario.calm()
        self.store.rate = self.store.validation_rate = 0.0
        self.look_rate = 1.0
        self.faults.clear()
        self.operations.due.clear()
        self.stalled.clear()
        for zombie in self.zombies:
            zombie.kill()
        for job in self.old_jobs:
            for member in job.members.values():
                member.kill()
        self.zombies.clear()
        self.old_jobs.clear()
        self._rebuild()

    # What a user looks at

    def _check(self) -> None:
        outcome = self.outcome
        outcome.commits = self.store.decided
        if not self.completed:
            self._problem(f"the job is {self.job.runner.status}: {self.job.runner.error!r}")
        for scenario_sink in self.scenario.sinks:
            lost, duplicated = scenario_sink.problems()
            outcome.lost += len(lost)
            outcome.duplicated += len(duplicated)
            name = scenario_sink.system.name
            if lost:
                self._problem(f"{name}: {len(lost)} rows are lost, such as {lost[:3]}")
            if duplicated:
                self._problem(f"{name}: {len(duplicated)} rows are there that should not, such as {duplicated[:3]}")
            # Without leases a zombie of a job that has ended may prepare more; a job that starts from an export of it
            # has another id, and nothing to do with that.
            in_doubt = [
                transaction
                for transaction in scenario_sink.in_doubt()
                if self.lease is not None or f".{self.job.runner.job_id}." in transaction
            ]
            if not self.zombies and not self.old_jobs and in_doubt:
                self._problem(f"{name}: transactions are left: {in_doubt}")
            self.digest.update(repr(sorted(scenario_sink.rows().items(), key=repr)).encode())

    def _problem(self, text: str) -> None:
        self.outcome.problems.append(text)


def simulate(seed: int, store_failures: float | None = None, program: Program | None = None) -> Outcome:
    """Run one seed; see `SimulatedRun`."""
    return SimulatedRun(seed, store_failures, program).run()


def program_of(seed: int) -> Program:
    """The program of all operators that is run with a seed."""
    return draw_program(Random(f"program of {seed}"))
