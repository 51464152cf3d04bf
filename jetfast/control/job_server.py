"""Lets other processes of the same user ask a running job: where it stands, and the operations of its handle.

    accept ──> whose process is it? (the kernel says) ──> one line, in time and short ──> operation ──> one line back
                    │ a stranger's                             │ garbled, huge, slow          │ refused
                    └── closed, logged                         └── refused, logged            └── told why

Threads: one that accepts, while the job lives, and one for each request under way. Nothing of it can fail the job.
"""

import contextlib
import logging
import os
import socket
import threading
import time
import weakref
from pathlib import Path

from jetfast.control.job import Job
from jetfast.control.job_protocol import (
    REQUEST_BYTES_MAX,
    Answer,
    Cancel,
    Done,
    ExportSnapshot,
    Refused,
    Request,
    Restart,
    Resume,
    Status,
    Suspend,
    decode_request,
    encode_line,
)
from jetfast.control.job_report import report_job
from jetfast.control.job_sockets import is_trusted, listen_for_job, peer_of, receive_line, remove_socket
from jetfast.control.wire import close_socket
from jetfast.errors import JetfastError, ProtocolError

logger = logging.getLogger("jetfast")

REQUEST_TIMEOUT_S = 10.0
"""For a request to come, and for an answer to be taken."""
REQUESTS_MAX = 16
"""Under way at one time; who comes then waits in the system's queue."""
LAST_ANSWERS_S = 2.0
"""How long the end of a job waits for the answers to those who asked."""


class JobServer:
    """Serves one job from `start` to `close`."""

    def __init__(self, job: Job, *, request_timeout_s: float = REQUEST_TIMEOUT_S) -> None:
        self._job = job
        self._request_timeout_s = request_timeout_s
        self._listening: socket.socket | None = None
        self._path: Path | None = None
        self._lock = threading.Lock()
        self._closed = False
        self._asking: set[socket.socket] = set()
        """Connections whose request has not come yet."""
        self._threads: set[threading.Thread] = set()
        self._slots = threading.BoundedSemaphore(REQUESTS_MAX)
        self._job_ended = threading.Event()
        self._accepting = threading.Thread(target=self._accept, name=f"jetfast-serve-{job.name}", daemon=True)

    @property
    def path(self) -> Path | None:
        """The socket; None: the job cannot be reached, which the log explains."""
        return self._path

    def start(self) -> None:
        """Listen. A job that cannot be reached runs all the same."""
        try:
            self._listening, self._path = listen_for_job(self._job.name, self._job.runner.plan.job_id)
        except OSError as error:
            logger.info("job %s: the command line cannot reach it: %s", self._job.name, error)
            return
        _open_servers.add(self)
        self._accepting.start()

    def close(self) -> None:
        """The job has ended: answer who has asked, within LAST_ANSWERS_S, and leave nothing."""
        deadline = time.monotonic() + LAST_ANSWERS_S
        with self._lock:
            self._closed = True
            asking, threads = list(self._asking), list(self._threads)
        self._job_ended.set()
        if self._path is not None:
            remove_socket(self._path)
        if self._listening is not None:
            close_socket(self._listening)
        for connected in asking:
            close_socket(connected)
        for thread in [*threads, self._accepting]:
            if thread.ident is not None:
                thread.join(max(0.0, deadline - time.monotonic()))

    def forget(self) -> None:
        """This process was forked from that of the job: the job is not here."""
        if self._listening is not None:
            self._listening.close()

    def _accept(self) -> None:
        listening = self._listening
        assert listening is not None
        while True:
            self._slots.acquire()
            try:
                connected, _ = listening.accept()
            except OSError as error:
                self._slots.release()
                if self._closed:
                    return
                logger.warning("job %s: cannot accept a connection: %s", self._job.name, error)
                self._job_ended.wait(0.1)  # out of file descriptors, say: do not spin
                continue
            thread = threading.Thread(
                target=self._serve, args=(connected,), name=f"jetfast-request-{self._job.name}", daemon=True
            )
            with self._lock:
                if self._closed:
                    self._slots.release()
                    close_socket(connected)
                    return
                self._asking.add(connected)
                self._threads.add(thread)
                thread.start()

    def _serve(self, connected: socket.socket) -> None:
        try:
            answer = self._answer(connected)
            if answer is not None:
                connected.settimeout(self._request_timeout_s)
                connected.sendall(encode_line(answer))
        except OSError as error:
            logger.debug("job %s: who asked has gone: %s", self._job.name, error)
        except Exception:
            logger.exception("job %s: a request could not be answered", self._job.name)
        finally:
            close_socket(connected)
            with self._lock:
                self._asking.discard(connected)
                self._threads.discard(threading.current_thread())
            self._slots.release()

    def _answer(self, connected: socket.socket) -> Answer | None:
        """The answer to who is at the other end; None: a stranger, or nobody any more."""
        pid, uid = peer_of(connected)
        if not is_trusted(uid):
            logger.warning("job %s: refused process %s of user %s", self._job.name, pid, uid)
            return None
        try:
            line = receive_line(connected, REQUEST_BYTES_MAX, self._request_timeout_s)
            if line is None:
                return None
            request = decode_request(line)
        except (ProtocolError, TimeoutError) as error:
            logger.warning("job %s: refused a request of process %s: %s", self._job.name, pid, error)
            return Refused("ProtocolError", str(error))
        finally:
            with self._lock:
                self._asking.discard(connected)
        if not isinstance(request, Status):
            logger.info("job %s: process %s asks: %s", self._job.name, pid, encode_line(request).decode().strip())
        try:
            self._perform(request)
            return Done(report_job(self._job))
        except Exception as error:
            if not isinstance(error, JetfastError):
                logger.exception("job %s: %s could not be answered", self._job.name, request)
            return Refused(type(error).__name__, str(error))

    def _perform(self, request: Request) -> None:
        """Do what is asked; this is all that may be asked."""
        job = self._job
        match request:
            case Status():
                pass
            case Cancel():
                job.cancel()
                self._job_ended.wait()
            case Suspend():
                job.suspend()
            case Resume(accept_loss=accept_loss):
                job.resume(accept_loss)
            case Restart():
                job.restart()
            case ExportSnapshot(name=name, cancel=True):
                job.cancel_and_export_snapshot(name)
                self._job_ended.wait()
            case ExportSnapshot(name=name):
                job.export_snapshot(name)


_open_servers: weakref.WeakSet[JobServer] = weakref.WeakSet()


def _forget_after_fork() -> None:
    for server in list(_open_servers):
        with contextlib.suppress(OSError):
            server.forget()


if hasattr(os, "register_at_fork"):  # a forked child must not seem to be the job when that has died
    os.register_at_fork(after_in_child=_forget_after_fork)
