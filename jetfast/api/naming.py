"""Names of steps and columns, and schemas: messages for what does not exist, with the nearest that does."""

import difflib
from collections.abc import Iterable, Sequence

import pyarrow as pa

from jetfast.api.expression_nodes import Column
from jetfast.api.expressions import Expression, as_expression
from jetfast.errors import JobDefinitionError
from jetfast.kernels.carried import carried_schema


def unknown_column(step: str, column: str, schema: pa.Schema, purpose: str = "") -> JobDefinitionError:
    """Return the error for a column that a step names and its input lacks."""
    near = nearest_name(column, schema.names)
    suggestion = f"; did you mean {near!r}?" if near is not None else "."
    needed_for = f" ({purpose})" if purpose else ""
    return JobDefinitionError(
        f"step {step!r}: there is no column {column!r}{needed_for}{suggestion} "
        f"The columns are: {', '.join(schema.names)}"
    )


def nearest_name(name: str, names: Sequence[str]) -> str | None:
    """Return the name that was probably meant, or None."""
    lower = {other.lower(): other for other in reversed(names)}
    containing = [other for other in lower if len(name) > 2 and name.lower() in other]
    near = difflib.get_close_matches(name.lower(), containing or list(lower), n=1, cutoff=0.3 if containing else 0.5)
    return lower[near[0]] if near else None


def require_columns(step: str, columns: Iterable[str], schema: pa.Schema, purpose: str = "") -> None:
    """Raise JobDefinitionError for the first of `columns` that the schema lacks."""
    for column in columns:
        if not isinstance(column, str):
            raise JobDefinitionError(f"step {step!r}: a column is named by text here, got {column!r}")
        if column not in schema.names:
            raise unknown_column(step, column, schema, purpose)


def carried(step: str, schema: object) -> pa.Schema:
    """Return a schema that a user or a source declares as rows of it are carried.

    Raises JobDefinitionError for what is no schema, for two columns of one name, and for a type that has no such form.
    """
    if not isinstance(schema, pa.Schema):
        raise JobDefinitionError(f"step {step!r}: schema must be a pyarrow.Schema, got {type(schema).__name__}")
    twice = next((name for name in schema.names if schema.names.count(name) > 1), None)
    if twice is not None:
        count = schema.names.count(twice)
        raise JobDefinitionError(f"step {step!r}: {count} columns are named {twice!r}; give each its own name before")
    try:
        return carried_schema(schema)
    except TypeError as error:
        raise JobDefinitionError(f"step {step!r}: {error}") from error


def declared(step: str, schema: object) -> pa.Schema:
    """As `carried`, of what a function of the user gives: any of its columns may hold nulls."""
    return pa.schema([field.with_nullable(True) for field in carried(step, schema)])


def require_distinct(step: str, names: Sequence[str]) -> None:
    """Raise JobDefinitionError if a result would have two columns of one name."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise JobDefinitionError(
                f"step {step!r}: two columns of the result are named {name!r}; give one an .alias(...)"
            )
        seen.add(name)


def shorten(text: str, length_max: int = 60) -> str:
    """Return text that fits a name or a box of a picture."""
    return text if len(text) <= length_max else text[: length_max - 1] + "…"


def named_column(column: object, schema: pa.Schema, step: str) -> tuple[str, Expression]:
    """Return the name and the expression of what a user gives as a column of these rows: its name, or an expression."""
    if isinstance(column, str):
        return column, Expression(Column(column))
    expression = as_expression(column)
    name = expression.name
    if name is None and str(expression) in schema.names:  # a bare pc.field("x")
        return str(expression), Expression(Column(str(expression)))
    if name is None:
        raise JobDefinitionError(f"step {step!r}: the computed column {expression} needs a name: add .alias(...)")
    return name, expression
