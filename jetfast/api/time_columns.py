"""Where rows get their time: event time at a source, or processing time anywhere behind it. Checks it, and adds it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from jetfast.api.expression_nodes import Column
from jetfast.api.expressions import Expression
from jetfast.api.naming import named_column
from jetfast.api.operations import lower_for_step, pure_column
from jetfast.api.projected_source import ProjectedSource
from jetfast.api.spark_types import plain_type
from jetfast.api.steps import EventTime, Output, ProcessingTimeStep, SourceStep, Step, source_schemas
from jetfast.core.items import MAIN_PORT
from jetfast.core.throttling import WatermarkThrottleFactory
from jetfast.core.watermark_policies import FixedLag, WatermarkPolicyFactory
from jetfast.errors import JobDefinitionError
from jetfast.types import Duration, non_negative_duration_us

if TYPE_CHECKING:
    from jetfast.api.stage import SourceStage, Stage


def with_event_time(
    stage: SourceStage,
    column: str | Expression,
    policy: WatermarkPolicyFactory | None,
    idle_timeout: Duration,
    throttle: WatermarkThrottleFactory | None,
) -> None:
    """As `SourceStage.with_event_time`: the step of the source has it then."""
    step = stage._output.step
    assert isinstance(step, SourceStep)
    if step.event_time is not None:
        raise JobDefinitionError(f"step {step.name!r} has an event time already: {step.event_time.column!r}")
    if stage.pipeline._readers(stage._output):
        raise JobDefinitionError(f"step {step.name!r}: with_event_time must directly follow read, before other steps")
    name, expression = named_column(column, stage.schema, step.name)
    if pure_column(expression) == name and name in stage.schema.names:  # which is quicker than to bind it
        time_type = plain_type(stage.schema.field(name).type)
        if pa.types.is_dictionary(stage.schema.field(name).type):
            expression = expression.cast(time_type)
    else:
        time_type = lower_for_step(expression, stage.schema, step.name, name, "fail", "as event time").data_type
    _check_time_type(step.name, name, time_type)
    if policy is not None and not callable(policy):
        raise JobDefinitionError(
            f"step {step.name!r}: policy must be one of jf.watermarks, such as "
            f'jf.watermarks.fixed_lag("10s"), got {policy!r}'
        )
    if throttle is not None and not callable(throttle):
        raise JobDefinitionError(
            f"step {step.name!r}: throttle must be one of jf.watermarks, such as "
            f'jf.watermarks.emit_by_min_step("1s"), got {throttle!r}'
        )
    idle_timeout_us = non_negative_duration_us(idle_timeout, "idle_timeout")
    try:
        check = getattr(step.source, "check_event_time", None)  # ChecksEventTime
        if check is not None:
            check(name)
    except JobDefinitionError as error:
        raise JobDefinitionError(f"step {step.name!r}: {error}") from error
    if pure_column(expression) != name:
        outputs = {existing: Expression(Column(existing)) for existing in stage.schema.names} | {name: expression}
        step.source = ProjectedSource(step.source, list(outputs.items()), step.name)
        step.schemas = source_schemas(step.name, step.source)
    step.event_time = EventTime(name, FixedLag(0) if policy is None else policy, idle_timeout_us, throttle)
    step.time = name


def with_processing_time(stage: Stage, column: str, name: str | None) -> Output:
    """As `Stage.with_processing_time`."""
    step_name = stage.pipeline._name_for(name, f"with_processing_time({column})", stateful=True)
    if not isinstance(column, str) or not column:
        raise JobDefinitionError(f"step {step_name!r}: a column is named by text, got {column!r}")
    if column in stage.schema.names:
        raise JobDefinitionError(f"step {step_name!r}: there is a column {column!r} already; choose another name")
    maker = _watermark_maker(stage._output.step)
    if maker is not None:
        raise JobDefinitionError(
            f"step {step_name!r}: only one step on a path makes watermarks, and {maker!r} makes them already"
        )
    schema = stage.schema.append(pa.field(column, pa.timestamp("us")))
    step = ProcessingTimeStep(
        stage.pipeline, step_name, (stage._output,), {MAIN_PORT: schema}, time=column, column=column
    )
    stage.pipeline._add(step)
    return Output(step)


def _watermark_maker(step: Step) -> str | None:
    """Name of a step that makes the watermarks which come to `step`; None: none come."""
    if isinstance(step, ProcessingTimeStep) or (isinstance(step, SourceStep) and step.event_time is not None):
        return step.name
    return next(filter(None, (_watermark_maker(output.step) for output in step.inputs)), None)


def _check_time_type(step: str, column: str, data_type: pa.DataType) -> None:
    """Raise JobDefinitionError unless a column can be event time."""
    if pa.types.is_timestamp(data_type) or pa.types.is_date(data_type):
        return
    unit = " for microseconds since 1970 (s, ms and ns likewise)" if pa.types.is_integer(data_type) else ""
    raise JobDefinitionError(
        f"step {step!r}: event time {column!r} must be a timestamp or date column, but it is {data_type}; "
        f'write with_event_time(col({column!r}).cast("timestamp[us]")){unit}'
    )
