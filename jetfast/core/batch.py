"""The engine's own batch of rows, and its doors to and from Arrow."""

from jetfast.kernels.columns import (
    Batch,
    batches_from_arrow,
    batches_with_origin,
    concatenate,
    count_rows,
    count_run,
    put_beside,
)

__all__ = ["Batch", "batches_from_arrow", "batches_with_origin", "concatenate", "count_rows", "count_run", "put_beside"]
