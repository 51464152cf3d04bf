"""An aggregate made of plain functions over one group at a time."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from jetfast.core.batch_aggregate import BatchAggregate, Groups
from jetfast.kernels.grouping import order_by_group

State = Any
"""A Python value that Arrow takes as the declared type: a number, a list, a dict for a struct, ..."""


class GroupFunctions(BatchAggregate):
    """Calls functions of the user for each group; between calls states are Arrow values. See `jf.aggregate`."""

    def __init__(
        self,
        create: Callable[[], State],
        accumulate: Callable[[State, pa.RecordBatch], State],
        combine: Callable[[State, State], State],
        export: Callable[[State], Any],
        deduct: Callable[[State, State], State] | None,
        state: pa.DataType,
        result: pa.DataType,
        takes_time: bool,
    ) -> None:
        self.create_one = create
        self.accumulate_one = accumulate
        self.combine_two = combine
        self.export_one = export
        self.deduct_one = deduct
        self.state = state
        self.result = result
        self.takes_time = takes_time

    @property
    def label(self) -> str:
        return "aggregate"

    def name_of(self, method: str) -> str:
        functions = {
            "accumulate": self.accumulate_one,
            "combine": self.combine_two,
            "deduct": self.deduct_one,
            "export": self.export_one,
        }
        function = functions[method]
        return f"{method}={getattr(function, '__qualname__', type(function).__name__)}"

    def state_type(self, inputs: pa.Schema) -> pa.DataType:
        return self.state

    def result_type(self, inputs: pa.Schema) -> pa.DataType:
        return self.result

    def accumulate(self, rows: pa.RecordBatch, groups: Groups, group_count: int) -> pa.Array:
        rows = rows.take(pa.array(order_by_group(groups, group_count)))
        made = [
            self.accumulate_one(self.create_one(), rows.slice(first, behind - first))
            for first, behind in spans(groups, group_count)
        ]
        return pa.array(made, self.state)

    def combine(self, states: pa.Array, groups: Groups, group_count: int) -> pa.Array:
        values = states.take(pa.array(order_by_group(groups, group_count))).to_pylist()
        made = []
        for first, behind in spans(groups, group_count):
            state = values[first]
            for other in values[first + 1 : behind]:
                state = self.combine_two(state, other)
            made.append(state)
        return pa.array(made, self.state)

    @property
    def deducts(self) -> bool:
        return self.deduct_one is not None

    def deduct(self, states: pa.Array, leaving: pa.Array) -> pa.Array:
        assert self.deduct_one is not None
        pairs = zip(states.to_pylist(), leaving.to_pylist(), strict=True)
        return pa.array([self.deduct_one(state, less) for state, less in pairs], self.state)

    def export(self, states: pa.Array) -> pa.Array:
        return pa.array([self.export_one(state) for state in states.to_pylist()], self.result)


def spans(groups: Groups, group_count: int) -> Iterator[tuple[int, int]]:
    """First and behind the last row of each group, of rows sorted by group."""
    behind = np.cumsum(np.bincount(groups, minlength=group_count)).tolist()
    return zip([0, *behind[:-1]], behind, strict=True)
