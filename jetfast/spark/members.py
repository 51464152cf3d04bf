"""A member on Spark: one ordinary Spark job of one long task, whose Python worker runs a MemberAgent.

    driver: SparkCluster ...... Listener <---- control: proven connection ----> run_member in a Python worker
                                                                                PeerDoor <-- data --> PeerDoor

Everything a member needs to find and to prove itself to the coordinator is in its MemberTask, which travels only
inside the closure of the task. It exits when it is told to (the task then returns), and when the coordinator or its JVM
is gone (the task then raises). While one incarnation of a member lives, a second copy (speculation, a retry of Spark)
is turned away and must raise: if it returned, Spark would take the member for finished and kill the original.
"""

import contextlib
import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from jetfast.control import messages
from jetfast.control.endpoint import Address, dial
from jetfast.control.member_agent import MemberAgent, unpickle_dag
from jetfast.control.messages import NO_EXECUTION, Cancel, MemberMessage, Prepare, Registered, Shutdown
from jetfast.control.peers import EVERY_EXECUTION, PeerDoor
from jetfast.control.versions import running_versions
from jetfast.control.wire import COORDINATOR, Connection, Hello, Purpose, Token
from jetfast.core.dag import Dag
from jetfast.engine.socket_transport import WAITING_BYTES_MAX, SocketTransport
from jetfast.errors import MemberLostError, ProtocolError, ResourcesError, TransportError

logger = logging.getLogger("jetfast.member")

WELCOME = b"welcome"
"""The coordinator's answer to a registration; anything else is why the member is turned away."""

ADVICE = (
    "set host= of SparkCluster to a name or address of the driver that executors reach, and port_range= to ports "
    "that are open between all hosts"
)
RESULT_SCHEMA = "member long"
EXIT_GRACE_S = 10.0
"""Seconds that a member whose coordinator or JVM is gone has to stop by itself; then its process is ended."""
PARENT_LOOK_S = 1.0

MapInArrow = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@dataclass(frozen=True)
class MemberTask:
    """What a member is told in its closure, and nowhere else."""

    member: int
    coordinator: Address
    token: Token
    port_range: tuple[int, int] | None = None


def member_function(task: MemberTask) -> MapInArrow:
    """Return the function of the Spark job that is member `task.member`, for `DataFrame.mapInArrow`."""

    def jetfast_member(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass  # the one row of the range says nothing
        run_member(task, attempt_number())
        yield from ()

    return jetfast_member


def attempt_number() -> int:
    """Return which attempt of Spark this task is; 0 for the first, and outside of a task."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else int(context.attemptNumber())


def run_member(task: MemberTask, incarnation: int) -> None:
    """Be the member until the coordinator lets it go.

    Raises ResourcesError when the coordinator cannot be reached, MemberLostError when it has gone or turns this away.
    """
    where = f"member {task.member} on {socket.gethostname()}"
    hello = Hello(Purpose.CONTROL, NO_EXECUTION, task.member, COORDINATOR, incarnation)
    try:
        connected = dial(task.coordinator, task.token, hello)
    except TransportError as error:
        raise ResourcesError(f"{where} cannot reach the coordinator: {error}; {ADVICE}") from error
    # The address by which the coordinator is reached is the one on which this host is on the same network.
    host = connected.getsockname()[0]
    connection = Connection(connected)
    with (
        contextlib.closing(connection),
        contextlib.closing(
            PeerDoor(task.token, task.member, host=host, port_range=task.port_range, advice=ADVICE)
        ) as door,
    ):
        registered = Registered(
            execution_id=NO_EXECUTION,
            member=task.member,
            incarnation=incarnation,
            pid=os.getpid(),
            host=socket.gethostname(),
            address=door.address,
            versions=running_versions(),
        )
        connection.send(messages.encode(registered))
        answer = connection.receive()
        if answer is None or bytes(answer) != WELCOME:
            why = "the coordinator has gone" if answer is None else answer.decode(errors="replace")
            raise MemberLostError(f"{where} was turned away: {why}")
        _Member(connection, door).run(where)


def load_dag(dag: bytes) -> Dag:
    """Read the graph of the job. Raises ResourcesError if a function in it comes from a module that is not here."""
    try:
        return unpickle_dag(dag)
    except ImportError as error:
        raise ResourcesError(
            f"a step of the job cannot be loaded on {socket.gethostname()}: {error}. Modules of your own must reach "
            "Spark's workers: spark.sparkContext.addPyFile(...), or install them there"
        ) from error


class _Member:
    """A registered member: the agent (on the thread that calls `run`), a reader, and a thread that watches the JVM."""

    def __init__(self, connection: Connection, door: PeerDoor) -> None:
        self._connection = connection
        self._door = door
        self._agent = MemberAgent(self._make_transport, self._send, load_dag=load_dag)
        self._done = threading.Event()
        self._told_to_end = False
        self._lost: str | None = None

    def run(self, where: str) -> None:
        threads = [
            threading.Thread(target=run, name=f"jetfast-member-{what}", daemon=True)
            for what, run in (("reader", self._read), ("watch", self._watch))
        ]
        for thread in threads:
            thread.start()
        try:
            self._agent.run()
        finally:
            self._done.set()
            self._connection.close()
            for thread in threads:
                thread.join()
        if self._lost is not None:
            raise MemberLostError(f"{where} ended: {self._lost}")

    def _make_transport(self, prepare: Prepare) -> SocketTransport:
        sockets = self._door.connect(prepare.execution_id, prepare.peers)
        # Half of the limit is for what came from peers, the rest for queues; an eighth may wait to be sent.
        waiting_bytes = prepare.memory_limit_bytes // (8 * max(len(sockets), 1))
        return SocketTransport(prepare.member, sockets, min(waiting_bytes, WAITING_BYTES_MAX))

    def _send(self, message: MemberMessage) -> None:
        self._connection.send(messages.encode(message))

    def _read(self) -> None:
        """Hand what the coordinator says to the agent; without the coordinator, end."""
        try:
            while (data := self._connection.receive()) is not None:
                message = messages.decode_from_coordinator(data)
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

    def _watch(self) -> None:
        """End with the JVM: without it the worker's parent is another process. Kill what does not end by itself."""
        parent = os.getppid()
        while self._lost is None and not self._done.wait(PARENT_LOOK_S):
            if os.getppid() != parent:
                self._end("its JVM has gone")
        if not self._done.wait(EXIT_GRACE_S):
            logger.error("the member does not stop (%s); ending its process", self._lost)
            os._exit(1)

    def _end(self, why: str) -> None:
        self._lost = why
        self._door.cancel(EVERY_EXECUTION)
        self._agent.receive(Shutdown(execution_id=NO_EXECUTION))
