"""The engine's own batch of rows, runs of them, and their doors to and from Arrow."""

from jetfast.kernels.columns import (
    Batch,
    BatchRun,
    batches_from_arrow,
    batches_with_origin,
    concatenate,
    put_beside,
)

__all__ = ["Batch", "BatchRun", "batches_from_arrow", "batches_with_origin", "concatenate", "put_beside"]
