"""Types of sessions.pyx: session windows by key (SEMANTICS: sessions)."""

from collections.abc import Iterable, Sequence

import pyarrow as pa

from jetfast.kernels.columns import Batch

class SessionTable:
    """Aggregates per key and session. One processor's state; single-threaded.

    aggregates: (result name, kind as in AggregateKind.value, input column or None)
    Result columns: keys, window_start (first time), window_end (last time + timeout), aggregates.
    """

    output_schema: pa.Schema
    partial_schema: pa.Schema  # of saved sessions: keys, "first" and "last" int64, accumulator columns incl. row count
    late_schema: pa.Schema  # input schema + missed_until: timestamp[us], null
    rows: int  # all rows taken in; = on time + late + rejected
    late_rows: int
    partly_late_rows: int  # 0
    rejected_rows: int  # null time
    def __init__(
        self,
        schema: pa.Schema,
        keys: Sequence[str],
        time: str,
        aggregates: Sequence[tuple[str, str, str | None]],
        timeout_us: int,
        partition_count: int = 271,
        partitions: Iterable[int] | None = None,  # owned (None: all); `save` writes a bound for each
    ) -> None: ...
    def accumulate(self, batch: Batch, collect_late: bool = False) -> Batch | None: ...  # late rows
    def advance(self, watermark: int) -> bool: ...  # every session with end < watermark becomes due; is there any?
    def row_counts(self) -> tuple[int, int, int, int]: ...  # on time, late, 0, rejected: each row in one
    def emit(self, rows_max: int = 65536) -> Batch | None: ...  # next due results, ascending end; None: nothing is due
    def save(self) -> list[tuple[int, str, pa.RecordBatch]]: ...  # (partition, kind, rows)
    def restore(self, partition: int, kind: str, rows: pa.RecordBatch) -> None: ...
    def finish_restore(self) -> None: ...
    def memory(self) -> dict[str, int]: ...  # keys, sessions, key_bytes, session_bytes, bytes_per_key, ...
