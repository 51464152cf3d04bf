"""Stages: what a pipeline's rows look like at one point, and the operators that lead on from there."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from jetfast.api import function_steps, passing_steps, time_columns, transforms
from jetfast.api.expressions import Expression
from jetfast.api.keys import KeyColumns, checked_group_keys
from jetfast.api.naming import named_column, require_distinct
from jetfast.api.operations import OnError
from jetfast.api.row_functions import BatchFunction
from jetfast.api.steps import LATE_PORT, REJECTED_PORT, EarlyRows, Output, SinkStep, endless_source
from jetfast.api.unions import unite
from jetfast.core.guarantee import Delivery
from jetfast.core.items import MAIN_PORT
from jetfast.core.joins import LATE_PORTS, LEFT, RIGHT
from jetfast.core.source import Sink
from jetfast.core.throttling import WatermarkThrottleFactory
from jetfast.core.watermark_policies import WatermarkPolicyFactory
from jetfast.core.windows import AnyWindow
from jetfast.errors import JobDefinitionError, SystemUnavailable
from jetfast.kernels.carried import restored_schema
from jetfast.types import Duration

if TYPE_CHECKING:
    from jetfast.api.grouped import GroupedStage, WindowedStage
    from jetfast.api.pipeline import Pipeline
    from jetfast.core.processor import Processor


class Stage:
    """Rows at one point of a pipeline. Operators return new stages; nothing is changed and nothing runs.

    Columns are given by name, by `jf.col`, by other expressions, or by bare `pyarrow.compute` expressions.
    `on_error="null"` on select, with_column(s) and where makes an operation that fails in a row (overflow, x / 0, a
    cast) give null there; the default "fail" fails the job and names step, column and row.
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
        return Stage(transforms.select(self, columns, name, on_error))

    def where(self, condition: object, *, name: str | None = None, on_error: OnError = "fail") -> Stage:
        """Keep the rows where `condition` is true (neither false nor null)."""
        return Stage(transforms.where(self, condition, name, on_error))

    filter = where

    def with_column(self, column: str, value: object, *, name: str | None = None, on_error: OnError = "fail") -> Stage:
        """Add a column, or replace the one of that name, by an expression (or a literal)."""
        return Stage(transforms.with_columns(self, {column: value}, "with_column", name, on_error))

    def with_columns(
        self, columns: Mapping[str, object], *, name: str | None = None, on_error: OnError = "fail"
    ) -> Stage:
        """Add or replace several columns at once; each expression sees the columns as they were before."""
        return Stage(transforms.with_columns(self, columns, "with_columns", name, on_error))

    def drop(self, *columns: str, name: str | None = None) -> Stage:
        """Leave these columns out."""
        return Stage(transforms.drop(self, columns, name))

    def rename(self, columns: Mapping[str, str], *, name: str | None = None) -> Stage:
        """Rename columns: {"old": "new"}."""
        return Stage(transforms.rename(self, columns, name))

    def union(self, *others: Stage, name: str | None = None) -> Stage:
        """All rows of this stage and of others with the same columns, names and types, in the same order.

        Event time goes on if all have the same event-time column; the watermark is the least of theirs.
        """
        return Stage(unite(self, others, name))

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
        return Stage(function_steps.map_batches(self, function, schema, name))

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
        return Stage(function_steps.map_rows(self, function, schema, name))

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
        return Stage(function_steps.flat_map(self, function, schema, name))

    def explode(self, column: str, *, name: str | None = None) -> Stage:
        """One row for each element of a list, the other columns repeated; none for a list that is empty or null."""
        return Stage(function_steps.explode(self, column, name))

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
        return Stage(function_steps.custom(self, supplier, schema, keys, name))

    def rebalance(self, *keys: str, name: str | None = None) -> Stage:
        """Send batches to all workers of all members in turn, or rows by `keys`: for few or uneven source partitions.

        Without keys the order of rows is lost, and a batch goes where there is room.
        """
        return Stage(passing_steps.rebalance(self, keys, name))

    def sort(self, *by: str, descending: bool | Sequence[bool] = False, name: str | None = None) -> Stage:
        """All rows in the order of these columns; for input that ends, since nothing leaves before that.

        Nulls come last, NaN before them; equal rows as they came. One worker holds all rows and sorts; the steps behind
        it have one worker, too, and keep the order.

        Parameters
        ----------
        by : columns
        descending : for all of them, or for each
        """
        return Stage(passing_steps.sort(self, by, descending, name))

    def peek(self, limit: int = 10, *, name: str | None = None) -> Stage:
        """Pass all rows on, and print the first `limit` that each worker sees, where it runs."""
        return Stage(passing_steps.peek(self, limit, name))

    def with_processing_time(self, column: str = "processing_time", *, name: str | None = None) -> Stage:
        """Add a column with the time at which a row comes here, timestamp[us] by the wall clock: windows go by it.

        For rows without event time. A window closes when the clock has passed its end, rows or not, and no row is
        late; but where a row belongs differs from run to run. It is a step, not a policy of the source, so that what
        counts may be chosen (behind a `where`, behind slow steps), and silent source partitions hold nothing back.
        """
        return Stage(time_columns.with_processing_time(self, column, name))

    def group_by(self, *keys: object) -> GroupedStage:
        """Group rows by keys (names, or named expressions); null is a group of its own.

        Follow with `.window(...)`, or with a step that keeps state by key.
        """
        if not keys:
            raise JobDefinitionError(
                "group_by needs at least one key; without keys write .window(...).agg(...) at once"
            )
        named = tuple(named_column(key, self.schema, "group_by") for key in keys)
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
        window_end; its event time is the last moment of the window, as that of aggregates. State is what lies in open
        windows.

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
            meant = f"; did you mean write(jf.files({sink!r}))?" if isinstance(sink, str | os.PathLike) else ""
            raise JobDefinitionError(f"write needs a sink such as jf.files(..., format=...), got {sink!r}{meant}")
        step_name = self.pipeline._name_for(name, sink.name, stateful=True)
        target = getattr(sink, "target", None)
        for other in self.pipeline._iterate():
            if target is not None and isinstance(other, SinkStep) and other.sink.target == target:
                raise JobDefinitionError(f"steps {other.name!r} and {step_name!r} both write to {target}")
        try:
            sink.check(restored_schema(self.schema))
        except JobDefinitionError as error:
            text = str(error).removeprefix(f"{step_name}: ")  # a step that is named after its sink
            kind = SystemUnavailable if isinstance(error, SystemUnavailable) else JobDefinitionError
            raise kind(f"step {step_name!r}: {text}") from error
        endless = endless_source(self._output.step)
        if endless is not None and getattr(sink, "sink_delivery", None) is Delivery.WHOLE:
            raise JobDefinitionError(
                f"step {step_name!r}: it is seen when all rows are written, and {endless!r} has no end; write part "
                'files to a directory: jf.files("directory", format=...)'
            )
        self.pipeline._add(SinkStep(self.pipeline, step_name, (self._output,), {}, sink=sink))

    def collect(self, name: str = "result") -> None:
        """Bring these rows back to the process that submits the job; they are found there under `name`."""
        from jetfast.connectors.arrow import collect

        self.write(collect(), name=name)

    @property
    def _label(self) -> str:
        return self.name

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

    if not TYPE_CHECKING:  # what is asked for here is missing

        def __getattr__(self, name: str) -> Any:
            missing = f"{type(self).__name__!r} object has no attribute {name!r}"
            if name == "with_event_time":
                missing += ": it directly follows read, before other steps"
            raise AttributeError(missing, name=name, obj=self)

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
        time_columns.with_event_time(self, column, policy, idle_timeout, throttle)
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
