"""A thread that calls its tasklets in turn, and sleeps while none of them has anything to do."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from jetfast.engine.tasklet import Tasklet
from jetfast.kernels.clocks import CpuSampler, give_turn, join_turns, leave_turns

PARK_SECONDS_MIN = 0.000_05
PARK_SECONDS_MAX = 0.001
"""A worker looks at least this often for what nobody tells it of: items from other members, clocks of sources."""
PARK_SECONDS_WOKEN = 0.05
"""A worker looks at least this often if it is woken for all that concerns it."""
ROUNDS_PER_SAMPLE = 13
"""In one round of so many CPU time is measured, in kernels and around them: that costs a few readings of a clock of
0.4 us for each batch of the round. A prime: what comes back every few rounds (the end of a window) is met now and then.
"""
FIRST_SAMPLED_ROUND = 3


class Abandoned(BaseException):
    """The reason to stop when a member is to end as if its process had died: nothing is closed."""


class Parker:
    """Lets one thread sleep until another wakes it or time is up.

    The owner arms it, looks once more for work, and only then parks: what came in between wakes it at once.
    """

    __slots__ = ("_lock", "parked")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()
        self.parked = False

    def park(self, seconds: float) -> None:
        """Sleep, after `parked` was set and nothing was found to do. Only the owner calls this."""
        give_turn()
        self._lock.acquire(timeout=seconds)
        self.parked = False

    def unpark(self) -> None:
        """Wake the owner. Any thread."""
        self.parked = False
        try:
            self._lock.release()
        except RuntimeError:  # somebody else has just woken it
            return


@dataclass
class Assignment:
    """A tasklet, and the sleepers to wake when it has done something: those who read from it, and who wait for room."""

    tasklet: Tasklet
    neighbours: list[Parker] = field(default_factory=list)
    woken: bool = False
    """Is its worker woken for all that concerns it? (It is no source, and has no channel to another member.)"""


class Worker:
    """Runs tasklets on one thread until all have finished, one fails, or it is told to stop.

    Parameters
    ----------
    name : of the thread
    on_error : called with the first error of each tasklet that fails, from this thread
    stop_reason : asked between calls; an error means: stop, and close the tasklets with it (but see Abandoned)
    on_end : called last, from this thread, when all its tasklets are closed
    """

    def __init__(
        self,
        name: str,
        assignments: Sequence[Assignment],
        *,
        on_error: Callable[[BaseException], None],
        stop_reason: Callable[[], BaseException | None],
        on_end: Callable[[], None],
    ) -> None:
        self.assignments = list(assignments)
        self.on_error = on_error
        self.stop_reason = stop_reason
        self.on_end = on_end
        self.calling: Tasklet | None = None
        """The one that it called last."""
        self.rounds = 0
        """How often it has called all of them: stands still while it is in a call."""
        self.parker = Parker()
        self.cpu_sampler = CpuSampler()
        self.thread = threading.Thread(target=self.run, name=name, daemon=True)

    def run(self) -> None:
        running = list(self.assignments)
        if all(assignment.tasklet.cooperative for assignment in running):
            join_turns()
        try:
            for assignment in running:
                if self.stop_reason() is None:
                    assignment.tasklet.open()
            self.loop(running)
        except BaseException as error:
            self.on_error(error)
        finally:
            reason = self.stop_reason()
            for assignment in running if not isinstance(reason, Abandoned) else ():
                try:
                    assignment.tasklet.close(self.stop_reason())
                except BaseException as error:
                    self.on_error(error)
            leave_turns()
            self.on_end()

    def loop(self, running: list[Assignment]) -> None:
        """Call the tasklets; those that finish are closed and taken off the list."""
        park_seconds = PARK_SECONDS_MIN
        parker = self.parker
        cpu_sampler = self.cpu_sampler
        rounds_to_sample = FIRST_SAMPLED_ROUND
        clock = time.perf_counter_ns
        while running and self.stop_reason() is None:
            progress = False
            finished = False
            self.rounds += 1
            rounds_to_sample -= 1
            if rounds_to_sample == 0:
                cpu_sampler.begin()
            before = clock()
            for assignment in running:
                self.calling = tasklet = assignment.tasklet
                progressed = tasklet.call()
                after = clock()
                if progressed:
                    progress = True
                    tasklet.busy_ns += after - before
                    for neighbour in assignment.neighbours:
                        if neighbour.parked:
                            neighbour.unpark()
                    if tasklet.finished:
                        finished = True
                        tasklet.close(None)
                before = after
            if finished:
                running[:] = [assignment for assignment in running if not assignment.tasklet.finished]
            if rounds_to_sample == 0:
                rounds_to_sample = ROUNDS_PER_SAMPLE
                cpu_sampler.end()
            if progress:
                park_seconds = PARK_SECONDS_MIN
                parker.parked = False
            elif not parker.parked:
                parker.parked = True  # and look once more
            else:
                parker.park(park_seconds)
                woken = all(assignment.woken and not assignment.tasklet.waits_for_outside for assignment in running)
                park_seconds = min(PARK_SECONDS_WOKEN if woken else PARK_SECONDS_MAX, park_seconds * 2)
