"""Types of partitioning.pyx: Spark's hash, partitions of keys, splitting a batch by partition."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from jetfast.kernels.columns import Batch, BatchRun

def hash_columns(columns: object) -> npt.NDArray[np.int32]: ...  # Spark SQL hash(...) of one array or a sequence
def assign_partitions(columns: object, partition_count: int = 271) -> npt.NDArray[np.int32]: ...
def simd() -> tuple[str, str]: ...  # vector instructions in use, and the best this machine has
def check_key_types(schema: pa.Schema, keys: Sequence[str]) -> None: ...  # TypeError naming column and cast

class Splitter:
    """Splits batches by the owner of each row's partition; order within an owner is kept."""

    schema: pa.Schema
    def __init__(
        self, schema: pa.Schema, keys: Sequence[str], owners: npt.NDArray[np.int32], owner_count: int
    ) -> None: ...
    # owners: int32, shape (partition_count,): destination of each partition, in [0, owner_count)
    def split(self, batch: Batch) -> list[Batch | None]: ...  # one per owner, None where it gets no row
    def split_all(self, batches: BatchRun | Sequence[Batch]) -> list[BatchRun | None]: ...  # the parts of each owner
