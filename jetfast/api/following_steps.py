"""Adds a step behind a stage: event time and early results go on with the rows, under the names that they have then."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from jetfast.api.steps import EarlyRows, Output, Step
from jetfast.core.items import MAIN_PORT
from jetfast.errors import JobDefinitionError

if TYPE_CHECKING:
    from jetfast.api.stage import Stage


def add_following(
    make_step: Callable[..., Step],
    stage: Stage,
    name: str,
    schema: pa.Schema,
    *,
    time: str | None,
    time_lost: str = "",
    early: EarlyRows | None,
    **settings: Any,
) -> Output:
    """Add a step that gives `schema` out of the rows of a stage.

    Parameters
    ----------
    time : what the event-time column is called then, None: it is gone
    time_lost : why, if the stage has one
    early : what tells its early results then
    settings : arguments of `make_step` besides those that all steps have
    """
    without_time = stage._no_time_reason if stage.event_time is None else time_lost
    step = make_step(
        stage.pipeline,
        name,
        (stage._output,),
        {MAIN_PORT: schema},
        time=time,
        no_time_reason="" if time is not None else without_time,
        time_shift_us=stage._output.step.time_shift_us,
        early=early,
        **settings,
    )
    stage.pipeline._add(step)
    return Output(step)


def early_rows_with(early: EarlyRows | None, rename: Callable[[str], str | None]) -> EarlyRows | None:
    """Follow the column that tells early results through a step."""
    if early is None or early.column is None:
        return early
    return EarlyRows(early.step, rename(early.column))


def refuse_early_rows(step: str, stage: Stage) -> None:
    """Raise JobDefinitionError if early results are among the rows of a stage."""
    early = stage._early
    if early is not None:
        final = f".where(~col({early.column!r}))" if early.column else f"filter them by is_early behind {early.step!r}"
        raise JobDefinitionError(
            f"step {step!r}: the rows of {stage._label!r} hold early results of {early.step!r}, which would count "
            f"besides the final ones; keep the final ones: {final}"
        )
