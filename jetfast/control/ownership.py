"""Whose the job is: looks at its record, by which members live (`leases`), and the wait for the members of others.

look         a few times within a lease, on a thread of its own: a store that hangs holds up nothing but leases
fence        after a claim, until the processes of earlier coordinators have ended for certain, or their leases
"""

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass

from jetfast.control.job_events import AwaitPredecessors
from jetfast.control.leases import ASKS_PER_LEASE, GrantedLeases
from jetfast.control.store_commands import RecordSeen, have_ended, look
from jetfast.engine.snapshot_store import SnapshotStore
from jetfast.engine.state_writer import StateWriter, StateWriterThread
from jetfast.engine.submission_record import CoordinatorRecord

logger = logging.getLogger("jetfast")

FENCE_LOOK_S = 0.02
"""Time between two looks whether the members of an earlier coordinator have ended."""


@dataclass(frozen=True)
class Looked:
    """What was seen of the execution record, not before `as_of_s` of the lease clock."""

    seen: RecordSeen
    as_of_s: float


class Ownership:
    """Of one job. Called by the coordinator's thread alone, but for what is said of others."""

    def __init__(
        self,
        job: str,
        store: SnapshotStore | None,
        coordinator: CoordinatorRecord | None,
        lease_s: float,
        *,
        lease_clock: Callable[[], float],
        run_look: StateWriter | None,
        tell: Callable[[Looked], None],
    ) -> None:
        """`coordinator` None: nobody else can have the job. `tell` is called on the thread of looks, which `run_look`
        replaces.
        """
        self.leases = GrantedLeases(lease_s, math.inf if coordinator is None else -math.inf)
        """Of members; safe for any number of threads."""
        self.lease_clock = lease_clock
        self.is_shared = coordinator is not None
        """May another coordinator take the job over?"""
        self._job = job
        self._store = store
        self._tell = tell
        self._thread = StateWriterThread(f"jetfast-look-{job}")
        self._run = self._thread if run_look is None else run_look
        self._looking = False
        self._predecessors: tuple[CoordinatorRecord, ...] = ()
        self._fenced_until_s = 0.0
        """By then their leases have run out."""

    def start(self) -> None:
        """Start the thread of looks, if there is anything to look for."""
        if self.is_shared:
            self._thread.start()

    def stop(self) -> None:
        """Look no more. Returns at once."""
        self._thread.stop()

    @property
    def look_interval_s(self) -> float:
        """Time between two looks."""
        return self.leases.lease_s / ASKS_PER_LEASE

    def look(self) -> None:
        """Look at the execution record, unless the last look is not over yet."""
        store = self._store
        if self._looking or store is None:
            return

        def work() -> None:
            as_of_s = self.lease_clock()
            seen = look(store, self._job)
            self._looking = False
            if seen is not None:
                self._tell(Looked(seen, as_of_s))

        self._looking = True
        self._run(work)

    def fence(self, command: AwaitPredecessors, now_s: float) -> None:
        """Begin to wait for the members of others."""
        self._predecessors = command.coordinators
        seconds = max(coordinator.lease_us for coordinator in command.coordinators) / 1e6
        self._fenced_until_s = now_s + seconds
        logger.info(
            "job %s: another coordinator had it; waiting for the end of its members, at most %g s", self._job, seconds
        )

    def next_fence_look_s(self, now_s: float) -> float:
        """When to ask `is_fenced` again."""
        return min(now_s + FENCE_LOOK_S, self._fenced_until_s)

    def is_fenced(self, now_s: float) -> bool:
        """Have the members of others ended, or their leases run out?"""
        return now_s >= self._fenced_until_s or all(map(have_ended, self._predecessors))
