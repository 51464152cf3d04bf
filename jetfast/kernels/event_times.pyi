"""Types of event_times.pyx: how far the times of a batch reach."""

from jetfast.kernels.columns import Batch

# microseconds (floored); None if there is no row, a null, or a time that does not fit
def time_range(batch: Batch, column: int) -> tuple[int, int] | None: ...
