"""The handshake lets in who holds the token and nobody else; messages keep their order and their limits."""

import logging
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetfast.control.endpoint import Address, Listener, dial
from jetfast.control.wire import (
    COORDINATOR,
    Connection,
    HandshakeError,
    Hello,
    Proven,
    Purpose,
    SessionKey,
    Token,
    handshake_as_dialer,
    handshake_as_listener,
    make_token,
)
from jetfast.errors import JobDefinitionError, ProtocolError, TransportError

TOKEN = Token(b"t" * 32)
KEY = SessionKey(b"k" * 32)
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


def test_both_sides_with_the_token_learn_who_dialed_and_have_one_key_that_is_never_sent() -> None:
    dialed, listened, sent = shake()
    here: Any = dialed.result()
    there, hello = listened.result()  # type: ignore[misc]
    assert hello == HELLO
    assert (here.dialed, there.dialed) == (True, False)
    assert bytes(here.key) == bytes(there.key)
    assert bytes(here.key) != bytes(shake()[0].result().key), "each connection has its own"  # type: ignore[attr-defined]
    assert TOKEN not in sent
    assert here.key not in sent


def test_the_text_of_a_token_or_key_hides_it() -> None:
    assert "t" * 8 not in f"{TOKEN} {TOKEN!r} {[TOKEN]}"
    assert "k" * 8 not in f"{KEY} {KEY!r} {[KEY]}"


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
        there.sendall(b"jetfast\x02" + b"n" * 32)
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
        there.sendall(b"jetfast\x02" + b"n" * 32)
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
        here.sendall(b"jetfast\x01")
        with pytest.raises(HandshakeError, match="version 1 of the protocol, this one 2"):
            handshake_as_listener(there, TOKEN, only_us)


def test_a_silent_peer_and_one_that_dribbles_meet_one_deadline() -> None:
    here, there = socket.socketpair()
    ticks = iter(range(1000))
    with here, there:
        with pytest.raises(HandshakeError):
            handshake_as_listener(there, TOKEN, only_us, timeout_s=0.01)
        here.sendall(b"jetfast\x02" + b"x" * 10)
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


def ends_of_connection(**options: Any) -> tuple[Connection, Connection]:
    here, there = socket.socketpair()
    return Connection(Proven(here, KEY, dialed=True), **options), Connection(
        Proven(there, KEY, dialed=False), **options
    )


def sent_by(messages: list[bytes], dialer: bool = True) -> list[bytes]:
    """What one end sends, message by message, as bytes."""
    taken = []
    here, there = socket.socketpair()
    with there:
        connection = Connection(Proven(here, KEY, dialed=dialer))
        for message in messages:
            connection.send(message)
            taken.append(there.recv(100_000))
        connection.close()
    return taken


def read_by_listener(sent: bytes) -> list[bytes]:
    """What a listener makes of bytes that a dialer is said to have sent, all of them."""
    here, there = socket.socketpair()
    connection = Connection(Proven(there, KEY, dialed=False))
    received = []
    try:
        with here:
            here.sendall(sent)
        while (message := connection.receive()) is not None:
            received.append(bytes(message))
    finally:
        connection.close()
    return received


@given(st.lists(st.binary(max_size=9000), max_size=8))
@settings(max_examples=25, deadline=None)
def test_messages_arrive_whole_and_in_order(messages: list[bytes]) -> None:
    here, there = ends_of_connection()

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
    here, there = ends_of_connection(message_bytes_max=10)
    with pytest.raises(ProtocolError, match="11 bytes"):
        there.send(b"x" * 11)
    here._message_bytes_max = 11
    here.send(b"x" * 11)
    with pytest.raises(ProtocolError, match="11 bytes"):
        there.receive()
    here.close()
    there.close()


WHOLE = sent_by([b"hello", b"", b"again"])
"""Three messages."""


def test_what_is_sent_is_read() -> None:
    assert read_by_listener(b"".join(WHOLE)) == [b"hello", b"", b"again"]


@pytest.mark.parametrize("length", range(1, len(WHOLE[0])))
def test_a_connection_that_ends_within_a_message_is_lost(length: int) -> None:
    with pytest.raises(TransportError, match="ended"):
        read_by_listener(WHOLE[0][:length])


@given(st.integers(0, 8 * len(WHOLE[0]) - 1))
def test_a_message_with_one_bit_altered_is_refused(bit: int) -> None:
    altered = bytearray(WHOLE[0])
    altered[bit // 8] ^= 1 << bit % 8
    with pytest.raises(ProtocolError, match="altered, or out of turn"):
        read_by_listener(bytes(altered))


@pytest.mark.parametrize(
    "sent",
    [
        WHOLE[0] + WHOLE[0],
        WHOLE[1],
        WHOLE[0] + WHOLE[2],
        WHOLE[0] + b"garbage that is as long as a head",
        sent_by([b"hello"], dialer=False)[0],
    ],
    ids=["said again", "the first left out", "one left out", "garbage", "sent back"],
)
def test_a_message_out_of_turn_is_refused(sent: bytes) -> None:
    with pytest.raises(ProtocolError, match="altered, or out of turn"):
        read_by_listener(sent)


def test_close_wakes_a_waiting_receive() -> None:
    here, connection = ends_of_connection()
    with ThreadPoolExecutor(1) as pool:
        received = pool.submit(connection.receive)
        connection.close()
        assert received.result() is None
        with pytest.raises(TransportError):
            connection.send(b"late")
    here.close()


class Met:
    """What a listener handed over."""

    def __init__(self) -> None:
        self.hellos: list[Hello] = []
        self.sockets: list[socket.socket] = []
        self.arrived = threading.Semaphore(0)

    def __call__(self, proven: Proven, hello: Hello) -> None:
        self.sockets.append(proven.socket)
        self.hellos.append(hello)
        self.arrived.release()

    def close(self) -> None:
        for connected in self.sockets:
            connected.close()


@pytest.mark.parametrize("unix", [True, False])
def test_members_reach_a_listener_over_unix_sockets_and_tcp(unix: bool) -> None:
    met = Met()
    listener = Listener(TOKEN, "coordinator", only_us, met, unix=unix)
    connected = dial(listener.address, TOKEN, HELLO).socket
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
    connected = dial(listener.address, TOKEN, HELLO).socket
    met.arrived.acquire()
    assert met.hellos == [HELLO]
    connected.close()
    met.close()
    listener.close()
    assert silent.recv(1) == b""
    silent.close()
    assert "refused a connection from 127.0.0.1" in caplog.text
    assert "tttt" not in caplog.text


def test_many_silent_strangers_do_not_keep_out_who_belongs_to_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jetfast.control.endpoint._STRANGERS_MAX", 3)
    met = Met()
    listener = Listener(TOKEN, "coordinator", only_us, met, handshake_timeout_s=1000)
    strangers = [socket.create_connection((listener.address.host, listener.address.port)) for _ in range(9)]
    connected = dial(listener.address, TOKEN, HELLO).socket
    met.arrived.acquire()
    assert met.hellos == [HELLO]
    assert [stranger.recv(1) for stranger in strangers[:6]] == [b""] * 6, "the first to come are the first to go"
    for opened in (*strangers, connected):
        opened.close()
    met.close()
    listener.close()


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
    connected = dial(Address(*stale), TOKEN, HELLO).socket
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
