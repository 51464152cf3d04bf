"""The driver's side of the members of one execution: their Spark jobs, their connections, the runner's links to them.

    submitted -> registered -> gone          a member is served once; every other copy is turned away

Threads: one per Spark job (it waits for Spark), one per connection (it reads), a timer until all have registered.
"""

import contextlib
import logging
import re
import socket
import sys
import threading

from jetfast.control import messages
from jetfast.control.endpoint import Listener
from jetfast.control.job_status import JobStatus
from jetfast.control.messages import NO_EXECUTION, Cancel, CoordinatorMessage, Registered, Shutdown
from jetfast.control.runner import Runner
from jetfast.control.wire import COORDINATOR, Connection, Hello, Purpose, make_token
from jetfast.errors import MemberLostError, ProtocolError, ResourcesError, TransportError
from jetfast.spark.jobs import MemberJobs
from jetfast.spark.members import WELCOME, MemberTask

logger = logging.getLogger("jetfast.spark")

END_TIMEOUT_S = 10.0
"""Seconds that a member has to stop once it is told to; then its Spark job is cancelled."""

LOSS_TOLD_S = 1.0
"""Seconds within which the thread that reads from a member notices its end, too."""


class MemberLinks:
    """The members of one execution: their Spark jobs, and the connections that they make to this process."""

    def __init__(
        self,
        jobs: MemberJobs,
        runner: Runner,
        host: str,
        bind: str | None,
        port_range: tuple[int, int] | None,
        start_timeout_s: float,
    ) -> None:
        self.jobs = jobs
        self.runner = runner
        self.closing = False
        self._port_range = port_range
        self._start_timeout_s = start_timeout_s
        self._token = make_token()
        self._members = [_SparkMember(self, index) for index in range(runner.plan.member_count)]
        self._listener = Listener(
            self._token, "coordinator", _accepts, self._came, host=host, bind=bind, port_range=port_range
        )
        self._timer = threading.Timer(start_timeout_s, self._took_too_long)
        self._timer.daemon = True
        self._timer.name = "jetfast-start-timeout"

    def start(self) -> None:
        """Submit the Spark jobs."""
        self._timer.start()
        for member in self._members:
            member.submit()

    def close(self) -> None:
        """End what is left: Spark jobs whose member never came, the listener, the timer."""
        self.closing = True
        self._timer.cancel()
        self._timer.join()
        self._listener.close()
        for member in self._members:
            member.close()

    def task(self, member: int) -> MemberTask:
        return MemberTask(member, self._listener.address, self._token, self._port_range)

    def _came(self, connected: socket.socket, hello: Hello) -> None:
        """A proven connection of a member. This is its thread from now on."""
        connection = Connection(connected)
        if 0 <= hello.dialer < len(self._members):
            self._members[hello.dialer].serve(connection)
        connection.close()

    def _took_too_long(self) -> None:
        absent = [member.index for member in self._members if member.incarnation is None]
        if absent:
            self.runner.fail(
                ResourcesError(
                    f"member(s) {', '.join(map(str, absent))} did not start within {self._start_timeout_s:.0f} s: "
                    "Spark gave them no slot, or its Python workers do not start. See the Spark UI; start_timeout= of "
                    "SparkCluster sets the time"
                )
            )


class _Incarnation:
    """One process that is, or was, a member."""

    def __init__(self, registered: Registered, connection: Connection) -> None:
        self.registered = registered
        self.connection = connection
        self.thread = threading.current_thread()
        """Reads from the connection."""
        self.gone = threading.Event()
        self.lost: MemberLostError | None = None
        """Why it is gone, if it was not let go."""

    def __str__(self) -> str:
        return f"pid {self.registered.pid} on {self.registered.host}"


class _SparkMember:
    """One member as the driver sees it: its Spark job, its incarnation, the runner's link to it.

    While one incarnation lives a copy is turned away. After its end Spark's retry is the next incarnation, as long as
    the execution has not begun; later the execution has lost a member and is ending.
    """

    def __init__(self, members: MemberLinks, index: int) -> None:
        self.index = index
        self.incarnation: _Incarnation | None = None
        """The last one that was admitted."""
        self._members = members
        self._lock = threading.Lock()
        self._cancel_timer: threading.Timer | None = None
        self._released = False
        self._job: threading.Thread | None = None
        plan = members.runner.plan
        self._group = f"jetfast-{plan.job_id}-{index}"
        self._description = f"jetfast job {plan.job}: member {index} of {plan.member_count}"

    def submit(self) -> None:
        """Start the Spark job that is this member, unless the job has failed already."""
        with self._lock:
            if not self._released:
                self._job = self._members.jobs.start(
                    self._group, self._description, self._members.task(self.index), self._job_ended
                )

    def send(self, message: CoordinatorMessage) -> None:
        """MemberLink. A member that does not stop after Cancel loses its Spark task, and with it its process."""
        if isinstance(message, Cancel):
            self._cancel_timer = threading.Timer(END_TIMEOUT_S, self._members.jobs.cancel, (self._group,))
            self._cancel_timer.daemon = True
            self._cancel_timer.start()
        incarnation = self.incarnation
        if incarnation is None:
            raise TransportError(f"member {self.index} has no connection")
        try:
            incarnation.connection.send(messages.encode(message))
        except TransportError:
            incarnation.gone.wait(LOSS_TOLD_S)  # whoever reads from it says more about its end, and comes first then
            raise

    def close(self) -> None:
        """MemberLink: let the member go; when this returns its Spark job has ended. May be called again."""
        with self._lock:
            self._released = True
            incarnation = self.incarnation
        if self._cancel_timer is not None:
            self._cancel_timer.cancel()
            self._cancel_timer.join(END_TIMEOUT_S)
        ended = False
        if incarnation is not None:
            if not incarnation.gone.is_set():
                with contextlib.suppress(TransportError):  # gone already
                    incarnation.connection.send(messages.encode(Shutdown(execution_id=NO_EXECUTION)))
                    ended = incarnation.gone.wait(END_TIMEOUT_S)  # the member answers by closing
            incarnation.connection.close()
            incarnation.thread.join(END_TIMEOUT_S)
        if self._job is None or not self._job.is_alive():
            return
        if not ended:  # it never came, it does not stop, or it was lost and Spark may be starting it again
            self._members.jobs.cancel(self._group)
        self._job.join(END_TIMEOUT_S)
        while self._job.is_alive():
            logger.warning("%s: its Spark job does not end; cancelling it", self._description)
            self._members.jobs.cancel(self._group)
            self._job.join(END_TIMEOUT_S)

    def serve(self, connection: Connection) -> None:
        """Read what the member says until its connection ends."""
        runner = self._members.runner
        incarnation: _Incarnation | None = None
        why = "its connection ended: its process was killed or its executor was lost"
        try:
            first = connection.receive()
            if first is None:
                return
            message = messages.decode_from_member(first)
            if not isinstance(message, Registered) or message.member != self.index:
                raise ProtocolError(f"member {self.index} began with {type(message).__name__} instead of Registered")
            if (refused := self._admit(message, connection)) is not None:
                logger.warning(
                    "turned away a copy of member %d (attempt %d): %s", self.index, message.incarnation, refused
                )
                connection.send(refused.encode())
                return
            incarnation = self.incarnation
            connection.send(WELCOME)
            runner.register(self.index, self, message)
            while (data := connection.receive()) is not None:
                runner.receive(self.index, messages.decode_from_member(data))
        except (TransportError, ProtocolError) as error:
            why = str(error)
        finally:
            if incarnation is not None:
                if not self._released:
                    incarnation.lost = MemberLostError(f"member {self.index} ({incarnation}) is lost: {why}")
                    runner.lost(self.index, incarnation.lost)
                incarnation.gone.set()

    def _admit(self, registered: Registered, connection: Connection) -> str | None:
        with self._lock:
            if self._released or self._members.closing:
                return "the job is over"
            if self.incarnation is not None:
                if not self.incarnation.gone.is_set():
                    return f"member {self.index} lives already, as {self.incarnation}"
                if self._members.runner.status is not JobStatus.NOT_RUNNING:
                    return "the job has begun, and is ending because it lost this member"
            self.incarnation = _Incarnation(registered, connection)
            return None

    def _job_ended(self, error: Exception | None) -> None:
        """Called by the Spark job's thread: report an end that came too early. Nobody will come in its place."""
        runner = self._members.runner
        if self._released or self._members.closing:
            return
        incarnation = self.incarnation
        if incarnation is None:
            runner.fail(_explain_start(self.index, error))
            return
        incarnation.gone.wait(LOSS_TOLD_S)  # its connection has ended too; what is known from there says more
        lost = incarnation.lost or MemberLostError(
            f"member {self.index} ({incarnation}) is lost: its Spark job ended: {_first_line(error)}"
        )
        lost.__cause__ = error
        runner.lost(self.index, lost)
        runner.fail(lost)  # counts only while the execution has not begun, where a loss alone is no failure


def _accepts(hello: Hello) -> str | None:
    if hello.purpose is not Purpose.CONTROL or hello.listener != COORDINATOR:
        return "this is the coordinator"
    return None


_JETFAST_ERROR = re.compile(r"^jetfast\.errors\.(\w+): (.*)$", re.MULTILINE)
_IMPORT_ERROR = re.compile(r"(?:ModuleNotFoundError|ImportError|PackageNotFoundError)[^\n]*: (.*)")
_SET_PYTHON = (
    "Spark's Python workers must run an interpreter that has jetfast, pyarrow and pandas: set the environment variable "
    "PYSPARK_PYTHON (or spark.pyspark.python) before the session starts, for example to"
)


def _explain_start(member: int, error: Exception | None) -> Exception:
    """Return why a member did not come, with what to do, out of what Spark says."""
    text = str(error) if error is not None else "its Spark job ended at once"
    explained: Exception
    if (said := _JETFAST_ERROR.search(text)) is not None:
        explained = ResourcesError(said[2])
    elif (missing := _IMPORT_ERROR.search(text)) is not None:
        explained = ResourcesError(
            f"member {member} did not start: {missing[1].strip()}. {_SET_PYTHON} {sys.executable}"
        )
    elif "PYTHON_VERSION_MISMATCH" in text or "Cannot run program" in text:
        explained = ResourcesError(
            f"member {member} did not start: {_first_line(error)}. {_SET_PYTHON} {sys.executable}"
        )
    else:
        explained = ResourcesError(f"member {member} did not start: {_first_line(error)}")
    explained.__cause__ = error
    return explained


def _first_line(error: Exception | None) -> str:
    if error is None:
        return "it returned"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:300] if lines else type(error).__name__
