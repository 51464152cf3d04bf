"""Stages: what a pipeline's rows look like at one point, and the operators that lead on from there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from jetfast.api.expressions import HIDDEN, Column, Expression, as_expression, plain_type
from jetfast.api.naming import require_columns, require_distinct, shorten
from jetfast.api.operations import (
    Drop,
    OnError,
    Operation,
    Rename,
    Select,
    Where,
    WithColumns,
    check_on_error,
    lower_for_step,
    pure_column,
)
from jetfast.api.projected_source import ProjectedSource
from jetfast.api.steps import (
    LATE_PORT,
    MISSED_UNTIL,
    REJECTED_PORT,
    EarlyRows,
    EventTime,
    MapBatchesStep,
    Output,
    ProcessingTimeStep,
    SinkStep,
    SourceStep,
    Step,
    TopStep,
    TransformStep,
    UnionStep,
    WindowedAggregate,
    WindowStep,
    source_schemas,
)
from jetfast.core.aggregate import Aggregate, AggregateColumn, AnyAggregateColumn, result_type
from jetfast.core.batch_aggregate import check_inputs
from jetfast.core.items import MAIN_PORT
from jetfast.core.joins import LATE_PORTS, LEFT, RIGHT
from jetfast.core.processor import ProcessorContext
from jetfast.core.source import Sink
from jetfast.core.throttling import WatermarkThrottleFactory
from jetfast.core.top_results import RANK, TopResults
from jetfast.core.watermark_policies import FixedLag, WatermarkPolicyFactory
from jetfast.core.windows import AnyWindow, SessionWindow
from jetfast.errors import JobDefinitionError
from jetfast.types import Duration, non_negative_duration_us, positive_duration_us

if TYPE_CHECKING:
    from jetfast.api.cogroup import CogroupedStage
    from jetfast.api.pipeline import Pipeline

RESULT_COLUMNS = ("window_start", "window_end", "is_early")
"""Columns that a window adds to its result; keys and aggregates must have other names."""

StatefulFunction = Callable[[pa.RecordBatch, npt.NDArray[np.int64], pa.Array], tuple[Any, Any]]
EvictFunction = Callable[[pa.RecordBatch, pa.Array, pa.Array], Any]
BatchFunction = Callable[[pa.RecordBatch], Any]
"""Takes a record batch of 1 row or more; gives a record batch, a table, an iterable of those, or None for no rows."""


KeyColumns = str | Expression | Sequence[str | Expression] | None
"""Keys of a join: a column, or several."""


class Stage:
    """Rows at one point of a pipeline. Operators return new stages; nothing is changed and nothing runs.

    Columns are given by name, by `jf.col`, by other expressions, or by bare `pyarrow.compute` expressions.
    `on_error="null"` on select, with_column(s) and where makes a row whose expression fails (overflow, x / 0, a
    cast) give null; the default "fail" fails the job and names step, column and row.
    """

    def __init__(self, output: Output) -> None:
        self._output = output

    @property
    def pipeline(self) -> Pipeline:
        """The pipeline that this stage belongs to."""
        return self._output.step.pipeline

    @property
    def name(self) -> str:
        """Name of the step that makes these rows."""
        return self._output.step.name

    @property
    def schema(self) -> pa.Schema:
        """Names and types of the columns."""
        return self._output.schema

    @property
    def event_time(self) -> str | None:
        """Name of the event-time column, or None if these rows have none."""
        return self._output.step.time if self._output.port == MAIN_PORT else None

    def select(self, *columns: object, name: str | None = None, on_error: OnError = "fail") -> Stage:
        """Keep exactly these columns, in this order: names, or expressions (computed ones need an `.alias`)."""
        if not columns:
            raise JobDefinitionError(f"step {name or 'select'!r}: select needs at least one column")
        outputs = [self._named(column, name or "select") for column in columns]
        generated = f"select({', '.join(column for column, _ in outputs)})"
        return self._transform(Select(tuple(outputs), on_error), name, generated, on_error)

    def where(self, condition: object, *, name: str | None = None, on_error: OnError = "fail") -> Stage:
        """Keep the rows where `condition` is true (neither false nor null)."""
        if isinstance(condition, str):
            raise JobDefinitionError(
                f"step {name or 'where'!r}: where needs a condition such as col({condition!r}) > 0, got text"
            )
        expression = as_expression(condition)
        return self._transform(Where(expression, on_error), name, f"where({expression.node})", on_error)

    filter = where

    def with_column(self, column: str, value: object, *, name: str | None = None, on_error: OnError = "fail") -> Stage:
        """Add a column, or replace the one of that name, by an expression (or a literal)."""
        return self._with_columns({column: value}, "with_column", name, on_error)

    def with_columns(
        self, columns: Mapping[str, object], *, name: str | None = None, on_error: OnError = "fail"
    ) -> Stage:
        """Add or replace several columns at once; each expression sees the columns as they were before."""
        return self._with_columns(columns, "with_columns", name, on_error)

    def drop(self, *columns: str, name: str | None = None) -> Stage:
        """Leave these columns out."""
        generated = f"drop({', '.join(map(str, columns))})"
        require_columns(name or generated, columns, self.schema)
        if len(set(columns)) == len(self.schema.names):
            raise JobDefinitionError(f"step {name or generated!r}: drop would leave no column")
        return self._transform(Drop(columns), name, generated)

    def rename(self, columns: Mapping[str, str], *, name: str | None = None) -> Stage:
        """Rename columns: {"old": "new"}."""
        if not isinstance(columns, Mapping):
            raise JobDefinitionError(f'step {name or "rename"!r}: rename needs {{"old": "new"}}, got {columns!r}')
        generated = f"rename({', '.join(f'{old} as {new}' for old, new in columns.items())})"
        require_columns(name or generated, columns, self.schema)
        return self._transform(Rename(dict(columns)), name, generated)

    def union(self, *others: Stage, name: str | None = None) -> Stage:
        """All rows of this stage and of others with the same columns, names and types, in the same order.

        Event time goes on if all have the same event-time column; the watermark is the least of theirs.
        """
        stages = (self, *others)
        for other in others:
            if not isinstance(other, Stage):
                raise JobDefinitionError(f"step {name or 'union'!r}: union needs stages, got {other!r}")
        if not others:
            raise JobDefinitionError(f"step {name or 'union'!r}: union needs at least one other stage")
        outputs = tuple(stage._output for stage in stages)
        generated = f"union({', '.join(stage._label for stage in stages)})"
        step_name = self.pipeline._name_for(name, generated, stateful=False)
        for other in others:
            if other.pipeline is not self.pipeline:
                raise JobDefinitionError(f"step {step_name!r}: {other.name!r} belongs to another pipeline")
            difference = schema_difference(self.schema, other.schema)
            if difference:
                raise JobDefinitionError(
                    f"step {step_name!r}: a union needs equal columns, but {self._label!r} and {other._label!r} "
                    f"differ: {difference}"
                )
        times = [stage.event_time for stage in stages]
        shifts = {output.step.time_shift_us for output in outputs}
        same = len(set(times)) == 1 and len(shifts) == 1
        step = UnionStep(
            self.pipeline,
            step_name,
            outputs,
            {
                MAIN_PORT: pa.schema(
                    [merged_field(list(fields)) for fields in zip(*(s.schema for s in stages), strict=True)]
                )
            },
            time=times[0] if same else None,
            no_time_reason=self._output.step.no_time_reason
            if same
            else "the inputs of its union have different event times: "
            + ", ".join(f"{stage._label!r} has {stage._time_description}" for stage in stages),
            time_shift_us=self._output.step.time_shift_us,
            early=next((stage._early for stage in stages if stage._early is not None), None),
        )
        self.pipeline._add(step)
        return Stage(Output(step))

    def map_batches(
        self, function: BatchFunction, *, schema: pa.Schema | None = None, name: str | None = None
    ) -> Stage:
        """Apply a function to each record batch: `pyarrow.RecordBatch` in and out, any number of rows.

        Parameters
        ----------
        function : called with 1 row or more; from one thread per worker, so it must not share state. An error that it
            raises fails the job and names step, member and rows
        schema : of what it returns; default: found by calling it with an empty batch

        If the event-time column is not in the result with its type, the result has no event time.
        """
        label = getattr(function, "__qualname__", type(function).__name__)
        step_name = self.pipeline._name_for(name, f"map_batches({label})", stateful=False)
        if not callable(function):
            raise JobDefinitionError(f"step {step_name!r}: map_batches needs a function, got {function!r}")
        if schema is None:
            schema = infer_schema(function, self.schema, step_name)
        elif not isinstance(schema, pa.Schema):
            raise JobDefinitionError(
                f"step {step_name!r}: schema must be a pyarrow.Schema, got {type(schema).__name__}"
            )
        require_distinct(step_name, schema.names)
        schema = pa.schema([pa.field(field.name, field.type) for field in schema])
        time = self.event_time
        kept = time is not None and time in schema.names and schema.field(time).type == self.schema.field(time).type
        step = MapBatchesStep(
            self.pipeline,
            step_name,
            (self._output,),
            {MAIN_PORT: schema},
            time=time if kept else None,
            no_time_reason=self._output.step.no_time_reason
            if time is None
            else f"step {step_name!r} does not return its event-time column {time!r} as {self.schema.field(time).type}",
            time_shift_us=self._output.step.time_shift_us,
            early=early_rows_with(self._early, lambda column: column if column in schema.names else None),
            function=function,
        )
        self.pipeline._add(step)
        return Stage(Output(step))

    def map_rows(
        self, function: Callable[[dict[str, Any]], dict[str, Any] | None], *, schema: pa.Schema, name: str | None = None
    ) -> Stage:
        """Apply a function to each row: a dict of the columns in, a dict of the result's columns out (None: no row).

        About 1.5 us a row and more: a hundred times the price of an expression, and workers wait for one another where
        Python has its lock. Prefer expressions, then `map_batches`.

        Parameters
        ----------
        function : called with one row at a time; an error that it raises fails the job and names step, member and rows
        schema : of what it returns; a column that is missing in a dict is null
        """
        label = getattr(function, "__qualname__", type(function).__name__)
        if not callable(function):
            raise JobDefinitionError(f"step {name or 'map_rows'!r}: map_rows needs a function, got {function!r}")
        step_name = self.pipeline._name_for(name, f"map_rows({label})", stateful=False)
        return self.map_batches(RowFunction(function, schema), schema=schema, name=step_name)

    def with_processing_time(self, column: str = "processing_time", *, name: str | None = None) -> Stage:
        """Add a column with the time at which a row comes here, timestamp[us] by the wall clock: windows go by it.

        For rows without event time. A window closes when the clock has passed its end, rows or not, and no row is
        late; but where a row belongs differs from run to run. It is a step, not a policy of the source, so that what
        counts may be chosen (behind a `where`, behind slow steps), and silent source partitions hold nothing back.
        """
        step_name = self.pipeline._name_for(name, f"with_processing_time({column})", stateful=True)
        if not isinstance(column, str) or not column:
            raise JobDefinitionError(f"step {step_name!r}: a column is named by text, got {column!r}")
        if column in self.schema.names:
            raise JobDefinitionError(f"step {step_name!r}: there is a column {column!r} already; choose another name")
        maker = watermark_maker(self._output.step)
        if maker is not None:
            raise JobDefinitionError(
                f"step {step_name!r}: only one step on a path makes watermarks, and {maker!r} makes them already"
            )
        schema = self.schema.append(pa.field(column, pa.timestamp("us")))
        step = ProcessingTimeStep(
            self.pipeline, step_name, (self._output,), {MAIN_PORT: schema}, time=column, column=column
        )
        self.pipeline._add(step)
        return Stage(Output(step))

    def group_by(self, *keys: object) -> GroupedStage:
        """Group rows by keys (names, or named expressions); null is a group of its own.

        Follow with `.window(...)`, or with a step that keeps state by key.
        """
        if not keys:
            raise JobDefinitionError(
                "group_by needs at least one key; without keys write .window(...).agg(...) at once"
            )
        named = tuple(self._named(key, "group_by") for key in keys)
        names = [name for name, _ in named]
        step_name = f"group_by({', '.join(names)})"
        require_distinct(step_name, names)
        checked_group_keys(step_name, named, self.schema)
        return GroupedStage(self, named)

    def window(self, window: AnyWindow) -> WindowedStage:
        """Windows (`jf.tumbling`, `jf.sliding`, `jf.session`) over all rows together; follow with `.agg(...)`."""
        return WindowedStage(self, (), window)

    def drop_duplicates(
        self, *columns: object, horizon: Duration | None = None, name: str | None = None
    ) -> LateRowsStage:
        """Keep the first row of each combination of `columns` (default: all); null equals null.

        Parameters
        ----------
        columns : names, or named expressions
        horizon : a row that comes more than this after the one that was kept is kept again; so the state is bounded by
            the watermark, and rows behind that are late. Default: keys are kept for ever, and no event time is needed
        """
        from jetfast.api.keyed_state import drop_duplicates

        return drop_duplicates(self, columns, horizon, name)

    def distinct(self, *columns: object, name: str | None = None) -> Stage:
        """Each combination of `columns` (default: all) once, when it comes first: SQL's SELECT DISTINCT.

        The result has just these columns. Keys are kept for ever; `drop_duplicates` with a horizon bounds the state.
        """
        from jetfast.api.keyed_state import distinct

        return distinct(self, columns, name)

    def hash_join(
        self,
        table: Stage,
        *,
        on: KeyColumns = None,
        left_on: KeyColumns = None,
        right_on: KeyColumns = None,
        how: str = "inner",
        suffix: str = "_right",
        name: str | None = None,
    ) -> Stage:
        """Join with a bounded stage that is read to its end first: `orders.hash_join(customers, on="customer")`.

        The result has the keys, the other columns of this stage, and the other columns of `table`; its event time is
        that of this stage. Rows whose key is null match nothing. The table is kept by key, each key at one worker, and
        is part of every snapshot.

        Parameters
        ----------
        table : ends, and has a source of its own
        on : keys that both sides have, names or a list of them
        left_on, right_on : keys of either side, names or named expressions, in pairs; the result has the left names.
            Keys of different types are cast to the type that both fit into
        how : "inner", or "left": rows of this stage without a match come with nulls
        suffix : put behind the name of a column of `table` that the left side has, too
        """
        from jetfast.api.joins import hash_join

        return hash_join(self, table, (on, left_on, right_on), how, suffix, name)

    def window_join(
        self,
        other: Stage,
        window: AnyWindow,
        *,
        on: KeyColumns = None,
        left_on: KeyColumns = None,
        right_on: KeyColumns = None,
        how: str = "inner",
        suffix: str = "_right",
        name: str | None = None,
    ) -> JoinStage:
        """Join rows with equal keys that lie in one window: `left.window_join(right, jf.tumbling("10s"), on="key")`.

        The result leaves when the window ends. It has the keys, the other columns of either side, window_start and
        window_end; its event time is the
        last moment of the window, as that of aggregates. State is what lies in open windows.

        Parameters
        ----------
        window : `jf.tumbling` or `jf.sliding`, of whose windows each pair is in every one that holds both rows
        how : "inner", "left", "right" or "outer": which side's rows come with nulls if they have no match
        on, left_on, right_on, suffix : as of `hash_join`
        """
        from jetfast.api.joins import window_join

        return window_join(self, other, window, (on, left_on, right_on), how, suffix, name)

    def interval_join(
        self,
        other: Stage,
        *,
        lower: Duration,
        upper: Duration,
        on: KeyColumns = None,
        left_on: KeyColumns = None,
        right_on: KeyColumns = None,
        how: str = "inner",
        time: str = "event_time",
        suffix: str = "_right",
        name: str | None = None,
    ) -> JoinStage:
        """Join rows with equal keys whose times are near: `a.interval_join(b, lower="0s", upper="1h", on="key")`.

        A pair leaves when the later of its rows has come. The result has the keys, the other columns of either side,
        and its event time, the greater of the two. State is bounded by the watermark.

        Parameters
        ----------
        lower, upper : the time of the right row less that of the left one, both bounds included; such as "-5m"
        how : "inner", "left", "right" or "outer": which rows come with nulls when no match can come any more. The
            watermark behind an outer join is held back by as much
        time : name of the event-time column that is added
        on, left_on, right_on, suffix : as of `hash_join`
        """
        from jetfast.api.joins import interval_join

        return interval_join(self, other, (lower, upper), (on, left_on, right_on), how, time, suffix, name)

    def asof_join(
        self,
        other: Stage,
        *,
        tolerance: Duration | None = None,
        on: KeyColumns = None,
        left_on: KeyColumns = None,
        right_on: KeyColumns = None,
        how: str = "left",
        suffix: str = "_right",
        name: str | None = None,
    ) -> JoinStage:
        """Join each row with the latest of `other` that is not after it: `trades.asof_join(quotes, on="symbol")`.

        A row leaves when the watermark has passed it. The result has the keys, the other columns of either side; its
        event time is that of this stage. Of `other` the latest row of each key is kept.

        Parameters
        ----------
        tolerance : an older row than this is no match; default: any is one
        how : "left": rows without a match come with nulls; or "inner"
        on, left_on, right_on, suffix : as of `hash_join`
        """
        from jetfast.api.joins import asof_join

        return asof_join(self, other, tolerance, (on, left_on, right_on), how, suffix, name)

    def write(self, sink: Sink, name: str | None = None) -> None:
        """Write these rows to a sink (`jf.files`, `jf.console`, `jf.collect`, ...); several times if you like."""
        if not all(hasattr(sink, attribute) for attribute in ("check", "open_writer")):
            raise JobDefinitionError(f"write needs a sink such as jf.files(..., format=...), got {sink!r}")
        step_name = self.pipeline._name_for(name, sink.name, stateful=True)
        target = getattr(sink, "target", None)
        for other in self.pipeline._iterate():
            if target is not None and isinstance(other, SinkStep) and other.sink.target == target:
                raise JobDefinitionError(f"steps {other.name!r} and {step_name!r} both write to {target}")
        try:
            sink.check(self.schema)
        except JobDefinitionError as error:
            text = str(error).removeprefix(f"{step_name}: ")  # a step that is named after its sink
            raise JobDefinitionError(f"step {step_name!r}: {text}") from error
        self.pipeline._add(SinkStep(self.pipeline, step_name, (self._output,), {}, sink=sink))

    def collect(self, name: str = "result") -> None:
        """Bring these rows back to the process that submits the job; they are found there under `name`."""
        from jetfast.connectors.arrow import collect

        self.write(collect(), name=name)

    @property
    def _label(self) -> str:
        return self.name

    def _named(self, column: object, step: str) -> tuple[str, Expression]:
        if isinstance(column, str):
            return column, Expression(Column(column))
        expression = as_expression(column)
        name = expression.name
        if name is None and str(expression) in self.schema.names:  # a bare pc.field("x")
            return str(expression), Expression(Column(str(expression)))
        if name is None:
            raise JobDefinitionError(f"step {step!r}: the computed column {expression} needs a name: add .alias(...)")
        return name, expression

    def _with_columns(self, columns: Mapping[str, object], operator: str, name: str | None, on_error: OnError) -> Stage:
        if not isinstance(columns, Mapping) or not columns:
            raise JobDefinitionError(
                f'step {name or operator!r}: {operator} needs {{"name": expression}}, got {columns!r}'
            )
        generated = f"{operator}({', '.join(map(str, columns))})"
        for column in columns:
            if not isinstance(column, str) or not column:
                raise JobDefinitionError(f"step {name or generated!r}: a column is named by text, got {column!r}")
            if column == self.event_time:
                raise JobDefinitionError(
                    f"step {name or generated!r}: {column!r} is the event time of these rows and cannot be replaced; "
                    f"give the new column another name"
                )
        outputs = tuple((column, as_expression(value)) for column, value in columns.items())
        return self._transform(WithColumns(outputs, on_error), name, generated, on_error)

    def _transform(self, operation: Operation, name: str | None, generated: str, on_error: str = "fail") -> Stage:
        step_name = self.pipeline._name_for(name, shorten(generated), stateful=False)
        check_on_error(step_name, on_error)
        schema = operation.bind(self.schema, step_name).schema
        time, reason = self._time_after(operation, step_name)
        step = TransformStep(
            self.pipeline,
            step_name,
            (self._output,),
            {MAIN_PORT: schema},
            time=time,
            no_time_reason=reason,
            time_shift_us=self._output.step.time_shift_us,
            early=self._early_after(operation),
            operation=operation,
        )
        self.pipeline._add(step)
        return Stage(Output(step))

    def _time_after(self, operation: Operation, step: str) -> tuple[str | None, str]:
        """Follow the event-time column through a step."""
        time = self.event_time
        if time is None:
            return None, self._no_time_reason
        name = column_after(operation, time)
        return (name, "") if name else (None, f"step {step!r} leaves its event-time column {time!r} out; keep it")

    def _early_after(self, operation: Operation) -> EarlyRows | None:
        """Who filters by the column that tells early results from final ones has chosen; then they count as others."""
        early = self._early
        if early is None or (
            isinstance(operation, Where) and early.column in operation.condition.node.columns(self.schema)
        ):
            return None
        return early_rows_with(early, partial(column_after, operation))

    @property
    def _early(self) -> EarlyRows | None:
        return self._output.step.early if self._output.port == MAIN_PORT else None

    @property
    def _time_description(self) -> str:
        if self.event_time is None:
            return "none"
        return self.event_time + (" less 1us (of a window)" if self._output.step.time_shift_us else "")

    @property
    def _no_time_reason(self) -> str:
        if self._output.port != MAIN_PORT:
            return "late and rejected rows have no event time any more"
        return self._output.step.no_time_reason

    def __repr__(self) -> str:
        columns = ", ".join(f"{field.name}: {field.type}" for field in self.schema)
        return f"<{type(self).__name__} {self._label!r} ({columns})>"


class JoinStage(Stage):
    """Rows of two stages that belong together by key and time."""

    @property
    def late_left_rows(self) -> Stage:
        """Rows of the left side that came too late: their columns and `missed_until`, as `late_rows` of a window.

        Not consumed, they are only counted in `job.metrics`.
        """
        return SideStage(Output(self._output.step, LATE_PORTS[LEFT]), "late left rows")

    @property
    def late_right_rows(self) -> Stage:
        """As `late_left_rows`, of the right side."""
        return SideStage(Output(self._output.step, LATE_PORTS[RIGHT]), "late right rows")


def watermark_maker(step: Step) -> str | None:
    """Name of a step that makes the watermarks which come to `step`; None: none come."""
    if isinstance(step, ProcessingTimeStep) or (isinstance(step, SourceStep) and step.event_time is not None):
        return step.name
    return next(filter(None, (watermark_maker(output.step) for output in step.inputs)), None)


def column_after(operation: Operation, column: str) -> str | None:
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


def early_rows_with(early: EarlyRows | None, rename: Callable[[str], str | None]) -> EarlyRows | None:
    """Follow the column that tells early results through a step."""
    if early is None or early.column is None:
        return early
    return EarlyRows(early.step, rename(early.column))


class RowFunction:
    """A function over rows as one over record batches."""

    def __init__(self, function: Callable[[dict[str, Any]], dict[str, Any] | None], schema: pa.Schema) -> None:
        self.function = function
        self.schema = schema
        self.__qualname__ = getattr(function, "__qualname__", type(function).__name__)

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        results = map(self.function, batch.to_pylist())
        return pa.RecordBatch.from_pylist([row for row in results if row is not None], schema=self.schema)


class SourceStage(Stage):
    """Rows as a source gives them."""

    def with_event_time(
        self,
        column: str | Expression,
        policy: WatermarkPolicyFactory | None = None,
        idle_timeout: Duration = "60s",
        *,
        throttle: WatermarkThrottleFactory | None = None,
    ) -> SourceStage:
        """Declare the event time of the rows.

        Parameters
        ----------
        column : a timestamp or date column, or an expression that makes one: `col("t").cast("timestamp[us]")` takes the
            place of the column `t`, with an `.alias` it stands beside it. Rows whose time is null or cannot be computed
            are rejected (see `rejected_rows`)
        policy : how far event time has come, per source partition; default `jf.watermarks.fixed_lag("0s")`
        idle_timeout : a partition that gave no row for so long does not hold the others back; "0s": never
        throttle : which watermarks leave, such as `jf.watermarks.emit_by_min_step("1s")`; default: one for each frame
            that the windows downstream of this source have in common
        """
        step = self._output.step
        assert isinstance(step, SourceStep)
        if step.event_time is not None:
            raise JobDefinitionError(f"step {step.name!r} has an event time already: {step.event_time.column!r}")
        if self.pipeline._readers(self._output):
            raise JobDefinitionError(
                f"step {step.name!r}: with_event_time must directly follow read, before other steps"
            )
        name, expression = self._named(column, step.name)
        if pure_column(expression) == name and name in self.schema.names:  # which is quicker than to bind it
            time_type = plain_type(self.schema.field(name).type)
        else:
            time_type = lower_for_step(expression, self.schema, step.name, name, "fail", "as event time").data_type
        check_time_type(step.name, name, time_type)
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
            outputs = {existing: Expression(Column(existing)) for existing in self.schema.names} | {name: expression}
            step.source = ProjectedSource(step.source, list(outputs.items()), step.name)
            step.schemas = source_schemas(step.source)
        step.event_time = EventTime(name, FixedLag(0) if policy is None else policy, idle_timeout_us, throttle)
        step.time = name
        return SourceStage(self._output)

    @property
    def rejected_rows(self) -> Stage:
        """Rows that could not be read or have no event time: partition, position, reason, row (text).

        Not consumed, they are only counted in `job.metrics`.
        """
        return SideStage(Output(self._output.step, REJECTED_PORT), "rejected rows")


class SideStage(Stage):
    """Rows that a step put aside."""

    def __init__(self, output: Output, what: str) -> None:
        super().__init__(output)
        self._what = what

    @property
    def _label(self) -> str:
        return f"{self.name} {self._what}"


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
        if not isinstance(window, AnyWindow):
            raise JobDefinitionError(
                f'window needs jf.tumbling("1h"), jf.sliding("24h", "1h") or jf.session("30m"), got {window!r}'
            )
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


class LateRowsStage(Stage):
    """Rows of a step that may miss rows."""

    @property
    def late_rows(self) -> Stage:
        """Rows that came too late: the input's columns and `missed_until`, the end of the last window they missed.

        A late row of a session window, or of state by key, has missed no window that could be named: its
        `missed_until` is null. Not consumed, they are only counted in `job.metrics`.
        """
        return SideStage(Output(self._output.step, LATE_PORT), "late rows")


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
        except pa.ArrowException as error:
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
    key_names = [key for key, _ in keys]
    generated = shorten(f"agg({', '.join(aggregates)}{' by ' + ', '.join(key_names) if keys else ''}, {window})", 120)
    step_name = stage.pipeline._name_for(name, generated, stateful=True)
    schema = stage.schema
    if not aggregates:
        raise JobDefinitionError(f"step {step_name!r}: agg needs at least one aggregate, such as rows=jf.count()")
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


def late_schema_of(schema: pa.Schema) -> pa.Schema:
    """Of late rows, which were `schema`."""
    missed_until = pa.field(MISSED_UNTIL, pa.timestamp("us"))
    position = schema.get_field_index(MISSED_UNTIL)  # rows that were late before: the newer answer counts
    return schema.append(missed_until) if position < 0 else schema.set(position, missed_until)


def refuse_early_rows(step: str, stage: Stage) -> None:
    """Raise JobDefinitionError if early results are among the rows of a stage."""
    early = stage._early
    if early is not None:
        final = f".where(~col({early.column!r}))" if early.column else f"filter them by is_early behind {early.step!r}"
        raise JobDefinitionError(
            f"step {step!r}: the rows of {stage._label!r} hold early results of {early.step!r}, which would count "
            f"besides the final ones; keep the final ones: {final}"
        )


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


def check_aggregate(
    step: str, name: str, value: Aggregate, schema: pa.Schema
) -> tuple[WindowedAggregate, list[pa.DataType]]:
    """Check one aggregate against the schema; return it, and the types of its arguments."""
    if not isinstance(value, Aggregate):
        raise JobDefinitionError(
            f"step {step!r}: {name}= needs an aggregate such as jf.count() or jf.mean(...), got {value!r}"
        )
    arguments: list[str | Expression] = []
    types: list[pa.DataType] = []
    for column in value.columns:
        if isinstance(column, str):
            require_columns(step, [column], schema, f"in {name}")
            arguments.append(column)
            types.append(schema.field(column).type)
        else:
            expression = as_expression(column)
            types.append(lower_for_step(expression, schema, step, name, "fail").data_type)
            arguments.append(pure_column(expression) or expression)
    checked = WindowedAggregate(name, value.function, tuple(arguments))
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


def check_keys(step: str, keys: pa.Schema) -> None:
    """Raise JobDefinitionError for keys of a type that has no hash."""
    from jetfast.kernels.partitioning import check_key_types

    try:
        check_key_types(keys, keys.names)
    except TypeError as error:
        raise JobDefinitionError(f"step {step!r}: {error}") from error


def check_time_type(step: str, column: str, data_type: pa.DataType) -> None:
    """Raise JobDefinitionError unless a column can be event time."""
    if pa.types.is_timestamp(data_type) or pa.types.is_date(data_type):
        return
    unit = " for microseconds since 1970 (s, ms and ns likewise)" if pa.types.is_integer(data_type) else ""
    raise JobDefinitionError(
        f"step {step!r}: event time {column!r} must be a timestamp or date column, but it is {data_type}; "
        f'write with_event_time(col({column!r}).cast("timestamp[us]")){unit}'
    )


def schema_difference(left: pa.Schema, right: pa.Schema) -> str:
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


def merged_field(fields: Sequence[pa.Field]) -> pa.Field:
    """A column of a union may hold nulls if it may in any input."""
    return pa.field(fields[0].name, fields[0].type, nullable=any(field.nullable for field in fields))


def infer_schema(function: BatchFunction, schema: pa.Schema, step: str) -> pa.Schema:
    """Call a function of the user on an empty batch, and return the schema of what it gives."""
    empty = pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)
    try:
        result = function(empty)
    except Exception as error:
        raise JobDefinitionError(
            f"step {step!r}: the function raised {type(error).__name__} on a batch without rows ({error}); give "
            f"schema= so that it need not be called to find the schema"
        ) from error
    if not isinstance(result, pa.RecordBatch | pa.Table):
        raise JobDefinitionError(
            f"step {step!r}: the function must return a pyarrow.RecordBatch, it returned {type(result).__name__} for a "
            f"batch without rows; mend it, or give schema="
        )
    return result.schema
