"""What stateless steps do to a batch: definitions bound to a schema when the graph is planned, then called per batch.

A definition (Select, WithColumns, Where, Drop, Rename) knows names only. `bind` checks it against a schema and gives a
BoundOperation, a picklable callable Batch -> Batch. Whole columns are passed on natively; only computed ones go through
Arrow, with just the columns that they read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import pyarrow as pa

from jetfast.api.expression_nodes import Column
from jetfast.api.expressions import Expression
from jetfast.api.lowering import (
    HIDDEN,
    Computation,
    ExpressionTypeError,
    LoweredExpression,
    UnknownColumnError,
    Way,
    lower,
)
from jetfast.api.naming import require_columns, require_distinct, unknown_column
from jetfast.core.batch import Batch
from jetfast.errors import JobDefinitionError, JobFailedError

OnError = Literal["fail", "null"]

FAILURES = (pa.ArrowException, OverflowError)
"""What Arrow raises when a row cannot be computed."""


class Operation(Protocol):
    """The definition of a stateless step."""

    def bind(self, schema: pa.Schema, step: str) -> BoundOperation:
        """Check against the schema of the input. Raises JobDefinitionError that names `step` and column."""

    def needed(self, schema: pa.Schema, wanted: set[str]) -> set[str]:
        """Columns of the input (`schema`) that must be there so that the columns `wanted` of the result can be."""


class BoundOperation:
    """An operation on batches of one schema. Picklable: the definition travels, and is bound again where it arrives."""

    def __init__(self, definition: Operation, input_schema: pa.Schema, step: str, schema: pa.Schema) -> None:
        self.definition = definition
        self.input_schema = input_schema
        self.step = step
        self.schema: pa.Schema = schema
        """Schema of the result."""

    def __call__(self, batch: Batch) -> Batch:
        raise NotImplementedError

    def __reduce__(self) -> tuple[Any, ...]:
        return bind_operation, (self.definition, self.input_schema, self.step)


def bind_operation(definition: Operation, schema: pa.Schema, step: str) -> BoundOperation:
    """Bind a definition; what unpickling calls."""
    return definition.bind(schema, step)


def lower_for_step(
    expression: Expression, schema: pa.Schema, step: str, column: str, on_error: OnError, purpose: str = ""
) -> LoweredExpression:
    """Bind an expression; errors name step and column (and say what it is for, by default where the name stands)."""
    try:
        return lower(expression, schema, on_error == "null")
    except UnknownColumnError as error:
        raise unknown_column(step, error.column, schema, purpose or f"in {expression}") from error
    except ExpressionTypeError as error:
        types = ", ".join(f"{name}: {schema.field(name).type}" for name in expression.node.columns(schema))
        raise JobDefinitionError(f"step {step!r}, column {column!r}: {error} ({types})") from error


def check_on_error(step: str, on_error: str) -> None:
    if on_error not in ("fail", "null"):
        raise JobDefinitionError(f'step {step!r}: on_error must be "fail" or "null", got {on_error!r}')


class Evaluator:
    """Evaluates lowered expressions over batches of one schema; a row that fails stops the job or gives null.

    All expressions at once in the quick way; if that fails, one by one in their careful or forgiving ways. Once such a
    batch was met, the quick way is not tried any more.
    """

    def __init__(
        self,
        step: str,
        names: Sequence[str],
        lowered: Sequence[LoweredExpression],
        schema: pa.Schema,
        on_error: OnError,
    ) -> None:
        self.step = step
        self.names = list(names)
        self.lowered = list(lowered)
        self.quick = Computation(
            tuple((name, expression.quick) for name, expression in zip(names, lowered, strict=True))
        )
        self.on_error = on_error
        self.has_failed = False
        read = {name for expression in lowered for name in expression.columns}
        # A literal reads nothing, but some column must carry the number of rows.
        self.read = [name for name in schema.names if name in read] or schema.names[:1]

    def evaluate(self, batch: Batch) -> pa.RecordBatch:
        """Return one column per expression, shape (rows,) each."""
        rows = batch.select(self.read).to_arrow()
        if not self.has_failed:
            try:
                return self.quick.evaluate(rows)
            except FAILURES as error:
                if self.on_error == "fail" and all(expression.careful is None for expression in self.lowered):
                    raise self.failure(rows, error) from error
                self.has_failed = True
        columns = []
        for expression in self.lowered:
            try:
                columns.append(expression.evaluate(rows, Way.CAREFUL))
            except FAILURES as error:
                if self.on_error == "fail":
                    raise self.failure(rows, error) from error
                columns.append(self.evaluate_or_null(rows, expression))
        return pa.RecordBatch.from_arrays(columns, names=self.names)

    def evaluate_or_null(self, rows: pa.RecordBatch, expression: LoweredExpression) -> pa.Array:
        """Evaluate the forgiving way; rows in which that fails too are found by halving: few cost few evaluations."""
        try:
            return expression.evaluate(rows, Way.FORGIVING)
        except FAILURES:
            if rows.num_rows == 1:
                return pa.nulls(1, expression.data_type)
        middle = rows.num_rows // 2
        return pa.concat_arrays(
            [
                self.evaluate_or_null(rows.slice(0, middle), expression),
                self.evaluate_or_null(rows.slice(middle), expression),
            ]
        )

    def failure(self, rows: pa.RecordBatch, error: BaseException) -> JobFailedError:
        """Find column and first row that fail."""

        def fails(expression: LoweredExpression, start: int, row_count: int) -> bool:
            try:
                expression.evaluate(rows.slice(start, row_count), Way.CAREFUL)
            except FAILURES:
                return True
            return False

        for name, expression in zip(self.names, self.lowered, strict=True):
            if not fails(expression, 0, rows.num_rows):
                continue
            start, row_count = 0, rows.num_rows
            while row_count > 1:
                first_half = row_count // 2
                if fails(expression, start, first_half):
                    row_count = first_half
                else:
                    start, row_count = start + first_half, row_count - first_half
            values = rows.select(list(expression.columns)).slice(start, 1).to_pylist()[0]
            return JobFailedError(
                f"step {self.step!r}, column {name.lstrip(HIDDEN)!r}, row {start} of a batch of "
                f"{rows.num_rows}: {error}; "
                f'the row has {values}. on_error="null" gives null for such rows instead'
            )
        return JobFailedError(f"step {self.step!r}: {error}")


class Projection(BoundOperation):
    """The result's columns are columns of the input, or computed."""

    def __init__(
        self,
        definition: Operation,
        input_schema: pa.Schema,
        step: str,
        outputs: Sequence[tuple[str, str | Expression]],
        on_error: OnError,
    ) -> None:
        """`outputs`: result name, and the input column's name or an expression."""
        fields = []
        self.sources: list[str] = []
        self.names = [name for name, _ in outputs]
        computed: dict[str, LoweredExpression] = {}
        for name, output in outputs:
            if isinstance(output, str):
                fields.append(input_schema.field(output).with_name(name))
                self.sources.append(output)
                continue
            lowered = lower_for_step(output, input_schema, step, name, on_error)
            hidden = HIDDEN + name  # no user's column is named so: the batch holds both until the end
            computed[hidden] = lowered
            fields.append(pa.field(name, lowered.data_type))
            self.sources.append(hidden)
        super().__init__(definition, input_schema, step, pa.schema(fields))
        self.evaluator = (
            Evaluator(step, list(computed), list(computed.values()), input_schema, on_error) if computed else None
        )

    def __call__(self, batch: Batch) -> Batch:
        if self.evaluator is not None:
            batch = batch.with_columns(Batch.from_arrow(self.evaluator.evaluate(batch)))
        return batch.select(self.sources, self.names)


class Filter(BoundOperation):
    """Keeps the rows where a condition is true."""

    def __init__(self, definition: Where, input_schema: pa.Schema, step: str) -> None:
        super().__init__(definition, input_schema, step, input_schema)
        lowered = lower_for_step(
            definition.condition, input_schema, step, str(definition.condition), definition.on_error
        )
        if not pa.types.is_boolean(lowered.data_type):
            raise JobDefinitionError(
                f"step {step!r}: where needs a condition (bool), but {definition.condition} is {lowered.data_type}"
            )
        self.evaluator = Evaluator(step, [str(definition.condition)], [lowered], input_schema, definition.on_error)

    def __call__(self, batch: Batch) -> Batch:
        kept = self.evaluator.evaluate(batch).column(0)
        kept_count = kept.true_count
        if kept_count == len(batch):
            return batch
        if kept_count == 0:
            return batch.slice(0, 0)
        if kept.null_count:
            kept = kept.fill_null(False)
        rows = np.flatnonzero(kept.to_numpy(zero_copy_only=False)).astype(np.int32)
        return batch.take(rows)


def pure_column(expression: Expression) -> str | None:
    """Return the input column that an expression merely passes on, or None if it computes."""
    return expression.node.name if isinstance(expression.node, Column) else None


@dataclass(frozen=True)
class Select:
    """Exactly these columns. `outputs`: result name and expression."""

    outputs: tuple[tuple[str, Expression], ...]
    on_error: OnError = "fail"

    def bind(self, schema: pa.Schema, step: str) -> BoundOperation:
        require_distinct(step, [name for name, _ in self.outputs])
        outputs: list[tuple[str, str | Expression]] = []
        for name, expression in self.outputs:
            source = pure_column(expression)
            if source is not None:
                require_columns(step, [source], schema)
            outputs.append((name, expression if source is None else source))
        return Projection(self, schema, step, outputs, self.on_error)

    def needed(self, schema: pa.Schema, wanted: set[str]) -> set[str]:
        return {column for _, expression in self.outputs for column in expression.node.columns(schema)}


@dataclass(frozen=True)
class WithColumns:
    """The input's columns, with these replaced (in place) or appended."""

    outputs: tuple[tuple[str, Expression], ...]
    on_error: OnError = "fail"
    names: tuple[str, ...] = ()
    """All columns of the result: where pruning has removed a replaced column, its place is known from here only."""

    def bind(self, schema: pa.Schema, step: str) -> BoundOperation:
        require_distinct(step, [name for name, _ in self.outputs])
        replaced: dict[str, str | Expression] = {}
        for name, expression in self.outputs:
            source = pure_column(expression)
            if source is not None:
                require_columns(step, [source], schema)
            replaced[name] = expression if source is None else source
        outputs = [(name, replaced.pop(name, name)) for name in schema.names] + list(replaced.items())
        if self.names:
            outputs.sort(key=lambda output: self.names.index(output[0]))
        return Projection(self, schema, step, outputs, self.on_error)

    def needed(self, schema: pa.Schema, wanted: set[str]) -> set[str]:
        # Also what is not wanted below is computed: a row that fails must fail, whoever reads the result.
        computed = {name for name, _ in self.outputs}
        return (wanted - computed) | {c for _, expression in self.outputs for c in expression.node.columns(schema)}


@dataclass(frozen=True)
class Where:
    """The rows where `condition` is true (neither false nor null)."""

    condition: Expression
    on_error: OnError = "fail"

    def bind(self, schema: pa.Schema, step: str) -> BoundOperation:
        return Filter(self, schema, step)

    def needed(self, schema: pa.Schema, wanted: set[str]) -> set[str]:
        return wanted | self.condition.node.columns(schema)


@dataclass(frozen=True)
class Drop:
    """All columns but these; a name that pruning has removed already is passed over."""

    names: tuple[str, ...]

    def bind(self, schema: pa.Schema, step: str) -> BoundOperation:
        kept: list[tuple[str, str | Expression]] = [(name, name) for name in schema.names if name not in self.names]
        return Projection(self, schema, step, kept, "fail")

    def needed(self, schema: pa.Schema, wanted: set[str]) -> set[str]:
        return wanted


@dataclass(frozen=True)
class Rename:
    """Old name to new name; order kept."""

    names: Mapping[str, str]

    def bind(self, schema: pa.Schema, step: str) -> BoundOperation:
        outputs: list[tuple[str, str | Expression]] = [(self.names.get(name, name), name) for name in schema.names]
        require_distinct(step, [name for name, _ in outputs])
        return Projection(self, schema, step, outputs, "fail")

    def needed(self, schema: pa.Schema, wanted: set[str]) -> set[str]:
        old = {new: name for name, new in self.names.items()}
        return {old.get(name, name) for name in wanted}


@dataclass(frozen=True)
class AsNullable:
    """The same columns under a schema that differs only in which of them may hold nulls: inputs of a union agree so."""

    schema: pa.Schema

    def bind(self, schema: pa.Schema, step: str) -> BoundOperation:
        return Relabelling(self, schema, step, self.schema)

    def needed(self, schema: pa.Schema, wanted: set[str]) -> set[str]:
        return wanted


class Relabelling(BoundOperation):
    """Puts another schema on the same columns."""

    def __call__(self, batch: Batch) -> Batch:
        made = Batch.from_arrow(pa.RecordBatch.from_arrays(batch.to_arrow().columns, schema=self.schema))
        return made if batch.origin is None else made.with_origin(*batch.origin)
