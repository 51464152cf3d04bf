"""Temporary folders of processes that may be killed: the next process of the user sweeps those of dead owners.

The owner holds a lock (flock) on the folder itself, and the kernel lets go of it when the last process ends that has
it open. So who gets the lock of a folder knows that its owner is dead. Folders of versions that held no lock, which
have other names, are removed if they hold a socket at which no process listens.
"""

import contextlib
import os
import shutil
import socket
import stat
import tempfile

try:
    from fcntl import LOCK_EX, LOCK_NB, flock
except ImportError:  # Windows: nothing is locked, and nothing swept
    _LOCKS = False
else:
    _LOCKS = True

_ANY = "jetfast-"
_HELD = "jetfast-held-"
SOCKET = "socket"
"""The name of the Unix socket in such a folder."""


class TemporaryFolder:
    """A folder that only this user can enter, removed when its process ends, however that is, or soon after."""

    def __init__(self) -> None:
        """Sweep the folders of dead owners and make a new one. OSError: none can be made."""
        sweep()
        while True:
            self.path = tempfile.mkdtemp(prefix=_HELD)
            self._descriptor = _lock(self.path, wait=True) if _LOCKS else None
            if not _LOCKS or self._descriptor is not None:
                return  # else a sweep has taken it for a dead one's before it was locked

    def remove(self) -> None:
        """Remove it with all that is in it. May be called again, and in a process that was forked from its owner."""
        shutil.rmtree(self.path, ignore_errors=True)
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def sweep() -> list[str]:
    """Remove the folders of dead owners, if they are of this user; return their paths."""
    if not _LOCKS:
        return []
    swept = []
    with contextlib.suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            if entry.name.startswith(_ANY) and entry.is_dir(follow_symlinks=False) and _sweep(entry.path):
                swept.append(entry.path)
    return swept


def _sweep(path: str) -> bool:
    descriptor = _lock(path, wait=False)
    if descriptor is None:
        return False
    try:
        if os.fstat(descriptor).st_uid != os.geteuid() or not _is_ours(path):
            return False
        shutil.rmtree(path, ignore_errors=True)
        return True
    finally:
        os.close(descriptor)


def _is_ours(path: str) -> bool:
    """Was a folder without an owner made here? Of a version that held no lock: a socket that refuses connections."""
    if os.path.basename(path).startswith(_HELD):
        return True
    found = os.path.join(path, SOCKET)
    try:
        if os.listdir(path) != [SOCKET] or not stat.S_ISSOCK(os.lstat(found).st_mode):
            return False
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
            asking.settimeout(1.0)
            asking.connect(found)
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return False


def _lock(path: str, wait: bool) -> int | None:
    """The descriptor of a folder that was locked; None: another process holds it, or it is not there any more."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        flock(descriptor, LOCK_EX if wait else LOCK_EX | LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), os.stat(path, follow_symlinks=False)):
            return descriptor
    except OSError:
        pass
    os.close(descriptor)
    return None
