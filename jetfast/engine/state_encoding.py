"""State of processors as a snapshot store keeps it: one Arrow IPC stream for each kind, a record batch a partition."""

from collections.abc import Iterable, Iterator

import pyarrow as pa

from jetfast.core.processor import StateBatch
from jetfast.engine.snapshot_store import StateEntry
from jetfast.errors import SnapshotDamaged
from jetfast.kernels.columns import pooled_memory


def encode_state(processor: int, states: Iterable[StateBatch]) -> list[StateEntry]:
    """Return the state of one processor as entries, one for each kind. ValueError if the schemas of a kind differ."""
    by_kind: dict[str, list[StateBatch]] = {}
    for state in states:
        by_kind.setdefault(state.kind, []).append(state)
    return [StateEntry(processor, kind, *encode_batches(kind, batches)) for kind, batches in by_kind.items()]


def encode_batches(kind: str, batches: list[StateBatch]) -> tuple[tuple[int, ...], memoryview]:
    """Return the partitions of batches, and their rows as one stream, in memory that is taken once for all of it."""
    schema = batches[0].rows.schema
    for state in batches:
        if state.rows.schema != schema:
            raise ValueError(f"state {kind!r} has batches of two schemas: {schema} and {state.rows.schema}")
    measured = pa.MockOutputStream()
    write_stream(measured, schema, batches)
    # A fresh page costs many times what is written to it, and there are as many at each snapshot.
    stream = pooled_memory(measured.size())
    write_stream(pa.FixedSizeBufferWriter(pa.py_buffer(stream)), schema, batches)
    return tuple(state.partition for state in batches), stream.toreadonly()


def write_stream(sink: pa.NativeFile, schema: pa.Schema, batches: list[StateBatch]) -> None:
    with pa.ipc.new_stream(sink, schema) as writer:
        for state in batches:
            writer.write_batch(state.rows)


def decode_state(entry: StateEntry) -> Iterator[StateBatch]:
    """Give the batches of an entry; they share its memory. SnapshotDamaged if it is no state."""
    try:
        with pa.ipc.open_stream(entry.rows) as reader:
            for partition, rows in zip(entry.partitions, reader, strict=True):
                yield StateBatch(partition, entry.kind, rows)
    except (pa.ArrowInvalid, ValueError, OSError) as error:
        raise SnapshotDamaged(f"state {entry.kind!r} of processor {entry.processor} cannot be read: {error}") from error
