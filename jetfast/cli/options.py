"""Options that several commands share: fields of a dataclass, which typer sees as parameters of each command."""

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any


def with_options(function: Callable[..., None]) -> Callable[..., None]:
    """Decorate a command that has a parameter `options`, a dataclass whose fields all have defaults.

    The command gets a parameter for each of the fields instead, annotated as they are; called by keywords only.
    """
    signature = inspect.signature(function)
    options = signature.parameters["options"].annotation
    own = [parameter for parameter in signature.parameters.values() if parameter.name != "options"]
    shared = [
        inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=field.type)
        for field in dataclasses.fields(options)
    ]
    parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own] + shared

    @functools.wraps(function)
    def call(**given: Any) -> None:
        values = {parameter.name: given.pop(parameter.name, parameter.default) for parameter in shared}
        function(**given, options=options(**values))

    call.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return call
