"""What the machines decide and hear, in the words of members."""

import pytest

from jetfast.control import messages
from jetfast.control.execution_state import CancelMember, MemberFinished, ReleaseMember, StartMember
from jetfast.control.member_messages import event_of, message_of
from jetfast.control.snapshot_round import EndMember, MemberEndedRound, SaveMember
from jetfast.control.versions import running_versions
from jetfast.core.snapshot_kind import SnapshotKind
from jetfast.errors import InvalidTransition


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (StartMember(3), messages.Start(execution_id=7)),
        (CancelMember(3), messages.Cancel(execution_id=7)),
        (ReleaseMember(3), messages.Release(execution_id=7)),
        (
            SaveMember(3, 5, SnapshotKind.FINAL),
            messages.StartSnapshot(execution_id=7, snapshot_id=5, kind=SnapshotKind.FINAL),
        ),
        (EndMember(3, 5, False), messages.EndSnapshot(execution_id=7, snapshot_id=5, success=False)),
    ],
)
def test_each_command_is_told_in_a_message_of_its_execution(command, message) -> None:
    assert message_of(command, 7) == message


def test_what_a_member_says_is_an_event_that_names_it() -> None:
    assert event_of(3, messages.Finished(execution_id=7, member=3)) == MemberFinished(3)
    ended = messages.SnapshotEnded(execution_id=7, member=3, snapshot_id=5)
    assert event_of(3, ended) == MemberEndedRound(3, 5)


def test_a_second_registration_inside_an_execution_is_refused() -> None:
    wrong = messages.Registered(
        execution_id=7, member=0, incarnation=0, pid=1, host="h", address="", versions=running_versions()
    )
    with pytest.raises(InvalidTransition, match="member 0 registered a second time"):
        event_of(0, wrong)
