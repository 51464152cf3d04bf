"""The n greatest or least values, or the rows that have them."""

import numpy as np
import pyarrow as pa

from jetfast.core.aggregates.entries import (
    Ints,
    pack,
    ranks,
    require_sortable,
    starts_of,
    take,
    unpack,
    valid_rows,
    without_negative_zero,
)  # fmt: skip
from jetfast.core.batch_aggregate import BatchAggregate, Groups
from jetfast.kernels.grouping import order_by_group


class TopValues(BatchAggregate):
    """The n greatest (or least) values, best first, as a list; nulls do not count. State: that list.

    Parameters
    ----------
    n : at least 1
    greatest : False: the least ones
    """

    skips_nulls = True

    def __init__(self, n: int, greatest: bool) -> None:
        self.n = n
        self.greatest = greatest

    @property
    def label(self) -> str:
        return "top_n" if self.greatest else "bottom_n"

    def state_type(self, inputs: pa.Schema) -> pa.DataType:
        require_sortable(self.label, inputs.field(0).type)
        return pa.list_(inputs.field(0).type)

    def result_type(self, inputs: pa.Schema) -> pa.DataType:
        return pa.list_(inputs.field(0).type)

    def accumulate(self, rows: pa.RecordBatch, groups: Groups, group_count: int) -> pa.Array:
        values = without_negative_zero(rows.column(0))
        valid = valid_rows(values)
        if valid is not None:
            values, groups = take(values, valid), groups[valid]
        return self.leading(values, groups, group_count, self.place(values))

    def combine(self, states: pa.Array, groups: Groups, group_count: int) -> pa.Array:
        entries, entry_groups = unpack(states, groups)
        return self.leading(entries, entry_groups, group_count, self.place(entries))

    def export(self, states: pa.Array) -> pa.Array:
        return states

    def place(self, values: pa.Array) -> Ints:
        """Numbers that are least for the best value."""
        return ~ranks(values) if self.greatest else ranks(values)

    def leading(self, entries: pa.Array, groups: Groups, group_count: int, *keys: Ints) -> pa.Array:
        """The first n entries of each group by the keys, then by arrival."""
        order = order_by_group(groups, group_count, *keys)
        groups = groups[order]
        kept = np.flatnonzero(np.arange(len(order)) - starts_of(groups) < self.n)
        return pack(take(entries, order[kept]), groups[kept], group_count)


class TopRows(TopValues):
    """Rows with the n greatest (or least) values of the last column, best first, as a list.

    Rows whose value there is null do not count. Of equal ones the earlier in event time comes first, then the one that
    came first. One other column gives a list of its values, several a list of structs. State: a list of what decides,
    the time, and the row.
    """

    takes_time = True

    def row_type(self, inputs: pa.Schema) -> pa.DataType:
        fields = [inputs.field(index) for index in range(len(inputs) - 1)]
        return fields[0].type if len(fields) == 1 else pa.struct(fields)

    def state_type(self, inputs: pa.Schema) -> pa.DataType:
        by = inputs.field(len(inputs) - 1).type
        require_sortable(f"{self.label} by a column", by)
        return pa.list_(pa.struct([("by", by), ("time", pa.int64()), ("row", self.row_type(inputs))]))

    def result_type(self, inputs: pa.Schema) -> pa.DataType:
        return pa.list_(self.row_type(inputs))

    def accumulate(self, rows: pa.RecordBatch, groups: Groups, group_count: int) -> pa.Array:
        valid = valid_rows(rows.column(rows.num_columns - 2))
        if valid is not None:
            rows, groups = rows.take(pa.array(valid)), groups[valid]
        *values, by, times = rows.columns
        names = rows.schema.names[: len(values)]
        row = values[0] if len(values) == 1 else pa.StructArray.from_arrays(values, names)
        times = times.cast(pa.int64())
        entries = pa.StructArray.from_arrays([by, times, row], ["by", "time", "row"])
        return self.leading(entries, groups, group_count, self.place(by), times.to_numpy())

    def combine(self, states: pa.Array, groups: Groups, group_count: int) -> pa.Array:
        entries, entry_groups = unpack(states, groups)
        keys = self.place(entries.field(0)), entries.field(1).to_numpy()
        return self.leading(entries, entry_groups, group_count, *keys)

    def export(self, states: pa.Array) -> pa.Array:
        entries, groups = unpack(states, np.arange(len(states)))
        return pack(entries.field(2), groups, len(states))
