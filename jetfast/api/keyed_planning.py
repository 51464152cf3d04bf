"""Plans joins and steps that keep state by key: one vertex each, behind edges that bring the rows of a key together."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from jetfast.api.feed import Feed
from jetfast.api.steps import (
    LATE_PORT,
    AsofJoin,
    FirstOfKey,
    HashJoin,
    IntervalJoin,
    JoinStep,
    KeyedStateStep,
    Output,
    Running,
    Stateful,
    WindowJoin,
)
from jetfast.core.dag import Vertex
from jetfast.core.items import MAIN_PORT
from jetfast.core.joins import LATE_PORTS, LEFT, RIGHT, Join
from jetfast.core.keyed_input import KeyedInput
from jetfast.core.processor import ProcessorSupplier
from jetfast.core.routing import partitioned

if TYPE_CHECKING:
    from jetfast.api.planner import Planner


def plan_join(planner: Planner, step: JoinStep) -> None:
    """Add the vertex of a join and both its edges."""
    planner.times[step.name] = step.time
    feeds, sides = zip(*(plan_join_side(planner, step, ordinal) for ordinal in (LEFT, RIGHT)), strict=True)
    wanted = planner.needed.get(Output(step), set())
    names = [key.name for key in step.keys]
    names += [name for columns in step.columns for _, name in columns if name in wanted]
    names += [field.name for field in step.added]
    schema = pa.schema([step.schemas[MAIN_PORT].field(name) for name in names])
    join = Join(sides, step.join_type, schema)
    planner.dag.add_vertex(Vertex(step.name, join_supplier(step, join)))
    for ordinal in (LEFT, RIGHT):
        # The table of a hash join is read before the stream.
        priority = int(isinstance(step.method, HashJoin) and ordinal == LEFT)
        routing = partitioned(*sides[ordinal].keys)
        planner.add_edge(feeds[ordinal], step.name, ordinal, routing, crossing=True, priority=priority)
    planner.feeds[Output(step)] = [Feed(step.name, MAIN_PORT, schema)]
    for port, side in zip(LATE_PORTS, sides, strict=True):
        if side.late_columns:
            late = Output(step, port)
            planner.feeds[late] = [Feed(step.name, port, late.schema)]


def plan_join_side(planner: Planner, step: JoinStep, ordinal: int) -> tuple[Feed, KeyedInput]:
    """Bring just what a join needs of one input: late rows are whole."""
    output = step.inputs[ordinal]
    late_wanted = Output(step, LATE_PORTS[ordinal]) in planner.readers
    wanted = planner.needed.get(Output(step), set())
    columns = [column for column, name in step.columns[ordinal] if name in wanted]
    time = None if isinstance(step.method, HashJoin) else output.step.time
    read = set(output.schema.names) if late_wanted else {*columns, *(key.columns[ordinal] for key in step.keys)}
    if time is not None:
        read.add(time)
    computed = [
        (key.columns[ordinal], expression) for key in step.keys if (expression := key.expressions[ordinal]) is not None
    ]
    feed = planner.prepare_input(step, output, read, computed, "left" if ordinal == LEFT else "right")
    return feed, KeyedInput(
        feed.schema,
        tuple(key.columns[ordinal] for key in step.keys),
        tuple(columns),
        time,
        output.step.time_shift_us,
        tuple(output.schema.names) if late_wanted else (),
    )


def plan_keyed_state(planner: Planner, step: KeyedStateStep) -> None:
    """Add the vertex of a step that keeps state by key."""
    output, late = step.inputs[0], Output(step, LATE_PORT)
    late_wanted = late in planner.readers
    wanted = planner.needed.get(Output(step), set())
    read = step.columns_kept(wanted, whole=late_wanted)
    feed = planner.prepare_input(step, output, read, step.computed, "input")
    made = step.schemas[MAIN_PORT]
    passed = output.schema.names if isinstance(step.method, Stateful) else made.names
    rows = KeyedInput(
        feed.schema,
        tuple(key for key, _ in step.keys),
        tuple(name for name in passed if name in feed.schema.names),
        None if step.ttl_us is None else output.step.time,
        output.step.time_shift_us,
        tuple(output.schema.names) if late_wanted else (),
    )
    added = [] if isinstance(step.method, FirstOfKey) else made.names[len(output.schema.names) :]
    schema = made
    if not isinstance(step.method, Stateful):
        schema = pa.schema([made.field(name) for name in dict.fromkeys((*rows.columns, *added))])
    planner.times[step.name] = step.time
    planner.dag.add_vertex(Vertex(step.name, keyed_state_supplier(step, rows, schema)))
    planner.add_edge(feed, step.name, 0, partitioned(*rows.keys), crossing=True)
    planner.feeds[Output(step)] = [Feed(step.name, MAIN_PORT, schema)]
    if late_wanted:
        planner.feeds[late] = [Feed(step.name, LATE_PORT, late.schema)]


def join_supplier(step: JoinStep, join: Join) -> ProcessorSupplier:
    """What makes the processors of a join."""
    from jetfast.processors.asof_join import AsofJoinProcessor
    from jetfast.processors.hash_join import HashJoinProcessor
    from jetfast.processors.interval_join import IntervalJoinProcessor
    from jetfast.processors.window_join import WindowJoinProcessor

    method = step.method
    if isinstance(method, WindowJoin):
        return partial(WindowJoinProcessor, join, method.window)
    if isinstance(method, IntervalJoin):
        return partial(IntervalJoinProcessor, join, method.lower_us, method.upper_us)
    if isinstance(method, AsofJoin):
        return partial(AsofJoinProcessor, join, method.tolerance_us)
    return partial(HashJoinProcessor, join)


def keyed_state_supplier(step: KeyedStateStep, rows: KeyedInput, schema: pa.Schema) -> ProcessorSupplier:
    """What makes the processors of a step that keeps state by key."""
    from jetfast.processors.drop_duplicates import DropDuplicates
    from jetfast.processors.map_stateful import MapStateful
    from jetfast.processors.rolling_aggregate import RollingAggregate

    method = step.method
    if isinstance(method, Stateful):
        return partial(MapStateful, rows, method.function, method.on_evict, method.state_type, schema, step.ttl_us)
    if isinstance(method, Running):
        columns = [aggregate.for_processor() for aggregate in method.aggregates]
        return partial(RollingAggregate, rows, columns, schema, step.ttl_us)
    return partial(DropDuplicates, rows, step.ttl_us)
