"""Steps that ask an outside service: checks what a user asked for, and adds the step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from jetfast.api.function_steps import add_function_step
from jetfast.api.naming import declared
from jetfast.api.stage import Stage
from jetfast.api.steps import ServiceStep
from jetfast.errors import JobDefinitionError
from jetfast.types import positive_duration_us


def map_using_service(
    stage: Stage,
    create: Callable[[], Any],
    function: Callable[[Any, pa.RecordBatch], Any],
    schema: pa.Schema,
    settings: Mapping[str, Any],
    name: str | None,
) -> Stage:
    """As `Stage.map_using_service`; `settings` are its further arguments."""
    label = getattr(function, "__qualname__", type(function).__name__)
    step_name = stage.pipeline._name_for(name, f"map_using_service({label})", stateful=True)
    for what, value in (("create", create), ("function", function)):
        if not callable(value):
            raise JobDefinitionError(f"step {step_name!r}: {what} must be a function, got {value!r}")
    schema = declared(step_name, schema)
    for what in ("concurrency", "batch_rows"):
        value = settings[what]
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise JobDefinitionError(f"step {step_name!r}: {what} must be a whole number of at least 1, got {value!r}")
    if not isinstance(settings["ordered"], bool):
        raise JobDefinitionError(f"step {step_name!r}: ordered must be True or False, got {settings['ordered']!r}")
    if settings["in_flight"] not in ("wait", "save"):
        raise JobDefinitionError(
            f'step {step_name!r}: in_flight must be "wait" or "save", got {settings["in_flight"]!r}'
        )
    output = add_function_step(
        ServiceStep,
        stage,
        step_name,
        schema,
        create=create,
        function=function,
        settings={
            "concurrency": settings["concurrency"],
            "batch_rows": settings["batch_rows"],
            "ordered": settings["ordered"],
            "saves": settings["in_flight"] == "save",
            "timeout_us": positive_duration_us(settings["timeout"], "timeout"),
        },
    )
    return Stage(output)
