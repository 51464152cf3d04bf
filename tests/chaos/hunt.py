"""Kills the processes of one job as planned, one kill after the other, and looks at what the job has left.

A kill counts if results have come from all members of the present execution, while the source is without end; one at a
point of a restart if that held before the restart. After each the hunt waits until results come from all members again:
the time from the kill to the first of them is the recovery.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from tests.chaos.faults import REFUSED, Fault, PlannedFault, copy_store, cut_end, newest_record, state_files
from tests.chaos.hunted_job import STUCK_S, HuntedJob, StuckError, look_again, now_s
from tests.chaos.kills import (
    FEWER_PROCESSORS,
    IN_A_RESTART,
    RANDOM_MOMENT,
    Kill,
    Occasion,
    Victim,
    random_kill,
)
from tests.chaos.targets import Database, Found
from tests.chaos.watched import Order

SMALLEST_SHAPE = (1, 1)
LARGER_SHAPE = (2, 1)
ATTEMPTS = 30
"""Restarts until a point is reached that not every restart comes by."""


@dataclass
class Toll:
    """What a hunt has done."""

    kills: Counter[Occasion] = field(default_factory=Counter)
    victims: Counter[Victim] = field(default_factory=Counter)
    recoveries_s: list[float] = field(default_factory=list)
    freezes: int = 0
    """Members that were frozen for longer than their lease."""
    zombies: int = 0
    """Those of them that went on when others had taken their place."""
    faults: Counter[Fault] = field(default_factory=Counter)

    @property
    def total(self) -> int:
        """Kills of any kind; those who were only frozen are no kills."""
        return self.kills.total()

    @property
    def done(self) -> int:
        """Everything of the plan that has happened."""
        return self.total + self.freezes + self.faults.total()


class Hunt:
    """The kills of one job."""

    def __init__(self, job: HuntedJob, random: Random, database: Database | None = None) -> None:
        self.job = job
        self.database = database
        self.random = random
        self.toll = Toll()
        self._killed: tuple[float, int] | None = None
        """When somebody was killed last, and in which execution, until rows flow again."""
        self._decided_before = 0
        """Snapshots that were decided when somebody was killed last."""
        self._last_order = 0

    def kill(self, planned: Kill) -> None:
        """Wait until rows are in flight, and let that die which is planned. Raises StuckError."""
        if planned.occasion == RANDOM_MOMENT:
            self._kill_at_random(planned)
        elif planned.occasion in IN_A_RESTART:
            self._kill_in_a_restart(planned)
        else:
            self._await_flow()
            number = self._place(planned)
            self._await(f"{planned.occasion} is reached", lambda: self._count_death(planned, number))

    def meet(self, fault: PlannedFault) -> None:
        """Let a fault happen, and wait until the job has done what it must. Raises StuckError."""
        self._await_flow()
        if fault.kind == "store-full":
            self._fill_store(fault.lasts_s)
        elif fault.kind in REFUSED:
            self._alter_store(fault.kind)
        else:
            self._disturb_database(fault)
        self.toll.faults[fault.kind] += 1

    def _fill_store(self, lasts_s: float) -> None:
        """Snapshots fail while there is no room; when there is room again they succeed, without a restart."""
        job, disk = self.job, self.job.disk
        assert disk is not None
        due_s = now_s() + lasts_s

        def is_over() -> bool:
            disk.fill()
            return now_s() >= due_s

        self._await("the store has been full for some time", is_over)
        disk.empty()
        decided = job.decided
        self._await("snapshots are decided after the store was full", lambda: job.decided >= decided + 2)

    def _alter_store(self, kind: Fault) -> None:
        """While nothing runs the store becomes older or loses something: the job refuses to start until it is back."""
        job = self.job
        store, older, whole = (job.folder / name for name in ("snapshots", "older", "whole"))
        if kind == "store-put-back":
            job.hold()
            copy_store(store, older)
            before, decided = job.present, job.decided
            job.start_again()
            self._await(
                "rows are committed after the copy of the store",
                lambda: job.flowing_after(before) is not None and job.decided >= decided + 3,
            )
        job.hold()
        copy_store(store, whole)
        if kind == "store-put-back":
            copy_store(older, store)
        elif kind == "record-lost":
            newest_record(store).unlink()
        else:
            for path in state_files(store):
                cut_end(path)
        before = job.present
        job.start_again()
        self._await(
            f"the job refuses to start ({kind})",
            lambda: job.refusal is not None or job.flowing_after(before) is not None,
        )
        if job.refusal is None:
            raise StuckError(f"{kind}: the job has not refused to start")
        copy_store(whole, store)
        job.start_again()
        self._await("the job continues with what was put back", lambda: job.flowing_after(before) is not None)

    def _disturb_database(self, fault: PlannedFault) -> None:
        """The sink loses its connections, and the job restarts until it has them again."""
        assert self.database is not None
        before = self.job.present
        if fault.kind == "database-away":
            with self.database.away():
                self._pass(fault.lasts_s)
        else:
            with self.database.cut_after(fault.bytes_max):
                self._pass(fault.lasts_s)
        decided = self.job.decided
        self._await("snapshots are decided with the database", lambda: self.job.decided >= decided + 2)
        self._killed = None if self.job.present > before else self._killed

    def _pass(self, seconds: float) -> None:
        """Let time go by, and look at the job."""
        due_s = now_s() + seconds
        self._await("some time has passed", lambda: now_s() >= due_s)

    def finish(self) -> Found:
        """Let the job come to its end, and compare. Raises StuckError."""
        rows = self.job.end_source()
        self._await("the job is completed", lambda: self.job.completed)
        return self.job.work.compare(self.job.target, rows)

    def _kill_at_random(self, planned: Kill) -> None:
        self._await_flow(planned.early)
        due_s = now_s() + planned.delay_s
        self._await("the moment has come", lambda: now_s() >= due_s)
        if "frozen" in planned.victims:
            self._freeze(with_coordinator="coordinator" in planned.victims)
            return
        for victim in planned.victims:
            if victim in ("coordinator", "host"):
                self.job.kill_coordinator(with_members=victim == "host")
            elif not self.job.kill_member(with_executor=victim == "executor"):
                continue
            self._count(RANDOM_MOMENT, victim, now_s(), self.job.present)

    def _freeze(self, with_coordinator: bool) -> None:
        """Freeze a member until the job goes on without it; wake it, and see it end; then its coordinator likewise.

        No recovery is counted: the job stands still for a lease.
        """
        job, before = self.job, self.job.present
        if not job.freeze_member(with_coordinator=with_coordinator):
            return
        self._killed = None
        self._decided_before = job.decided
        self._await("the job goes on without a frozen member", lambda: job.flowing_after(before) is not None)
        self.toll.freezes += 1
        self.toll.zombies += job.wake_member()
        self._await("the member that was frozen has ended", lambda: job.frozen_has_ended)
        job.wake_coordinator()
        self._await("the coordinator that was frozen has ended", lambda: job.frozen_coordinator_has_ended)
        job.forget_frozen()

    def _kill_in_a_restart(self, planned: Kill) -> None:
        """Somebody must die before; and if that restart does not come by the point, then somebody else."""
        for _ in range(ATTEMPTS):
            self._await_flow()
            if planned.occasion == FEWER_PROCESSORS:
                self._leave_two_to_one()
                number = self._place(planned)
            else:
                number = self._place(planned)
                self._kill_at_random(random_kill(self.random))
            began = self.job.present
            self._await(
                f"{planned.occasion} is reached, or results come without it",
                lambda number=number, began=began: (  # type: ignore[misc]
                    number in self.job.deaths or self.job.flowing_after(began) is not None
                ),
            )
            # Steps before the sink give results while it still settles transactions; a snapshot needs all of them.
            decided = self.job.decided
            self._await(
                f"{planned.occasion} is reached or passed by",
                lambda number=number, decided=decided: (  # type: ignore[misc]
                    number in self.job.deaths or self.job.decided > decided
                ),
            )
            if self._count_death(planned, number):
                return
        raise StuckError(f"{ATTEMPTS} restarts have not come by {planned.occasion}")

    def _leave_two_to_one(self) -> None:
        """Let the coordinator die when a snapshot is decided and nobody knows; one processor is there for all then."""
        if self.job.shape == SMALLEST_SHAPE:
            self.job.next_shape = LARGER_SHAPE
            self._kill_at_random(Kill(RANDOM_MOMENT, victims=("coordinator",)))
            self._await_flow()
        self.job.next_shape = SMALLEST_SHAPE
        decided = self.job.decided
        self._await("a snapshot has transactions of all", lambda: self.job.decided >= decided + 2)
        undecided = Kill("before_phase2")
        number = self._place(undecided)
        self._await(f"{undecided.occasion} is reached", lambda: self._count_death(undecided, number))

    def _place(self, planned: Kill) -> int:
        assert planned.occasion != RANDOM_MOMENT
        self._last_order += 1
        self.job.place(Order(self._last_order, planned.occasion, planned.passes))
        return self._last_order

    def _count_death(self, planned: Kill, order: int) -> bool:
        death = self.job.deaths.get(order)
        if death is None:
            return False
        self._count(
            planned.occasion, "coordinator" if death.by_coordinator else "member", death.time_s, death.execution_id
        )
        return True

    def _count(self, occasion: Occasion, victim: Victim, time_s: float, execution_id: int) -> None:
        self.toll.kills[occasion] += 1
        self.toll.victims[victim] += 1
        self._killed = time_s, execution_id
        self._decided_before = self.job.decided

    def _await_flow(self, early: bool = False) -> None:
        killed_s, killed_in = (0.0, 0) if self._killed is None else self._killed

        def flows() -> bool:
            decided = early or self.job.decided > self._decided_before
            return decided and self.job.flowing_after(killed_in) is not None

        self._await("results come from all members, and a snapshot is decided", flows)
        flowing = self.job.flowing_after(killed_in)
        assert flowing is not None
        if self._killed is not None:
            self.toll.recoveries_s.append(min(flowing.results_s.values()) - killed_s)
            self._killed = None

    def _await(self, what: str, condition: Callable[[], bool]) -> None:
        give_up_s = now_s() + STUCK_S
        while True:
            self.job.update()
            if condition():
                return
            if now_s() >= give_up_s:
                raise StuckError(f"waited {STUCK_S:.0f} s until {what}:\n{self.job.explain()}")
            look_again()
