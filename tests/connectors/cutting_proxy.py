"""A TCP proxy of this host that cuts connections after a number of bytes, as a bad network does."""

import contextlib
import socket
import threading
from dataclasses import dataclass
from types import TracebackType


class CuttingProxy:
    """Passes bytes between its clients and a server until it is told to cut. Opened and closed by `with`."""

    def __init__(self, port: int) -> None:
        self.server = ("127.0.0.1", port)
        self.cuts = 0
        """Connections that were cut."""
        self._budget: int | None = None
        """Bytes that each connection may still pass; None: any number."""
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._accepting = threading.Thread(target=self._accept, name="proxy", daemon=True)

    def __enter__(self) -> "CuttingProxy":
        self._accepting.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._accepting.join()
        self.cut_all()

    def cut_after(self, bytes_max: int) -> None:
        """Cut every connection once that many bytes more have passed on it; new ones likewise, until `pass_all`."""
        with self._lock:
            self._budget = bytes_max

    def pass_all(self) -> None:
        """Cut nothing any more."""
        with self._lock:
            self._budget = None

    def cut_all(self) -> None:
        """Cut all connections now."""
        with self._lock:
            ends = list(self._open)
        for end in ends:
            _close(end)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self.server)
            except OSError:  # the server is away: so is the proxy
                _close(client)
                continue
            connection = _Connection()
            with self._lock:
                self._open |= {client, server}
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=self._pass, args=(source, sink, connection), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket, connection: "_Connection") -> None:
        """Pass bytes one way."""
        try:
            while data := source.recv(1 << 16):
                with self._lock:
                    if connection.is_cut:
                        break
                    room = len(data) if self._budget is None else max(self._budget - connection.passed, 0)
                    connection.passed = 0 if self._budget is None else connection.passed + len(data)
                    connection.is_cut = len(data) > room
                    self.cuts += connection.is_cut
                sink.sendall(data[:room])
                if connection.is_cut:
                    break
        except OSError:
            pass
        finally:
            _close(source)
            _close(sink)
            with self._lock:
                self._open -= {source, sink}


@dataclass
class _Connection:
    passed: int = 0
    """Bytes of both ways since a budget was set."""
    is_cut: bool = False


def _close(end: socket.socket) -> None:
    """Wake the thread that reads it, and close it."""
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    with contextlib.suppress(OSError):
        end.close()
