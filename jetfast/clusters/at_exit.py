"""Stops the jobs of a program that ends without waiting for them: no member is left, no thread cut off in a kernel."""

import atexit
import weakref

from jetfast.control.runner import Runner

EXIT_WAIT_S = 10.0

_running: weakref.WeakSet[Runner] = weakref.WeakSet()


def stop_at_exit(runner: Runner) -> None:
    """Cancel this job when the interpreter ends, and give it EXIT_WAIT_S to stop. Harmless if it has ended by then."""
    _running.add(runner)


@atexit.register
def _stop_running_jobs() -> None:
    runners = list(_running)
    for runner in runners:
        runner.cancel()
    for runner in runners:
        runner.wait(EXIT_WAIT_S)
