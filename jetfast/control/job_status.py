"""Where a job stands, and what may be asked of it there.

                                suspend   resume    restart
    NOT_RUNNING                 yes       -         -
    STARTING                    yes       -         -
    RUNNING                     yes       -         yes
    SUSPENDED                   it is     yes       -
    COMPLETING                  -         -         -
    FAILED, COMPLETED           -         -         -

`cancel` may be asked for at any time. One operation is done after the other; asking twice for the same is asking once.
"""

from enum import Enum

from jetfast.errors import OperationRefused


class JobStatus(Enum):
    """Where a job stands; the value is what users see."""

    NOT_RUNNING = "not running"
    STARTING = "starting"
    RUNNING = "running"
    SUSPENDED = "suspended"
    COMPLETING = "completing"
    FAILED = "failed"
    COMPLETED = "completed"


TERMINAL = frozenset({JobStatus.FAILED, JobStatus.COMPLETED})


class Operation(Enum):
    """What a user may ask of a job, besides to cancel it; the value completes "the job cannot be ..."."""

    SUSPEND = "suspended"
    RESUME = "resumed"
    RESTART = "restarted"


_ALLOWED: dict[Operation, frozenset[JobStatus]] = {
    Operation.SUSPEND: frozenset(
        {JobStatus.NOT_RUNNING, JobStatus.STARTING, JobStatus.RUNNING, JobStatus.SUSPENDED},
    ),
    Operation.RESUME: frozenset({JobStatus.SUSPENDED}),
    Operation.RESTART: frozenset({JobStatus.RUNNING}),
}


def refusal(job: str, operation: Operation, status: JobStatus, under_way: Operation | None) -> OperationRefused | None:
    """Return why an operation cannot be begun, None if it can. `under_way`: what the job is doing already."""
    if under_way is operation:
        return None
    if under_way is not None:
        return OperationRefused(f"job {job!r} cannot be {operation.value}: it is just being {under_way.value}")
    if status in _ALLOWED[operation]:
        return None
    where = " or ".join(allowed.value for allowed in JobStatus if allowed in _ALLOWED[operation])
    return OperationRefused(f"job {job!r} cannot be {operation.value}: it is {status.value}, and must be {where}")
