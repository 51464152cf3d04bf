"""A parent for a coordinator: starts a program in a process of its own, and again after a kill or an outage.

    supervise ----- starts ----> the program: submits a job, waits for it
        ^                             |
        +---- killed by a signal -----+        it continues where the store says, under a new execution id
        +---- a system is away -------+        told by its status
        |
        +---- ended by itself: that is the outcome

A program that ends with any other status has ended for good, a failed job included. SIGINT, SIGTERM and SIGHUP are how
people and systems end programs: they are passed on, and a program that ends by them is not started again.
"""

import logging
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from jetfast.control.restarts import RESTART_DELAY_MAX_S, RESTART_DELAY_MIN_S

logger = logging.getLogger("jetfast")

CALM_S = 60.0
"""A program that has run so long before it is killed begins with the shortest delay again."""
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def supervise(
    command: Sequence[str],
    *,
    again: Sequence[str] | None = None,
    away_statuses: Collection[int] = (),
    max_restarts: int | None = None,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], object] | None = None,
) -> int:
    """Run a program until it ends by itself; return its status, 128 + n if signal n has ended it for good.

    Parameters
    ----------
    command : the program and its arguments
    again : what is run after that, where it differs: what began a job anew (`fresh`, a named snapshot) must not do so
        twice; default: `command`
    away_statuses : with which the program ends when a system that it needs cannot be reached: it is started again
    max_restarts : how often it is started again; default: without limit
    clock, pause : what time it is, and how to let seconds pass; tests give others

    The delay before a restart is 1 s, doubling to 60 s, and 1 s again once the program has run for CALM_S. An OSError:
    it cannot be started. When this process is killed the program runs on, and is not started again.
    """
    supervised = _Supervised()
    with supervised.taking_signals():
        return _start_until_it_ends(supervised, command, again or command, away_statuses, max_restarts, clock, pause)


def _start_until_it_ends(
    supervised: "_Supervised",
    command: Sequence[str],
    again: Sequence[str],
    away_statuses: Collection[int],
    max_restarts: int | None,
    clock: Callable[[], float],
    pause: Callable[[float], object] | None,
) -> int:
    restarts = 0
    delay_s = RESTART_DELAY_MIN_S
    while True:
        began_s = clock()
        status = supervised.run(again if restarts else command)
        if status >= 0 and status not in away_statuses:
            return status
        outcome = status if status >= 0 else 128 - status
        if supervised.ended_by is not None or -status in _ENDING:
            return outcome
        why = f"was killed by {_name_of(-status)}" if status < 0 else f"ended with status {status}: a system is away"
        if max_restarts is not None and restarts >= max_restarts:
            logger.error("the program %s, and no restart is left", why)
            return outcome
        if clock() - began_s >= CALM_S:
            delay_s = RESTART_DELAY_MIN_S
        restarts += 1
        logger.warning("the program %s; it is started again in %.0f s", why, delay_s)
        (pause or supervised.told_to_end.wait)(delay_s)
        if supervised.ended_by is not None:
            return 128 + supervised.ended_by
        delay_s = min(2 * delay_s, RESTART_DELAY_MAX_S)


class _Supervised:
    """The program that runs at present, if one does, and what it is told."""

    def __init__(self) -> None:
        self.told_to_end = threading.Event()
        self.ended_by: int | None = None
        """The signal that was to end it last."""
        self._program: subprocess.Popen[bytes] | None = None
        self._passed_on_to: subprocess.Popen[bytes] | None = None
        """Got a signal from here."""

    def run(self, command: Sequence[str]) -> int:
        """Run it to its end; return its status, negative for a signal."""
        # In a group of its own: Ctrl-C at the terminal comes once, from here.
        with subprocess.Popen(command, process_group=0) as self._program:
            # The signal may have come before there was a process to pass it on to.
            if self.ended_by is not None and self._passed_on_to is not self._program:
                self._program.send_signal(self.ended_by)
            return self._program.wait()

    @contextmanager
    def taking_signals(self) -> Iterator[None]:
        """Pass on signals that end programs. Only the main thread gets them; called elsewhere, nothing is changed."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._pass_on) for number in _ENDING}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        self.ended_by = number
        self.told_to_end.set()
        if self._program is not None:
            self._passed_on_to = self._program
            self._program.send_signal(number)


def _name_of(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
