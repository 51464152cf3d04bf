"""A thread that encodes and stores the state that the tasklets of a member have frozen, one after the other."""

import queue
import threading
from collections.abc import Callable

StateWriter = Callable[[Callable[[], None]], None]
"""Runs a piece of work soon, on whatever thread; pieces of work do not overlap."""


class StateWriterThread:
    """A StateWriter with a thread of its own. `start` before the first work; `stop` lets what is under way finish."""

    def __init__(self, name: str) -> None:
        self.works: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self.stopped = False
        self.thread = threading.Thread(target=self.run, name=name, daemon=True)

    def __call__(self, work: Callable[[], None]) -> None:
        self.works.put(work)

    def start(self) -> None:
        """Start the thread. RuntimeError if the system refuses."""
        self.thread.start()

    def stop(self) -> None:
        """Begin no more work. Returns at once."""
        self.stopped = True
        self.works.put(None)

    def run(self) -> None:
        """Work until `stop`."""
        while (work := self.works.get()) is not None and not self.stopped:
            work()
