"""A member in a process of its own: finds the coordinator, proves itself, and runs a MemberAgent until it is let go.

    the submitter: ProcessCluster, SparkCluster ... Listener <-- control: proven connection --> run_member, elsewhere
                                                                              PeerDoor <-- data --> PeerDoor

Everything a member needs to find and to prove itself to the coordinator is in its MemberTask, which nobody else sees.
It ends when it is told to (`run_member` then returns), and when the coordinator is gone or its lease has run out (it
then raises): a process that was frozen, and wakes up when another one is in its place, does nothing more. While one
incarnation of a member lives, a second copy is turned away and must raise: where a scheduler runs members, one that
returned would count as finished, and the original would be killed.
"""

import contextlib
import logging
import os
import socket
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from jetfast.control import messages
from jetfast.control.endpoint import Address, dial
from jetfast.control.leases import ASKS_PER_LEASE, LEASE_S, HeldLease, lease_clock
from jetfast.control.log_sender import sending_logs
from jetfast.control.member_agent import ExecutionFactory, MemberAgent, make_execution, unpickle_dag
from jetfast.control.messages import (
    NO_EXECUTION,
    Cancel,
    LeaseGranted,
    MemberMessage,
    Prepare,
    Registered,
    RenewLease,
    Shutdown,
    TurnedAway,
)
from jetfast.control.peers import EVERY_EXECUTION, PeerDoor
from jetfast.control.process_identity import this_process
from jetfast.control.versions import running_versions
from jetfast.control.wire import COORDINATOR, Connection, HandshakeError, Hello, Proven, Purpose, Token
from jetfast.core.dag import Dag
from jetfast.engine.socket_transport import WAITING_BYTES_MAX, SocketTransport
from jetfast.errors import (
    JetfastError,
    MemberLostError,
    PeerUnreachableError,
    ProtocolError,
    ResourcesError,
    TransportError,
)

logger = logging.getLogger("jetfast.member")

HANDSHAKES = 3
"""That a member tries with the coordinator, if it is reached: one may be disturbed; who is refused is so each time."""

LOOK_S = 1.0
"""Time between two looks whether what carries the member is still there."""


@dataclass(frozen=True)
class MemberTask:
    """What a member is told by a way that nobody else reads."""

    member: int
    coordinator: Address
    token: Token
    port_range: tuple[int, int] | None = None
    incarnation: int = 0
    """Counts the processes that have been this member."""
    lease_s: float = LEASE_S
    """How long it lives without a word from the coordinator."""
    log_level: int = logging.WARNING
    """Below it nothing of jetfast is logged at the submitter either."""


@dataclass(frozen=True)
class Surroundings:
    """What a member must know of whatever carries its process.

    advice : ends the message about somebody who cannot be reached: which setting to change; empty: there is none
    exit_grace_s : seconds that a member has to stop by itself when the coordinator is gone; then its process is ended
    unreachable : what it is when a peer cannot be reached: wrong settings, or a member that died just now
    load_dag : reads the graph of the job
    make_execution : makes the engine's execution
    missing : tells what has gone of that which carries the process, if something has
    sends_logs : the coordinator gets what the process logs; else its standard error reaches the submitter otherwise
    """

    advice: str = ""
    exit_grace_s: float = 10.0
    unreachable: type[JetfastError] = PeerUnreachableError
    load_dag: Callable[[bytes], Dag] = unpickle_dag
    make_execution: ExecutionFactory = make_execution
    missing: Callable[[], str | None] = lambda: None
    sends_logs: bool = False


def run_member(task: MemberTask, surroundings: Surroundings) -> None:
    """Be the member until the coordinator lets it go.

    Raises ResourcesError when the coordinator cannot be reached, MemberLostError when it has gone or turns this away.
    """
    where = f"member {task.member} on {socket.gethostname()}"
    hello = Hello(Purpose.CONTROL, NO_EXECUTION, task.member, COORDINATOR, task.incarnation)
    try:
        proven = _dial(task, hello)
    except TransportError as error:
        advice = f"; {surroundings.advice}" if surroundings.advice else ""
        raise ResourcesError(f"{where} cannot reach the coordinator: {error}{advice}") from error
    # The address by which the coordinator is reached is the one on which this host is on the same network.
    host = proven.socket.getsockname()[0]
    connection = Connection(proven)
    with (
        contextlib.closing(connection),
        contextlib.closing(
            PeerDoor(
                task.token,
                task.member,
                host=host,
                port_range=task.port_range,
                advice=surroundings.advice,
                unreachable=surroundings.unreachable,
            )
        ) as door,
    ):
        registered = Registered(
            execution_id=NO_EXECUTION,
            member=task.member,
            incarnation=task.incarnation,
            pid=os.getpid(),
            host=socket.gethostname(),
            address=door.address,
            versions=running_versions(),
            process=this_process(),
        )
        asked_s = lease_clock()
        connection.send(messages.encode(registered))
        answer = connection.receive()
        welcome = None if answer is None else messages.decode_from_coordinator(answer)
        if not isinstance(welcome, LeaseGranted):
            why = welcome.why if isinstance(welcome, TurnedAway) else "the coordinator has gone"
            raise MemberLostError(f"{where} was turned away: {why}")
        _Member(task, connection, door, surroundings, HeldLease(asked_s + welcome.lease_us / 1e6)).run(where)


def _dial(task: MemberTask, hello: Hello) -> Proven:
    """Reach the coordinator; a handshake that was disturbed is tried again."""
    for _ in range(HANDSHAKES - 1):
        with contextlib.suppress(HandshakeError):
            return dial(task.coordinator, task.token, hello)
    return dial(task.coordinator, task.token, hello)


class _Member:
    """A registered member: the agent (on the thread that calls `run`), a reader, a thread that asks for leases, and one
    that watches over it and never waits for anybody.
    """

    def __init__(
        self,
        task: MemberTask,
        connection: Connection,
        door: PeerDoor,
        surroundings: Surroundings,
        lease: HeldLease,
    ) -> None:
        self._task = task
        self._lease = lease
        self._connection = connection
        self._door = door
        self._surroundings = surroundings
        self._agent = MemberAgent(
            self._make_transport,
            self._send,
            load_dag=surroundings.load_dag,
            execution_factory=surroundings.make_execution,
        )
        self._ending = threading.Event()
        """It is done, or shall be soon."""
        self._done = threading.Event()
        self._told_to_end = False
        self._lost: str | None = None

    def run(self, where: str) -> None:
        threads = [
            threading.Thread(target=run, name=f"jetfast-member-{what}", daemon=True)
            for what, run in (("reader", self._read), ("lease", self._ask), ("watch", self._watch))
        ]
        for thread in threads:
            thread.start()
        try:
            with self._sending_logs():
                self._agent.run()
        finally:
            self._done.set()
            self._ending.set()
            self._connection.close()
            for thread in threads:
                thread.join()
        if self._lost is not None:
            raise MemberLostError(f"{where} ended: {self._lost}")

    def _sending_logs(self) -> AbstractContextManager[None]:
        if not self._surroundings.sends_logs:
            return contextlib.nullcontext()
        return sending_logs(self._task.member, self._task.log_level, self._send)

    def _make_transport(self, prepare: Prepare) -> SocketTransport:
        sockets = self._door.connect(prepare.execution_id, prepare.peers)
        # Half of the limit is for what came from peers, the rest for queues; an eighth may wait to be sent.
        waiting_bytes = prepare.memory_limit_bytes // (8 * max(len(sockets), 1))
        return SocketTransport(prepare.member, sockets, min(waiting_bytes, WAITING_BYTES_MAX))

    def _send(self, message: MemberMessage) -> None:
        if self._lost is None:  # else it is no member any more: what it was told to give up is no failure of the job
            self._connection.send(messages.encode(message))

    def _read(self) -> None:
        """Hand what the coordinator says to the agent; without the coordinator, end."""
        try:
            while (data := self._connection.receive()) is not None:
                message = messages.decode_from_coordinator(data)
                if isinstance(message, LeaseGranted):
                    self._lease.granted(message.number, message.lease_us / 1e6)
                    continue
                if self._lease.left_s(lease_clock()) <= 0:  # it may have waited here for long
                    self._end("its lease has run out")
                    return
                if isinstance(message, Cancel):
                    self._door.cancel(message.execution_id)
                elif isinstance(message, Shutdown):
                    self._told_to_end = True
                    self._door.cancel(EVERY_EXECUTION)
                self._agent.receive(message)
            if not self._told_to_end and not self._done.is_set():
                self._end("the coordinator has gone")
        except (TransportError, ProtocolError) as error:
            if not self._told_to_end:
                self._end(f"the connection to the coordinator broke: {error}")

    def _ask(self) -> None:
        """Ask for leases until the end. Without the coordinator the reader ends."""
        with contextlib.suppress(TransportError):
            while not self._ending.wait(self._task.lease_s / ASKS_PER_LEASE):
                number = self._lease.ask(lease_clock())
                self._send(RenewLease(execution_id=NO_EXECUTION, member=self._task.member, number=number))

    def _watch(self) -> None:
        """End with the lease, and with what carries the member. Kill what does not end by itself."""
        while not self._ending.wait(max(0.0, min(LOOK_S, self._lease.left_s(lease_clock())))):
            if (missing := self._surroundings.missing()) is not None:
                self._end(missing)
            elif self._lease.left_s(lease_clock()) <= 0:
                self._end(f"its lease has run out: the coordinator did not answer for {self._task.lease_s:g} s")
        if not self._done.wait(self._surroundings.exit_grace_s):
            logger.error("the member does not stop (%s); ending its process", self._lost)
            os._exit(1)

    def _end(self, why: str) -> None:
        self._lost = why
        self._ending.set()
        self._door.cancel(EVERY_EXECUTION)
        self._agent.receive(Shutdown(execution_id=NO_EXECUTION))
