"""What strangers, and holders of the token that are not who they say, try at the ports of a running job.

Each attack ends when the port has closed the connection; `refusal` is what the log must say then.
"""

import contextlib
import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import NamedTuple

from jetfast.control import messages
from jetfast.control.endpoint import Address
from jetfast.control.messages import NO_EXECUTION, Finished, Registered
from jetfast.control.versions import running_versions
from jetfast.control.wire import (
    COORDINATOR,
    Connection,
    HandshakeError,
    Hello,
    Proven,
    Purpose,
    Token,
    handshake_as_dialer,
    make_token,
)
from jetfast.errors import ProtocolError, TransportError

PATIENCE_S = 200.0
"""A port that has not closed a connection by then keeps strangers."""
HANDSHAKE_BYTES = 8 + 21 + 32 + 32
"""That a dialer sends: magic, hello, nonce, proof."""


class LetInError(AssertionError):
    """A port took somebody for who it is not."""


class Port(NamedTuple):
    """A port of a job that runs."""

    address: Address
    listener: int
    """COORDINATOR, or the index of a member."""
    token: Token
    members: int
    execution_id: int

    @property
    def is_coordinator(self) -> bool:
        return self.listener == COORDINATOR

    def hello(self, random: Random) -> Hello:
        """What a member says that belongs here."""
        if self.is_coordinator:
            return Hello(Purpose.CONTROL, NO_EXECUTION, random.randrange(self.members), COORDINATOR)
        return Hello(Purpose.DATA, self.execution_id, self.members - 1, self.listener)


class Attack(NamedTuple):
    """One kind of attack."""

    attempt: Callable[[Port, Random], None]
    refusal: str
    """Regular expression."""
    coordinator: bool = True
    """Can it be tried at the coordinator's port?"""
    member: bool = True
    """And at that of a member, to which another one connects?"""

    def fits(self, port: Port) -> bool:
        return self.coordinator if port.is_coordinator else self.member


class _Tampered:
    """A socket that alters what is sent through it, or ends there."""

    def __init__(self, connected: socket.socket, alters: int | None = None, bit: int = 0, ends: int = 1 << 30) -> None:
        self._connected = connected
        self._alters = alters
        self._bit = bit
        self._left = ends
        self.sent = b""

    def sendall(self, message: bytes) -> None:
        changed = bytearray(message)
        at = None if self._alters is None else self._alters - len(self.sent)
        if at is not None and 0 <= at < len(changed):
            changed[at] ^= 1 << self._bit
        changed = changed[: self._left]
        self._left -= len(changed)
        self.sent += bytes(changed)
        self._connected.sendall(changed)
        if self._left == 0:
            self._connected.shutdown(socket.SHUT_WR)

    def __getattr__(self, name: str) -> object:
        return getattr(self._connected, name)


def reach(port: Port) -> socket.socket:
    """Connect, and prove nothing."""
    connected = socket.create_connection((port.address.host, port.address.port), timeout=PATIENCE_S)
    connected.settimeout(PATIENCE_S)
    return connected


def await_end(connected: socket.socket) -> None:
    """Read until the port has closed the connection. TimeoutError: it has not."""
    try:
        connected.settimeout(PATIENCE_S)
        while connected.recv(1 << 16):
            pass
    except TimeoutError:
        raise
    except OSError:  # it was reset
        pass


def _shake(port: Port, hello: Hello, token: Token, **tampered: int) -> bytes:
    """Try a handshake that must fail; return what was sent."""
    with reach(port) as connected:
        through = _Tampered(connected, **tampered)
        try:
            handshake_as_dialer(through, token, hello, PATIENCE_S)  # type: ignore[arg-type]
        except HandshakeError:
            await_end(connected)
        else:
            raise LetInError(f"{hello} was let in")
        return through.sent


def _prove(port: Port, random: Random) -> tuple[socket.socket, Proven]:
    """Get in as a member that belongs to the job."""
    connected = reach(port)
    return connected, handshake_as_dialer(connected, port.token, port.hello(random), PATIENCE_S)


def _say(port: Port, random: Random, content: bytes, **tampered: int) -> None:
    """Get in, say something as the first message, and wait for the end."""
    connected, proven = _prove(port, random)
    through = _Tampered(connected, **tampered)
    with connected:
        connection = Connection(proven._replace(socket=through), message_bytes_max=1 << 32)  # type: ignore[arg-type]
        with contextlib.suppress(TransportError):  # closed already
            connection.send(content)
        await_end(connected)


def _send_garbage(port: Port, random: Random) -> None:
    with reach(port) as connected:
        with contextlib.suppress(OSError):  # refused before all was sent
            connected.sendall(bytes([random.randrange(97)]) + random.randbytes(random.randrange(7, 300)))
            connected.shutdown(socket.SHUT_WR)
        await_end(connected)


def _stay_silent(port: Port, random: Random) -> None:
    with reach(port) as connected:
        connected.shutdown(socket.SHUT_WR)
        await_end(connected)


def _cut_handshake(port: Port, random: Random) -> None:
    _shake(port, port.hello(random), port.token, ends=random.randrange(1, HANDSHAKE_BYTES))


def _alter_handshake(port: Port, random: Random) -> None:
    altered = random.randrange(8, HANDSHAKE_BYTES)
    _shake(port, port.hello(random), port.token, alters=altered, bit=random.randrange(8))


def _use_another_token(port: Port, random: Random) -> None:
    _shake(port, port.hello(random), make_token())


def _replay_handshake(port: Port, random: Random) -> None:
    with reach(port) as connected:
        recorded = _Tampered(connected)
        with contextlib.suppress(HandshakeError):  # a member's door has this one already
            handshake_as_dialer(recorded, port.token, port.hello(random), PATIENCE_S)  # type: ignore[arg-type]
    with reach(port) as connected:
        connected.sendall(recorded.sent + random.randbytes(40))
        await_end(connected)


def _come_from_older_execution(port: Port, random: Random) -> None:
    older = port.execution_id - random.randrange(1, 1000)
    _shake(port, port.hello(random)._replace(execution_id=older), port.token)


def _come_again(port: Port, random: Random) -> None:
    _shake(port, port.hello(random), port.token)


def _want_another_door(port: Port, random: Random) -> None:
    purpose = Purpose.DATA if port.is_coordinator else Purpose.CONTROL
    _shake(port, port.hello(random)._replace(purpose=purpose), port.token)


def _want_another_kind(port: Port, random: Random) -> None:
    _shake(port, port.hello(random)._replace(purpose=random.randrange(3, 256)), port.token)  # type: ignore[arg-type]


def _be_unknown_member(port: Port, random: Random) -> None:
    unknown = random.choice([-2, port.members, 1 << 30])
    _shake(port, port.hello(random)._replace(dialer=unknown), port.token)


def _be_copy(port: Port, random: Random) -> None:
    hello = port.hello(random)
    with reach(port) as connected:
        connection = Connection(handshake_as_dialer(connected, port.token, hello, PATIENCE_S))
        copy = Registered(
            execution_id=NO_EXECUTION,
            member=hello.dialer,
            incarnation=random.randrange(1 << 20, 1 << 30),
            pid=1,
            host="elsewhere",
            address="",
            versions=running_versions(),
        )
        connection.send(messages.encode(copy))
        connected.settimeout(PATIENCE_S)
        with contextlib.suppress(TransportError, ProtocolError):
            connection.receive()  # why it is turned away
        await_end(connected)


def _register_late(port: Port, random: Random) -> None:
    _say(port, random, messages.encode(Finished(execution_id=port.execution_id, member=random.randrange(port.members))))


def _say_garbage(port: Port, random: Random) -> None:
    _say(port, random, b"\xc1" + random.randbytes(random.randrange(300)))  # 0xc1 is never used in MessagePack


def _alter_message(port: Port, random: Random) -> None:
    content = random.randbytes(random.randrange(1, 100))
    _say(port, random, content, alters=random.randrange(20 + len(content) + 16), bit=random.randrange(8))


def _cut_message(port: Port, random: Random) -> None:
    content = random.randbytes(random.randrange(1, 100))
    _say(port, random, content, ends=random.randrange(1, 20 + len(content) + 16))


def _send_frames_without_tags(port: Port, random: Random) -> None:
    connected, _ = _prove(port, random)
    with connected:
        with contextlib.suppress(OSError):  # refused before all was sent
            for _ in range(random.randrange(1, 5)):
                content = random.randbytes(random.randrange(16, 100))
                connected.sendall(struct.pack("<I", len(content)) + content)
        await_end(connected)


def _announce_too_much(port: Port, random: Random) -> None:
    connected, proven = _prove(port, random)
    with connected:
        connection = Connection(proven)
        length = struct.pack("<I", random.randrange(1 << 29, 1 << 32))
        connected.sendall(length + connection._sent.next(length))
        await_end(connected)


NO_PROOF = "does not hold the token of this job"
OUT_OF_TURN = "refused a connection as member .*: .*altered, or out of turn"

ATTACKS: Mapping[str, Attack] = {
    "garbage": Attack(_send_garbage, "the other side is not jetfast|ended the connection in the handshake"),
    "silence": Attack(_stay_silent, "ended the connection in the handshake"),
    "cut handshake": Attack(_cut_handshake, "ended the connection in the handshake"),
    "altered handshake": Attack(_alter_handshake, NO_PROOF),
    "another token": Attack(_use_another_token, NO_PROOF),
    "replayed handshake": Attack(_replay_handshake, NO_PROOF),
    "older execution": Attack(_come_from_older_execution, "execution .* is over, .* runs", coordinator=False),
    "connected already": Attack(_come_again, "member .*: it is connected already", coordinator=False),
    "another door": Attack(_want_another_door, "this is the coordinator|a connection for CONTROL from"),
    "unknown kind": Attack(_want_another_kind, "the dialer wants a connection of kind"),
    "unknown member": Attack(_be_unknown_member, "the job has .* members", member=False),
    "copy": Attack(_be_copy, "turned away a copy of member", member=False),
    "late registration": Attack(_register_late, "began with Finished instead of Registered", member=False),
    "no message": Attack(_say_garbage, "refused a connection as member .*: .*that are no message", member=False),
    "altered message": Attack(_alter_message, OUT_OF_TURN, member=False),
    "cut message": Attack(_cut_message, "refused a connection as member .*: the connection ended", member=False),
    "frames without tags": Attack(_send_frames_without_tags, OUT_OF_TURN, member=False),
    "too long": Attack(_announce_too_much, "bytes announced; at most", member=False),
}


def fitting(port: Port) -> Sequence[str]:
    """Names of the attacks that can be tried at a port."""
    return [name for name, attack in ATTACKS.items() if attack.fits(port)]
