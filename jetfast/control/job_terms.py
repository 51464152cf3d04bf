"""What is fixed for all executions of a job, and the record that each of them claims."""

from dataclasses import dataclass

import msgspec

from jetfast.engine.snapshot_store import ExecutionRecord
from jetfast.engine.submission_record import CoordinatorRecord, SubmissionRecord


@dataclass(frozen=True)
class JobTerms:
    """What is fixed for all executions of a job.

    keeps_record : does it take snapshots (guarantee other than NONE)?
    fresh : begin anew, whatever a record of this name says
    initial_snapshot : name of the snapshot that the job starts from, whatever a record of this name says
    parallelism_max, members_max : the largest number of processors of a vertex, and of members
    reads_edges_first : must edges be read to their end before others are read?
    max_restarts : after restartable errors, since the job was submitted or resumed; None: for ever
    suspend_on_failure : suspend the job when a row or a function of the user has failed, or no restart is left
    accept_loss : transactions without whose rows the job goes on if they are lost, besides those in the record
    submission : what the record keeps of how the job was submitted
    coordinator : what it keeps of this coordinator; None: nobody needs to wait for its members
    """

    job: str
    job_id: str
    keeps_record: bool
    fresh: bool = False
    initial_snapshot: str | None = None
    parallelism_max: int = 0
    members_max: int = 0
    reads_edges_first: bool = False
    max_restarts: int | None = None
    suspend_on_failure: bool = False
    accept_loss: tuple[str, ...] = ()
    submission: SubmissionRecord | None = None
    coordinator: CoordinatorRecord | None = None

    def claim(
        self,
        found: ExecutionRecord | None,
        execution_id: int,
        predecessors: tuple[CoordinatorRecord, ...],
        *,
        fresh: bool,
    ) -> ExecutionRecord:
        """Return the record of the next execution. `found` is the present one, None: there is none; `fresh`: the job
        begins anew; `predecessors` are coordinators whose members may live.
        """
        record = ExecutionRecord(
            self.job,
            self.job_id,
            execution_id,
            parallelism_max=self.parallelism_max,
            members_max=self.members_max,
            accepted_losses=self.accept_loss,
            submission=self.submission,
            coordinators=predecessors + (() if self.coordinator is None else (self.coordinator,)),
        )
        if found is None:
            return record
        record = msgspec.structs.replace(
            record,
            parallelism_max=max(record.parallelism_max, found.parallelism_max),
            members_max=max(record.members_max, found.members_max),
        )
        if not fresh:
            accepted = tuple(dict.fromkeys([*found.accepted_losses, *self.accept_loss]))
            record = msgspec.structs.replace(
                record, snapshot=found.snapshot, completed=found.completed, accepted_losses=accepted
            )
        if found.settled and fresh:
            return record
        return msgspec.structs.replace(record, job_id=found.job_id)  # so its transactions are known, and rolled back
