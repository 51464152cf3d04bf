"""Stands between members and their coordinator, and meddles with their handshakes and with the messages of both."""

import contextlib
import socket
import struct
import threading
from collections import Counter
from random import Random

from jetfast.control.endpoint import Address

_HANDSHAKE_BYTES = (8 + 21 + 32 + 32, 8 + 32 + 32)
"""Of the dialer, and of the listener."""
_LENGTH = struct.Struct("<I")
_TAG_BYTES = 16

MEDDLINGS = ("altered", "cut", "said again", "left out", "garbage", "swapped")


class Meddler:
    """A port that hands on everything, but for one message in `every` on average, and one handshake in
    `every_handshake`, after which it leaves the next in peace. `close` it when the job has ended.
    """

    def __init__(self, every: int, every_handshake: int, random: Random) -> None:
        self.done: Counter[str] = Counter()
        """How often it has meddled, by kind."""
        self._every = every
        self._every_handshake = every_handshake
        self._spared = True
        self._random = random
        self._coordinator: Address | None = None
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = [self._listening]
        self._closed = False
        threading.Thread(target=self._accept, name="meddler", daemon=True).start()

    def address_for(self, coordinator: Address) -> Address:
        """Return what members shall dial instead."""
        self._coordinator = coordinator
        return coordinator._replace(port=self._listening.getsockname()[1], unix_path="")

    def close(self) -> None:
        """Let no more through."""
        self._closed = True
        for opened in self._sockets:
            _end(opened)

    def _accept(self) -> None:
        while not self._closed:
            try:
                member, _ = self._listening.accept()
                assert self._coordinator is not None
                coordinator = socket.create_connection((self._coordinator.host, self._coordinator.port))
            except OSError:
                continue  # closed, or the job is over
            self._sockets += [member, coordinator]
            self._spared = not self._spared or self._random.randrange(self._every_handshake) > 0
            disturbed = None if self._spared else self._random.randrange(2)
            for side, (source, target) in enumerate(((member, coordinator), (coordinator, member))):
                altered = self._random.randrange(_HANDSHAKE_BYTES[side]) if side == disturbed else None
                seed = self._random.random()
                threading.Thread(
                    target=self._hand_on,
                    args=(_HANDSHAKE_BYTES[side], altered, source, target, Random(seed)),
                    daemon=True,
                ).start()

    def _hand_on(
        self, handshake_bytes: int, altered: int | None, source: socket.socket, target: socket.socket, random: Random
    ) -> None:
        held = b""
        handed_on = 0
        try:
            while handed_on < handshake_bytes:
                part = bytearray(_receive_some(source, handshake_bytes - handed_on))
                if altered is not None and 0 <= altered - handed_on < len(part):
                    part[altered - handed_on] ^= 1 << random.randrange(8)
                    self.done["handshake"] += 1
                target.sendall(part)
                handed_on += len(part)
            while True:
                head = _receive(source, _LENGTH.size + _TAG_BYTES)
                (length,) = _LENGTH.unpack_from(head)
                message = head + _receive(source, length + _TAG_BYTES)
                if held:
                    target.sendall(message + held)
                    held = b""
                elif random.randrange(self._every):
                    target.sendall(message)
                else:
                    how = random.choice(MEDDLINGS)
                    self.done[how] += 1
                    if how == "swapped":
                        held = message
                    else:
                        target.sendall(_meddled(how, message, random))
                    if how == "cut":
                        return
        except OSError:
            pass
        finally:
            _end(source)
            _end(target)


def _meddled(how: str, message: bytes, random: Random) -> bytes:
    if how == "altered":
        changed = bytearray(message)
        changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
        return bytes(changed)
    if how == "cut":
        return message[: random.randrange(len(message))]
    if how == "said again":
        return message + message
    if how == "left out":
        return b""
    return random.randbytes(random.randrange(20, 200)) + message


def _receive(source: socket.socket, byte_count: int) -> bytes:
    received = b""
    while len(received) < byte_count:
        received += _receive_some(source, byte_count - len(received))
    return received


def _receive_some(source: socket.socket, byte_count: int) -> bytes:
    part = source.recv(min(byte_count, 1 << 20))
    if not part:
        raise ConnectionError("it has ended")
    return part


def _end(connected: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connected.shutdown(socket.SHUT_RDWR)
    connected.close()
