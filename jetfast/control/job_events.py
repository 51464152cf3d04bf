"""What happens to a job, and what is to be done about it: events and commands of `job_state`, as plain data."""

from dataclasses import dataclass
from typing import ClassVar

from jetfast.control.job_status import Operation
from jetfast.control.store_commands import (
    DeleteAreas,
    DeleteUndecided,
    ExportSnapshot,
    ImportSnapshot,
    ReadRecord,
    RecordRead,
    RecordSeen,
    ReplaceRecord,
    StoreFailed,
    StoreWritten,
)
from jetfast.engine.snapshot_store import VersionedRecord
from jetfast.engine.submission_record import CoordinatorRecord


@dataclass(frozen=True)
class StartJob:
    """Begin."""


@dataclass(frozen=True)
class ExecutionEnded:
    """Nothing of the execution runs any more. `claimed`: the execution record as it was last written."""

    error: Exception | None
    claimed: VersionedRecord | None


@dataclass(frozen=True)
class CancelRequested:
    """The user wants the job to stop."""


@dataclass(frozen=True)
class SuspendAsked:
    """The user wants the job to stop, and to go on later. `request` names who is to be answered, here and below."""

    operation: ClassVar = Operation.SUSPEND
    request: int


@dataclass(frozen=True)
class ResumeAsked:
    """The user wants a suspended job to go on."""

    operation: ClassVar = Operation.RESUME
    request: int
    accept_loss: tuple[str, ...] = ()


@dataclass(frozen=True)
class RestartAsked:
    """The user wants the job to stop and to go on at once."""

    operation: ClassVar = Operation.RESTART
    request: int


@dataclass(frozen=True)
class ExportAsked:
    """The user wants a snapshot under a name: a new one of a running job, the last one of a suspended job."""

    operation: ClassVar = Operation.EXPORT
    request: int
    name: str


@dataclass(frozen=True)
class CancelAndExportAsked:
    """The user wants the job to stop for good, with a last snapshot under a name."""

    operation: ClassVar = Operation.CANCEL_AND_EXPORT
    request: int
    name: str


OperationAsked = SuspendAsked | ResumeAsked | RestartAsked | ExportAsked | CancelAndExportAsked


@dataclass(frozen=True)
class ClusterFailed:
    """The cluster cannot give the members that the job needs, or cannot carry on."""

    error: Exception


@dataclass(frozen=True)
class DelayOver:
    """The time between two attempts has passed."""


@dataclass(frozen=True)
class SettleTimeOver:
    """SETTLE_TIMEOUT_S have passed since the job's outcome was decided."""


@dataclass(frozen=True)
class PredecessorsGone:
    """The members of earlier coordinators have ended, or their leases have run out."""


JobEvent = (
    StartJob
    | RecordRead
    | RecordSeen
    | PredecessorsGone
    | StoreWritten
    | StoreFailed
    | ExecutionEnded
    | CancelRequested
    | OperationAsked
    | ClusterFailed
    | DelayOver
    | SettleTimeOver
)


@dataclass(frozen=True)
class BeginExecution:
    """Start an execution on all members; say ExecutionEnded when nothing of it runs any more."""

    execution_id: int
    claimed: VersionedRecord | None
    """The execution record with this id, and its version; None: the job keeps none."""
    settle_only: bool


@dataclass(frozen=True)
class EndPresentExecution:
    """Stop the execution that runs; ExecutionEnded follows."""

    error: Exception
    with_snapshot: bool = False
    """If it takes snapshots by now: with a terminal one, and `error` does not matter."""


@dataclass(frozen=True)
class AnswerRequest:
    """What was asked for is done (None), or is not."""

    request: int
    error: Exception | None = None


@dataclass(frozen=True)
class ReportRestart:
    """The job starts again, as it was asked to."""

    from_beginning: bool
    """It has no snapshot to start from."""


@dataclass(frozen=True)
class ReportSuspension:
    """The job is suspended: because of an error, or as it was asked."""

    cause: Exception | None


@dataclass(frozen=True)
class AwaitPredecessors:
    """Say PredecessorsGone when the members of these have ended: for certain, or because their leases have run out."""

    coordinators: tuple[CoordinatorRecord, ...]


@dataclass(frozen=True)
class AwaitDelay:
    """Say DelayOver when so many seconds have passed. `error`: why there is a delay."""

    seconds: float
    error: Exception


@dataclass(frozen=True)
class AwaitSettleTime:
    """Say SettleTimeOver when SETTLE_TIMEOUT_S have passed."""


@dataclass(frozen=True)
class EndJob:
    """Publish the outcome: the error the job failed with, or None. Always the last command."""

    error: Exception | None


JobCommand = (
    ReadRecord
    | ReplaceRecord
    | DeleteAreas
    | DeleteUndecided
    | BeginExecution
    | EndPresentExecution
    | AwaitPredecessors
    | AwaitDelay
    | AwaitSettleTime
    | ExportSnapshot
    | ImportSnapshot
    | AnswerRequest
    | ReportRestart
    | ReportSuspension
    | EndJob
)
