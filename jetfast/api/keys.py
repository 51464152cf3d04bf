"""Keys of rows: the columns that users name or compute, with a type that has a hash."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from jetfast.api.expressions import Expression
from jetfast.api.naming import require_columns
from jetfast.api.operations import lower_for_step, pure_column
from jetfast.errors import JobDefinitionError

KeyColumns = str | Expression | Sequence[str | Expression] | None
"""Keys of a join: a column, or several."""


def checked_group_keys(
    step: str, keys: tuple[tuple[str, Expression], ...], schema: pa.Schema
) -> tuple[list[pa.Field], list[tuple[str, Expression | None]]]:
    """Check the keys of a group against the schema; return their fields, and each with its expression if it has one."""
    fields: list[pa.Field] = []
    computed: list[tuple[str, Expression | None]] = []
    for key, expression in keys:
        source = pure_column(expression)
        if source is not None:
            require_columns(step, [source], schema, "as key")
            fields.append(schema.field(source).with_name(key))
        else:
            fields.append(pa.field(key, lower_for_step(expression, schema, step, key, "fail").data_type))
        if source != key and key in schema.names:
            raise JobDefinitionError(
                f"step {step!r}: the computed key {key!r} has the name of a column; give it another .alias(...)"
            )
        computed.append((key, None if source == key else expression))
    check_keys(step, pa.schema(fields))
    return fields, computed


def check_keys(step: str, keys: pa.Schema) -> None:
    """Raise JobDefinitionError for keys of a type that has no hash."""
    from jetfast.kernels.partitioning import check_key_types

    try:
        check_key_types(keys, keys.names)
    except TypeError as error:
        raise JobDefinitionError(f"step {step!r}: {error}") from error
