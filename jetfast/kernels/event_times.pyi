"""Types of event_times.pyx: how far the times of batches reach."""

from jetfast.kernels.columns import Batch

# of each: microseconds (floored); None if there is no row, a null, or a time that does not fit
def time_ranges(batches: list[Batch], column: int) -> list[tuple[int, int] | None]: ...
