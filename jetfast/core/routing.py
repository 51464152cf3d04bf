"""How rows of an edge choose their downstream processor, and which processor owns a partition."""

from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt


class RoutingKind(Enum):
    UNICAST = "unicast"
    """Round robin by batch, skipping full queues."""
    ISOLATED = "isolated"
    """Order kept: upstream u feeds downstream d iff d mod U = u mod D, local to the member."""
    PARTITIONED = "partitioned"
    """By hash of key columns: all rows of a key reach the owner of its partition."""
    ALL_TO_ONE = "all-to-one"
    """Everything to processor 0 (of member 0 when distributed)."""
    BROADCAST = "broadcast"
    """Every downstream processor gets every row."""
    FANOUT = "fanout"
    """Every member gets every row, at one of its processors (round robin)."""


@dataclass(frozen=True)
class Routing:
    """Routing of one edge. `keys` are column names, for PARTITIONED only; no keys there means partition 0."""

    kind: RoutingKind
    keys: tuple[str, ...] = ()


UNICAST = Routing(RoutingKind.UNICAST)
ISOLATED = Routing(RoutingKind.ISOLATED)
ALL_TO_ONE = Routing(RoutingKind.ALL_TO_ONE)
BROADCAST = Routing(RoutingKind.BROADCAST)
FANOUT = Routing(RoutingKind.FANOUT)


def partitioned(*keys: str) -> Routing:
    """Routing by the Spark hash of `keys`."""
    return Routing(RoutingKind.PARTITIONED, keys)


def partition_owners(partition_count: int, member_count: int, local_parallelism: int) -> npt.NDArray[np.int32]:
    """Return the processor index that owns each partition, shape (partition_count,), for a vertex on all members.

    Partition p belongs to member p mod n; within the member its partitions go round its processors.
    """
    partition = np.arange(partition_count, dtype=np.int32)
    member = partition % member_count
    local_index = (partition // member_count) % local_parallelism
    return (member * local_parallelism + local_index).astype(np.int32)


def local_partition_owners(partition_count: int, local_parallelism: int) -> npt.NDArray[np.int32]:
    """As `partition_owners` for an edge that stays inside each member: local indices in [0, local_parallelism)."""
    return np.arange(partition_count, dtype=np.int32) % np.int32(local_parallelism)
