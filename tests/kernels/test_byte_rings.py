"""Bytes leave a ring as they were put in, in order; the other side's mistakes are noticed."""

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetfast.kernels.byte_rings import RING_HEAD_BYTES, RingReader, RingWriter


def aligned(size: int) -> memoryview:
    """Zeros that start at a multiple of 64."""
    memory = np.zeros(size + 64, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + size].data


def ring(capacity: int) -> tuple[RingWriter, RingReader, memoryview]:
    memory = aligned(RING_HEAD_BYTES + capacity)
    return RingWriter(memory), RingReader(memory), memory


def read(reader: RingReader, count: int) -> bytes:
    buffer = bytearray(count)
    assert reader.read_some(buffer, 0) == count
    return bytes(buffer)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.booleans(), st.lists(st.binary(max_size=40), max_size=3), st.integers(0, 100))))
def test_what_is_read_is_what_was_written(steps: list[tuple[bool, list[bytes], int]]) -> None:
    writer, reader, _ = ring(64)
    written = taken = b""
    for whole, pieces, wanted in steps:
        offered = b"".join(pieces)
        free = 64 - len(written) + len(taken)
        if whole:
            assert writer.offer(list(pieces)) == (len(offered) <= free)
            written += offered if len(offered) <= free else b""
        else:
            start = len(offered) // 3
            count = writer.write_some(offered, start)
            assert count == min(free, len(offered) - start)
            written += offered[start : start + count]
        assert reader.readable == len(written) - len(taken)
        taken += read(reader, min(wanted, reader.readable))
        assert written.startswith(taken)


@pytest.mark.parametrize("size", [100, 40_000, 100_000])
def test_large_and_small_pieces_cross_whole(size: int) -> None:
    writer, reader, _ = ring(1 << 17)
    for turn in range(4):  # the later ones lie over the end of the memory
        piece = bytes((turn + index) % 251 for index in range(size))
        assert writer.offer([piece, memoryview(b"end")])
        assert read(reader, size + 3) == piece + b"end"


@pytest.mark.parametrize("size", [0, RING_HEAD_BYTES, RING_HEAD_BYTES + 32, RING_HEAD_BYTES + 96])
def test_memory_of_another_size_is_refused(size: int) -> None:
    for end in (RingWriter, RingReader):
        with pytest.raises(ValueError, match="a ring needs 4096 bytes and a power of two"):
            end(aligned(size))


def test_memory_that_is_not_aligned_or_not_writable_is_refused() -> None:
    with pytest.raises(ValueError, match="aligned"):
        RingReader(aligned(RING_HEAD_BYTES + 65)[1:])
    with pytest.raises(BufferError):
        RingReader(bytes(RING_HEAD_BYTES + 64))


@pytest.mark.parametrize("position", [65, 2**63, 2**64 - 1])
def test_positions_that_cannot_be_are_noticed(position: int) -> None:
    writer, reader, memory = ring(64)
    memory[:8] = struct.pack("<Q", position)
    with pytest.raises(ValueError, match="spoilt"):
        _ = reader.readable
    with pytest.raises(ValueError, match="spoilt"):
        reader.read_some(bytearray(1), 0)
    memory[64:72] = struct.pack("<Q", position)
    with pytest.raises(ValueError, match="spoilt"):
        writer.offer([bytes(65)])


def test_a_start_outside_of_the_buffer_is_refused() -> None:
    writer, reader, _ = ring(64)
    with pytest.raises(ValueError, match="start must be in"):
        writer.write_some(b"ab", 3)
    with pytest.raises(ValueError, match="start must be in"):
        reader.read_some(bytearray(2), -1)
