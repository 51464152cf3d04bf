"""Stages: what a pipeline's rows look like at one point, and the operators that lead on from there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from jetfast.api.expressions import Column, Expression, as_expression, plain_type
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
from jetfast.api.row_functions import BatchFunction, FlatFunction, ListElements, RowFunction, infer_schema
from jetfast.api.steps import (
    LATE_PORT,
    MISSED_UNTIL,
    REJECTED_PORT,
    CustomStep,
    EarlyRows,
    EventTime,
    MapBatchesStep,
    Output,
    PeekStep,
    ProcessingTimeStep,
    RebalanceStep,
    SinkStep,
    SortStep,
    SourceStep,
    Step,
    TransformStep,
    UnionStep,
    source_schemas,
)
from jetfast.core.items import MAIN_PORT
from jetfast.core.joins import LATE_PORTS, LEFT, RIGHT
from jetfast.core.source import Sink
from jetfast.core.throttling import WatermarkThrottleFactory
from jetfast.core.watermark_policies import FixedLag, WatermarkPolicyFactory
from jetfast.core.windows import AnyWindow
from jetfast.errors import JobDefinitionError
from jetfast.types import Duration, non_negative_duration_us

if TYPE_CHECKING:
    from jetfast.api.grouped import GroupedStage, WindowedStage
    from jetfast.api.pipeline import Pipeline
    from jetfast.core.processor import Processor


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
        return add_function_step(MapBatchesStep, self, step_name, schema, function=function)

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

    def flat_map(
        self,
        function: Callable[[dict[str, Any]], Iterable[dict[str, Any]]],
        *,
        schema: pa.Schema,
        name: str | None = None,
    ) -> Stage:
        """As `map_rows`, with any number of rows from each: the function gives an iterable of dicts.

        As slow as that. `explode` makes rows of lists that are there; `map_batches` may give any number of rows, too.
        """
        label = getattr(function, "__qualname__", type(function).__name__)
        if not callable(function):
            raise JobDefinitionError(f"step {name or 'flat_map'!r}: flat_map needs a function, got {function!r}")
        step_name = self.pipeline._name_for(name, f"flat_map({label})", stateful=False)
        return self.map_batches(FlatFunction(function, schema), schema=schema, name=step_name)

    def explode(self, column: str, *, name: str | None = None) -> Stage:
        """One row for each element of a list, the other columns repeated; none for a list that is empty or null."""
        step_name = self.pipeline._name_for(name, f"explode({column})", stateful=False)
        require_columns(step_name, [column], self.schema)
        list_type = self.schema.field(column).type
        if not (pa.types.is_list(list_type) or pa.types.is_large_list(list_type)):
            raise JobDefinitionError(f"step {step_name!r}: explode needs a column of lists, {column!r} is {list_type}")
        position = self.schema.get_field_index(column)
        schema = self.schema.set(position, pa.field(column, list_type.value_type))
        return self.map_batches(ListElements(position, schema), schema=schema, name=step_name)

    def map_using_service(
        self,
        create: Callable[[], Any],
        function: Callable[[Any, pa.RecordBatch], Any],
        *,
        schema: pa.Schema,
        concurrency: int = 16,
        batch_rows: int = 1024,
        ordered: bool = True,
        in_flight: str = "wait",
        timeout: Duration = "60s",
        name: str | None = None,
    ) -> Stage:
        """Ask an outside service about batches of rows, with several calls under way at a time.

        Parameters
        ----------
        create : makes the service (a client, a connection, a model), once for each worker; if it has a `close`, that is
            called at the end
        function : `function(service, rows)` gets a record batch and returns a record batch, a table or None. A plain
            function is called from `concurrency` threads; a coroutine function (`async def`) from one event loop
        schema : of the answers
        concurrency : calls under way at a time, for each worker; with more rows the step waits
        batch_rows : rows of a call at most
        ordered : answers leave in the order of their rows; False: as they come, which is quicker. Watermarks never
            overtake rows
        in_flight : "wait": a snapshot waits for the calls under way; "save": it holds their rows, about which the
            service is asked again after a restart
        timeout : a call that takes longer fails the job

        A result has event time if the column is among the answers with its type.
        """
        from jetfast.api.service import map_using_service

        settings = {
            "concurrency": concurrency,
            "batch_rows": batch_rows,
            "ordered": ordered,
            "in_flight": in_flight,
            "timeout": timeout,
        }
        return map_using_service(self, create, function, schema, settings, name)

    def custom(
        self,
        supplier: Callable[[], Processor],
        *,
        schema: pa.Schema,
        keys: str | Sequence[str] = (),
        name: str | None = None,
    ) -> Stage:
        """A processor of your own: `jetfast.core.processor.Processor` says what it may do.

        Parameters
        ----------
        supplier : makes a processor for each worker: its class, or a `functools.partial` of that. It is pickled
        schema : of what the processor yields
        keys : rows with equal keys come to the same processor, and state by these keys is restored there; without keys
            rows stay with their worker

        If the event-time column is not in the result with its type, the result has no event time.
        """
        label = getattr(supplier, "__qualname__", type(supplier).__name__)
        step_name = self.pipeline._name_for(name, f"custom({label})", stateful=True)
        if not callable(supplier):
            raise JobDefinitionError(f"step {step_name!r}: custom needs a class or function, got {supplier!r}")
        if not isinstance(schema, pa.Schema):
            raise JobDefinitionError(
                f"step {step_name!r}: schema must be a pyarrow.Schema, got {type(schema).__name__}"
            )
        named = (keys,) if isinstance(keys, str) else tuple(keys)
        require_columns(step_name, named, self.schema, "as key")
        check_keys(step_name, pa.schema([self.schema.field(key) for key in named]))
        return add_function_step(CustomStep, self, step_name, schema, supplier=supplier, keys=named)

    def rebalance(self, *keys: str, name: str | None = None) -> Stage:
        """Send batches to all workers of all members in turn, or rows by `keys`: for few or uneven source partitions.

        Without keys the order of rows is lost, and a batch goes where there is room.
        """
        step_name = self.pipeline._name_for(name, f"rebalance({', '.join(map(str, keys))})", stateful=False)
        require_columns(step_name, keys, self.schema, "as key")
        check_keys(step_name, pa.schema([self.schema.field(key) for key in keys]))
        return self._passing(RebalanceStep, step_name, keys=tuple(keys))

    def sort(self, *by: str, descending: bool | Sequence[bool] = False, name: str | None = None) -> Stage:
        """All rows in the order of these columns; for input that ends, since nothing leaves before that.

        Nulls come last, NaN before them; equal rows as they came. One worker holds all rows and sorts; the steps behind
        it have one worker, too, and keep the order.

        Parameters
        ----------
        by : columns
        descending : for all of them, or for each
        """
        step_name = self.pipeline._name_for(name, f"sort({', '.join(map(str, by))})", stateful=True)
        if not by:
            raise JobDefinitionError(f"step {step_name!r}: sort needs at least one column")
        require_columns(step_name, by, self.schema)
        flags = [descending] * len(by) if isinstance(descending, bool) else list(descending)
        if len(flags) != len(by):
            raise JobDefinitionError(f"step {step_name!r}: descending= has {len(flags)} values for {len(by)} columns")
        endless = endless_source(self._output.step)
        if endless is not None:
            raise JobDefinitionError(
                f"step {step_name!r}: sort waits for the end of its input, and {endless!r} has none"
            )
        keys = [(column, "descending" if flag else "ascending") for column, flag in zip(by, flags, strict=True)]
        try:
            pc.sort_indices(self.schema.empty_table(), sort_keys=keys)
        except pa.ArrowException as error:
            raise JobDefinitionError(f"step {step_name!r}: rows cannot be put in order: {error}") from error
        return self._passing(SortStep, step_name, by=keys)

    def peek(self, limit: int = 10, *, name: str | None = None) -> Stage:
        """Pass all rows on, and print the first `limit` that each worker sees, where it runs."""
        step_name = self.pipeline._name_for(name, "peek", stateful=False)
        if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
            raise JobDefinitionError(f"step {step_name!r}: peek needs a number of rows of at least 1, got {limit!r}")
        return self._passing(PeekStep, step_name, limit=limit)

    def _passing(self, kind: type[RebalanceStep | SortStep | PeekStep], name: str, **settings: Any) -> Stage:
        """Add a step that gives the rows that come to it."""
        step = kind(
            self.pipeline,
            name,
            (self._output,),
            {MAIN_PORT: self.schema},
            time=self.event_time,
            no_time_reason=self._no_time_reason if self.event_time is None else "",
            time_shift_us=self._output.step.time_shift_us,
            early=self._early,
            **settings,
        )
        self.pipeline._add(step)
        return Stage(Output(step))

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
        from jetfast.api.grouped import GroupedStage

        return GroupedStage(self, named)

    def window(self, window: AnyWindow) -> WindowedStage:
        """Windows (`jf.tumbling`, `jf.sliding`, `jf.session`) over all rows together; follow with `.agg(...)`."""
        from jetfast.api.grouped import WindowedStage

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


def time_after_function(stage: Stage, step: str, schema: pa.Schema) -> tuple[str | None, str]:
    """The event-time column behind a function of the user that gives `schema`, or why there is none."""
    time = stage.event_time
    if time is None:
        return None, stage._no_time_reason
    data_type = stage.schema.field(time).type
    if time in schema.names and schema.field(time).type == data_type:
        return time, ""
    return None, f"step {step!r} does not return its event-time column {time!r} as {data_type}"


def add_function_step(
    make_step: Callable[..., Step], stage: Stage, name: str, schema: pa.Schema, **settings: Any
) -> Stage:
    """Add a step of a user's function that gives `schema`: event time and early results follow their columns."""
    time, reason = time_after_function(stage, name, schema)
    step = make_step(
        stage.pipeline,
        name,
        (stage._output,),
        {MAIN_PORT: schema},
        time=time,
        no_time_reason=reason,
        time_shift_us=stage._output.step.time_shift_us,
        early=early_rows_with(stage._early, lambda column: column if column in schema.names else None),
        **settings,
    )
    stage.pipeline._add(step)
    return Stage(Output(step))


def early_rows_with(early: EarlyRows | None, rename: Callable[[str], str | None]) -> EarlyRows | None:
    """Follow the column that tells early results through a step."""
    if early is None or early.column is None:
        return early
    return EarlyRows(early.step, rename(early.column))


def endless_source(step: Step) -> str | None:
    """Name of a source before a step that need not end; None: all end."""
    if isinstance(step, SourceStep):
        return None if step.source.bounded else step.name
    return next(filter(None, (endless_source(output.step) for output in step.inputs)), None)


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


class LateRowsStage(Stage):
    """Rows of a step that may miss rows."""

    @property
    def late_rows(self) -> Stage:
        """Rows that came too late: the input's columns and `missed_until`, the end of the last window they missed.

        A late row of a session window, or of state by key, has missed no window that could be named: its
        `missed_until` is null. Not consumed, they are only counted in `job.metrics`.
        """
        return SideStage(Output(self._output.step, LATE_PORT), "late rows")


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
