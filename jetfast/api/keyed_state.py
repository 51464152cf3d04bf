"""Steps that keep state by key: first rows, running aggregates, functions with state. Checks them, and adds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from jetfast.api.expressions import Expression
from jetfast.api.following_steps import refuse_early_rows
from jetfast.api.function_steps import time_after_function
from jetfast.api.grouped import check_aggregate
from jetfast.api.keys import check_keys, checked_group_keys
from jetfast.api.lowering import HIDDEN
from jetfast.api.naming import declared, named_column, require_columns, require_distinct, shorten
from jetfast.api.operations import lower_for_step, pure_column
from jetfast.api.spark_types import plain_type
from jetfast.api.stage import LateRowsStage, Stage
from jetfast.api.steps import (
    LATE_PORT,
    FirstOfKey,
    KeyedStateStep,
    Output,
    Running,
    Stateful,
    Step,
    WindowedAggregate,
    late_schema_of,
)
from jetfast.core.aggregate import Aggregate, AggregateColumn
from jetfast.core.aggregates.extremes import Extremes
from jetfast.core.items import MAIN_PORT
from jetfast.errors import JobDefinitionError
from jetfast.kernels.carried import carried_type
from jetfast.types import Duration, positive_duration_us

NamedKeys = tuple[tuple[str, Expression], ...]
Keys = list[tuple[str, Expression | None]]


def drop_duplicates(
    stage: Stage, columns: Sequence[object], horizon: Duration | None, name: str | None
) -> LateRowsStage:
    """As `Stage.drop_duplicates`."""
    named = tuple(
        named_column(column, stage.schema, name or "drop_duplicates") for column in columns or stage.schema.names
    )
    asked = ", ".join(key for key, _ in named) if columns else ""
    living = "" if horizon is None else f", {horizon}"
    step_name = stage.pipeline._name_for(name, shorten(f"drop_duplicates({asked}{living})", 120), stateful=True)
    refuse_early_rows(step_name, stage)
    keys, _ = state_keys(step_name, stage, named, hide=True)
    ttl_us = time_to_live_us(step_name, stage, horizon, "horizon")
    time = stage.event_time
    return add(stage, step_name, FirstOfKey(), keys, ttl_us, stage.schema, time, stage._no_time_reason)


def distinct(stage: Stage, columns: Sequence[object], name: str | None) -> Stage:
    """As `Stage.distinct`."""
    asked = [key for key, _ in (named_column(column, stage.schema, name or "distinct") for column in columns)]
    step_name = stage.pipeline._name_for(name, shorten(f"distinct({', '.join(asked)})", 120), stateful=True)
    chosen = stage.select(*columns, name=f"{step_name} (columns)") if columns else stage
    return Stage(drop_duplicates(chosen, (), None, step_name)._output)


def rolling_agg(
    stage: Stage, named: NamedKeys, aggregates: Mapping[str, Aggregate], ttl: Duration | None, name: str | None
) -> LateRowsStage:
    """As `GroupedStage.rolling_agg`."""
    from jetfast.processors.rolling_aggregate import RunningColumn

    names = ", ".join(key for key, _ in named)
    step_name = stage.pipeline._name_for(
        name, shorten(f"rolling_agg({', '.join(aggregates)} by {names})", 120), stateful=True
    )
    refuse_early_rows(step_name, stage)
    if not aggregates:
        raise JobDefinitionError(f"step {step_name!r}: rolling_agg needs at least one aggregate, such as n=jf.count()")
    keys, key_fields = state_keys(step_name, stage, named, hide=False)
    checked: list[WindowedAggregate] = []
    fields = [*stage.schema, *key_fields]
    for result, value in aggregates.items():
        aggregate, types = check_aggregate(step_name, result, value, stage.schema)
        column = aggregate.for_processor()
        try:
            if not isinstance(column, AggregateColumn) and not isinstance(column.aggregate, Extremes):
                raise TypeError(f"{column.aggregate.label} is not a running aggregate; map_stateful computes any")
            arguments = pa.schema([(argument, each) for argument, each in zip(aggregate.columns, types, strict=True)])
            fields.append(pa.field(result, RunningColumn(column, arguments).result_type))
        except TypeError as error:
            raise JobDefinitionError(f"step {step_name!r}, column {result!r}: {error}") from error
        checked.append(aggregate)
    require_distinct(step_name, [field.name for field in fields])
    ttl_us = time_to_live_us(step_name, stage, ttl, "ttl")
    time = stage.event_time
    method = Running(tuple(checked))
    return add(stage, step_name, method, keys, ttl_us, pa.schema(fields), time, stage._no_time_reason)


def map_stateful(
    stage: Stage,
    named: NamedKeys,
    function: Any,
    state: pa.DataType,
    schema: pa.Schema,
    ttl: Duration | None,
    on_evict: Any,
    name: str | None,
) -> LateRowsStage:
    """As `GroupedStage.map_stateful`."""
    label = getattr(function, "__qualname__", type(function).__name__)
    names = ", ".join(key for key, _ in named)
    step_name = stage.pipeline._name_for(name, shorten(f"map_stateful({label} by {names})", 120), stateful=True)
    refuse_early_rows(step_name, stage)
    for what, value in (("function", function), ("on_evict", on_evict)):
        if not callable(value) and (value is not None or what == "function"):
            raise JobDefinitionError(f"step {step_name!r}: {what} must be a function, got {value!r}")
    if not isinstance(state, pa.DataType):
        raise JobDefinitionError(f"step {step_name!r}: state must be an Arrow type such as pa.int64(), got {state!r}")
    schema = declared(step_name, schema)
    if carried_type(state) != state:
        raise JobDefinitionError(
            f"step {step_name!r}: states of type {state} cannot be kept; take {carried_type(state)} as state="
        )
    keys, _ = state_keys(step_name, stage, named, hide=False)
    ttl_us = time_to_live_us(step_name, stage, ttl, "ttl")
    time, reason = time_after_function(stage, step_name, schema)
    return add(stage, step_name, Stateful(function, on_evict, state), keys, ttl_us, schema, time, reason)


def state_keys(step: str, stage: Stage, named: NamedKeys, *, hide: bool) -> tuple[Keys, list[pa.Field]]:
    """Check keys; return them as columns of the rows, with their expressions if computed, and the fields they add.

    State is kept by plain values, so dictionaries are decoded. `hide`: computed keys are no columns of the result.
    """
    require_distinct(step, [key for key, _ in named])
    fields = hidden_key_fields(step, named, stage) if hide else checked_group_keys(step, named, stage.schema)[0]
    keys: Keys = []
    shown: list[pa.Field] = []
    for number, ((key, expression), field) in enumerate(zip(named, fields, strict=True)):
        plain = plain_type(field.type)
        source = pure_column(expression)
        if source == key and plain == field.type:
            keys.append((key, None))
        elif source == key or hide:
            keys.append((f"{HIDDEN}key{number}", expression if plain == field.type else expression.cast(plain)))
        else:
            keys.append((key, expression if plain == field.type else expression.cast(plain)))
            shown.append(pa.field(key, plain))
    return keys, shown


def hidden_key_fields(step: str, named: NamedKeys, stage: Stage) -> list[pa.Field]:
    """Check keys that only tell rows apart: they may have the names of other columns."""
    fields = []
    for key, expression in named:
        source = pure_column(expression)
        if source is not None:
            require_columns(step, [source], stage.schema, "as key")
            fields.append(stage.schema.field(source).with_name(key))
        else:
            fields.append(pa.field(key, lower_for_step(expression, stage.schema, step, key, "fail").data_type))
    check_keys(step, pa.schema(fields))
    return fields


def time_to_live_us(step: str, stage: Stage, duration: Duration | None, what: str) -> int | None:
    """How long state lives, microseconds; None: for ever. It needs event time."""
    if duration is None:
        return None
    if stage.event_time is None:
        raise JobDefinitionError(
            f"step {step!r}: {what} goes by event time, but {stage._label!r} has none: {stage._no_time_reason}"
        )
    return positive_duration_us(duration, what)


def add(
    stage: Stage,
    name: str,
    method: FirstOfKey | Running | Stateful,
    keys: Keys,
    ttl_us: int | None,
    schema: pa.Schema,
    time: str | None,
    reason: str,
) -> LateRowsStage:
    """Add the step."""
    step: Step = KeyedStateStep(
        stage.pipeline,
        name,
        (stage._output,),
        {MAIN_PORT: schema, LATE_PORT: late_schema_of(stage.schema)},
        time=time,
        no_time_reason=reason if time is None else "",
        time_shift_us=stage._output.step.time_shift_us,
        method=method,
        keys=keys,
        ttl_us=ttl_us,
    )
    stage.pipeline._add(step)
    return LateRowsStage(Output(step))
