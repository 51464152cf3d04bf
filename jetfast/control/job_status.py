"""Where a job stands, and what may be asked of it there.

                                   suspend   resume    restart   export    cancel and export
    NOT_RUNNING                    yes       -         -         -         -
    STARTING                       yes       -         -         -         -
    RUNNING                        yes       -         yes       yes       yes
    SUSPENDED                      it is     yes       -         yes       yes
    SUSPENDED_EXPORTING_SNAPSHOT   -         -         -         -         -
    COMPLETING                     -         -         -         -         -
    FAILED, COMPLETED              -         -         -         -         -

`cancel` may be asked for at any time. One operation is done after the other, but for exports of a running job; to ask
again for a suspension or restart that is under way is to ask once.
"""

from enum import Enum

from jetfast.errors import OperationRefused


class JobStatus(Enum):
    """Where a job stands; the value is what users see."""

    NOT_RUNNING = "not running"
    STARTING = "starting"
    RUNNING = "running"
    SUSPENDED = "suspended"
    SUSPENDED_EXPORTING_SNAPSHOT = "suspended, exporting its snapshot"
    COMPLETING = "completing"
    FAILED = "failed"
    COMPLETED = "completed"


TERMINAL = frozenset({JobStatus.FAILED, JobStatus.COMPLETED})


class Operation(Enum):
    """What a user may ask of a job, besides to cancel it; the value completes "the job cannot be ..."."""

    SUSPEND = "suspended"
    RESUME = "resumed"
    RESTART = "restarted"
    EXPORT = "exported"
    CANCEL_AND_EXPORT = "cancelled and exported"


_ALLOWED: dict[Operation, frozenset[JobStatus]] = {
    Operation.SUSPEND: frozenset(
        {JobStatus.NOT_RUNNING, JobStatus.STARTING, JobStatus.RUNNING, JobStatus.SUSPENDED},
    ),
    Operation.RESUME: frozenset({JobStatus.SUSPENDED}),
    Operation.RESTART: frozenset({JobStatus.RUNNING}),
    Operation.EXPORT: frozenset({JobStatus.RUNNING, JobStatus.SUSPENDED}),
    Operation.CANCEL_AND_EXPORT: frozenset({JobStatus.RUNNING, JobStatus.SUSPENDED}),
}


def refusal(
    job: str, operation: Operation, status: JobStatus, under_way: Operation | None, *, takes_snapshots: bool
) -> OperationRefused | None:
    """Return why an operation cannot be begun, None if it can. `under_way`: what the job is doing already."""
    if not takes_snapshots and operation in (Operation.EXPORT, Operation.CANCEL_AND_EXPORT):
        return OperationRefused(
            f"job {job!r} cannot be {operation.value}: it takes no snapshots; submit it with a guarantee"
        )
    if under_way is operation and operation is not Operation.CANCEL_AND_EXPORT:
        return None
    if under_way is not None:
        return OperationRefused(f"job {job!r} cannot be {operation.value}: it is just being {under_way.value}")
    if status in _ALLOWED[operation]:
        return None
    where = " or ".join(allowed.value for allowed in JobStatus if allowed in _ALLOWED[operation])
    return OperationRefused(f"job {job!r} cannot be {operation.value}: it is {status.value}, and must be {where}")
