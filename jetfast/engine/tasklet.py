"""What a worker calls in turn."""

from typing import Protocol


class Tasklet(Protocol):
    """A piece of work that never blocks (cooperative), or that has a thread of its own.

    open -> call* -> close, all on one thread. `close` is called exactly once, also after a failure and when `open`
    failed or was never reached.
    """

    name: str
    cooperative: bool
    busy_ns: int
    """Time spent in calls that did something; the worker adds to it."""
    finished: bool
    """Nothing is left to do: `call` is not called any more."""

    @property
    def waits_for_outside(self) -> bool:
        """Does it wait for something that nobody will tell of, so that it should be called often?"""

    def open(self) -> None:
        """Called before the first `call`."""

    def call(self) -> bool:
        """Do a little; True if anything was done (call again soon), False if there is nothing to do now."""

    def close(self, error: BaseException | None) -> None:
        """Release everything; `error` is why the execution ends early, None at the regular end."""
