"""Every pair of members is connected before an execution begins, or the error says who cannot reach whom."""

import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from jetfast.control.endpoint import Address, dial
from jetfast.control.peers import PeerDoor
from jetfast.control.wire import HandshakeError, Hello, Purpose, Token, make_token
from jetfast.errors import JobCancelledError, ProtocolError, ResourcesError

TOKEN = make_token()


def doors(count: int, token: Token = TOKEN) -> list[PeerDoor]:
    return [PeerDoor(token, member, advice="set port_range=") for member in range(count)]


def test_every_pair_of_members_gets_one_connection() -> None:
    members = doors(3)
    addresses = [door.address for door in members]
    with ThreadPoolExecutor(3) as pool:
        connected = list(pool.map(lambda door: door.connect(5, addresses), members))
    assert [sorted(sockets) for sockets in connected] == [[1, 2], [0, 2], [0, 1]]
    assert {end.family for sockets in connected for end in sockets.values()} == {socket.AF_UNIX}
    for address in addresses:  # a process that is killed from now on leaves no file behind
        assert not Path(Address.decode(address).unix_path).parent.exists()
    for one in range(3):
        for other in range(3):
            if one != other:
                connected[one][other].sendall(bytes([one, other]))
    for one in range(3):
        for other in range(3):
            if one != other:
                assert connected[one][other].recv(2, socket.MSG_WAITALL) == bytes([other, one])
                connected[one][other].close()
    for door in members:
        door.close()


def test_members_without_unix_sockets_meet_over_tcp() -> None:
    members = [PeerDoor(TOKEN, member, unix=False) for member in range(2)]
    addresses = [door.address for door in members]
    (there,) = members[1].connect(5, addresses).values()
    (here,) = members[0].connect(5, addresses).values()
    assert here.family == there.family == socket.AF_INET
    here.sendall(b"x")
    assert there.recv(1) == b"x"
    for end in (here, there):
        end.close()
    for door in members:
        door.close()


def test_a_member_that_cannot_be_reached_is_named_with_the_setting() -> None:
    first, second = doors(2)
    gone = first.address
    first.close()
    with pytest.raises(
        ResourcesError, match=r"member 1 on 127.0.0.1 cannot reach member 0: .*refused.*set port_range="
    ):
        second.connect(5, [gone, second.address])
    second.close()


def test_a_member_that_does_not_come_is_named_with_the_setting() -> None:
    first, second = doors(2)
    with pytest.raises(ResourcesError, match=r"member 1 on 127.0.0.1 did not reach member 0 at .*set port_range="):
        first.connect(5, [first.address, second.address], timeout_s=0.0)
    first.close()
    second.close()


@pytest.mark.parametrize("cancelled_before", [True, False])
def test_waiting_for_a_peer_ends_when_the_job_is_cancelled(cancelled_before: bool) -> None:
    first, second = doors(2)
    with ThreadPoolExecutor(1) as pool:
        first.cancel(5 if cancelled_before else 4)
        waiting = pool.submit(first.connect, 5, [first.address, second.address])
        first.cancel(5)
        with pytest.raises(JobCancelledError, match="member 0 waited for member 1"):
            waiting.result()
    first.close()
    second.close()


@pytest.mark.parametrize(
    "hello",
    [
        Hello(Purpose.DATA, execution_id=4, dialer=1, listener=0),
        Hello(Purpose.CONTROL, execution_id=5, dialer=1, listener=0),
        Hello(Purpose.DATA, execution_id=5, dialer=1, listener=2),
        Hello(Purpose.DATA, execution_id=5, dialer=0, listener=0),
    ],
)
def test_older_executions_and_wrong_doors_are_refused(hello: Hello) -> None:
    (first,) = doors(1)
    first.connect(5, [first.address])
    with pytest.raises(HandshakeError):
        dial(Address.decode(first.address), TOKEN, hello)
    first.close()


def test_a_peer_that_knocks_before_the_execution_is_known_waits_at_the_door() -> None:
    first, second = doors(2)
    addresses = [first.address, second.address]
    (there,) = second.connect(5, addresses).values()
    (here,) = first.connect(5, addresses).values()
    there.sendall(b"x")
    assert here.recv(1) == b"x"
    for end in (here, there):
        end.close()
    first.close()
    second.close()


def test_a_peer_that_is_connected_is_refused_when_it_comes_again_and_one_of_a_given_up_execution_is_dropped() -> None:
    first, second = doors(2)
    addresses = [first.address, second.address]
    (there,) = second.connect(5, addresses).values()
    (here,) = first.connect(5, addresses).values()
    knocks = Hello(Purpose.DATA, execution_id=5, dialer=1, listener=0)
    with pytest.raises(HandshakeError):
        dial(Address.decode(first.address), TOKEN, knocks)
    given_up, later = (
        dial(Address.decode(first.address), TOKEN, knocks._replace(execution_id=number)).socket for number in (6, 7)
    )
    with pytest.raises(HandshakeError):
        dial(Address.decode(first.address), TOKEN, knocks._replace(execution_id=6))
    assert given_up.recv(1) == b""
    (here_too,) = first.connect(7, addresses).values()
    later.sendall(b"x")
    assert here_too.recv(1) == b"x"
    for end in (there, here, given_up, later, here_too):
        end.close()
    first.close()
    second.close()


def test_a_peer_with_another_token_is_refused() -> None:
    (first,) = doors(1)
    stranger = PeerDoor(make_token(), 1)
    with pytest.raises(ResourcesError, match="cannot reach member 0"):
        stranger.connect(5, [first.address, stranger.address])
    first.close()
    stranger.close()


@pytest.mark.parametrize("address", [Address("h", 1), Address("10.0.0.1", 70, "/a path/x", "id"), Address("::1", 5)])
def test_an_address_survives_being_written_as_text(address: Address) -> None:
    assert Address.decode(address.encode()) == address


@pytest.mark.parametrize("text", ["", "host", "host:port id path", "host 1 2"])
def test_text_that_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ProtocolError, match="no address of a member"):
        Address.decode(text)
