"""Leases: by them a member lives. Pure machines of both sides; time is an argument, seconds of `lease_clock`.

    member                             coordinator                        store
      | -- Registered, RenewLease n --->  |
      |                                   | -- whose is the job? ---------> |    a few times within a lease
      | <-------- LeaseGranted n ---------|

A lease runs from when it was *asked for*, by the member's clock, not from when its grant came: what waited in a socket
while the member was frozen renews nothing. The coordinator knows only when the question came, which was not earlier; so
a lease that it takes to have run out has run out.

It grants no more than it has itself: the execution record bore its execution at a time that it knows, and no lease
outlives that time by more than a lease. Another coordinator that claims the job waits for one lease before it begins,
so members of both never work at once (SEMANTICS 5). Without a record there is no other one.

Leases: Gray and Cheriton 1989.
"""

import math
import threading
import time

LEASE_S = 5.0
ASKS_PER_LEASE = 4
"""How often a member asks, and a coordinator looks, within one lease: three of them may get lost."""


def lease_clock() -> float:
    """Return seconds that pass while this host sleeps, too, where the system counts them."""
    boottime = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boottime is None else time.clock_gettime(boottime)


class HeldLease:
    """The member's side. Safe for any number of threads."""

    def __init__(self, until_s: float) -> None:
        self.until_s = until_s
        self._lock = threading.Lock()
        self._last = 0
        self._asked: dict[int, float] = {}

    def ask(self, now_s: float) -> int:
        """Return the number of a question that is asked now."""
        with self._lock:
            self._last += 1
            self._asked[self._last] = now_s
            return self._last

    def granted(self, number: int, seconds: float) -> None:
        """That question was answered; those before it will not be."""
        with self._lock:
            asked_s = self._asked.get(number)
            if asked_s is None:
                return
            if seconds > 0.0:
                self.until_s = max(self.until_s, asked_s + seconds)
            self._asked = {later: at for later, at in self._asked.items() if later > number}

    def left_s(self, now_s: float) -> float:
        """Return what is left of it; not more than 0: it has run out."""
        return self.until_s - now_s


class GrantedLeases:
    """The coordinator's side. Safe for any number of threads."""

    def __init__(self, lease_s: float = LEASE_S, confirmed_s: float = math.inf) -> None:
        """`confirmed_s`: when the job was known to be this coordinator's; inf: nobody else can have it."""
        self.lease_s = lease_s
        self._confirmed_s = confirmed_s
        self._lock = threading.Lock()
        self._until: dict[int, float] = {}

    def confirm(self, as_of_s: float) -> None:
        """The job was this coordinator's then, says its record."""
        with self._lock:
            self._confirmed_s = max(self._confirmed_s, as_of_s)

    def left_s(self, now_s: float) -> float:
        """Return how long the job is its own for certain; not more than 0: another one may have taken it over."""
        with self._lock:
            return self._confirmed_s + self.lease_s - now_s

    def grant(self, member: int, now_s: float) -> float:
        """A member asks for a lease. Return for how long it gets it, from when it asked; 0: not at all."""
        with self._lock:
            seconds = max(0.0, min(now_s, self._confirmed_s) + self.lease_s - now_s)
            if seconds > 0.0 or member not in self._until:
                self._until[member] = now_s + seconds
            return seconds

    def end(self, member: int) -> None:
        """The member has ended, for certain."""
        with self._lock:
            self._until.pop(member, None)

    def has_run_out(self, member: int, now_s: float) -> bool:
        """Can this member work no more, wherever it is?"""
        with self._lock:
            return self._until.get(member, -math.inf) <= now_s

    def run_out(self, now_s: float) -> list[int]:
        """Return the members whose leases have run out: whether they know it or are frozen, they work no more."""
        with self._lock:
            return [member for member, until_s in self._until.items() if until_s <= now_s]
