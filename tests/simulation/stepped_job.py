"""A whole job on one thread under a virtual clock: shipped runner, agents and engine, in an order that a seed chooses.

Only threads, time and order are not those of a LocalCluster. Members live as there: they outlive executions, and one
that was killed is followed by another.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from jetfast.clusters.snapshot_settings import SnapshotWishes
from jetfast.clusters.submission import Pipeline, Submission, accept_submission
from jetfast.control.execution_ids import new_execution_id
from jetfast.control.job import Job
from jetfast.control.job_events import OperationAsked
from jetfast.control.member_agent import Deliver, MemberAgent
from jetfast.control.messages import (
    NO_EXECUTION,
    CoordinatorMessage,
    MemberMessage,
    Prepare,
    Registered,
    Shutdown,
)
from jetfast.control.runner import Runner
from jetfast.control.versions import running_versions
from jetfast.core.dag import Dag
from jetfast.core.guarantee import Guarantee
from jetfast.core.processor import AnnouncedPartitions
from jetfast.core.snapshot_kind import SnapshotKind
from jetfast.engine.execution import Execution
from jetfast.engine.execution_listener import ExecutionListener
from jetfast.engine.snapshot_store import SnapshotStore
from jetfast.engine.stepping import SteppedExecution
from jetfast.engine.submission_record import CoordinatorRecord
from jetfast.engine.transport import MemoryNetwork, Transport
from jetfast.errors import MemberLostError
from jetfast.testing import VirtualClock
from jetfast.types import PARTITION_COUNT, Duration, positive_duration_us
from tests.simulation.simulated_leases import SimulatedLease

STEP_US_MAX = 2_000
"""Time passes while things are done: less than this in each step."""
REPORTS = 0.05
"""Probability that members report their metrics in a step."""
STEPS_MAX = 400_000


class Works:
    """Runs pieces of work when it is their turn."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []
        self.hangs = False

    def __call__(self, work: Callable[[], None]) -> None:
        self.waiting.append(work)

    def step(self) -> bool:
        if not self.waiting or self.hangs:
            return False
        self.waiting.pop(0)()
        return True


class SteppedMember:
    """One member: its agent, what its execution stores, and the coordinator's link to it."""

    def __init__(self, job: "SteppedJob", index: int) -> None:
        self.job, self.index = job, index
        self.works = Works()
        self.stepped: SteppedExecution | None = None
        self.cut_off = False
        """Nothing passes between it and the coordinator any more, though it lives on."""
        self.lease = job.make_lease(index)
        """None: it lives without one."""
        self.agent = MemberAgent(
            job.transport,
            self._tell,
            load_dag=lambda _: job.submission.dag,
            execution_factory=lambda dag, prepare, transport, deliver: _OnOneThread(
                self, dag, prepare, transport, deliver
            ),
        )

    def send(self, message: CoordinatorMessage) -> None:
        if not self.cut_off:
            self.agent.receive(message)

    def _tell(self, message: MemberMessage) -> None:
        if not self.cut_off:
            self.job.runner.receive(self.index, message)

    def dismiss(self) -> None:
        """It goes in `close`."""

    def close(self) -> None:
        self.agent.handle(Shutdown(execution_id=NO_EXECUTION))
        self.finish()

    def finish(self) -> None:
        """Let what was told to stop come to its end."""
        if self.stepped is not None:
            self.stepped.end_if_done()

    def kill(self) -> None:
        """Nothing of it does anything any more; what it had sent is under way."""
        self.agent.kill()
        self.stepped = None
        self.works.waiting.clear()
        while self.agent.handle_next():
            pass

    def step_tasklet(self, choose: Callable[[], float]) -> bool:
        """Let a tasklet do something: the one at that place, in [0, 1), of those that run."""
        stepped = self.stepped
        if stepped is None:
            return False
        running = stepped.running
        return bool(running) and stepped.step(running[int(choose() * len(running))])


class _OnOneThread:
    """A RunningExecution that is stepped."""

    def __init__(
        self, member: SteppedMember, dag: Dag, prepare: Prepare, transport: Transport, deliver: Deliver
    ) -> None:
        self.member = member
        self.execution = Execution(
            dag,
            job=prepare.job,
            job_id=prepare.job_id,
            execution_id=prepare.execution_id,
            member=prepare.member,
            member_count=prepare.member_count,
            workers=prepare.workers,
            transport=transport,
            guarantee=prepare.guarantee,
            now_us=member.job.clock,
            memory_limit=prepare.memory_limit_bytes,
            deliver=deliver,
            partition_count=prepare.partition_count,
            snapshot_store=member.job.submission.snapshots.store,
            restore=prepare.restore,
            settle_only=prepare.settle_only,
            state_writer=member.works,
            parallelism_max=prepare.parallelism_max,
            accepted_losses=prepare.accepted_losses,
        )

    def open(self) -> None:
        self.execution.open()

    def start(self, listener: ExecutionListener) -> None:
        self.member.stepped = SteppedExecution(self.execution, listener)

    def add_partitions(self, vertex: str, announced: AnnouncedPartitions) -> None:
        self.execution.add_partitions(vertex, announced)

    def start_snapshot(self, snapshot_id: int, kind: SnapshotKind) -> None:
        self.execution.start_snapshot(snapshot_id, kind)

    def end_snapshot(self, snapshot_id: int, success: bool) -> None:
        self.execution.end_snapshot(snapshot_id, success)

    def cancel(self) -> None:
        self.execution.cancel()
        self.member.finish()

    def abandon(self) -> None:
        self.execution.abandon()

    def join(self, timeout: float | None = None) -> bool:
        return True

    def metrics(self) -> dict[str, Any]:
        return self.execution.metrics()


class SteppedJob:
    """A job that goes on only when `step` or `run` is called."""

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        seed: int,
        store: SnapshotStore | None = None,
        guarantee: Guarantee | None = None,
        interval: Duration = "100ms",
        members: int = 1,
        workers: int = 1,
        partition_count: int = PARTITION_COUNT,
        max_restarts: int | None = None,
        fresh: bool = False,
        suspend_on_failure: bool = False,
        initial_snapshot: str | None = None,
        accept_loss: Sequence[str] = (),
        clock: VirtualClock | None = None,
        new_execution_id: Callable[[int], int] = new_execution_id,
        lease: Duration | None = None,
    ) -> None:
        """`lease`: by which members live; None: they need none. To ask for it, to end with it are steps of theirs."""
        self.random = Random(seed)
        self.clock = clock or VirtualClock()
        self.submission: Submission = accept_submission(
            pipeline,
            cluster="local",
            member_count=members,
            workers=workers,
            partition_count=partition_count,
            name=None,
            memory_limit="1GB",
            progress=False,
            two_stage=None,
            snapshots=SnapshotWishes(
                guarantee, store, interval, max_restarts, fresh, suspend_on_failure, initial_snapshot, accept_loss
            ),
        )
        self.works = Works()
        self.looks = Works()
        settings = self.submission.settings()
        if lease is not None:
            lease_us = positive_duration_us(lease, "lease")
            settings = replace(settings, coordinator=CoordinatorRecord(lease_us=lease_us), lease_s=lease_us / 1e6)
        self.leased = lease is not None
        self.has_claimed = False
        """It has begun to claim the job: a claim of another coordinator from now on ends it."""
        self._new_execution_id = new_execution_id
        self.runner = Runner(
            settings,
            clock=self._now_s,
            lease_clock=self._now_s,
            run_store=self.works,
            run_look=self.looks,
            new_execution_id=self._claim,
        )
        self.runner.summon = self._summon
        self.runner.release = self._release
        self.members: dict[int, SteppedMember] = {}
        self.before_execution: Callable[[int], None] = lambda member: None
        """Called with the first member that prepares an execution."""
        self._network_id = NO_EXECUTION
        self._network = MemoryNetwork(0)
        self.job = Job(self.runner, self.submission.dag, progress=False)
        self.runner.begin()

    def _now_s(self) -> float:
        return self.clock() / 1e6

    def _claim(self, last: int) -> int:
        self.has_claimed = True
        return self._new_execution_id(last)

    def make_lease(self, index: int) -> SimulatedLease | None:
        return SimulatedLease(index, self.runner.leases, self._now_s) if self.leased else None

    def given_up(self) -> list[SteppedMember]:
        """Give up the members whose leases have run out: those that can be reached are killed, the others live on."""
        found = []
        for index in self.runner.leases.run_out(self._now_s()) if self.leased else ():
            member = self.members.get(index)
            if member is not None:
                found.append(member)
                if member.cut_off:
                    self.lose(index)
                else:
                    self.kill(index)
        return found

    def transport(self, prepare: Prepare) -> Transport:
        if prepare.execution_id != self._network_id:
            self.before_execution(prepare.member)
            self._network_id = prepare.execution_id
            self._network = MemoryNetwork(prepare.member_count, prepare.memory_limit_bytes)
        return self._network.transport(prepare.member)

    def _summon(self, index: int) -> None:
        member = self.members[index] = SteppedMember(self, index)
        registered = Registered(
            execution_id=NO_EXECUTION,
            member=index,
            incarnation=0,
            pid=os.getpid(),
            host="host",
            address="",
            versions=running_versions(),
        )
        self.runner.register(index, member, registered)

    def _release(self) -> None:
        for member in self.members.values():
            member.close()

    def kill(self, index: int) -> None:
        """Let a member die."""
        self.runner.leases.end(index)
        self.members.pop(index).kill()
        self.runner.lost(index, MemberLostError(f"member {index} was killed"))

    def lose(self, index: int) -> SteppedMember:
        """Let the coordinator believe that a member is dead; it lives on, and nobody hears of it."""
        self.runner.leases.end(index)
        member = self.members.pop(index)
        member.cut_off = True
        self.runner.lost(index, MemberLostError(f"member {index} does not answer"))
        return member

    def cut(self, index: int) -> None:
        """Let a member lose its connections to its peers, though it hears the coordinator."""
        self._network.close(index)

    def step(self) -> bool:
        """Let somebody do something; False: nobody had anything to do."""
        self.clock.advance_us(self.random.randrange(STEP_US_MAX))
        members = list(self.members.values())
        for member in members if self.random.random() < REPORTS else ():
            member.agent.report_metrics()
        actors: list[Callable[[], bool]] = [self.runner.handle_timers, self.runner.handle_next, self.works.step]
        for member in members:
            actors += [member.agent.handle_next, member.works.step]
            actors += [lambda member=member: member.step_tasklet(self.random.random)] * 4
        self.random.shuffle(actors)
        return any(actor() for actor in actors)

    def do(self, operation: Callable[[int], OperationAsked]) -> None:
        """Ask for an operation and go on until it is done; raises why it is refused."""
        answer = self.runner.ask(operation)
        self.run(answer.done)
        answer.result(timeout=0)

    @property
    def ended(self) -> bool:
        return self.runner.has_ended

    def run(self, until: Callable[[], bool] | None = None) -> None:
        """Go on until the job has ended, or `until` says so."""
        for _ in range(STEPS_MAX):
            if self.ended or (until is not None and until()):
                return
            if not self.step() and self.runner.deadline is not None:
                self.clock.advance_us(max(0, round(self.runner.deadline * 1e6) - self.clock()) + 1)
        raise AssertionError(f"the job does not come to its end: {self.runner.status}, {self.job.explain_snapshot()}")
