"""Batch aggregates at the door of a table: their inputs out of batches, by group, and their states as columns."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from jetfast.core.aggregate import AnyAggregateColumn, BatchAggregateColumn
from jetfast.core.batch import Batch
from jetfast.core.batch_aggregate import EVENT_TIME, BoundAggregate, Groups, plain_array
from jetfast.kernels.grouping import number_places
from jetfast.kernels.windows import unused_name
from jetfast.processors.state_log import Places

Span = tuple[int, int]


class BatchInputs:
    """The batch aggregates of a step: their inputs out of batches, their states as columns.

    Parameters
    ----------
    schema : of the rows
    time : event-time column
    aggregates : all of the step, those of the kernel too
    partial_schema : of what the kernel saves and sends
    """

    def __init__(
        self, schema: pa.Schema, time: str, aggregates: Sequence[AnyAggregateColumn], partial_schema: pa.Schema
    ) -> None:
        columns = [aggregate for aggregate in aggregates if isinstance(aggregate, BatchAggregateColumn)]
        self.bound = [BoundAggregate(column, schema) for column in columns]
        self.time = time
        needed = {time}.union(*(bound.columns for bound in self.bound))
        self.needed = [name for name in schema.names if name in needed]
        self.native_names = partial_schema.names
        self.state_names: list[str] = []
        for bound in self.bound:
            self.state_names.append(unused_name(f"{bound.name}.state", {*self.native_names, *self.state_names}))
        states = [pa.field(name, bound.state_type) for name, bound in zip(self.state_names, self.bound, strict=True)]
        self.partial_schema = pa.schema([*partial_schema, *states])

    def states_of(
        self, batch: Batch, rows: npt.NDArray[np.int32], groups: Groups, count: int, window: Span | None = None
    ) -> list[pa.Array]:
        """States of each group of some rows of a batch, one array for each aggregate; `window` is what they lie in."""
        taken = taken_rows(batch.select(self.needed), rows)
        times = taken.timestamps(self.time)[0]
        arrow = taken.to_arrow()
        arrays = {name: plain_array(arrow.column(name)) for name in self.needed}
        event_time = pa.array(times).cast(pa.timestamp("us"))
        states = []
        for bound in self.bound:
            inputs, names = [arrays[name] for name in bound.columns], bound.names
            if bound.aggregate.takes_time:
                inputs, names = [*inputs, event_time], [*names, EVENT_TIME]
            bound.window = window or (int(times.min()), int(times.max()))
            states.append(bound.accumulate(record_batch(inputs, names, len(rows)), groups, count))
        return states

    def add_states(self, rows: Batch, states: list[pa.Array]) -> Batch:
        """Partial rows of the kernel with states beside them."""
        return rows.with_columns(Batch.from_arrow(pa.record_batch(states, schema=self.state_schema)))

    @property
    def state_schema(self) -> pa.Schema:
        return pa.schema([self.partial_schema.field(name) for name in self.state_names])


def record_batch(columns: list[pa.Array], names: list[str], row_count: int) -> pa.RecordBatch:
    """A record batch that has its rows even without columns."""
    if columns:
        return pa.record_batch(columns, names=names)
    empty = pa.StructArray.from_buffers(pa.struct([]), row_count, [None])
    return pa.RecordBatch.from_struct_array(empty)


def taken_rows(batch: Batch, rows: npt.NDArray[np.int32]) -> Batch:
    """Some rows of a batch, which itself is given if they are all, in their order."""
    if len(rows) == batch.row_count and bool((rows[1:] > rows[:-1]).all()):
        return batch
    return batch.take(rows)


def grouped_by_frame(
    places: Places, frames: npt.NDArray[np.int64]
) -> tuple[Groups, Places, list[tuple[int, int, int]]]:
    """Group rows, which are sorted by frame, by frame and place.

    Returns
    -------
    groups : of each row
    group_places : of each group; ascending within a frame
    spans : (frame, first group, group behind the last) of each frame
    """
    starts = np.concatenate([[0], np.flatnonzero(np.diff(frames)) + 1, [len(frames)]])
    groups, group_places, bounds = number_places(places, starts)
    first_groups = bounds.tolist()
    return (
        groups,
        group_places,
        list(zip(frames[starts[:-1]].tolist(), first_groups[:-1], first_groups[1:], strict=True)),
    )
