"""Finds the jobs that run on this host, and asks them: the other end of `job_server`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jetfast.control.job_protocol import ANSWER_BYTES_MAX, Refused, Request, Status, decode_answer, encode_line
from jetfast.control.job_report import JobReport
from jetfast.control.job_sockets import connect_to_job, job_sockets, peer_of, receive_line
from jetfast.control.wire import close_socket
from jetfast.errors import JetfastError, JobNotFound, JobUnreachable, OperationRefused, ProtocolError

STATUS_TIMEOUT_S = 10.0
"""For a job to say where it stands: it need not wait for anything."""


@dataclass(frozen=True)
class SilentJob:
    """A socket behind which a process lives that does not answer."""

    socket: Path
    why: str


def find_jobs(
    name: str | None = None, timeout_s: float = STATUS_TIMEOUT_S
) -> tuple[list[tuple[Path, JobReport]], list[SilentJob]]:
    """Return the running jobs (of one name), each with its socket, and those that do not answer."""
    found: list[tuple[Path, JobReport]] = []
    silent: list[SilentJob] = []
    for path in job_sockets(name):
        try:
            report = ask_job(path, Status(), timeout_s)
        except JobNotFound:
            continue
        except JobUnreachable as error:
            silent.append(SilentJob(path, str(error)))
            continue
        if name is None or report.job == name:
            found.append((path, report))
    return found, silent


def find_job(name: str, timeout_s: float = STATUS_TIMEOUT_S) -> tuple[Path, JobReport]:
    """Return the running job of a name, or of an id (or the beginning of one, 6 characters or more).

    Raises JobNotFound, naming those that run; OperationRefused if there are several; JobUnreachable.
    """
    found, silent = find_jobs(name, timeout_s)
    if not found and not silent:
        others, _ = find_jobs(timeout_s=timeout_s)
        found = [(path, report) for path, report in others if len(name) >= 6 and report.id.startswith(name)]
        if not found:
            names = ", ".join(sorted({repr(report.job) for _, report in others})) or "none"
            raise JobNotFound(f"no job named {name!r} runs here; running: {names}")
    if len(found) > 1:
        listed = "; ".join(f"{report.id[:12]} in process {report.pid}, {report.status}" for _, report in found)
        raise OperationRefused(f"{len(found)} jobs named {name!r} run here, say which by its id: {listed}")
    if not found:
        raise JobUnreachable(silent[0].why)
    return found[0]


def ask_job(path: Path, request: Request, timeout_s: float) -> JobReport:
    """Ask, wait for the answer and return where the job stands then.

    Raises JobNotFound if its process has died, also meanwhile; JobUnreachable if it does not answer in time (what was
    asked goes on); else the error with which it refuses.
    """
    connected = connect_to_job(path, timeout_s)
    if connected is None:
        raise JobNotFound(f"the process of {path.name} has died")
    try:
        pid = peer_of(connected)[0]
        where = f"process {pid}, which runs the job of {path.name}," if pid else f"the process of {path.name}"
        connected.sendall(encode_line(request))
        line = receive_line(connected, ANSWER_BYTES_MAX, timeout_s)
    except ConnectionError:
        line = None
    except TimeoutError as error:
        raise JobUnreachable(
            f"{where} has not answered within {timeout_s:.0f} s; it may be stopped, or is still about what was asked"
        ) from error
    except (OSError, ProtocolError) as error:
        raise JobUnreachable(f"{where} does not answer: {error}") from error
    finally:
        close_socket(connected)
    if line is None:
        raise JobNotFound(f"{where} has ended, or hung up, before it answered")
    try:
        answer = decode_answer(line)
    except ProtocolError as error:
        raise JobUnreachable(f"{where} cannot be understood: {error}") from error
    if isinstance(answer, Refused):
        raise _ERRORS.get(answer.kind, OperationRefused)(answer.message)
    return answer.report


def _subclasses(error: type[JetfastError]) -> Sequence[type[JetfastError]]:
    return [error, *(below for direct in error.__subclasses__() for below in _subclasses(direct))]


_ERRORS = {error.__name__: error for error in _subclasses(JetfastError)}
