"""Messages: every one survives the way there and back, and garbage is a ProtocolError."""

import typing

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetfast.control import messages
from jetfast.core.guarantee import Guarantee
from jetfast.core.snapshot_kind import SnapshotKind
from jetfast.engine.snapshot_store import SnapshotArea, StateTotals
from jetfast.errors import ProtocolError

VERSIONS = messages.Versions("3.11", "0.1.0", "18.0.0")
FROM_MEMBER: list[messages.MemberMessage] = [
    messages.Registered(execution_id=0, member=1, incarnation=2, pid=77, host="a", address="a:9000", versions=VERSIONS),
    messages.RenewLease(execution_id=0, member=1, number=3),
    messages.Logged(execution_id=0, member=1, logger="jetfast.member", level=30, text="ä\nb"),
    messages.Prepared(execution_id=5, member=0),
    messages.Finished(execution_id=5, member=0),
    messages.Failed(execution_id=5, member=3, kind="JobFailedError", error="step 'x': boom", traceback="..."),
    messages.Metrics(execution_id=5, member=0, values={"vertices": {"x": {"rows_in": 2**40}}, "share": 0.5}),
    messages.Delivered(execution_id=5, member=0, vertex="collect", rows=pa.record_batch({"x": [1, None]})),
    messages.PartitionsFound(execution_id=5, member=1, vertex="x", names=("a", "b"), complete=False),
    messages.FirstEdgesRead(execution_id=5, member=1),
    messages.InputTaken(execution_id=5, member=1),
    messages.SnapshotSaved(
        execution_id=5, member=1, snapshot_id=7, vertices={"x": StateTotals(2, 99, 12345)}, errors=["x-0: boom"]
    ),
    messages.SnapshotEnded(execution_id=5, member=1, snapshot_id=7),
]
FROM_COORDINATOR: list[messages.CoordinatorMessage] = [
    messages.TurnedAway(execution_id=0, why="the job is over"),
    messages.LeaseGranted(execution_id=0, number=3, lease_us=5_000_000),
    messages.Prepare(
        execution_id=2**62,
        job="flights",
        job_id="ab",
        member=1,
        member_count=2,
        workers=4,
        peers=["a:1", "b:2"],
        dag=b"\x80\x05",
        guarantee=Guarantee.EXACTLY_ONCE,
        memory_limit_bytes=2**30,
        snapshot_store=b"\x80\x05",
        restore=SnapshotArea(4, 9),
        parallelism_max=8,
    ),
    messages.Start(execution_id=5),
    messages.AddPartitions(execution_id=5, vertex="x", names=("a", "b"), complete=True),
    messages.StartSnapshot(execution_id=5, snapshot_id=7, kind=SnapshotKind.TERMINAL),
    messages.EndSnapshot(execution_id=5, snapshot_id=7, success=True),
    messages.Cancel(execution_id=5),
    messages.Release(execution_id=5),
    messages.Shutdown(execution_id=0),
]


def test_the_samples_cover_every_message() -> None:
    assert {type(message) for message in FROM_MEMBER} == set(typing.get_args(messages.MemberMessage))
    assert {type(message) for message in FROM_COORDINATOR} == set(typing.get_args(messages.CoordinatorMessage))


@pytest.mark.parametrize("message", FROM_MEMBER, ids=lambda m: type(m).__name__)
def test_a_members_message_survives_the_way_to_the_coordinator(message: messages.MemberMessage) -> None:
    assert messages.decode_from_member(messages.encode(message)) == message
    with pytest.raises(ProtocolError, match="coordinator sent"):
        messages.decode_from_coordinator(messages.encode(message))


@pytest.mark.parametrize("message", FROM_COORDINATOR, ids=lambda m: type(m).__name__)
def test_the_coordinators_message_survives_the_way_to_a_member(message: messages.CoordinatorMessage) -> None:
    assert messages.decode_from_coordinator(messages.encode(message)) == message
    with pytest.raises(ProtocolError, match="member sent"):
        messages.decode_from_member(messages.encode(message))


@pytest.mark.parametrize("message", FROM_MEMBER + FROM_COORDINATOR, ids=lambda m: type(m).__name__)
def test_a_message_without_execution_id_or_with_an_unknown_field_is_refused(message: object) -> None:
    decode = messages.decode_from_member if message in FROM_MEMBER else messages.decode_from_coordinator
    fields = msgspec.msgpack.decode(messages.encode(message))  # type: ignore[arg-type]
    for wrong in ({k: v for k, v in fields.items() if k != "execution_id"}, {**fields, "x": 1}):
        with pytest.raises(ProtocolError):
            decode(msgspec.msgpack.encode(wrong))


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=64), st.integers(0, 10), st.integers(0, 60))
def test_garbage_and_damaged_messages_are_a_protocol_error_or_another_valid_message(
    garbage: bytes, which: int, cut: int
) -> None:
    whole = messages.encode((FROM_MEMBER + FROM_COORDINATOR)[which])
    for data in (garbage, whole[:cut], whole[:cut] + garbage, whole[cut:]):
        for decode in (messages.decode_from_member, messages.decode_from_coordinator):
            try:
                message = decode(data)
            except ProtocolError:
                continue
            assert messages.encode(decode(messages.encode(message))) == messages.encode(message)  # == would fail on NaN


@pytest.mark.parametrize("rows", [b"", b"\x00\xff", b"abc", "rows", 7, None])
def test_delivered_bytes_that_are_no_rows_are_a_protocol_error(rows: object) -> None:
    delivered = messages.Delivered(execution_id=5, member=0, vertex="collect", rows=pa.record_batch({"x": [1]}))
    fields = msgspec.msgpack.decode(messages.encode(delivered)) | {"rows": rows}
    with pytest.raises(ProtocolError, match="no rows|cannot be made"):
        messages.decode_from_member(msgspec.msgpack.encode(fields))
