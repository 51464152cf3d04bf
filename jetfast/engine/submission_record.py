"""How a job was submitted, as its execution record keeps it: all that goes on with it needs, except the pipeline.

The pipeline is code, which comes from the user each time; nothing in a store is unpickled.
"""

from typing import Annotated

from msgspec import Meta, Struct

from jetfast.core.guarantee import Guarantee

Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]


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
    guarantee: Guarantee
    """What was wanted; what the job got may be weaker."""
    snapshot_interval_us: Positive
    memory_limit_bytes: Positive
    max_restarts: Count | None = None
    suspend_on_failure: bool = False
    two_stage: bool | None = None
    max_watermark_retention_us: Count | None = None
