"""Types of event_times.pyx: the times of batches as their source needs them: how far they reach, in one pass."""

from jetfast.kernels.columns import Batch

# microseconds, of a date or timestamp column; None if a batch must be cut, or has a row without a time
def greatest_times(
    batches: list[Batch], column: int, rows_max: int, small_rows: int, span_us: int
) -> list[int] | None: ...
