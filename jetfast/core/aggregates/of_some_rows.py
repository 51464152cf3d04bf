"""An aggregate that sees only some of the rows: those of its own input, among rows of several."""

from typing import Any

import numpy as np
import pyarrow as pa

from jetfast.core.batch_aggregate import BatchAggregate, Groups


class OfSomeRows(BatchAggregate):
    """Another aggregate of the rows where the last column, which it does not see, is not null.

    A group without such rows has the state null, and the result null.
    """

    def __init__(self, aggregate: BatchAggregate) -> None:
        self.aggregate = aggregate
        self.takes_time = aggregate.takes_time

    @property
    def label(self) -> str:
        return self.aggregate.label

    def name_of(self, method: str) -> str:
        return self.aggregate.name_of(method)

    def state_type(self, inputs: pa.Schema) -> pa.DataType:
        return self.aggregate.state_type(without_last(inputs))

    def result_type(self, inputs: pa.Schema) -> pa.DataType:
        return self.aggregate.result_type(without_last(inputs))

    def accumulate(self, rows: pa.RecordBatch, groups: Groups, group_count: int) -> Any:
        mark = rows.num_columns - (2 if self.takes_time else 1)
        own = np.flatnonzero(rows.column(mark).is_valid().to_numpy(zero_copy_only=False))
        rows = rows.select([index for index in range(rows.num_columns) if index != mark]).take(pa.array(own))
        return self.by_group(self.aggregate.accumulate, rows, groups[own], group_count)

    def combine(self, states: pa.Array, groups: Groups, group_count: int) -> Any:
        own = np.flatnonzero(states.is_valid().to_numpy(zero_copy_only=False))
        return self.by_group(self.aggregate.combine, states.take(pa.array(own)), groups[own], group_count)

    def by_group(self, function: Any, rows: Any, groups: Groups, group_count: int) -> Any:
        """Call a function for the groups that there are; the others get null."""
        present, numbers = np.unique(groups, return_inverse=True)
        if len(present) == 0:
            return [None] * group_count
        made = function(rows, numbers.astype(np.int64), len(present))
        if len(present) == group_count:
            return made
        places = np.full(group_count, -1, np.int64)
        places[present] = np.arange(len(present))
        return rows_at(made, places)

    def export(self, states: pa.Array) -> Any:
        valid = states.is_valid().to_numpy(zero_copy_only=False)
        own = np.flatnonzero(valid)
        if len(own) == 0:
            return [None] * len(states)
        made = self.aggregate.export(states.take(pa.array(own)))
        return rows_at(made, np.where(valid, np.cumsum(valid) - 1, -1))


def rows_at(made: Any, places: Groups) -> Any:
    """What a function made (an Arrow array, a NumPy array or a list) at some places, null at -1."""
    if isinstance(made, pa.Array | pa.ChunkedArray):
        return made.take(pa.array(places, mask=places < 0))
    return [None if place < 0 else made[place] for place in places]


def without_last(schema: pa.Schema) -> pa.Schema:
    return pa.schema(list(schema)[:-1])
