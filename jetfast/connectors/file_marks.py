"""By what a saved position knows its file again: how much was read, and checksums of its beginning and its end."""

import os
import struct
from hashlib import blake2b
from typing import Any, NamedTuple

from jetfast.kernels.checksums import crc32c

HEAD_BYTES = 4 << 10
TAIL_BYTES = 64 << 10
_STRUCT = struct.Struct("<qIIQQ")


class Marks(NamedTuple):
    """What is known of a file up to a place in it; of a file with a footer up to its end."""

    length: int
    """Bytes before the place; of compressed text as they are decompressed."""
    head: int
    """CRC-32C of the first HEAD_BYTES of them."""
    tail: int
    """CRC-32C of the last TAIL_BYTES of them."""
    etag: int = 0
    """Hash of the ETag or version that a store gives; 0: it gives none."""
    inode: int = 0
    """Of a local file. It only adds to a message: a file may be copied back."""

    def pack(self) -> bytes:
        return _STRUCT.pack(*self)

    @classmethod
    def unpack(cls, data: bytes) -> "Marks":
        return cls(*_STRUCT.unpack(data))


class Trail:
    """Follows a reader through a file and keeps what its marks need."""

    def __init__(self, identity: tuple[int, int]) -> None:
        self.identity = identity
        self.length = 0
        self.head = b""
        self.tail = b""

    def add(self, data: bytes) -> None:
        """Go behind some more bytes."""
        if len(self.head) < HEAD_BYTES:
            self.head += data[: HEAD_BYTES - len(self.head)]
        self.tail = data[-TAIL_BYTES:] if len(data) >= TAIL_BYTES else (self.tail + data)[-TAIL_BYTES:]
        self.length += len(data)

    def go_to(self, stream: Any, offset: int) -> None:
        """Go from the beginning of a stream to an offset, or to the end if that comes before."""
        if not stream.seekable() or offset <= HEAD_BYTES + TAIL_BYTES:
            while self.length < offset and (data := stream.read(min(offset - self.length, 1 << 20))):
                self.add(data)
            return
        self.add(stream.read(HEAD_BYTES))
        start = min(offset, stream.size()) - TAIL_BYTES
        if start > self.length:
            stream.seek(start)
            self.length = start
        while self.length < offset and (data := stream.read(offset - self.length)):
            self.add(data)

    def marks(self) -> Marks:
        return Marks(self.length, crc32c(self.head), crc32c(self.tail), *self.identity)


def identity_of(stream: Any, filesystem: Any, path: str) -> tuple[int, int]:
    """Return the hash of a file's ETag or version, and its inode; 0 for what its filesystem does not tell."""
    from pyarrow import fs

    if isinstance(filesystem, fs.LocalFileSystem):
        return 0, os.stat(path).st_ino
    try:
        told = {_text(key): value for key, value in (stream.metadata() or {}).items()}
    except (AttributeError, OSError, NotImplementedError):
        return 0, 0
    tags = [told[key] for key in ("VersionId", "ETag", "Generation") if told.get(key)]
    return (int.from_bytes(blake2b(b"\0".join(tags), digest_size=8).digest(), "little"), 0) if tags else (0, 0)


def _text(key: str | bytes) -> str:
    return key.decode() if isinstance(key, bytes) else key


def marks_of_whole(stream: Any, identity: tuple[int, int]) -> Marks:
    """Return the marks of a file with a footer, and leave the stream at its beginning. An ETag says it all."""
    length = stream.size()
    if identity[0]:
        return Marks(length, 0, 0, *identity)
    trail = Trail(identity)
    trail.go_to(stream, length)
    stream.seek(0)
    return trail.marks()


def find_change(saved: Marks, found: Marks, grows: bool) -> str | None:
    """Say how a file differs from the one that a position was saved for; None if it is the same up to there.

    grows : rows may have been appended
    """
    if saved.etag and saved.etag == found.etag:
        return None
    if found.length < saved.length and grows:
        change = f"it ends after {found.length} bytes, of which {saved.length} had been read"
    elif found.length != saved.length:
        change = f"it has {found.length} bytes, and had {saved.length}"
    elif found.head != saved.head:
        change = f"its first {HEAD_BYTES} bytes are others"
    elif found.tail != saved.tail:
        change = f"the {TAIL_BYTES} bytes before byte {saved.length} are others"
    elif not grows and saved.etag != found.etag:
        change = "its ETag or version is another one"
    else:
        return None
    if saved.inode and saved.inode != found.inode:
        change += "; another file has taken its place (its inode differs)"
    return change
