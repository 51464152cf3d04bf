"""What coordinator and members say to each other: small tagged records, encoded as MessagePack by msgspec.

    member -> coordinator      Registered, RenewLease, Logged, Prepared, Finished, Failed, Metrics, Delivered,
                               PartitionsFound, FirstEdgesRead, InputTaken, SnapshotSaved, SnapshotEnded
    coordinator -> member      TurnedAway, LeaseGranted, Prepare, Start, AddPartitions, StartSnapshot, EndSnapshot,
                               Cancel, Release, Shutdown

Registered is answered by LeaseGranted or TurnedAway, RenewLease by LeaseGranted (see `leases`), whatever executions
there are.

Every message bears the id of the execution it belongs to; a receiver drops those of older executions. One execution:

    coordinator   Prepare ----> Start ----------------------------> [Cancel] ------------> Release
    member               Prepared      Metrics* Delivered*  Finished or Failed

A member answers Prepare with Prepared or Failed, and after Prepared ends with exactly one of Finished and Failed (a
cancelled member says Failed with kind "JobCancelledError"). It keeps its connections to its peers open until Release,
so that the end of one member is never mistaken for a lost connection by another.

While an execution runs, PartitionsFound of one member is answered by AddPartitions to all members: each hears of the
same partitions in the same order.

One snapshot round (between Start and the end; one at a time):

    coordinator   StartSnapshot n ---------------------------> (decides) ---> EndSnapshot n
    member                       SnapshotSaved n (or failed)                            SnapshotEnded n

A member answers both, whatever happens: a failure is a flag. If edges of the job must be read to their end before
others, it says FirstEdgesRead before it answers the first. With a guarantee a member that has taken in all its input
says InputTaken and stays, until a FINAL snapshot has succeeded: then it says Finished. It says so, too, when a TERMINAL
snapshot has succeeded, after which nothing is read.
"""

from typing import Annotated, Any

import msgspec
import pyarrow as pa
from msgspec import Meta, Struct

from jetfast.control.process_identity import ProcessIdentity
from jetfast.core.guarantee import Guarantee
from jetfast.core.snapshot_kind import SnapshotKind
from jetfast.engine.snapshot_store import SnapshotArea, StateTotals
from jetfast.errors import ProtocolError
from jetfast.types import PARTITION_COUNT

Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]

NO_EXECUTION = 0
"""The execution id of messages that precede every execution."""


class Message(Struct, frozen=True, tag=True, kw_only=True, forbid_unknown_fields=True):
    """What all messages have."""

    execution_id: Count


class Versions(Struct, frozen=True, forbid_unknown_fields=True):
    """Versions of a member's process; compared with the coordinator's when it registers."""

    python: str
    jetfast: str
    pyarrow: str


class Registered(Message, frozen=True):
    """A member is there. Sent once per incarnation, before anything else; execution_id is NO_EXECUTION."""

    member: Count
    incarnation: Count
    """Counts the processes that have been this member; of two, the greater one is meant."""
    pid: Count
    host: str
    address: str
    """Where peers reach its transport ("host:port"; empty where they need no address)."""
    versions: Versions
    process: ProcessIdentity | None = None
    """None: nobody needs it, or it cannot be told."""


class RenewLease(Message, frozen=True):
    """The member lives, and wants to go on. execution_id is NO_EXECUTION."""

    member: Count
    number: Positive
    """Of this question."""


class Logged(Message, frozen=True):
    """Something was logged in the member's process. execution_id is NO_EXECUTION."""

    member: Count
    logger: str
    level: Count
    text: str


class Prepared(Message, frozen=True):
    """The execution is set up, and every peer was reached; it waits for Start."""

    member: Count


class Finished(Message, frozen=True):
    """All processors of this member are done."""

    member: Count


class Failed(Message, frozen=True):
    """The execution has ended on this member, with an error. No thread of it is left."""

    member: Count
    kind: str
    """Name of the class in jetfast.errors; any other name is an error of user code or data (JobFailedError)."""
    error: str
    traceback: str = ""


class Metrics(Message, frozen=True):
    """What this member has done so far: totals, so a later one replaces an earlier one. Always sent before the end."""

    member: Count
    values: dict[str, Any]
    """As `Execution.metrics()`, plus what `jetfast.control.member_agent` adds (pid, peak_rss_bytes)."""


class Delivered(Message, frozen=True):
    """Rows that a `collect` sink hands to the process that submitted the job."""

    member: Count
    vertex: str
    rows: pa.RecordBatch
    """On the wire one Arrow IPC stream; in one process they are handed over as they are."""
    publication: str = ""
    """Rows that come again under the same id are the same rows; empty: they are others."""


class PartitionsFound(Message, frozen=True):
    """A source has partitions that came while it runs, and all its processors must know them."""

    member: Count
    vertex: str
    names: tuple[str, ...]
    complete: bool
    """No more come."""


class FirstEdgesRead(Message, frozen=True):
    """This member has read all edges to their end that must end before others are read. Sent once, with a guarantee, if
    the job has such edges.
    """

    member: Count


class InputTaken(Message, frozen=True):
    """All processors of this member have taken in all their input. Sent once; only with a guarantee."""

    member: Count


class SnapshotSaved(Message, frozen=True):
    """Phase 1 is over: the state of this member is stored and its transactions are prepared, or that has failed."""

    member: Count
    snapshot_id: Positive
    vertices: dict[str, StateTotals]
    """What this member has stored, by vertex."""
    errors: list[str] = []
    """What failed; empty: nothing."""
    pause_us: Count = 0
    """The longest time that a tasklet of this member stood still to freeze its state."""
    align_us: Count = 0
    """The longest time from a tasklet's first barrier to its last."""


class SnapshotEnded(Message, frozen=True):
    """Phase 2 is over on this member."""

    member: Count
    snapshot_id: Positive


class TurnedAway(Message, frozen=True):
    """Another incarnation of the member lives, or the job is over. execution_id is NO_EXECUTION."""

    why: str


class LeaseGranted(Message, frozen=True):
    """The member may go on for so long, from when it asked. execution_id is NO_EXECUTION."""

    number: Count
    """Of the question; 0: Registered."""
    lease_us: Count


class Prepare(Message, frozen=True):
    """Set up an execution: make its processors and open connections to peers, but read nothing yet."""

    job: str
    job_id: str
    member: Count
    """The index of the receiver in this execution, in [0, member_count)."""
    member_count: Positive
    workers: Positive
    peers: list[str]
    """Registered.address of each member, by index; shape (member_count,)."""
    dag: bytes
    """jetfast.core.dag.Dag by cloudpickle."""
    guarantee: Guarantee
    memory_limit_bytes: Positive
    partition_count: Positive = PARTITION_COUNT
    snapshot_store: bytes = b""
    """jetfast.engine.snapshot_store.SnapshotStore by cloudpickle; empty without a guarantee, or in one process."""
    restore: SnapshotArea | None = None
    """The snapshot to start from; None: from the beginning."""
    parallelism_max: Count = 0
    """The largest number of processors that a vertex of this job ever had."""
    accepted_losses: list[str] = []
    """Transactions that may be lost: the job goes on without their rows."""
    settle_only: bool = False
    """Restore, commit the transactions that the snapshot names, roll back all others of the job, and be Finished:
    nothing is read, nothing leaves a processor. `restore` None: roll back all. After the end of a job, however it came.
    """


class Start(Message, frozen=True):
    """Begin to read: every member has prepared."""


class AddPartitions(Message, frozen=True):
    """Partitions of a source have come, see PartitionsFound."""

    vertex: str
    names: tuple[str, ...]
    complete: bool


class StartSnapshot(Message, frozen=True):
    """Phase 1: sources send barriers. `kind` FINAL only when every member has said InputTaken."""

    snapshot_id: Positive
    kind: SnapshotKind = SnapshotKind.REGULAR


class EndSnapshot(Message, frozen=True):
    """Phase 2: commit the transactions of snapshot n (`success`), or keep what was prepared for the next round."""

    snapshot_id: Positive
    success: bool


class Cancel(Message, frozen=True):
    """Stop as soon as possible; answered by Failed, or by Finished if that was already under way."""


class Release(Message, frozen=True):
    """The execution has ended on every member: drop its connections and forget it."""


class Shutdown(Message, frozen=True):
    """The member is not needed any more: cancel what runs, and exit. execution_id is NO_EXECUTION or the last one."""


MemberMessage = (
    Registered
    | RenewLease
    | Logged
    | Prepared
    | Finished
    | Failed
    | Metrics
    | Delivered
    | PartitionsFound
    | FirstEdgesRead
    | InputTaken
    | SnapshotSaved
    | SnapshotEnded
)
CoordinatorMessage = (
    TurnedAway
    | LeaseGranted
    | Prepare
    | Start
    | AddPartitions
    | StartSnapshot
    | EndSnapshot
    | Cancel
    | Release
    | Shutdown
)


def _encode_rows(rows: Any) -> bytes:
    if not isinstance(rows, pa.RecordBatch):
        raise NotImplementedError(f"messages hold no {type(rows).__name__}")
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    encoded: bytes = sink.getvalue().to_pybytes()
    return encoded


def _decode_rows(wanted: type, data: Any) -> pa.RecordBatch:
    if wanted is not pa.RecordBatch or not isinstance(data, bytes):
        raise ValueError(f"{wanted.__name__} cannot be made of {type(data).__name__}")
    try:
        with pa.ipc.open_stream(data) as reader:
            return reader.read_next_batch()
    except (pa.ArrowException, OSError, StopIteration) as error:
        raise ValueError(f"{len(data)} bytes are no rows: {error}") from error


_encoder = msgspec.msgpack.Encoder(enc_hook=_encode_rows)
_member_decoder: msgspec.msgpack.Decoder[MemberMessage] = msgspec.msgpack.Decoder(MemberMessage, dec_hook=_decode_rows)
_coordinator_decoder: msgspec.msgpack.Decoder[CoordinatorMessage] = msgspec.msgpack.Decoder(CoordinatorMessage)


def encode(message: MemberMessage | CoordinatorMessage) -> bytes:
    """Return the message as bytes, for either direction."""
    return _encoder.encode(message)


def decode_from_member(data: bytes | bytearray | memoryview) -> MemberMessage:
    """Read what a member sent. Raises ProtocolError for anything else."""
    try:
        return _member_decoder.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ProtocolError(f"a member sent {len(data)} bytes that are no message: {error}") from error


def decode_from_coordinator(data: bytes | bytearray | memoryview) -> CoordinatorMessage:
    """Read what the coordinator sent. Raises ProtocolError for anything else."""
    try:
        return _coordinator_decoder.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ProtocolError(f"the coordinator sent {len(data)} bytes that are no message: {error}") from error
