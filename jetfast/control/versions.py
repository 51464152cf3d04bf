"""Compares versions of a member's process with the coordinator's: functions and rows must mean the same on both."""

import platform

import pyarrow as pa

from jetfast import __version__
from jetfast.control.messages import Versions


def running_versions() -> Versions:
    """Versions of this process."""
    return Versions(platform.python_version(), __version__, pa.__version__)


def version_difference(coordinator: Versions, member: Versions) -> str | None:
    """Return what differs and what to do, or None if the two can work together.

    Python must agree in major.minor (pickled functions hold byte code), jetfast exactly, pyarrow in its major version.
    """
    wrong = []
    if coordinator.python.split(".")[:2] != member.python.split(".")[:2]:
        wrong.append(f"Python {member.python} instead of {coordinator.python}")
    if coordinator.jetfast != member.jetfast:
        wrong.append(f"jetfast {member.jetfast} instead of {coordinator.jetfast}")
    if coordinator.pyarrow.split(".")[0] != member.pyarrow.split(".")[0]:
        wrong.append(f"pyarrow {member.pyarrow} instead of {coordinator.pyarrow}")
    return f"it runs {', '.join(wrong)}; install the same versions there as here" if wrong else None
