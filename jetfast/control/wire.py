"""Messages over a socket whose two ends have proved to each other that they hold the token of the job.

    dialer                                   listener
      | -- magic, hello, dialer's nonce ------> |
      | <------------- magic, listener's nonce -|      T = hello | dialer's nonce | listener's nonce
      | -- HMAC(token, "dialer" | T) ---------> |      wrong: closed without a word, logged
      | <----- HMAC(token, "listener" | T) -----|      wrong: closed
      | == length | tag | bytes | tag ========= |      both ways, key = HMAC(token, "session" | T); wrong: closed

The token itself is never sent. The hello says who dials, which member it wants, in which execution, so a proof is good
for nothing else; nonces are fresh, so it cannot be replayed; the two sides prove different texts, so it cannot be
reflected. Everything before the proof has a fixed size and one deadline for all of it: a stranger can neither fill
memory nor stay.
Messages are authenticated one by one, and not encrypted: a tag is made of the key, who speaks, how often it has spoken,
and the length or the bytes (BLAKE2b, Aumasson et al. 2013). One that is altered, cut, left out, said again or sent back
ends the connection. Rows go over the bare socket of a Purpose.DATA connection, without tags.
"""

import contextlib
import hashlib
import hmac
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

from jetfast.errors import ProtocolError, TransportError

TOKEN_BYTES = 32
HANDSHAKE_TIMEOUT_S = 10.0
MESSAGE_BYTES_MAX = 256 * 1024 * 1024
COORDINATOR = -1

_MAGIC = b"jetfast\x02"  # the last byte is the version of the protocol
_NONCE_BYTES = 32
_PROOF_BYTES = 32
_HELLO = struct.Struct("<Bqiii")
_LENGTH = struct.Struct("<I")
_TAG_BYTES = 16
_TAGGED = struct.Struct("<?Q")  # does the dialer speak; how many tags it has made before


class Purpose(IntEnum):
    """What a connection is for."""

    CONTROL = 1
    DATA = 2


class Hello(NamedTuple):
    """Who dials whom, and what for. Members are indices in the execution; the coordinator is COORDINATOR."""

    purpose: Purpose
    execution_id: int
    dialer: int
    listener: int
    incarnation: int = 0
    """Which life of the dialing member: Spark may start the same member again."""


class Token(bytes):
    """The secret of one job. Its text hides it: tracebacks and logs show the values of variables."""

    def __repr__(self) -> str:
        return "<token>"

    __str__ = __repr__


class SessionKey(Token):
    """The secret of one connection, which follows from that of the job and from both nonces."""


class Proven(NamedTuple):
    """A connected socket, when both ends have proved the token."""

    socket: socket.socket
    key: SessionKey
    dialed: bool
    """Is this the end that dialed?"""


class HandshakeError(TransportError):
    """The other side did not prove that it belongs to the job."""


def make_token() -> Token:
    """Return a new secret: TOKEN_BYTES random bytes."""
    return Token(secrets.token_bytes(TOKEN_BYTES))


def handshake_as_dialer(
    connected: socket.socket,
    token: Token,
    hello: Hello,
    timeout_s: float = HANDSHAKE_TIMEOUT_S,
    clock: Callable[[], float] = time.monotonic,
) -> Proven:
    """Prove the token to the listener and have it prove it to us. Raises HandshakeError; the caller then closes."""
    deadline = clock() + timeout_s
    nonce = secrets.token_bytes(_NONCE_BYTES)
    said = _HELLO.pack(*hello) + nonce
    _send_all(connected, _MAGIC + said, deadline, clock)
    _expect_magic(connected, deadline, clock)
    transcript = said + _receive_exactly(connected, _NONCE_BYTES, deadline, clock)
    _send_all(connected, _prove(token, b"dialer", transcript), deadline, clock)
    proof = _receive_exactly(connected, _PROOF_BYTES, deadline, clock)
    if not hmac.compare_digest(proof, _prove(token, b"listener", transcript)):
        raise HandshakeError("the listener does not hold the token of this job")
    _end_deadline(connected)
    return Proven(connected, _session_key(token, transcript), dialed=True)


def handshake_as_listener(
    connected: socket.socket,
    token: Token,
    accepts: Callable[[Hello], str | None],
    timeout_s: float = HANDSHAKE_TIMEOUT_S,
    clock: Callable[[], float] = time.monotonic,
) -> tuple[Proven, Hello]:
    """Return who has dialed, once it has proved itself. Raises HandshakeError; the caller then closes.

    `accepts(hello)` is asked once the dialer has proved the token: None, or why it is refused all the same.
    """
    deadline = clock() + timeout_s
    _expect_magic(connected, deadline, clock)
    said = _receive_exactly(connected, _HELLO.size + _NONCE_BYTES, deadline, clock)
    nonce = secrets.token_bytes(_NONCE_BYTES)
    _send_all(connected, _MAGIC + nonce, deadline, clock)
    transcript = said + nonce
    proof = _receive_exactly(connected, _PROOF_BYTES, deadline, clock)
    if not hmac.compare_digest(proof, _prove(token, b"dialer", transcript)):
        raise HandshakeError("the dialer does not hold the token of this job")
    purpose, *rest = _HELLO.unpack(said[: _HELLO.size])
    try:
        hello = Hello(Purpose(purpose), *rest)
    except ValueError as error:
        raise HandshakeError(f"the dialer wants a connection of kind {purpose}; jetfast versions differ?") from error
    refused = accepts(hello)
    if refused is not None:
        raise HandshakeError(f"member {hello.dialer}: {refused}")
    _send_all(connected, _prove(token, b"listener", transcript), deadline, clock)
    _end_deadline(connected)
    return Proven(connected, _session_key(token, transcript), dialed=False), hello


class Connection:
    """Messages (bytes) over one proven socket. `send` may be called from any thread, `receive` from one.

    Both block: call them on threads that do nothing else. `close`, from any thread, ends both.
    """

    def __init__(self, proven: Proven, message_bytes_max: int = MESSAGE_BYTES_MAX) -> None:
        connected = proven.socket
        connected.settimeout(None)
        if connected.family != socket.AF_UNIX:
            keep_alive(connected)
        self._socket = connected
        self._sent = _Tags(proven.key, dialer_speaks=proven.dialed)
        self._received = _Tags(proven.key, dialer_speaks=not proven.dialed)
        self._message_bytes_max = message_bytes_max
        self._send_lock = threading.Lock()
        self._closed = False

    def send(self, message: bytes) -> None:
        """Send one message. Raises TransportError if the connection is gone, ProtocolError if it is too long."""
        if len(message) > self._message_bytes_max:
            raise ProtocolError(f"a message of {len(message)} bytes; at most {self._message_bytes_max} may be sent")
        length = _LENGTH.pack(len(message))
        try:
            with self._send_lock:
                length_tag, tag = self._sent.next(length), self._sent.next(message)
                if len(message) < 4096:
                    self._socket.sendall(b"".join((length, length_tag, message, tag)))
                else:
                    self._socket.sendall(length + length_tag)
                    self._socket.sendall(message)
                    self._socket.sendall(tag)
        except OSError as error:
            raise TransportError(f"the connection is lost: {error}") from error

    def receive(self) -> bytearray | None:
        """Wait for the next message; None: the other side (or `close`) ended the connection between two messages.

        Raises TransportError if it broke within one, ProtocolError if it is not what the other side sent as its next,
        or its length is over the limit.
        """
        try:
            head = self._receive_exactly(_LENGTH.size + _TAG_BYTES)
            if head is None:
                return None
            self._received.check(head[: _LENGTH.size], head[_LENGTH.size :])
            (length,) = _LENGTH.unpack_from(head)
            if length > self._message_bytes_max:
                raise ProtocolError(
                    f"a message of {length} bytes announced; at most {self._message_bytes_max} may come"
                )
            message = self._receive_exactly(length)
            tag = None if message is None else self._receive_exactly(_TAG_BYTES)
        except OSError as error:
            if self._closed:
                return None
            raise TransportError(f"the connection is lost: {error}") from error
        if message is None or tag is None:
            if self._closed:
                return None
            raise TransportError(f"the connection ended within a message of {length} bytes")
        self._received.check(message, tag)
        return message

    def close(self) -> None:
        """End the connection; a waiting `receive` returns None. May be called again."""
        self._closed = True
        close_socket(self._socket)

    def _receive_exactly(self, byte_count: int) -> bytearray | None:
        received = bytearray(byte_count)
        view = memoryview(received)
        while view:
            count = self._socket.recv_into(view)
            if count == 0:
                if len(view) < byte_count and not self._closed:
                    raise TransportError(f"the connection ended {len(view)} bytes before the end of a message")
                return None
            view = view[count:]
        return received


class _Tags:
    """The tags of one direction of a connection, in turn: of the first length, its bytes, the second length, ..."""

    def __init__(self, key: SessionKey, dialer_speaks: bool) -> None:
        self._key = bytes(key)
        self._dialer_speaks = dialer_speaks
        self._number = 0

    def next(self, content: bytes | bytearray) -> bytes:
        number, self._number = self._number, self._number + 1
        turn = _TAGGED.pack(self._dialer_speaks, number)
        tag = hashlib.blake2b(turn, key=self._key, digest_size=_TAG_BYTES)
        tag.update(content)
        return tag.digest()

    def check(self, content: bytearray, tag: bytearray) -> None:
        if not hmac.compare_digest(self.next(content), tag):
            raise ProtocolError("a message came that the other side has not sent as its next: altered, or out of turn")


def keep_alive(connected: socket.socket) -> None:
    """Make a TCP socket prompt, and let it notice within about 20 s that the other host is gone."""
    timeouts = (("TCP_KEEPIDLE", 5), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 20_000))
    with contextlib.suppress(OSError):  # it is gone already: whoever reads from it will be told
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in timeouts:
            if hasattr(socket, option):
                connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def close_socket(connected: socket.socket) -> None:
    """Close a socket so that a thread that waits in it wakes up (close alone does not wake it)."""
    with contextlib.suppress(OSError):  # not connected any more
        connected.shutdown(socket.SHUT_RDWR)
    connected.close()


def _prove(token: Token, role: bytes, transcript: bytes) -> bytes:
    return hmac.new(token, role + b"\x00" + transcript, hashlib.sha256).digest()


def _session_key(token: Token, transcript: bytes) -> SessionKey:
    return SessionKey(_prove(token, b"session", transcript))


def _expect_magic(connected: socket.socket, deadline: float, clock: Callable[[], float]) -> None:
    magic = _receive_exactly(connected, len(_MAGIC), deadline, clock)
    if magic != _MAGIC:
        same = magic[:-1] == _MAGIC[:-1]
        raise HandshakeError(
            f"the other side speaks version {magic[-1]} of the protocol, this one {_MAGIC[-1]}"
            if same
            else "the other side is not jetfast"
        )


def _receive_exactly(connected: socket.socket, byte_count: int, deadline: float, clock: Callable[[], float]) -> bytes:
    parts = b""
    while len(parts) < byte_count:
        left = _left(deadline, clock)
        try:
            connected.settimeout(left)
            part = connected.recv(byte_count - len(parts))
        except OSError as error:
            raise HandshakeError(f"no answer in the handshake: {error or type(error).__name__}") from error
        if not part:
            raise HandshakeError("the other side ended the connection in the handshake")
        parts += part
    return parts


def _send_all(connected: socket.socket, message: bytes, deadline: float, clock: Callable[[], float]) -> None:
    left = _left(deadline, clock)
    try:
        connected.settimeout(left)
        connected.sendall(message)
    except OSError as error:
        raise HandshakeError(f"the other side does not listen in the handshake: {error}") from error


def _end_deadline(connected: socket.socket) -> None:
    try:
        connected.settimeout(None)
    except OSError as error:
        raise HandshakeError("the connection was closed here in the handshake") from error


def _left(deadline: float, clock: Callable[[], float]) -> float:
    left = deadline - clock()
    if left <= 0:
        raise HandshakeError("the other side took too long in the handshake")
    return left
