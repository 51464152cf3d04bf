"""Which process this is, so that another one that sees the same processes can tell for certain that it has ended."""

import os
import socket

from msgspec import Struct


class ProcessIdentity(Struct, frozen=True, forbid_unknown_fields=True):
    """One process, among all that there ever were."""

    space: str
    """Equal for processes that see each other: those of one kernel, and of one container."""
    pid: int
    started: str
    """When, in the words of the system: process ids are used again."""


def this_process() -> ProcessIdentity | None:
    """Return the identity of this process; None where the system has no /proc."""
    started = _started(os.getpid())
    space = _this_space()
    return None if started is None or space is None else ProcessIdentity(space, os.getpid(), started)


def has_ended(process: ProcessIdentity | None) -> bool:
    """Has it ended? False: it has not, or that cannot be seen from here."""
    if process is None or process.space != _this_space():
        return False
    return _started(process.pid) != process.started


def _this_space() -> str | None:
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return f"{socket.gethostname()} {file.read().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return None


def _started(pid: int) -> str | None:
    """Return when a process was started; None: there is none, or all that it has left is its status (a zombie)."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            state, *fields = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    return None if state in "ZX" else fields[18]  # field 22 of proc(5)
