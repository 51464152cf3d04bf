"""Types of windows.pyx: windowed aggregation by key (SEMANTICS: frames, lateness, emission)."""

from collections.abc import Container, Iterable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from jetfast.kernels.columns import Batch, BatchRun

AGGREGATE_KINDS: tuple[str, ...]

Rows = npt.NDArray[np.int32]
Places = npt.NDArray[np.int64]
Frames = npt.NDArray[np.int64]

def aggregate_result_type(kind: str, value_type: pa.DataType | None) -> pa.DataType: ...  # Spark's rules; TypeError
def is_ranked(data_type: pa.DataType) -> bool: ...  # can `keep_top` go by results of this type?
def unused_name(name: str, names: Container[str]) -> str: ...  # with underscores after it until it is not among names

class TableLayout:
    """The definition that both tables share; they make it."""

    schema: pa.Schema
    key_schema: pa.Schema
    output_schema: pa.Schema
    partial_schema: pa.Schema
    late_schema: pa.Schema
    aggregate_names: list[tuple[str, str, str | None]]

class ResultTable:
    """What WindowTable and SessionTable share. One processor's state; single-threaded."""

    output_schema: pa.Schema  # keys, window_start, window_end (timestamp[us]), aggregates
    partial_schema: pa.Schema  # keys, times (int64 microseconds), accumulator columns incl. row count
    late_schema: pa.Schema  # input schema + missed_until: timestamp[us] (null for sessions)
    rows: int  # all rows taken in; = on time + partly late + late + rejected
    late_rows: int
    partly_late_rows: int  # of sessions 0
    rejected_rows: int  # null time
    def accumulate(self, batch: Batch, collect_late: bool = False) -> Batch | None: ...  # late and partly late rows
    def row_counts(self) -> tuple[int, int, int, int]: ...  # on time, late, partly late, rejected: each row in one
    def emit(self, rows_max: int = 65536) -> Batch | None: ...  # next due results, ascending end; None: nothing is due
    def emit_run(self, rows_max: int = 32768) -> BatchRun | None: ...  # the same, several batches; None: nothing is due
    def save(self) -> list[pa.RecordBatch]: ...  # of partial_schema
    def bounds(self) -> dict[int, int]: ...  # by owned partition: up to which watermark its results were emitted
    def restore(self, rows: pa.RecordBatch) -> None: ...
    def restore_bound(self, partition: int, bound: int) -> None: ...  # of partitions of others: ignored
    def finish_restore(self) -> None: ...
    def check_invariants(self) -> None: ...
    # For states that are kept beside the table, after tell_places. A place: a key's slot, or a session.
    def tell_places(self) -> None: ...
    def taken_rows(self) -> tuple[Rows, Places, Frames]: ...  # by the last call; of sessions no frames
    def merged_places(self) -> tuple[Places, Places]: ...  # sessions that joined in the last call: from, to
    def emitted_places(self) -> Places: ...  # of the rows of the last emit
    def save_with_places(self) -> list[tuple[pa.RecordBatch, Places]]: ...

class WindowTable(ResultTable):
    """Aggregates per key and window.

    aggregates: (result name, kind as in AggregateKind.value, input column or None)
    """

    frame_schema: pa.Schema  # of the frames that first stages share

    def __init__(
        self,
        schema: pa.Schema,
        keys: Sequence[str],
        time: str,
        aggregates: Sequence[tuple[str, str, str | None]],
        size_us: int,
        slide_us: int,
        offset_us: int = 0,
        partition_count: int = 271,
        partitions: Iterable[int] | None = None,  # owned (None: all): `bounds` has one for each
    ) -> None: ...
    def keep_top(
        self, by: str, count: int, ascending: bool = False, per: Sequence[str] = ()
    ) -> None: ...  # n best only
    def accumulate_all(self, batches: BatchRun | Sequence[Batch]) -> None: ...  # late rows are only counted
    def advance(self, watermark: int) -> bool: ...  # every window with end <= watermark becomes due; is there any?
    def accumulate_partials(self, batch: Batch) -> None: ...  # second stage: rows of partial_schema
    def accumulate_all_partials(self, batches: BatchRun | Sequence[Batch]) -> None: ...  # one after the other
    def memory(self) -> dict[str, int]: ...  # keys, frames, key_bytes, frame_bytes, bytes_per_key, ...

class FrameTable:
    """First stage of two: accumulates per key and frame, judges nothing, flushes partials."""

    partial_schema: pa.Schema
    frame_schema: pa.Schema  # of a shared frame
    def __init__(
        self,
        schema: pa.Schema,
        keys: Sequence[str],
        time: str,
        aggregates: Sequence[tuple[str, str, str | None]],
        size_us: int,
        slide_us: int,
        offset_us: int = 0,
    ) -> None: ...
    rows: int
    rejected_rows: int
    partials: int  # pairs of key and frame with rows, of frames that have left
    partial_rows: int  # rows in those frames
    frames_left: int  # those frames
    keys: int  # that have a slot
    owner: int  # of what the last take_partials gave
    def set_owners(self, owners: Sequence[int] | npt.NDArray[np.int32], owner_count: int) -> None: ...
    def check_invariants(self) -> None: ...
    def share_frames(self) -> None: ...  # whole frames leave as they lie, to each owner
    def accumulate(self, batch: Batch) -> None: ...
    def accumulate_all(self, batches: BatchRun | Sequence[Batch]) -> None: ...  # one after the other
    def advance(self, watermark: int) -> None: ...  # frames with end <= watermark become due
    def flush(self) -> None: ...  # all frames become due
    def forget_keys(self) -> None: ...  # those that are in no frame
    def take_partials(self, rows_max: int = 65536) -> Batch | None: ...
    def take_partial_run(self, rows_max: int = 32768) -> list[tuple[int, BatchRun]]: ...  # by owner
    def tell_places(self) -> None: ...  # as WindowTable
    def taken_rows(self) -> tuple[Rows, Places, Frames]: ...
    def partial_places(self) -> Places: ...  # of the rows of the last take_partials
    def memory(self) -> dict[str, int]: ...
