"""Items cross a socket in order, as they were, and never more of them than the receiver has room for."""

import decimal
import gc
import mmap
import os
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterator
from datetime import date, datetime, time, timedelta
from time import monotonic
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetfast.core.batch import Batch
from jetfast.core.items import ACTIVE, DONE, IDLE, Barrier, Item, Watermark
from jetfast.engine.shared_rings import make_ring
from jetfast.engine.socket_transport import SocketTransport
from jetfast.engine.transport import ChannelId, ReceivingEnd, SendingEnd
from jetfast.errors import ProtocolError, TransportError
from jetfast.kernels.byte_rings import RING_HEAD_BYTES, RingWriter

CHANNEL = ChannelId(3, 1, 2)
NUMBERS = pa.schema([("n", pa.int64())])
GIVE_UP_S = 20.0


def until(what: Callable[[], Any]) -> Any:
    """Call again and again until the result is true, and return it; other threads do the rest."""
    give_up = monotonic() + GIVE_UP_S
    while monotonic() < give_up:
        if result := what():
            return result
        os.sched_yield()  # lets go of the interpreter lock
    raise AssertionError("it did not come about")


def take(receiver: ReceivingEnd) -> Item:
    """The next item."""
    found: list[Item] = []

    def look() -> bool:
        item = receiver.poll()
        if item is not None:
            found.append(item)
        return bool(found)

    until(look)
    return found[0]


def give(sender: SendingEnd, item: Item) -> None:
    until(lambda: sender.offer(item))


def loss_told_to(sender: SendingEnd) -> str:
    """What `offer` says about a lost peer; empty while it says nothing."""
    try:
        sender.offer(IDLE)
    except TransportError as error:
        return str(error)
    return ""


def rows(*numbers: int) -> Batch:
    return Batch.from_arrow(pa.record_batch({"n": pa.array(numbers, pa.int64())}))


def numbers_of(item: Item) -> list[int]:
    assert isinstance(item, Batch)
    return item.to_arrow().column(0).to_pylist()


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        here = socket.create_connection(listener.getsockname())
        return here, listener.accept()[0]


class Pair:
    """Two members over a real socket, and one channel from member 0 to member 1."""

    def __init__(self, schema: pa.Schema = NUMBERS, capacity: int = 4, tcp: bool = False) -> None:
        here, there = tcp_pair() if tcp else socket.socketpair()
        self.zero = SocketTransport(0, {1: here})
        self.one = SocketTransport(1, {0: there})
        self.receiver = self.one.receiver(0, CHANNEL, schema, capacity)
        self.sender = self.zero.sender(1, CHANNEL, schema, capacity)

    def close(self) -> None:
        self.zero.close()
        self.one.close()


@pytest.fixture(params=[False, True], ids=["unix", "tcp"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    made = Pair(tcp=request.param)
    yield made
    made.close()


CONTROL_ITEMS = [Watermark(-(2**63)), Watermark(2**63 - 1), Barrier(1), Barrier(2**62, True), IDLE, ACTIVE, DONE]


@pytest.mark.parametrize("item", CONTROL_ITEMS, ids=repr)
def test_each_control_item_arrives_as_it_was(pair: Pair, item: Item) -> None:
    give(pair.sender, item)
    assert take(pair.receiver) == item
    assert pair.receiver.poll() is None


def columns_of_every_kind() -> dict[str, pa.Array]:
    moments = pa.array([datetime(2013, 1, 2, 3, 4, 5), None, datetime(1960, 1, 2), None, None], pa.timestamp("s"))
    cents = [decimal.Decimal("1.25"), None, decimal.Decimal("-9.75"), None, None]
    texts = ["a", None, "", "grüße", "x" * 100]
    return {
        "null": pa.nulls(5),
        "bool": pa.array([True, None, False, True, True]),
        **{f"int{bits}": pa.array([1, -1, None, 2 ** (bits - 1) - 1, 0], f"int{bits}") for bits in (8, 16, 32, 64)},
        **{f"uint{bits}": pa.array([1, 0, None, 2**bits - 1, 7], f"uint{bits}") for bits in (8, 16, 32, 64)},
        "float16": pa.array(np.array([1.5, -0.0, 2.0, np.inf, 0], "float16")),
        "float32": pa.array([1.5, -0.0, None, float("inf"), float("nan")], pa.float32()),
        "float64": pa.array([1.5, -0.0, None, float("inf"), float("nan")]),
        "decimal": pa.array(cents, pa.decimal128(20, 2)),
        "date": pa.array([date(1969, 12, 31), None, date(2013, 1, 1), None, None]),
        "time": pa.array([time(1, 2, 3), None, None, None, time(0)], pa.time64("us")),
        **{f"timestamp_{unit}": moments.cast(pa.timestamp(unit)) for unit in ("s", "ms", "us", "ns")},
        "zoned": moments.cast(pa.timestamp("us", "UTC")),
        "duration": pa.array([timedelta(seconds=-3), None, None, None, None], pa.duration("us")),
        "string": pa.array(texts),
        "large_string": pa.array(texts, pa.large_string()),
        "string_view": pa.array(texts, pa.string_view()),
        "binary": pa.array([b"a", None, b"", b"\x00", b"x" * 100]),
        "fixed": pa.array([b"abc", None, b"abd", b"\x00\x00\x00", b"xyz"], pa.binary(3)),
        "dictionary": pa.array(["a", None, "b", "a", "b"]).dictionary_encode(),
    }


COLUMNS = columns_of_every_kind()


@pytest.mark.parametrize("name", COLUMNS)
def test_rows_of_each_type_arrive_as_they_were(name: str) -> None:
    whole = pa.record_batch({"before": pa.array(range(5)), name: COLUMNS[name], "after": pa.array(list("vwxyz"))})
    batch = Batch.from_arrow(whole)
    pair = Pair(batch.schema)
    for part in (batch, batch.slice(1, 3), batch.slice(2, 0)):
        give(pair.sender, part)
        arrived = take(pair.receiver)
        assert isinstance(arrived, Batch)
        assert arrived.row_count == part.row_count
        assert_same(arrived.to_arrow(), part.to_arrow())
    pair.close()


def assert_same(one: pa.RecordBatch, other: pa.RecordBatch) -> None:
    one.validate(full=True)
    assert one.schema.equals(other.schema)
    for here, there in zip(one.columns, other.columns, strict=True):
        assert str(here.to_pylist()) == str(there.to_pylist())  # as text: NaN is equal to itself, -0.0 not to 0.0


def test_rows_of_other_schemas_than_the_channels_arrive_with_theirs(pair: Pair) -> None:
    codes = pa.array([0, 0], pa.int64())
    others = [
        pa.record_batch({"n": pa.array([0.5, None])}),
        pa.record_batch({"n": pa.DictionaryArray.from_arrays(codes, pa.array([7])), "text": pa.array(["a", None])}),
        pa.record_batch({"t": pa.array([1, 2], pa.timestamp("us", "UTC"))}),
    ]
    one, two, three = (Batch.from_arrow(other) for other in others)
    for batch in (one, rows(1), two, one, three, rows(2), two, three):
        give(pair.sender, batch)
        arrived = take(pair.receiver)
        assert isinstance(arrived, Batch)
        assert arrived.to_arrow().equals(batch.to_arrow())


def test_a_channel_carries_so_many_schemas(pair: Pair) -> None:
    kinds = [pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(), pa.float64()]
    batches = [Batch.from_arrow(pa.record_batch({"n": pa.array([1], kind)})) for kind in kinds]
    for batch in batches[:7]:
        give(pair.sender, batch)
        assert take(pair.receiver)
    until(lambda: pair.sender.offer(IDLE))
    with pytest.raises(ProtocolError, match="has carried 8 schemas"):
        until(lambda: pair.sender.offer(batches[7]))


@pytest.mark.parametrize("tcp", [False, True], ids=["ring", "tcp"])
def test_what_comes_again_is_sent_once_though_offers_are_refused(tcp: bool) -> None:
    """Little may wait, so that most offers are refused: what they would have told is told by a later one."""
    here, there = tcp_pair() if tcp else socket.socketpair()
    zero = SocketTransport(0, {1: here}, waiting_bytes_max=1 << 17)
    one = SocketTransport(1, {0: there})
    receiver = one.receiver(0, CHANNEL, NUMBERS, 8)
    sender = zero.sender(1, CHANNEL, NUMBERS, 8)
    kept = [rows(*range(start, start + 3000)).that_comes_again(["n"]) for start in range(3)]
    fresh = [Batch.from_arrow(pa.record_batch({"x": pa.array([float(n)] * 3000)})) for n in range(3)]
    waiting: deque[Batch] = deque([*kept, *fresh, kept[0].slice(1), *kept] * 10)
    wanted = list(waiting)
    arrived: list[Item] = []
    refused = 0

    def step() -> bool:
        nonlocal refused
        while waiting and sender.offer(waiting[0]):
            waiting.popleft()
        refused += bool(waiting)
        if (item := receiver.poll()) is not None:
            arrived.append(item)
        return len(arrived) == len(wanted)

    until(step)
    for found, batch in zip(arrived, wanted, strict=True):
        assert isinstance(found, Batch)
        assert found.to_arrow().equals(batch.to_arrow())
    assert refused > 0
    assert zero.statistics()[0].bytes_sent < 60 * 24_000  # of 100 batches
    zero.close()
    one.close()


BAD_SCHEMAS = {
    "of a schema that was not told": (3, b""),
    "that tells the schema of the channel": (128, b""),
    "that leaves a schema out": (130, b""),
    "without its schema": (129, b""),
    "with half a schema": (129, struct.pack("<Q", 10**6) + bytes(100)),
    "with noise for a schema": (129, struct.pack("<Q", 56) + b"\xff\x00\x00\x00" * 30),
    "with a schema of a wrong length": (129, struct.pack("<Q", 2**64 - 1) + bytes(100)),
    "with a schema and no rows": (129, struct.pack("<Q", 56) + bytes(56)),
}


@pytest.mark.parametrize("kind", BAD_SCHEMAS)
def test_rows_whose_schema_is_garbage_are_refused(kind: str) -> None:
    here, there = socket.socketpair()
    transport = SocketTransport(0, {1: here})
    receiver = transport.receiver(1, CHANNEL, NUMBERS, 4)
    flag, payload = BAD_SCHEMAS[kind]
    there.sendall(struct.pack("<BBHIIIQq", 1, flag, 0, *CHANNEL, len(payload), 1) + payload)
    with pytest.raises(ValueError, match=r"the message (tells|is of|ends before|has no) .*schema"):
        take(receiver)
    transport.close()
    there.close()


@pytest.mark.parametrize("origin", [None, ("", -1), ("flüge/\udcff.csv", 2**62), ("x" * 70_000, 0)])
def test_rows_keep_their_source_partition(pair: Pair, origin: tuple[str, int] | None) -> None:
    give(pair.sender, rows(1, 2) if origin is None else rows(1, 2).with_origin(*origin))
    arrived = take(pair.receiver)
    assert numbers_of(arrived) == [1, 2]
    assert isinstance(arrived, Batch)
    assert arrived.origin == (origin if origin is None or len(origin[0]) < 60_000 else None)


def test_rows_outlive_the_transport_they_came_over() -> None:
    pair = Pair()
    give(pair.sender, rows(1, 2, 3))
    arrived = take(pair.receiver)
    pair.close()
    assert numbers_of(arrived) == [1, 2, 3]


@pytest.mark.parametrize("capacity", [1, 2, 3, 16])
def test_no_more_than_capacity_waits_at_a_receiver_that_takes_nothing(capacity: int) -> None:
    pair = Pair(capacity=capacity)
    for number in range(capacity):
        give(pair.sender, rows(number))
    for _ in range(100):
        assert not pair.sender.offer(rows(-1))
    until(lambda: pair.one.statistics()[0].rows_received == capacity)
    for number in range(capacity):
        assert numbers_of(take(pair.receiver)) == [number]
    give(pair.sender, DONE)
    assert take(pair.receiver) is DONE
    pair.close()


def test_nothing_is_sent_before_the_receiver_is_open() -> None:
    here, there = socket.socketpair()
    zero, one = SocketTransport(0, {1: here}), SocketTransport(1, {0: there})
    sender = zero.sender(1, CHANNEL, NUMBERS, 4)
    assert not sender.offer(DONE)
    receiver = one.receiver(0, CHANNEL, NUMBERS, 4)
    give(sender, DONE)
    assert take(receiver) is DONE
    zero.close()
    one.close()


def test_credit_that_came_before_the_sender_was_opened_is_kept() -> None:
    here, there = socket.socketpair()
    one = SocketTransport(1, {0: there})
    receivers = [one.receiver(0, ChannelId(0, 0, index), NUMBERS, 4) for index in range(3)]
    zero = SocketTransport(0, {1: here})
    until(lambda: zero.statistics()[0].bytes_received == 3 * 32)
    for index, receiver in enumerate(receivers):
        give(zero.sender(1, ChannelId(0, 0, index), NUMBERS, 4), Watermark(index))
        assert take(receiver) == Watermark(index)
    zero.close()
    one.close()


@settings(max_examples=15)
@given(
    capacity=st.integers(1, 5),
    script=st.lists(st.one_of(st.integers(0, 3000).map(range), st.sampled_from(CONTROL_ITEMS)), max_size=40),
)
def test_items_keep_their_order_whatever_the_capacity(capacity: int, script: list[Any]) -> None:
    items: list[Item] = [rows(*step) if isinstance(step, range) else step for step in script]
    pair = Pair(capacity=capacity)
    sending = threading.Thread(target=lambda: [give(pair.sender, item) for item in items])
    sending.start()
    for item in items:
        arrived = take(pair.receiver)
        assert numbers_of(arrived) == numbers_of(item) if isinstance(item, Batch) else arrived == item
    sending.join()
    pair.close()


def test_three_members_talk_to_each_other_at_once() -> None:
    ends: dict[int, dict[int, socket.socket]] = {0: {}, 1: {}, 2: {}}
    for one, other in ((0, 1), (0, 2), (1, 2)):
        ends[one][other], ends[other][one] = socket.socketpair()
    members = [SocketTransport(member, ends[member]) for member in range(3)]
    ways = [(one, other) for one in range(3) for other in range(3) if one != other]
    receivers = {way: members[way[1]].receiver(way[0], ChannelId(0, *way), NUMBERS, 2) for way in ways}
    senders = {way: members[way[0]].sender(way[1], ChannelId(0, *way), NUMBERS, 2) for way in ways}

    arrived: dict[tuple[int, int], list[Item]] = {way: [] for way in ways}
    waiting = {way: [rows(number, *way) for number in range(20)] + [DONE] for way in ways}

    def all_ways_once() -> bool:
        for way in ways:
            if waiting[way] and senders[way].offer(waiting[way][0]):
                del waiting[way][0]
            if (item := receivers[way].poll()) is not None:
                arrived[way].append(item)
        return all(items[-1:] == [DONE] for items in arrived.values())

    until(all_ways_once)
    for way in ways:
        assert [numbers_of(item) for item in arrived[way][:-1]] == [[number, *way] for number in range(20)]
    for member in members:
        for statistics in member.statistics():
            assert (statistics.rows_sent, statistics.rows_received) == (60, 60)
            assert statistics.bytes_sent > 60 * 8
            assert statistics.bytes_received > 60 * 8
    for member in members:
        member.close()


@pytest.mark.parametrize("tcp", [False, True])
def test_a_large_batch_crosses_whole(tcp: bool) -> None:
    schema = pa.schema([("n", pa.int64()), ("text", pa.string())])
    pair = Pair(schema, tcp=tcp)
    batch = pa.record_batch([pa.array(np.arange(65536)), pa.array([str(n) * 10 for n in range(65536)])], schema=schema)
    for _ in range(3):
        give(pair.sender, Batch.from_arrow(batch))
    for _ in range(3):
        arrived = take(pair.receiver)
        assert isinstance(arrived, Batch)
        assert arrived.to_arrow().equals(batch)
    pair.close()


def test_what_arrived_before_the_peer_was_lost_is_given_then_the_loss_is_told() -> None:
    pair = Pair()
    give(pair.sender, rows(1))
    give(pair.sender, Watermark(5, 7))
    pair.zero.close()
    assert numbers_of(take(pair.receiver)) == [1]
    watermark = take(pair.receiver)
    assert (watermark.value, watermark.held) == (5, 7)
    with pytest.raises(TransportError, match="member 0 is lost: the other side ended it"):
        take(pair.receiver)
    pair.one.close()


def test_a_credit_that_finds_the_peer_gone_hides_nothing_that_had_arrived() -> None:
    for _ in range(50):  # the writing thread's broken pipe races with the reading thread
        pair = Pair(capacity=64)
        for number in range(40):
            give(pair.sender, rows(number))
        pair.zero.close()
        assert [number for _ in range(40) for number in numbers_of(take(pair.receiver))] == list(range(40))
        with pytest.raises(TransportError, match="member 0 is lost: the other side ended it"):
            take(pair.receiver)
        pair.one.close()


def test_offer_tells_that_the_peer_is_lost_even_without_credit(pair: Pair) -> None:
    pair.one.close()

    assert "member 1 is lost" in until(lambda: loss_told_to(pair.sender))


def test_close_sends_what_was_offered_and_leaves_no_thread() -> None:
    before = set(threading.enumerate())
    pair = Pair(capacity=16)
    give(pair.sender, rows(0))
    for number in range(1, 15):
        assert pair.sender.offer(rows(number))
    assert pair.sender.offer(DONE)
    pair.zero.close()
    for number in range(15):
        assert numbers_of(take(pair.receiver)) == [number]
    assert take(pair.receiver) is DONE
    pair.one.close()
    pair.zero.close()
    pair.one.close()
    assert set(threading.enumerate()) == before


def granted(there: socket.socket, here: socket.socket, items: int) -> tuple[SocketTransport, SendingEnd]:
    """A transport whose peer is the bare socket `there`, and a sender that it granted so many items."""
    transport = SocketTransport(0, {1: here}, waiting_bytes_max=1_000_000)
    sender = transport.sender(1, CHANNEL, NUMBERS, items)
    there.sendall(struct.pack("<BBHIIIQq", 7, 0, 0, *CHANNEL, 0, items))
    return transport, sender


def test_a_peer_that_reads_nothing_bounds_what_waits_and_does_not_hold_up_close(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("jetfast.engine.socket_transport._CLOSE_TIMEOUT_S", 0.01)
    here, there = socket.socketpair()
    transport, sender = granted(there, here, 1000)
    batch = Batch.from_arrow(pa.record_batch({"n": pa.array(np.arange(65536))}))
    give(sender, batch)
    taken = 1
    while sender.offer(batch):
        taken += 1
    assert taken <= 3  # of half a megabyte each: what waits is under the limit, or one batch over it
    transport.close()
    there.close()


def frame(
    kind: int, *, channel: ChannelId = CHANNEL, byte_count: int = 0, value: int = 0, origin_bytes: int = 0
) -> bytes:
    return struct.pack("<BBHIIIQq", kind, 0, origin_bytes, *channel, byte_count, value)


GARBAGE = {
    "noise": b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n",
    "unknown kind": frame(99),
    "channel that is not open": frame(2, channel=ChannelId(7, 7, 7)),
    "payload without end": frame(1, byte_count=2**60),
    "origin without payload": frame(1, origin_bytes=5),
    "watermark with payload": frame(2, byte_count=10),
    "more than was granted": frame(2) * 5,
}


def ring_to(there: socket.socket) -> RingWriter:
    """Hand a ring over a bare socket, as a peer does."""
    ring, descriptor = make_ring(1 << 16)
    socket.send_fds(there, [frame(8)], [descriptor])
    os.close(descriptor)
    return ring


@pytest.mark.parametrize("through_ring", [False, True], ids=["socket", "ring"])
@pytest.mark.parametrize("kind", GARBAGE)
def test_a_peer_that_sends_garbage_is_dropped_and_only_it(kind: str, through_ring: bool) -> None:
    (here, there), (good_here, good_there) = socket.socketpair(), socket.socketpair()
    transport = SocketTransport(0, {1: here, 2: good_here})
    good = SocketTransport(2, {0: good_there})
    transport.receiver(1, CHANNEL, NUMBERS, 4)
    sender = transport.sender(1, CHANNEL, NUMBERS, 4)
    good_receiver = transport.receiver(2, CHANNEL, NUMBERS, 4)
    good_sender = good.sender(0, CHANNEL, NUMBERS, 4)
    if through_ring:
        assert ring_to(there).offer([GARBAGE[kind]])
    else:
        there.sendall(GARBAGE[kind])
    assert "member 1" in until(lambda: loss_told_to(sender))
    there.settimeout(GIVE_UP_S)
    try:
        while there.recv(1000):
            pass  # the credit; then the end: the peer is told
    except ConnectionResetError:
        pass
    give(good_sender, rows(1))
    assert numbers_of(take(good_receiver)) == [1]
    transport.close()
    good.close()
    there.close()


def handed_over(there: socket.socket, descriptor: int, head: bytes) -> None:
    socket.send_fds(there, [head], [descriptor])
    os.close(descriptor)


def unsealed(size: int) -> int:
    descriptor = os.memfd_create("unsealed")
    os.ftruncate(descriptor, size)
    return descriptor


def spoilt() -> int:
    ring, descriptor = make_ring(1 << 16)
    mmap.mmap(descriptor, RING_HEAD_BYTES + ring.capacity)[:8] = struct.pack("<Q", 2**63)
    return descriptor


BAD_RINGS: dict[str, Callable[[socket.socket], None]] = {
    "memory that may shrink": lambda there: handed_over(there, unsealed(RING_HEAD_BYTES + 4096), frame(8)),
    "a file": lambda there: handed_over(there, os.open(__file__, os.O_RDONLY), frame(8)),
    "with half a head": lambda there: handed_over(there, make_ring(1 << 16)[1], frame(8)[:31]),
    "with a frame of another kind": lambda there: handed_over(there, make_ring(1 << 16)[1], frame(99)),
    "none": lambda there: there.sendall(frame(8)),
    "positions that do not fit": lambda there: handed_over(there, spoilt(), frame(8)),
    "a frame past it": lambda there: (ring_to(there), there.sendall(frame(2)))[-1],
}


@pytest.mark.parametrize("kind", BAD_RINGS)
def test_a_peer_that_hands_over_a_bad_ring_is_dropped(kind: str) -> None:
    here, there = socket.socketpair()
    transport = SocketTransport(0, {1: here})
    transport.receiver(1, CHANNEL, NUMBERS, 4)
    sender = transport.sender(1, CHANNEL, NUMBERS, 4)
    BAD_RINGS[kind](there)
    there.shutdown(socket.SHUT_WR)
    assert "member 1" in until(lambda: loss_told_to(sender))
    transport.close()
    there.close()


def test_a_peer_that_spoils_our_ring_is_dropped() -> None:
    here, there = socket.socketpair()
    transport, sender = granted(there, here, 1000)
    _, (descriptor,), _, _ = socket.recv_fds(there, 32, 1)
    memory = mmap.mmap(descriptor, os.fstat(descriptor).st_size)
    os.close(descriptor)
    give(sender, rows(1))
    memory[64:72] = struct.pack("<Q", 2**40)  # what it says to have taken

    def fill() -> str:
        try:
            while sender.offer(rows(*range(3000))):
                continue
        except TransportError as error:
            return str(error)
        return ""

    assert "spoilt" in until(fill)
    transport.close()
    there.close()


def test_what_a_peer_put_into_its_ring_before_it_was_killed_is_given() -> None:
    here, there = socket.socketpair()
    transport = SocketTransport(0, {1: here})
    receiver = transport.receiver(1, CHANNEL, NUMBERS, 4)
    ring = ring_to(there)
    whole = [bytes(piece) for piece in rows(7, 8).encode()]
    cut = rows(9).encode()
    assert ring.offer([frame(1, byte_count=sum(map(len, whole)), value=2), *whole])
    assert ring.offer([frame(1, byte_count=sum(len(piece) for piece in cut), value=1), bytes(cut[0])[:5]])
    there.close()
    assert numbers_of(take(receiver)) == [7, 8]
    with pytest.raises(TransportError, match="member 1 is lost"):
        take(receiver)
    transport.close()


def test_a_transport_leaves_no_descriptor_and_no_memory_behind() -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    def mapped() -> int:
        with open("/proc/self/maps") as maps:
            return sum("jetfast-ring" in line for line in maps)

    Pair().close()
    gc.collect()
    before = descriptors(), mapped()
    for _ in range(3):
        pair = Pair()
        give(pair.sender, rows(1))
        take(pair.receiver)
        assert mapped() > before[1]
        pair.close()
    del pair
    gc.collect()
    assert (descriptors(), mapped()) == before


def test_a_channel_is_opened_once_and_to_known_peers_only(pair: Pair) -> None:
    with pytest.raises(ProtocolError, match="opened twice"):
        pair.zero.sender(1, CHANNEL, NUMBERS, 4)
    with pytest.raises(ProtocolError, match="opened twice"):
        pair.one.receiver(0, CHANNEL, NUMBERS, 4)
    with pytest.raises(ProtocolError, match="no connection to member 7"):
        pair.zero.sender(7, CHANNEL, NUMBERS, 4)
    with pytest.raises(ValueError, match="at least 1"):
        pair.one.receiver(0, ChannelId(9, 9, 9), NUMBERS, 0)
