"""Makes the result rows of a join: columns of both sides beside each other, nulls where a side has no row."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from jetfast.core.batch import Batch, concatenate, put_beside
from jetfast.core.joins import LEFT, RIGHT, Join

Rows = npt.NDArray[np.int32]


class JoinedRows:
    """The columns of a join's result: keys, those of the left, those of the right, what the join adds."""

    def __init__(self, join: Join) -> None:
        left, right = join.sides
        self.schema = join.schema
        self.left_columns = (*left.keys, *left.columns)
        self.right_columns = right.columns
        self.right_keys = right.keys
        left_schema = pa.schema([left.schema.field(name) for name in left.columns])
        right_schema = pa.schema([right.schema.field(name) for name in right.columns])
        self.nulls = [NullRows(left_schema), NullRows(right_schema)]

    def left_part(self, batch: Batch) -> Batch:
        """What pairs need of rows of the left side; zero-copy."""
        return batch.select(self.left_columns)

    def right_part(self, batch: Batch) -> Batch:
        """What pairs need of rows of the right side; zero-copy."""
        return batch.select(self.right_columns)

    def pairs(self, left: Batch, right: Batch, added: Sequence[Batch] = ()) -> Batch:
        """Rows of both sides, already parts, side by side."""
        return put_beside(self.schema, [left, right, *added])

    def left_only(self, left: Batch, added: Sequence[Batch] = ()) -> Batch:
        """Rows of the left side (a part) that have no match."""
        return put_beside(self.schema, [left, self.nulls[RIGHT].rows(left.row_count), *added])

    def right_only(self, right: Batch, added: Sequence[Batch] = ()) -> Batch:
        """Rows of the right side, whole, that have no match: their keys are those of the result."""
        nulls = self.nulls[LEFT].rows(right.row_count)
        return put_beside(self.schema, [right.select(self.right_keys), nulls, self.right_part(right), *added])


class NullRows:
    """Rows that are null in all columns, made as they are needed."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.made = self.make(1)

    def make(self, row_count: int) -> Batch:
        """Make that many."""
        if not self.schema.names:
            return Batch.from_arrow(pa.record_batch([pa.nulls(row_count)], names=["none"])).select([])
        arrays = [pa.nulls(row_count, field.type) for field in self.schema]
        return Batch.from_arrow(pa.RecordBatch.from_arrays(arrays, schema=self.schema))

    def rows(self, row_count: int) -> Batch:
        """Return that many; they share memory."""
        if row_count > self.made.row_count:
            self.made = self.make(max(row_count, 2 * self.made.row_count))
        return self.made.slice(0, row_count)

    def behind(self, batch: Batch) -> Batch:
        """Return a batch of this schema and one null row after its last."""
        return concatenate([batch, self.rows(1)])
