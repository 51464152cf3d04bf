"""Slots of keys that two sides of a join have in common; nulls have none."""

from collections.abc import Sequence

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
    """Slots of keys that two sides have in common; a row with a null among its keys has NO_SLOT.

    added : further columns that are keys, which rows of both sides have by one name
    """

    def __init__(self, join: Join, added: Sequence[pa.Field] = ()) -> None:
        added_names = [field.name for field in added]
        self.keys_of_sides = [[*side.keys, *added_names] for side in join.sides]
        self.names = [*join.schema.names[: join.key_count], *added_names]
        left = join.sides[0]
        fields = [*(plain_field(left.schema.field(key)) for key in left.keys), *added]
        self.index = KeyIndex(
            pa.schema([field.with_name(name) for field, name in zip(fields, self.names, strict=True)]), self.names
        )

    def of_rows(self, ordinal: int, batch: Batch) -> Slots:
        """The slot of each row of one side, shape (rows,); new keys get new ones."""
        keys = self.keys_of_side(ordinal, batch)
        return without_nulls(self.index.assign_slots(keys), keys)

    def find(self, ordinal: int, batch: Batch) -> Slots:
        """As `of_rows`, but keys that have no slot get none: NO_SLOT."""
        keys = self.keys_of_side(ordinal, batch)
        return without_nulls(self.index.find_slots(keys), keys)

    def keys_of_side(self, ordinal: int, batch: Batch) -> Batch:
        """The key columns of rows of one side, by the names that both sides have for them."""
        return batch.select(self.keys_of_sides[ordinal], self.names)

    @property
    def limit(self) -> int:
        """All slots are below."""
        return self.index.slot_limit


def without_nulls(slots: Slots, keys: Batch) -> Slots:
    """The slots of keys, but NO_SLOT for rows with a null among theirs."""
    nulls = null_rows(keys)
    if nulls is not None:
        slots[nulls] = NO_SLOT
    return slots


def null_rows(keys: Batch) -> npt.NDArray[np.bool_] | None:
    """Which rows have a null in any column, shape (rows,); None: none has."""
    nulls: npt.NDArray[np.bool_] | None = None
    for column in keys.to_arrow().columns:
        if column.null_count:
            here = pc.is_null(column).to_numpy(zero_copy_only=False)
            nulls = here if nulls is None else nulls | here
    return nulls
