"""One member's share of one execution of a job: makes it from the plan, runs it on threads, ends it."""

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from jetfast.core.dag import Dag
from jetfast.core.guarantee import Guarantee
from jetfast.core.items import Item
from jetfast.core.processor import AnnouncedPartitions, Processor, ProcessorContext
from jetfast.core.routing import RoutingKind
from jetfast.core.snapshot_kind import SnapshotKind
from jetfast.engine.commit_thread import CommitThread
from jetfast.engine.execution_listener import ExecutionListener
from jetfast.engine.execution_plan import (
    EdgePlan,
    ExecutionPlan,
    VertexPlan,
    make_execution_plan,
    remote_queue_items,
)
from jetfast.engine.inbound_edge import Inbound, InboundEdge, InboundQueue
from jetfast.engine.metrics import execution_metrics
from jetfast.engine.on_time_check import CheckingOutbox, is_debug, watch_late_rows
from jetfast.engine.outbound_edge import (
    BroadcastEdge,
    FanoutEdge,
    Offer,
    OutboundEdge,
    Outbox,
    PartitionedEdge,
    RoundRobinEdge,
    SingleTargetEdge,
    Target,
)
from jetfast.engine.processor_tasklet import ProcessorTasklet
from jetfast.engine.restored_state import RestoredState
from jetfast.engine.retaining_inbound import RetainingInbound, covered_edges, retaining_vertices
from jetfast.engine.settling_tasklet import SettlingTasklet
from jetfast.engine.snapshot_context import SnapshotContext
from jetfast.engine.snapshot_store import SnapshotArea, SnapshotStore
from jetfast.engine.snapshot_tasklet import SnapshotTasklet
from jetfast.engine.state_writer import StateWriter, StateWriterThread
from jetfast.engine.transport import ChannelId, ReceivingEnd, SendingEnd, Transport
from jetfast.engine.worker import Abandoned, Assignment, Worker
from jetfast.errors import JobCancelledError, ProtocolError, ResourcesError
from jetfast.kernels.partitioning import Splitter
from jetfast.kernels.queues import MemoryBudget, SpscQueue
from jetfast.types import PARTITION_COUNT

RUNS_PER_LIMIT = 32
"""Batches that are sent together go one by one if fewer such runs fit into the memory limit: one item may exceed it."""


def wall_clock_us() -> int:
    """Microseconds since 1970."""
    return time.time_ns() // 1000


class Execution:
    """Runs the share of one member of a Dag.

        open -> start -> (runs) -> listener.finished -> join          or, at any time: cancel -> join

    With a guarantee it takes part in snapshot rounds while it runs (`start_snapshot`, `end_snapshot`; the listener is
    told how they go), and ends when phase 2 of a TERMINAL or FINAL snapshot that has succeeded is over.

    `open` on every member comes before `start` on any: a receiver must be there before somebody sends. Every
    processor that was made is closed exactly once, whatever happens. The transport stays open: whoever made it closes
    it, once all members have finished.

    Parameters
    ----------
    dag : what to run; every member gets the same
    job, job_id, execution_id : names for processors, threads and messages
    member, member_count : this member, of how many
    workers : threads for the cooperative processors, at least 1; others have a thread each
    transport : connects this member with its peers; may be None for a single member
    now_us : wall clock, microseconds since 1970
    memory_limit : bytes that may wait in this member's queues, half of them in those from other members; None: only the
        number of batches is bounded
    deliver : takes rows for the process that submitted the job (`ProcessorContext.deliver`)
    partition_count : number of key partitions
    snapshot_store : where state goes; needed if and only if there is a guarantee
    restore : the snapshot to start from; None: from the beginning
    settle_only : only restore, which settles transactions, and end: nothing is read
    state_writer : runs the encoding and storing of state, what `start` starts and the end stops; None: a thread
    parallelism_max : the largest number of processors that a vertex of this job ever had (ProcessorContext)
    accepted_losses : transactions that may be lost (ProcessorContext)
    check_times : check on every output that no step makes a row late; None: if JETFAST_DEBUG=1 is set
    """

    def __init__(
        self,
        dag: Dag,
        *,
        job: str,
        job_id: str = "",
        execution_id: int,
        member: int = 0,
        member_count: int = 1,
        workers: int,
        transport: Transport | None,
        guarantee: Guarantee = Guarantee.NONE,
        now_us: Callable[[], int] = wall_clock_us,
        memory_limit: int | None = None,
        deliver: Callable[[str, pa.RecordBatch, str], None] | None = None,
        partition_count: int = PARTITION_COUNT,
        snapshot_store: SnapshotStore | None = None,
        restore: SnapshotArea | None = None,
        settle_only: bool = False,
        state_writer: StateWriter | None = None,
        parallelism_max: int = 0,
        accepted_losses: Collection[str] = (),
        check_times: bool | None = None,
    ) -> None:
        self.dag = dag
        self.job = job
        self.job_id = job_id
        self.execution_id = execution_id
        self.member = member
        self.member_count = member_count
        self.worker_count = workers
        self.transport = transport
        self.guarantee = guarantee
        self.now_us = now_us
        self.memory_limit = memory_limit
        self.budget: MemoryBudget | None = None
        self.run_bytes_max = sys.maxsize
        """Bytes of a BatchRun that goes through a queue as one item."""
        self.remote_items: list[int] = []
        """Capacity of channels between members, by edge."""
        self.deliver = deliver
        self.partition_count = partition_count
        if (snapshot_store is None) != (guarantee is Guarantee.NONE):
            raise ProtocolError(f"job {job!r}: the guarantee {guarantee.value!r} and a snapshot store need each other")
        self.snapshot_store = snapshot_store
        self.restore = restore
        self.settle_only = settle_only
        self.writer_thread: StateWriterThread | None = None
        if snapshot_store is not None and state_writer is None:
            state_writer = self.writer_thread = StateWriterThread(f"jetfast-{job}-{member}-snapshots")
        self.state_writer = state_writer
        self.snapshots: SnapshotContext | None = None
        """None without a guarantee."""
        self.parallelism_max = parallelism_max
        self.accepted_losses = frozenset(accepted_losses)
        self.check_times = is_debug() if check_times is None else check_times
        self.retaining: set[str] = set()
        """Vertices that go by `Dag.max_watermark_retention_us`."""
        self.covered_edges: dict[str, frozenset[int]] = {}
        """As `retaining_inbound.covered_edges`, if there is a retention."""
        self.watermarks_seen: dict[str, tuple[int, int]] = {}
        """By tasklet: the watermark that it was last seen to have, and the wall clock when that was new."""
        self.activity_seen: dict[str, tuple[int, int]] = {}
        """By tasklet and worker: the `busy_ns` or `rounds` last seen, and the wall clock when that was new."""
        self.announced: dict[str, list[AnnouncedPartitions]] = {}
        """By vertex without inbound edges: partitions that came while it runs."""
        self.tasklets: list[ProcessorTasklet] = []
        self.worker_of: dict[str, Worker] = {}
        """By tasklet."""
        self.queues: dict[ChannelId, SpscQueue] = {}
        self.workers: list[Worker] = []
        self.commit_threads: list[CommitThread] = []
        self.error: BaseException | None = None
        """Why the execution ends early; None while it runs and after a regular end."""
        self.listener: ExecutionListener | None = None
        self.state = "new"  # new -> open -> running -> finished
        self.runners = 0
        """Threads that have not ended."""
        self.lock = threading.Lock()

    def open(self) -> None:
        """Make processors and channels. Raises what went wrong, after closing what had been made."""
        if self.state != "new":
            raise ProtocolError(f"execution of job {self.job!r} cannot be opened: it is {self.state}")
        plan = make_execution_plan(self.dag, self.member_count, self.worker_count)
        if self.memory_limit is not None:
            crossing = any(edge.remote_channel_count(0) for edge in plan.edges)
            self.budget = MemoryBudget(self.memory_limit // 2 if crossing else self.memory_limit)
            self.run_bytes_max = self.budget.limit_bytes // RUNS_PER_LIMIT
        self.remote_items = remote_queue_items(plan.edges, self.memory_limit and self.memory_limit // 2)
        if self.dag.max_watermark_retention_us is not None:
            self.retaining = retaining_vertices(plan)
            self.covered_edges = covered_edges(plan)
        processors: dict[tuple[str, int], Processor] = {}
        try:
            restored = self._open_snapshots(plan)
            for name, vertex in plan.vertices.items():
                for index in vertex.indices_on(self.member):
                    processors[name, index] = vertex.vertex.supplier()
            # Receivers first: a peer may send as soon as all members are open.
            inbounds = {key: self._inbound(plan, *key) for key in processors}
            for (name, index), processor in processors.items():
                context = self._context(plan, plan.vertices[name], index)
                outbox = self._outbox(plan, name, index)
                inbound = inbounds[name, index]
                if inbound is not None and isinstance(outbox, CheckingOutbox):
                    columns = {edge.edge.ordinal: edge.edge.time_column for edge in plan.inbound(name)}
                    watch_late_rows(processor, inbound, outbox, known(columns))
                self.tasklets.append(self._tasklet(processor, context, inbound, outbox, restored))
        except BaseException as error:
            self.state = "finished"
            for processor in processors.values():
                with contextlib.suppress(Exception):  # the first error is told
                    processor.close(error)
            raise
        self._assign(plan)
        self.state = "open"

    def start(self, listener: ExecutionListener) -> None:
        """Start the threads.

        `listener.finished` is called once, from the thread that ends last, when every processor has been closed: with
        None if all came to their end, else with the first error (JobCancelledError after `cancel`).
        """
        self.begin(listener, len(self.workers))
        self._add_commit_threads()
        threads: list[Worker | StateWriterThread] = [*self.commit_threads, *self.workers]
        if self.writer_thread is not None:
            threads.insert(0, self.writer_thread)
        for place in threads:
            try:
                place.thread.start()
            except RuntimeError as error:
                refused = ResourcesError(
                    f"job {self.job!r} needs {len(threads)} threads on member {self.member}, "
                    f"but the system refused to start another one: {error}"
                )
                refused.__cause__ = error
                self.fail(refused)
                if isinstance(place, Worker):
                    place.run()  # finds that it must stop, and closes its processors
        self._end_if_nothing_runs()

    def _add_commit_threads(self) -> None:
        """Give each processor that blocks and commits a second thread, which must not wait for the first."""
        if self.settle_only:
            return
        for tasklet in self.tasklets:
            commits = type(tasklet.processor).commit_prepared is not Processor.commit_prepared
            if commits and not tasklet.cooperative and isinstance(tasklet, SnapshotTasklet):
                name = f"jetfast-{self.job}-{self.member}-{tasklet.name}-commits"
                tasklet.commits = CommitThread(name, tasklet, self.fail, self._wake)
                self.commit_threads.append(tasklet.commits)

    def begin(self, listener: ExecutionListener, runners: int) -> None:
        """The first part of `start`: it runs, on so many threads, each of which calls `runner_ended` at its end.

        For `jetfast.engine.stepping`, which runs the tasklets on its own.
        """
        with self.lock:
            if self.state != "open":
                raise ProtocolError(f"execution of job {self.job!r} cannot be started: it is {self.state}")
            self.state = "running"
            self.listener = listener
            self.runners = runners
        if self.snapshots is not None and not self.settle_only:
            self.snapshots.begin(listener)

    def add_partitions(self, vertex: str, announced: AnnouncedPartitions) -> None:
        """Partitions of a source have come. Any thread; called on all members in the same order."""
        try:
            self.announced[vertex].append(announced)
        except KeyError:
            self.fail(ProtocolError(f"partitions of step {vertex!r} were announced, which is no source"))

    def start_snapshot(self, snapshot_id: int, kind: SnapshotKind = SnapshotKind.REGULAR) -> None:
        """Phase 1 of a round: sources send barriers. Any thread; returns at once."""
        self._snapshots().start(snapshot_id, kind)

    def end_snapshot(self, snapshot_id: int, success: bool) -> None:
        """Phase 2 of a round. Any thread; returns at once."""
        ending = self._snapshots().end(snapshot_id, success)
        if ending is not None and success:
            for commits in self.commit_threads:
                commits.commit_soon(ending)
        self._end_if_nothing_runs()

    def cancel(self, error: BaseException | None = None) -> None:
        """Stop early, with `error` or JobCancelledError. Returns at once; `join` waits. Harmless when all has ended."""
        reason = error or JobCancelledError(f"job {self.job!r} was cancelled")
        with self.lock:
            state = self.state
            if state in ("new", "open"):
                self.state = "finished"
        if state == "open":
            self.error = reason
            for tasklet in self.tasklets:
                tasklet.close(reason)
        elif state == "running":
            self.fail(reason)

    def abandon(self) -> None:
        """Stop as if the process had died: threads end after the call that they are in, and no processor is closed.

        For tests of crashes. Returns at once; `join` waits.
        """
        with self.lock:
            self.error = Abandoned()
            if self.state in ("new", "open"):
                self.state = "finished"
        self._wake()

    def join(self, timeout: float | None = None) -> bool:
        """Wait until all threads but the calling one are gone, at most `timeout` seconds; True if they are.

        After an error the one that stores state is not waited for: a store that hangs keeps it, and what it may still
        write lies where nobody looks.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        threads = [worker.thread for worker in self.workers] + [commits.thread for commits in self.commit_threads]
        if self.writer_thread is not None and self.error is None:
            threads.append(self.writer_thread.thread)
        others = [thread for thread in threads if thread is not threading.current_thread()]
        for thread in others:
            if thread.ident is not None:
                thread.join(None if deadline is None else max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in others)

    def metrics(self) -> dict[str, Any]:
        """What happened so far, see `jetfast.engine.metrics`. Any thread, at any time."""
        return execution_metrics(self)

    def fail(self, error: BaseException) -> None:
        """Stop with an error, or with the one that came before it. Returns at once; any thread."""
        with self.lock:
            if self.error is None:
                self.error = error
        self._wake()
        self._end_if_nothing_runs()

    def _wake(self) -> None:
        for worker in self.workers:
            worker.parker.unpark()

    def runner_ended(self) -> None:
        """A worker has closed its tasklets."""
        with self.lock:
            self.runners -= 1
        self._end_if_nothing_runs()

    def _end_if_nothing_runs(self) -> None:
        """Tell the listener of the end, once. A member without processors ends when the others may."""
        snapshots = self.snapshots
        with self.lock:
            if self.state != "running" or self.runners > 0:
                return
            if self.error is None and snapshots is not None and not self.tasklets:
                ending = snapshots.ending
                if not self.settle_only and (ending is None or not ending.ends_execution):
                    return
            self.state = "finished"
        if self.writer_thread is not None:
            self.writer_thread.stop()
        for commits in self.commit_threads:
            commits.stop()
        assert self.listener is not None
        self.listener.finished(self.error)

    def _snapshots(self) -> SnapshotContext:
        if self.snapshots is None:
            raise ProtocolError(f"job {self.job!r} takes no snapshots: it has no guarantee")
        return self.snapshots

    def _open_snapshots(self, plan: ExecutionPlan) -> RestoredState | None:
        """Make what tasklets share for snapshots; return the snapshot to start from, if there is one."""
        store, writer = self.snapshot_store, self.state_writer
        if store is None or writer is None:
            return None
        counts = {name: len(vertex.indices_on(self.member)) for name, vertex in plan.vertices.items()}
        read_first = plan.vertices_read_first()
        self.snapshots = SnapshotContext(
            store=store,
            job=self.job,
            execution_id=self.execution_id,
            partition_count=self.partition_count,
            tasklet_count=sum(counts.values()),
            read_first=read_first,
            read_first_count=sum(counts[name] for name in read_first),
            writer=writer,
        )
        self.snapshots.wake = self._wake
        if self.restore is None:
            return None
        owners = {name: plan.state_owners(name, self.partition_count) for name in plan.vertices}
        return RestoredState(store, self.job, self.restore, owners)

    def _tasklet(
        self,
        processor: Processor,
        context: ProcessorContext,
        inbound: Inbound | None,
        outbox: Outbox,
        restored: RestoredState | None,
    ) -> ProcessorTasklet:
        if self.snapshots is None:
            return ProcessorTasklet(processor, context, inbound, outbox)
        kind = SettlingTasklet if self.settle_only else SnapshotTasklet
        return kind(processor, context, inbound, outbox, self.snapshots, restored)

    def _announce(self, vertex: str, announced: AnnouncedPartitions) -> None:
        assert self.listener is not None
        self.listener.partitions_found(vertex, announced)

    def _context(self, plan: ExecutionPlan, vertex: VertexPlan, index: int) -> ProcessorContext:
        is_source = not plan.inbound(vertex.vertex.name)
        return ProcessorContext(
            vertex=vertex.vertex.name,
            member=self.member,
            member_count=vertex.member_count,  # 1 for a vertex that runs on member 0 only, so that `parallelism` is 1
            local_index=index - vertex.indices_on(self.member).start,
            local_parallelism=vertex.local_parallelism,
            partition_count=self.partition_count,
            partitions=self._partitions(plan, vertex, index),
            guarantee=self.guarantee,
            parallelism_max=self.parallelism_max,
            accepted_losses=self.accepted_losses,
            job=self.job,
            job_id=self.job_id,
            execution_id=self.execution_id,
            now_us=self.now_us,
            connected_ports=frozenset(edge.edge.source_port for edge in plan.outbound(vertex.vertex.name)),
            partition_owners=plan.port_owners(vertex.vertex.name, self.partition_count),
            deliver=self.deliver,
            announce=partial(self._announce, vertex.vertex.name) if is_source else None,
            announced=self.announced.setdefault(vertex.vertex.name, []) if is_source else [],
        )

    def _partitions(self, plan: ExecutionPlan, vertex: VertexPlan, index: int) -> tuple[int, ...] | None:
        for edge in plan.inbound(vertex.vertex.name):
            if edge.edge.routing.kind is RoutingKind.PARTITIONED:
                place = index if edge.crosses_members else index - vertex.indices_on(self.member).start
                return tuple(np.flatnonzero(edge.partition_owners(self.partition_count) == place).tolist())
        return None

    def _inbound(self, plan: ExecutionPlan, name: str, index: int) -> Inbound | None:
        edges = []
        for edge in plan.inbound(name):
            queues = []
            for upstream in edge.upstreams(index):
                channel = ChannelId(edge.index, upstream, index)
                peer = edge.source.member_of(upstream)
                receiver: ReceivingEnd | SpscQueue
                if peer == self.member:
                    receiver = self.queues[channel] = SpscQueue(edge.edge.queue_items, self.budget)
                else:
                    receiver = self._transport(edge).receiver(
                        peer, channel, edge.edge.schema, self.remote_items[edge.index]
                    )
                poll_batches = receiver.poll_batches if isinstance(receiver, SpscQueue) else None
                queues.append(InboundQueue(receiver.poll, f"{edge.edge.source}-{upstream}", poll_batches))
            edges.append(InboundEdge(edge.edge.ordinal, edge.edge.priority, queues))
        if not edges:
            return None
        retention_us = self.dag.max_watermark_retention_us
        if retention_us is not None and name in self.covered_edges:
            covered = self.covered_edges[name]
            return RetainingInbound(f"{name}-{index}", edges, self.now_us, retention_us, self.guarantee, covered)
        return Inbound(f"{name}-{index}", edges, self.now_us, self.guarantee)

    def _outbox(self, plan: ExecutionPlan, name: str, index: int) -> Outbox:
        edges = []
        for edge in plan.outbound(name):
            targets = []
            for downstream in edge.downstreams(index):
                channel = ChannelId(edge.index, index, downstream)
                peer = edge.destination.member_of(downstream)
                if peer == self.member:
                    queue = self.queues[channel]
                    targets.append(Target(peer, downstream, queue.offer, self.run_bytes_max))
                else:
                    sender = self._transport(edge).sender(
                        peer, channel, edge.edge.schema, self.remote_items[edge.index]
                    )
                    targets.append(Target(peer, downstream, sized_offer(sender)))
            edges.append((edge.edge.source_port, self._outbound_edge(edge, targets)))
        if self.check_times and plan.inbound(name):  # sources are excepted
            columns = {edge.edge.source_port: edge.edge.time_column for edge in plan.outbound(name)}
            return CheckingOutbox(edges, f"{name}-{index}", known(columns))
        return Outbox(edges)

    def _outbound_edge(self, plan: EdgePlan, targets: list[Target]) -> OutboundEdge:
        routing = plan.edge.routing
        measured = self.budget is not None
        kind = routing.kind
        if kind is RoutingKind.BROADCAST:
            return BroadcastEdge(targets, measured)
        if kind is RoutingKind.FANOUT:
            return FanoutEdge(targets, measured)
        if kind is RoutingKind.ALL_TO_ONE:
            return SingleTargetEdge(targets, measured, 0)
        if kind is RoutingKind.PARTITIONED:
            owners = plan.partition_owners(self.partition_count)
            if len(targets) == 1 or not routing.keys:  # no keys: one global partition, 0
                return SingleTargetEdge(targets, measured, 0 if len(targets) == 1 else int(owners[0]))
            splitter = Splitter(plan.edge.schema, routing.keys, owners, len(targets))
            return PartitionedEdge(targets, measured, splitter.split, splitter.split_all)
        if len(targets) == 1:
            return SingleTargetEdge(targets, measured, 0)
        return RoundRobinEdge(targets, measured)

    def _transport(self, edge: EdgePlan) -> Transport:
        if self.transport is None:
            raise ProtocolError(
                f"edge {edge.edge.source!r} -> {edge.edge.destination!r} crosses {self.member_count} members, "
                "but there is no transport"
            )
        return self.transport

    def _assign(self, plan: ExecutionPlan) -> None:
        """Give each blocking tasklet a thread, and the others to the workers: processor i of a vertex to worker i."""
        shares: list[list[ProcessorTasklet]] = [[] for _ in range(self.worker_count)]
        names = [f"worker-{number}" for number in range(self.worker_count)]
        for tasklet in self.tasklets:
            context = tasklet.context
            if not tasklet.cooperative:
                shares.append([tasklet])
                names.append(tasklet.name)
            elif context.local_parallelism >= self.worker_count:
                shares[context.local_index % self.worker_count].append(tasklet)
            else:
                min(shares[: self.worker_count], key=len).append(tasklet)
        edges = {name: [*plan.inbound(name), *plan.outbound(name)] for name in plan.vertices}
        assignments = {
            tasklet.name: Assignment(
                tasklet,
                woken=tasklet.inbound is not None
                and tasklet.context.vertex not in self.retaining
                and not any(edge.crosses_members for edge in edges[tasklet.context.vertex]),
            )
            for tasklet in self.tasklets
        }
        worker_of = self.worker_of
        for name, share in zip(names, shares, strict=True):
            if share:
                worker = Worker(
                    f"jetfast-{self.job}-{self.member}-{name}",
                    [assignments[tasklet.name] for tasklet in share],
                    on_error=self.fail,
                    stop_reason=lambda: self.error,
                    on_end=self.runner_ended,
                )
                self.workers.append(worker)
                worker_of.update((tasklet.name, worker) for tasklet in share)
        for channel in self.queues:
            edge = plan.edges[channel.edge].edge
            source, destination = f"{edge.source}-{channel.upstream}", f"{edge.destination}-{channel.downstream}"
            for name, other in ((source, destination), (destination, source)):
                parker = worker_of[other].parker
                if worker_of[other] is not worker_of[name] and parker not in assignments[name].neighbours:
                    assignments[name].neighbours.append(parker)


def sized_offer(end: SendingEnd) -> Offer:
    """`end.offer` with the signature of SpscQueue.offer: what is under way to a peer is bounded by items, not bytes."""
    offer = end.offer

    def offer_sized(item: Item, nbytes: int) -> bool:
        return offer(item)

    return offer_sized


def known(columns: dict[int, str | None]) -> dict[int, str]:
    """Those that are not None."""
    return {number: column for number, column in columns.items() if column is not None}
