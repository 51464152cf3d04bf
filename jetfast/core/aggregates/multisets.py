"""States that are multisets: the different items of a group with their counts. A leaving frame is deducted exactly."""

import numpy as np
import pyarrow as pa

from jetfast.core.aggregates.entries import (
    Ints,
    codes,
    first_of_each,
    pack,
    ranks,
    require_sortable,
    take,
    unpack,
    valid_rows,
    without_negative_zero,
)  # fmt: skip
from jetfast.core.batch_aggregate import BatchAggregate, Groups
from jetfast.kernels.grouping import order_by_group


class Multiset(BatchAggregate):
    """What aggregates have in common that only need to know how often each item occurs. State: items with counts."""

    skips_nulls = True

    def item_type(self, inputs: pa.Schema) -> pa.DataType:
        """Type of the items."""
        raise NotImplementedError

    def items(self, values: pa.Array) -> pa.Array:
        """The item of each value; none of them is null."""
        raise NotImplementedError

    def state_type(self, inputs: pa.Schema) -> pa.DataType:
        return pa.list_(pa.struct([("item", self.item_type(inputs)), ("count", pa.int64())]))

    def accumulate(self, rows: pa.RecordBatch, groups: Groups, group_count: int) -> pa.Array:
        values = rows.column(0)
        valid = valid_rows(values)
        if valid is not None:
            values, groups = take(values, valid), groups[valid]
        return counted(self.items(values), np.ones(len(values), np.int64), groups, group_count)

    def combine(self, states: pa.Array, groups: Groups, group_count: int) -> pa.Array:
        entries, entry_groups = unpack(states, groups)
        return counted(entries.field(0), entries.field(1).to_numpy(), entry_groups, group_count)

    def deduct(self, states: pa.Array, leaving: pa.Array) -> pa.Array:
        every = np.arange(len(states))
        entries, groups = unpack(states, every)
        less, less_groups = unpack(leaving, every)
        items = pa.concat_arrays([entries.field(0), less.field(0)])
        counts = np.concatenate([entries.field(1).to_numpy(), -less.field(1).to_numpy()])
        return counted(items, counts, np.concatenate([groups, less_groups]), len(states))


def counted(items: pa.Array, counts: Ints, groups: Groups, group_count: int) -> pa.Array:
    """A list for each group of its different items with the sum of their counts; those that come to 0 are gone."""
    numbers = codes(items)
    order = order_by_group(groups, group_count, numbers)
    firsts = np.flatnonzero(first_of_each(groups[order], numbers[order]))
    sums = np.add.reduceat(counts[order], firsts) if len(firsts) else counts
    if len(sums) and not sums.all():
        firsts, sums = firsts[sums != 0], sums[sums != 0]
    rows = order[firsts]
    entries = pa.StructArray.from_arrays([take(items, rows), pa.array(sums)], ["item", "count"])
    return pack(entries, groups[rows], group_count)


class CountDistinct(Multiset):
    """The number of different values, exactly; nulls do not count."""

    @property
    def label(self) -> str:
        return "count_distinct"

    def item_type(self, inputs: pa.Schema) -> pa.DataType:
        require_sortable(self.label, inputs.field(0).type)
        return inputs.field(0).type

    def items(self, values: pa.Array) -> pa.Array:
        return without_negative_zero(values)

    def result_type(self, inputs: pa.Schema) -> pa.DataType:
        return pa.int64()

    def export(self, states: pa.Array) -> pa.Array:
        return states.value_lengths().cast(pa.int64())


class CollectSet(CountDistinct):
    """The different values in ascending order, as a list; nulls do not count."""

    @property
    def label(self) -> str:
        return "collect_set"

    def result_type(self, inputs: pa.Schema) -> pa.DataType:
        return pa.list_(inputs.field(0).type)

    def export(self, states: pa.Array) -> pa.Array:
        entries, groups = unpack(states, np.arange(len(states)))
        values = entries.field(0)
        return pack(take(values, order_by_group(groups, len(states), ranks(values))), groups, len(states))
