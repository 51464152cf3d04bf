"""Who gets which part of saved state: by partition, or row by row by the partition of its keys."""

from collections.abc import Container, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from jetfast.core.processor import BY_KEYS, StateBatch
from jetfast.kernels.partitioning import assign_partitions


def share_state(
    state: StateBatch, owners: npt.NDArray[np.int32], chosen: Container[int]
) -> Iterator[tuple[int, StateBatch]]:
    """Give each of the chosen processors its part of a state that is no BROADCAST, rows in their order.

    owners : the processor that owns each partition, shape (partition_count,)
    """
    if state.partition != BY_KEYS:
        owner = int(owners[state.partition])
        if owner in chosen:
            yield owner, state
        return
    homes = owners if (owners == owners[0]).all() else owners[_partitions(state, len(owners))]
    counts = np.bincount(homes)
    found = np.flatnonzero(counts).tolist()
    if len(found) == 1:
        if found[0] in chosen:
            yield found[0], state
        return
    rows = state.rows.take(pa.array(np.argsort(homes, kind="stable")))
    ends = np.cumsum(counts).tolist()
    for owner in found:
        if owner in chosen:
            part = rows.slice(ends[owner] - counts[owner], counts[owner])
            yield owner, StateBatch(BY_KEYS, state.kind, part, state.keys)


def _partitions(state: StateBatch, partition_count: int) -> npt.NDArray[np.int32]:
    if not state.keys:
        return np.zeros(state.rows.num_rows, np.int32)
    return assign_partitions([state.rows.column(key) for key in state.keys], partition_count)
