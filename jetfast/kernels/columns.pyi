"""Types of columns.pyx: the engine's batch, and its doors to and from Arrow."""

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

class SentColumns:
    """What the receiver of a channel keeps, as its sender knows it: 64 columns at most, of 16 MB."""

    def settle(self) -> None: ...  # the message that was encoded last has left

class ReceivedColumns:
    """What a channel keeps since it comes again."""

class Batch:
    """Rows in columns: immutable, counted references to pooled memory or to foreign Arrow buffers (zero-copy)."""

    schema: pa.Schema
    row_count: int
    origin: tuple[str, int] | None
    # Source partition and number of the first row in it, for messages. slice, take, select and with_columns keep it.
    def __len__(self) -> int: ...
    @property
    def column_names(self) -> list[str]: ...
    @property
    def nbytes(self) -> int: ...  # bytes that these rows take (slices counted by their rows), for budgets
    @staticmethod
    def from_arrow(source: object) -> Batch: ...  # __arrow_c_array__ of a struct (RecordBatch), or ValueError
    @staticmethod
    def empty(schema: pa.Schema) -> Batch: ...
    def to_arrow(self) -> pa.RecordBatch: ...  # zero-copy
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...
    def __arrow_c_schema__(self) -> object: ...
    def with_origin(self, partition: str, first_row: int) -> Batch: ...  # zero-copy
    def slice(self, start: int, row_count: int | None = None) -> Batch: ...  # zero-copy
    def take(self, rows: npt.NDArray[np.int32]) -> Batch: ...  # rows in that order, into pooled memory
    def select(self, columns: Sequence[str], names: Sequence[str] | None = None) -> Batch: ...  # zero-copy, renames
    def with_columns(self, other: Batch) -> Batch: ...  # those of `other` replace columns or are appended; zero-copy
    def timestamps(self, column: str) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_] | None]: ...
    # microseconds (floored), and validity (None: none is null); date and timestamp columns. ValueError on overflow
    def that_comes_again(self, columns: Sequence[str]) -> Batch: ...  # the memory of these will be sent again
    # framed columns: a header, then the buffers; joined they are one message. What `sent` has is not sent again
    def encode(self, sent: SentColumns | None = None) -> list[memoryview]: ...
    @staticmethod  # zero-copy: keeps the message (a buffer) alive
    def decode(schema: pa.Schema, message: object, received: ReceivedColumns | None = None) -> Batch: ...

# any __arrow_c_stream__ or __arrow_c_array__ (Table, RecordBatchReader, polars): chunk by chunk, zero-copy slices
def batches_from_arrow(source: object, rows_max: int = 65536) -> Iterator[Batch]: ...

class BatchRun:
    """Batches of one schema that follow each other: an immutable sequence; each is made when it is asked for."""

    schema: pa.Schema
    row_count: int  # of all together
    origin: tuple[str, int] | None  # of the first batch
    @property
    def nbytes(self) -> int: ...  # of all together
    @staticmethod
    def of(items: Sequence[Batch | BatchRun]) -> BatchRun: ...  # one or more of one schema, or ValueError
    def __len__(self) -> int: ...  # batches
    def __getitem__(self, index: int) -> Batch: ...
    def __iter__(self) -> Iterator[Batch]: ...
    def with_origin(self, partition: str, first_row: int) -> BatchRun: ...  # zero-copy; batches are numbered through
    def slice(self, start: int, end: int | None = None) -> BatchRun: ...  # batches [start, end); zero-copy
    def take_sized(self, start: int, least_rows: int, most_rows: int, rows_max: int) -> BatchRun: ...
    # the batches from `start` on that have at least least_rows rows and at most most_rows, up to rows_max in all

# items[start] and the record batches with rows that follow it, all of one schema: about rows_max rows; zero-copy
def batches_with_origin(
    items: Sequence[object], start: int, rows_max: int, partition: str, first_row: int
) -> BatchRun: ...
def concatenate(batches: BatchRun | Sequence[Batch]) -> Batch: ...
def put_beside(schema: pa.Schema, batches: Sequence[Batch]) -> Batch: ...  # zero-copy; types must be those of schema

# "bytes_in_use", "bytes_pooled", "allocations" (from the system), "reuses"
def arena_statistics() -> dict[str, int]: ...
def pooled_memory(size: int) -> memoryview: ...
def release_pooled() -> None: ...
