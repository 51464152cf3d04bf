"""The handshake lets in who holds the token and nobody else; messages keep their order and their limits."""

import logging
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetfast.control.endpoint import Address, Listener, dial
from jetfast.control.wire import (
    COORDINATOR,
    Connection,
    HandshakeError,
    Hello,
    Purpose,
    Token,
    handshake_as_dialer,
    handshake_as_listener,
    make_token,
)
from jetfast.errors import JobDefinitionError, ProtocolError, TransportError

TOKEN = Token(b"t" * 32)
HELLO = Hello(Purpose.CONTROL, execution_id=7, dialer=1, listener=COORDINATOR, incarnation=2)


def only_us(hello: Hello) -> str | None:
    """Lets in who wants the coordinator in execution 7."""
    if (hello.execution_id, hello.listener) == (7, COORDINATOR):
        return None
    return f"this is execution 7, not {hello.execution_id}"


class Recorder:
    """A socket that writes down what was sent through it."""

    def __init__(self, connected: socket.socket) -> None:
        self._connected = connected
        self.sent = b""

    def sendall(self, message: bytes) -> None:
        self.sent += message
        self._connected.sendall(message)

    def __getattr__(self, name: str) -> object:
        return getattr(self._connected, name)


def together(*calls: Callable[[], object]) -> list[Future[object]]:
    """Run the calls at the same time, each to its end."""
    with ThreadPoolExecutor(len(calls)) as pool:
        return [pool.submit(call) for call in calls]


def shake(
    dialer_token: Token = TOKEN, listener_token: Token = TOKEN, hello: Hello = HELLO
) -> tuple[Future[object], Future[object], bytes]:
    """Both ends of a handshake over a socket pair; each closes its socket when it is refused, as its callers do."""
    ends = [Recorder(end) for end in socket.socketpair()]

    def closing(end: Recorder, call: Callable[[], object]) -> object:
        try:
            return call()
        except HandshakeError:
            end.close()  # type: ignore[operator]
            raise

    dialed, listened = together(
        lambda: closing(ends[0], lambda: handshake_as_dialer(ends[0], dialer_token, hello)),  # type: ignore[arg-type]
        lambda: closing(
            ends[1],
            lambda: handshake_as_listener(ends[1], listener_token, only_us),  # type: ignore[arg-type]
        ),
    )
    for end in ends:
        end.close()  # type: ignore[operator]
    return dialed, listened, ends[0].sent + ends[1].sent


def test_both_sides_with_the_token_learn_who_dialed() -> None:
    dialed, listened, sent = shake()
    assert dialed.exception() is None
    assert listened.result() == HELLO
    assert TOKEN not in sent


def test_the_text_of_a_token_hides_it() -> None:
    assert "t" * 8 not in f"{TOKEN} {TOKEN!r} {[TOKEN]}"


def test_two_handshakes_never_prove_with_the_same_bytes() -> None:
    assert shake()[2][-64:] != shake()[2][-64:]


def test_a_dialer_with_another_token_is_refused() -> None:
    dialed, listened, _ = shake(dialer_token=make_token())
    assert isinstance(listened.exception(), HandshakeError)
    assert isinstance(dialed.exception(), HandshakeError)


def test_a_listener_that_cannot_prove_the_token_is_refused() -> None:
    here, there = socket.socketpair()

    def pretend() -> None:
        there.recv(1000)
        there.sendall(b"jetfast\x01" + b"n" * 32)
        there.recv(1000)
        there.sendall(b"p" * 32)

    with here, there:
        dialed, _ = together(lambda: handshake_as_dialer(here, TOKEN, HELLO), pretend)
        with pytest.raises(HandshakeError, match="does not hold the token"):
            dialed.result()


def test_a_listener_that_echoes_the_dialers_own_proof_is_refused() -> None:
    here, there = socket.socketpair()

    def reflect() -> None:
        there.recv(1000)
        there.sendall(b"jetfast\x01" + b"n" * 32)
        there.sendall(there.recv(1000))

    with here, there:
        dialed, _ = together(lambda: handshake_as_dialer(here, TOKEN, HELLO), reflect)
        with pytest.raises(HandshakeError, match="does not hold the token"):
            dialed.result()


@pytest.mark.parametrize("hello", [HELLO._replace(execution_id=6), HELLO._replace(listener=3)])
def test_a_member_of_another_execution_or_for_another_member_is_refused(hello: Hello) -> None:
    dialed, listened, _ = shake(hello=hello)
    with pytest.raises(HandshakeError, match="execution 7"):
        listened.result()
    assert isinstance(dialed.exception(), HandshakeError)


@pytest.mark.parametrize("position", range(8 + 21 + 32))
def test_a_hello_changed_on_its_way_is_refused(position: int) -> None:
    here, between, beyond, there = (*socket.socketpair(), *socket.socketpair())

    def meddle() -> None:
        said = bytearray(between.recv(1000))
        said[position] ^= 1
        beyond.sendall(said)
        between.sendall(beyond.recv(1000))
        beyond.sendall(between.recv(1000))
        between.sendall(beyond.recv(1000))

    def listen() -> Hello:
        with there:
            return handshake_as_listener(there, TOKEN, only_us)

    def dial_through() -> None:
        with here:
            handshake_as_dialer(here, TOKEN, HELLO)

    with ThreadPoolExecutor(3) as pool:
        listened, dialed, meddled = pool.submit(listen), pool.submit(dial_through), pool.submit(meddle)
        assert isinstance(listened.exception(), HandshakeError)
        beyond.close()
        between.shutdown(socket.SHUT_RDWR)
        assert isinstance(dialed.exception(), HandshakeError)
        meddled.exception()
        between.close()


@given(st.binary(max_size=200))
@settings(max_examples=30, deadline=None)
def test_garbage_is_refused_whatever_it_is(garbage: bytes) -> None:
    here, there = socket.socketpair()
    with here, there:
        here.sendall(garbage)
        here.shutdown(socket.SHUT_WR)
        with pytest.raises(HandshakeError):
            handshake_as_listener(there, TOKEN, only_us)


def test_a_peer_of_another_protocol_version_is_told_apart_from_a_stranger() -> None:
    here, there = socket.socketpair()
    with here, there:
        here.sendall(b"jetfast\x02")
        with pytest.raises(HandshakeError, match="version 2 of the protocol, this one 1"):
            handshake_as_listener(there, TOKEN, only_us)


def test_a_silent_peer_and_one_that_dribbles_meet_one_deadline() -> None:
    here, there = socket.socketpair()
    ticks = iter(range(1000))
    with here, there:
        with pytest.raises(HandshakeError):
            handshake_as_listener(there, TOKEN, only_us, timeout_s=0.01)
        here.sendall(b"jetfast\x01" + b"x" * 10)
        with pytest.raises(HandshakeError, match="too long"):  # each look at the clock takes a second
            handshake_as_listener(there, TOKEN, only_us, timeout_s=2, clock=lambda: float(next(ticks)))


def test_a_socket_that_is_closed_here_in_the_handshake_is_a_refusal() -> None:
    ends = socket.socketpair()

    def closes_then_accepts(_: Hello) -> None:
        ends[1].close()  # as a listener does that is closed meanwhile

    with ends[0]:
        dialed, listened = together(
            lambda: handshake_as_dialer(ends[0], TOKEN, HELLO),
            lambda: handshake_as_listener(ends[1], TOKEN, closes_then_accepts),
        )
    assert isinstance(dialed.exception(), HandshakeError)
    assert isinstance(listened.exception(), HandshakeError)


@given(st.lists(st.binary(max_size=9000), max_size=8))
@settings(max_examples=25, deadline=None)
def test_messages_arrive_whole_and_in_order(messages: list[bytes]) -> None:
    here, there = map(Connection, socket.socketpair())

    def send() -> None:
        for message in messages:
            here.send(message)
        here.close()

    def receive() -> list[bytes]:
        received = []
        while (message := there.receive()) is not None:
            received.append(bytes(message))
        return received

    _, received = together(send, receive)
    assert received.result() == messages
    there.close()


def test_a_message_over_the_limit_is_refused_at_both_ends() -> None:
    here, there = socket.socketpair()
    small = Connection(there, message_bytes_max=10)
    with here:
        with pytest.raises(ProtocolError, match="11 bytes"):
            small.send(b"x" * 11)
        here.sendall(b"\x0b\x00\x00\x00")
        with pytest.raises(ProtocolError, match="11 bytes"):
            small.receive()
    small.close()


@pytest.mark.parametrize("cut", [b"\x05\x00", b"\x05\x00\x00\x00", b"\x05\x00\x00\x00abc"])
def test_a_connection_that_ends_within_a_message_is_lost(cut: bytes) -> None:
    here, there = socket.socketpair()
    connection = Connection(there)
    here.sendall(cut)
    here.close()
    with pytest.raises(TransportError, match="ended"):
        connection.receive()
    connection.close()


def test_close_wakes_a_waiting_receive() -> None:
    here, there = socket.socketpair()
    connection = Connection(there)
    with here, ThreadPoolExecutor(1) as pool:
        received = pool.submit(connection.receive)
        connection.close()
        assert received.result() is None
        with pytest.raises(TransportError):
            connection.send(b"late")


class Met:
    """What a listener handed over."""

    def __init__(self) -> None:
        self.hellos: list[Hello] = []
        self.sockets: list[socket.socket] = []
        self.arrived = threading.Semaphore(0)

    def __call__(self, connected: socket.socket, hello: Hello) -> None:
        self.sockets.append(connected)
        self.hellos.append(hello)
        self.arrived.release()

    def close(self) -> None:
        for connected in self.sockets:
            connected.close()


@pytest.mark.parametrize("unix", [True, False])
def test_members_reach_a_listener_over_unix_sockets_and_tcp(unix: bool) -> None:
    met = Met()
    listener = Listener(TOKEN, "coordinator", only_us, met, unix=unix)
    connected = dial(listener.address, TOKEN, HELLO)
    met.arrived.acquire()
    assert met.hellos == [HELLO]
    assert connected.family == (socket.AF_UNIX if unix else socket.AF_INET)
    connected.close()
    met.close()
    listener.close()


def test_a_stranger_is_refused_and_logged_and_keeps_nobody_waiting(caplog: pytest.LogCaptureFixture) -> None:
    met = Met()
    listener = Listener(TOKEN, "coordinator", only_us, met)
    silent = socket.create_connection((listener.address.host, listener.address.port))
    with caplog.at_level(logging.WARNING), pytest.raises(HandshakeError):
        dial(listener.address, make_token(), HELLO)
    connected = dial(listener.address, TOKEN, HELLO)
    met.arrived.acquire()
    assert met.hellos == [HELLO]
    connected.close()
    met.close()
    listener.close()
    assert silent.recv(1) == b""
    silent.close()
    assert "refused a connection from 127.0.0.1" in caplog.text
    assert "tttt" not in caplog.text


def test_a_closed_listener_leaves_no_thread_behind() -> None:
    before = set(threading.enumerate())
    listener = Listener(TOKEN, "coordinator", only_us, Met(), unix=True)
    address = listener.address
    listener.close()
    assert set(threading.enumerate()) == before
    with pytest.raises(TransportError, match=f"{address.host}:{address.port} cannot be reached"):
        dial(address, TOKEN, HELLO)


def test_a_stale_unix_path_falls_back_to_tcp() -> None:
    met = Met()
    listener = Listener(TOKEN, "coordinator", only_us, met)
    stale = listener.address._replace(unix_path="/dev/null")
    connected = dial(Address(*stale), TOKEN, HELLO)
    assert connected.family == socket.AF_INET
    met.arrived.acquire()
    connected.close()
    met.close()
    listener.close()


def test_a_port_range_without_a_free_port_names_the_setting() -> None:
    first = Listener(TOKEN, "m", only_us, Met())
    port = first.address.port
    with pytest.raises(JobDefinitionError, match=rf"a port of {port}\.\.{port} .* set host="):
        Listener(TOKEN, "m", only_us, Met(), port_range=(port, port))
    with pytest.raises(JobDefinitionError, match="port_range must be"):
        Listener(TOKEN, "m", only_us, Met(), port_range=(9, 3))
    first.close()
