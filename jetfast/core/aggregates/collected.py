"""All values of a group in the order of event time: as a list, or joined to one text."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jetfast.core.aggregates.entries import first_of_each, pack, starts_of, take, unpack, valid_rows
from jetfast.core.batch_aggregate import BatchAggregate, Groups
from jetfast.kernels.grouping import order_by_group


class CollectList(BatchAggregate):
    """The values by event time, of equal times by arrival; nulls do not count. State: a list of time and value."""

    skips_nulls = True
    takes_time = True

    @property
    def label(self) -> str:
        return "collect_list"

    def value_type(self, inputs: pa.Schema) -> pa.DataType:
        """Type of what is kept."""
        return inputs.field(0).type

    def state_type(self, inputs: pa.Schema) -> pa.DataType:
        return pa.list_(pa.struct([("time", pa.int64()), ("value", self.value_type(inputs))]))

    def result_type(self, inputs: pa.Schema) -> pa.DataType:
        return pa.list_(inputs.field(0).type)

    def accumulate(self, rows: pa.RecordBatch, groups: Groups, group_count: int) -> pa.Array:
        values, times = rows.column(0), rows.columns[-1].cast(pa.int64())
        valid = valid_rows(values)
        if valid is not None:
            values, times, groups = take(values, valid), take(times, valid), groups[valid]
        return by_time(pa.StructArray.from_arrays([times, values], ["time", "value"]), groups, group_count)

    def combine(self, states: pa.Array, groups: Groups, group_count: int) -> pa.Array:
        return by_time(*unpack(states, groups), group_count)

    def deduct(self, states: pa.Array, leaving: pa.Array) -> pa.Array:
        # The times of a frame that leaves are the least, unless the slide is another one than that of a restored
        # snapshot. So as many entries go from each time as leave at it.
        every = np.arange(len(states))
        entries, groups = unpack(states, every)
        less, less_groups = unpack(leaving, every)
        times = np.concatenate([entries.field(0).to_numpy(), less.field(0).to_numpy()])
        both_groups = np.concatenate([groups, less_groups])
        order = order_by_group(both_groups, len(states), times)
        runs = np.cumsum(first_of_each(both_groups[order], times[order])) - 1  # equal groups and times: entries first
        leaves = order >= len(groups)
        left = np.bincount(runs, leaves)
        kept = np.flatnonzero((np.arange(len(order)) - starts_of(runs) >= left[runs]) & ~leaves)
        return pack(take(entries, order[kept]), both_groups[order[kept]], len(states))

    def export(self, states: pa.Array) -> pa.Array:
        entries, groups = unpack(states, np.arange(len(states)))
        return pack(entries.field(1), groups, len(states))


class Concat(CollectList):
    """The texts by event time, joined by a separator; null without any."""

    def __init__(self, separator: str) -> None:
        self.separator = separator

    @property
    def label(self) -> str:
        return "concat"

    def value_type(self, inputs: pa.Schema) -> pa.DataType:
        data_type = inputs.field(0).type
        if not (pa.types.is_string(data_type) or pa.types.is_large_string(data_type)):
            raise TypeError(f'{self.label} needs texts, got {data_type}; write col(...).cast("string")')
        return data_type

    def result_type(self, inputs: pa.Schema) -> pa.DataType:
        return self.value_type(inputs)

    def export(self, states: pa.Array) -> pa.Array:
        texts = super().export(states)
        data_type = texts.type.value_type
        joined = pc.binary_join(texts.cast(pa.list_(pa.string())), self.separator).cast(data_type)  # Arrow joins these
        return pc.if_else(pc.greater(states.value_lengths(), 0), joined, None)


def by_time(entries: pa.Array, groups: Groups, group_count: int) -> pa.Array:
    """A list for each group of its entries, by time and then by arrival."""
    order = order_by_group(groups, group_count, entries.field(0).to_numpy())
    return pack(take(entries, order), groups[order], group_count)
