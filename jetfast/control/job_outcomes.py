"""The errors that a job ends with because of what its execution record says, or what is left undone."""

from collections.abc import Iterable, Sequence

from jetfast.engine.snapshot_store import ExecutionRecord
from jetfast.errors import JobCancelledError, JobDefinitionError, RecordConflict

SETTLE_TIMEOUT_S = 10.0
"""How long a job that has failed or was cancelled tries to settle its transactions."""


def check_losses(accept_loss: object) -> None:
    """Raise TypeError for what are no names of transactions."""
    if isinstance(accept_loss, str) or not isinstance(accept_loss, Sequence):
        raise TypeError(f"accept_loss must be a list of names of transactions, got {accept_loss!r}")
    for name in accept_loss:
        if not isinstance(name, str) or not name:
            raise TypeError(f"accept_loss must be a list of names of transactions; {name!r} is none")


def taken_over(job: str, execution_id: int | None) -> RecordConflict:
    """Return the error of a coordinator that finds in the record what is not its own; None: it finds no record."""
    if execution_id is None:
        return RecordConflict(f"the execution record of job {job!r} has gone from the snapshot store")
    return RecordConflict(f"job {job!r} has been taken over by execution {execution_id} of another coordinator")


def refuse_completed(job: str) -> JobDefinitionError:
    """Return the error of a submission whose job has nothing left to do."""
    return JobDefinitionError(
        f"job {job!r} is completed, says its snapshot store; submit it under another name=, or with fresh=True to run "
        "it from the beginning"
    )


def refuse_dropped(record: ExecutionRecord, settling_steps: Iterable[str]) -> JobDefinitionError | None:
    """Return the error of a submission that lacks steps whose transactions may be left to settle; None: it has them."""
    if record.settled or record.submission is None:
        return None
    dropped = sorted(set(record.submission.settling_steps).difference(settling_steps))
    if not dropped:
        return None
    return JobDefinitionError(
        f"job {record.job!r} cannot go on without {', '.join(map(repr, dropped))}: whoever ran it last did not come to "
        "its end, and may have left transactions that only these steps can commit or roll back. Submit the pipeline as "
        "it was, and suspend or cancel the job when it runs; then submit it changed"
    )


def unsettled(outcome: Exception | None, why: Exception | None) -> Exception:
    """Return the outcome of a job whose transactions could not be settled, saying so."""
    if outcome is None:  # the job is completed but for its last commits
        return why or JobCancelledError("the job was cancelled while it committed its last transactions")
    reason = f"within {SETTLE_TIMEOUT_S:.0f} s" if why is None else f"because of {type(why).__name__}: {why}"
    mended = "" if why is None else ", once that is mended,"
    outcome.add_note(
        f"Transactions that its last snapshot names could not be committed, or others not be rolled back, {reason}; "
        f"submitting the job again{mended} does both"
    )
    return outcome
