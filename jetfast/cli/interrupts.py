"""SIGINT: the first one is a KeyboardInterrupt, which cancels a job; the second one ends the process at once.

This is imported before all else that commands need, so that it can tell why that cannot be imported.
"""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

from jetfast.cli.exit_status import INTERRUPTED


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Let the first SIGINT raise KeyboardInterrupt, and the second end this process at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    interrupted = False

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal interrupted
        if interrupted:
            end_at_once(INTERRUPTED)
        interrupted = True
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        if not interrupted:  # else this process ends, and the next SIGINT may come at any moment of that
            signal.signal(signal.SIGINT, before)


def end_at_once(status: int) -> NoReturn:
    """End this process as a crash would, except for what has been printed."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # it may be closed, or in use by the code that a signal has interrupted
            stream.flush()
    os._exit(status)
