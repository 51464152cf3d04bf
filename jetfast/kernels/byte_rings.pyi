"""Types of byte_rings.pyx: a ring of bytes in memory that two processes map; one writes, the other reads."""

from collections.abc import Sequence

from typing_extensions import Buffer

RING_HEAD_BYTES: int

class RingEnd:
    """What both ends have: memory of RING_HEAD_BYTES and a power of two of bytes."""

    def __init__(self, memory: Buffer) -> None: ...
    @property
    def capacity(self) -> int: ...

class RingWriter(RingEnd):
    """The writing end; one thread at a time. Never waits.

    ValueError from any method: the other side has spoilt the memory.
    """

    def offer(self, pieces: Sequence[Buffer]) -> bool: ...  # all of them or none; False: no room now
    def write_some(self, piece: Buffer, start: int) -> int: ...  # how many bytes had room

class RingReader(RingEnd):
    """The reading end; one thread at a time. Never waits. ValueError as of RingWriter."""

    @property
    def readable(self) -> int: ...
    def read_some(self, buffer: Buffer, start: int) -> int: ...  # how many bytes were filled in
