"""A proxy in front of a server that cuts a connection, counted by what passes."""

import contextlib
import socket
import threading


class CuttingProxy:
    """Passes bytes between clients and a server on the loopback interface, each connection on two threads.

    `cut_after(n)` cuts the connection that brings the n-th piece from now on, counted over all connections; `before`
    the piece has passed or after it. Later connections pass. `dead`: from the cut on no connection is accepted.
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
        self.cuts = 0
        threading.Thread(target=self.accept, daemon=True).start()

    def __enter__(self) -> "CuttingProxy":
        return self

    def __exit__(self, *_: object) -> None:
        self.listener.close()

    def cut_after(self, pieces: int, *, before: bool, stays_dead: bool = False) -> None:
        """Cut once, at that piece."""
        with self.lock:
            self.left, self.before, self.stays_dead, self.dead = pieces, before, stays_dead, False

    def accept(self) -> None:
        """Take in clients until the listener is closed."""
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                if self.dead:
                    client.close()
                    continue
                server = socket.create_connection(self.server)
                for source, target in ((client, server), (server, client)):
                    threading.Thread(target=self.pump, args=(source, target), daemon=True).start()

    def pump(self, source: socket.socket, target: socket.socket) -> None:
        """Pass on what comes from one side."""
        with contextlib.suppress(OSError):
            while piece := source.recv(65536):
                cut = self.counts_down()
                if not (cut and self.before):
                    target.sendall(piece)
                if cut:
                    break
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def counts_down(self) -> bool:
        """Is this the piece to cut at?"""
        with self.lock:
            if self.left is None:
                return False
            self.left -= 1
            if self.left > 0:
                return False
            self.left = None
            self.cuts += 1
            self.dead = self.stays_dead
            return True
