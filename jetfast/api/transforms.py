"""Steps that choose, compute or rename columns, or keep some of the rows: checks what was asked, and adds the step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from jetfast.api.expressions import as_expression
from jetfast.api.following_steps import add_following, early_rows_with
from jetfast.api.naming import named_column, require_columns, shorten
from jetfast.api.operations import (
    Drop,
    OnError,
    Operation,
    Rename,
    Select,
    Where,
    WithColumns,
    check_on_error,
    pure_column,
)
from jetfast.api.steps import EarlyRows, Output, TransformStep
from jetfast.errors import JobDefinitionError

if TYPE_CHECKING:
    from jetfast.api.stage import Stage


def select(stage: Stage, columns: Sequence[object], name: str | None, on_error: OnError) -> Output:
    """As `Stage.select`."""
    if not columns:
        raise JobDefinitionError(f"step {name or 'select'!r}: select needs at least one column")
    outputs = [named_column(column, stage.schema, name or "select") for column in columns]
    generated = f"select({', '.join(column for column, _ in outputs)})"
    return _add(stage, Select(tuple(outputs), on_error), name, generated, on_error)


def where(stage: Stage, condition: object, name: str | None, on_error: OnError) -> Output:
    """As `Stage.where`."""
    if isinstance(condition, str):
        raise JobDefinitionError(
            f"step {name or 'where'!r}: where needs a condition such as col({condition!r}) > 0, got text"
        )
    expression = as_expression(condition)
    return _add(stage, Where(expression, on_error), name, f"where({expression.node})", on_error)


def with_columns(
    stage: Stage, columns: Mapping[str, object], operator: str, name: str | None, on_error: OnError
) -> Output:
    """As `Stage.with_columns`, or what `operator` names."""
    if not isinstance(columns, Mapping) or not columns:
        raise JobDefinitionError(f'step {name or operator!r}: {operator} needs {{"name": expression}}, got {columns!r}')
    generated = f"{operator}({', '.join(map(str, columns))})"
    for column in columns:
        if not isinstance(column, str) or not column:
            raise JobDefinitionError(f"step {name or generated!r}: a column is named by text, got {column!r}")
        if column == stage.event_time:
            raise JobDefinitionError(
                f"step {name or generated!r}: {column!r} is the event time of these rows and cannot be replaced; "
                f"give the new column another name"
            )
    outputs = tuple((column, as_expression(value)) for column, value in columns.items())
    names = tuple(dict.fromkeys([*stage.schema.names, *columns]))
    return _add(stage, WithColumns(outputs, on_error, names), name, generated, on_error)


def drop(stage: Stage, columns: tuple[str, ...], name: str | None) -> Output:
    """As `Stage.drop`."""
    generated = f"drop({', '.join(map(str, columns))})"
    require_columns(name or generated, columns, stage.schema)
    if len(set(columns)) == len(stage.schema.names):
        raise JobDefinitionError(f"step {name or generated!r}: drop would leave no column")
    return _add(stage, Drop(columns), name, generated)


def rename(stage: Stage, columns: Mapping[str, str], name: str | None) -> Output:
    """As `Stage.rename`."""
    if not isinstance(columns, Mapping):
        raise JobDefinitionError(f'step {name or "rename"!r}: rename needs {{"old": "new"}}, got {columns!r}')
    generated = f"rename({', '.join(f'{old} as {new}' for old, new in columns.items())})"
    require_columns(name or generated, columns, stage.schema)
    return _add(stage, Rename(dict(columns)), name, generated)


def _add(stage: Stage, operation: Operation, name: str | None, generated: str, on_error: str = "fail") -> Output:
    step_name = stage.pipeline._name_for(name, shorten(generated), stateful=False)
    check_on_error(step_name, on_error)
    time = stage.event_time
    return add_following(
        TransformStep,
        stage,
        step_name,
        operation.bind(stage.schema, step_name).schema,
        time=None if time is None else _column_after(operation, time),
        time_lost=f"step {step_name!r} leaves its event-time column {time!r} out; keep it",
        early=_early_after(stage, operation),
        operation=operation,
    )


def _early_after(stage: Stage, operation: Operation) -> EarlyRows | None:
    """Who filters by the column that tells early results from final ones has chosen; then they count as others."""
    early = stage._early
    if early is None or (
        isinstance(operation, Where) and early.column in operation.condition.node.columns(stage.schema)
    ):
        return None
    return early_rows_with(early, partial(_column_after, operation))


def _column_after(operation: Operation, column: str) -> str | None:
    """What a column is called after a step; None: the step leaves it out or computes another in its place."""
    if isinstance(operation, Rename):
        return operation.names.get(column, column)
    if isinstance(operation, Select):
        return next((name for name, expression in operation.outputs if pure_column(expression) == column), None)
    if isinstance(operation, Drop):
        return None if column in operation.names else column
    if isinstance(operation, WithColumns):
        return None if column in [name for name, _ in operation.outputs] else column
    return column
