"""How often a job is started again after errors, and how soon."""

from jetfast.errors import MemberLostError

RESTART_DELAY_MIN_S = 1.0
RESTART_DELAY_MAX_S = 60.0


class Restarts:
    """Those of one job: after 1 s, doubling to 60 s while it comes no further, for ever or `max_restarts` times.

    The first member that is lost since the job came further is replaced at once: the delay gives time to what is out of
    reach, and its successor needs none.
    """

    def __init__(self, max_restarts: int | None) -> None:
        self.count = 0
        self._max = max_restarts
        self._forgiven = 0
        """Those until the job was resumed."""
        self._delay_s = RESTART_DELAY_MIN_S
        self._lost_member = False
        """Has one been replaced at once since the job came further?"""

    @property
    def is_left(self) -> bool:
        """May it be started again?"""
        return self._max is None or self.count - self._forgiven < self._max

    def next_delay_s(self, error: Exception) -> float:
        """Return the time until the next attempt, seconds."""
        if isinstance(error, MemberLostError) and not self._lost_member:
            self._lost_member = True
            return 0.0
        seconds = self._delay_s
        self._delay_s = min(2 * seconds, RESTART_DELAY_MAX_S)
        return seconds

    def came_further(self) -> None:
        """A snapshot was decided: what fails next is not what has failed before."""
        self._delay_s = RESTART_DELAY_MIN_S
        self._lost_member = False

    def resume(self) -> None:
        """The user lets a suspended job go on: it has all its restarts again."""
        self.came_further()
        self._forgiven = self.count
