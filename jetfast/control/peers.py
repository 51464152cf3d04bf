"""Connects a member with its peers before an execution: one proven socket per pair, or an error naming who and what.

Of two members the one with the greater index dials; the other waits for it. So when `connect` has returned on every
member, every pair has reached each other.
"""

import socket
import threading
import time
from collections.abc import Callable, Sequence

from jetfast.control.endpoint import Address, Listener, dial
from jetfast.control.wire import HANDSHAKE_TIMEOUT_S, Hello, Proven, Purpose, Token, close_socket
from jetfast.errors import JetfastError, JobCancelledError, PeerUnreachableError, TransportError

CONNECT_TIMEOUT_S = 30.0
EVERY_EXECUTION = 2**63 - 1


class PeerDoor:
    """Where the peers of one member knock. `close` it when the member ends; sockets given out stay open."""

    def __init__(
        self,
        token: Token,
        member: int,
        host: str = "127.0.0.1",
        port_range: tuple[int, int] | None = None,
        unix: bool = True,
        advice: str = "",
        unreachable: type[JetfastError] = PeerUnreachableError,
    ) -> None:
        """Listen at once. `advice` ends the message about a peer that cannot be reached: which setting to change;
        `unreachable` is that error: PeerUnreachableError where settings may be wrong, TransportError where only a peer
        that has died cannot be reached.
        """
        self.member = member
        self._token = token
        self._advice = f"; {advice}" if advice else ""
        self._unreachable = unreachable
        self._changed = threading.Condition()
        self._waiting: dict[tuple[int, int], socket.socket] = {}  # (execution id, peer) -> proven socket
        self._given_out: set[int] = set()
        """Peers whose sockets the present execution has."""
        self._execution_id = 0
        self._cancelled_execution_id = -1
        self._closed = False
        self._listener = Listener(
            token, f"member-{member}", self._accepts, self._came, host=host, port_range=port_range, unix=unix
        )

    @property
    def address(self) -> str:
        """What goes into `Registered.address`."""
        return self._listener.address.encode()

    def connect(
        self,
        execution_id: int,
        peers: Sequence[str],
        timeout_s: float = CONNECT_TIMEOUT_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> dict[int, socket.socket]:
        """Return a connected socket for each other member. `peers`: `address` of each member, by index.

        Raises `unreachable` naming both members if one cannot be reached or does not come within the time, and
        JobCancelledError after `cancel`. Blocks until all are there.
        """
        with self._changed:
            self._execution_id = execution_id
            self._given_out.clear()
            for key in [key for key in self._waiting if key[0] < execution_id]:
                close_socket(self._waiting.pop(key))
        connected: dict[int, socket.socket] = {}
        deadline = clock() + timeout_s
        try:
            for peer in range(self.member):
                connected[peer] = self._dial(execution_id, peer, Address.decode(peers[peer]))
            for peer in range(self.member + 1, len(peers)):
                connected[peer] = self._wait_for(execution_id, peer, Address.decode(peers[peer]), deadline, clock)
        except BaseException:
            for opened in connected.values():
                close_socket(opened)
            raise
        self._listener.remove_unix_path()
        return connected

    def cancel(self, execution_id: int) -> None:
        """Let `connect` for this execution and older ones give up, now or when it is called. Any thread."""
        with self._changed:
            self._cancelled_execution_id = max(self._cancelled_execution_id, execution_id)
            self._changed.notify_all()

    def close(self) -> None:
        """Listen no more, and drop connections that nobody has asked for."""
        self.cancel(EVERY_EXECUTION)
        self._listener.close()
        with self._changed:
            self._closed = True
            for stale in self._waiting.values():
                close_socket(stale)
            self._waiting.clear()

    def _dial(self, execution_id: int, peer: int, address: Address) -> socket.socket:
        hello = Hello(Purpose.DATA, execution_id, self.member, peer)
        try:
            return dial(address, self._token, hello, HANDSHAKE_TIMEOUT_S).socket
        except TransportError as error:
            here = self._listener.address.host
            raise self._unreachable(
                f"member {self.member} on {here} cannot reach member {peer}: {error}{self._advice}"
            ) from error

    def _wait_for(
        self, execution_id: int, peer: int, address: Address, deadline: float, clock: Callable[[], float]
    ) -> socket.socket:
        with self._changed:
            while (came := self._waiting.pop((execution_id, peer), None)) is None:
                if execution_id <= self._cancelled_execution_id:
                    raise JobCancelledError(f"cancelled while member {self.member} waited for member {peer}")
                left = deadline - clock()
                if left <= 0:
                    raise self._unreachable(
                        f"member {peer} on {address.host} did not reach member {self.member} at "
                        f"{self._listener.address} in time{self._advice}"
                    )
                self._changed.wait(left)
            self._given_out.add(peer)
        return came

    def _accepts(self, hello: Hello) -> str | None:
        if hello.purpose is not Purpose.DATA or hello.listener != self.member or hello.dialer <= self.member:
            return (
                f"a connection for {hello.purpose.name} from {hello.dialer} to {hello.listener} came to {self.member}"
            )
        with self._changed:
            if hello.execution_id < self._execution_id:
                return f"execution {hello.execution_id} is over, {self._execution_id} runs"
            given_out = hello.execution_id == self._execution_id and hello.dialer in self._given_out
            if given_out or any(execution_id >= hello.execution_id for execution_id in self._waits_for(hello.dialer)):
                return "it is connected already"
        return None

    def _came(self, proven: Proven, hello: Hello) -> None:
        with self._changed:
            if self._closed:
                close_socket(proven.socket)
                return
            for execution_id in self._waits_for(hello.dialer):  # in executions that have been given up
                close_socket(self._waiting.pop((execution_id, hello.dialer)))
            self._waiting[hello.execution_id, hello.dialer] = proven.socket
            self._changed.notify_all()

    def _waits_for(self, peer: int) -> list[int]:
        """The executions for which a peer has come, and has not been asked for."""
        return [execution_id for execution_id, waiting in self._waiting if waiting == peer]
