"""Rows grouped by keys, cut into windows, and aggregated."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from jetfast.api.expressions import Expression, as_expression
from jetfast.api.following_steps import refuse_early_rows
from jetfast.api.keys import checked_group_keys
from jetfast.api.lowering import HIDDEN
from jetfast.api.naming import require_columns, require_distinct, shorten
from jetfast.api.operations import lower_for_step, pure_column
from jetfast.api.stage import LateRowsStage, Stage
from jetfast.api.steps import LATE_PORT, EarlyRows, Output, TopStep, WindowedAggregate, WindowStep, late_schema_of
from jetfast.core.aggregate import Aggregate, AggregateColumn, AggregateKind, AnyAggregateColumn, result_type
from jetfast.core.aggregates.extremes import Extremes, needs_extremes
from jetfast.core.batch_aggregate import check_inputs
from jetfast.core.items import MAIN_PORT
from jetfast.core.processor import ProcessorContext
from jetfast.core.top_results import RANK, TopResults
from jetfast.core.windows import AnyWindow, SessionWindow
from jetfast.errors import JobDefinitionError
from jetfast.types import Duration, positive_duration_us

if TYPE_CHECKING:
    from jetfast.api.cogroup import CogroupedStage

RESULT_COLUMNS = ("window_start", "window_end", "is_early")
"""Columns that a window adds to its result; keys and aggregates must have other names."""

StatefulFunction = Callable[[pa.RecordBatch, npt.NDArray[np.int64], pa.Array], tuple[Any, Any]]
EvictFunction = Callable[[pa.RecordBatch, pa.Array, pa.Array], Any]


class GroupedStage:
    """Rows grouped by keys, waiting for a window or a step that keeps state."""

    def __init__(self, stage: Stage, keys: tuple[tuple[str, Expression], ...]) -> None:
        self._stage = stage
        self._keys = keys

    def window(self, window: AnyWindow) -> WindowedStage:
        """Cut event time into windows (`jf.tumbling`, `jf.sliding`, `jf.session`); follow with `.agg(...)`."""
        return WindowedStage(self._stage, self._keys, window)

    def cogroup(self, *others: GroupedStage) -> CogroupedStage:
        """Group rows of one or two further stages by equal keys; follow with `.window(...).agg({...}, {...})`."""
        from jetfast.api.cogroup import CogroupedStage

        return CogroupedStage((self, *others))

    def rolling_agg(
        self, *, ttl: Duration | None = None, name: str | None = None, **aggregates: Aggregate
    ) -> LateRowsStage:
        """Every row with running aggregates of its key: `group_by("card").rolling_agg(spent=jf.sum("amount"))`.

        They are `jf.count`, `jf.sum`, `jf.mean`, `jf.min` and `jf.max`, over the rows of the key as they came, this one
        included.

        Parameters
        ----------
        ttl : a row that comes more than this after the one before it of its key begins anew; rows behind the watermark
            are late then. Default: for ever, and no event time is needed
        """
        from jetfast.api.keyed_state import rolling_agg

        return rolling_agg(self._stage, self._keys, aggregates, ttl, name)

    def map_stateful(
        self,
        function: StatefulFunction,
        *,
        state: pa.DataType,
        schema: pa.Schema,
        ttl: Duration | None = None,
        on_evict: EvictFunction | None = None,
        name: str | None = None,
    ) -> LateRowsStage:
        """Apply a function to batches of rows and the states of their keys.

        Parameters
        ----------
        function : `function(rows, groups, states)` gets a record batch; the number of the state of each row, int64,
            shape (rows,); and the states, an Arrow array of one for each key (null: a new key). It returns the result
            (a record batch, a table or None) and the new states, an array or a list (null: forget the key). It is
            called from one thread per worker
        state : Arrow type of a state
        schema : of the result
        ttl : the state of a key ends when no row of it came for so long in event time; rows behind the watermark are
            late then. Default: for ever, and no event time is needed
        on_evict : `on_evict(keys, states, times)` is called with states that have ended, and at the end of the input
            with all that are left: keys as a record batch, and the times (timestamp[us]) to which they lived, null
            without ttl. It returns rows of the result, or None; they should bear those times

        If the event-time column is not in the result with its type, the result has no event time.
        """
        from jetfast.api.keyed_state import map_stateful

        return map_stateful(self._stage, self._keys, function, state, schema, ttl, on_evict, name)

    def agg(self, **aggregates: Aggregate) -> AggregateStage:
        """Not without a window: a stream has no end, so a result per key would never be final."""
        raise JobDefinitionError(
            "an aggregate over a stream needs a window: write .group_by(...).window(jf.tumbling(...)).agg(...)"
        )

    def __repr__(self) -> str:
        return f"<GroupedStage {self._stage.name!r} by {', '.join(name for name, _ in self._keys)}>"


class WindowedStage:
    """Rows grouped by keys and window, waiting for aggregates."""

    def __init__(
        self,
        stage: Stage,
        keys: tuple[tuple[str, Expression], ...],
        window: AnyWindow,
        early_period_us: int | None = None,
    ) -> None:
        check_window(window)
        self._stage = stage
        self._keys = keys
        self._window = window
        self._early_period_us = early_period_us

    def early_results(self, every: Duration) -> WindowedStage:
        """Also give results of windows that are still open, every so often in wall time; follow with `.agg(...)`.

        The result then has a column `is_early`. Early results are those of all open windows so far; they are given only
        if rows have come in since the last time. They are for sinks: aggregates need `.where(~col("is_early"))`.
        """
        return WindowedStage(self._stage, self._keys, self._window, positive_duration_us(every, "every"))

    def agg(self, *, name: str | None = None, **aggregates: Aggregate) -> AggregateStage:
        """Aggregate per key and window: `agg(flights=jf.count(), worst=jf.max("delay"))`.

        The result has the keys, window_start and window_end (timestamp[us], end exclusive), and the aggregates, one
        row per key and window that has rows, when the watermark has passed the window's end. A session starts at its
        first row and ends `timeout` after its last.

        The event time of a result is the last moment of its window, window_end - 1us (of a session: its window_end); so
        further windows may follow.
        """
        return aggregate(self._stage, self._keys, self._window, aggregates, name, self._early_period_us)

    def __repr__(self) -> str:
        return f"<WindowedStage {self._stage.name!r}, {self._window}>"


class AggregateStage(LateRowsStage):
    """Results of windows."""

    def top(
        self,
        count: int,
        *,
        by: str,
        per: str | Sequence[str] = (),
        ascending: bool = False,
        name: str | None = None,
    ) -> Stage:
        """Keep the `count` best results of each window, over all keys: `.top(3, by="flights")`.

        The columns are those of the aggregate and `rank` (int64), 1 for the best: SQL's `row_number()` by window. The
        others are not even made where nothing else reads this stage.

        Parameters
        ----------
        count : at least 1
        by : aggregate by which results are compared: the greatest are best; NaN is greater than any number, null worst.
            Of equal values the least keys are best, column by column, nulls last
        per : keys that make a group: the best of each group in each window
        ascending : the least are best
        """
        step = self._output.step
        assert isinstance(step, WindowStep)
        keys = tuple(key for key, _ in step.keys)
        groups = (per,) if isinstance(per, str) else tuple(per)
        generated = (
            f"top({count} by {by}{' ascending' if ascending else ''}{''.join(f', per {key}' for key in groups)})"
        )
        step_name = self.pipeline._name_for(name, generated, stateful=True)
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise JobDefinitionError(f"step {step_name!r}: top needs a number of results of at least 1, got {count!r}")
        names = [aggregate.name for aggregate in step.aggregates]
        if by not in names:
            raise JobDefinitionError(
                f"step {step_name!r}: by= must be an aggregate of {step.name!r}, got {by!r}; "
                f"there are {', '.join(names)}"
            )
        for key in groups:
            if key not in keys:
                raise JobDefinitionError(
                    f"step {step_name!r}: per= must be keys of {step.name!r}, got {key!r}; there are {', '.join(keys)}"
                )
        if isinstance(step.window, SessionWindow):
            raise JobDefinitionError(
                f"step {step_name!r}: sessions of different keys have no window in common; "
                f"put .window(jf.tumbling(...)) and an aggregate between"
            )
        if step.early_period_us is not None:
            raise JobDefinitionError(f"step {step_name!r}: top does not take early results")
        if RANK in self.schema.names:
            raise JobDefinitionError(f"step {step_name!r}: top adds the column {RANK!r}; use another name for yours")
        top = TopResults(by, count, keys, ascending, groups)
        try:
            top.choose(self.schema.empty_table())
        except (pa.ArrowException, TypeError) as error:
            raise JobDefinitionError(f"step {step_name!r}: results cannot be put in order: {error}") from error
        made = TopStep(
            self.pipeline,
            step_name,
            (self._output,),
            {MAIN_PORT: self.schema.append(pa.field(RANK, pa.int64()))},
            time=step.time,
            time_shift_us=step.time_shift_us,
            top=top,
        )
        self.pipeline._add(made)
        return Stage(Output(made))


def aggregate(
    stage: Stage,
    keys: tuple[tuple[str, Expression], ...],
    window: AnyWindow,
    aggregates: Mapping[str, Aggregate],
    name: str | None,
    early_period_us: int | None = None,
) -> AggregateStage:
    """Check and add a window step."""
    if not aggregates:
        raise JobDefinitionError(f"step {name or 'agg'!r}: agg needs at least one aggregate, such as rows=jf.count()")
    key_names = [key for key, _ in keys]
    generated = shorten(f"agg({', '.join(aggregates)}{' by ' + ', '.join(key_names) if keys else ''}, {window})", 120)
    step_name = stage.pipeline._name_for(name, generated, stateful=True)
    schema = stage.schema
    time = stage.event_time
    if time is None:
        raise JobDefinitionError(
            f"step {step_name!r}: a window needs event time, but {stage._label!r} has none: {stage._no_time_reason}"
        )
    refuse_early_rows(step_name, stage)
    for result in (*key_names, *aggregates):
        if result in RESULT_COLUMNS:
            raise JobDefinitionError(
                f"step {step_name!r}: {result!r} is a column that windows add themselves; use another name"
            )
    require_distinct(step_name, [*key_names, *aggregates])

    key_fields, checked_keys = checked_group_keys(step_name, keys, schema)
    checked = [check_aggregate(step_name, result, value, schema) for result, value in aggregates.items()]
    result_schema = window_result_schema(key_fields, schema.field(time), window, checked)
    if early_period_us is not None:
        result_schema = result_schema.append(pa.field("is_early", pa.bool_()))
    late_schema = late_schema_of(schema)
    step = WindowStep(
        stage.pipeline,
        step_name,
        (stage._output,),
        {MAIN_PORT: result_schema, LATE_PORT: late_schema},
        time="window_end",
        time_shift_us=0 if isinstance(window, SessionWindow) else -1,
        early=EarlyRows(step_name, "is_early") if early_period_us is not None else None,
        keys=checked_keys,
        time_column=time,
        input_shift_us=stage._output.step.time_shift_us,
        window=window,
        aggregates=[column for column, _ in checked],
        early_period_us=early_period_us,
    )
    stage.pipeline._add(step)
    return AggregateStage(Output(step))


def check_aggregate(
    step: str, name: str, value: Aggregate, schema: pa.Schema
) -> tuple[WindowedAggregate, list[pa.DataType]]:
    """Check one aggregate against the schema; return it, and the types of its arguments."""
    if not isinstance(value, Aggregate):
        raise JobDefinitionError(
            f"step {step!r}: {name}= needs an aggregate such as jf.count() or jf.mean(...), got {value!r}"
        )
    arguments: list[str | Expression] = []
    names: list[str] = []
    types: list[pa.DataType] = []
    for position, column in enumerate(value.columns):
        if isinstance(column, str):
            require_columns(step, [column], schema, f"in {name}")
            arguments.append(column)
            names.append(column)
            types.append(schema.field(column).type)
        else:
            expression = as_expression(column)
            types.append(lower_for_step(expression, schema, step, name, "fail").data_type)
            arguments.append(pure_column(expression) or expression)
            names.append(expression.name or f"argument {position}")
    function = value.function
    if function in (AggregateKind.MIN, AggregateKind.MAX) and needs_extremes(types[0]):
        function = Extremes(greatest=function is AggregateKind.MAX)
    checked = WindowedAggregate(name, function, tuple(arguments), tuple(names))
    column = checked.for_processor()
    try:
        if isinstance(column, AggregateColumn):
            result_type(column.kind, types[0] if types else None)
        else:
            check_inputs(column.aggregate, column.names, types)
    except TypeError as error:
        columns = ", ".join(map(str, value.columns))
        raise JobDefinitionError(f"step {step!r}, column {name!r}: {error} (from {columns})") from error
    return checked, types


def window_result_schema(
    keys: Sequence[pa.Field],
    time: pa.Field,
    window: AnyWindow,
    aggregates: Sequence[tuple[WindowedAggregate, Sequence[pa.DataType]]],
) -> pa.Schema:
    """Ask the processor which columns it will give: it plainly holds keys that came as dictionaries, say."""
    from jetfast.processors.session_window import SessionWindowProcessor
    from jetfast.processors.sliding_window import SlidingWindowProcessor

    time_name = HIDDEN + "time"
    fields = [*keys, time.with_name(time_name)]
    columns: list[AnyAggregateColumn] = []
    for number, (aggregate, types) in enumerate(aggregates):
        column = aggregate.for_processor()
        arguments = [f"{HIDDEN}{number}.{position}" for position in range(len(types))]
        fields += [pa.field(name, data_type) for name, data_type in zip(arguments, types, strict=True)]
        if isinstance(column, AggregateColumn):
            columns.append(replace(column, column=arguments[0] if arguments else None))
        else:
            columns.append(replace(column, columns=tuple(arguments)))
    rows = pa.schema(fields), [key.name for key in keys], time_name, columns
    context = ProcessorContext("")
    if isinstance(window, SessionWindow):
        return SessionWindowProcessor(*rows, window).make_table(context).output_schema
    return SlidingWindowProcessor(*rows, window).make_table(context).output_schema


def check_window(window: object) -> None:
    """Raise JobDefinitionError for what is no window."""
    if not isinstance(window, AnyWindow):
        raise JobDefinitionError(
            f'window needs jf.tumbling("1h"), jf.sliding("24h", "1h") or jf.session("30m"), got {window!r}'
        )
