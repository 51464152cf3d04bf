"""What the machines decide and hear, in the words of members: commands become messages, and messages become events."""

from collections.abc import Sequence

from jetfast.control import messages
from jetfast.control.execution_state import (
    AddPartitionsOnMember,
    CancelMember,
    ExecutionEvent,
    MemberFailed,
    MemberFinished,
    MemberFoundPartitions,
    MemberPrepared,
    ReleaseMember,
    StartMember,
)
from jetfast.control.failures import Failure, rebuild
from jetfast.control.job_events import BeginExecution
from jetfast.control.job_settings import JobSettings
from jetfast.control.messages import CoordinatorMessage, MemberMessage
from jetfast.control.snapshot_round import (
    EndMember,
    MemberEndedRound,
    MemberReadFirstEdges,
    MemberSaved,
    MemberTookInput,
    RoundEvent,
    SaveMember,
)
from jetfast.errors import InvalidTransition


def message_of(
    command: StartMember | AddPartitionsOnMember | CancelMember | ReleaseMember | SaveMember | EndMember,
    execution_id: int,
) -> CoordinatorMessage:
    """Return what tells a member to do what was decided."""
    if isinstance(command, StartMember):
        return messages.Start(execution_id=execution_id)
    if isinstance(command, AddPartitionsOnMember):
        return messages.AddPartitions(
            execution_id=execution_id, vertex=command.vertex, names=command.names, complete=command.complete
        )
    if isinstance(command, CancelMember):
        return messages.Cancel(execution_id=execution_id)
    if isinstance(command, ReleaseMember):
        return messages.Release(execution_id=execution_id)
    if isinstance(command, SaveMember):
        return messages.StartSnapshot(execution_id=execution_id, snapshot_id=command.snapshot_id, kind=command.kind)
    return messages.EndSnapshot(execution_id=execution_id, snapshot_id=command.snapshot_id, success=command.success)


def prepare_message(
    plan: JobSettings, begun: BeginExecution, member: int, addresses: Sequence[str]
) -> messages.Prepare:
    """Return what a member needs to know of an execution. `addresses` are those of all members, in their order."""
    record = None if begun.claimed is None else begun.claimed.record
    return messages.Prepare(
        execution_id=begun.execution_id,
        job=plan.job,
        job_id=plan.job_id if record is None else record.job_id,
        member=member,
        member_count=plan.member_count,
        workers=plan.workers,
        peers=list(addresses),
        dag=plan.dag,
        guarantee=plan.guarantee,
        memory_limit_bytes=plan.memory_limit_bytes,
        partition_count=plan.partition_count,
        snapshot_store=plan.pickled_store,
        restore=None if record is None else record.snapshot,
        parallelism_max=0 if record is None else record.parallelism_max,
        accepted_losses=[] if record is None else list(record.accepted_losses),
        settle_only=begun.settle_only,
    )


def event_of(member: int, message: MemberMessage) -> ExecutionEvent | RoundEvent:
    """Return what a message means to the machines."""
    if isinstance(message, messages.Prepared):
        return MemberPrepared(member)
    if isinstance(message, messages.PartitionsFound):
        return MemberFoundPartitions(member, message.vertex, message.names, message.complete)
    if isinstance(message, messages.Finished):
        return MemberFinished(member)
    if isinstance(message, messages.Failed):
        return MemberFailed(member, rebuild(Failure(message.kind, message.error, message.traceback), member))
    if isinstance(message, messages.FirstEdgesRead):
        return MemberReadFirstEdges(member)
    if isinstance(message, messages.InputTaken):
        return MemberTookInput(member)
    if isinstance(message, messages.SnapshotSaved):
        return MemberSaved(
            member,
            message.snapshot_id,
            message.vertices,
            tuple(message.errors),
            pause_us=message.pause_us,
            align_us=message.align_us,
        )
    if isinstance(message, messages.SnapshotEnded):
        return MemberEndedRound(member, message.snapshot_id)
    raise InvalidTransition(f"member {member} registered a second time, inside an execution")
