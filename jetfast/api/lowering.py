"""Lowers a tree of nodes to `pyarrow.compute.Expression` for a schema, in one of three ways, and evaluates that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from jetfast.api.registered_functions import null_where_it_fails, registered

if TYPE_CHECKING:
    from jetfast.api.expressions import Expression


Typed = tuple[pc.Expression, pa.DataType]
"""A lowered expression and its type."""

HIDDEN = "\x01"
"""First character of columns that exist only inside a step; what follows is the name that users know, if any."""


class Way(Enum):
    """How a tree is lowered: see Lowering."""

    QUICK = "quick"
    CAREFUL = "careful"
    FORGIVING = "forgiving"


class UnknownColumnError(Exception):
    """An expression names a column that the schema lacks. Steps turn it into a JobDefinitionError that names them."""

    def __init__(self, column: str) -> None:
        super().__init__(column)
        self.column = column


class ExpressionTypeError(Exception):
    """An expression does not fit the types of its columns. Steps turn it into a JobDefinitionError that names them."""


class Node(Protocol):
    """One node of the tree."""

    def lower(self, lowering: Lowering, mask: pc.Expression | None) -> Typed:
        """Return the Arrow form. `mask` is true in the rows whose result matters; None: all rows."""

    def columns(self, schema: pa.Schema) -> set[str]:
        """Names of the columns read."""


@dataclass
class Lowering:
    """One lowering of one tree to Arrow's expressions, in one of three ways.

    QUICK       as written: any row that fails in any operand fails the batch
    CAREFUL     operands are masked with null where a condition before them, or a branch not taken, makes them moot
    FORGIVING   careful, and each function that can fail gives null in the rows in which it would, as Spark's try_add,
                try_divide and try_cast do; what reads that null sees a null like any other

    What the latter two use more than once (conditions, masks, operands) is computed once, as a hidden column: masks
    hold all conditions before them, so that written out they would double with every condition.
    """

    schema: pa.Schema
    way: Way
    hidden: list[tuple[str, pc.Expression]] = field(default_factory=list)
    """Hidden columns in the order in which they are computed: each may read those before it."""
    has_masks: bool = False

    @property
    def null_on_error(self) -> bool:
        return self.way is Way.FORGIVING

    def typed(self, expression: pc.Expression) -> Typed:
        """Find the type by evaluating no rows at all."""
        return expression, evaluate_column(empty_record_batch(self.schema), expression).type

    def call(self, function: str, arguments: Sequence[pc.Expression], options: Any = None) -> Typed:
        return self.typed(call(function, arguments, options))

    def once(self, value: Typed) -> Typed:
        """Compute a value once, for several readers."""
        if self.way is Way.QUICK:
            return value
        name = f"{HIDDEN}{len(self.hidden)}"
        self.hidden.append((name, value[0]))
        self.schema = self.schema.append(pa.field(name, value[1]))
        return pc.field(name), value[1]

    def condition(self, condition: pc.Expression) -> pc.Expression:
        """True where a condition is true, false where it is false or null; computed once."""
        return self.once((call("coalesce", [condition, pc.scalar(False)]), pa.bool_()))[0]

    def narrowed(self, mask: pc.Expression | None, condition: pc.Expression) -> pc.Expression | None:
        """The mask of what matters only where `condition` is true (never null) and `mask` is."""
        if self.way is Way.QUICK:
            return None
        return condition if mask is None else self.once((call("and", [mask, condition]), pa.bool_()))[0]

    def masked(self, value: Typed, mask: pc.Expression | None) -> pc.Expression:
        """Null in the rows that do not matter: a checked function skips null, so it cannot fail there."""
        if mask is None:
            return value[0]
        self.has_masks = True
        return call("if_else", [mask, value[0], null_of(value[1])])

    def null_where(self, fails: pc.Expression, value: Typed) -> Typed:
        """Null instead of `value` where `fails` is true."""
        return call("if_else", [self.condition(fails), null_of(value[1]), value[0]]), value[1]

    def fallible(self, function: str, left: Typed, right: Typed, mask: pc.Expression | None) -> Typed:
        """Call a function of Arrow that fails in some rows; with `null_on_error` it gives null there."""
        arguments = [self.masked(left, mask), right[0]]
        result = self.call(function, arguments)
        if not self.null_on_error:
            return result
        evaluate = null_where_it_fails(lambda *arrays: pc.call_function(function, list(arrays)), result[1])
        return call(registered(f"try_{function}", evaluate, [left[1], right[1]], result[1]), arguments), result[1]


def call(function: str, arguments: Sequence[pc.Expression], options: Any = None) -> pc.Expression:
    """Call an Arrow function by name; `pc.Expression` offers this by an underscored name only."""
    return pc.Expression._call(function, list(arguments), options)


def null_of(data_type: pa.DataType) -> pc.Expression:
    return pc.scalar(pa.scalar(None, data_type))


def empty_record_batch(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)


@dataclass(frozen=True)
class Computation:
    """What Arrow evaluates: hidden columns one after the other, then the results, by name."""

    results: tuple[tuple[str, pc.Expression], ...]
    hidden: tuple[tuple[str, pc.Expression], ...] = ()

    def evaluate(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the results for a record batch, with Arrow's engine, on this thread. Raises pyarrow.ArrowException."""
        from pyarrow import acero

        plan = acero.Declaration("table_source", acero.TableSourceNodeOptions(pa.Table.from_batches([batch])))
        columns = [(name, pc.field(name)) for name in batch.schema.names] if self.hidden else []
        for name, expression in self.hidden:
            plan = project(plan, [*columns, (name, expression)])
            columns.append((name, pc.field(name)))
        table = project(plan, self.results).to_table(use_threads=False)
        chunks = table.to_batches()
        if len(chunks) == 1:
            return chunks[0]
        if not chunks:
            return empty_record_batch(table.schema)
        return table.combine_chunks().to_batches()[0]  # Arrow cuts its input at 32 Ki rows


def project(plan: Any, columns: Sequence[tuple[str, pc.Expression]]) -> Any:
    from pyarrow import acero

    options = acero.ProjectNodeOptions([expression for _, expression in columns], [name for name, _ in columns])
    return acero.Declaration("project", options, inputs=[plan])


def evaluate_column(batch: pa.RecordBatch, expression: pc.Expression) -> pa.Array:
    """Evaluate one lowered expression; shape (rows,)."""
    return Computation((("result", expression),)).evaluate(batch).column(0)


@dataclass(frozen=True)
class LoweredExpression:
    """An expression bound to a schema: its type, the columns it reads, and ways to evaluate it (see Lowering)."""

    data_type: pa.DataType
    columns: tuple[str, ...]
    quick: pc.Expression
    careful: Computation | None
    """None if it does not differ from `quick`. Otherwise what `quick` gives without failing is right as well."""
    forgiving: Computation | None
    """None unless it was asked for."""

    def evaluate(self, rows: pa.RecordBatch, way: Way) -> pa.Array:
        """Return the result, shape (rows,). Raises pyarrow.ArrowException if a row fails."""
        computation = {Way.QUICK: None, Way.CAREFUL: self.careful, Way.FORGIVING: self.forgiving}[way]
        if computation is None:
            return evaluate_column(rows, self.quick)
        return computation.evaluate(rows).column(0)


def lower(expression: Expression, schema: pa.Schema, null_on_error: bool = False) -> LoweredExpression:
    """Bind an expression to a schema.

    Raises UnknownColumnError, or ExpressionTypeError if the types do not fit.
    """
    node = expression.node
    computations: dict[Way, Computation] = {}
    try:
        quick, data_type = node.lower(Lowering(schema, Way.QUICK), None)
        evaluate_column(empty_record_batch(schema), quick)
        for way in (Way.CAREFUL, Way.FORGIVING) if null_on_error else (Way.CAREFUL,):
            lowering = Lowering(schema, way)
            result, _ = node.lower(lowering, None)
            if lowering.has_masks or null_on_error:
                computations[way] = Computation((("result", result),), tuple(lowering.hidden))
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise ExpressionTypeError(f"{expression} does not fit the types of its columns: {error}") from error
    found = node.columns(schema)
    return LoweredExpression(
        data_type,
        tuple(name for name in schema.names if name in found),
        quick,
        computations.get(Way.CAREFUL),
        computations.get(Way.FORGIVING),
    )
