"""Port: where snapshots are kept. Implementations: `memory_snapshot_store`, `directory_snapshot_store`.

A store holds, for each job by name:

    areas                one for each snapshot, named by (execution id, snapshot id): files of state, written by members
    validation records   one for each area: what must be in it
    execution record     one for each job: its last execution and last decided snapshot

    members       write_file* --------------------------- read_files (restore)
    coordinator              write_validation -> replace_record

`replace_record` is a compare-and-set, and that one write is the decision of a snapshot (SEMANTICS 4): phase 2 may begin
when it has returned. Who starts an execution replaces the record first, so that the next write of an older coordinator
fails. Nothing in a store is unpickled: state is Arrow, records are MessagePack.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, NamedTuple, Protocol

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from jetfast.engine.submission_record import CoordinatorRecord, SubmissionRecord
from jetfast.errors import SnapshotDamaged
from jetfast.kernels.checksums import crc32c
from jetfast.types import PARTITION_COUNT

Count = Annotated[int, Meta(ge=0)]
Piece = bytes | memoryview
"""Of bytes that are stored one after the other; nobody changes it."""


class SnapshotArea(Struct, frozen=True, order=True, forbid_unknown_fields=True):
    """Names a snapshot of a job. Snapshot ids are consecutive within an execution, from 1."""

    execution_id: Count
    snapshot_id: Count

    def __str__(self) -> str:
        return f"{self.execution_id}-{self.snapshot_id}"


class StateEntry(NamedTuple):
    """State of one kind of one processor, as it is stored."""

    processor: int
    """Index, in the whole cluster, of the processor that saved it."""
    kind: str
    partitions: tuple[int, ...]
    """`StateBatch.partition` of each record batch, in their order."""
    keys: tuple[str, ...]
    """`StateBatch.keys` of all of them."""
    pieces: tuple[Piece, ...]
    """One Arrow IPC stream: schema and framing are paid once."""

    @property
    def nbytes(self) -> int:
        """Size of the stream."""
        return sum(map(len, self.pieces))


class StateTotals(Struct, frozen=True, forbid_unknown_fields=True):
    """What has been stored: how many entries, how many bytes of rows, and a checksum that does not depend on order."""

    entries: Count = 0
    nbytes: Count = 0
    checksum: Count = 0

    def __add__(self, other: "StateTotals") -> "StateTotals":
        return StateTotals(
            self.entries + other.entries, self.nbytes + other.nbytes, (self.checksum + other.checksum) & 0xFFFFFFFFFFFF
        )


NO_STATE = StateTotals()


def totals_of(vertex: str, entries: Iterable[StateEntry]) -> StateTotals:
    """Return the totals of entries of a vertex. The checksum is the sum of `entry_checksum`, modulo 2^48."""
    return sum((StateTotals(1, entry.nbytes, entry_checksum(vertex, entry)) for entry in entries), NO_STATE)


def entry_checksum(vertex: str, entry: StateEntry) -> int:
    """Return the CRC-32C of an entry: of whose state it is, and of its rows."""
    checksum = crc32c(f"{vertex}\0{entry.processor}\0{entry.kind}\0{entry.partitions}\0{entry.keys}\0".encode())
    for piece in entry.pieces:
        checksum = crc32c(piece, checksum)
    return checksum


class ValidationRecord(Struct, frozen=True, forbid_unknown_fields=True):
    """What must be in an area, by vertex. Written when every processor has saved its state."""

    area: SnapshotArea
    vertices: dict[str, StateTotals]
    partition_count: Count
    parallelism: dict[str, Count]
    """Processors in the whole cluster, by vertex, when the snapshot was taken."""


class RecordLink(Struct, frozen=True, forbid_unknown_fields=True):
    """Where a record stands among those of its job. Stores that keep files write it, check it and take it off."""

    version: Count
    """Of this record: a copy under another version is found out."""
    previous: Count | None = None
    """Checksum of the record before; None: there was none."""


class HighWaterMark(Struct, frozen=True, forbid_unknown_fields=True):
    """The newest record that was written, as it is noted beside the records: one that is newer may exist, none older
    may be the newest.
    """

    version: Count
    checksum: Count
    """Of that record."""
    execution_id: Count
    snapshot: SnapshotArea | None = None

    def __str__(self) -> str:
        return f"version {self.version} ({_stand(self.execution_id, self.snapshot)})"


def _stand(execution_id: int, snapshot: SnapshotArea | None) -> str:
    return f"execution {execution_id}, {'no snapshot' if snapshot is None else f'snapshot {snapshot}'}"


class ExecutionRecord(Struct, frozen=True, forbid_unknown_fields=True):
    """The truth about a job: whose execution it is, and which snapshot counts."""

    job: str
    job_id: str
    execution_id: Count
    """The last execution that was started; messages and writes of older ones are refused."""
    snapshot: SnapshotArea | None = None
    """The last decided snapshot; None: there is none yet, the job starts from the beginning."""
    parallelism_max: Count = 0
    """The largest number of processors that a vertex of this job ever had (pool transactions are probed up to it)."""
    members_max: Count = 0
    """The largest number of members that the job's cluster ever had."""
    accepted_losses: tuple[str, ...] = ()
    """Transactions without whose rows the user lets the job go on if they are lost; kept as a note of what is missing.
    """
    completed: bool = False
    """The snapshot is that of the end: there is nothing to run, only to commit."""
    settled: bool = False
    """What it names is committed, and all else rolled back. If the job is completed, there is nothing left to do."""
    suspended: bool = False
    """The job was suspended, and no execution has begun since; the next submission continues it."""
    exported_from: str = ""
    """Of a named snapshot: the job that it was taken of."""
    exported_at_us: Count = 0
    """Of a named snapshot: when, by the wall clock, microseconds since 1970."""
    submission: SubmissionRecord | None = None
    """How it was submitted last; None: it is a named snapshot."""
    coordinators: tuple[CoordinatorRecord, ...] = ()
    """Whose members may live: that of the execution, and earlier ones of whose end nobody was certain then."""
    link: RecordLink | UnsetType = UNSET
    """Unset: unknown. A store sets it when it writes the record."""

    @property
    def stand(self) -> str:
        """How far the job is, for people."""
        return _stand(self.execution_id, self.snapshot)


class VersionedRecord(NamedTuple):
    """An execution record, and what to name when it is replaced."""

    record: ExecutionRecord
    version: int


class SnapshotStore(Protocol):
    """Where snapshots are kept. Picklable if members live in other processes; safe for any number of threads.

    Errors of all methods: StoreUnavailable.
    """

    @property
    def name(self) -> str:
        """For messages, such as "directory /var/lib/jobs"."""

    @property
    def survives(self) -> str:
        """What the store outlives, for people: "the loss of everything but that directory"."""

    @property
    def shared(self) -> bool:
        """May members in other processes use it?"""

    def check(self) -> None:
        """Raise JobDefinitionError if snapshots cannot be kept here exactly once, naming what is missing."""

    def sweep(self, job: str) -> None:
        """Remove what processes of a job that were killed have left unfinished. Files of living ones stay."""

    def read_record(self, job: str) -> VersionedRecord | None:
        """Return the execution record of a job, None if there is none.

        SnapshotDamaged if it cannot be read, or if it is not the newest that was written.
        """

    def read_last(self, job: str) -> VersionedRecord | None:
        """As `read_record`, but whatever was lost: the newest record that can be read, for a job that starts afresh.

        The version is the one to name when it is replaced: no lost record has a greater one.
        """

    def replace_record(self, record: ExecutionRecord, version: int) -> int:
        """Write the record if its version is still `version` (0: there is none yet), durably; return the new version.

        Raises RecordConflict if it has another version, OutcomeUnknown if it cannot be told whether it was written.
        """

    def write_file(
        self,
        job: str,
        area: SnapshotArea,
        vertex: str,
        file: str,
        entries: Sequence[StateEntry],
        partition_count: int = PARTITION_COUNT,
    ) -> StateTotals:
        """Store entries of a vertex durably under a name unique in the area and vertex; return their totals.

        Writing the same file again replaces it. All of a file is there, or nothing.
        """

    def read_files(self, job: str, area: SnapshotArea, vertex: str) -> Iterator[StateEntry]:
        """Return all entries of a vertex, in any order. SnapshotDamaged names a file that is torn or altered."""

    def write_validation(self, job: str, record: ValidationRecord) -> None:
        """Store the validation record of an area durably; replaces one that is there."""

    def read_validation(self, job: str, area: SnapshotArea) -> ValidationRecord:
        """Return the validation record of an area. SnapshotDamaged if it is missing or altered."""

    def list_jobs(self) -> list[str]:
        """Return all names under which there is anything, sorted; those of named snapshots are among them."""

    def delete_record(self, job: str, version: int) -> None:
        """Forget the execution record of a job, if it has this version, and older ones; newer ones stay."""

    def list_areas(self, job: str) -> list[SnapshotArea]:
        """Return the areas that a job has, sorted."""

    def delete_area(self, job: str, area: SnapshotArea) -> None:
        """Delete an area and its validation record; nothing happens if there is none."""


_record_decoder = msgspec.msgpack.Decoder(ExecutionRecord)
_validation_decoder = msgspec.msgpack.Decoder(ValidationRecord)
_mark_decoder = msgspec.msgpack.Decoder(HighWaterMark)


def encode_record(record: ExecutionRecord | ValidationRecord | HighWaterMark) -> bytes:
    """Return a record as MessagePack."""
    return msgspec.msgpack.encode(record)


def decode_execution_record(data: bytes) -> ExecutionRecord:
    """Read an execution record. Raises SnapshotDamaged."""
    try:
        return _record_decoder.decode(data)
    except (msgspec.MsgspecError, ValueError) as error:
        raise SnapshotDamaged(f"the execution record cannot be read: {error}") from error


def decode_validation_record(data: bytes) -> ValidationRecord:
    """Read a validation record. Raises SnapshotDamaged."""
    try:
        return _validation_decoder.decode(data)
    except (msgspec.MsgspecError, ValueError) as error:
        raise SnapshotDamaged(f"the validation record cannot be read: {error}") from error


def decode_high_water_mark(data: bytes) -> HighWaterMark:
    """Read a high-water mark. Raises SnapshotDamaged."""
    try:
        return _mark_decoder.decode(data)
    except (msgspec.MsgspecError, ValueError) as error:
        raise SnapshotDamaged(f"the high-water mark cannot be read: {error}") from error


def check_totals(store: SnapshotStore, job: str, area: SnapshotArea) -> ValidationRecord:
    """Read an area in full and compare it with its record. SnapshotDamaged says what is missing."""
    record = store.read_validation(job, area)
    for vertex in record.vertices:
        for _ in read_whole(store, job, record, vertex):
            pass
    return record


def read_whole(store: SnapshotStore, job: str, record: ValidationRecord, vertex: str) -> Iterator[StateEntry]:
    """Yield the entries of a vertex. What was read counts when the last one has been: SnapshotDamaged comes behind it,
    saying what is missing, if they are not those that `record` says.
    """
    expected = record.vertices.get(vertex, NO_STATE)
    found = NO_STATE
    for entry in store.read_files(job, record.area, vertex):
        found += totals_of(vertex, (entry,))
        yield entry
    if found != expected:
        raise SnapshotDamaged(
            f"snapshot {record.area} of job {job!r} in {store.name}: step {vertex!r} has {found.entries} entries of "
            f"{found.nbytes} bytes (checksum {found.checksum:012x}), but {expected.entries} entries of "
            f"{expected.nbytes} bytes (checksum {expected.checksum:012x}) were saved"
        )
