"""What the systems around a job have in common in tests: they outlive its crashes, and fail as a seed says.

They live in this process, and all copies of a sink or source (a job is pickled to its members) find the same one.
"""

import itertools
import threading
from collections.abc import Callable, Mapping
from enum import Enum
from random import Random
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from jetfast.errors import RestartableError

Result = TypeVar("Result")


class Fault(Enum):
    """What may happen to a call."""

    REFUSED = "refused"
    """An error, and nothing was done."""
    UNKNOWN = "unknown"
    """An error, though it was done: the answer was lost."""


class Faults:
    """Chooses which calls to an outside system go wrong.

    Parameters
    ----------
    random : decides; one seed gives one course of events
    rates : probability in [0, 1] by name of the call, such as {"commit": 0.1}; half of them do what they were asked for
        and say that they failed. "slow": that `prepare` asks to be called again; "duplicate": that a queue delivers a
        message although it was acknowledged

    `active` False: from now on nothing goes wrong.
    """

    def __init__(self, random: Random | None = None, rates: Mapping[str, float] | None = None) -> None:
        self.random = random or Random(0)
        self.rates = dict(rates or {})
        self.active = True
        self.counts: dict[str, int] = {}
        """How often what went wrong."""

    def happens(self, what: str) -> bool:
        """Does it happen now?"""
        rate = self.rates.get(what, 0.0)
        if not self.active or rate == 0.0 or self.random.random() >= rate:
            return False
        self.counts[what] = self.counts.get(what, 0) + 1
        return True

    def choose(self, call: str) -> Fault | None:
        """What happens to this call; None: nothing."""
        if not self.happens(call):
            return None
        return Fault.REFUSED if self.random.random() < 0.5 else Fault.UNKNOWN


_systems: "WeakValueDictionary[int, OutsideSystem]" = WeakValueDictionary()
_numbers = itertools.count(1)


class OutsideSystem:
    """Something that a job reads or writes, and that lives on when the job dies. Any thread."""

    def __init__(self, name: str, faults: Faults | None) -> None:
        self.name = name
        self.faults = faults or Faults()
        self.lock = threading.RLock()
        self._number = next(_numbers)
        _systems[self._number] = self

    def __reduce__(self) -> tuple[Callable[[int], "OutsideSystem"], tuple[int]]:
        return _find, (self._number,)

    def perform(self, call: str, function: Callable[..., Result], *arguments: Any) -> Result:
        """Do what a client asks for, or fail, or both. Raises RestartableError."""
        with self.lock:
            fault = self.faults.choose(call)
            if fault is Fault.REFUSED:
                raise RestartableError(f"{self.name}: {call} failed")
            result = function(*arguments)
            if fault is Fault.UNKNOWN:
                raise RestartableError(f"{self.name}: the connection broke during {call}")
            return result


def _find(number: int) -> OutsideSystem:
    """The system itself: a copy of it would be another one."""
    return _systems[number]
