"""Reads files that know their columns and types, from any place in them: Parquet, and Arrow IPC as file and stream."""

from typing import Any

import pyarrow as pa

from jetfast.connectors.file_formats import FileRows, Place


class ParquetReader:
    """Place: (row, 0, 0, 0)."""

    def __init__(self, filesystem: Any, path: str, schema: pa.Schema, place: Place, batch_rows: int) -> None:
        import pyarrow.parquet as pq

        self.names = schema.names
        self.row = place[0]
        self.stream = filesystem.open_input_file(path)
        file = pq.ParquetFile(self.stream, buffer_size=1 << 20)  # pages as they are needed, not whole column chunks
        metadata = file.metadata
        group, first = 0, 0
        while group < metadata.num_row_groups and first + metadata.row_group(group).num_rows <= self.row:
            first += metadata.row_group(group).num_rows
            group += 1
        self.skip = self.row - first
        self.batches = file.iter_batches(
            batch_rows, row_groups=range(group, metadata.num_row_groups), columns=self.names, use_threads=False
        )

    def read(self) -> FileRows | None:
        for batch in self.batches:
            skipped = min(self.skip, batch.num_rows)
            self.skip -= skipped
            if batch.num_rows == skipped:
                continue
            first = self.row
            self.row += batch.num_rows - skipped
            return FileRows(batch.slice(skipped).select(self.names), (self.row, 0, 0, 0), first, [])
        return None

    def close(self) -> None:
        self.stream.close()


class IpcReader:
    """Files with a footer and streams. Place: (record batch, row in it, row, 0)."""

    def __init__(self, filesystem: Any, path: str, schema: pa.Schema, place: Place, batch_rows: int) -> None:
        self.names = schema.names
        self.batch_rows = batch_rows
        self.index, self.start, self.row, _ = place
        self.reader = open_ipc(filesystem, path)
        self.reader.skip(self.index)
        self.batch: pa.RecordBatch | None = None

    def read(self) -> FileRows | None:
        while True:
            if self.batch is None:
                self.batch = self.reader.next_batch()
                if self.batch is None:
                    return None
                self.batch = self.batch.select(self.names)
                # Arrow reads damaged offsets and codes without a word, and the kernels trust them.
                self.batch.validate(full=True)
            part = self.batch.slice(self.start, self.batch_rows)
            first = self.row
            self.row += part.num_rows
            self.start += part.num_rows
            if self.start >= self.batch.num_rows:
                self.index, self.start, self.batch = self.index + 1, 0, None
            if part.num_rows:
                return FileRows(part, (self.index, self.start, self.row, 0), first, [])

    def close(self) -> None:
        self.batch = None
        self.reader.close()


class IpcFile:
    """One Arrow IPC file or stream, batch by batch."""

    def __init__(self, stream: Any, reader: Any, is_stream: bool) -> None:
        self.stream = stream
        self.reader = reader
        self.is_stream = is_stream
        self.index = 0
        self.schema: pa.Schema = reader.schema

    def skip(self, count: int) -> None:
        if self.is_stream:
            for _ in range(count):
                self.reader.read_next_batch()
        self.index = count

    def next_batch(self) -> pa.RecordBatch | None:
        if self.is_stream:
            try:
                return self.reader.read_next_batch()
            except StopIteration:
                return None
        if self.index >= self.reader.num_record_batches:
            return None
        self.index += 1
        return self.reader.get_batch(self.index - 1)

    def close(self) -> None:
        self.stream.close()


def open_ipc(filesystem: Any, path: str) -> IpcFile:
    """Open by content: a file begins with ARROW1. A stream must bear its end mark, else a cut between two batches
    would pass.
    """
    from pyarrow import fs, ipc

    local = isinstance(filesystem, fs.LocalFileSystem)
    stream = filesystem.open_input_file(path)
    try:
        size = stream.size()
        if size == 0:
            raise ValueError("the file is empty (0 bytes)")
        if stream.read(6) == b"ARROW1":
            if local:  # mapped: a record batch may be as large as the file
                stream.close()
                stream = pa.memory_map(path)
            return IpcFile(stream, ipc.open_file(stream), False)
        stream.seek(max(0, size - 8))
        if stream.read(8) != b"\xff\xff\xff\xff\0\0\0\0":
            raise ValueError("the Arrow stream has no end mark: it is truncated, or its writer was not closed")
        stream.seek(0)
        return IpcFile(stream, ipc.open_stream(stream), True)
    except BaseException:
        stream.close()
        raise
