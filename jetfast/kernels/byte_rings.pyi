"""Types of byte_rings.pyx: a ring of bytes in memory that two processes map; one writes, the other reads."""

from collections.abc import Sequence

from typing_extensions import Buffer

RING_HEAD_BYTES: int

class RingWriter:
    """The writing end, in RING_HEAD_BYTES and a power of two of bytes; one thread at a time. Never waits.

    ValueError from any method: the other side has spoilt the memory.
    """

    def __init__(self, memory: Buffer) -> None: ...
    @property
    def capacity(self) -> int: ...
    def offer(self, pieces: Sequence[Buffer]) -> bool: ...  # all of them or none; False: no room now
    def write_some(self, piece: Buffer, start: int) -> int: ...  # how many bytes had room

class RingReader:
    """The reading end; one thread at a time. Never waits. ValueError as of RingWriter."""

    def __init__(self, memory: Buffer) -> None: ...
    @property
    def capacity(self) -> int: ...
    @property
    def readable(self) -> int: ...
    def read_some(self, buffer: Buffer, start: int) -> int: ...  # how many bytes were filled in
