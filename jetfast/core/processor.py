"""The contract between the engine and whatever processes rows.

A processor is one parallel instance of a vertex. It is called by one thread at a time and never locks. The exceptions
are `commit_prepared` and `end_commits`: if the processor blocks (`cooperative` False), a second thread calls these two.

Output is *pulled*: every method that may give output returns an iterable (a tuple, a list or a generator), and the
engine takes the next element only when there is room for it downstream. Until the iterable is exhausted nothing else of
the processor is called but `prepare` and `commit`: a full outbox is a generator that is not resumed, and no barrier can
fall inside a half-emitted result. (Those two must not wait for room downstream: whoever reads there may wait for the
end of the snapshot. They touch transactions, never rows.)

    open -> [restore_snapshot* -> finish_restore] -> ( process | process_watermark | complete_edge | poll
            | process_barrier -> save_snapshot -> prepare ... [commit_prepared ->] commit )*
            -> complete -> (save_snapshot -> prepare ... [commit_prepared ->] commit)* -> close -> end_commits

Three shapes were weighed. Jet's (`offer` returns False, the processor must resume where it was) makes every author
write a state machine by hand. Returning all output at once cannot bound memory. Iterables cost one generator per batch
(about 0.2 us, under 1 % at 8 Ki rows) and keep a processor a plain function of its input.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from jetfast.core.batch import Batch, BatchRun
from jetfast.core.guarantee import Guarantee
from jetfast.core.items import Output
from jetfast.types import PARTITION_COUNT


class AnnouncedPartitions(NamedTuple):
    """Partitions of a source that have come; every processor of the vertex sees the same ones in the same order."""

    names: tuple[str, ...]
    complete: bool
    """No more come."""


@dataclass(frozen=True)
class ProcessorContext:
    """What a processor may know of its surroundings. Made by the engine before `open`."""

    vertex: str
    member: int = 0
    member_count: int = 1
    local_index: int = 0
    """Index among the processors of this vertex in this member."""
    local_parallelism: int = 1
    partition_count: int = PARTITION_COUNT
    partitions: tuple[int, ...] | None = None
    """Partitions whose rows this processor gets, by the routing of its partitioned inbound edge; None: of all."""
    guarantee: Guarantee = Guarantee.NONE
    parallelism_max: int = 0
    """The largest number of processors that a vertex of this job ever had, in any execution."""
    job: str = "job"
    job_id: str = ""
    """Tells apart jobs of one name; the same in all executions of a job."""
    execution_id: int = 0
    accepted_losses: frozenset[str] = frozenset()
    """Transactions without whose rows the job goes on if the outside system has lost them; the user has named them."""
    now_us: Callable[[], int] = lambda: 0
    """Wall clock, microseconds since 1970; an argument so that tests own time."""
    connected_ports: frozenset[int] = frozenset({0})
    """Output ports that somebody reads; rows for other ports need not be made."""
    partition_owners: Mapping[int, npt.NDArray[np.int32]] = field(default_factory=dict)
    """By output port that leads to one edge, partitioned by keys: who gets the rows of each partition, int32, shape
    (partition_count,). A processor that knows whose rows are whose may say so (`Emit.owner`)."""
    deliver: Callable[[str, pa.RecordBatch, str], None] | None = None
    """Hands rows to the process that submitted the job (`collect` sinks): name of the vertex, rows, and the id of the
    publication, which has an effect once; empty: none. May block."""
    announce: Callable[[AnnouncedPartitions], None] | None = None
    """Of a source: hands partitions to all processors of the vertex, by `announced`. None: there is no other one."""
    announced: list[AnnouncedPartitions] = field(default_factory=list)
    """What has been announced in this execution. The engine appends to it, at any time."""
    counters: dict[str, int] = field(default_factory=dict)
    """Counted rows by name, such as "late_rows"; shown in `job.metrics` per vertex."""

    @property
    def index(self) -> int:
        """Index among the processors of this vertex in the whole cluster, in [0, parallelism)."""
        return self.member * self.local_parallelism + self.local_index

    @property
    def parallelism(self) -> int:
        """Number of processors of this vertex in the whole cluster."""
        return self.member_count * self.local_parallelism

    def count(self, name: str, rows: int) -> None:
        """Add to a counter of this processor."""
        self.counters[name] = self.counters.get(name, 0) + rows


BROADCAST = -1
BY_KEYS = -2


@dataclass(frozen=True, slots=True)
class StateBatch:
    """Part of a processor's state, as Arrow.

    `kind` tells apart the tables that one processor saves ("windows", "bounds").
    `partition` says who gets it on restore, on whatever number of processors there are then:

    BROADCAST : every processor of the vertex.
    BY_KEYS : each row goes to the processor that owns the partition of its `keys` columns then, which is where rows
        with these keys go (partition 0 if there are none). There may be another number of partitions then.
    0 .. partition_count - 1 : whichever processor owns that partition then. A snapshot with such state cannot be
        restored with another number of partitions.
    """

    partition: int
    kind: str
    rows: pa.RecordBatch
    keys: tuple[str, ...] = ()


class Processor:
    """One parallel instance of a vertex. Subclasses override what they need; all defaults do nothing.

    Attributes
    ----------
    cooperative : False for processors that block (files, sockets): the engine gives each a thread of its own.
    forwards_watermark : False for a processor that yields watermarks itself: its own, if it receives none; or one that
        it has received, later, because it keeps rows back until then.
    watches_clock : True for one that has something to do when time passes: `process_silence` is called.
    takes_input : False while it can take in nothing because its transactions wait for `prepare` or `commit`. Looked at
        before each input, with a guarantee only. Whoever is False must become True in one of those two.
    """

    cooperative: bool = True
    forwards_watermark: bool = True
    watches_clock: bool = False
    takes_input: bool = True

    def open(self, context: ProcessorContext) -> None:
        """Called once, on the thread that will call everything else, before any input."""

    def process(self, ordinal: int, batch: Batch) -> Iterable[Output]:
        """Take in one batch (1 row or more) from the inbound edge `ordinal`."""
        raise NotImplementedError(f"{type(self).__name__} takes no input")

    process_batches: Callable[[int, BatchRun], Iterable[Output]] | None = None
    """Takes in several batches that came one after the other from the inbound edge `ordinal`, nothing between them: as
    `process` of each in turn. A method of processors for which one call of a kernel for all of them is cheaper; None:
    they are given one by one.
    """

    def process_watermark(self, watermark: int) -> Iterable[Output]:
        """Event time has reached `watermark` on all inputs. What is yielded goes out before the watermark does."""
        return ()

    def process_idle(self) -> Iterable[Output]:
        """All inputs turned idle: flush partial results. State that waits for a watermark stays. I follows."""
        return ()

    def process_silence(self) -> Iterable[Output]:
        """There is no input at present. Called again and again while that lasts (about 20 times a second), but only if
        `watches_clock` is set; so give () when there is nothing to do."""
        return ()

    def complete_edge(self, ordinal: int) -> Iterable[Output]:
        """The inbound edge `ordinal` is exhausted."""
        return ()

    def complete(self) -> Iterable[Output]:
        """All inbound edges are exhausted: yield what is left. Then the engine sends D."""
        return ()

    def process_barrier(self) -> Iterable[Output]:
        """A snapshot barrier has come: yield what must leave ahead of it instead of being saved (partial results)."""
        return ()

    def save_snapshot(self) -> Iterable[StateBatch]:
        """Freeze and give the state. Called between two inputs, never inside one; may be called any number of times.

        The flow stands still meanwhile; what is given is encoded and stored afterwards, by another thread, so it must
        not change any more. All batches of one `kind` have one schema. With a guarantee also called after `complete`,
        once in each round. An error fails the round, not the job; but after a JobFailedError or a RestartableError,
        such as that of a sink that could not flush, the execution ends with it when the round is over.
        """
        return ()

    def restore_snapshot(self, state: StateBatch) -> None:
        """Take back one piece of state. Called after `open`, before any input, in no particular order."""
        raise NotImplementedError(f"{type(self).__name__} saved no state")

    def finish_restore(self) -> None:
        """All state has been given back. Called once, with a guarantee only, also when there was no snapshot:
        transactions of earlier executions that no snapshot names are rolled back here.
        """

    def prepare(self, snapshot_id: int) -> bool:
        """Phase 1 after the state is stored: prepare transactions. False: not yet, call again (re-entrant).

        Input may have come in since `save_snapshot`. Not called if saving or storing failed. An error fails the round.
        """
        return True

    def commit_prepared(self, snapshot_id: int) -> None:
        """First part of phase 2 of a round that succeeded: make visible outside what was prepared for it. May block.

        If the processor blocks (`cooperative` False), a second thread calls this at once, whatever the processor's own
        thread does: phase 2 never waits behind a blocked write. So it may only touch what no other method changes
        between `prepare` and `commit`, and it must not share a connection with them. An error ends the execution.
        """

    def commit(self, snapshot_id: int, success: bool) -> bool:
        """Phase 2, idempotent. `success` False: the round failed, keep what was prepared. Returns False: call again.

        Called once in each round, whatever happened in phase 1; after `commit_prepared`, if the round succeeded. An
        error ends the execution.
        """
        return True

    def end_commits(self) -> None:
        """Release what `commit_prepared` uses, on the thread that calls it. Called once, after `close`."""

    def close(self, error: BaseException | None) -> None:
        """Called exactly once at the end, also after a failure (`error`) and if `open` failed. Release everything."""


class SourceProcessor(Processor):
    """A processor without inbound edges that is polled for rows. It yields batches, watermarks, IDLE and ACTIVE."""

    forwards_watermark = False
    stays_ended: bool = False
    """Is one that had ended when the state was saved not polled after a restore, if the parallelism is the same? False:
    its state says what is left to read."""

    def poll(self) -> Iterable[Output] | None:
        """Give what there is now (an empty iterable: nothing at present), or None when the source is exhausted.

        A non-cooperative source may block here, for at most about 100 ms, so that it can be cancelled.
        """
        raise NotImplementedError

    def describe_event_time(self) -> dict[str, Any] | None:
        """Tell what holds the watermark back, as `jetfast.core.event_time_report` says; None without event time.

        Called by any thread, at any time after `open`.
        """
        return None


class ProcessorSupplier(Protocol):
    """Makes the processors of a vertex. Pickled to the members (cloudpickle), called once per processor."""

    def __call__(self) -> Processor: ...


Metrics = Mapping[str, int]
