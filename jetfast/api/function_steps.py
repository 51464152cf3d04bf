"""Steps of users' functions and processors: checks what was asked, and adds the step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from jetfast.api.following_steps import add_following, early_rows_with
from jetfast.api.keys import check_keys
from jetfast.api.naming import carried, declared, require_columns
from jetfast.api.row_functions import BatchFunction, FlatFunction, ListElements, RowFunction, infer_schema
from jetfast.api.steps import CustomStep, MapBatchesStep, Output, Step
from jetfast.core.processor import Processor
from jetfast.errors import JobDefinitionError

if TYPE_CHECKING:
    from jetfast.api.stage import Stage


def map_batches(stage: Stage, function: BatchFunction, schema: pa.Schema | None, name: str | None) -> Output:
    """As `Stage.map_batches`."""
    label = getattr(function, "__qualname__", type(function).__name__)
    step_name = stage.pipeline._name_for(name, f"map_batches({label})", stateful=False)
    if not callable(function):
        raise JobDefinitionError(f"step {step_name!r}: map_batches needs a function, got {function!r}")
    if schema is None:
        schema = infer_schema(function, stage.schema, step_name)
    schema = declared(step_name, schema)
    return add_function_step(MapBatchesStep, stage, step_name, schema, function=function)


def map_rows(
    stage: Stage, function: Callable[[dict[str, Any]], dict[str, Any] | None], schema: pa.Schema, name: str | None
) -> Output:
    """As `Stage.map_rows`."""
    return _map_each_row("map_rows", RowFunction, stage, function, schema, name)


def flat_map(
    stage: Stage, function: Callable[[dict[str, Any]], Iterable[dict[str, Any]]], schema: pa.Schema, name: str | None
) -> Output:
    """As `Stage.flat_map`."""
    return _map_each_row("flat_map", FlatFunction, stage, function, schema, name)


def _map_each_row(
    kind: str,
    over_batches: Callable[..., BatchFunction],
    stage: Stage,
    function: Callable[[dict[str, Any]], Any],
    schema: pa.Schema,
    name: str | None,
) -> Output:
    """Add the step of a function of one row; `over_batches` makes one of batches of it."""
    label = getattr(function, "__qualname__", type(function).__name__)
    if not callable(function):
        raise JobDefinitionError(f"step {name or kind!r}: {kind} needs a function, got {function!r}")
    step_name = stage.pipeline._name_for(name, f"{kind}({label})", stateful=False)
    schema = declared(step_name, schema)
    for field in schema:
        try:
            pa.array([], field.type)
        except pa.ArrowNotImplementedError as error:
            raise JobDefinitionError(
                f"step {step_name!r}: Python values cannot be made a column {field.name!r} of type {field.type}; use "
                f"map_batches"
            ) from error
    return map_batches(stage, over_batches(function, schema), schema, step_name)


def explode(stage: Stage, column: str, name: str | None) -> Output:
    """As `Stage.explode`."""
    step_name = stage.pipeline._name_for(name, f"explode({column})", stateful=False)
    require_columns(step_name, [column], stage.schema)
    list_type = stage.schema.field(column).type
    if not (pa.types.is_list(list_type) or pa.types.is_large_list(list_type)):
        raise JobDefinitionError(f"step {step_name!r}: explode needs a column of lists, {column!r} is {list_type}")
    position = stage.schema.get_field_index(column)
    schema = stage.schema.set(position, pa.field(column, list_type.value_type))
    return map_batches(stage, ListElements(position, schema), schema, step_name)


def custom(
    stage: Stage, supplier: Callable[[], Processor], schema: pa.Schema, keys: str | Sequence[str], name: str | None
) -> Output:
    """As `Stage.custom`."""
    label = getattr(supplier, "__qualname__", type(supplier).__name__)
    step_name = stage.pipeline._name_for(name, f"custom({label})", stateful=True)
    if not callable(supplier):
        raise JobDefinitionError(f"step {step_name!r}: custom needs a class or function, got {supplier!r}")
    made = supplier.func if isinstance(supplier, partial) else supplier
    if isinstance(made, type) and not issubclass(made, Processor):
        raise JobDefinitionError(
            f"step {step_name!r}: custom needs a class derived from jetfast.core.processor.Processor, "
            f"got {made.__name__}"
        )
    schema = carried(step_name, schema)
    named = (keys,) if isinstance(keys, str) else tuple(keys)
    require_columns(step_name, named, stage.schema, "as key")
    check_keys(step_name, pa.schema([stage.schema.field(key) for key in named]))
    return add_function_step(CustomStep, stage, step_name, schema, supplier=supplier, keys=named)


def add_function_step(
    make_step: Callable[..., Step], stage: Stage, name: str, schema: pa.Schema, **settings: Any
) -> Output:
    """Add a step of a user's function that gives `schema`: event time and early results follow their columns."""
    time, reason = time_after_function(stage, name, schema)
    early = early_rows_with(stage._early, lambda column: column if column in schema.names else None)
    return add_following(make_step, stage, name, schema, time=time, time_lost=reason, early=early, **settings)


def time_after_function(stage: Stage, step: str, schema: pa.Schema) -> tuple[str | None, str]:
    """The event-time column behind a function of the user that gives `schema`, or why there is none."""
    time = stage.event_time
    if time is None:
        return None, stage._no_time_reason
    data_type = stage.schema.field(time).type
    if time in schema.names and schema.field(time).type == data_type:
        return time, ""
    return None, f"step {step!r} does not return its event-time column {time!r} as {data_type}"
