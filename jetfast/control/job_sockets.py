"""Where running jobs are reached: one Unix socket per job, in a directory that only this user can enter.

    $XDG_RUNTIME_DIR/jetfast      if that variable is set and the directory can be made, else
    ~/.jetfast/run                both are looked at by who looks for jobs

A socket gets its name when it listens, so one that refuses connections belongs to a process that has died, and is
removed by whoever meets it. File names tell the job's name for people, and a digest of it for programs.
"""

import contextlib
import errno
import hashlib
import os
import re
import socket
import stat
import struct
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from jetfast.control.wire import close_socket
from jetfast.errors import JobUnreachable, ProtocolError

SUFFIX = ".job"
_BACKLOG = 64
_PATH_BYTES_MAX = 100
"""`sun_path` holds 108 bytes on Linux, 104 on macOS."""
_NAME_CHARACTERS = 24
_CREDENTIALS = struct.Struct("3i")


def job_directories() -> list[Path]:
    """Return the directories in which jobs may be found, the preferred one first; they need not exist."""
    found = []
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if os.path.isabs(runtime):
        found.append(Path(runtime) / "jetfast")
    with contextlib.suppress(RuntimeError):  # nobody knows this user's home
        found.append(Path.home() / ".jetfast" / "run")
    return found


def listen_for_job(job: str, job_id: str) -> tuple[socket.socket, Path]:
    """Return a socket that listens, and its path, in the first directory that permits it. OSError: none does."""
    if not hasattr(socket, "AF_UNIX"):
        raise OSError("this system has no Unix sockets")
    problems: list[str] = []
    for directory in job_directories():
        try:
            _make_private(directory)
            return _listen(directory, socket_name(job, job_id))
        except OSError as error:
            problems.append(f"{directory}: {error}")
    raise OSError("; ".join(problems) or "neither XDG_RUNTIME_DIR nor a home directory is known")


def socket_name(job: str, job_id: str) -> str:
    """Return the file name of a job's socket: short, whatever the job is called."""
    readable = re.sub(r"[^A-Za-z0-9_-]", "_", job)[:_NAME_CHARACTERS]
    return f"{readable}-{_digest(job)}-{job_id[:12]}{SUFFIX}"


def job_sockets(job: str | None = None) -> list[Path]:
    """Return the sockets of all jobs, or of those of one name, sorted; some may belong to processes that have died."""
    found: list[Path] = []
    pattern = f"*{SUFFIX}" if job is None else f"*-{_digest(job)}-*{SUFFIX}"
    for directory in job_directories():
        if _is_private(directory):
            found += sorted(directory.glob(pattern))
    return found


def connect_to_job(path: Path, timeout_s: float) -> socket.socket | None:
    """Return a connection to a job; None: its process has died, and the socket is removed.

    JobUnreachable: it is there and does not take connections, or belongs to somebody else.
    """
    connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connected.settimeout(timeout_s)
        with _short_path(path) as short:
            connected.connect(short)
    except (ConnectionRefusedError, FileNotFoundError):
        connected.close()
        with contextlib.suppress(OSError):
            path.unlink()
        return None
    except OSError as error:
        connected.close()
        raise JobUnreachable(f"the socket {path} takes no connection: {error}") from error
    uid = peer_of(connected)[1]
    if not is_trusted(uid):
        close_socket(connected)
        raise JobUnreachable(f"the socket {path} belongs to user {uid}, not to you")
    return connected


def peer_of(connected: socket.socket) -> tuple[int | None, int | None]:
    """Return process and user at the other end, as the kernel knows them; None where it does not tell."""
    if not hasattr(socket, "SO_PEERCRED"):
        return None, None
    pid, uid, _ = _CREDENTIALS.unpack(connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return pid, uid


def is_trusted(uid: int | None) -> bool:
    """May this user speak to jobs of ours? None: nobody knows, and the directory's rights must do."""
    return uid is None or uid in (0, os.geteuid())


def receive_line(connected: socket.socket, bytes_max: int, timeout_s: float) -> bytes | None:
    """Return what comes up to the end of a line; None: the other side has hung up and said nothing.

    Raises ProtocolError for a line that is too long or cut off, TimeoutError if it is not there in time.
    """
    deadline = time.monotonic() + timeout_s
    line = bytearray()
    while not line.endswith(b"\n"):
        connected.settimeout(max(deadline - time.monotonic(), 0.001))
        try:
            part = connected.recv(min(65536, bytes_max + 1 - len(line)))
        except TimeoutError as error:
            raise TimeoutError(f"no whole line has come within {timeout_s:g} s") from error
        if not part:
            if line:
                raise ProtocolError(f"the line was cut off after {len(line)} bytes")
            return None
        line += part
        if len(line) > bytes_max:
            raise ProtocolError(f"a line of more than {bytes_max} bytes")
    return bytes(line)


def remove_socket(path: Path) -> None:
    """Remove the name of a socket that has been closed."""
    with contextlib.suppress(OSError):
        path.unlink()


def _listen(directory: Path, name: str) -> tuple[socket.socket, Path]:
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    early = directory / f".{uuid.uuid4().hex[:8]}"
    try:
        with _short_path(early) as short:
            listening.bind(short)
        os.chmod(early, 0o600)
        listening.listen(_BACKLOG)
        os.rename(early, directory / name)
    except BaseException:
        listening.close()
        remove_socket(early)
        raise
    return listening, directory / name


@contextlib.contextmanager
def _short_path(path: Path) -> Iterator[str]:
    """Give a path that fits a socket's address: that of the directory as an open file, where it is too long."""
    if len(os.fsencode(path)) <= _PATH_BYTES_MAX:
        yield str(path)
        return
    if not os.path.isdir("/proc/self/fd"):
        raise OSError(
            errno.ENAMETOOLONG, f"the path is too long for a socket, set XDG_RUNTIME_DIR to a shorter one: {path}"
        )
    descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{path.name}"
    finally:
        os.close(descriptor)


def _make_private(directory: Path) -> None:
    directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    directory.mkdir(mode=0o700, exist_ok=True)
    if not _is_private(directory, but_for_rights=True):
        raise PermissionError(f"{directory} must be a directory of your own")
    os.chmod(directory, 0o700)


def _is_private(directory: Path, *, but_for_rights: bool = False) -> bool:
    try:
        found = os.lstat(directory)
    except OSError:
        return False
    private = but_for_rights or not found.st_mode & 0o077
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and private


def _digest(job: str) -> str:
    return hashlib.blake2b(job.encode(errors="surrogatepass"), digest_size=5).hexdigest()
