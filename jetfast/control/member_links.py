"""The submitter's side of the members of one job: what carries them, their connections, the runner's links to them.

    started -> registered -> gone            a member is served once; every other copy is turned away
       ^                       |
       +------- started again -+             once the end of the lost one is certain: its process is seen to have ended,
                                             or its lease has run out

A member whose lease has run out is as good as dead, though its process may be there: its connection is closed.

Threads: one per carried member (it waits for its end), one per connection (it reads, and grants leases), a timer until
it has registered; one for the job looks at the leases.
"""

import contextlib
import logging
import threading
from collections.abc import Callable
from typing import Protocol

from jetfast.control import messages
from jetfast.control.endpoint import Listener
from jetfast.control.job_status import JobStatus
from jetfast.control.leases import lease_clock
from jetfast.control.log_sender import log_as_own
from jetfast.control.messages import (
    NO_EXECUTION,
    Cancel,
    CoordinatorMessage,
    LeaseGranted,
    Logged,
    Registered,
    Release,
    RenewLease,
    Shutdown,
    TurnedAway,
)
from jetfast.control.remote_member import MemberTask
from jetfast.control.runner import Runner
from jetfast.control.wire import COORDINATOR, Connection, Hello, Proven, Purpose, Token, make_token
from jetfast.core.guarantee import Guarantee
from jetfast.errors import MemberLostError, ProtocolError, TransportError

logger = logging.getLogger("jetfast")

END_TIMEOUT_S = 10.0
"""Seconds that a member has to stop once it is told to; then its carrier ends it."""

LOOKS_PER_LEASE = 16
"""How often the coordinator looks, within one lease, whether one has run out."""
END_LOOK_S = 0.02
"""Time between two looks whether a lost member has ended."""
LOSS_TOLD_S = 1.0
"""Seconds within which the thread that reads from a member notices its end, too."""

STARTS_MAX = 3
"""Members that are killed, one after the other, before they have registered; then the job fails."""

OnEnd = Callable[[Exception | None], None]


class MemberCarrier(Protocol):
    """Port: what members run in, such as processes of this host or tasks of Spark."""

    def start(self, group: str, description: str, task: MemberTask, on_end: OnEnd) -> threading.Thread:
        """Start a member; the thread lives as long as it, and calls `on_end` last: with None if the member returned.

        An OSError: it cannot be started.
        """

    def cancel(self, group: str) -> None:
        """Kill what was started as `group`, and have its thread end. Harmless when it has ended."""

    def has_ended(self, registered: Registered) -> bool:
        """The thread of a member has ended: is it certain that the process which registered so has, too?"""

    def explain_start(self, member: int, error: Exception | None) -> Exception:
        """Return why a member did not come, with what to do. MemberLostError: it was killed, another may come."""

    def explain_absence(self, member: int, seconds: float) -> Exception:
        """Return what it means that a member has not come for so long."""

    def explain_end(self, error: Exception | None) -> str:
        """Return how a member that had come has ended, in a few words."""


class MemberLinks:
    """The members of one job: what carries them, and the connections that they make to this process."""

    def __init__(
        self,
        carrier: MemberCarrier,
        runner: Runner,
        host: str = "127.0.0.1",
        bind: str | None = None,
        port_range: tuple[int, int] | None = None,
        start_timeout_s: float = 60.0,
    ) -> None:
        """Listen at once, as `Listener` does; `start_timeout_s` is the time that a member has to register."""
        self.carrier = carrier
        self.runner = runner
        self.start_timeout_s = start_timeout_s
        self.closing = False
        self._port_range = port_range
        self._token: Token = make_token()
        self._members = [_RemoteMember(self, index) for index in range(runner.plan.member_count)]
        self._listener = Listener(
            self._token, "coordinator", self._accepts, self._came, host=host, bind=bind, port_range=port_range
        )
        self.closed = threading.Event()
        self._watch = threading.Thread(target=self._watch_leases, name="jetfast-leases", daemon=True)
        self._watch.start()

    def summon(self, member: int) -> None:
        """Start a member that is not there."""
        self._members[member].start()

    def stand_down(self, member: int) -> None:
        """Let a member go, or come no more, until it is summoned again."""
        self._members[member].stand_down()

    def awaited_group(self, member: int) -> str | None:
        """Return as what a member was started that has neither registered nor ended; None: there is no such."""
        return self._members[member].awaited_group

    def close(self) -> None:
        """End what is left: members that never came, the listener, the timers."""
        self.closing = True
        self.closed.set()
        self._watch.join()
        self._listener.close()
        for member in self._members:
            member.close()

    def task(self, member: int, incarnation: int) -> MemberTask:
        return MemberTask(
            member,
            self._listener.address,
            self._token,
            self._port_range,
            incarnation,
            self.runner.leases.lease_s,
            logger.getEffectiveLevel(),
        )

    def _watch_leases(self) -> None:
        leases = self.runner.leases
        while not self.closed.wait(leases.lease_s / LOOKS_PER_LEASE):
            for member in leases.run_out(lease_clock()):
                self._members[member].fall_silent()

    def _accepts(self, hello: Hello) -> str | None:
        if hello.purpose is not Purpose.CONTROL or hello.listener != COORDINATOR:
            return "this is the coordinator"
        if not 0 <= hello.dialer < len(self._members):
            return f"the job has {len(self._members)} members"
        return None

    def _came(self, proven: Proven, hello: Hello) -> None:
        """A proven connection of a member. This is its thread from now on."""
        connection = Connection(proven)
        self._members[hello.dialer].serve(connection)
        connection.close()


class _Incarnation:
    """One process that is, or was, a member."""

    def __init__(self, registered: Registered, connection: Connection) -> None:
        self.registered = registered
        self.connection = connection
        self.thread = threading.current_thread()
        """Reads from the connection."""
        self.gone = threading.Event()
        self.told = False
        """Was it told to go?"""
        self.silent = ""
        """Why its connection was closed, if it was for its silence."""

    def __str__(self) -> str:
        return f"pid {self.registered.pid} on {self.registered.host}"


class _RemoteMember:
    """One member as the submitter sees it: what carries it, its incarnation, the runner's link to it.

    While one incarnation lives a copy is turned away; the next one is started after its end. A carrier may start the
    same one several times by itself (retries, speculation): who comes first is it.
    """

    def __init__(self, members: MemberLinks, index: int) -> None:
        self.index = index
        self.incarnation: _Incarnation | None = None
        """The last one that was admitted."""
        self._members = members
        self._lock = threading.Lock()
        self._start_timer: threading.Timer | None = None
        self._cancel_timer: threading.Timer | None = None
        self._end_timer: threading.Timer | None = None
        self._released = False
        self._stands_down = False
        """Is it not wanted at present?"""
        self._carried: threading.Thread | None = None
        self._starts = 0
        self._awaited = False
        """Something was started as this member, and has neither registered nor ended."""
        self._killed_early = 0
        """Starts in a row that were killed before they had registered."""
        self._end_error: Exception | None = None
        """What the carrier says of the end of the last one it started."""
        plan = members.runner.plan
        self._group = f"jetfast-{plan.job_id}-{index}"
        self._description = f"jetfast job {plan.job}: member {index} of {plan.member_count}"

    def start(self) -> None:
        """Have the carrier start this member, unless it is there or coming, or the job is over."""
        with self._lock:
            self._stands_down = False
            if self._released or self._awaited or (self.incarnation and not self.incarnation.gone.is_set()):
                return
            task = self._members.task(self.index, self._starts)
            self._starts += 1
            self._awaited = True
            self._end_error = None
            seconds = self._members.start_timeout_s
            self._start_timer = _timer(seconds, self._took_too_long, f"jetfast-start-timeout-{self.index}")
            try:
                self._carried = self._members.carrier.start(self._group, self._description, task, self._carried_ended)
            except OSError as error:
                self._awaited = False
                _stop(self._start_timer)
                self._members.runner.fail(self._members.carrier.explain_start(self.index, error))

    def stand_down(self) -> None:
        """Let it go; it may be started again."""
        with self._lock:
            self._stands_down = True
            awaited, self._awaited = self._awaited, False
            incarnation = self.incarnation
        _stop(self._start_timer)
        if awaited:
            self._members.carrier.cancel(self._group)
        elif incarnation is not None:
            with contextlib.suppress(TransportError):  # gone already
                incarnation.connection.send(messages.encode(Shutdown(execution_id=NO_EXECUTION)))

    @property
    def awaited_group(self) -> str | None:
        """As of `MemberLinks`."""
        return self._group if self._awaited else None

    def send(self, message: CoordinatorMessage) -> None:
        """MemberLink. A member that does not stop after Cancel is ended by its carrier."""
        incarnation = self.incarnation
        if isinstance(message, Cancel):
            self._cancel_timer = _timer(END_TIMEOUT_S, self._end_slow, f"jetfast-end-timeout-{self.index}", incarnation)
        elif isinstance(message, Release):
            _stop(self._cancel_timer)
        if incarnation is None:
            raise TransportError(f"member {self.index} has no connection")
        try:
            incarnation.connection.send(messages.encode(message))
        except TransportError:
            incarnation.connection.close()  # whoever reads from it wakes up, says more about its end, and comes first
            incarnation.gone.wait(LOSS_TOLD_S)
            raise

    def _end_slow(self, cancelled: _Incarnation | None) -> None:
        """Called by the timer of a Cancel: whoever was told has not stopped. A successor has nothing to do with it."""
        if cancelled is self.incarnation and not (cancelled and cancelled.gone.is_set()):
            self._members.carrier.cancel(self._group)

    def dismiss(self) -> None:
        """MemberLink: tell the member to go. May be called again."""
        with self._lock:
            released, self._released = self._released, True
            incarnation = self.incarnation
        if released or incarnation is None or incarnation.gone.is_set():
            return
        with contextlib.suppress(TransportError):  # gone already
            incarnation.connection.send(messages.encode(Shutdown(execution_id=NO_EXECUTION)))
            incarnation.told = True

    def close(self) -> None:
        """MemberLink: let the member go; when this returns its carrier has ended it. May be called again."""
        self.dismiss()
        incarnation = self.incarnation
        for timer in (self._start_timer, self._cancel_timer, self._end_timer):
            _stop(timer)
            if timer is not None:
                timer.join(END_TIMEOUT_S)
        ended = False
        if incarnation is not None:
            ended = incarnation.told and incarnation.gone.wait(END_TIMEOUT_S)  # the member answers by closing
            incarnation.connection.close()
            incarnation.thread.join(END_TIMEOUT_S)
        if self._carried is None or not self._carried.is_alive():
            return
        if not ended:  # it never came, it does not stop, or it was lost and its successor may be starting
            self._members.carrier.cancel(self._group)
        self._carried.join(END_TIMEOUT_S)
        while self._carried.is_alive():
            logger.warning("%s does not end; ending it", self._description)
            self._members.carrier.cancel(self._group)
            self._carried.join(END_TIMEOUT_S)

    def serve(self, connection: Connection) -> None:
        """Read what the member says until its connection ends."""
        runner = self._members.runner
        incarnation: _Incarnation | None = None
        problem = why = ""
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
                connection.send(messages.encode(TurnedAway(execution_id=NO_EXECUTION, why=refused)))
                return
            incarnation = self.incarnation
            self._grant(connection, 0)
            runner.register(self.index, self, message)
            while (data := connection.receive()) is not None:
                said = messages.decode_from_member(data)
                if isinstance(said, RenewLease):
                    self._grant(connection, said.number)
                elif isinstance(said, Logged):
                    log_as_own(said)
                else:
                    runner.receive(self.index, said)
        except TransportError as error:  # says less than the end of the process that it comes from
            problem = str(error)
        except ProtocolError as error:
            problem = why = str(error)
        finally:
            if incarnation is None and problem:
                logger.warning("refused a connection as member %d: %s", self.index, problem)
            if incarnation is not None:
                if not self._released:
                    self._lose(incarnation, incarnation.silent or why)
                incarnation.gone.set()
                if self._job_goes_on and not self._stands_down:
                    self.start()  # while the others end: the next execution need not wait for it so long

    def fall_silent(self) -> None:
        """Its lease has run out: close its connection, and whoever reads from it reports the loss."""
        incarnation = self.incarnation
        if incarnation is not None and not incarnation.gone.is_set() and not incarnation.silent:
            incarnation.silent = (
                f"nothing was heard from it for {self._members.runner.leases.lease_s:g} s: its process is frozen, or a "
                "function of the user keeps all its threads waiting so long"
            )
            incarnation.connection.close()

    def _grant(self, connection: Connection, number: int) -> None:
        seconds = self._members.runner.leases.grant(self.index, lease_clock())
        granted = LeaseGranted(execution_id=NO_EXECUTION, number=number, lease_us=int(seconds * 1e6))
        connection.send(messages.encode(granted))

    def _lose(self, incarnation: _Incarnation, why: str) -> None:
        """Report a loss, when its process is gone: it can write nothing more."""
        _stop(self._cancel_timer)
        incarnation.connection.close()
        self._members.carrier.cancel(self._group)
        assert self._carried is not None
        self._carried.join()
        runner, carrier = self._members.runner, self._members.carrier
        if runner.plan.guarantee is not Guarantee.NONE:  # else nobody goes on where it was
            while not (
                carrier.has_ended(incarnation.registered)
                or runner.leases.has_run_out(self.index, lease_clock())
                or self._released
            ):
                self._members.closed.wait(END_LOOK_S)
        runner.leases.end(self.index)
        why = why or carrier.explain_end(self._end_error)
        runner.lost(self.index, MemberLostError(f"member {self.index} ({incarnation}) is lost: {why}"))

    @property
    def _job_goes_on(self) -> bool:
        """Does it begin again after a loss, or has it not begun yet?"""
        runner = self._members.runner
        return runner.plan.guarantee is not Guarantee.NONE or runner.status is JobStatus.NOT_RUNNING

    def _admit(self, registered: Registered, connection: Connection) -> str | None:
        with self._lock:
            if self._released or self._members.closing:
                return "the job is over"
            if self.incarnation is not None and not self.incarnation.gone.is_set():
                return f"member {self.index} lives already, as {self.incarnation}"
            if not (self._awaited and registered.incarnation == self._starts - 1):
                return "this process is not the one that was started last"
            self.incarnation = _Incarnation(registered, connection)
            self._awaited = False
            self._killed_early = 0
            _stop(self._start_timer)
            return None

    def _carried_ended(self, error: Exception | None) -> None:
        """Called by the carrier's thread. The one that serves a member which has registered reports its end; for others
        this one does.
        """
        with self._lock:
            if self._released or self._members.closing:
                return
            self._end_error = error
            if not self._awaited:
                # Whoever carried it may have given up a process that lives.
                self._end_timer = _timer(LOSS_TOLD_S, self._forsake, f"jetfast-forsake-{self.index}", self.incarnation)
                return
            self._awaited = False
            _stop(self._start_timer)
            why = self._members.carrier.explain_start(self.index, error)
            self._killed_early += 1
            if not isinstance(why, MemberLostError) or self._killed_early >= STARTS_MAX:
                self._members.runner.fail(why)
                return
            logger.warning("%s; starting it again", why)
        self.start()

    def _forsake(self, forsaken: _Incarnation | None) -> None:
        """Nothing carries it any more: without its connection it ends."""
        if forsaken is not None and not forsaken.gone.is_set():
            forsaken.connection.close()

    def _took_too_long(self) -> None:
        """Called by the timer of a start whose member has not registered."""
        members = self._members
        members.runner.fail(members.carrier.explain_absence(self.index, members.start_timeout_s))


def _timer(seconds: float, act: Callable[..., None], name: str, *arguments: object) -> threading.Timer:
    timer = threading.Timer(seconds, act, arguments)
    timer.daemon = True
    timer.name = name
    timer.start()
    return timer


def _stop(timer: threading.Timer | None) -> None:
    if timer is not None:
        timer.cancel()
