"""Tasks that wait for slots, for members that a job could have, and hold those that they get until members take them.

Under dynamic allocation Spark starts executors for tasks that wait, and takes away those that are idle: a job that has
lost members and goes on with the rest would never have more again. Scouts are such tasks. They run no Python.
"""

import itertools
import logging
import threading
import time
from typing import Protocol

logger = logging.getLogger("jetfast.spark")

END_S = 10.0
"""That scouts have to go when a job is over."""
AGAIN_S = 10.0
"""Time until others are sent after some have ended by themselves, maybe because Spark refuses what they are."""
_LOOK_S = 0.1


class SlotHolder(Protocol):
    """Port: `SparkJobs`."""

    def hold_slot(self, group: str, description: str) -> threading.Thread:
        """Wait for a slot and hold it, until `group` is cancelled; then the thread ends."""

    def cancel(self, group: str) -> None:
        """Let go what was started as `group`. It may not hear it if it was started a moment ago."""

    def has_task(self, group: str) -> bool:
        """Does `group` have a slot?"""


class Scouts:
    """Those of one job. Called by one thread."""

    def __init__(self, holder: SlotHolder, job: str, job_id: str) -> None:
        self._holder = holder
        self._description = f"jetfast job {job}: holds a slot for a member to come"
        self._names = (f"jetfast-{job_id}-scout-{number}" for number in itertools.count())
        self._wanted: dict[str, threading.Thread] = {}
        """By group."""
        self._leaving: dict[str, threading.Thread] = {}
        self._not_before_s = 0.0

    def want(self, count: int, now_s: float) -> None:
        """Have so many. Call it again and again: they come and go in their own time. `now_s`: of any clock."""
        sent, self._wanted = self._wanted, _alive(self._wanted)
        if len(self._wanted) < len(sent):
            self._not_before_s = now_s + AGAIN_S
        while len(self._wanted) < count and now_s >= self._not_before_s:
            name = next(self._names)
            self._wanted[name] = self._holder.hold_slot(name, self._description)
        while len(self._wanted) > count:
            name, thread = self._wanted.popitem()
            self._leaving[name] = thread
        self._leaving = _alive(self._leaving)
        for name in self._leaving:
            self._holder.cancel(name)

    @property
    def seated(self) -> int:
        """How many hold a slot."""
        return sum(self._holder.has_task(name) for name in self._wanted)

    def close(self) -> None:
        """Let all of them go."""
        give_up = time.monotonic() + END_S
        self.want(0, give_up)
        while self._leaving and time.monotonic() < give_up:
            next(iter(self._leaving.values())).join(_LOOK_S)
            self.want(0, give_up)
        if self._leaving:
            logger.warning("%s: %d task(s) do not end", self._description, len(self._leaving))


def _alive(threads: dict[str, threading.Thread]) -> dict[str, threading.Thread]:
    return {name: thread for name, thread in threads.items() if thread.is_alive()}
