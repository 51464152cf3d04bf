"""Aggregates over batches: states are Arrow arrays with one row a group, made, combined and exported a batch at a time.

Counts, sums and extremes live in C++ (csrc/jetfast/accumulators.hpp). All other aggregates, those of users among them,
implement the one contract of this file. Three were weighed: a C++ state per aggregate (fast, but a user cannot write
one), a Python object per key and window (easy, but it costs a call per group and cannot be saved without pickle), and
this one: a call per batch, states that are saved and sent as they are.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from jetfast.core.aggregate import Aggregate, BatchAggregateColumn
from jetfast.errors import JobFailedError
from jetfast.types import format_time

Groups = npt.NDArray[np.int64]
EVENT_TIME = "event_time"
"""Name of the last column that `accumulate` gets, if the aggregate takes the time."""


class BatchAggregate:
    """An aggregate as a user may write one: subclass it and pass `MyAggregate().over("x", ...)` to `agg`.

    It is used by several threads and pickled to the members: an instance holds parameters, never state.

    `groups` is int64, shape (rows,), values in [0, group_count); every group has at least one row. Rows of a group come
    in their order of arrival, its states those of earlier rows first (of sessions that merge, in any order).

    Attributes
    ----------
    takes_time : True: `rows` gets a last column "event_time" (timestamp[us], never null)
    skips_nulls : True: rows whose first column is null change nothing, and a group of only such rows has a result
    """

    takes_time: bool = False
    skips_nulls: bool = False

    def over(self, *columns: Any) -> Aggregate:
        """This aggregate of these columns (names or expressions): what `agg` takes."""
        return Aggregate(self, columns)

    @property
    def label(self) -> str:
        """What messages call it."""
        return type(self).__name__

    def name_of(self, method: str) -> str:
        """What messages call one of its methods."""
        return f"{self.label}.{method}"

    def state_type(self, inputs: pa.Schema) -> pa.DataType:
        """Type of the states, given the columns (a dictionary as its values, a string_view as string).

        Raises TypeError for columns that cannot be aggregated so.
        """
        raise NotImplementedError(f"{self.label} needs state_type(inputs)")

    def result_type(self, inputs: pa.Schema) -> pa.DataType:
        """Type of the result, given the columns. TypeError as `state_type`."""
        raise NotImplementedError(f"{self.label} needs result_type(inputs)")

    def accumulate(self, rows: pa.RecordBatch, groups: Groups, group_count: int) -> pa.Array:
        """Return the state of each group of rows: state_type, shape (group_count,)."""
        raise NotImplementedError(f"{self.label} needs accumulate(rows, groups, group_count)")

    def combine(self, states: pa.Array, groups: Groups, group_count: int) -> pa.Array:
        """Return one state for each group of states: state_type, shape (group_count,)."""
        raise NotImplementedError(f"{self.label} needs combine(states, groups, group_count)")

    def deduct(self, states: pa.Array, leaving: pa.Array) -> pa.Array:
        """Return what is left of each state when `leaving`, the oldest part of what was combined into it, leaves.

        Optional, and only if it is exact. Without it a sliding window combines states, in two stacks.
        """
        raise NotImplementedError(f"{self.label} has no deduct(states, leaving)")

    @property
    def deducts(self) -> bool:
        """Is there a `deduct`?"""
        return type(self).deduct is not BatchAggregate.deduct

    def export(self, states: pa.Array) -> pa.Array:
        """Return the result of each state: result_type, shape (states,)."""
        raise NotImplementedError(f"{self.label} needs export(states)")


class BoundAggregate:
    """A batch aggregate over columns of known types: checks what it returns and names it when it fails.

    Parameters
    ----------
    column : result name, function, input columns
    schema : of the input
    """

    def __init__(self, column: BatchAggregateColumn, schema: pa.Schema) -> None:
        self.name = column.name
        self.columns = column.columns
        self.names = list(column.names or column.columns)
        self.aggregate = column.aggregate
        types = [schema.field(name).type for name in column.columns]
        self.state_type, self.result_type = check_inputs(column.aggregate, self.names, types)
        self.window: tuple[int, int] | None = None
        """Start and end (microseconds) of what is worked on, for messages."""

    @property
    def deducts(self) -> bool:
        return self.aggregate.deducts

    def accumulate(self, rows: pa.RecordBatch, groups: Groups, group_count: int) -> pa.Array:
        return self._call("accumulate", self.state_type, group_count, rows, groups, group_count)

    def combine(self, states: pa.Array, groups: Groups, group_count: int) -> pa.Array:
        return self._call("combine", self.state_type, group_count, states, groups, group_count)

    def deduct(self, states: pa.Array, leaving: pa.Array) -> pa.Array:
        return self._call("deduct", self.state_type, len(states), states, leaving)

    def export(self, states: pa.Array) -> pa.Array:
        return self._call("export", self.result_type, len(states), states)

    def _call(self, method: str, wanted: pa.DataType, count: int, *arguments: Any) -> pa.Array:
        try:
            made = getattr(self.aggregate, method)(*arguments)
            if isinstance(made, pa.ChunkedArray):
                made = made.combine_chunks()
            elif not isinstance(made, pa.Array):
                made = pa.array(made, wanted)
            if made.type != wanted:
                raise TypeError(f"it returned {made.type}, declared is {wanted}")
            if len(made) != count:
                raise ValueError(f"it returned {len(made)} rows, {count} are needed")
            return made
        except Exception as error:
            raise JobFailedError(
                f"aggregate {self.name!r}: {self.aggregate.name_of(method)} failed{self._where()}: "
                f"{error if isinstance(error, JobFailedError) else f'{type(error).__name__}: {error}'}"
            ) from error

    def _where(self) -> str:
        if self.window is None:
            return ""
        return f" in the window [{format_time(self.window[0])}, {format_time(self.window[1])})"


def check_inputs(
    aggregate: BatchAggregate, names: Sequence[str], types: Sequence[pa.DataType]
) -> tuple[pa.DataType, pa.DataType]:
    """Return the types of states and results over columns of these names and types; TypeError if there are none."""
    for data_type in types:
        if holds_union(data_type):  # Arrow ends the process when it makes a null of one
            raise TypeError(f"{aggregate.label} cannot keep a union, got {data_type}; make columns of its members")
    inputs = pa.schema(list(zip(names, map(plain_type, types), strict=True)))
    made = aggregate.state_type(inputs), aggregate.result_type(inputs)
    for data_type in made:
        if not isinstance(data_type, pa.DataType):
            raise TypeError(f"{aggregate.label} must give Arrow types for its state and result, not {data_type!r}")
    return made


def holds_union(data_type: pa.DataType) -> bool:
    """Is a type a union, or is there one in it?"""
    if pa.types.is_union(data_type):
        return True
    return any(holds_union(data_type.field(index).type) for index in range(data_type.num_fields))


def plain_type(data_type: pa.DataType) -> pa.DataType:
    """The type as functions get it: a dictionary as its values, views of texts and bytes as those."""
    while pa.types.is_dictionary(data_type):
        data_type = data_type.value_type
    if pa.types.is_string_view(data_type):
        return pa.string()
    return pa.binary() if pa.types.is_binary_view(data_type) else data_type


def plain_array(array: pa.Array) -> pa.Array:
    """An array as one of its plain_type."""
    if pa.types.is_dictionary(array.type):
        return pa.DictionaryArray.from_arrays(array.indices, plain_array(array.dictionary)).dictionary_decode()
    wanted = plain_type(array.type)
    return array if array.type == wanted else array.cast(wanted)
