"""One member's share of the snapshot rounds of an execution: starts them, and collects what its tasklets answer.

    control                   here               a tasklet, on its own thread                   writer
    start_snapshot n -------> round n, wake
                                                 B on all inputs; or its own start, if it has none or all are done
                                                 what process_barrier gives leaves
                                                 FREEZE: save_snapshot
                                                 B leaves, input goes on ....................... encode, store
                                                 prepare <-------------------------------------- stored
                              answers <--------- done
    snapshot_saved <--------- when all have
    end_snapshot n, success > ending, wake
                                                 commit_prepared (see `commit_thread`), commit
                              answers <--------- done
    snapshot_ended <--------- when all have

What must happen before B leaves: the state is frozen, for what follows B on the inputs does not belong to it, and what
process_barrier gives has left, for it belongs to the state of others. What need not: storing and preparing. Nothing
downstream depends on them: the snapshot counts only when every tasklet of every member has answered, and if one fails,
what the others have stored is thrown away. But ids of transactions must be stored before they are prepared: a prepared
transaction that no snapshot names would be rolled back, one that is named but was never prepared would be lost.

A failure of saving, storing or preparing is told in the report and stops nothing. A failure of phase 2 is an error of
the tasklet; so is then a JobFailedError or RestartableError of `save_snapshot`: a sink that could not flush.

A barrier of another member may come before this member was told to start the round: whoever is first makes it.

A snapshot waits until edges that must be done before others are read have ended: sources send no barrier before all
tasklets of this member that lead into such an edge have sent D. So no barrier is ever held on such an edge.
"""

import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from jetfast.core.crash_points import reach
from jetfast.core.processor import StateBatch
from jetfast.core.snapshot_kind import SnapshotKind
from jetfast.engine.execution_listener import ExecutionListener, SnapshotReport
from jetfast.engine.snapshot_store import NO_STATE, SnapshotArea, SnapshotStore, StateTotals
from jetfast.engine.state_encoding import encode_state
from jetfast.engine.state_writer import StateWriter
from jetfast.errors import ProtocolError


@dataclass(slots=True, eq=False)
class SnapshotRound:
    """Phase 1 of one snapshot on this member."""

    snapshot_id: int
    kind: SnapshotKind
    unanswered: int
    """Tasklets that have not answered yet."""
    vertices: dict[str, StateTotals] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    pause_us: int = 0
    align_us: int = 0

    def report(self) -> SnapshotReport:
        """What the member answers."""
        return SnapshotReport(self.snapshot_id, self.vertices, self.errors, self.pause_us, self.align_us)


@dataclass(slots=True, eq=False)
class SnapshotEnding:
    """Phase 2 of one snapshot on this member."""

    round: SnapshotRound
    success: bool
    unanswered: int

    @property
    def ends_execution(self) -> bool:
        """Is there nothing left to do after it?"""
        return self.success and self.round.kind.ends_execution


@dataclass(slots=True, eq=False)
class Saving:
    """What one tasklet has frozen for a round, on its way into the store."""

    round: SnapshotRound
    vertex: str
    processor: int
    states: Sequence[StateBatch]
    pause_us: int
    align_us: int
    error: str | None = None
    """What has failed so far."""
    totals: StateTotals = NO_STATE
    stored: bool = False
    """The writer has done with it, well or not."""


class SnapshotContext:
    """The rounds of one member. Methods may be called by any thread.

    Parameters
    ----------
    store, job, execution_id, partition_count : where state goes, and under which name
    tasklet_count : of this member
    read_first : vertices that lead into edges that must be done before others are read
    read_first_count : tasklets of these vertices on this member
    writer : runs what encodes and stores
    """

    def __init__(
        self,
        *,
        store: SnapshotStore,
        job: str,
        execution_id: int,
        partition_count: int,
        tasklet_count: int,
        read_first: Collection[str],
        read_first_count: int,
        writer: StateWriter,
    ) -> None:
        self.store = store
        self.job = job
        self.execution_id = execution_id
        self.partition_count = partition_count
        self.tasklet_count = tasklet_count
        self.read_first = frozenset(read_first)
        self.unfinished_first = read_first_count
        """Tasklets that keep snapshots waiting."""
        self.writer = writer
        self.wake: Callable[[], None] = lambda: None
        """Wakes the workers; set by the execution."""
        self.listener: ExecutionListener | None = None
        self.round: SnapshotRound | None = None
        """The last round that has begun here."""
        self.ending: SnapshotEnding | None = None
        """The last phase 2 that has begun here."""
        self.tasklets_reading = tasklet_count
        self.lock = threading.Lock()

    def begin(self, listener: ExecutionListener) -> None:
        """The execution starts."""
        self.listener = listener
        if self.read_first and self.unfinished_first == 0:
            listener.first_edges_read()
        if self.tasklet_count == 0:
            listener.input_taken()

    def join(self, snapshot_id: int, kind: SnapshotKind) -> SnapshotRound:
        """Return round `snapshot_id`, which begins now if it is new."""
        with self.lock:
            current = self.round
            if current is not None and snapshot_id == current.snapshot_id:
                return current
            if current is not None and snapshot_id < current.snapshot_id:
                raise ProtocolError(f"snapshot {snapshot_id} cannot start: {current.snapshot_id} has")
            self.round = started = SnapshotRound(snapshot_id, kind, self.tasklet_count)
        self.wake()
        return started

    def start(self, snapshot_id: int, kind: SnapshotKind) -> None:
        """The coordinator starts a round; harmless if a barrier has been faster, or the message comes twice."""
        before = self.round
        started = self.join(snapshot_id, kind)
        if started is not before and self.tasklet_count == 0:
            self.tell().snapshot_saved(started.report())

    def end(self, snapshot_id: int, success: bool) -> SnapshotEnding | None:
        """The coordinator begins phase 2. Return it; None if the message comes twice, which is harmless."""
        with self.lock:
            current, ending = self.round, self.ending
            if current is None or current.snapshot_id != snapshot_id:
                raise ProtocolError(
                    f"snapshot {snapshot_id} cannot end: the last one that has begun here is "
                    f"{'none' if current is None else current.snapshot_id}"
                )
            if ending is not None and ending.round is current:
                return None
            self.ending = begun = SnapshotEnding(current, success, self.tasklet_count)
        self.wake()
        if self.tasklet_count == 0:
            self.tell().snapshot_ended(snapshot_id)
        return begun

    @property
    def waits_for_edges(self) -> bool:
        """Must sources hold back their barriers, because an edge that is read first has not ended?"""
        return self.unfinished_first > 0

    def store_soon(self, saving: Saving) -> None:
        """Have the writer store what a tasklet has frozen."""
        self.writer(lambda: self.store_now(saving))

    def store_now(self, saving: Saving) -> None:
        """Encode and store; the tasklet goes on with `prepare`."""
        if saving.error is None:
            try:
                entries = encode_state(saving.processor, saving.states)
                if entries:
                    area = SnapshotArea(self.execution_id, saving.round.snapshot_id)
                    saving.totals = self.store.write_file(
                        self.job, area, saving.vertex, str(saving.processor), entries, self.partition_count
                    )
            except Exception as error:
                saving.error = f"its state was not stored: {type(error).__name__}: {error}"
            else:
                reach("after_ids_saved")
        saving.states = ()
        saving.stored = True
        self.wake()

    def answer(self, saving: Saving) -> None:
        """Phase 1 is over for one tasklet."""
        with self.lock:
            current = saving.round
            if saving.error is not None:
                current.errors.append(f"step {saving.vertex!r}, processor {saving.processor}: {saving.error}")
            if saving.totals != NO_STATE:
                current.vertices[saving.vertex] = current.vertices.get(saving.vertex, NO_STATE) + saving.totals
            current.pause_us = max(current.pause_us, saving.pause_us)
            current.align_us = max(current.align_us, saving.align_us)
            current.unanswered -= 1
            if current.unanswered > 0:
                return
        self.tell().snapshot_saved(current.report())

    def committed(self, ending: SnapshotEnding) -> None:
        """Phase 2 is over for one tasklet."""
        with self.lock:
            ending.unanswered -= 1
            if ending.unanswered > 0:
                return
        self.tell().snapshot_ended(ending.round.snapshot_id)

    def input_taken(self, vertex: str) -> None:
        """A tasklet has sent D."""
        with self.lock:
            self.tasklets_reading -= 1
            last = self.tasklets_reading == 0
            if vertex in self.read_first:
                self.unfinished_first -= 1
            edges_ended = vertex in self.read_first and self.unfinished_first == 0
        if edges_ended:
            self.tell().first_edges_read()
            self.wake()
        if last:
            self.tell().input_taken()

    def tell(self) -> ExecutionListener:
        """Whoever started the execution."""
        assert self.listener is not None
        return self.listener
