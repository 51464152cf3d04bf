"""A parent for a coordinator: starts a program in a process of its own, and again whenever a signal has killed it.

    supervise ----- starts ----> the program: submits a job, waits for it
        ^                             |
        +---- killed by a signal -----+        it goes on where the store says, under a new execution id
        |
        +---- ended by itself: that is the outcome

A program that ends with a status has had its say, a failed job included. SIGINT, SIGTERM and SIGHUP are how people and
systems end programs: they are passed on, and a program that ends by them is not started again.
"""

import logging
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
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
    max_restarts: int | None = None,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], object] | None = None,
) -> int:
    """Run a program until it ends by itself; return its status, 128 + n if signal n has ended it for good.

    Parameters
    ----------
    command : the program and its arguments
    again : what is run after a kill, where that differs: what began a job anew (`fresh`, a named snapshot) must not
        do so twice; default: `command`
    max_restarts : how often it is started again; default: for ever
    clock, pause : what time it is, and how to let seconds pass; tests give others

    The delay before a restart is 1 s, doubling to 60 s, and 1 s again once the program has run for CALM_S. An OSError:
    it cannot be started. When this process is killed the program runs on, without anybody to start it again.
    """
    supervised = _Supervised()
    with supervised.taking_signals():
        return _start_until_it_ends(supervised, command, again or command, max_restarts, clock, pause)


def _start_until_it_ends(
    supervised: "_Supervised",
    command: Sequence[str],
    again: Sequence[str],
    max_restarts: int | None,
    clock: Callable[[], float],
    pause: Callable[[float], object] | None,
) -> int:
    restarts = 0
    delay_s = RESTART_DELAY_MIN_S
    while True:
        began_s = clock()
        status = supervised.run(again if restarts else command)
        if status >= 0:
            return status
        if supervised.told_to_end.is_set() or -status in _ENDING:
            return 128 - status
        killed_by = _name_of(-status)
        if max_restarts is not None and restarts >= max_restarts:
            logger.error("the program was killed by %s, and not for the first time: it stays so", killed_by)
            return 128 - status
        if clock() - began_s >= CALM_S:
            delay_s = RESTART_DELAY_MIN_S
        restarts += 1
        logger.warning("the program was killed by %s; it is started again in %.0f s", killed_by, delay_s)
        (pause or supervised.told_to_end.wait)(delay_s)
        if supervised.told_to_end.is_set():
            return 128 - status
        delay_s = min(2 * delay_s, RESTART_DELAY_MAX_S)


class _Supervised:
    """The program that runs at present, if one does, and what it is told."""

    def __init__(self) -> None:
        self.told_to_end = threading.Event()
        self._program: subprocess.Popen[bytes] | None = None

    def run(self, command: Sequence[str]) -> int:
        """Run it to its end; return its status, negative for a signal."""
        # In a group of its own: Ctrl-C at the terminal comes once, from here.
        with subprocess.Popen(command, process_group=0) as self._program:
            if self.told_to_end.is_set():
                self._program.terminate()
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
        self.told_to_end.set()
        if self._program is not None:
            self._program.send_signal(number)


def _name_of(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
