"""The union of several stages: checks that they fit together, and adds the step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from jetfast.api.steps import Output, UnionStep
from jetfast.core.items import MAIN_PORT
from jetfast.errors import JobDefinitionError

if TYPE_CHECKING:
    from jetfast.api.stage import Stage


def unite(stage: Stage, others: Sequence[Stage], name: str | None) -> Output:
    """As `Stage.union`."""
    from jetfast.api.stage import Stage

    stages = (stage, *others)
    for other in others:
        if not isinstance(other, Stage):
            raise JobDefinitionError(f"step {name or 'union'!r}: union needs stages, got {other!r}")
    if not others:
        raise JobDefinitionError(f"step {name or 'union'!r}: union needs at least one other stage")
    outputs = tuple(stage._output for stage in stages)
    generated = f"union({', '.join(stage._label for stage in stages)})"
    step_name = stage.pipeline._name_for(name, generated, stateful=False)
    for other in others:
        if other.pipeline is not stage.pipeline:
            raise JobDefinitionError(f"step {step_name!r}: {other.name!r} belongs to another pipeline")
        difference = _schema_difference(stage.schema, other.schema)
        if difference:
            raise JobDefinitionError(
                f"step {step_name!r}: a union needs equal columns, but {stage._label!r} and {other._label!r} "
                f"differ: {difference}"
            )
    times = [stage.event_time for stage in stages]
    shifts = {output.step.time_shift_us for output in outputs}
    same = len(set(times)) == 1 and len(shifts) == 1
    step = UnionStep(
        stage.pipeline,
        step_name,
        outputs,
        {MAIN_PORT: merged_schema([each.schema for each in stages])},
        time=times[0] if same else None,
        no_time_reason=stage._output.step.no_time_reason
        if same
        else "the inputs of its union have different event times: "
        + ", ".join(f"{stage._label!r} has {stage._time_description}" for stage in stages),
        time_shift_us=stage._output.step.time_shift_us,
        early=next((stage._early for stage in stages if stage._early is not None), None),
    )
    stage.pipeline._add(step)
    return Output(step)


def _schema_difference(left: pa.Schema, right: pa.Schema) -> str:
    """Return how names or types differ, or "" if they do not."""
    if left.names != right.names:
        missing = [name for name in left.names if name not in right.names]
        surplus = [name for name in right.names if name not in left.names]
        parts = [f"only the first has {', '.join(missing)}"] if missing else []
        parts += [f"only the second has {', '.join(surplus)}"] if surplus else []
        return "; ".join(parts) or "the order of the columns"
    different = [
        f"{one.name} is {one.type} and {other.type}"
        for one, other in zip(left, right, strict=True)
        if one.type != other.type
    ]
    return "; ".join(different)


def merged_schema(schemas: Sequence[pa.Schema]) -> pa.Schema:
    """Of a union of equal columns: one may hold nulls if it may in any input."""
    return pa.schema([_merged_field(fields) for fields in zip(*schemas, strict=True)])


def _merged_field(fields: Sequence[pa.Field]) -> pa.Field:
    first = fields[0].with_nullable(any(field.nullable for field in fields))
    # Metadata may say that it is an extension type, which it is only if it is everywhere.
    return first if all(field.metadata == first.metadata for field in fields) else first.remove_metadata()
