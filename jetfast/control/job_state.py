"""Decides which executions a job has: a pure machine above `execution_state`, events in, commands out.

           guarantee NONE
         +------------------------------------+
         |                                    v            all input taken, last snapshot decided
        NEW ---> READING ---> CLAIMING ---> EXECUTING ---------------------------> CLOSING ---> OVER
                  ^  |           |            |   |                                (record: nothing left to do)
       time over  |  v           v            v   |  error of user or data, cancelled, no restarts left
                 DELAYED <-------+------------+   +---> READING, to settle: one more execution that only commits
                       restartable error          |     what the last snapshot names and rolls back all else
                                                  |
        READING <--- SUSPENDED <------------------+  suspended: with a terminal snapshot, or when all is settled
                resumed      | ^ exported         |
                             v |                  |
                          EXPORTING               |
                                                  |
        READING <---------------------------------+  restarted: with a terminal snapshot, or as it is

Starting an execution is itself a compare-and-set of the execution record with a new execution id: the next write of an
older coordinator then fails with RecordConflict, and it stops for good; so does this one, when it finds in the record
an execution that is not its own. What the record says is the truth about which snapshot counts: it is read before each
execution. A record of a *completed* job leaves only to settle; if that is done, too, the submission is refused.

Whenever all transactions are settled, at the end or for a suspension, the record is written once more to say so
(CLOSING). While it does not say so a pipeline that lacks a sink of theirs is refused: nobody could settle them.

The members of another coordinator may outlive it, or it may go on itself, not knowing what has happened. Who claims
the job of others waits (FENCING, between CLAIMING and EXECUTING) until the end of their members is certain, or one
lease has passed: none has a longer one (`leases`). A coordinator sees that another has claimed its job when it looks at
the record, in whatever phase, and ends.

An execution that ends with a RestartableError is followed by another, as soon and as often as `restarts` says; any
other error is the job's end. With guarantee NONE nothing is read or claimed, and the first execution is the only one.
A job whose outcome is failure settles for SETTLE_TIMEOUT_S at most: a store that hangs must not keep a cancelled job
alive. What is not settled then is settled by the next submission.

Who asks to suspend or restart ends the present execution with a terminal snapshot; if that fails, or the execution
does not run yet, the last good snapshot has to do (SEMANTICS 6). With guarantee NONE executions are just stopped, and
the next one starts from the beginning. What may be asked when is told in `job_status`; who calls has looked there.
With `suspend_on_failure` a job is suspended instead of failing. A suspended job has nothing left to settle, except if
SETTLE_TIMEOUT_S were not enough; then the cause of its suspension says so.

A job that is to be cancelled and exported ends as one that is suspended, then its last snapshot is copied under a name.
One that starts from a named snapshot copies that into an area of its own (IMPORTING) before it claims the record: until
then nothing is changed that an earlier job of its name has left.
"""

from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from typing import Any

import msgspec

from jetfast.control.job_events import (
    AnswerRequest,
    AwaitDelay,
    AwaitPredecessors,
    AwaitSettleTime,
    BeginExecution,
    CancelAndExportAsked,
    CancelRequested,
    ClusterFailed,
    DelayOver,
    EndJob,
    EndPresentExecution,
    ExecutionEnded,
    ExportAsked,
    JobCommand,
    JobEvent,
    OperationAsked,
    PredecessorsGone,
    ReportRestart,
    ReportSuspension,
    RestartAsked,
    ResumeAsked,
    SettleTimeOver,
    StartJob,
    SuspendAsked,
)
from jetfast.control.job_outcomes import refuse_completed, refuse_dropped, taken_over, unsettled
from jetfast.control.job_status import Operation
from jetfast.control.job_terms import JobTerms
from jetfast.control.restarts import Restarts
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
from jetfast.engine.snapshot_copy import IMPORTED_SNAPSHOT_ID
from jetfast.engine.snapshot_store import ExecutionRecord, SnapshotArea, VersionedRecord
from jetfast.engine.submission_record import CoordinatorRecord
from jetfast.errors import (
    InvalidTransition,
    JobCancelledError,
    JobFailedError,
    OperationRefused,
    ProtocolError,
    RecordConflict,
    RestartableError,
)


class JobPhase(Enum):
    """What the job waits for."""

    NEW = "to be started"
    READING = "the execution record to be read"
    CLAIMING = "the execution record to be written"
    FENCING = "the end of members of another coordinator"
    EXECUTING = "the end of an execution"
    DELAYED = "the time of the next attempt"
    CLOSING = "the execution record to say that nothing is left to commit"
    SUSPENDED = "somebody to resume it"
    EXPORTING = "its last snapshot to be copied under a name"
    IMPORTING = "the snapshot that it starts from to be copied"
    OVER = "nothing"


class JobState:
    """The executions of one job. Not thread-safe. Who calls `handle` performs the commands in order.

    `new_execution_id(n)` returns an id that is greater than n and than all it has returned before.
    """

    def __init__(self, terms: JobTerms, new_execution_id: Callable[[int], int]) -> None:
        self.terms = terms
        self.phase = JobPhase.NEW
        self.error: Exception | None = None
        """What the job fails with. While it only settles: unless that shows that the job has been completed."""
        self.settling = False
        """Are executions only to settle transactions from now on?"""
        self._restarts = Restarts(terms.max_restarts)
        self.asked: Operation | None = None
        """What follows the present execution, once all is settled."""
        self.suspension_cause: Exception | None = None
        """What the job is suspended for, if nobody asked for it."""
        self._requests: list[int] = []
        """Who has asked for that."""
        self._export_name = ""
        """What a snapshot is to be, or is being, copied to."""
        self._last: ExecutionRecord | None = None
        """The record as it was last known to be."""
        self._left_unsettled = False
        """Is there a snapshot whose transactions could not be settled?"""
        self._new_execution_id = new_execution_id
        self._fresh = terms.fresh or terms.initial_snapshot is not None
        """Has this job not begun yet, and nothing to do with what a record of its name says?"""
        self._importing: ReplaceRecord | None = None
        """The claim that follows an import."""
        self._cancelled = False
        self._gave_up = False
        self._settle_time_runs = False
        self._claim: ExecutionRecord | None = None
        """What is being written, or was written for the present execution."""
        self._claimed_version = 0
        self._own: set[int] | None = None
        """Execution ids that the record may bear; any other one is a newer coordinator's. None: not read yet."""
        self._predecessors: tuple[CoordinatorRecord, ...] = ()
        """Whose members may live."""

    def handle(self, event: JobEvent) -> list[JobCommand]:
        """Take in an event and return what is to be done.

        Raises InvalidTransition, with the state unchanged, if the event cannot happen now.
        """
        method = _TRANSITIONS.get((self.phase, type(event)))
        if method is None:
            raise InvalidTransition(f"{event} cannot happen while the job waits for {self.phase.value}")
        return method(self, event)

    @property
    def restarts(self) -> int:
        """How often it was started again after an error."""
        return self._restarts.count

    def owns(self, execution_id: int | None) -> bool:
        """Is an execution record with this id one that this coordinator has written, or found at its beginning?"""
        return self._own is not None and execution_id in self._own

    def goes_on_after(self, error: Exception | None) -> bool:
        """Would another execution follow if the present one ended with this error?"""
        if not isinstance(error, RestartableError) or isinstance(error, RecordConflict):
            return False
        return self._may_restart or self.asked in (Operation.SUSPEND, Operation.RESTART)

    def _start(self, event: StartJob | None = None) -> list[JobCommand]:
        if self.terms.keeps_record:
            return self._read()
        self.phase = JobPhase.EXECUTING
        return [BeginExecution(self._new_execution_id(0), claimed=None, settle_only=False)]

    def _read(self, event: DelayOver | None = None) -> list[JobCommand]:
        self.phase = JobPhase.READING
        return [ReadRecord(self._fresh)]

    def _claim_execution(self, event: RecordRead) -> list[JobCommand]:
        found = event.found
        record, version = (None, 0) if found is None else found
        last_id = 0 if record is None else record.execution_id
        self._last = record
        if self._own is None:
            self._predecessors = event.uncertain
        elif last_id not in self._own:
            return self._end(taken_over(self.terms.job, None if record is None else record.execution_id))
        if record is not None and not self._fresh:
            submission = self.terms.submission
            refused = None if submission is None else refuse_dropped(record, submission.settling_steps)
            if refused is not None:
                return self._end(refused)
        if record is not None and record.completed and not self._fresh:
            if record.settled:
                return self._end(self.error or refuse_completed(self.terms.job))
            self.settling = True
            self.asked = None  # nothing is left to suspend
        if self.settling and (record is None or self._fresh):
            return self._settled()  # it never had an execution
        execution_id = self._new_execution_id(last_id)
        claim = self.terms.claim(record, execution_id, self._predecessors, fresh=self._fresh)
        self._own = {last_id, execution_id}
        name = self.terms.initial_snapshot
        if name is None or not self._fresh:
            return self._write_claim(ReplaceRecord(claim, version))
        area = SnapshotArea(claim.execution_id, IMPORTED_SNAPSHOT_ID)
        self._importing = ReplaceRecord(msgspec.structs.replace(claim, snapshot=area), version)
        self.phase = JobPhase.IMPORTING
        return [ImportSnapshot(name, area)]

    def _claim_imported(self, event: StoreWritten) -> list[JobCommand]:
        assert self._importing is not None
        return self._write_claim(self._importing)

    def _write_claim(self, command: ReplaceRecord) -> list[JobCommand]:
        self._claim = command.record
        self.phase = JobPhase.CLAIMING
        return [command]

    def _claimed(self, event: StoreWritten) -> list[JobCommand]:
        assert self._claim is not None
        self._fresh = False
        self._claimed_version = event.version
        if not self._predecessors:
            return self._execute()
        self.phase = JobPhase.FENCING
        return [AwaitPredecessors(self._predecessors)]

    def _execute(self, event: PredecessorsGone | None = None) -> list[JobCommand]:
        assert self._claim is not None
        self._predecessors = ()
        self.phase = JobPhase.EXECUTING
        claimed = VersionedRecord(self._claim, self._claimed_version)
        # Earlier executions can decide nothing any more, and their members have ended: what they began to store goes.
        rubbish = DeleteUndecided(self._claim.snapshot, SnapshotArea(self._claim.execution_id, 0))
        return [rubbish, BeginExecution(self._claim.execution_id, claimed, self.settling)]

    def _not_claimed(self, event: StoreFailed) -> list[JobCommand]:
        if isinstance(event.error, RecordConflict):  # perhaps a write of our own of which nobody knew what became of it
            return self._read()
        return self._after_error(event.error)

    def _not_read(self, event: StoreFailed) -> list[JobCommand]:
        return self._after_error(event.error)

    def _execution_ended(self, event: ExecutionEnded) -> list[JobCommand]:
        if event.claimed is not None:
            self._last = event.claimed.record
        if event.claimed is not None and event.claimed.record.snapshot != self._restored:
            self._restarts.came_further()
        if event.error is not None:
            return self._after_error(event.error)
        if event.claimed is None:
            return self._end(None)
        record, version = event.claimed
        if record.completed:  # whatever was asked meanwhile
            self.error = self.asked = None
        elif self.asked is Operation.RESTART:
            return self._do_as_asked()
        elif self.asked is None and not self.settling:
            return self._after_error(ProtocolError("all members finished before the last snapshot was decided"))
        # All is committed, or rolled back: so a changed pipeline may go on, too.
        self.phase = JobPhase.CLOSING
        suspended = self.asked is Operation.SUSPEND
        closed = ReplaceRecord(msgspec.structs.replace(record, settled=True, suspended=suspended), version)
        cleaning = [DeleteAreas((record.snapshot,))] if record.completed and record.snapshot is not None else []
        return [*cleaning, closed, *([] if self._settle_time_runs else [AwaitSettleTime()])]

    @property
    def _restored(self) -> SnapshotArea | None:
        return None if self._claim is None else self._claim.snapshot

    def _after_error(self, error: Exception) -> list[JobCommand]:
        """An attempt has failed: the next one, or the end."""
        if isinstance(error, RecordConflict):
            return self._end(self.error or error)
        restartable = isinstance(error, RestartableError)
        if self.settling:
            if restartable and not self._gave_up:
                return self._delay(error)
            return self._not_settled(None if self._gave_up else error)
        if restartable and self.asked is Operation.RESTART:
            return self._do_as_asked()
        if restartable and self.asked is None and self._may_restart:
            self._restarts.count += 1
            return self._delay(error)
        if restartable and self._cancelled:
            error = JobCancelledError("the job was cancelled")
        answers: list[JobCommand] = []
        if not restartable or self.asked not in (Operation.SUSPEND, Operation.CANCEL_AND_EXPORT):
            answers = self._answer(error)  # what was asked for does not come
            self._decide_failure(error)
        if self._claim is None:  # no record is kept, or it cannot be read: there is nothing to settle
            return answers + self._settled()
        return answers + self._settle()

    def _decide_failure(self, error: Exception) -> None:
        """The job fails, or is suspended for it."""
        self.asked = None
        if (
            self.terms.suspend_on_failure
            and isinstance(error, RestartableError | JobFailedError)
            and not self._cancelled
        ):
            self.asked = Operation.SUSPEND
            self.suspension_cause = error
        else:
            self.error = error

    @property
    def _may_restart(self) -> bool:
        return self._restarts.is_left and self.terms.keeps_record and not self._cancelled

    def _delay(self, error: Exception) -> list[JobCommand]:
        self.phase = JobPhase.DELAYED
        return [AwaitDelay(self._restarts.next_delay_s(error), error)]

    def _settle(self) -> list[JobCommand]:
        self.settling = True
        return [*self._limit_settling(), *self._read()]

    def _limit_settling(self) -> list[JobCommand]:
        self._settle_time_runs = True
        return [AwaitSettleTime()]

    def _settled(self) -> list[JobCommand]:
        """Nothing is left to do but what was asked, or decided."""
        return self._end(self.error) if self.asked is None else self._do_as_asked()

    def _not_settled(self, why: Exception | None) -> list[JobCommand]:
        """As `_settled`, but transactions are left. `why`: None if time was up."""
        if self.asked is None:
            return self._end(unsettled(self.error, why))
        self._left_unsettled = True
        if self.asked is Operation.CANCEL_AND_EXPORT:
            self.error = unsettled(JobCancelledError("the job was cancelled"), why)
        else:
            self.suspension_cause = unsettled(self.suspension_cause or RestartableError("it was asked for"), why)
        return self._do_as_asked()

    # What users ask for

    def _ask(self, event: OperationAsked) -> bool:
        """Note who asks; False if it is under way already."""
        self._requests.append(event.request)
        if self.asked is event.operation:
            return False
        self.asked = event.operation
        return True

    def _answer(self, error: Exception | None = None) -> list[JobCommand]:
        requests, self._requests = self._requests, []
        return [AnswerRequest(request, error) for request in requests]

    def _do_as_asked(self) -> list[JobCommand]:
        """The execution has ended, and all is settled as far as it could be."""
        asked, self.asked = self.asked, None
        if asked is Operation.RESTART:
            restored = self._last is not None and self._last.snapshot is not None
            return [ReportRestart(from_beginning=not restored), *self._answer(), *self._start()]
        if asked is Operation.CANCEL_AND_EXPORT:
            self.error = self.error or JobCancelledError("the job was cancelled")
            return self._export()
        self.phase = JobPhase.SUSPENDED
        self.settling = self._settle_time_runs = self._gave_up = False
        return [ReportSuspension(self.suspension_cause), *self._answer()]

    def _end_as_asked(self, event: SuspendAsked | RestartAsked | CancelAndExportAsked) -> list[JobCommand]:
        if not self._ask(event):
            return []
        if isinstance(event, CancelAndExportAsked):
            self._export_name = event.name
        stopped = RestartableError(f"the job was to be {event.operation.value}")
        return [EndPresentExecution(stopped, with_snapshot=True)]

    def _suspend_before_it_began(self, event: SuspendAsked) -> list[JobCommand]:
        self._ask(event)
        return self._do_as_asked()

    def _suspend_delayed(self, event: SuspendAsked) -> list[JobCommand]:
        return self._settle() if self._ask(event) else []

    def _suspend_while_storing(self, event: SuspendAsked) -> list[JobCommand]:
        if not self._ask(event):
            return []
        self.settling = True  # what is being read or written leads to it
        return self._limit_settling()

    def _export_suspended(self, event: ExportAsked | CancelAndExportAsked) -> list[JobCommand]:
        self._requests.append(event.request)
        self._export_name = event.name
        if isinstance(event, CancelAndExportAsked):
            self.error = JobCancelledError("the job was cancelled")
        return self._export()

    def _export(self) -> list[JobCommand]:
        """Copy the last snapshot; the job ends afterwards if it has an error."""
        record = self._last
        if record is None or record.snapshot is None:
            return self._exported(OperationRefused(f"job {self.terms.job!r} has no snapshot yet to be exported"))
        if self._left_unsettled:
            return self._exported(
                OperationRefused(
                    f"the last snapshot of job {self.terms.job!r} cannot be exported: some of its transactions are not "
                    "committed yet, and would be lost with it"
                )
            )
        self.phase = JobPhase.EXPORTING
        return [ExportSnapshot(record.job_id, record.snapshot, self._export_name)]

    def _copied(self, event: StoreWritten | StoreFailed) -> list[JobCommand]:
        return self._exported(event.error if isinstance(event, StoreFailed) else None)

    def _exported(self, error: Exception | None) -> list[JobCommand]:
        self.phase = JobPhase.SUSPENDED
        answers = self._answer(error)
        return answers if self.error is None else answers + self._end(self.error)

    def _is_suspended(self, event: SuspendAsked) -> list[JobCommand]:
        return [AnswerRequest(event.request)]

    def _resume(self, event: ResumeAsked) -> list[JobCommand]:
        self.suspension_cause = None
        self._left_unsettled = False
        self._restarts.resume()
        self.terms = replace(self.terms, accept_loss=(*self.terms.accept_loss, *event.accept_loss))
        return [AnswerRequest(event.request), *self._start()]

    # How it is ended from outside

    def _cancel_at_rest(self, event: CancelRequested) -> list[JobCommand]:
        return self._end(JobCancelledError("the job was cancelled"))

    def _cancel_delayed(self, event: CancelRequested) -> list[JobCommand]:
        if self._cancelled:
            return []
        if self._cancel():  # a completed job, or one that has failed before
            return self._limit_settling()
        return self._settle()

    def _cancel_while_storing(self, event: CancelRequested) -> list[JobCommand]:
        if self._cancelled:
            return []
        self._cancel()
        self.settling = True  # what is being read or written leads to it
        return self._limit_settling()

    def _cancel_execution(self, event: CancelRequested) -> list[JobCommand]:
        if self._cancelled:
            return []
        if self._cancel():
            return self._limit_settling()
        return [EndPresentExecution(JobCancelledError("the job was cancelled"))]

    def _cancel_suspended(self, event: CancelRequested) -> list[JobCommand]:
        if not self._left_unsettled:
            return self._cancel_at_rest(event)
        self._cancel()
        return self._settle()

    def _cancel(self) -> bool:
        """Nothing else is asked any more; does the job settle already?"""
        self._cancelled = True
        self.asked = None
        if self.settling or self.phase is not JobPhase.EXECUTING:
            self.error = self.error or JobCancelledError("the job was cancelled")
        return self.settling

    def _see_record_while_executing(self, event: RecordSeen) -> list[JobCommand]:
        if self.owns(event.execution_id):
            return []
        return [EndPresentExecution(taken_over(self.terms.job, event.execution_id))]

    def _see_record_at_rest(self, event: RecordSeen) -> list[JobCommand]:
        if self.owns(event.execution_id):
            return []
        return self._end(self.error or taken_over(self.terms.job, event.execution_id))

    def _fail(self, event: ClusterFailed) -> list[JobCommand]:
        return self._end(self.error or event.error)

    def _fail_execution(self, event: ClusterFailed) -> list[JobCommand]:
        return [EndPresentExecution(event.error)]

    def _give_up(self, event: SettleTimeOver) -> list[JobCommand]:
        return self._not_settled(None) if self._settle_time_runs else []

    def _give_up_execution(self, event: SettleTimeOver) -> list[JobCommand]:
        if not self._settle_time_runs:  # it is that of an earlier suspension
            return []
        self._gave_up = True
        return [EndPresentExecution(JobCancelledError("there was no time to settle"))]

    def _close(self, event: StoreWritten | StoreFailed | SettleTimeOver) -> list[JobCommand]:
        # Without the last write the next submission under this name settles once more, and does no harm.
        return self._settled()

    def _cancel_closing(self, event: CancelRequested) -> list[JobCommand]:
        if self.asked is not None:
            self._cancel()
        return self._settled()

    def _suspend_closing(self, event: SuspendAsked) -> list[JobCommand]:
        self._ask(event)  # it is what was asked for already
        return []

    def _end(self, error: Exception | None) -> list[JobCommand]:
        self.error = error
        self.phase = JobPhase.OVER
        return [EndJob(error)]

    def _ignore(self, event: JobEvent) -> list[JobCommand]:
        return []


_Method = Callable[[JobState, Any], list[JobCommand]]  # Any: the event class of its key

_TRANSITIONS: dict[tuple[JobPhase, type], _Method] = {  # the protocol; a pair that is not here is an InvalidTransition
    (JobPhase.NEW, StartJob): JobState._start,
    (JobPhase.NEW, CancelRequested): JobState._cancel_at_rest,
    (JobPhase.NEW, SuspendAsked): JobState._suspend_before_it_began,
    (JobPhase.NEW, ClusterFailed): JobState._fail,
    (JobPhase.READING, RecordRead): JobState._claim_execution,
    (JobPhase.READING, StoreFailed): JobState._not_read,
    (JobPhase.READING, CancelRequested): JobState._cancel_while_storing,
    (JobPhase.READING, SuspendAsked): JobState._suspend_while_storing,
    (JobPhase.READING, ClusterFailed): JobState._fail,
    (JobPhase.READING, SettleTimeOver): JobState._give_up,
    (JobPhase.IMPORTING, StoreWritten): JobState._claim_imported,
    (JobPhase.IMPORTING, StoreFailed): JobState._not_read,
    (JobPhase.IMPORTING, CancelRequested): JobState._cancel_at_rest,
    (JobPhase.IMPORTING, SuspendAsked): JobState._suspend_before_it_began,
    (JobPhase.IMPORTING, ClusterFailed): JobState._fail,
    (JobPhase.IMPORTING, SettleTimeOver): JobState._ignore,
    (JobPhase.CLAIMING, StoreWritten): JobState._claimed,
    (JobPhase.CLAIMING, StoreFailed): JobState._not_claimed,
    (JobPhase.CLAIMING, CancelRequested): JobState._cancel_while_storing,
    (JobPhase.CLAIMING, SuspendAsked): JobState._suspend_while_storing,
    (JobPhase.CLAIMING, ClusterFailed): JobState._fail,
    (JobPhase.CLAIMING, SettleTimeOver): JobState._give_up,
    (JobPhase.FENCING, PredecessorsGone): JobState._execute,
    (JobPhase.FENCING, RecordSeen): JobState._see_record_at_rest,
    (JobPhase.FENCING, CancelRequested): JobState._cancel_while_storing,
    (JobPhase.FENCING, SuspendAsked): JobState._suspend_while_storing,
    (JobPhase.FENCING, ClusterFailed): JobState._fail,
    (JobPhase.FENCING, SettleTimeOver): JobState._give_up,
    (JobPhase.EXECUTING, RecordSeen): JobState._see_record_while_executing,
    (JobPhase.EXECUTING, ExecutionEnded): JobState._execution_ended,
    (JobPhase.EXECUTING, CancelRequested): JobState._cancel_execution,
    (JobPhase.EXECUTING, SuspendAsked): JobState._end_as_asked,
    (JobPhase.EXECUTING, RestartAsked): JobState._end_as_asked,
    (JobPhase.EXECUTING, CancelAndExportAsked): JobState._end_as_asked,
    (JobPhase.EXECUTING, ClusterFailed): JobState._fail_execution,
    (JobPhase.EXECUTING, SettleTimeOver): JobState._give_up_execution,
    (JobPhase.DELAYED, DelayOver): JobState._read,
    (JobPhase.DELAYED, RecordSeen): JobState._see_record_at_rest,
    (JobPhase.DELAYED, CancelRequested): JobState._cancel_delayed,
    (JobPhase.DELAYED, SuspendAsked): JobState._suspend_delayed,
    (JobPhase.DELAYED, ClusterFailed): JobState._fail,
    (JobPhase.DELAYED, SettleTimeOver): JobState._give_up,
    (JobPhase.CLOSING, StoreWritten): JobState._close,
    (JobPhase.CLOSING, StoreFailed): JobState._close,
    (JobPhase.CLOSING, CancelRequested): JobState._cancel_closing,
    (JobPhase.CLOSING, SuspendAsked): JobState._suspend_closing,
    (JobPhase.CLOSING, ClusterFailed): JobState._ignore,
    (JobPhase.CLOSING, SettleTimeOver): JobState._close,
    (JobPhase.SUSPENDED, ResumeAsked): JobState._resume,
    (JobPhase.SUSPENDED, SuspendAsked): JobState._is_suspended,
    (JobPhase.SUSPENDED, ExportAsked): JobState._export_suspended,
    (JobPhase.SUSPENDED, CancelAndExportAsked): JobState._export_suspended,
    (JobPhase.SUSPENDED, CancelRequested): JobState._cancel_suspended,
    (JobPhase.SUSPENDED, ClusterFailed): JobState._fail,
    (JobPhase.SUSPENDED, RecordSeen): JobState._see_record_at_rest,
    **{  # answers to what was given up, and its time
        (JobPhase.SUSPENDED, event): JobState._ignore
        for event in (StartJob, RecordRead, StoreWritten, StoreFailed, SettleTimeOver)
    },
    (JobPhase.EXPORTING, StoreWritten): JobState._copied,
    (JobPhase.EXPORTING, StoreFailed): JobState._copied,
    (JobPhase.EXPORTING, CancelRequested): JobState._cancel_at_rest,
    (JobPhase.EXPORTING, ClusterFailed): JobState._fail,
    (JobPhase.EXPORTING, SettleTimeOver): JobState._ignore,
    (JobPhase.OVER, CancelRequested): JobState._ignore,
    (JobPhase.OVER, ClusterFailed): JobState._ignore,
    (JobPhase.OVER, SettleTimeOver): JobState._ignore,
    **{(phase, DelayOver): JobState._ignore for phase in JobPhase if phase is not JobPhase.DELAYED},
    **{(phase, PredecessorsGone): JobState._ignore for phase in JobPhase if phase is not JobPhase.FENCING},
    **{  # whoever reads or writes the record now learns more from that
        (phase, RecordSeen): JobState._ignore
        for phase in JobPhase
        if phase not in (JobPhase.FENCING, JobPhase.EXECUTING, JobPhase.DELAYED, JobPhase.SUSPENDED)
    },
}
