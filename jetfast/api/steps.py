"""The steps that a user describes, before planning: sources, stateless steps, unions, windows, joins, sinks.

A step has outputs (ports) that other steps read: MAIN_PORT everywhere; REJECTED_PORT of a source; LATE_PORT of
a window; LATE_PORTS of a join.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from jetfast.api.expressions import Expression
from jetfast.api.lowering import HIDDEN
from jetfast.api.naming import carried
from jetfast.api.operations import Operation
from jetfast.core.aggregate import AggregateColumn, AggregateKind, AnyAggregateColumn, BatchAggregateColumn
from jetfast.core.batch_aggregate import BatchAggregate
from jetfast.core.items import MAIN_PORT
from jetfast.core.joins import JoinType
from jetfast.core.processor import Processor
from jetfast.core.source import REJECTED_SCHEMA, Sink, Source
from jetfast.core.throttling import WatermarkThrottleFactory
from jetfast.core.top_results import TopResults
from jetfast.core.watermark_policies import WatermarkPolicyFactory
from jetfast.core.windows import AnyWindow, Window
from jetfast.types import format_duration

if TYPE_CHECKING:
    from jetfast.api.pipeline import Pipeline

REJECTED_PORT = 1
LATE_PORT = 1
MISSED_UNTIL = "missed_until"
"""Column of late rows: end of the last window that the row missed."""


def late_schema_of(schema: pa.Schema) -> pa.Schema:
    """Of late rows, which were `schema`."""
    missed_until = pa.field(MISSED_UNTIL, pa.timestamp("us"))
    position = schema.get_field_index(MISSED_UNTIL)  # rows that were late before: the newer answer counts
    return schema.append(missed_until) if position < 0 else schema.set(position, missed_until)


@dataclass(frozen=True, eq=False)
class Output:
    """One output port of a step: what a Stage stands for."""

    step: Step
    port: int = MAIN_PORT

    @property
    def schema(self) -> pa.Schema:
        return self.step.schemas[self.port]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Output) and other.step is self.step and other.port == self.port

    def __hash__(self) -> int:
        return hash((id(self.step), self.port))


@dataclass(frozen=True)
class EarlyRows:
    """Among the rows of a step are early results: they are in the final ones, too, so nothing may count them."""

    step: str
    """The window that gives them."""
    column: str | None
    """The column that tells them from final ones; None: it was left out on the way."""


@dataclass(eq=False)
class Step:
    """One named step; `schemas` by output port. `time` is the event-time column of the main output, if it has one."""

    pipeline: Pipeline
    name: str
    inputs: tuple[Output, ...]
    schemas: dict[int, pa.Schema]
    time: str | None = None
    no_time_reason: str = ""
    """Why `time` is None, for the message of whoever needs it."""
    time_shift_us: int = 0
    """What is added to the event-time column: the result of a window [start, end) bears the last moment before its end.
    """
    early: EarlyRows | None = None

    def describe(self) -> str:
        """One line for `explain` and pictures."""
        return type(self).__name__


@dataclass(frozen=True)
class EventTime:
    """How a source makes event time."""

    column: str
    policy: WatermarkPolicyFactory
    idle_timeout_us: int
    throttle: WatermarkThrottleFactory | None = None
    """None: the planner chooses."""


@dataclass(eq=False)
class SourceStep(Step):
    """Reads a source; port 1 has the rows that were rejected."""

    source: Source = field(kw_only=True)
    event_time: EventTime | None = None

    def describe(self) -> str:
        return f"read {self.source.name}" + (f", event time {self.event_time.column}" if self.event_time else "")


@dataclass(eq=False)
class TransformStep(Step):
    """A stateless step without a function of the user."""

    operation: Operation = field(kw_only=True)

    def describe(self) -> str:
        return self.name


@dataclass(eq=False)
class MapBatchesStep(Step):
    """A function of the user over record batches."""

    function: Callable[[pa.RecordBatch], Any] = field(kw_only=True)

    def describe(self) -> str:
        return f"map_batches {getattr(self.function, '__qualname__', repr(self.function))}"


@dataclass(eq=False)
class ServiceStep(Step):
    """A function of the user that asks an outside service; `settings` as of MapUsingService."""

    create: Callable[[], Any] = field(kw_only=True)
    function: Callable[[Any, pa.RecordBatch], Any] = field(kw_only=True)
    settings: Mapping[str, Any] = field(kw_only=True)

    def describe(self) -> str:
        order = "in order" if self.settings["ordered"] else "as they come"
        return f"answers of {getattr(self.function, '__qualname__', repr(self.function))}, {order}"


@dataclass(eq=False)
class CustomStep(Step):
    """A processor of the user; with keys, rows of a key come to one of them."""

    supplier: Callable[[], Processor] = field(kw_only=True)
    keys: tuple[str, ...] = field(kw_only=True)

    def describe(self) -> str:
        label = getattr(self.supplier, "__qualname__", type(self.supplier).__name__)
        return f"processor {label}" + (f" by {', '.join(self.keys)}" if self.keys else "")


@dataclass(eq=False)
class RebalanceStep(Step):
    """The same rows at other workers: in turn, or by keys."""

    keys: tuple[str, ...] = field(kw_only=True)

    def describe(self) -> str:
        return "to all workers " + (f"by {', '.join(self.keys)}" if self.keys else "in turn")


@dataclass(eq=False)
class SortStep(Step):
    """All rows of a bounded input in order."""

    by: Sequence[tuple[str, Literal["ascending", "descending"]]] = field(kw_only=True)

    def describe(self) -> str:
        return "sorted by " + ", ".join(
            column + (" descending" if order == "descending" else "") for column, order in self.by
        )


@dataclass(eq=False)
class PeekStep(Step):
    """The same rows, the first of which are printed."""

    limit: int = field(kw_only=True)

    def describe(self) -> str:
        return f"the first {self.limit} of each worker are printed"


@dataclass(eq=False)
class ProcessingTimeStep(Step):
    """The input and a column with the wall clock, which is the event time from here on."""

    column: str = field(kw_only=True)

    def describe(self) -> str:
        return f"event time {self.column}: the wall clock"


@dataclass(eq=False)
class UnionStep(Step):
    """All rows of all inputs, which have equal schemas."""

    def describe(self) -> str:
        return "union of " + ", ".join(output.step.name for output in self.inputs)


@dataclass(frozen=True)
class WindowedAggregate:
    """One aggregate of a window step; an argument is a column's name, or an expression that is computed for it."""

    name: str
    function: AggregateKind | BatchAggregate
    arguments: tuple[str | Expression, ...] = ()
    names: tuple[str, ...] = ()
    """What a batch aggregate finds the arguments under."""

    def column_of(self, position: int) -> str:
        """The column that holds an argument: hidden if it is computed."""
        argument = self.arguments[position]
        if isinstance(argument, str):
            return argument
        return HIDDEN + self.name if position == 0 else f"{HIDDEN}{position}{HIDDEN}{self.name}"

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that hold the arguments."""
        return tuple(self.column_of(position) for position in range(len(self.arguments)))

    @property
    def computed(self) -> list[tuple[str, Expression]]:
        """The arguments that must be computed, by the column that holds them."""
        pairs = zip(self.columns, self.arguments, strict=True)
        return [(column, argument) for column, argument in pairs if isinstance(argument, Expression)]

    def for_processor(self) -> AnyAggregateColumn:
        """What a processor needs to know of it."""
        if isinstance(self.function, AggregateKind):
            return AggregateColumn(self.name, self.function, *self.columns)
        return BatchAggregateColumn(self.name, self.function, self.columns, self.names)


@dataclass(eq=False)
class WindowStep(Step):
    """Aggregates by key and window; port 1 has the late rows. `keys`: name and, if computed, the expression."""

    keys: Sequence[tuple[str, Expression | None]] = field(kw_only=True)
    time_column: str = field(kw_only=True)
    input_shift_us: int = 0
    """Added to the time column, which is that of the input."""
    window: AnyWindow = field(kw_only=True)
    aggregates: Sequence[WindowedAggregate] = field(kw_only=True)
    early_period_us: int | None = None
    """Wall time between early results; None: there are none."""

    def describe(self) -> str:
        keys = ", ".join(name for name, _ in self.keys)
        early = "" if self.early_period_us is None else f", early results every {format_duration(self.early_period_us)}"
        return f"{self.window}" + (f" by {keys}" if keys else "") + early


@dataclass(eq=False)
class TopStep(Step):
    """The best results of each window; its input is a WindowStep."""

    top: TopResults = field(kw_only=True)

    def describe(self) -> str:
        per = f" per {', '.join(self.top.per)}" if self.top.per else ""
        return f"top {self.top.count} by {self.top.by}{' ascending' if self.top.ascending else ''}{per}"


@dataclass(frozen=True)
class FirstOfKey:
    """The first row of each key, and again one that comes more than the time to live after it."""

    def __str__(self) -> str:
        return "first rows"


@dataclass(frozen=True)
class Running:
    """All rows with aggregates of those of their key so far."""

    aggregates: tuple[WindowedAggregate, ...]

    def __str__(self) -> str:
        return f"running {', '.join(aggregate.name for aggregate in self.aggregates)}"


@dataclass(frozen=True)
class Stateful:
    """Functions of the user over rows and the states of their keys."""

    function: Callable[..., Any]
    on_evict: Callable[..., Any] | None
    state_type: pa.DataType

    def __str__(self) -> str:
        return f"map_stateful {getattr(self.function, '__qualname__', repr(self.function))}"


@dataclass(eq=False)
class KeyedStateStep(Step):
    """Keeps state by key; port 1 has the late rows, if there is a time to live."""

    method: FirstOfKey | Running | Stateful = field(kw_only=True)
    keys: Sequence[tuple[str, Expression | None]] = field(kw_only=True)
    """Columns of the rows, and the expressions of those that are computed for it."""
    ttl_us: int | None = field(kw_only=True)

    def describe(self) -> str:
        living = "" if self.ttl_us is None else f", for {format_duration(self.ttl_us)}"
        return f"{self.method} by {', '.join(name.lstrip(HIDDEN) for name, _ in self.keys)}{living}"

    @property
    def computed(self) -> list[tuple[str, Expression]]:
        """Columns that must be computed for it."""
        computed = [(key, expression) for key, expression in self.keys if expression is not None]
        if isinstance(self.method, Running):
            computed += [argument for aggregate in self.method.aggregates for argument in aggregate.computed]
        return computed

    def columns_kept(self, wanted: set[str], *, whole: bool) -> set[str]:
        """Columns of the input that come to it for some of the result; `whole`: all of them are wanted anyway."""
        names = set(self.inputs[0].schema.names)
        if whole or isinstance(self.method, Stateful):
            return names
        kept = wanted | {key for key, _ in self.keys}
        if isinstance(self.method, Running):
            kept |= {argument for aggregate in self.method.aggregates for argument in aggregate.columns}
        time = self.inputs[0].step.time
        if time is not None and self.ttl_us is not None:
            kept.add(time)
        return kept & names

    def columns_read(self, wanted: set[str], *, whole: bool) -> set[str]:
        """As `columns_kept`, and those from which others are computed for it."""
        schema = self.inputs[0].schema
        computed = {column for _, expression in self.computed for column in expression.node.columns(schema)}
        return computed | self.columns_kept(wanted, whole=whole)


@dataclass(frozen=True)
class HashJoin:
    """The right side is bounded, and read before the left one."""

    def __str__(self) -> str:
        return "hash join"


@dataclass(frozen=True)
class WindowJoin:
    """Rows that lie in one window."""

    window: Window

    def __str__(self) -> str:
        return f"join, {self.window}"


@dataclass(frozen=True)
class IntervalJoin:
    """Right rows at least lower_us and at most upper_us after the left one (before it, if negative)."""

    lower_us: int
    upper_us: int

    def __str__(self) -> str:
        return f"join, {self.bounds}"

    @property
    def bounds(self) -> str:
        """Both, as text."""
        return " to ".join(
            f"-{format_duration(-bound)}" if bound < 0 else format_duration(bound)
            for bound in (self.lower_us, self.upper_us)
        )

    @property
    def watermark_step_us(self) -> int:
        """How fine watermarks must be: a power of ten, at most a hundredth of the time that rows are kept."""
        reach_us = max(abs(self.lower_us), abs(self.upper_us), self.upper_us - self.lower_us)
        step_us = 1000
        while step_us * 1000 <= reach_us:
            step_us *= 10
        return step_us


@dataclass(frozen=True)
class AsofJoin:
    """The latest right row that is not after the left one, and at most tolerance_us before it."""

    tolerance_us: int | None

    def __str__(self) -> str:
        return "as-of join" + ("" if self.tolerance_us is None else f", {format_duration(self.tolerance_us)} back")


@dataclass(frozen=True)
class JoinKey:
    """One key of a join: of either side a column, and the expression that computes it if it is not there."""

    name: str
    """In the result."""
    columns: tuple[str, str]
    expressions: tuple[Expression | None, Expression | None]


JoinMethod = HashJoin | WindowJoin | IntervalJoin | AsofJoin


@dataclass(eq=False)
class JoinStep(Step):
    """Rows of two inputs, left and right, with equal keys; ports 1 and 2 have the late rows of either."""

    method: JoinMethod = field(kw_only=True)
    join_type: JoinType = field(kw_only=True)
    keys: Sequence[JoinKey] = field(kw_only=True)
    columns: tuple[Sequence[tuple[str, str]], Sequence[tuple[str, str]]] = field(kw_only=True)
    """Of either side, columns besides the keys and their names in the result."""
    added: Sequence[pa.Field] = ()
    """What the join adds."""

    def describe(self) -> str:
        return f"{self.join_type.value} {self.method} on {', '.join(key.name for key in self.keys)}"

    def columns_read(self, ordinal: int, wanted: set[str], *, whole: bool) -> set[str]:
        """Columns of one input that must be there for some of the result; `whole`: all of them are wanted anyway."""
        schema = self.inputs[ordinal].schema
        if whole:
            return set(schema.names)
        columns = {column for column, name in self.columns[ordinal] if name in wanted}
        for key in self.keys:
            expression = key.expressions[ordinal]
            columns |= {key.columns[ordinal]} if expression is None else expression.node.columns(schema)
        time = self.inputs[ordinal].step.time
        return columns if time is None else columns | {time}


@dataclass(eq=False)
class SinkStep(Step):
    """Writes to a sink."""

    sink: Sink = field(kw_only=True)

    @property
    def collects(self) -> bool:
        """Do the rows go back to the process that submits?"""
        return bool(getattr(self.sink, "collects", False))

    def describe(self) -> str:
        return f"write {self.sink.name}"


def source_schemas(step: str, source: Source) -> dict[int, pa.Schema]:
    """Of the rows that a step reads, as they are carried, and of those that it rejects. Raises as `carried`."""
    return {MAIN_PORT: carried(step, source.schema), REJECTED_PORT: REJECTED_SCHEMA}


def endless_source(step: Step) -> str | None:
    """Name of a source before a step that need not end; None: all end."""
    if isinstance(step, SourceStep):
        return None if step.source.bounded else step.name
    return next(filter(None, (endless_source(output.step) for output in step.inputs)), None)
