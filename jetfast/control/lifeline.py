"""Whether all processes of an earlier coordinator have ended: a lock that they share, and the system lets go for them.

    a coordinator       locks one byte, chosen at random, of a file of this user's, through an open file
    its members         inherit the open file, and with it the lock
    the next one        asks who has that byte: nobody, when the last of them has ended, however that was

What the execution record keeps of it names the host's boot, the file and the byte. Nothing is certain on another host,
when the file was replaced, or where the system has no such locks (open file description locks, Linux 3.15).
"""

import contextlib
import os
import secrets
import struct
import tempfile
from collections.abc import Callable

from jetfast.control.endpoint import this_host_id
from jetfast.engine.submission_record import Lifeline

try:
    from fcntl import F_OFD_GETLK, F_OFD_SETLK, F_UNLCK, F_WRLCK, fcntl
except ImportError:  # not Linux
    _LOCKS = False
else:
    _LOCKS = struct.calcsize("P") == 8

_LOCK = struct.Struct("hhqqi")
"""struct flock of 64-bit Linux: type, whence, start, length, process."""


class HeldLifeline:
    """This coordinator's; `close` it when every member has ended."""

    def __init__(self, record: Lifeline, descriptor: int) -> None:
        self.record = record
        self.descriptor = descriptor
        """What members are to inherit."""

    def close(self) -> None:
        """Let go of it; who has inherited it still holds it. Called once."""
        os.close(self.descriptor)


def hold_lifeline() -> HeldLifeline | None:
    """Return a new one; None where there can be none."""
    if not _LOCKS:
        return None
    path = os.path.join(tempfile.gettempdir(), f"jetfast-lifelines-{os.getuid()}")
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError:
        return None
    try:
        found = os.fstat(descriptor)
        if found.st_uid != os.getuid():
            raise PermissionError(f"{path} is not a file of this user's")
        offset = secrets.randbits(62)
        fcntl(descriptor, F_OFD_SETLK, _LOCK.pack(F_WRLCK, os.SEEK_SET, offset, 1, 0))
    except OSError:
        os.close(descriptor)
        return None
    return HeldLifeline(Lifeline(this_host_id(), path, found.st_dev, found.st_ino, offset), descriptor)


def end_members(close: Callable[[], None], lifeline: HeldLifeline | None) -> Callable[[], None]:
    """Return what calls `close`, which ends all members, and lets go of the lifeline then."""

    def end() -> None:
        close()
        if lifeline is not None:
            lifeline.close()

    return end


def has_ended(lifeline: Lifeline) -> bool:
    """Have all who held it ended? False: not all, or nobody can tell."""
    if lifeline.host_id != this_host_id() or not _LOCKS:
        return False
    try:
        descriptor = os.open(lifeline.path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        found = os.fstat(descriptor)
        if (found.st_dev, found.st_ino) != (lifeline.device, lifeline.inode):
            return False  # those who hold it hold another file
        with contextlib.suppress(OSError):
            asked = _LOCK.pack(F_WRLCK, os.SEEK_SET, lifeline.offset, 1, 0)
            kind, *_ = _LOCK.unpack(fcntl(descriptor, F_OFD_GETLK, asked)[: _LOCK.size])
            return bool(kind == F_UNLCK)
        return False
    finally:
        os.close(descriptor)
