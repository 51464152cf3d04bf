"""How many members a job has while executors come and go: fewer at once, more after a delay. The machine is pure.

    members wait for slots that are not there      the job goes on with those that have one
    slots are free, and stay so for a while        the job is restarted, with a terminal snapshot, on more members

Where Spark brings executors for tasks that wait only (dynamic allocation), tasks wait for the members that a job could
have; slots that those hold are as good as free.

A member that is not there may be slow, too: only one for whose Spark job no task runs, while all slots are taken, has
no slot. A job has at most as many members as it was submitted with. With guarantee NONE a job never changes its size:
it cannot go on elsewhere.
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from jetfast.control.coordinator import JobShape
from jetfast.control.job_events import RestartAsked
from jetfast.control.job_status import JobStatus
from jetfast.control.member_links import MemberLinks
from jetfast.control.runner import Runner
from jetfast.spark.jobs import SparkJobs
from jetfast.spark.scouts import Scouts
from jetfast.spark.slots import Slots

logger = logging.getLogger("jetfast.spark")

LOOK_S = 0.5
LEAVE_DELAY_S = 3.0
"""A member is waited for so long that has no slot: an executor may be about to be started again."""


class Seen(NamedTuple):
    """What one look has shown."""

    members: int
    """That the job has, or waits for."""
    stranded: int
    """Of those it waits for: members without a slot."""
    runs: bool
    free: int
    """Slots, those of scouts included."""


class Sizing:
    """Decides from one look to the next. Times are seconds of any clock."""

    def __init__(self, members_max: int, leave_delay_s: float, join_delay_s: float) -> None:
        self._members_max = members_max
        self._leave_delay_s = leave_delay_s
        self._join_delay_s = join_delay_s
        self._since: tuple[bool, float] | None = None
        """Since when it is too large (True) or too small."""

    def decide(self, seen: Seen, now_s: float) -> int | None:
        """Return how many members the job is to have; None: as many as it has."""
        too_large = seen.members > seen.stranded > 0
        too_small = seen.runs and seen.free > 0 and seen.members < self._members_max
        if not (too_large or too_small):
            self._since = None
            return None
        if self._since is None or self._since[0] is not too_large:
            self._since = (too_large, now_s)
        if now_s - self._since[1] < (self._leave_delay_s if too_large else self._join_delay_s):
            return None
        self._since = None
        return seen.members - seen.stranded if too_large else min(seen.members + seen.free, self._members_max)

    def could_use(self, seen: Seen) -> int:
        """Return how many more members the job could have now."""
        return self._members_max - seen.members if seen.runs else 0


class SizeWatch:
    """Looks, on a thread of its own, from `start` until it is stopped, and has the job change its size."""

    def __init__(
        self,
        runner: Runner,
        links: MemberLinks,
        jobs: SparkJobs,
        count: Callable[[], Slots],
        shape_of: Callable[[int], JobShape],
        sizing: Sizing,
    ) -> None:
        """`shape_of` gives the shape of the job on so many members."""
        self._runner = runner
        self._links = links
        self._jobs = jobs
        self._count = count
        self._shape_of = shape_of
        self._sizing = sizing
        self._scouts = Scouts(jobs, runner.plan.job, runner.plan.job_id)
        self._given = runner.plan.member_count
        """Members of the last shape, which an execution may not have yet."""
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"jetfast-size-{runner.plan.job}", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop_and(self, then: Callable[[], None]) -> Callable[[], None]:
        """Return what looks no more, and does something `then`."""

        def stop() -> None:
            self._stopped.set()
            self._thread.join()
            then()

        return stop

    def _run(self) -> None:
        while not self._stopped.wait(LOOK_S):
            try:
                self._look_once()
            except Exception as error:  # the session is being stopped
                logger.debug("cannot count slots: %s", error)
        self._scouts.close()

    def _look_once(self) -> None:
        runner, now_s = self._runner, time.monotonic()
        if runner.plan.member_count != self._given:  # an execution that begins soon has them
            self._scouts.want(0, now_s)
            return
        slots = self._count()
        seen = self._see(slots)
        members = self._sizing.decide(seen, now_s)
        self._scouts.want(self._sizing.could_use(seen) if slots.may_grow_to and members is None else 0, now_s)
        if members is None:
            return
        self._given = members
        runner.reshape(self._shape_of(members))
        if members > seen.members:
            logger.info("job %s: slots have come; it is restarted on %d members", runner.plan.job, members)
            runner.ask(RestartAsked)

    def _see(self, slots: Slots) -> Seen:
        runner = self._runner
        free = slots.free + self._scouts.seated
        stranded = 0
        if not free:
            groups = [self._links.awaited_group(member) for member in runner.coordinator.absent]
            stranded = sum(group is not None and not self._jobs.has_task(group) for group in groups)
        return Seen(runner.plan.member_count, stranded, runner.status is JobStatus.RUNNING, free)
