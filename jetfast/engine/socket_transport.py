"""Transport over one connected stream socket per peer, and memory shared with those of this host: framed columns.

One frame is a head of 32 bytes and, for rows, the buffers of `Batch.encode` one after the other, then their origin
(first row as i64, source partition as UTF-8) if they have one:

    kind u8 | flag u8 | origin bytes u16 | edge u32 | upstream u32 | downstream u32 | payload bytes u64 | value i64

    kind       ROWS     WATERMARK   IDLE  ACTIVE  DONE   BARRIER              CREDIT    RING
    value      rows     us          0     0       0      snapshot id          items     0
    flag       types    0           0     0       0      1 if terminal        0         0

What both ends know is not sent again. A column that comes again is sent once for each channel, later the number of the
place where the receiver keeps it (`SentColumns`). Types are those of the channel's schema (0), or of another one that
its sender has told (1 to 7, in this order): in the frame with 128 + its number, whose payload begins with the length of
the schema (u64) and the schema, as Arrow writes it, filled up to 64 bytes.

A channel starts without credit. The receiving end grants `capacity` when it is opened, and later what its processor
has taken, half a capacity at a time. So nothing can arrive before its receiver stands, the reading thread always has a
place to put what comes (it never blocks on a slow processor), and what waits is bounded on both sides.

To a peer of this host (over a Unix socket) frames go through a ring of bytes in shared memory, one for each direction
(`jetfast.engine.shared_rings`). Its descriptor is the first thing on the socket (RING); from then on nothing is read
from the socket but its end, which tells that the peer is gone. The thread that offers copies into the ring, and any
thread that polls, or has no credit, copies out of it what there is, for whichever channel: no other thread has to run,
nobody is woken. Only a frame of more than half a ring waits for the writing thread, which writes it piece by piece.

To others two threads for each peer do all the I/O: one reads frames and hands each to its channel, one writes what ends
have offered with a single gathering call for many frames. `offer` and `poll` never block, and take no lock that is held
during I/O.

Sockets come connected and proven (`jetfast.control.peers`); the transport owns them from then on. An end of file or an
error on a socket means that the peer is lost: what has arrived can still be polled, then `poll` and `offer` raise.
"""

import contextlib
import logging
import os
import socket
import struct
import threading
from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

import pyarrow as pa

from jetfast.core.batch import Batch
from jetfast.core.items import ACTIVE, DONE, IDLE, Barrier, ControlItem, Item, Watermark
from jetfast.core.watermark_policies import SAMPLES_PER_DELAY
from jetfast.engine.shared_rings import can_share, make_ring, map_ring
from jetfast.engine.transport import ChannelId, PeerStatistics
from jetfast.errors import ProtocolError, TransportError
from jetfast.kernels.byte_rings import RingReader, RingWriter
from jetfast.kernels.columns import ReceivedColumns, SentColumns, pooled_memory

logger = logging.getLogger("jetfast")

PAYLOAD_BYTES_MAX = 1 << 32
"""A frame that announces more is not believed."""

WAITING_BYTES_MAX = 16 * 1024 * 1024
"""Bytes that wait for a peer at most (and one batch more), unless less is asked for; a ring to it is a part of them."""

RING_BYTES_MAX = 4 * 1024 * 1024
RING_BYTES_MIN = 64 * 1024
"""Where less may wait there is no ring."""

_HEAD = struct.Struct("<BBHIIIQq")
_FIRST_ROW = struct.Struct("<q")
_SCHEMA_BYTES = struct.Struct("<Q")
_SCHEMAS_MAX = 8
_TOLD = 128
"""Added to the number of a schema that is told in this frame."""
_ROWS, _WATERMARK, _IDLE, _ACTIVE, _DONE, _BARRIER, _CREDIT, _RING = range(1, 9)
_SIGNALS = {_IDLE: IDLE, _ACTIVE: ACTIVE, _DONE: DONE}
_KINDS = {signal: kind for kind, signal in _SIGNALS.items()}
_BUFFERS_PER_CALL = 512  # IOV_MAX is 1024 on Linux and macOS
_CLOSE_TIMEOUT_S = 2.0
_RING_FULL_S = 0.000_5
"""How long the writing thread waits before it looks again whether a ring has room."""

Buffer = bytes | memoryview


class _EncodedRows(NamedTuple):
    """Rows as they came: decoded by the thread that takes them."""

    payload: memoryview
    origin_bytes: int
    flag: int


class _ArrivingRows(NamedTuple):
    """Rows whose head has come."""

    receiver: "SocketReceiver"
    rows: _EncodedRows
    row_count: int


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
        return self._peer(peer).open_sender(channel, schema)

    def receiver(self, peer: int, channel: ChannelId, schema: pa.Schema, capacity: int) -> "SocketReceiver":
        """Open the downstream end of a channel from member `peer`, and grant `capacity` items to it."""
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1, got {capacity}")
        return self._peer(peer).open_receiver(channel, schema, capacity)

    def statistics(self) -> list[PeerStatistics]:
        """One entry per peer, by index; bytes are those of frames, heads and credits included."""
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

    __slots__ = ("_numbers", "_peer", "_schemas", "_sent", "channel", "granted", "used")

    def __init__(self, peer: "_Peer", channel: ChannelId, schema: pa.Schema) -> None:
        self._peer = peer
        self._sent = SentColumns()
        self._schemas = [schema]
        """Those that the other end knows, by number."""
        self._numbers: dict[int, tuple[pa.Schema, int]] = {}
        """By the identity of a schema, which is kept: the number of the one with its types."""
        self.channel = channel
        self.granted = 0
        self.used = 0

    def offer(self, item: Item) -> bool:
        """Hand over an item; False when there is no credit now. Raises TransportError if the peer is gone."""
        peer = self._peer
        if peer.lost is not None:
            raise peer.lost_error()
        if self.granted == self.used:
            peer.take_over()
            if self.granted == self.used:
                return False
        if isinstance(item, Batch):
            known = self._numbers.get(id(item.schema))
            number = self._number(item.schema) if known is None else known[1]
            is_told = number < len(self._schemas)
            told = b"" if is_told else _encode_schema(item.schema)
            origin = _encode_origin(item.origin)
            buffers: list[Buffer] = [told, *item.encode(self._sent), origin]
            byte_count = sum(map(_byte_count, buffers))
            flag = number if is_told else _TOLD + number
            head = _HEAD.pack(_ROWS, flag, len(origin), *self.channel, byte_count, item.row_count)
            taken = peer.enqueue([head, *buffers], _HEAD.size + byte_count, item.row_count)
            if taken:  # else it is encoded anew
                self._sent.settle()
                if not is_told:
                    self._schemas.append(item.schema)
        else:
            taken = peer.enqueue([_control_frame(self.channel, item)], _HEAD.size, 0)
        if taken:
            self.used += 1
        return taken

    def _number(self, schema: pa.Schema) -> int:
        """The number of the schema with these types; the next one, if it has not been told yet."""
        types = schema.types
        number = next((n for n, known in enumerate(self._schemas) if known.types == types), len(self._schemas))
        if number == _SCHEMAS_MAX:
            raise ProtocolError(f"{self.channel} has carried {_SCHEMAS_MAX} schemas; this is one more: {schema}")
        if number < len(self._schemas):
            if len(self._numbers) >= _SCHEMAS_MAX:
                self._numbers.clear()
            self._numbers[id(schema)] = schema, number
        return number


class SocketReceiver:
    """The downstream end: whoever reads frames appends, the processor's thread takes."""

    __slots__ = ("_arrived", "_grant_at", "_peer", "_received", "_schemas", "_taken", "capacity", "channel")

    def __init__(self, peer: "_Peer", channel: ChannelId, schema: pa.Schema, capacity: int) -> None:
        self._peer = peer
        self._received = ReceivedColumns()
        self._schemas = [schema]
        self._arrived: deque[ControlItem | _EncodedRows] = deque()
        self._taken = 0
        self._grant_at = (capacity + 1) // 2
        self.channel = channel
        self.capacity = capacity

    def poll(self) -> Item | None:
        """Take the next item, or None. Raises TransportError once the peer is gone and all that arrived is taken."""
        arrived = self._arrived
        if not arrived:
            peer = self._peer
            lost = peer.lost  # asked first: what the peer sent before it went is found then
            peer.take_over(wait=lost is not None)
            if not arrived:
                if lost is None:
                    return None
                raise peer.lost_error()
        item = arrived.popleft()
        self._taken += 1
        if self._taken >= self._grant_at:
            self._peer.grant(self.channel, self._taken)
            self._taken = 0
        return self._decode(item) if isinstance(item, _EncodedRows) else item

    def arrive(self, item: "ControlItem | _EncodedRows") -> None:
        """Called by whoever reads frames. The peer must not send more than it was granted."""
        if len(self._arrived) >= self.capacity:
            raise ProtocolError(f"member {self._peer.index} sent more than {self.capacity} items on {self.channel}")
        self._arrived.append(item)

    def _decode(self, rows: _EncodedRows) -> Batch:
        """The batch. Each in its order, for what it says holds for those after it."""
        payload, origin_bytes, number = rows
        start = 0
        if number >= _TOLD:
            number -= _TOLD
            if not 1 <= number == len(self._schemas) < _SCHEMAS_MAX:
                raise ValueError(f"the message tells schema {number}, where {len(self._schemas)} are known")
            schema, start = _decode_schema(payload)
            self._schemas.append(schema)
        elif number >= len(self._schemas):
            raise ValueError(f"the message is of schema {number}, where {len(self._schemas)} are known")
        end = len(payload) - origin_bytes
        batch = Batch.decode(self._schemas[number], payload[start:end], self._received)
        if not origin_bytes:
            return batch
        origin = bytes(payload[end:])
        (first_row,) = _FIRST_ROW.unpack_from(origin)
        return batch.with_origin(origin[_FIRST_ROW.size :].decode(errors="surrogateescape"), first_row)


class _Peer:
    """The connection to one peer: its threads, its rings if it is on this host, and the ends that use it."""

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
        self._ring_out = self._share_ring(waiting_bytes_max // 2)
        self._ring_in: RingReader | None = None
        self._reading = threading.Lock()  # guards the three below, and reading from the ring
        self._head = bytearray(_HEAD.size)
        self._filled = 0
        """Bytes of the frame that is being read from the ring that are there already: of its head, then of its rows."""
        self._arriving: _ArrivingRows | None = None
        # Guards writing into the ring, and what the writing thread takes: frames, grants and their sums. Held while
        # bytes are copied into the ring, never during I/O.
        self._changed = threading.Condition()
        self._frames: deque[tuple[list[Buffer], int]] = deque()
        self._waiting_bytes = 0
        if self._ring_out is not None:
            waiting_bytes_max -= self._ring_out.capacity
        self._waiting_bytes_max = max(waiting_bytes_max, 1)  # one batch may always wait
        self._grants: dict[ChannelId, int] = {}
        self._early_credit: dict[ChannelId, int] = {}
        self._writing = False
        """The writing thread has taken something, and not written all of it yet."""
        self._ended = False
        self._rows_sent = self._rows_received = self._bytes_sent = self._bytes_received = 0
        self._threads = [
            threading.Thread(target=run, name=f"jetfast-{what}-{member}-{index}", daemon=True)
            for what, run in (("read", self._read), ("write", self._write))
        ]
        for thread in self._threads:
            thread.start()

    def _share_ring(self, bytes_max: int) -> RingWriter | None:
        """Make a ring to the peer and hand it over, if it is on this host."""
        if bytes_max < RING_BYTES_MIN or not can_share(self._socket):
            return None
        capacity = 1 << (min(bytes_max, RING_BYTES_MAX).bit_length() - 1)
        try:
            ring, descriptor = make_ring(capacity)
        except OSError as error:
            logger.warning("rows go to member %d over a socket: no memory to share: %s", self.index, error)
            return None
        try:
            socket.send_fds(self._socket, [_HEAD.pack(_RING, 0, 0, 0, 0, 0, 0, 0)], [descriptor])
        except OSError:
            logger.debug("member %d has gone already", self.index)  # the reading thread tells of it
        finally:
            os.close(descriptor)
        return ring

    def open_sender(self, channel: ChannelId, schema: pa.Schema) -> SocketSender:
        sender = SocketSender(self, channel, schema)
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
        self.take_over()
        return PeerStatistics(self.index, self._rows_sent, self._rows_received, self._bytes_sent, self._bytes_received)

    def lost_error(self) -> TransportError:
        return TransportError(f"the connection to member {self.index} is lost: {self.lost}")

    def enqueue(self, frame: list[Buffer], byte_count: int, row_count: int) -> bool:
        """Put a frame into the ring, or give it to the writing thread; False if too many bytes wait already."""
        ring = self._ring_out
        with self._changed:
            if self._ended:
                raise TransportError(f"the connection to member {self.index} was closed here")
            if ring is not None and byte_count <= ring.capacity // 2:
                if not self._put_at_once(ring, frame):
                    return False
            elif self._waiting_bytes >= self._waiting_bytes_max:
                return False
            else:
                self._frames.append((frame, byte_count))
                self._waiting_bytes += byte_count
                self._changed.notify()
            # Counted when it is handed over, as rows are: a member that has just finished reports both or neither.
            self._bytes_sent += byte_count
            self._rows_sent += row_count
        return True

    def grant(self, channel: ChannelId, items: int) -> None:
        """Let the peer send that many items more. Grants that wait are added up: they cannot pile up."""
        ring = self._ring_out
        with self._changed:
            if ring is not None and self._put_at_once(ring, [_credit_frame(channel, items)]):
                self._bytes_sent += _HEAD.size
                return
            self._grants[channel] = self._grants.get(channel, 0) + items
            self._changed.notify()

    def _put_at_once(self, ring: RingWriter, frame: list[Buffer]) -> bool:
        """Put a whole frame into the ring; False if it has no room, or the writing thread has something to write first.

        Called with the lock.
        """
        if self._frames or self._grants or self._writing:
            return False
        try:
            return ring.offer(frame)
        except ValueError as error:
            self._drop(str(error))
            raise self.lost_error() from None

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

    def _drop(self, reason: str) -> None:
        """End the connection to a peer that sends garbage; it must notice, too."""
        self._lose(reason)
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def _write(self) -> None:
        try:
            while True:
                with self._changed:
                    while not (self._frames or self._grants or self._ended or self.lost):
                        self._changed.wait()
                    if self.lost is not None:
                        return
                    buffers: list[Buffer] = [_credit_frame(*grant) for grant in self._grants.items()]
                    self._grants.clear()
                    self._bytes_sent += sum(map(_byte_count, buffers))
                    taken_bytes = 0
                    while self._frames and len(buffers) < _BUFFERS_PER_CALL:
                        frame, byte_count = self._frames.popleft()
                        buffers += frame
                        taken_bytes += byte_count
                    if not buffers:
                        break  # ended, and all is sent
                    self._writing = True
                if self._ring_out is None:
                    self._send(buffers)
                else:
                    self._put_in_pieces(self._ring_out, buffers)
                with self._changed:
                    self._waiting_bytes -= taken_bytes
                    self._writing = False
            self._socket.shutdown(socket.SHUT_WR)
        except ValueError as error:
            self._drop(str(error))
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

    def _put_in_pieces(self, ring: RingWriter, buffers: list[Buffer]) -> None:
        """Write all buffers into the ring, as it has room; gives up if the peer is lost."""
        for buffer in buffers:
            start = 0
            while start < _byte_count(buffer):
                with self._changed:
                    if self.lost is not None:
                        return
                    written = ring.write_some(buffer, start)
                    if not written:
                        self._changed.wait(_RING_FULL_S)
                start += written

    def _read(self) -> None:
        head = bytearray(_HEAD.size)
        reason = "the other side ended it"
        try:
            more = self._receive_first(head) if can_share(self._socket) else self._receive_into(memoryview(head))
            while more:
                if self._ring_in is not None:
                    raise ProtocolError(f"member {self.index} sent a frame past its ring")
                arriving = self._take(*_HEAD.unpack(head))
                if arriving is not None:
                    payload = arriving.rows.payload
                    if len(payload) and not self._receive_into(payload):
                        raise ProtocolError(f"member {self.index} ended within a frame")
                    self._arrive(arriving)
                more = self._receive_into(memoryview(head))
        except (OSError, ProtocolError) as error:
            reason = str(error) or type(error).__name__
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)  # after garbage: the peer must notice too
        self._lose(self._write_failure or reason)

    def _receive_first(self, head: bytearray) -> bool:
        """Fill the head of the first frame from a peer of this host that is not about its ring; False at the end."""
        flags = socket.MSG_WAITALL | socket.MSG_CMSG_CLOEXEC
        received, descriptors, _, _ = socket.recv_fds(self._socket, _HEAD.size, 1, flags)
        try:
            if len(received) == _HEAD.size and received[0] == _RING and descriptors:
                self._ring_in = map_ring(descriptors[0])
                return self._receive_into(memoryview(head))
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        self._bytes_received += len(received)
        head[: len(received)] = received
        if 0 < len(received) < _HEAD.size:
            raise ProtocolError(f"member {self.index} ended within a frame")
        return bool(received)

    def take_over(self, wait: bool = False) -> None:
        """Hand each frame in the peer's ring to its channel. Any thread; if another is at it, wait for it or return."""
        ring = self._ring_in
        if ring is None or not self._reading.acquire(blocking=wait):
            return
        try:
            while self._take_next(ring):
                continue
        except (ProtocolError, ValueError) as error:
            self._drop(str(error))
        finally:
            self._reading.release()

    def _take_next(self, ring: RingReader) -> bool:
        """Read one frame from the ring; False if it is not all there yet."""
        arriving = self._arriving
        if arriving is None:
            self._filled += ring.read_some(self._head, self._filled)
            if self._filled < _HEAD.size:
                return False
            self._filled = 0
            self._bytes_received += _HEAD.size
            arriving = self._arriving = self._take(*_HEAD.unpack(self._head))
            if arriving is None:
                return True
        count = ring.read_some(arriving.rows.payload, self._filled)
        self._filled += count
        self._bytes_received += count
        if self._filled < len(arriving.rows.payload):
            return False
        self._filled = 0
        self._arriving = None
        self._arrive(arriving)
        return True

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
    ) -> _ArrivingRows | None:
        """Hand a frame to its channel; one with rows is returned, for the caller to fill their payload."""
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
            return None
        receiver = self._receivers.get(channel)
        if receiver is None:
            raise ProtocolError(f"member {self.index} sent an item on {channel}, which is not open")
        if kind == _ROWS:
            return _ArrivingRows(receiver, _EncodedRows(pooled_memory(byte_count), origin_bytes, flag), value)
        if kind == _WATERMARK:
            receiver.arrive(Watermark(value, min(flag, SAMPLES_PER_DELAY)))
        elif kind == _BARRIER:
            receiver.arrive(Barrier(value, bool(flag)))
        elif kind in _SIGNALS:
            receiver.arrive(_SIGNALS[kind])
        else:
            raise ProtocolError(f"member {self.index} sent a frame of unknown kind {kind}")
        return None

    def _arrive(self, arriving: _ArrivingRows) -> None:
        """Rows are there."""
        self._rows_received += arriving.row_count
        arriving.receiver.arrive(arriving.rows)

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


def _credit_frame(channel: ChannelId, items: int) -> bytes:
    return _HEAD.pack(_CREDIT, 0, 0, *channel, 0, items)


def _byte_count(buffer: Buffer) -> int:
    return buffer.nbytes if isinstance(buffer, memoryview) else len(buffer)


def _encode_origin(origin: tuple[str, int] | None) -> bytes:
    if origin is None:
        return b""
    partition, first_row = origin
    encoded = _FIRST_ROW.pack(first_row) + partition.encode(errors="surrogateescape")
    return encoded if len(encoded) < 1 << 16 else b""  # it is for messages only


def _encode_schema(schema: pa.Schema) -> bytes:
    """A schema as it is told: its length, itself, and what fills it up."""
    encoded = schema.serialize().to_pybytes()
    return b"".join((_SCHEMA_BYTES.pack(len(encoded)), encoded, bytes(-(_SCHEMA_BYTES.size + len(encoded)) % 64)))


def _decode_schema(payload: memoryview) -> tuple[pa.Schema, int]:
    """The schema that is told at the beginning of a payload, and where the rows begin. ValueError if there is none."""
    if len(payload) < _SCHEMA_BYTES.size:
        raise ValueError("the message ends before its schema does")
    (byte_count,) = _SCHEMA_BYTES.unpack_from(payload)
    end = _SCHEMA_BYTES.size + byte_count
    if end > len(payload):
        raise ValueError("the message ends before its schema does")
    try:
        return pa.ipc.read_schema(pa.py_buffer(payload[_SCHEMA_BYTES.size : end])), end + -end % 64
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"the message has no schema that can be read: {error}") from error


def _control_frame(channel: ChannelId, item: ControlItem) -> bytes:
    if isinstance(item, Watermark):
        return _HEAD.pack(_WATERMARK, item.held, 0, *channel, 0, item.value)
    if isinstance(item, Barrier):
        return _HEAD.pack(_BARRIER, int(item.terminal), 0, *channel, 0, item.snapshot_id)
    return _HEAD.pack(_KINDS[item], 0, 0, *channel, 0, 0)
