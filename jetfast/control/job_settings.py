"""What is to be run, and how: all that the coordinator of a job is given before it begins."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from jetfast.control.leases import LEASE_S
from jetfast.core.guarantee import Guarantee
from jetfast.engine.snapshot_store import SnapshotStore
from jetfast.engine.submission_record import CoordinatorRecord, SubmissionRecord
from jetfast.types import PARTITION_COUNT

DEFAULT_SNAPSHOT_INTERVAL_S = 10.0


@dataclass(frozen=True)
class JobSettings:
    """What is to be run, and how. `dag` is as `messages.Prepare.dag`."""

    job: str
    job_id: str
    dag: bytes
    member_count: int
    workers: int
    guarantee: Guarantee
    """Of its state: whether it takes snapshots, and whether it aligns their barriers."""
    memory_limit_bytes: int
    partition_count: int = PARTITION_COUNT
    parallelism: Mapping[str, int] = field(default_factory=dict)
    """Processors in the whole cluster, by vertex."""
    reads_edges_first: bool = False
    """Must edges be read to their end before others are read?"""
    snapshot_store: SnapshotStore | None = None
    """Where snapshots are kept; with a guarantee there must be one."""
    pickled_store: bytes = b""
    """As `messages.Prepare.snapshot_store`."""
    snapshot_interval_s: float = DEFAULT_SNAPSHOT_INTERVAL_S
    """Between the end of a snapshot and the start of the next."""
    max_restarts: int | None = None
    suspend_on_failure: bool = False
    fresh: bool = False
    """Begin anew, whatever the store knows of a job of this name."""
    initial_snapshot: str | None = None
    """Name of the snapshot that it starts from, whatever the store knows of a job of this name."""
    job_guarantee: Guarantee | None = None
    """Weakest guarantee of the sinks that count; None: that of its state."""
    sink_guarantees: Mapping[str, Guarantee] = field(default_factory=dict)
    """By name of step."""
    accept_loss: tuple[str, ...] = ()
    """Transactions without whose rows it goes on if they are lost."""
    weakened_by: tuple[str, ...] = ()
    """Which steps keep less than was asked for, and why: a sentence for each."""
    submission: SubmissionRecord | None = None
    """What the execution record is to keep of all this."""
    coordinator: CoordinatorRecord | None = None
    """What it is to keep of this coordinator; None: nobody will ask."""
    lease_s: float = LEASE_S
    """How long members live without a word from the coordinator."""
