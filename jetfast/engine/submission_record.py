"""What an execution record keeps of how a job was submitted, all but the pipeline, and of who coordinates it.

The pipeline is code, which comes from the user each time; nothing in a store is unpickled.
"""

from typing import Annotated, NamedTuple

from msgspec import Meta, Struct

from jetfast.core.guarantee import Guarantee
from jetfast.types import PARTITION_COUNT

Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]


class Lifeline(NamedTuple):
    """Held by the processes of a coordinator while one of them lives; `jetfast.control.lifeline` says how."""

    host_id: str
    path: str
    device: int
    inode: int
    offset: int


class CoordinatorRecord(Struct, frozen=True, forbid_unknown_fields=True):
    """A coordinator whose members another one must not meet."""

    lease_us: Positive
    """By then they have ended: so long after another coordinator has claimed the job."""
    lifeline: Lifeline | None = None
    """None: it cannot be told whether they have ended before."""


class SubmissionRecord(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a job was submitted with, the defaults that it got included."""

    cluster: str
    """Kind of the cluster: "local", "processes"."""
    members: Positive
    workers: Positive
    """Threads of each member."""
    pipeline: str
    """The name of the pipeline; that of the job may be another one."""
    pipeline_digest: str
    """`Dag.digest` of what it was planned as."""
    settling_steps: tuple[str, ...]
    """Those of which phase 2 commits or publishes something, if the guarantee is EXACTLY_ONCE."""
    guarantee: Guarantee
    """What was wanted; what the job got may be weaker."""
    snapshot_interval_us: Positive
    memory_limit_bytes: Positive
    max_restarts: Count | None = None
    suspend_on_failure: bool = False
    two_stage: bool | None = None
    max_watermark_retention_us: Count | None = None
    partition_count: Positive = PARTITION_COUNT
    """Partitions of the keys."""
