"""Types of event_times.pyx: the times of batches as their source needs them: how far they reach, in one pass."""

from collections.abc import Sequence

from jetfast.kernels.columns import Batch, BatchRun

# microseconds, of a date or timestamp column: from the first batch to the last, and for those that belong together the
# index behind them and their greatest time; None if a batch must be cut, or has a row without a time
def reached_times(
    batches: BatchRun | Sequence[Batch], column: int, rows_max: int, small_rows: int, span_us: int, part_span_us: int
) -> tuple[int, list[tuple[int, int]]] | None: ...
