"""Types of keys.pyx: keys of one or several columns to dense slots."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from jetfast.kernels.columns import Batch

class KeyIndex:
    """Equal keys get the same slot; slots are dense and reused after `release`. NULL, NaN and 0.0 are one key each."""

    schema: pa.Schema
    key_schema: pa.Schema  # keys as they come out: dictionaries by their value type
    def __init__(self, schema: pa.Schema, keys: Sequence[str]) -> None: ...
    def __len__(self) -> int: ...  # keys in use
    @property
    def slot_limit(self) -> int: ...  # all slots are below
    @property
    def nbytes(self) -> int: ...
    def clear(self) -> None: ...
    def reserve(self, key_count: int) -> None: ...
    def assign_slots(self, batch: Batch) -> npt.NDArray[np.uint32]: ...  # shape (rows,)
    def find_slots(self, batch: Batch) -> npt.NDArray[np.uint32]: ...  # adds none: NO_SLOT for keys that are not there
    def keys_of(self, slots: npt.NDArray[np.uint32]) -> Batch: ...
    def release(self, slots: npt.NDArray[np.uint32]) -> None: ...

def plain_field(field: pa.Field) -> pa.Field: ...  # a dictionary by its value type
def check_batch_schema(found: pa.Schema, wanted: pa.Schema, what: str) -> None: ...  # ValueError naming the columns
