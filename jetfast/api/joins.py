"""Joins of two stages: checks what a user asked for, and adds the step."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

import pyarrow as pa

from jetfast.api.expression_nodes import Column
from jetfast.api.expressions import Expression
from jetfast.api.following_steps import early_rows_with, refuse_early_rows
from jetfast.api.keys import KeyColumns, check_keys
from jetfast.api.lowering import HIDDEN
from jetfast.api.naming import named_column, require_columns, require_distinct, shorten
from jetfast.api.operations import lower_for_step, pure_column
from jetfast.api.spark_types import plain_type
from jetfast.api.stage import JoinStage, Stage
from jetfast.api.steps import (
    AsofJoin,
    EarlyRows,
    HashJoin,
    IntervalJoin,
    JoinKey,
    JoinMethod,
    JoinStep,
    Output,
    WindowJoin,
    late_schema_of,
)
from jetfast.core.items import MAIN_PORT
from jetfast.core.joins import LATE_PORTS, LEFT, RIGHT, JoinType
from jetfast.core.windows import AnyWindow, Window
from jetfast.errors import JobDefinitionError
from jetfast.types import Duration, duration_us, non_negative_duration_us

SIDES = ("left", "right")
AskedKeys = tuple[KeyColumns, KeyColumns, KeyColumns]
"""on, left_on and right_on."""
NamedKeys = list[tuple[str, Expression]]


def hash_join(left: Stage, right: Stage, keys: AskedKeys, how: str, suffix: str, name: str | None) -> Stage:
    """As `Stage.hash_join`."""
    join = JoinDefinition(left, right, keys, how, suffix, name, "hash_join")
    if join.join_type not in (JoinType.INNER, JoinType.LEFT):
        raise JobDefinitionError(
            f'step {join.step!r}: a hash join is "inner" or "left", got {how!r}: no time tells '
            f"that a row of the table will not be met any more"
        )
    refuse_early_rows(join.step, right)
    early = early_rows_with(left._early, lambda column: join.names[LEFT].get(column))
    reason = left._no_time_reason
    time = None if left.event_time is None else join.names[LEFT].get(left.event_time)
    return Stage(join.add(HashJoin(), (), time, left._output.step.time_shift_us, early, reason))


def window_join(
    left: Stage, right: Stage, window: AnyWindow, keys: AskedKeys, how: str, suffix: str, name: str | None
) -> JoinStage:
    """As `Stage.window_join`."""
    join = JoinDefinition(left, right, keys, how, suffix, name, "window_join", f", {window}")
    if not isinstance(window, Window):
        raise JobDefinitionError(
            f'step {join.step!r}: window_join needs jf.tumbling("1h") or jf.sliding("24h", "1h"), got {window!r}'
        )
    join.require_times()
    added = [pa.field(column, pa.timestamp("us")) for column in ("window_start", "window_end")]
    return JoinStage(join.add(WindowJoin(window), added, "window_end", -1))


def interval_join(
    left: Stage,
    right: Stage,
    bounds: tuple[Duration, Duration],
    keys: AskedKeys,
    how: str,
    time: str,
    suffix: str,
    name: str | None,
) -> JoinStage:
    """As `Stage.interval_join`."""
    lower_us, upper_us = duration_us(bounds[0], "lower"), duration_us(bounds[1], "upper")
    method = IntervalJoin(lower_us, upper_us)
    join = JoinDefinition(left, right, keys, how, suffix, name, "interval_join", f", {method.bounds}")
    if not isinstance(time, str) or not time:
        raise JobDefinitionError(f"step {join.step!r}: time must be the name of a column, got {time!r}")
    if lower_us > upper_us:
        raise JobDefinitionError(f"step {join.step!r}: lower={bounds[0]!r} is greater than upper={bounds[1]!r}")
    join.require_times()
    return JoinStage(join.add(method, [pa.field(time, pa.timestamp("us"))], time))


def asof_join(
    left: Stage, right: Stage, tolerance: Duration | None, keys: AskedKeys, how: str, suffix: str, name: str | None
) -> JoinStage:
    """As `Stage.asof_join`."""
    method = AsofJoin(None if tolerance is None else non_negative_duration_us(tolerance, "tolerance"))
    join = JoinDefinition(left, right, keys, how, suffix, name, "asof_join")
    if join.join_type not in (JoinType.INNER, JoinType.LEFT):
        raise JobDefinitionError(f'step {join.step!r}: an as-of join is "left" or "inner", got {how!r}')
    join.require_times()
    assert left.event_time is not None
    time = join.names[LEFT].get(left.event_time)
    return JoinStage(join.add(method, (), time, left._output.step.time_shift_us))


class JoinDefinition:
    """What all joins have in common: two stages, keys, and the columns of the result."""

    def __init__(
        self,
        left: Stage,
        right: Stage,
        keys: AskedKeys,
        how: str,
        suffix: str,
        name: str | None,
        operator: str,
        how_near: str = "",
    ) -> None:
        self.stages = left, right
        if not isinstance(right, Stage):
            raise JobDefinitionError(f"step {name or operator!r}: {operator} needs a stage to join with, got {right!r}")
        named = named_keys(self.stages, keys, name or operator)
        names = ", ".join(key for key, _ in named[LEFT])
        self.step = left.pipeline._name_for(
            name, shorten(f"{operator}({left._label}, {right._label} on {names}{how_near})", 120), stateful=True
        )
        if right.pipeline is not left.pipeline:
            raise JobDefinitionError(f"step {self.step!r}: {right.name!r} belongs to another pipeline")
        try:
            self.join_type = JoinType(how)
        except ValueError:
            ways = ", ".join(repr(way.value) for way in JoinType)
            raise JobDefinitionError(f"step {self.step!r}: how must be one of {ways}, got {how!r}") from None
        if not isinstance(suffix, str) or not suffix:
            raise JobDefinitionError(f"step {self.step!r}: suffix must be text such as '_right', got {suffix!r}")
        require_distinct(self.step, [key for key, _ in named[LEFT]])
        self.sources = [[pure_column(expression) for _, expression in side] for side in named]
        """Of either side, the column that is a key, None for one that is computed."""
        self.keys = [self.key(number, *pair) for number, pair in enumerate(zip(named[LEFT], named[RIGHT], strict=True))]
        self.key_fields = self.checked_key_fields()
        self.suffix = suffix
        self.names = self.result_names()

    def key(self, number: int, left: tuple[str, Expression], right: tuple[str, Expression]) -> JoinKey:
        """Check one pair of keys, and cast both to their common type."""
        types = [
            lower_for_step(expression, stage.schema, self.step, key, "fail", "as key").data_type
            for stage, (key, expression) in zip(self.stages, (left, right), strict=True)
        ]
        common = common_key_type(self.step, (left[0], right[0]), types)
        columns: list[str] = []
        computed: list[Expression | None] = []
        for stage, (_, expression) in zip(self.stages, (left, right), strict=True):
            source = pure_column(expression)
            if source is not None and stage.schema.field(source).type == common:
                columns.append(source)
                computed.append(None)
            else:  # dictionaries are decoded by the cast, too
                columns.append(f"{HIDDEN}key{number}")
                computed.append(expression.cast(common))
        return JoinKey(left[0], (columns[LEFT], columns[RIGHT]), (computed[LEFT], computed[RIGHT]))

    def checked_key_fields(self) -> list[pa.Field]:
        """The keys as the result has them."""
        fields = []
        for key in self.keys:
            types = []
            nullable = False
            for stage, column, expression in zip(self.stages, key.columns, key.expressions, strict=True):
                if expression is None:
                    types.append(stage.schema.field(column).type)
                    nullable |= stage.schema.field(column).nullable
                else:
                    types.append(lower_for_step(expression, stage.schema, self.step, key.name, "fail").data_type)
                    nullable = True
            fields.append(pa.field(key.name, types[LEFT], nullable=nullable))
        check_keys(self.step, pa.schema(fields))
        return fields

    def result_names(self) -> tuple[dict[str, str], dict[str, str]]:
        """What each column of either side is called in the result; keys that are columns, too."""
        taken = {key.name for key in self.keys}
        names: tuple[dict[str, str], dict[str, str]] = ({}, {})
        for ordinal, stage in enumerate(self.stages):
            for key, source in zip(self.keys, self.sources[ordinal], strict=True):
                if source is not None:
                    names[ordinal].setdefault(source, key.name)
            for column in stage.schema.names:
                if column in names[ordinal]:
                    continue
                result = column
                if column in taken:
                    result = column + self.suffix
                    if ordinal == LEFT or result in taken or result in self.stages[RIGHT].schema.names:
                        raise JobDefinitionError(
                            f"step {self.step!r}: both sides of the join have a column {column!r}; rename one, or give "
                            f"another suffix="
                        )
                names[ordinal][column] = result
                taken.add(result)
        return names

    def require_times(self) -> None:
        """Raise JobDefinitionError if a side has no event time, or early results."""
        for stage in self.stages:
            if stage.event_time is None:
                raise JobDefinitionError(
                    f"step {self.step!r}: both sides of this join need event time, but {stage._label!r} has none: "
                    f"{stage._no_time_reason}"
                )
            refuse_early_rows(self.step, stage)

    def add(
        self,
        method: JoinMethod,
        added: Sequence[pa.Field],
        time: str | None,
        time_shift_us: int = 0,
        early: EarlyRows | None = None,
        no_time_reason: str = "",
    ) -> Output:
        """Add the step."""
        key_names = {key.name for key in self.keys}
        fields = list(self.key_fields)
        columns: list[list[tuple[str, str]]] = []
        for ordinal, stage in enumerate(self.stages):
            nulls = self.join_type.keeps[1 - ordinal]
            own = [(column, self.names[ordinal][column]) for column in stage.schema.names]
            columns.append([(column, name) for column, name in own if name not in key_names])
            for column, name in columns[-1]:
                field = stage.schema.field(column).with_name(name)
                fields.append(field.with_nullable(True) if nulls else field)
        for field in added:
            if field.name in [other.name for other in fields]:
                raise JobDefinitionError(
                    f"step {self.step!r}: the join adds a column {field.name!r}, and one side has one of that name; "
                    f"rename that"
                )
        left, right = self.stages
        schemas = {MAIN_PORT: pa.schema([*fields, *added])}
        if not isinstance(method, HashJoin):
            schemas |= {port: late_schema_of(stage.schema) for port, stage in zip(LATE_PORTS, self.stages, strict=True)}
        step = JoinStep(
            left.pipeline,
            self.step,
            (left._output, right._output),
            schemas,
            time=time,
            no_time_reason=no_time_reason,
            time_shift_us=time_shift_us,
            early=early,
            method=method,
            join_type=self.join_type,
            keys=self.keys,
            columns=(columns[LEFT], columns[RIGHT]),
            added=added,
        )
        left.pipeline._add(step)
        return Output(step)


def common_key_type(step: str, keys: Sequence[str], types: Sequence[pa.DataType]) -> pa.DataType:
    """The type that keys of several stages are cast to, of the same or of another name in each."""
    plain = [plain_type(data_type) for data_type in types]
    try:
        unified = pa.unify_schemas([pa.schema([("key", each)]) for each in plain], promote_options="permissive")
    except pa.ArrowException as error:
        found = ", ".join(f"{key!r} is {data_type}" for key, data_type in zip(keys, types, strict=True))
        raise JobDefinitionError(
            f"step {step!r}: keys that shall be equal have types that nothing holds both: {found}; cast one of them, "
            f"such as col({keys[LEFT]!r}).cast(...).alias({keys[LEFT]!r})"
        ) from error
    return unified.field(0).type


def named_keys(stages: tuple[Stage, Stage], keys: AskedKeys, step: str) -> tuple[NamedKeys, NamedKeys]:
    """Keys of either side: names and expressions."""
    on, left_on, right_on = keys
    if (on is None) == (left_on is None and right_on is None):
        raise JobDefinitionError(f"step {step!r}: a join needs keys, on= or both left_on= and right_on=")
    if on is not None:
        left_on = right_on = on
    named: tuple[NamedKeys, NamedKeys] = ([], [])
    for stage, asked, found, side in zip(stages, (left_on, right_on), named, SIDES, strict=True):
        several = list(asked) if isinstance(asked, list | tuple) else [asked]
        for key in several:
            if key is None or isinstance(key, str):
                require_columns(step, [key or ""], stage.schema, f"as key of the {side} side")
                found.append((key or "", Expression(Column(key or ""))))
            else:
                found.append(named_column(key, stage.schema, step))
    if not any(named):
        raise JobDefinitionError(f"step {step!r}: a join needs at least one key, got {on!r}")
    for left, right in zip_longest(*named):
        if left is None or right is None:
            raise JobDefinitionError(
                f"step {step!r}: there are {len(named[LEFT])} keys of the left side, {len(named[RIGHT])} of the right"
            )
    return named
