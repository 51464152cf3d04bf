"""The first and the last value by event time."""

import numpy as np
import pyarrow as pa

from jetfast.core.aggregates.entries import Ints, valid_rows
from jetfast.core.batch_aggregate import BatchAggregate, Groups
from jetfast.types import MAX_TIME, MIN_TIME


class FirstByTime(BatchAggregate):
    """The value of the row with the least time, of equal times the one that came first. State: time, value."""

    takes_time = True

    def __init__(self, ignore_nulls: bool) -> None:
        self.ignore_nulls = self.skips_nulls = ignore_nulls

    @property
    def label(self) -> str:
        return "first"

    def state_type(self, inputs: pa.Schema) -> pa.DataType:
        return pa.struct([("time", pa.int64()), ("value", inputs.field(0).type)])

    def result_type(self, inputs: pa.Schema) -> pa.DataType:
        return inputs.field(0).type

    def accumulate(self, rows: pa.RecordBatch, groups: Groups, group_count: int) -> pa.Array:
        values, times = rows.column(0), rows.columns[-1].cast(pa.int64())
        states = pa.StructArray.from_arrays([times, values], ["time", "value"])
        kept = valid_rows(values) if self.ignore_nulls else None
        return states.take(self.chosen(times.to_numpy(), groups, group_count, kept))

    def combine(self, states: pa.Array, groups: Groups, group_count: int) -> pa.Array:
        times = states.field(0).to_numpy(zero_copy_only=False)
        return states.take(self.chosen(times, groups, group_count, valid_rows(states)))

    def export(self, states: pa.Array) -> pa.Array:
        return states.flatten()[1]

    def chosen(self, times: Ints, groups: Groups, group_count: int, kept: Ints | None) -> pa.Array:
        """The row of each group that counts, null where none of `kept` (None: all rows) is."""
        if kept is not None:
            times, groups = times[kept], groups[kept]
        rows = np.full(group_count, -1, np.int64)
        best = self.best(times, groups, group_count)
        if kept is None:
            rows[groups[best]] = best  # the last one that is assigned stays
        else:
            rows[groups[best]] = kept[best]
        return pa.array(rows, mask=rows < 0)

    def best(self, times: Ints, groups: Groups, group_count: int) -> Ints:
        """The rows with the time that counts, the one that counts last in each group."""
        least = np.full(group_count, MAX_TIME)
        np.minimum.at(least, groups, times)
        return np.flatnonzero(times == least[groups])[::-1]


class LastByTime(FirstByTime):
    """The value of the row with the greatest time; of rows with equal times the one that came last."""

    @property
    def label(self) -> str:
        return "last"

    def best(self, times: Ints, groups: Groups, group_count: int) -> Ints:
        greatest = np.full(group_count, MIN_TIME)
        np.maximum.at(greatest, groups, times)
        return np.flatnonzero(times == greatest[groups])
