"""Named bytes in a directory of a file system: fsynced, created exclusively by a hard link."""

import contextlib
import errno
import functools
import logging
import os
import stat
import time
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from jetfast.errors import JobDefinitionError, OutcomeUnknown, StoreUnavailable

logger = logging.getLogger("jetfast")

_TEMPORARY = ".writing-"
_PROBE = "probe-"
"""Begins the names of files with which a store was tried: `BlobSnapshotStore.check`."""
_ABANDONED_S = 86_400.0
"""A file that was not written to for so long, by a process that cannot be seen from here, is taken for a dead one's."""
_YOUNG_S = 10.0
"""A file that was written to since is left alone, locked or not."""

flock: Any
try:
    from fcntl import LOCK_EX, LOCK_NB, flock
except ImportError:  # Windows
    flock = None


class DirectoryBlobs:
    """Blobs below a directory, which is made if need be.

    A file is written under a temporary name, fsynced, and gets its name by a rename (`put`) or a hard link (`create`);
    then its folder is fsynced. A link, unlike a rename, fails where there is a file already, on network file systems
    too; should its answer be lost there, the number of links tells whether it was made.
    """

    exclusive_by = "hard links"

    def __init__(self, path: str | os.PathLike[str], allow_shared: bool = False) -> None:
        """`allow_shared`: let other users write to it."""
        self.path = Path(path).absolute()
        self.allow_shared = allow_shared

    @property
    def name(self) -> str:
        return f"directory {self.path}"

    @property
    def survives(self) -> str:
        return f"the loss of every process, as long as {self.path} is there"

    def sweep(self, folder: str) -> None:
        for within in ("", folder):
            with contextlib.suppress(OSError):
                self._sweep(self.path / within, deep=bool(within))

    def check_access(self) -> None:
        if os.name == "nt":
            logger.info("%s: jetfast cannot judge here who can write to it", self.name)
            return
        try:
            with os.scandir(self.path) as entries:
                folders = [self.path, *(Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False))]
            problems = [problem for folder in folders if (problem := _shared(folder))]
        except OSError as error:
            raise JobDefinitionError(f"{self.name}: it cannot be told who can write to it: {error}") from error
        if problems and self.allow_shared:
            logger.warning("%s: %s; it was allowed by allow_shared_store=True", self.name, problems[0])
        elif problems:
            raise JobDefinitionError(
                f"{self.name}: {problems[0]}. Who can write to a snapshot store decides what the job restores, and "
                "which files it renames: take that right away (chmod, chown), or say "
                "jetfast.snapshots.directory(..., allow_shared_store=True) if you trust these users"
            )
        for folder in folders:
            found = folder.stat()
            if found.st_mode & stat.S_IWGRP:
                logger.warning(
                    "%s: group %s can write to %s, and so decide what jobs restore", self.name, _group(found), folder
                )

    def put(self, name: str, pieces: Iterable[bytes | memoryview]) -> None:
        target = self.path / name
        try:
            temporary = self._write(target, pieces)
            os.replace(temporary, target)
            _sync_folder(target.parent)
        except OSError as error:
            raise StoreUnavailable(f"{self.name}: {name} cannot be written: {error}") from error

    def create(self, name: str, data: bytes) -> bool:
        target = self.path / name
        try:
            temporary = self._write(target, [data])
        except OSError as error:
            raise StoreUnavailable(f"{self.name}: {name} cannot be written: {error}") from error
        try:
            try:
                os.link(temporary, target)
            except FileExistsError:
                return os.stat(temporary).st_nlink == 2
            except OSError as error:
                if os.stat(temporary).st_nlink != 2:
                    raise StoreUnavailable(f"{self.name}: {name} cannot be created: {error}") from error
            _sync_folder(target.parent)
        except OSError as error:
            raise OutcomeUnknown(f"{self.name}: it is not known whether {name} was created: {error}") from error
        finally:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        return True

    def get(self, name: str) -> bytes | None:
        try:
            return (self.path / name).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise StoreUnavailable(f"{self.name}: {name} cannot be read: {error}") from error

    def list(self, folder: str) -> list[str]:
        found = []
        try:
            for parent, _, files in os.walk(self.path / folder, onerror=_raise_unless_missing):
                within = Path(parent).relative_to(self.path).as_posix()
                found += [f"{within}/{file}" for file in files if not file.startswith(_TEMPORARY)]
        except OSError as error:
            raise StoreUnavailable(f"{self.name}: {folder} cannot be listed: {error}") from error
        return sorted(found)

    def list_folders(self) -> Sequence[str]:
        try:
            with os.scandir(self.path) as entries:
                return sorted(entry.name for entry in entries if entry.is_dir())
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StoreUnavailable(f"{self.name} cannot be listed: {error}") from error

    def list_parts(self, folder: str) -> Sequence[str]:
        try:
            return sorted(name for name in os.listdir(self.path / folder) if not name.startswith(_TEMPORARY))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise StoreUnavailable(f"{self.name}: {folder} cannot be listed: {error}") from error

    def delete(self, names: Sequence[str]) -> None:
        folders = set()
        try:
            for name in names:
                target = self.path / name
                target.unlink(missing_ok=True)
                folders.add(target.parent)
        except OSError as error:
            raise StoreUnavailable(f"{self.name}: {name} cannot be deleted: {error}") from error
        for folder in sorted(folders, reverse=True):
            self._remove_empty(folder)

    def delete_folder(self, folder: str) -> None:
        target = self.path / folder
        try:
            for parent, folders, files in os.walk(target, topdown=False, onerror=_raise_unless_missing):
                for name in files:
                    (Path(parent) / name).unlink(missing_ok=True)
                for name in folders:
                    _remove_folder(Path(parent) / name)
        except OSError as error:
            raise StoreUnavailable(f"{self.name}: {folder} cannot be deleted: {error}") from error
        self._remove_empty(target)

    def __repr__(self) -> str:
        return f"DirectoryBlobs({str(self.path)!r})"

    def _write(self, target: Path, pieces: Iterable[bytes | memoryview]) -> Path:
        """Write pieces durably under a temporary name beside the target."""
        temporary = target.parent / f"{self._temporary_prefix()}{uuid.uuid4().hex}"
        while True:
            try:
                descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                break
            except FileNotFoundError:  # the folder is not there (or has just been deleted as an empty one)
                _make_folders(target.parent)
        try:
            with open(descriptor, "wb", buffering=0) as file:
                _hold(descriptor)
                for piece in pieces:
                    view = memoryview(piece)
                    while len(view):
                        view = view[file.write(view) :]
                os.fsync(descriptor)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
        return temporary

    def _sweep(self, place: Path, deep: bool) -> None:
        now_s = None
        for parent, folders, files in os.walk(place):
            if not deep:
                folders.clear()
            for name in files:
                if not name.startswith(_TEMPORARY) and (deep or not name.startswith(_PROBE)):
                    continue
                path = Path(parent) / name
                if name.startswith(self._temporary_prefix()):
                    if not _is_dead(path):
                        continue
                else:  # of another host, or of a boot before: locks do not tell
                    now_s = self._now_s() if now_s is None else now_s
                    if path.lstat().st_mtime > now_s - _ABANDONED_S:
                        continue
                with contextlib.suppress(OSError):
                    path.unlink()

    def _now_s(self) -> float:
        """The time by the clock of the file system."""
        probe = self.path / f"{self._temporary_prefix()}{uuid.uuid4().hex}"
        descriptor = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            return os.fstat(descriptor).st_mtime
        finally:
            os.close(descriptor)
            os.unlink(probe)

    @staticmethod
    def _temporary_prefix() -> str:
        return f"{_TEMPORARY}{_boot()}-"

    def _remove_empty(self, folder: Path) -> None:
        """Remove a folder and those above it that are empty now; what a writer that died has left there goes, too."""
        while folder != self.path and self.path in folder.parents:
            try:
                names = os.listdir(folder)
                if any(not name.startswith(_TEMPORARY) for name in names):
                    return
                for name in names:
                    os.unlink(folder / name)
                os.rmdir(folder)
            except OSError:  # somebody writes there
                return
            folder = folder.parent


def _hold(descriptor: int) -> None:
    """Lock a file, so that others see that its writer lives. The lock goes with the process."""
    if flock is not None:
        with contextlib.suppress(OSError):  # a file system without locks: its files are swept by age
            flock(descriptor, LOCK_EX | LOCK_NB)


def _is_dead(path: Path) -> bool:
    """Has the process ended that wrote a file on this host?"""
    if flock is None:
        return False
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        # Between its making and its lock, and between its closing and its name, a file of a living one bears no lock.
        if time.time() - os.fstat(descriptor).st_mtime < _YOUNG_S:
            return False
        flock(descriptor, LOCK_EX | LOCK_NB)
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)


@functools.cache
def _boot() -> str:
    """Tells the kernel under which this process runs: its locks are seen by others under the same one."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()[:8]
    except OSError:
        return "unknown"


def _shared(folder: Path) -> str | None:
    """Who else can write to a folder, beside root and its group; None: nobody."""
    found = folder.stat()
    if found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
        return f"everybody can write to {folder}"
    if found.st_uid not in (0, os.geteuid()):
        return f"{folder} belongs to another user, {_user(found)}"
    return None


def _user(found: os.stat_result) -> str:
    import pwd

    try:
        return pwd.getpwuid(found.st_uid).pw_name
    except KeyError:
        return str(found.st_uid)


def _group(found: os.stat_result) -> str:
    import grp

    try:
        return grp.getgrgid(found.st_gid).gr_name
    except KeyError:
        return str(found.st_gid)


def _remove_folder(folder: Path) -> None:
    """Remove an empty folder. It may have gone, and it stays if another process writes into it at this moment."""
    try:
        os.rmdir(folder)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST):
            raise


def _make_folders(folder: Path) -> None:
    """Make a folder and those above it; the name of each is durable when this returns."""
    if folder.is_dir():
        return
    _make_folders(folder.parent)
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder, 0o700)
    _sync_folder(folder.parent)


def _sync_folder(folder: Path) -> None:
    """Make names in a folder durable, where the system offers that."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _raise_unless_missing(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise error
