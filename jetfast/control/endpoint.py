"""Where a member or the coordinator listens, and how others reach it: Unix socket on one host, TCP between hosts."""

import contextlib
import logging
import os
import socket
import threading
from collections.abc import Callable
from typing import NamedTuple

from jetfast.control.temporary_folders import SOCKET, TemporaryFolder
from jetfast.control.wire import (
    HANDSHAKE_TIMEOUT_S,
    HandshakeError,
    Hello,
    Proven,
    Token,
    close_socket,
    handshake_as_dialer,
    handshake_as_listener,
    keep_alive,
)
from jetfast.errors import JobDefinitionError, ProtocolError, TransportError

_log = logging.getLogger("jetfast.endpoint")

_UNIX_PATH_BYTES_MAX = 100  # sun_path holds 108 on Linux, 104 on macOS
_STRANGERS_MAX = 64
"""Handshakes that may be under way at once. For one more the oldest is dropped: who holds the token needs no time."""


class Address(NamedTuple):
    """One endpoint. `unix_path` is "" if there is none; it is tried first by dialers on the same `host_id`."""

    host: str
    port: int
    unix_path: str = ""
    host_id: str = ""

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    def encode(self) -> str:
        """Return all of it as one text: "host:port host_id unix_path"."""
        return f"{self.host}:{self.port} {self.host_id} {self.unix_path}"

    @staticmethod
    def decode(text: str) -> "Address":
        """Read what `encode` wrote. Raises ProtocolError for anything else."""
        try:
            tcp, host_id, unix_path = text.split(" ", 2)
            host, port = tcp.rsplit(":", 1)
            return Address(host, int(port), unix_path, host_id)
        except ValueError as error:
            raise ProtocolError(f"{text!r} is no address of a member") from error


def this_host_id() -> str:
    """Return a text that is equal for processes that run under one kernel."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return socket.gethostname()


class Listener:
    """Accepts connections, has each prove the token, and hands it over; strangers are refused, logged, and harm nobody.

    `on_connection(proven, hello)` is called on the handshake's own thread, and owns the socket from then on.
    """

    def __init__(
        self,
        token: Token,
        name: str,
        accepts: Callable[[Hello], str | None],
        on_connection: Callable[[Proven, Hello], None],
        host: str = "127.0.0.1",
        bind: str | None = None,
        port_range: tuple[int, int] | None = None,
        unix: bool = False,
        handshake_timeout_s: float = HANDSHAKE_TIMEOUT_S,
    ) -> None:
        """Listen at a free port (of `port_range`, both ends included), and on a Unix socket if `unix`.

        `host` is what others dial; `bind` is the name or address to listen on where that differs (None: `host`).
        `accepts` is as in `handshake_as_listener`; `name` is for thread names. Raises JobDefinitionError when no port
        of the range is free or the host is not one of this machine.
        """
        self._token = token
        self._name = name
        self._accepts = accepts
        self._on_connection = on_connection
        self._handshake_timeout_s = handshake_timeout_s
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._under_way: dict[socket.socket, threading.Thread] = {}
        self._slots = threading.BoundedSemaphore(_STRANGERS_MAX)
        self._directory: TemporaryFolder | None = None
        tcp = _listen_tcp(host if bind is None else bind, port_range)
        self._sockets = [tcp]
        unix_path = ""
        if unix and hasattr(socket, "AF_UNIX"):
            unix_path = self._listen_unix()
        self.address = Address(host, tcp.getsockname()[1], unix_path, this_host_id())
        self._threads = [
            threading.Thread(target=self._accept, args=(listening,), name=f"jetfast-listen-{name}", daemon=True)
            for listening in self._sockets
        ]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Stop listening and drop handshakes under way; connections handed over stay."""
        with self._lock:
            self._closed.set()
            under_way = dict(self._under_way)
        for listening in self._sockets:
            close_socket(listening)
        for stranger in under_way:
            _wake(stranger)
        for thread in [*self._threads, *under_way.values()]:
            if thread is not threading.current_thread():
                thread.join()
        self.remove_unix_path()

    def remove_unix_path(self) -> None:
        """Leave nothing in the file system: who dials from now on takes TCP. A killed process cannot tidy up later."""
        if self._directory is not None:
            self._directory.remove()

    def _listen_unix(self) -> str:
        self._directory = TemporaryFolder()  # 0700: other users of the host cannot even try
        path = os.path.join(self._directory.path, SOCKET)
        if len(os.fsencode(path)) > _UNIX_PATH_BYTES_MAX:
            return ""
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listening.bind(path)
        listening.listen(128)
        self._sockets.append(listening)
        return path

    def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                stranger, _ = listening.accept()
            except OSError as error:
                if self._closed.is_set():
                    return
                _log.warning("cannot accept a connection: %s", error)
                self._closed.wait(0.1)  # out of file descriptors, say: do not spin
                continue
            if not self._slots.acquire(blocking=False):
                self._drop_oldest()
                self._slots.acquire()
            thread = threading.Thread(
                target=self._meet, args=(stranger,), name=f"jetfast-handshake-{self._name}", daemon=True
            )
            with self._lock:
                if self._closed.is_set():
                    close_socket(stranger)
                    return
                self._under_way[stranger] = thread
                thread.start()

    def _drop_oldest(self) -> None:
        with self._lock:
            if self._under_way:
                _wake(next(iter(self._under_way)))

    def _meet(self, stranger: socket.socket) -> None:
        try:
            met = handshake_as_listener(stranger, self._token, self._accepts, self._handshake_timeout_s)
        except HandshakeError as error:
            if not self._closed.is_set():
                _log.warning("refused a connection from %s: %s", _name_of(stranger), error)
            close_socket(stranger)
            met = None
        finally:
            with self._lock:
                self._under_way.pop(stranger, None)
                closed = self._closed.is_set()
            self._slots.release()
        if met is None:
            return
        if closed:
            close_socket(stranger)
            return
        self._on_connection(*met)


def dial(address: Address, token: Token, hello: Hello, timeout_s: float = HANDSHAKE_TIMEOUT_S) -> Proven:
    """Return a proven connection to `address`. Raises TransportError (HandshakeError if reached, but not proven)."""
    connected = _reach(address, timeout_s)
    try:
        return handshake_as_dialer(connected, token, hello, timeout_s)
    except BaseException:
        close_socket(connected)
        raise


def _reach(address: Address, timeout_s: float) -> socket.socket:
    if address.unix_path and address.host_id == this_host_id() and os.path.exists(address.unix_path):
        connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connected.settimeout(timeout_s)
        try:
            connected.connect(address.unix_path)
            return connected
        except OSError:
            connected.close()  # another container's file, another user's directory: TCP then
    try:
        connected = socket.create_connection((address.host, address.port), timeout=timeout_s)
    except OSError as error:
        raise TransportError(f"{address} cannot be reached: {error}") from error
    keep_alive(connected)
    return connected


def _listen_tcp(host: str, port_range: tuple[int, int] | None) -> socket.socket:
    first, last = port_range if port_range is not None else (0, 0)
    if not 0 <= first <= last <= 65535:
        raise JobDefinitionError(f"port_range must be (first, last) within 1..65535, got {port_range}")
    problem: OSError | None = None
    for port in range(first, last + 1):
        try:
            return socket.create_server((host, port), backlog=128)
        except OSError as error:
            problem = error
    wanted = f"a port of {first}..{last}" if first else "any port"
    raise JobDefinitionError(
        f"cannot listen on {wanted} of host {host!r}: {problem}; set host= to a name or address of this machine "
        f"that the others can reach, and port_range= to ports that are free"
    ) from problem


def _wake(stranger: socket.socket) -> None:
    """Let the handshake of a socket fail. It is not closed from here: Python would wait on no descriptor, in vain."""
    with contextlib.suppress(OSError):  # gone already
        stranger.shutdown(socket.SHUT_RDWR)


def _name_of(connected: socket.socket) -> str:
    try:
        name = connected.getpeername()
    except OSError:
        return "a peer that has gone"
    return f"{name[0]}:{name[1]}" if isinstance(name, tuple) else "a Unix socket"
