"""How SIGTERM ends a command that runs a job.

    SIGTERM     suspend the job with a last snapshot, then end with 0; without snapshots cancel it, then end with 143
    again       or when the time for that is over: end at once, as in a crash, with 143

Ending at once is safe for a job with snapshots: it continues from the last one, as after the loss of its process.
"""

import contextlib
import logging
import signal
import threading
from collections.abc import Callable
from types import FrameType

from jetfast.cli.exit_status import STOPPED
from jetfast.cli.interrupts import end_at_once
from jetfast.control.job import Job
from jetfast.errors import OperationRefused

logger = logging.getLogger("jetfast")

DEFAULT_STOP_TIMEOUT = "30s"


class Stopping:
    """Lets SIGTERM suspend the job of a command, while it is entered. Only the main thread can take signals."""

    def __init__(self, timeout_s: float) -> None:
        self.asked = threading.Event()
        """Has SIGTERM come?"""
        self._timeout_s = timeout_s
        self._job: Job | None = None
        self._lock = threading.Lock()
        """Taken by the thread that suspends the job, and kept."""
        self._over = threading.Event()

    def attach(self, job: Job) -> None:
        """The command has submitted its job."""
        self._job = job
        if self.asked.is_set():
            self._start(self._suspend_once)

    def __enter__(self) -> "Stopping":
        self._takes_signals = threading.current_thread() is threading.main_thread()
        if self._takes_signals:
            self._before = signal.signal(signal.SIGTERM, self._stop)
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._takes_signals:
            signal.signal(signal.SIGTERM, self._before)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        if self.asked.is_set():
            end_at_once(STOPPED)
        self.asked.set()
        self._start(self._watch)
        if self._job is not None:
            self._start(self._suspend_once)

    def _start(self, run: Callable[[], None]) -> None:
        threading.Thread(target=run, name="jetfast-stopping", daemon=True).start()

    def _suspend_once(self) -> None:
        assert self._job is not None
        if not self._lock.acquire(blocking=False):  # SIGTERM came between two lines of `attach`
            return
        logger.info("job %s: SIGTERM, it is being suspended", self._job.name)
        with contextlib.suppress(OperationRefused):  # it is ending by itself
            self._job.leave()

    def _watch(self) -> None:
        if not self._over.wait(self._timeout_s):
            logger.error("the job could not be suspended within %g s", self._timeout_s)
            end_at_once(STOPPED)
