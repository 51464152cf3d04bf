"""The coordinator's hand on a member: takes its messages, owns the member's execution, and reports.

Messages are put into a mailbox by `receive` (any thread, never blocks) and handled one after the other by the thread
that calls `run`, which also reports metrics in between. `run` returns after Shutdown; nothing of the execution is left.
"""

import logging
import os
import queue
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from jetfast.control import messages
from jetfast.control.failures import describe
from jetfast.control.messages import CoordinatorMessage, MemberMessage, Prepare
from jetfast.core.dag import Dag
from jetfast.core.guarantee import Guarantee
from jetfast.core.processor import AnnouncedPartitions
from jetfast.core.snapshot_kind import SnapshotKind
from jetfast.engine.execution import Execution, wall_clock_us
from jetfast.engine.execution_listener import ExecutionListener, SnapshotReport
from jetfast.engine.snapshot_store import SnapshotStore
from jetfast.engine.transport import Transport
from jetfast.errors import JobCancelledError, MemberLostError
from jetfast.kernels.columns import arena_statistics

logger = logging.getLogger("jetfast.member")

TransportFactory = Callable[[Prepare], Transport]
"""Makes the member's end of an execution's connections; raises TransportError naming the peer it cannot reach."""

Deliver = Callable[[str, pa.RecordBatch, str], None]


class RunningExecution(Protocol):
    """What the agent needs of `jetfast.engine.execution.Execution`."""

    def open(self) -> None:
        """Make processors and channels."""

    def start(self, listener: ExecutionListener) -> None:
        """Begin; `listener.finished` is called once, by some thread, when all is done (None) or has stopped with an
        error.
        """

    def add_partitions(self, vertex: str, announced: AnnouncedPartitions) -> None:
        """Partitions of a source have come. Returns at once."""

    def start_snapshot(self, snapshot_id: int, kind: SnapshotKind) -> None:
        """Phase 1 of a round; `listener.snapshot_saved` follows, whatever happens. Returns at once."""

    def end_snapshot(self, snapshot_id: int, success: bool) -> None:
        """Phase 2 of a round; `listener.snapshot_ended` follows. Returns at once."""

    def cancel(self) -> None:
        """Stop soon; `listener.finished` follows if it was started. May be called at any time, more than once."""

    def abandon(self) -> None:
        """Stop soon as if the process had died: no processor is told or closed. May be called at any time."""

    def join(self, timeout: float | None = None) -> bool:
        """Wait until no thread of it is left; False: some still are."""

    def metrics(self) -> Mapping[str, Any]:
        """Totals so far, as plain data."""


class ExecutionFactory(Protocol):
    """Makes an execution out of what the coordinator sent."""

    def __call__(self, dag: Dag, prepare: Prepare, transport: Transport, deliver: Deliver) -> RunningExecution: ...


def unpickle_dag(dag: bytes) -> Dag:
    """Read the graph that the submitter pickled. Only ever called with bytes from the authenticated coordinator."""
    import cloudpickle

    loaded = cloudpickle.loads(dag)
    if not isinstance(loaded, Dag):
        raise TypeError(f"the coordinator sent a {type(loaded).__name__} where a Dag was expected")
    return loaded


def unpickle_store(store: bytes) -> SnapshotStore:
    """Read the snapshot store that the submitter pickled, as `unpickle_dag`."""
    import cloudpickle

    loaded: SnapshotStore = cloudpickle.loads(store)
    return loaded


def make_execution(
    dag: Dag,
    prepare: Prepare,
    transport: Transport,
    deliver: Deliver,
    now_us: Callable[[], int] = wall_clock_us,
    load_store: Callable[[bytes], SnapshotStore | None] = unpickle_store,
) -> RunningExecution:
    """Make the engine's execution."""
    takes_snapshots = prepare.guarantee is not Guarantee.NONE
    return Execution(
        dag,
        job=prepare.job,
        job_id=prepare.job_id,
        execution_id=prepare.execution_id,
        member=prepare.member,
        member_count=prepare.member_count,
        workers=prepare.workers,
        transport=transport,
        guarantee=prepare.guarantee,
        now_us=now_us,
        memory_limit=prepare.memory_limit_bytes,
        deliver=deliver,
        partition_count=prepare.partition_count,
        snapshot_store=load_store(prepare.snapshot_store) if takes_snapshots else None,
        restore=prepare.restore,
        settle_only=prepare.settle_only,
        parallelism_max=prepare.parallelism_max,
        accepted_losses=prepare.accepted_losses,
    )


@dataclass
class _Current:
    """The execution that the member works on, from Prepare to Release."""

    prepare: Prepare
    transport: Transport | None = None
    execution: RunningExecution | None = None
    started: bool = False
    ended: bool = False


@dataclass(frozen=True)
class _Ended:
    """Mailbox item: the engine says that an execution has ended."""

    execution_id: int
    error: BaseException | None


_Report = (
    messages.PartitionsFound
    | messages.FirstEdgesRead
    | messages.InputTaken
    | messages.SnapshotSaved
    | messages.SnapshotEnded
)
"""Mailbox item: what the engine says of sources and snapshot rounds, in the words for the coordinator."""


@dataclass(frozen=True)
class _Listener:
    """Puts what the engine tells of one execution into the mailbox."""

    execution_id: int
    member: int
    put: Callable[["_Ended | _Report"], None]

    def finished(self, error: BaseException | None) -> None:
        self.put(_Ended(self.execution_id, error))

    def partitions_found(self, vertex: str, announced: AnnouncedPartitions) -> None:
        self.put(
            messages.PartitionsFound(
                execution_id=self.execution_id, member=self.member, vertex=vertex, **announced._asdict()
            )
        )

    def first_edges_read(self) -> None:
        self.put(messages.FirstEdgesRead(execution_id=self.execution_id, member=self.member))

    def input_taken(self) -> None:
        self.put(messages.InputTaken(execution_id=self.execution_id, member=self.member))

    def snapshot_saved(self, report: SnapshotReport) -> None:
        self.put(messages.SnapshotSaved(execution_id=self.execution_id, member=self.member, **report._asdict()))

    def snapshot_ended(self, snapshot_id: int) -> None:
        self.put(messages.SnapshotEnded(execution_id=self.execution_id, member=self.member, snapshot_id=snapshot_id))


class MemberAgent:
    """One member. `send` hands a message to the coordinator; it is called from several threads and may block.

    If `send` raises, the coordinator cannot be reached: `run` stops the execution and raises that error.
    """

    def __init__(
        self,
        transport_factory: TransportFactory,
        send: Callable[[MemberMessage], None],
        *,
        load_dag: Callable[[bytes], Dag] = unpickle_dag,
        execution_factory: ExecutionFactory = make_execution,
        metrics_interval_s: float = 0.25,
    ) -> None:
        self._transport_factory = transport_factory
        self._send_alive = send
        self._load_dag = load_dag
        self._execution_factory = execution_factory
        self._metrics_interval_s = metrics_interval_s
        self._mailbox: queue.SimpleQueue[CoordinatorMessage | _Ended | _Report] = queue.SimpleQueue()
        self._current: _Current | None = None
        self._last_execution_id = messages.NO_EXECUTION
        self._stopped = self._killed = False

    def receive(self, message: CoordinatorMessage) -> None:
        """Take a message of the coordinator. Called by any thread, never blocks.

        Whoever loses the connection to the coordinator calls it with Shutdown.
        """
        self._mailbox.put(message)

    def kill(self) -> None:
        """End as a process does that is killed: without a word to anybody. Called by any thread; `run` returns soon."""
        self._killed = True
        self._mailbox.put(messages.Shutdown(execution_id=messages.NO_EXECUTION))

    @property
    def killed(self) -> bool:
        """Was it killed?"""
        return self._killed

    def run(self) -> None:
        """Handle messages until Shutdown."""
        report_due_s = 0.0
        try:
            while not self._stopped and not self._killed:
                running = self._current is not None and self._current.started and not self._current.ended
                if not running:
                    report_due_s = time.monotonic() + self._metrics_interval_s
                    self.handle_next(None)
                    continue
                self.handle_next(max(0.0, report_due_s - time.monotonic()))
                if time.monotonic() >= report_due_s:  # however many messages come meanwhile
                    self.report_metrics()
                    report_due_s = time.monotonic() + self._metrics_interval_s
        finally:
            self._discard()

    def handle_next(self, timeout: float | None = 0.0) -> bool:
        """Handle one item of the mailbox, for which it may wait (seconds; None: for ever); False: there was none."""
        try:
            item = self._mailbox.get(timeout=timeout) if timeout is None or timeout > 0 else self._mailbox.get_nowait()
        except queue.Empty:
            return False
        self.handle(item)
        return True

    def handle(self, item: "CoordinatorMessage | _Ended | _Report") -> None:
        """Handle one item of the mailbox."""
        if isinstance(item, messages.Shutdown):
            self._stopped = True
            self._discard()
        elif isinstance(item, Prepare):
            self._prepare(item)
        elif self._current is None or item.execution_id != self._current.prepare.execution_id:
            logger.debug("dropped %s: it belongs to another execution", type(item).__name__)
        elif isinstance(item, messages.Start):
            self._start(self._current)
        elif isinstance(item, messages.StartSnapshot | messages.EndSnapshot):
            self._take_snapshot(self._current, item)
        elif isinstance(item, messages.AddPartitions):
            self._add_partitions(self._current, item)
        elif isinstance(item, messages.Cancel):
            self._cancel(self._current)
        elif isinstance(item, messages.Release):
            self._discard()
        elif isinstance(item, _Report):
            self._send(item)
        elif isinstance(item, _Ended):
            self._end(self._current, item.error)

    def report_metrics(self) -> None:
        """Send what has been done so far, if there is an execution."""
        current = self._current
        if current is None or current.execution is None:
            return
        values = dict(current.execution.metrics())
        arenas = arena_statistics()
        values["arena_bytes"] = arenas["bytes_in_use"] + arenas["bytes_pooled"]
        values["arena_allocations"] = arenas["allocations"]
        values.update(pid=os.getpid(), peak_rss_bytes=peak_rss_bytes())
        if current.transport is not None:
            values["peers"] = [peer._asdict() for peer in current.transport.statistics()]
        prepare = current.prepare
        self._send(messages.Metrics(execution_id=prepare.execution_id, member=prepare.member, values=values))

    def _send(self, message: MemberMessage) -> None:
        if not self._killed:
            self._send_alive(message)

    def _prepare(self, prepare: Prepare) -> None:
        if prepare.execution_id <= self._last_execution_id:
            logger.warning("dropped Prepare of the old execution %d", prepare.execution_id)
            return
        self._discard()
        self._last_execution_id = prepare.execution_id
        current = self._current = _Current(prepare)
        try:
            dag = self._load_dag(prepare.dag)
            current.transport = self._transport_factory(prepare)
            current.execution = self._execution_factory(dag, prepare, current.transport, self._deliver)
            current.execution.open()
        except Exception as error:
            if current.execution is not None:
                current.execution.cancel()
            self._end(current, error)
        else:
            self._send(messages.Prepared(execution_id=prepare.execution_id, member=prepare.member))

    def _start(self, current: _Current) -> None:
        if current.execution is None or current.started or current.ended:
            return
        current.started = True
        prepare = current.prepare
        current.execution.start(_Listener(prepare.execution_id, prepare.member, self._mailbox.put))

    def _add_partitions(self, current: _Current, message: messages.AddPartitions) -> None:
        if current.execution is not None and current.started and not current.ended:
            current.execution.add_partitions(message.vertex, AnnouncedPartitions(message.names, message.complete))

    def _take_snapshot(self, current: _Current, message: messages.StartSnapshot | messages.EndSnapshot) -> None:
        if current.execution is None or not current.started or current.ended:
            return  # Failed is on its way to the coordinator
        if isinstance(message, messages.StartSnapshot):
            current.execution.start_snapshot(message.snapshot_id, message.kind)
        else:
            current.execution.end_snapshot(message.snapshot_id, message.success)

    def _cancel(self, current: _Current) -> None:
        if current.ended or current.execution is None:
            return
        current.execution.cancel()
        if not current.started:  # nobody would tell us of its end
            self._end(current, JobCancelledError("the job was cancelled before it started"))

    def _end(self, current: _Current, error: BaseException | None) -> None:
        """The execution has stopped: report last figures and the outcome. The transport stays open for the peers."""
        if current.ended:
            return
        current.ended = True
        if current.execution is not None and current.started:
            current.execution.join()
        self.report_metrics()
        ids = {"execution_id": current.prepare.execution_id, "member": current.prepare.member}
        if error is None:
            self._send(messages.Finished(**ids))
        else:
            kind, text, traceback = describe(error)
            if not isinstance(error, Exception):  # what ends a thread or a process: no row is to blame for it
                kind = MemberLostError.__name__
            self._send(messages.Failed(**ids, kind=kind, error=text, traceback=traceback))

    def _discard(self) -> None:
        """Forget the execution; what still runs of it is stopped first."""
        current, self._current = self._current, None
        if current is None:
            return
        if current.execution is not None and not current.ended:
            if self._killed:
                current.execution.abandon()
            else:
                current.execution.cancel()
            if current.started:
                current.execution.join()
        if current.transport is not None:
            current.transport.close()

    def _deliver(self, vertex: str, rows: pa.RecordBatch, publication: str) -> None:
        """Called by threads of the engine."""
        current = self._current
        if current is None:
            raise JobCancelledError("the execution has been given up")
        prepare = current.prepare
        self._send(
            messages.Delivered(
                execution_id=prepare.execution_id,
                member=prepare.member,
                vertex=vertex,
                rows=rows,
                publication=publication,
            )
        )


def peak_rss_bytes() -> int:
    """Return the greatest resident size of this process so far, in bytes; 0 where the system does not tell."""
    try:
        with open("/proc/self/status", encoding="ascii") as status:
            for line in status:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        import resource
    except ImportError:  # Windows
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if os.uname().sysname == "Darwin" else peak * 1024
