"""State of processors as a snapshot store keeps it: an Arrow IPC stream for each kind, in pieces, not copied."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from jetfast.core.processor import StateBatch
from jetfast.engine.snapshot_store import Piece, StateEntry
from jetfast.errors import SnapshotDamaged
from jetfast.kernels.columns import pooled_memory

JOINED_BYTES = 1 << 16
"""Buffers below this size are copied, and become one piece with their neighbours."""


class PieceWriter:
    """What Arrow may write to: keeps large buffers as they are, for nobody changes them."""

    closed = False

    def __init__(self) -> None:
        self.pieces: list[Piece] = []
        self.small = bytearray()

    def write(self, data: Any) -> int:
        """Take in bytes or a pyarrow.Buffer."""
        view = memoryview(data).cast("B")
        if len(view) < JOINED_BYTES:
            self.small += view
        else:
            self.end_small()
            self.pieces.append(view)
        return len(view)

    def end_small(self) -> None:
        """What was copied so far is a piece."""
        if self.small:
            self.pieces.append(bytes(self.small))
            self.small.clear()

    def flush(self) -> None:
        """Nothing: Arrow calls it."""


def encode_state(processor: int, states: Iterable[StateBatch]) -> list[StateEntry]:
    """Return the state of one processor as entries, one for each kind. ValueError if the schemas of a kind differ."""
    by_kind: dict[str, list[StateBatch]] = {}
    for state in states:
        by_kind.setdefault(state.kind, []).append(state)
    return [_encode(processor, kind, batches) for kind, batches in by_kind.items()]


def _encode(processor: int, kind: str, states: Sequence[StateBatch]) -> StateEntry:
    schema, keys = states[0].rows.schema, states[0].keys
    for state in states:
        if state.rows.schema != schema:
            raise ValueError(f"state {kind!r} has batches of two schemas: {schema} and {state.rows.schema}")
        if state.keys != keys:
            raise ValueError(f"state {kind!r} goes by two sets of keys: {keys} and {state.keys}")
    sink = PieceWriter()
    with pa.ipc.new_stream(sink, schema) as writer:
        for state in states:
            writer.write_batch(state.rows)
    sink.end_small()
    return StateEntry(processor, kind, tuple(state.partition for state in states), keys, tuple(sink.pieces))


def decode_state(entry: StateEntry) -> Iterator[StateBatch]:
    """Give the batches of an entry; they share its memory. SnapshotDamaged if it is no state."""
    try:
        with pa.ipc.open_stream(pa.py_buffer(_joined(entry.pieces))) as reader:
            for partition, rows in zip(entry.partitions, reader, strict=True):
                yield StateBatch(partition, entry.kind, rows, entry.keys)
    except (pa.ArrowInvalid, ValueError, OSError) as error:
        raise SnapshotDamaged(f"state {entry.kind!r} of processor {entry.processor} cannot be read: {error}") from error


def _joined(pieces: Sequence[Piece]) -> Piece:
    """One buffer of all."""
    if len(pieces) == 1:
        return pieces[0]
    # A fresh page costs many times what is written to it.
    joined = pooled_memory(sum(map(len, pieces)))
    end = 0
    for piece in pieces:
        start, end = end, end + len(piece)
        joined[start:end] = piece
    return joined.toreadonly()
