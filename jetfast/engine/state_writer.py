"""A thread that works with the snapshot store, one piece of work after the other: a store may be slow, or hang."""

import queue
import threading
from collections.abc import Callable

StateWriter = Callable[[Callable[[], None]], None]
"""Runs a piece of work soon, on whatever thread; pieces of work do not overlap."""


class StateWriterThread:
    """A StateWriter with a thread of its own. `start` before the first work; `stop` lets what is under way finish.

    A member has one that encodes and stores what its tasklets have frozen, a coordinator has one for its records.
    """

    def __init__(self, name: str) -> None:
        self.works: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self.stopped = False
        self.thread = threading.Thread(target=self.run, name=name, daemon=True)

    def __call__(self, work: Callable[[], None]) -> None:
        self.works.put(work)

    def start(self) -> None:
        """Start the thread. RuntimeError if the system refuses."""
        self.thread.start()

    def stop(self, finish: bool = False) -> None:
        """Begin no more work (`finish`: than there is already). Returns at once."""
        self.stopped = not finish
        self.works.put(None)

    def run(self) -> None:
        """Work until `stop`."""
        while (work := self.works.get()) is not None and not self.stopped:
            work()
