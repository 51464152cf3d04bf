"""The engine's own batch of rows, and its doors to and from Arrow."""

from jetfast.kernels.columns import Batch, batches_from_arrow, concatenate

__all__ = ["Batch", "batches_from_arrow", "concatenate"]
