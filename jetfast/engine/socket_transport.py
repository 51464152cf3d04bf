"""Transport over one connected stream socket per peer: framed columns, credits per channel, no joining of buffers.

One frame is a head of 32 bytes and, for rows, the buffers of `Batch.encode` one after the other, then their origin
(first row as i64, source partition as UTF-8) if they have one:

    kind u8 | flag u8 | origin bytes u16 | edge u32 | upstream u32 | downstream u32 | payload bytes u64 | value i64

    kind       ROWS     WATERMARK   IDLE  ACTIVE  DONE   BARRIER              CREDIT
    value      rows     us          0     0       0      snapshot id          items
    flag       0        0           0     0       0      1 if terminal        0

A channel starts without credit. The receiving end grants `capacity` when it is opened, and later what its processor
has taken, half a capacity at a time. So nothing can arrive before its receiver stands, the reading thread always has a
place to put what comes (it never blocks on a slow processor), and what waits is bounded on both sides.

Per peer two threads do all the I/O: one reads frames and hands each to its channel, one writes what ends have offered
with a single gathering call for many frames. `offer` and `poll` never block, and take no lock that is held during I/O.

Sockets come connected and proven (`jetfast.control.peers`); the transport owns them from then on. An end of file or an
error on a socket means that the peer is lost: what has arrived can still be polled, then `poll` and `offer` raise.
"""

import contextlib
import socket
import struct
import threading
from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

import pyarrow as pa

from jetfast.core.batch import Batch
from jetfast.core.items import ACTIVE, DONE, IDLE, Barrier, ControlItem, Item, Watermark
from jetfast.engine.transport import ChannelId, PeerStatistics
from jetfast.errors import ProtocolError, TransportError

PAYLOAD_BYTES_MAX = 1 << 32
"""A frame that announces more is not believed."""

WAITING_BYTES_MAX = 16 * 1024 * 1024
"""Bytes that wait for the writing thread of a peer at most (and one batch more), unless less is asked for."""

_HEAD = struct.Struct("<BBHIIIQq")
_FIRST_ROW = struct.Struct("<q")
_ROWS, _WATERMARK, _IDLE, _ACTIVE, _DONE, _BARRIER, _CREDIT = range(1, 8)
_SIGNALS = {_IDLE: IDLE, _ACTIVE: ACTIVE, _DONE: DONE}
_KINDS = {signal: kind for kind, signal in _SIGNALS.items()}
_BUFFERS_PER_CALL = 512  # IOV_MAX is 1024 on Linux and macOS
_CLOSE_TIMEOUT_S = 2.0

Buffer = bytes | memoryview


class _EncodedRows(NamedTuple):
    """Rows as they came: decoded by the thread that takes them."""

    payload: pa.Buffer
    origin_bytes: int

    def decode(self, schema: pa.Schema) -> Batch:
        end = self.payload.size - self.origin_bytes
        batch = Batch.decode(schema, self.payload.slice(0, end))
        if not self.origin_bytes:
            return batch
        origin = self.payload.slice(end).to_pybytes()
        (first_row,) = _FIRST_ROW.unpack_from(origin)
        return batch.with_origin(origin[_FIRST_ROW.size :].decode(errors="surrogateescape"), first_row)


class SocketTransport:
    """One member's end of the connections of one execution. See `jetfast.engine.transport.Transport`."""

    def __init__(
        self, member: int, sockets: Mapping[int, socket.socket], waiting_bytes_max: int = WAITING_BYTES_MAX
    ) -> None:
        """Start to read and write. `sockets`: one connected stream socket for each peer, by member index."""
        self.member = member
        self._peers = {
            peer: _Peer(member, peer, connected, waiting_bytes_max) for peer, connected in sorted(sockets.items())
        }

    def sender(self, peer: int, channel: ChannelId, schema: pa.Schema, capacity: int) -> "SocketSender":
        """Open the upstream end of a channel to member `peer`; the credit that bounds it comes from the other end."""
        return self._peer(peer).open_sender(channel)

    def receiver(self, peer: int, channel: ChannelId, schema: pa.Schema, capacity: int) -> "SocketReceiver":
        """Open the downstream end of a channel from member `peer`, and grant `capacity` items to it."""
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1, got {capacity}")
        return self._peer(peer).open_receiver(channel, schema, capacity)

    def statistics(self) -> list[PeerStatistics]:
        """One entry per peer, by index; bytes are those on the socket, heads and credits included."""
        return [peer.statistics() for peer in self._peers.values()]

    def close(self) -> None:
        """Send what was offered (for at most 2 s), then drop all connections. May be called again."""
        for peer in self._peers.values():
            peer.end()
        for peer in self._peers.values():
            peer.close()

    def _peer(self, peer: int) -> "_Peer":
        try:
            return self._peers[peer]
        except KeyError:
            raise ProtocolError(f"member {self.member} has no connection to member {peer}") from None


class SocketSender:
    """The upstream end. Credit is the difference of two counters, each written by one thread only."""

    __slots__ = ("_peer", "channel", "granted", "used")

    def __init__(self, peer: "_Peer", channel: ChannelId) -> None:
        self._peer = peer
        self.channel = channel
        self.granted = 0
        self.used = 0

    def offer(self, item: Item) -> bool:
        """Hand over an item; False when there is no credit now. Raises TransportError if the peer is gone."""
        peer = self._peer
        if peer.lost is not None:
            raise peer.lost_error()
        if self.granted == self.used:
            return False
        if isinstance(item, Batch):
            origin = _encode_origin(item.origin)
            buffers: list[Buffer] = [*item.encode(), origin]
            byte_count = sum(map(_byte_count, buffers))
            head = _HEAD.pack(_ROWS, 0, len(origin), *self.channel, byte_count, item.row_count)
            taken = peer.enqueue([head, *buffers], _HEAD.size + byte_count, item.row_count)
        else:
            taken = peer.enqueue([_control_frame(self.channel, item)], _HEAD.size, 0)
        if taken:
            self.used += 1
        return taken


class SocketReceiver:
    """The downstream end: the reading thread appends, the processor's thread takes."""

    __slots__ = ("_arrived", "_grant_at", "_peer", "_schema", "_taken", "capacity", "channel")

    def __init__(self, peer: "_Peer", channel: ChannelId, schema: pa.Schema, capacity: int) -> None:
        self._peer = peer
        self._schema = schema
        self._arrived: deque[ControlItem | _EncodedRows] = deque()
        self._taken = 0
        self._grant_at = (capacity + 1) // 2
        self.channel = channel
        self.capacity = capacity

    def poll(self) -> Item | None:
        """Take the next item, or None. Raises TransportError once the peer is gone and all that arrived is taken."""
        try:
            item = self._arrived.popleft()
        except IndexError:
            if self._peer.lost is None:
                return None
            try:  # the last items may have come between the two looks
                item = self._arrived.popleft()
            except IndexError:
                raise self._peer.lost_error() from None
        self._taken += 1
        if self._taken >= self._grant_at:
            self._peer.grant(self.channel, self._taken)
            self._taken = 0
        return item.decode(self._schema) if isinstance(item, _EncodedRows) else item

    def arrive(self, item: "ControlItem | _EncodedRows") -> None:
        """Called by the reading thread. The peer must not send more than it was granted."""
        if len(self._arrived) >= self.capacity:
            raise ProtocolError(f"member {self._peer.index} sent more than {self.capacity} items on {self.channel}")
        self._arrived.append(item)


class _Peer:
    """The connection to one peer: its two threads, and the ends that use it."""

    def __init__(self, member: int, index: int, connected: socket.socket, waiting_bytes_max: int) -> None:
        connected.settimeout(None)
        self.index = index
        self.lost: str | None = None
        """Why the connection is gone; None while it stands."""
        self._write_failure: str | None = None
        """What ended the writing thread early; the reading thread tells it when it comes to the end."""
        self._socket = connected
        self._senders: dict[ChannelId, SocketSender] = {}
        self._receivers: dict[ChannelId, SocketReceiver] = {}
        # Guards what the writing thread takes: frames, grants and their sums. Never held during I/O.
        self._changed = threading.Condition()
        self._frames: deque[tuple[list[Buffer], int]] = deque()
        self._waiting_bytes = 0
        self._waiting_bytes_max = max(waiting_bytes_max, 1)  # one batch may always wait
        self._grants: dict[ChannelId, int] = {}
        self._early_credit: dict[ChannelId, int] = {}
        self._ended = False
        self._rows_sent = self._rows_received = self._bytes_sent = self._bytes_received = 0
        self._threads = [
            threading.Thread(target=run, name=f"jetfast-{what}-{member}-{index}", daemon=True)
            for what, run in (("read", self._read), ("write", self._write))
        ]
        for thread in self._threads:
            thread.start()

    def open_sender(self, channel: ChannelId) -> SocketSender:
        sender = SocketSender(self, channel)
        with self._changed:
            if channel in self._senders:
                raise ProtocolError(f"{channel} to member {self.index} was opened twice")
            sender.granted = self._early_credit.pop(channel, 0)
            self._senders[channel] = sender
        return sender

    def open_receiver(self, channel: ChannelId, schema: pa.Schema, capacity: int) -> SocketReceiver:
        if channel in self._receivers:
            raise ProtocolError(f"{channel} from member {self.index} was opened twice")
        receiver = SocketReceiver(self, channel, schema, capacity)
        self._receivers[channel] = receiver
        self.grant(channel, capacity)
        return receiver

    def statistics(self) -> PeerStatistics:
        return PeerStatistics(self.index, self._rows_sent, self._rows_received, self._bytes_sent, self._bytes_received)

    def lost_error(self) -> TransportError:
        return TransportError(f"the connection to member {self.index} is lost: {self.lost}")

    def enqueue(self, frame: list[Buffer], byte_count: int, row_count: int) -> bool:
        """Give a frame to the writing thread; False if too many bytes wait already."""
        with self._changed:
            if self._ended:
                raise TransportError(f"the connection to member {self.index} was closed here")
            if self._waiting_bytes >= self._waiting_bytes_max:
                return False
            self._frames.append((frame, byte_count))
            self._waiting_bytes += byte_count
            # Counted when it is handed over, as rows are: a member that has just finished reports both or neither.
            self._bytes_sent += byte_count
            self._rows_sent += row_count
            self._changed.notify()
        return True

    def grant(self, channel: ChannelId, items: int) -> None:
        """Let the peer send that many items more. Grants that wait are added up: they cannot pile up."""
        with self._changed:
            self._grants[channel] = self._grants.get(channel, 0) + items
            self._changed.notify()

    def end(self) -> None:
        """Take no more; the writing thread sends what waits and then ends its direction."""
        with self._changed:
            self._ended = True
            self._changed.notify()

    def close(self) -> None:
        reader, writer = self._threads
        writer.join(_CLOSE_TIMEOUT_S)
        self._lose("it was closed here")
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes both threads
        reader.join()
        writer.join()
        self._socket.close()

    def _lose(self, reason: str) -> None:
        with self._changed:
            if self.lost is None:
                self.lost = reason
            self._frames.clear()
            self._changed.notify()

    def _write(self) -> None:
        try:
            while True:
                with self._changed:
                    while not (self._frames or self._grants or self._ended or self.lost):
                        self._changed.wait()
                    if self.lost is not None:
                        return
                    buffers: list[Buffer] = [
                        _HEAD.pack(_CREDIT, 0, 0, *channel, 0, items) for channel, items in self._grants.items()
                    ]
                    self._grants.clear()
                    self._bytes_sent += sum(map(_byte_count, buffers))
                    taken_bytes = 0
                    while self._frames and len(buffers) < _BUFFERS_PER_CALL:
                        frame, byte_count = self._frames.popleft()
                        buffers += frame
                        taken_bytes += byte_count
                    if not buffers:
                        break  # ended, and all is sent
                self._send(buffers)
                with self._changed:
                    self._waiting_bytes -= taken_bytes
            self._socket.shutdown(socket.SHUT_WR)
        except OSError as error:
            # The reading thread tells of the loss, when it has taken what had arrived before it.
            if not isinstance(error, BrokenPipeError):  # which says no more than that the other side ended it
                self._write_failure = str(error) or type(error).__name__
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def _send(self, buffers: list[Buffer]) -> None:
        """Send all buffers, gathered."""
        if not hasattr(self._socket, "sendmsg"):  # Windows
            self._socket.sendall(b"".join(buffers))
            return
        views = deque(memoryview(buffer).cast("B") for buffer in buffers if len(buffer))
        while views:
            sent = self._socket.sendmsg([views[i] for i in range(min(len(views), _BUFFERS_PER_CALL))])
            while sent:
                if sent >= len(views[0]):
                    sent -= len(views.popleft())
                else:
                    views[0] = views[0][sent:]
                    sent = 0

    def _read(self) -> None:
        head = bytearray(_HEAD.size)
        reason = "the other side ended it"
        try:
            while self._receive_into(memoryview(head)):
                self._take(*_HEAD.unpack(head))
        except (OSError, ProtocolError) as error:
            reason = str(error) or type(error).__name__
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)  # after garbage: the peer must notice too
        self._lose(self._write_failure or reason)

    def _take(
        self,
        kind: int,
        flag: int,
        origin_bytes: int,
        edge: int,
        upstream: int,
        downstream: int,
        byte_count: int,
        value: int,
    ) -> None:
        """Hand one frame to its channel; called by the reading thread."""
        channel = ChannelId(edge, upstream, downstream)
        if byte_count > PAYLOAD_BYTES_MAX or origin_bytes > byte_count or (byte_count and kind != _ROWS):
            raise ProtocolError(f"member {self.index} sent a frame of kind {kind} with {byte_count} bytes")
        if kind == _CREDIT:
            with self._changed:
                sender = self._senders.get(channel)
                if sender is None:
                    self._early_credit[channel] = self._early_credit.get(channel, 0) + value
                else:
                    sender.granted += value
            return
        receiver = self._receivers.get(channel)
        if receiver is None:
            raise ProtocolError(f"member {self.index} sent an item on {channel}, which is not open")
        if kind == _ROWS:
            # Arrow's pool: aligned to 64 bytes, recycled, and not filled with zeros first.
            payload = pa.allocate_buffer(byte_count)
            if byte_count and not self._receive_into(memoryview(payload).cast("B")):
                raise ProtocolError(f"member {self.index} ended within a frame")
            self._rows_received += value
            receiver.arrive(_EncodedRows(payload, origin_bytes))
        elif kind == _WATERMARK:
            receiver.arrive(Watermark(value))
        elif kind == _BARRIER:
            receiver.arrive(Barrier(value, bool(flag)))
        elif kind in _SIGNALS:
            receiver.arrive(_SIGNALS[kind])
        else:
            raise ProtocolError(f"member {self.index} sent a frame of unknown kind {kind}")

    def _receive_into(self, view: memoryview) -> bool:
        """Fill the view; False at an end of file before its first byte."""
        filled = 0
        while filled < len(view):
            count = self._socket.recv_into(view[filled:], 0, socket.MSG_WAITALL)
            if count == 0:
                if filled:
                    raise ProtocolError(f"member {self.index} ended within a frame")
                return False
            filled += count
            self._bytes_received += count
        return True


def _byte_count(buffer: Buffer) -> int:
    return buffer.nbytes if isinstance(buffer, memoryview) else len(buffer)


def _encode_origin(origin: tuple[str, int] | None) -> bytes:
    if origin is None:
        return b""
    partition, first_row = origin
    encoded = _FIRST_ROW.pack(first_row) + partition.encode(errors="surrogateescape")
    return encoded if len(encoded) < 1 << 16 else b""  # it is for messages only


def _control_frame(channel: ChannelId, item: ControlItem) -> bytes:
    if isinstance(item, Watermark):
        return _HEAD.pack(_WATERMARK, 0, 0, *channel, 0, item.value)
    if isinstance(item, Barrier):
        return _HEAD.pack(_BARRIER, int(item.terminal), 0, *channel, 0, item.snapshot_id)
    return _HEAD.pack(_KINDS[item], 0, 0, *channel, 0, 0)
