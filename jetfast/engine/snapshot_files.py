"""The bytes of snapshots in files: state, validation record, execution record, high-water mark.

    every file     "JETFAST" 0 | version u16 | kind u16 | partition count u32 | body
    record         length u32 | CRC of header and MessagePack u32 | MessagePack
    state          entry* | 0xFFFFFFFF u32 | entry count u32 | bytes of rows u64 | CRC of header and these three u32
    entry          length of head u32 | head as MessagePack | length of rows u64 | CRC u32 | rows

Integers are little-endian, CRCs are CRC-32C. A file that was torn has no end, or an end that does not fit; one that was
altered fails a CRC. `docs/exactly_once.md` says what users may rely on; a change of these bytes is a new version.
"""

import struct
from collections.abc import Iterator, Sequence
from enum import IntEnum

import msgspec

from jetfast.engine.snapshot_store import (
    NO_STATE,
    ExecutionRecord,
    HighWaterMark,
    Piece,
    StateEntry,
    StateTotals,
    ValidationRecord,
    decode_execution_record,
    decode_high_water_mark,
    decode_validation_record,
    encode_record,
    entry_checksum,
)
from jetfast.errors import SnapshotDamaged
from jetfast.kernels.checksums import crc32c

MAGIC = b"JETFAST\0"
ENCRYPTED_MAGIC = b"JETFASTE"
"""What files of `encrypted_blobs` begin with."""
VERSION = 2
_HEADER = struct.Struct("<8sHHI")
_RECORD = struct.Struct("<II")
_LENGTH = struct.Struct("<I")
_ROWS = struct.Struct("<QI")
_END = struct.Struct("<IIQ")
_END_MARK = 0xFFFFFFFF


class FileKind(IntEnum):
    """What a file holds."""

    STATE = 1
    VALIDATION = 2
    EXECUTION = 3
    MARK = 4


class _EntryHead(msgspec.Struct, frozen=True, array_like=True):
    processor: int
    kind: str
    partitions: tuple[int, ...]
    keys: tuple[str, ...]


_encode_head = msgspec.msgpack.Encoder().encode
_head_decoder = msgspec.msgpack.Decoder(_EntryHead)


def encode_state_file(
    vertex: str, entries: Sequence[StateEntry], partition_count: int
) -> tuple[list[Piece], StateTotals]:
    """Return the pieces of a file, in order, and its totals; rows are not copied."""
    header = _HEADER.pack(MAGIC, VERSION, FileKind.STATE, partition_count)
    pieces: list[Piece] = [header]
    totals = NO_STATE
    for entry in entries:
        head = _encode_head(_EntryHead(entry.processor, entry.kind, entry.partitions, entry.keys))
        own = StateTotals(1, entry.nbytes, entry_checksum(vertex, entry))
        pieces += (_LENGTH.pack(len(head)) + head + _ROWS.pack(own.nbytes, own.checksum), *entry.pieces)
        totals += own
    end = _END.pack(_END_MARK, totals.entries, totals.nbytes)
    return [*pieces, end + _LENGTH.pack(crc32c(header + end))], totals


def decode_state_file(vertex: str, data: bytes) -> Iterator[StateEntry]:
    """Yield the entries of a file. Raises SnapshotDamaged, which says where, for one that is torn or altered."""
    view = memoryview(data)
    _check_header(view, FileKind.STATE)
    offset = _HEADER.size
    count = nbytes = 0
    while True:
        start = offset
        (head_length,) = _unpack(_LENGTH, view, offset)
        if head_length == _END_MARK:
            end = _unpack(_END, view, offset)
            (checksum,) = _unpack(_LENGTH, view, offset + _END.size)
            expected = crc32c(view[offset : offset + _END.size], crc32c(view[: _HEADER.size]))
            if end[1:] != (count, nbytes) or checksum != expected:
                raise SnapshotDamaged(f"the end, at byte {offset}, does not fit {count} entries of {nbytes} bytes")
            if offset + _END.size + _LENGTH.size != len(view):
                raise SnapshotDamaged(f"there are bytes behind the end at byte {offset}")
            return
        offset += _LENGTH.size
        head = _slice(view, offset, head_length)
        offset += head_length
        rows_length, checksum = _unpack(_ROWS, view, offset)
        offset += _ROWS.size
        rows = _slice(view, offset, rows_length)
        offset += rows_length
        try:
            decoded = _head_decoder.decode(head)
        except (msgspec.MsgspecError, ValueError) as error:
            raise SnapshotDamaged(f"the entry at byte {start} cannot be read: {error}") from error
        entry = StateEntry(decoded.processor, decoded.kind, decoded.partitions, decoded.keys, (rows,))
        if entry_checksum(vertex, entry) != checksum:
            raise SnapshotDamaged(f"the entry at byte {start} was altered: its checksum does not fit")
        count += 1
        nbytes += rows_length
        yield entry


def encode_record_file(record: ExecutionRecord | ValidationRecord | HighWaterMark) -> bytes:
    """Return a whole file."""
    if isinstance(record, ValidationRecord):
        header = _HEADER.pack(MAGIC, VERSION, FileKind.VALIDATION, record.partition_count)
    else:
        kind = FileKind.EXECUTION if isinstance(record, ExecutionRecord) else FileKind.MARK
        header = _HEADER.pack(MAGIC, VERSION, kind, 0)
    body = encode_record(record)
    return header + _RECORD.pack(len(body), crc32c(header + body)) + body


def decode_validation_file(data: bytes) -> ValidationRecord:
    """Read a validation record. Raises SnapshotDamaged."""
    return decode_validation_record(_record_body(data, FileKind.VALIDATION))


def decode_execution_file(data: bytes) -> ExecutionRecord:
    """Read an execution record. Raises SnapshotDamaged."""
    return decode_execution_record(_record_body(data, FileKind.EXECUTION))


def decode_mark_file(data: bytes) -> HighWaterMark:
    """Read a high-water mark. Raises SnapshotDamaged."""
    return decode_high_water_mark(_record_body(data, FileKind.MARK))


def _record_body(data: bytes, kind: FileKind) -> bytes:
    view = memoryview(data)
    _check_header(view, kind)
    length, checksum = _unpack(_RECORD, view, _HEADER.size)
    body = bytes(_slice(view, _HEADER.size + _RECORD.size, length))
    if crc32c(body, crc32c(view[: _HEADER.size])) != checksum:
        raise SnapshotDamaged("the record was altered: its checksum does not fit")
    return body


def _check_header(view: memoryview, kind: FileKind) -> None:
    magic, version, found, _ = _HEADER.unpack(_slice(view, 0, _HEADER.size))
    if magic == ENCRYPTED_MAGIC:
        raise SnapshotDamaged("it is encrypted: open the store with jetfast.snapshots.encrypted(store, key)")
    if magic != MAGIC:
        raise SnapshotDamaged(f"it is no file of a snapshot: it begins with {magic!r}")
    if version != VERSION:
        raise SnapshotDamaged(
            f"it has format version {version}; this version of jetfast reads {VERSION}: go on with the one that wrote "
            "it, or run the job from the beginning with fresh=True"
        )
    if found != kind:
        raise SnapshotDamaged(f"it holds kind {found}, expected {kind.value} ({kind.name.lower()})")


def _unpack(layout: struct.Struct, view: memoryview, offset: int) -> tuple[int, ...]:
    return layout.unpack(_slice(view, offset, layout.size))


def _slice(view: memoryview, offset: int, length: int) -> memoryview:
    if offset + length > len(view):
        raise SnapshotDamaged(f"it ends after {len(view)} bytes, in the middle of what begins at byte {offset}")
    return view[offset : offset + length]
