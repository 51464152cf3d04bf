"""Slots of keys that two sides of a join have in common; nulls have none."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from jetfast.core.batch import Batch
from jetfast.core.joins import Join
from jetfast.kernels.joins import NO_SLOT
from jetfast.kernels.keys import KeyIndex, plain_field

Slots = npt.NDArray[np.uint32]


class KeySlots:
    """Slots of keys that two sides have in common; a row with a null among its keys has NO_SLOT."""

    def __init__(self, join: Join) -> None:
        self.sides = join.sides
        self.names = join.schema.names[: join.key_count]
        left = join.sides[0]
        fields = [plain_field(left.schema.field(key)) for key in left.keys]
        self.index = KeyIndex(
            pa.schema([field.with_name(name) for field, name in zip(fields, self.names, strict=True)]), self.names
        )

    def of_rows(self, ordinal: int, batch: Batch) -> Slots:
        """The slot of each row of one side, shape (rows,); new keys get new ones."""
        keys = batch.select(self.sides[ordinal].keys, self.names)
        slots = self.index.assign_slots(keys)
        nulls = null_rows(keys)
        if nulls is not None:
            slots[nulls] = NO_SLOT
        return slots

    @property
    def limit(self) -> int:
        """All slots are below."""
        return self.index.slot_limit


def null_rows(keys: Batch) -> npt.NDArray[np.bool_] | None:
    """Which rows have a null in any column, shape (rows,); None: none has."""
    nulls: npt.NDArray[np.bool_] | None = None
    for column in keys.to_arrow().columns:
        if column.null_count:
            here = pc.is_null(column).to_numpy(zero_copy_only=False)
            nulls = here if nulls is None else nulls | here
    return nulls
