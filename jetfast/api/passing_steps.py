"""Steps that give the very rows that come to them: elsewhere, in order, or shown. Checks them, and adds the step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from jetfast.api.following_steps import add_following
from jetfast.api.keys import check_keys
from jetfast.api.naming import require_columns
from jetfast.api.steps import Output, PeekStep, RebalanceStep, SortStep, endless_source
from jetfast.errors import JobDefinitionError

if TYPE_CHECKING:
    from jetfast.api.stage import Stage
    from jetfast.core.sort_order import SortKey


def rebalance(stage: Stage, keys: tuple[str, ...], name: str | None) -> Output:
    """As `Stage.rebalance`."""
    step_name = stage.pipeline._name_for(name, f"rebalance({', '.join(map(str, keys))})", stateful=False)
    require_columns(step_name, keys, stage.schema, "as key")
    check_keys(step_name, pa.schema([stage.schema.field(key) for key in keys]))
    return _add(stage, RebalanceStep, step_name, keys=tuple(keys))


def sort(stage: Stage, by: tuple[str, ...], descending: bool | Sequence[bool], name: str | None) -> Output:
    """As `Stage.sort`."""
    from jetfast.core.sort_order import order_of

    step_name = stage.pipeline._name_for(name, f"sort({', '.join(map(str, by))})", stateful=True)
    if not by:
        raise JobDefinitionError(f"step {step_name!r}: sort needs at least one column")
    require_columns(step_name, by, stage.schema)
    flags = list(descending) if isinstance(descending, list | tuple) else [descending] * len(by)
    if not all(isinstance(flag, bool) for flag in flags):
        raise JobDefinitionError(f"step {step_name!r}: descending must be True or False, for each, got {descending!r}")
    if len(flags) != len(by):
        raise JobDefinitionError(f"step {step_name!r}: descending= has {len(flags)} values for {len(by)} columns")
    endless = endless_source(stage._output.step)
    if endless is not None:
        raise JobDefinitionError(f"step {step_name!r}: sort waits for the end of its input, and {endless!r} has none")
    keys: list[SortKey] = [
        (column, "descending" if flag else "ascending") for column, flag in zip(by, flags, strict=True)
    ]
    try:
        fields = [stage.schema.field(column) for column in dict.fromkeys(by)]
        order_of(pa.Table.from_arrays([pa.nulls(0, field.type) for field in fields], schema=pa.schema(fields)), keys)
    except (pa.ArrowException, TypeError) as error:
        columns = ", ".join(by)
        raise JobDefinitionError(f"step {step_name!r}: rows cannot be put in order by {columns}: {error}") from error
    return _add(stage, SortStep, step_name, by=keys)


def peek(stage: Stage, limit: int, name: str | None) -> Output:
    """As `Stage.peek`."""
    step_name = stage.pipeline._name_for(name, "peek", stateful=False)
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
        raise JobDefinitionError(f"step {step_name!r}: peek needs a number of rows of at least 1, got {limit!r}")
    return _add(stage, PeekStep, step_name, limit=limit)


def _add(stage: Stage, kind: type[RebalanceStep | SortStep | PeekStep], name: str, **settings: Any) -> Output:
    return add_following(kind, stage, name, stage.schema, time=stage.event_time, early=stage._early, **settings)
