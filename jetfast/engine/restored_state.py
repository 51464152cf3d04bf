"""The snapshot that an execution starts from: read once for each vertex and member, shared out to its processors.

State of a partition goes to the one processor that owns the partition now, BROADCAST state to all. What the engine
itself saves of each processor:

    finished    it had sent D. A processor is restored as finished if the same number of processors saved it so, or if
                all processors of its vertex were; sources know themselves what they have read to the end.
    counters    such as "late_rows": their sums go on with processor 0
"""

import threading
from collections.abc import Collection, Container, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from jetfast.core.processor import BROADCAST, ProcessorContext, StateBatch
from jetfast.core.state_sharing import share_state
from jetfast.engine.snapshot_store import SnapshotArea, SnapshotStore, StateEntry, ValidationRecord, read_whole
from jetfast.engine.state_encoding import decode_state
from jetfast.errors import JobDefinitionError

ENGINE_KIND = "jetfast.engine"
"""Kind of what the engine itself saves of a processor; processors name theirs otherwise."""
_ENGINE_SCHEMA = pa.schema([("finished", pa.bool_()), ("counters", pa.map_(pa.string(), pa.int64()))])


def engine_state(finished: bool, counters: Mapping[str, int]) -> list[StateBatch]:
    """Return what the engine saves of one processor; nothing if there is nothing to say."""
    counted = [(name, count) for name, count in counters.items() if count]
    if not finished and not counted:
        return []
    return [StateBatch(BROADCAST, ENGINE_KIND, pa.record_batch([[finished], [counted]], schema=_ENGINE_SCHEMA))]


@dataclass
class RestoredShare:
    """What one processor is given back."""

    states: list[StateBatch] = field(default_factory=list)
    finished: bool = False
    counters: dict[str, int] = field(default_factory=dict)


class RestoredState:
    """One snapshot, for the processors of one member. Safe for any number of threads.

    Parameters
    ----------
    store, job, area : which snapshot
    owners : by vertex, the index in the whole cluster of the processor that owns each partition,
        shape (partition_count,). The snapshot may have been taken with another number of partitions
    """

    def __init__(
        self,
        store: SnapshotStore,
        job: str,
        area: SnapshotArea,
        owners: Mapping[str, npt.NDArray[np.int32]],
    ) -> None:
        self.store = store
        self.job = job
        self.owners = owners
        self.record = store.read_validation(job, area)
        self.shares: dict[str, dict[int, RestoredShare]] = {}
        self.locks = {vertex: threading.Lock() for vertex in owners}

    def take(self, context: ProcessorContext) -> RestoredShare:
        """Return what a processor is given back, and let go of it."""
        with self.locks[context.vertex]:  # the first to come reads for all of its vertex
            shares = self.shares.get(context.vertex)
            if shares is None:
                shares = self.shares[context.vertex] = self.read(context)
            return shares.pop(context.index)

    def read(self, context: ProcessorContext) -> dict[int, RestoredShare]:
        """Read all entries of a vertex; return the shares of its processors on this member.

        Raises SnapshotDamaged before anything is given to a processor if they are not those that were saved: a sink
        that lacks the names of its transactions would roll them back.
        """
        vertex = context.vertex
        first = context.index - context.local_index
        shares = {index: RestoredShare() for index in range(first, first + context.local_parallelism)}
        finished: set[int] = set()
        for entry in read_whole(self.store, self.job, self.record, vertex):
            if entry.kind == ENGINE_KIND:
                if take_engine_state(entry, shares.get(0)):
                    finished.add(entry.processor)
                continue
            if not self.concerns(vertex, entry, shares):
                continue
            for state in decode_state(entry):
                if state.partition == BROADCAST:
                    for share in shares.values():
                        share.states.append(state)
                else:
                    for owner, part in share_state(state, self.owners[vertex], shares):
                        shares[owner].states.append(part)
        saved_parallelism = self.record.parallelism.get(vertex, 0)
        for index, share in shares.items():
            if saved_parallelism == context.parallelism:
                share.finished = index in finished
            else:
                share.finished = 0 < saved_parallelism == len(finished)
        return shares

    def concerns(self, vertex: str, entry: StateEntry, shares: Container[int]) -> bool:
        """May any of an entry be for processors of this member? Raises JobDefinitionError if that cannot be told."""
        owners = self.owners[vertex]
        homes = [partition for partition in entry.partitions if partition >= 0]
        if len(homes) < len(entry.partitions):
            return True
        if homes and self.record.partition_count != len(owners):
            raise JobDefinitionError(
                f"snapshot {self.record.area} of job {self.job!r} has {self.record.partition_count} key partitions, "
                f"the cluster {len(owners)}, and step {vertex!r} has saved {entry.kind!r} by partition, not by keys: "
                f"start the cluster with partition_count={self.record.partition_count}"
            )
        return any(int(owners[home]) in shares for home in homes)


def count_rows_written(store: SnapshotStore, job: str, record: ValidationRecord, sinks: Collection[str]) -> int:
    """Return how many rows these sinks had written when a snapshot was taken. Raises the errors of the store."""
    total = RestoredShare()
    for vertex in sinks:
        if vertex in record.vertices:
            for entry in read_whole(store, job, record, vertex):
                if entry.kind == ENGINE_KIND:
                    take_engine_state(entry, total)
    return total.counters.get("rows_written", 0)


def take_engine_state(entry: StateEntry, first: RestoredShare | None) -> bool:
    """Add the counters of a processor to those of processor 0, if that is here; was the processor finished?"""
    finished = False
    for state in decode_state(entry):
        for saved in state.rows.to_pylist():
            finished = finished or saved["finished"]
            if first is not None:
                for name, count in saved["counters"]:
                    first.counters[name] = first.counters.get(name, 0) + count
    return finished
