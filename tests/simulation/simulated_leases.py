"""Leases of simulated members: shipped machines on both sides, questions and grants that wait as long as they like."""

from collections import deque
from collections.abc import Callable

from jetfast.control.leases import ASKS_PER_LEASE, GrantedLeases, HeldLease


class SimulatedLease:
    """Of one member: what its threads and the coordinator's do about its lease, one step at a time."""

    def __init__(self, member: int, granted: GrantedLeases, now_s: Callable[[], float]) -> None:
        self.member, self._granted, self._now_s = member, granted, now_s
        self.held = HeldLease(now_s() + granted.grant(member, now_s()))
        self.lost = False
        """Does nothing pass between the two any more?"""
        self._next_s = now_s()
        self._questions: deque[int] = deque()
        self._grants: deque[tuple[int, float]] = deque()

    @property
    def has_run_out(self) -> bool:
        return self.held.left_s(self._now_s()) <= 0

    def ask(self) -> bool:
        """The member asks, when it is time to."""
        now_s = self._now_s()
        if now_s < self._next_s:
            return False
        self._next_s = now_s + self._granted.lease_s / ASKS_PER_LEASE
        self._questions.append(self.held.ask(now_s))
        return True

    def answer(self) -> bool:
        """The coordinator hears a question, and grants."""
        if self.lost or not self._questions:
            return False
        self._grants.append((self._questions.popleft(), self._granted.grant(self.member, self._now_s())))
        return True

    def hear(self) -> bool:
        """The member hears a grant."""
        if not self._grants:
            return False
        self.held.granted(*self._grants.popleft())
        return True
