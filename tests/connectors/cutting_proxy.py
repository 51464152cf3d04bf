"""A proxy in front of a server that cuts connections: at a piece that passes, or after a number of bytes of each."""

import contextlib
import socket
import threading
from dataclasses import dataclass


class CuttingProxy:
    """Passes bytes between clients and a server on the loopback interface, each connection on two threads.

    While the server is away, connections are closed at once.
    """

    def __init__(self, port: int) -> None:
        self.server = ("127.0.0.1", port)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        self.lock = threading.Lock()
        self.left: int | None = None
        self.before = False
        self.stays_dead = False
        self.dead = False
        self.bytes_max: int | None = None
        self.cuts = 0
        """Connections that were cut."""
        self.accepting = threading.Thread(target=self.accept, name="proxy", daemon=True)
        self.accepting.start()

    def __enter__(self) -> "CuttingProxy":
        return self

    def __exit__(self, *_: object) -> None:
        _end(self.listener)  # wakes `accept`
        self.listener.close()
        self.accepting.join()

    def cut_after(self, pieces: int, *, before: bool, stays_dead: bool = False) -> None:
        """Cut the connection that brings the n-th piece from now on, counted over all connections; later ones pass.

        before : cut before that piece has passed, not after it
        stays_dead : from the cut on no connection is accepted
        """
        with self.lock:
            self.left, self.before, self.stays_dead, self.dead = pieces, before, stays_dead, False

    def cut_after_bytes(self, bytes_max: int) -> None:
        """Cut every connection once so many bytes more, of both ways, have passed on it; until `pass_all`."""
        with self.lock:
            self.bytes_max = bytes_max

    def pass_all(self) -> None:
        """Cut nothing any more."""
        with self.lock:
            self.bytes_max = self.left = None
            self.dead = False

    def accept(self) -> None:
        """Take in clients until the listener is closed."""
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            try:
                if self.dead:
                    raise ConnectionRefusedError
                server = socket.create_connection(self.server)
            except OSError:
                client.close()
                continue
            connection = _Connection()
            for source, target in ((client, server), (server, client)):
                threading.Thread(target=self.pump, args=(source, target, connection), daemon=True).start()

    def pump(self, source: socket.socket, target: socket.socket, connection: "_Connection") -> None:
        """Pass on what comes from one side."""
        with contextlib.suppress(OSError):
            while piece := source.recv(65536):
                passes, is_last = self.take(piece, connection)
                target.sendall(piece[:passes])
                if is_last:
                    break
        _end(source)
        _end(target)

    def take(self, piece: bytes, connection: "_Connection") -> tuple[int, bool]:
        """Return how many bytes of a piece pass, and whether they are the last of their connection."""
        with self.lock:
            if connection.is_cut:
                return 0, True
            passes = len(piece)
            if self.bytes_max is None:
                connection.passed = 0
            else:
                passes = max(min(passes, self.bytes_max - connection.passed), 0)
                connection.is_cut = passes < len(piece)
                connection.passed += passes
            if self.left is not None:
                self.left -= 1
                if self.left == 0:
                    connection.is_cut, self.left, self.dead = True, None, self.stays_dead
                    passes = 0 if self.before else passes
            self.cuts += connection.is_cut
            return passes, connection.is_cut


@dataclass
class _Connection:
    passed: int = 0
    """Bytes of both ways since a bound was set."""
    is_cut: bool = False


def _end(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
