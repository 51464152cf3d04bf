"""Reads the queues that lead into one processor, and makes one order of events out of them.

Queues are numbered over all edges of the processor. One drain takes items of one queue; a watermark is the last thing
that leaves it. Watermarks are coalesced twice: over the queues of an edge, then over the edges. Of the edges only
those of the lowest priority number that is not done yet are read.

With a guarantee snapshot barriers are aligned over all queues (SEMANTICS 3). Exactly once, a queue that has given its
barrier is held: nothing more is read from it, its watermarks included, before `release`. At least once, reading goes
on, and only a terminal barrier holds queues. Held queues are not among those that `poll` looks at, so that barriers
cost nothing on the way of rows.

What `poll` returns, in the order in which the processor must see it:

    Batch, BatchRun      rows; `ordinal` says from which edge
    Watermark            coalesced over all inputs
    IDLE, ACTIVE         all inputs have turned idle; one woke
    Barrier              it has come on every queue that is not done; call `release` before the next `poll`. It comes
                         after all that the ends of queues give, but ahead of DONE
    EdgeDone(ordinal)    the edge is exhausted; comes before a watermark that its end sets free, because what the
                         processor still holds of that edge must not become late
    DONE                 all edges are exhausted; nothing follows
"""

from collections import deque
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import pyarrow as pa

from jetfast.core.batch import Batch, BatchRun
from jetfast.core.guarantee import Guarantee
from jetfast.core.items import ACTIVE, DONE, IDLE, Barrier, Watermark
from jetfast.errors import ProtocolError
from jetfast.kernels.barriers import BarrierAligner
from jetfast.kernels.watermarks import WatermarkCoalescer
from jetfast.types import Signal

LEAP_US_MAX = 1_000_000
"""Inputs that turn idle within so much wall time fell silent together: the watermark took one leap."""


class EdgeDone(NamedTuple):
    """The inbound edge `ordinal` is exhausted."""

    ordinal: int


Event = Batch | BatchRun | Watermark | Barrier | Signal | EdgeDone


class InboundQueue:
    """One queue: where it comes from, and how to take the next item."""

    __slots__ = ("edge", "idle", "index_in_edge", "number", "ordinal", "poll", "poll_batches", "upstream")

    def __init__(
        self,
        poll: Callable[[], Any],
        upstream: str,
        poll_batches: Callable[[int, pa.Schema], list[Batch | BatchRun]] | None = None,
    ) -> None:
        self.poll = poll
        self.poll_batches = poll_batches
        """As `SpscQueue.poll_batches`; None if several cannot be taken at once."""
        self.upstream = upstream
        """The processor that feeds it, for messages."""
        self.idle = False
        self.number = 0
        self.index_in_edge = 0
        self.ordinal = 0
        self.edge: InboundEdge


class InboundEdge:
    """The queues of one edge, and the watermark that they have in common."""

    __slots__ = ("coalescer", "live_count", "ordinal", "position", "priority", "queues")

    def __init__(self, ordinal: int, priority: int, queues: Sequence[InboundQueue]) -> None:
        self.ordinal = ordinal
        self.priority = priority
        self.queues = queues
        self.position = 0
        self.live_count = len(queues)
        self.coalescer = WatermarkCoalescer(max(1, len(queues)))
        for index, queue in enumerate(queues):
            queue.index_in_edge = index
            queue.ordinal = ordinal
            queue.edge = self


class Inbound:
    """All inbound edges of one processor. Used by the thread of its tasklet only.

    Parameters
    ----------
    vertex : name of the step, for messages
    edges : one or more, by ordinal; an edge may have no queue (its upstream runs on other members only)
    now_us : wall clock, microseconds since 1970
    guarantee : NONE: there are no barriers
    """

    __slots__ = (
        "align_us",
        "aligner",
        "barrier",
        "coalescer",
        "cursor",
        "edges",
        "events",
        "first_barrier_us",
        "held",
        "leap",
        "live_edges",
        "now_us",
        "ordinal",
        "queue",
        "queues",
        "readable",
        "single_edge",
        "vertex",
        "waiting_groups",
    )

    def __init__(
        self,
        vertex: str,
        edges: Sequence[InboundEdge],
        now_us: Callable[[], int] = lambda: 0,
        guarantee: Guarantee = Guarantee.NONE,
    ) -> None:
        self.vertex = vertex
        self.now_us = now_us
        self.leap: tuple[int, int, int, bool] | None = None
        """When an input that turned idle last let the watermark go on: wall clock, from, to; were all idle then?"""
        self.edges = edges
        self.ordinal = 0
        """Edge of the batch that `poll` returned last."""
        self.queue: InboundQueue | None = None
        """The queue that it came from."""
        self.events: deque[Any] = deque()
        self.queues = [queue for edge in edges for queue in edge.queues]
        for number, queue in enumerate(self.queues):
            queue.number = number
        self.aligner: BarrierAligner | None = None
        if guarantee is not Guarantee.NONE and self.queues:
            self.aligner = BarrierAligner(len(self.queues), guarantee is Guarantee.EXACTLY_ONCE)
        self.held: list[InboundQueue] = []
        """Queues that have given their barrier and are not read before `release`."""
        self.barrier: Barrier | None = None
        """The barrier that is being aligned, or the last one."""
        self.first_barrier_us = 0
        self.align_us = 0
        """How long the last alignment took."""
        self.coalescer = WatermarkCoalescer(len(edges))
        self.single_edge = len(edges) == 1
        self.live_edges = len(edges)
        self.cursor = 0
        self.readable: list[InboundQueue] = []
        self.waiting_groups = [
            [edge for edge in edges if edge.priority == priority]
            for priority in sorted({edge.priority for edge in edges}, reverse=True)
        ]
        for position, edge in enumerate(edges):
            edge.position = position
        self.read_next_group()

    @property
    def watermark(self) -> int:
        """The last watermark handed on; MIN_TIME before the first."""
        return (self.edges[0].coalescer if self.single_edge else self.coalescer).watermark

    @property
    def idle(self) -> bool:
        """Are all inputs that are not done idle?"""
        return (self.edges[0].coalescer if self.single_edge else self.coalescer).idle

    def holder(self) -> tuple[InboundQueue, int] | None:
        """The input that holds the watermark back, and its own watermark; None if no input is awake. Any thread."""
        lowest: tuple[InboundQueue, int] | None = None
        for queue in self.queues:
            coalescer = queue.edge.coalescer
            if coalescer.is_idle(queue.index_in_edge) or coalescer.is_done(queue.index_in_edge):
                continue
            watermark = coalescer.input_watermark(queue.index_in_edge)
            if lowest is None or watermark < lowest[1]:
                lowest = (queue, watermark)
        return lowest

    def poll(self) -> Any:
        """The next event, or None if there is nothing now."""
        events = self.events
        if events:
            return events.popleft()
        readable = self.readable
        while len(readable) == 1:  # as below, without turns to take
            queue = readable[0]
            item = queue.poll()
            if item is None:
                return None
            if (type(item) is BatchRun or type(item) is Batch) and not queue.idle:
                self.ordinal = queue.ordinal
                self.queue = queue
                return item
            event = self.take(queue, item)
            if event is not None:
                return event
            readable = self.readable
        cursor = self.cursor
        count = len(readable)
        misses = 0
        while misses < count:
            if cursor >= count:
                cursor = 0
            queue = readable[cursor]
            cursor += 1
            item = queue.poll()
            if item is None:
                misses += 1
                continue
            self.cursor = cursor
            if (type(item) is BatchRun or type(item) is Batch) and not queue.idle:
                self.ordinal = queue.ordinal
                self.queue = queue
                return item
            event = self.take(queue, item)
            if event is not None:
                return event
            readable = self.readable
            cursor = self.cursor
            count = len(readable)
            misses = 0
        return None

    def join_waiting(self, rows: Batch | BatchRun, rows_max: int) -> Batch | BatchRun:
        """After `poll` gave rows: these, and those that come next on the queues of its edge; `rows_max` at most in all.

        So a processor with many inputs takes in together what they have, instead of one call for each of them.
        """
        queue = self.queue
        rows_left = rows_max - rows.row_count
        if queue is None or queue.poll_batches is None or self.events or rows_left <= 0:
            return rows
        schema = rows.schema
        waiting = queue.poll_batches(rows_left, schema)
        if len(self.readable) > 1:
            for other in self.readable:
                if other is queue or other.ordinal != queue.ordinal or other.idle or other.poll_batches is None:
                    continue
                taken = sum(item.row_count for item in waiting)
                waiting += other.poll_batches(rows_left - taken, schema)
        return BatchRun.of([rows, *waiting]) if waiting else rows

    def take_apart(self, run: BatchRun) -> Batch:
        """After `poll` gave a run: its first batch. The others are the next events."""
        first, *others = run
        self.events.extendleft(reversed(others))
        return first

    def take(self, queue: InboundQueue, item: Any) -> Any:
        """Take in a control item, or rows of a queue that was idle; the first event that this gives, or None."""
        if type(item) is Watermark:
            queue.idle = False
            edge = queue.edge
            try:
                forwarded = edge.coalescer.observe_watermark(queue.index_in_edge, item.value)
            except ValueError as error:
                raise self.broken(queue, error) from error
            if not forwarded:
                return None
            if self.single_edge and forwarded[0] == item.value:  # the usual case: it passes as it is
                return item
            self.forward(edge, forwarded)
        elif type(item) is Batch or type(item) is BatchRun:
            self.ordinal = queue.ordinal
            self.queue = queue
            self.wake(queue)
            self.events.append(item)
        else:
            self.take_control(queue, item)
        return self.events.popleft() if self.events else None

    def wake(self, queue: InboundQueue) -> None:
        """Rows have come on a queue that was idle."""
        queue.idle = False
        self.forward(queue.edge, queue.edge.coalescer.observe_rows(queue.index_in_edge))

    def take_control(self, queue: InboundQueue, item: Any) -> None:
        """Work one control item of a queue into the events."""
        edge = queue.edge
        coalescer = edge.coalescer
        try:
            if item is DONE:
                self.take_done(queue)
            elif item is IDLE:
                queue.idle = True
                before = self.watermark
                self.forward(edge, coalescer.observe_idle(queue.index_in_edge))
                self.remember_leap(before)
            elif item is ACTIVE:
                queue.idle = False
                self.forward(edge, coalescer.observe_active(queue.index_in_edge))
            elif type(item) is Barrier:
                self.take_barrier(queue, item)
            else:
                raise ValueError(f"expected rows or a control item, got {type(item).__name__}")
        except ValueError as error:
            raise self.broken(queue, error) from error

    def remember_leap(self, before: int) -> None:
        """An input has turned idle, and the watermark had been `before`."""
        now_us = self.now_us()
        if self.watermark > before:
            self.leap = (now_us, before, self.watermark, self.idle)
        elif self.idle and self.leap is not None and now_us - self.leap[0] <= LEAP_US_MAX:
            self.leap = (*self.leap[:3], True)

    def broken(self, queue: InboundQueue, error: ValueError) -> ProtocolError:
        """The error that names the queue on which something came that must not come."""
        return ProtocolError(f"step {self.vertex!r}, inbound edge {queue.ordinal}, from {queue.upstream}: {error}")

    def forward(self, edge: InboundEdge, forwarded: tuple[int | Signal, ...]) -> None:
        """Hand what an edge forwards to the second level."""
        if self.single_edge:
            self.leave(forwarded)
            return
        for item in forwarded:
            if item is IDLE:
                self.leave(self.coalescer.observe_idle(edge.position))
            elif item is ACTIVE:
                self.leave(self.coalescer.observe_active(edge.position))
            else:
                assert isinstance(item, int)
                self.leave(self.coalescer.observe_watermark(edge.position, item))

    def leave(self, forwarded: tuple[int | Signal, ...]) -> None:
        """Make events of what the last coalescer forwards."""
        for item in forwarded:
            self.events.append(Watermark(item) if type(item) is int else item)

    def take_barrier(self, queue: InboundQueue, barrier: Barrier) -> None:
        """A queue has given its barrier: perhaps the last one that was waited for."""
        aligner = self.aligner
        if aligner is None:
            raise ValueError(f"barrier {barrier.snapshot_id}, but the job has no guarantee")
        if self.waiting_groups:
            raise ValueError(
                f"barrier {barrier.snapshot_id} on an edge that must be done before others are read: "
                "a snapshot begins when such edges are done"
            )
        if aligner.aligning is None:
            self.first_barrier_us = self.now_us()
        aligned = aligner.observe_barrier(queue.number, barrier.snapshot_id, barrier.terminal)
        self.barrier = barrier
        if aligner.is_blocked(queue.number):
            self.held.append(queue)
            self.readable = [other for other in self.readable if other is not queue]
        if aligned:
            self.finish_alignment()

    def finish_alignment(self) -> None:
        """The barrier has come on every queue that is not done: hand it on, ahead of the end of all input."""
        self.align_us = max(0, self.now_us() - self.first_barrier_us)
        ended = bool(self.events) and self.events[-1] is DONE
        self.events.insert(len(self.events) - ended, self.barrier)

    def release(self) -> None:
        """The barrier that `poll` returned has left the processor: read again; after a terminal one, nothing."""
        assert self.aligner is not None
        assert self.barrier is not None
        self.aligner.release()
        if self.held and not self.barrier.terminal:
            self.readable = sorted([*self.readable, *self.held], key=attrgetter("number"))
            self.held.clear()

    def missing_barriers(self) -> list[str]:
        """The upstream processors whose barrier is waited for; none if there is no alignment. Any thread."""
        aligner = self.aligner
        if aligner is None:
            return []
        return [queue.upstream for queue in self.queues if aligner.is_missing(queue.number)]

    def live_upstreams(self) -> list[str]:
        """The upstream processors whose queues are read at present and have not ended. Any thread."""
        return [queue.upstream for queue in list(self.readable)]

    def take_done(self, queue: InboundQueue) -> None:
        """A queue has ended; perhaps its edge with it, and all input."""
        edge = queue.edge
        forwarded = edge.coalescer.observe_done(queue.index_in_edge)
        self.readable = [other for other in self.readable if other is not queue]
        edge.live_count -= 1
        if edge.live_count == 0:
            self.events.append(EdgeDone(edge.ordinal))
        self.forward(edge, forwarded)
        if edge.live_count == 0:
            self.finish_edge(edge)
        if self.aligner is not None and self.aligner.observe_done(queue.number):
            self.finish_alignment()

    def finish_edge(self, edge: InboundEdge) -> None:
        """An edge has ended: it holds no watermark back any more, and edges of lower priority may be read."""
        if not self.single_edge:
            self.leave(self.coalescer.observe_done(edge.position))
        self.live_edges -= 1
        if self.live_edges == 0:
            self.events.append(DONE)
        elif not self.readable:
            self.read_next_group()

    def read_next_group(self) -> None:
        """Begin to read the edges of the next priority."""
        if not self.waiting_groups:
            return
        group = self.waiting_groups.pop()
        self.readable = [queue for edge in group for queue in edge.queues]
        self.cursor = 0
        for edge in group:
            if not edge.queues:
                self.events.append(EdgeDone(edge.ordinal))
                self.finish_edge(edge)
