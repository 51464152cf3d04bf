"""Checks what compressed Arrow IPC messages declare to take when they are decompressed, before Arrow does that.

Arrow allocates the length that stands before each compressed buffer, so 15 KB of a file may ask for any size.
Field numbers below are those of Message.fbs, File.fbs and Schema.fbs of the Arrow project.
"""

import struct
from typing import Any, Protocol

from jetfast.connectors.file_bounds import Bounds

_DICTIONARY_BATCH, _RECORD_BATCH = 2, 3  # of the union MessageHeader
_V4 = 3
_EXPERIMENTAL = b"ARROW:experimental_compression"
"""Arrow 0.17 wrote this key to the custom metadata of messages of version V4, instead of RecordBatch.compression."""
_BLOCK = struct.Struct("<qi4xq")  # of the footer: offset, bytes of the prefix and metadata, bytes of the body
_BUFFER = struct.Struct("<qq")  # of a record batch: offset in the body, length
_INT64 = struct.Struct("<q")
_INT32 = struct.Struct("<i")
_UINT32 = struct.Struct("<I")
_UINT16 = struct.Struct("<H")
_UINT8 = struct.Struct("<B")
_CONTINUATION = -1
_LENGTH_BYTES = 8  # before the data of a compressed buffer


class Table:
    """A table of a flatbuffer. Its first four bytes lead back to a vtable, which holds the offset of each field."""

    def __init__(self, data: memoryview, start: int) -> None:
        self.data = data
        self.start = start
        self.vtable = start - _INT32.unpack_from(data, start)[0]
        _check(self.vtable >= 0)  # struct counts negative positions from the end
        self.vtable_size = _UINT16.unpack_from(data, self.vtable)[0]

    @classmethod
    def root(cls, data: memoryview) -> "Table":
        return cls(data, _UINT32.unpack_from(data, 0)[0])

    def position(self, field: int) -> int:
        """Return where a field is, 0 if it is absent."""
        slot = 4 + 2 * field
        if slot >= self.vtable_size:
            return 0
        offset = _UINT16.unpack_from(self.data, self.vtable + slot)[0]
        return self.start + offset if offset else 0

    def number(self, field: int, layout: struct.Struct) -> int:
        position = self.position(field)
        return layout.unpack_from(self.data, position)[0] if position else 0

    def table(self, field: int) -> "Table":
        return Table(self.data, self._target(field))

    def structs(self, field: int, size: int) -> memoryview:
        """Return the bytes of a vector of structs."""
        if not self.position(field):
            return self.data[:0]
        start = self._target(field)
        end = start + 4 + size * _UINT32.unpack_from(self.data, start)[0]
        _check(end <= len(self.data))
        return self.data[start + 4 : end]

    def _target(self, field: int) -> int:
        position = self.position(field)
        _check(position > 0)
        target: int = position + _UINT32.unpack_from(self.data, position)[0]
        return target


class Bytes(Protocol):
    """What messages are checked in."""

    size: int

    def fetch(self, offset: int, length: int) -> memoryview:
        """Return some bytes. Raises ValueError if they are beyond the file."""

    def keep(self, offset: int, length: int) -> memoryview:
        """Return the bytes of a message that Arrow reads next."""

    def forget(self) -> None:
        """Arrow has read what was kept."""

    def close(self) -> None: ...


class MappedBytes:
    """A local file. Arrow reads it by itself."""

    def __init__(self, mapped: Any) -> None:
        self.mapped = mapped
        self.size = int(mapped.size())
        mapped.seek(0)
        self.data = memoryview(mapped.read_buffer())
        mapped.seek(0)

    def fetch(self, offset: int, length: int) -> memoryview:
        _check(0 <= offset <= self.size and 0 <= length <= self.size - offset)
        return self.data[offset : offset + length]

    keep = fetch

    def forget(self) -> None: ...

    def close(self) -> None:
        self.data = self.data[:0]
        self.mapped.close()


class MessageFile:
    """A file in a store, which Arrow reads through `pa.PythonFile`. It keeps the messages that were checked last, so
    that Arrow decodes them and the store is asked for them once.
    """

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.size = int(stream.size())
        self.offset = 0
        self.kept: list[tuple[int, Any]] = []

    def fetch(self, offset: int, length: int) -> memoryview:
        return memoryview(self._read(offset, length))

    def keep(self, offset: int, length: int) -> memoryview:
        self.kept.append((offset, self._read(offset, length)))
        return memoryview(self.kept[-1][1])

    def forget(self) -> None:
        self.kept = []

    def _read(self, offset: int, length: int) -> Any:
        _check(0 <= offset <= self.size and 0 <= length <= self.size - offset)
        self.stream.seek(offset)
        found = self.stream.read_buffer(length)
        _check(len(found) == length)
        return found

    # What pa.PythonFile calls

    def read_buffer(self, length: int) -> Any:
        offset, length = self.offset, max(0, min(length, self.size - self.offset))
        self.offset += length
        for start, kept in self.kept:
            if start <= offset and offset + length <= start + len(kept):
                return kept.slice(offset - start, length)
        return self._read(offset, length)

    def read(self, length: int) -> Any:
        return self.read_buffer(length)

    def seek(self, offset: int, whence: int = 0) -> None:
        self.offset = offset if whence == 0 else offset + (self.offset if whence == 1 else self.size)

    def tell(self) -> int:
        return self.offset

    @property
    def closed(self) -> bool:
        return bool(self.stream.closed)

    def close(self) -> None:
        self.kept = []
        self.stream.close()


class MessageChecker:
    """Checks the messages of a file in the order in which Arrow reads them."""

    def __init__(self, file: Bytes, is_stream: bool, bounds: Bounds) -> None:
        self.file = file
        self.limit = bounds.batch_bytes
        self.offset = 0
        self.dictionaries: dict[int, int] = {}
        """Bytes of each dictionary that Arrow holds, by its id."""
        self.dictionary_bytes = 0
        self.dictionary_count = 0
        self.blocks: memoryview | None = None
        """Of record batches in a file with a footer; None in a stream."""
        self.dictionary_blocks = memoryview(b"")
        """Of dictionary batches that were not checked yet."""
        if not is_stream:
            self._read_footer()

    def check(self, index: int) -> None:
        """Check a record batch and the dictionaries that Arrow reads before it. Streams are checked batch by batch.

        Raises ValueError if it declares more bytes than the bounds allow, or a length that cannot be.
        """
        self.file.forget()
        try:
            if self.blocks is None:
                while self._check_next(index):
                    pass
                return
            for block in _BLOCK.iter_unpack(self.dictionary_blocks):
                self._check_block(block, index)
            self.dictionary_blocks = self.dictionary_blocks[:0]
            self._check_block(_BLOCK.unpack_from(self.blocks, index * _BLOCK.size), index)
        except (struct.error, _DamageError) as error:
            raise ValueError(
                f"the metadata of record batch {index}, or of a dictionary before it, are damaged: write the file again"
            ) from error

    def _read_footer(self) -> None:
        """The file ends with the footer, its length (int32) and ARROW1."""
        try:
            length = _INT32.unpack_from(self.file.fetch(self.file.size - 10, 4))[0]
            footer = Table.root(self.file.fetch(self.file.size - 10 - length, length))
            self.dictionary_blocks = footer.structs(2, _BLOCK.size)
            self.blocks = footer.structs(3, _BLOCK.size)
        except (struct.error, _DamageError) as error:
            raise ValueError("the footer is damaged: write the file again") from error

    def _check_block(self, block: tuple[Any, ...], index: int) -> None:
        offset, head, body = block
        _check(head >= 8 and body >= 0)
        data = self.file.keep(offset, head + body)
        prefix, length = _prefix(data)
        _check(prefix + length == head)
        self._check_message(data[prefix:head], data[head:], index)

    def _check_next(self, index: int) -> bool:
        """Check the next message of a stream. Return whether a record batch is still to come."""
        if self.file.size - self.offset < 8:
            return False
        prefix, length = _prefix(self.file.fetch(self.offset, 8))
        if length == 0:  # the end mark
            return False
        body = Table.root(self.file.fetch(self.offset + prefix, length)).number(3, _INT64)
        head = prefix + length
        _check(body >= 0)
        data = self.file.keep(self.offset, head + body)
        self.offset += head + body
        return self._check_message(data[prefix:head], data[head:], index) != _RECORD_BATCH

    def _check_message(self, metadata: memoryview, body: memoryview, index: int) -> int:
        """Return the type of the message."""
        message = Table.root(metadata)
        kind = message.number(1, _UINT8)
        if kind not in (_DICTIONARY_BATCH, _RECORD_BATCH):
            return kind
        header = message.table(2)
        batch = header if kind == _RECORD_BATCH else header.table(1)
        taken = 0
        if batch.position(3) or (message.number(0, _UINT16) == _V4 and _EXPERIMENTAL in bytes(metadata)):
            length = message.number(3, _INT64)
            _check(0 <= length <= len(body))
            what = f"record batch {index}" if kind == _RECORD_BATCH else f"dictionary batch {self.dictionary_count}"
            taken = _declared_bytes(batch.structs(2, _BUFFER.size), body[:length], what)
            if kind == _RECORD_BATCH:
                self._check_bytes(taken, f"{what} takes {taken} bytes when it is decompressed")
        if kind == _DICTIONARY_BATCH:
            self._check_dictionary(header.number(0, _INT64), taken, bool(header.number(2, _UINT8)))
        return kind

    def _check_dictionary(self, number: int, taken: int, is_delta: bool) -> None:
        """Arrow holds all dictionaries at once. A delta adds to its dictionary, any other batch replaces it."""
        if not is_delta:
            self.dictionary_bytes -= self.dictionaries.get(number, 0)
            self.dictionaries[number] = 0
        self.dictionaries[number] = self.dictionaries.get(number, 0) + taken
        self.dictionary_bytes += taken
        held = self.dictionary_bytes
        self._check_bytes(
            held, f"the dictionaries up to dictionary batch {self.dictionary_count} take {held} bytes decompressed"
        )
        self.dictionary_count += 1

    def _check_bytes(self, taken: int, what: str) -> None:
        if taken > self.limit:
            raise ValueError(
                f"{what}, more than {self.limit}; batch_size= of jf.files says how many may be decoded at once"
            )


def _declared_bytes(buffers: memoryview, body: memoryview, what: str) -> int:
    """Return the sum of the lengths that compressed buffers declare. -1 declares that a buffer is not compressed."""
    size, taken = len(body), 0
    for offset, length in _BUFFER.iter_unpack(buffers):
        if length == 0:
            continue
        if offset < 0 or length < _LENGTH_BYTES or offset + length > size:
            raise _DamageError
        declared = _INT64.unpack_from(body, offset)[0]
        if declared < -1:
            raise ValueError(f"{what} is damaged: a buffer declares {declared} bytes. Write the file again")
        taken += max(declared, 0)
    return taken


def _prefix(data: memoryview) -> tuple[int, int]:
    """Return the length of the prefix of a message, and that of its metadata. Before Arrow 0.15 it had no -1."""
    first = _INT32.unpack_from(data, 0)[0]
    prefix, length = (8, _INT32.unpack_from(data, 4)[0]) if first == _CONTINUATION else (4, first)
    _check(length >= 0)
    return prefix, length


class _DamageError(ValueError):
    """A length or an offset is beyond the bytes that it is about."""


def _check(fits: bool) -> None:
    if not fits:
        raise _DamageError
