"""Aggregates of several stages by equal keys and windows: a union, each aggregate over the rows of its stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from jetfast.api.expression_nodes import Column, Literal
from jetfast.api.expressions import Expression, as_expression
from jetfast.api.grouped import GroupedStage, aggregate, check_aggregate, check_window
from jetfast.api.joins import common_key_type
from jetfast.api.lowering import HIDDEN
from jetfast.api.naming import require_columns, require_distinct, shorten
from jetfast.api.operations import Select, lower_for_step
from jetfast.api.spark_types import plain_type
from jetfast.api.stage import SideStage, Stage
from jetfast.api.steps import LATE_PORT, MISSED_UNTIL, Output, Step, TransformStep, late_schema_of
from jetfast.api.unions import merged_schema
from jetfast.core.aggregate import Aggregate, AggregateKind
from jetfast.core.aggregates.of_some_rows import OfSomeRows
from jetfast.core.items import MAIN_PORT
from jetfast.core.windows import AnyWindow
from jetfast.errors import JobDefinitionError

TIME = f"{HIDDEN}time"


class CogroupedStage:
    """Rows of several stages grouped by equal keys, waiting for a window."""

    def __init__(self, groups: Sequence[GroupedStage]) -> None:
        if not all(isinstance(group, GroupedStage) for group in groups):
            raise JobDefinitionError(f"cogroup needs stage.group_by(...) for each stage, got {groups[1:]!r}")
        if len(groups) < 2:
            raise JobDefinitionError("cogroup needs at least one other stage.group_by(...)")
        self._groups = tuple(groups)

    def window(self, window: AnyWindow) -> CogroupedWindow:
        """Cut event time into windows (`jf.tumbling`, `jf.sliding`, `jf.session`); follow with `.agg({...}, {...})`."""
        check_window(window)
        return CogroupedWindow(self._groups, window)


class CogroupedWindow:
    """Rows of several stages grouped by equal keys and windows, waiting for aggregates of each."""

    def __init__(self, groups: tuple[GroupedStage, ...], window: AnyWindow) -> None:
        self._groups = groups
        self._window = window

    def agg(self, *aggregates: Mapping[str, Aggregate], name: str | None = None) -> CogroupStage:
        """Aggregate per key and window, one mapping a stage: `agg({"views": jf.count()}, {"paid": jf.sum("price")})`.

        The result has the keys, under the names that they have in the first stage and with the type that holds all of
        them; window_start and window_end; and the aggregates. There is a row for each key and window that has rows of
        any stage; without rows of its own an aggregate is null, a count 0. Late rows are counted, and to be had as
        `late_rows_of(0)` and so on.
        """
        stages = [group._stage for group in self._groups]
        names = [result for each in aggregates if isinstance(each, Mapping) for result in each]
        keys = ", ".join(key for key, _ in self._groups[0]._keys)
        labels = ", ".join(stage._label for stage in stages)
        generated = shorten(f"cogroup({labels} by {keys}: {', '.join(names)}, {self._window})", 120)
        step = stages[0].pipeline._name_for(name, generated, stateful=True)
        if len(aggregates) != len(stages) or not all(isinstance(each, Mapping) for each in aggregates):
            raise JobDefinitionError(
                f'step {step!r}: agg needs aggregates of each of {len(stages)} stages, such as {{"n": jf.count()}}, '
                f"got {aggregates!r}"
            )
        require_distinct(step, names)
        cogroup = Cogroup(step, self._groups, aggregates)
        union = cogroup.inputs[0].union(*cogroup.inputs[1:], name=f"{step} (rows)")
        named = tuple((key, Expression(Column(key))) for key in cogroup.keys)
        result = aggregate(union, named, self._window, cogroup.combined, step)
        return CogroupStage(result._output, cogroup)


class CogroupStage(Stage):
    """Results of windows over several stages."""

    def __init__(self, output: Output, cogroup: Cogroup) -> None:
        super().__init__(output)
        self._cogroup = cogroup

    def late_rows_of(self, number: int) -> Stage:
        """Rows of the stage of this number, 0 the first, that came too late: its columns and `missed_until`.

        As `late_rows` of a window; of a stage that was never asked for they are only counted in `job.metrics`.
        """
        stages = self._cogroup.stages
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < len(stages):
            raise JobDefinitionError(
                f"step {self.name!r}: late_rows_of needs the number of a stage from 0 to {len(stages) - 1}, "
                f"got {number!r}"
            )
        return self._cogroup.late_rows_of(number, self._output.step)


class Cogroup:
    """Brings the rows of several stages to the same columns: keys, time, a mark and the arguments of each stage."""

    def __init__(
        self, step: str, groups: Sequence[GroupedStage], aggregates: Sequence[Mapping[str, Aggregate]]
    ) -> None:
        self.step = step
        self.stages = [group._stage for group in groups]
        self.keys = [key for key, _ in groups[0]._keys]
        self.combined: dict[str, Aggregate] = {}
        """Aggregates over the columns of all."""
        self.columns: list[tuple[int, str, Expression, pa.DataType]] = []
        """Stage, name, expression there and type of each column that only one stage has."""
        keys = self.common_keys(groups)
        self.check_times()
        for number, each in enumerate(aggregates):
            mark = Literal(pa.scalar(1, pa.int8()))
            self.columns.append((number, self.mark(number), Expression(mark), pa.int8()))
            for result, value in each.items():
                self.combined[result] = self.combine(number, result, value)
        self.inputs = [self.input(number, keys[number]) for number in range(len(groups))]
        self.late: dict[int, Stage] = {}
        """Of each stage, as far as somebody has asked."""

    def common_keys(self, groups: Sequence[GroupedStage]) -> list[list[Expression]]:
        """The keys of each stage, cast to their common types."""
        if len({len(group._keys) for group in groups}) > 1:
            counts = ", ".join(str(len(group._keys)) for group in groups)
            raise JobDefinitionError(f"step {self.step!r}: the stages have different numbers of keys: {counts}")
        cast: list[list[Expression]] = [[] for _ in groups]
        for keys in zip(*(group._keys for group in groups), strict=True):
            types = [
                lower_for_step(expression, stage.schema, self.step, key, "fail", "as key").data_type
                for stage, (key, expression) in zip(self.stages, keys, strict=True)
            ]
            common = common_key_type(self.step, [key for key, _ in keys], types)
            for own, (_, expression) in zip(cast, keys, strict=True):
                own.append(expression.cast(common))  # which decodes dictionaries, too
        return cast

    def check_times(self) -> None:
        """All stages need event time of one type, which comes from rows or from windows in all of them."""
        for stage in self.stages:
            if stage.event_time is None:
                raise JobDefinitionError(
                    f"step {self.step!r}: a window needs event time, but {stage._label!r} has none: "
                    f"{stage._no_time_reason}"
                )
        found = {
            (str(stage.schema.field(stage.event_time).type), stage._output.step.time_shift_us) for stage in self.stages
        }
        if len(found) > 1:
            each = ", ".join(
                f"{stage._label!r} has {stage._time_description}: {stage.schema.field(stage.event_time).type}"
                for stage in self.stages
            )
            raise JobDefinitionError(f"step {self.step!r}: the stages need event time of one kind, but {each}")

    def combine(self, number: int, result: str, value: Aggregate) -> Aggregate:
        """An aggregate of one stage as one over the rows of all, of which the others have nulls."""
        stage = self.stages[number]
        checked, types = check_aggregate(self.step, result, value, stage.schema)
        if value.function is AggregateKind.COUNT:
            return Aggregate(AggregateKind.COUNT_VALUES, (self.mark(number),))
        columns = []
        for position, (column, data_type) in enumerate(zip(value.columns, types, strict=True)):
            if isinstance(column, str):
                require_columns(self.step, [column], stage.schema, f"in {result}")
                expression = Expression(Column(column))
            else:
                expression = as_expression(column)
            hidden = f"{HIDDEN}{number}.{result}.{position}"
            columns.append(Expression(Column(hidden)).alias(checked.names[position]))
            plain = plain_type(data_type)
            self.columns.append((number, hidden, expression if plain == data_type else expression.cast(plain), plain))
        if isinstance(value.function, AggregateKind) or value.function.skips_nulls:
            return Aggregate(value.function, tuple(columns))
        return Aggregate(OfSomeRows(value.function), (*columns, self.mark(number)))

    def mark(self, number: int) -> str:
        """The column that is null in rows of other stages."""
        return f"{HIDDEN}{number}"

    def late_column(self, number: int, column: str) -> str:
        """What a column of one stage is called on its way to the late rows."""
        return f"{HIDDEN}{number}.late.{column}"

    def late_rows_of(self, number: int, window: Step) -> Stage:
        """Late rows of one stage, as they were before columns were made the same."""
        if not self.late:
            self.keep_whole_rows(window)
        if number not in self.late:
            own = [column for column in self.stages[number].schema.names if column != MISSED_UNTIL]
            here = Expression(Column(self.mark(number))).is_valid()
            late = SideStage(Output(window, LATE_PORT), "late rows").where(
                here, name=f"{self.step} (late {number + 1})"
            )
            columns = [Expression(Column(self.late_column(number, column))).alias(column) for column in own]
            name = f"{self.step} (late rows {number + 1})"
            self.late[number] = late.select(*columns, MISSED_UNTIL, name=name)
        return self.late[number]

    def keep_whole_rows(self, window: Step) -> None:
        """Give the steps before the window all columns of all stages, which nobody pays for who does not ask."""
        (union,) = (output.step for output in window.inputs)
        for number, output in enumerate(union.inputs):
            step = output.step
            assert isinstance(step, TransformStep)
            assert isinstance(step.operation, Select)
            late = tuple(
                (
                    self.late_column(owner, field.name),
                    Expression(Column(field.name) if owner == number else Literal(pa.scalar(None, field.type))),
                )
                for owner, stage in enumerate(self.stages)
                for field in stage.schema
                if field.name != MISSED_UNTIL
            )
            step.operation = Select((*step.operation.outputs, *late))
            step.schemas = {MAIN_PORT: step.operation.bind(self.stages[number].schema, step.name).schema}
        schemas = [output.schema for output in union.inputs]
        union.schemas = {MAIN_PORT: merged_schema(schemas)}
        window.schemas = {**window.schemas, LATE_PORT: late_schema_of(union.schemas[MAIN_PORT])}

    def input(self, number: int, keys: Sequence[Expression]) -> Stage:
        """One stage with the columns that all have."""
        stage = self.stages[number]
        outputs = [key.alias(name) for name, key in zip(self.keys, keys, strict=True)]
        outputs.append(Expression(Column(str(stage.event_time))).alias(TIME))
        for owner, name, expression, data_type in self.columns:
            own = expression if owner == number else Expression(Literal(pa.scalar(None, data_type)))
            outputs.append(own.alias(name))
        return stage.select(*outputs, name=f"{self.step} ({number + 1})")
