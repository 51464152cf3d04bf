"""Expressions over columns: a small tree that is lowered to `pyarrow.compute.Expression` once the schema is known.

The tree exists because Arrow's expression alone does not know its types, and Spark's rules need them:

    1 / 2 = 0.5             `/` is true division; whole numbers become float64 first
    -7 % 3 = -1             the remainder bears the sign of the dividend
    x / 0                   an error of the row (or null, with on_error="null"), never infinity
    b != 0 & a / b > 1      the right side is not evaluated in rows that the left side decides: Arrow evaluates all
                            rows of every operand, so one that can fail is masked with null there (so too in `when`)
    lit(1)                  int32 if it fits, else int64: col("int32") + 1 stays int32, and overflow is an error

Where this follows Arrow and not Spark: NaN equals nothing (IEEE).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from jetfast.api.expression_nodes import Arithmetic, Bare, Case, Cast, Column, Comparison, IsIn, Literal, Logical, Unary
from jetfast.api.lowering import Node
from jetfast.api.spark_types import as_data_type, as_scalar


def as_expression(value: object) -> Expression:
    """Wrap whatever may stand in an expression: one of ours, a bare Arrow one, or a literal."""
    if isinstance(value, Expression):
        return value
    if isinstance(value, pc.Expression):
        return Expression(Bare(value))
    if isinstance(value, CaseBuilder):
        return value.otherwise(None)
    return Expression(Literal(as_scalar(value)))


class Expression:
    """An expression over the columns of a stage: made by `col`, `lit` and `when`, combined by operators.

    Operators: `+ - * / %` (checked; see the module), comparisons, `& | ~` for conditions. Other operands may be
    expressions, bare `pyarrow.compute` expressions, or literals.
    """

    __slots__ = {"_alias": "Name of the result, if given.", "node": "Root of the tree."}
    __hash__ = None  # type: ignore[assignment]  # == builds an expression

    def __init__(self, node: Node, alias: str | None = None) -> None:
        self.node: Node = node
        self._alias = alias

    def __reduce__(self) -> tuple[Any, ...]:
        return Expression, (self.node, self._alias)

    @property
    def name(self) -> str | None:
        """Name of the result: the alias, or the column's own name; None for a computed expression without alias."""
        if self._alias is not None:
            return self._alias
        return self.node.name if isinstance(self.node, Column) else None

    def alias(self, name: str) -> Expression:
        """Name the result."""
        return Expression(self.node, name)

    def cast(self, data_type: pa.DataType | str) -> Expression:
        """Convert to another type: Arrow's type or its name, or Spark's name ("bigint").

        A fraction is cut off; a value that does not fit or cannot be read is an error of its row.
        """
        return replace_node(self, Cast(self.node, as_data_type(data_type)))

    def try_cast(self, data_type: pa.DataType | str) -> Expression:
        """As `cast`, with null for a value that does not fit or cannot be read."""
        return replace_node(self, Cast(self.node, as_data_type(data_type), lenient=True))

    def is_valid(self) -> Expression:
        """True where the value is not null."""
        return Expression(Unary("is_valid", self.node, "{} is not null"))

    def is_null(self) -> Expression:
        """True where the value is null (NaN is not)."""
        return Expression(Unary("is_null", self.node, "{} is null"))

    def is_nan(self) -> Expression:
        """True where a float is NaN; null where it is null."""
        return Expression(Unary("is_nan", self.node, "isnan({})"))

    def isin(self, *values: object) -> Expression:
        """True where the value equals (`==`) one of `values` (arguments, or one list); null for null, as in SQL."""
        if len(values) == 1 and isinstance(values[0], Iterable) and not isinstance(values[0], str | bytes | Expression):
            values = tuple(values[0])
        nodes = [as_expression(value).node for value in values]
        if not all(isinstance(node, Literal) for node in nodes):
            raise TypeError(f"isin takes literals; compare {self} with columns by ==, and combine conditions with |")
        return Expression(IsIn(self.node, tuple(node.scalar for node in nodes if isinstance(node, Literal))))

    def between(self, lower: object, upper: object) -> Expression:
        """True where lower <= value <= upper."""
        return (self >= lower) & (self <= upper)

    def __add__(self, other: object) -> Expression:
        return arithmetic("+", self, other)

    def __radd__(self, other: object) -> Expression:
        return arithmetic("+", other, self)

    def __sub__(self, other: object) -> Expression:
        return arithmetic("-", self, other)

    def __rsub__(self, other: object) -> Expression:
        return arithmetic("-", other, self)

    def __mul__(self, other: object) -> Expression:
        return arithmetic("*", self, other)

    def __rmul__(self, other: object) -> Expression:
        return arithmetic("*", other, self)

    def __truediv__(self, other: object) -> Expression:
        return arithmetic("/", self, other)

    def __rtruediv__(self, other: object) -> Expression:
        return arithmetic("/", other, self)

    def __mod__(self, other: object) -> Expression:
        return arithmetic("%", self, other)

    def __rmod__(self, other: object) -> Expression:
        return arithmetic("%", other, self)

    def __neg__(self) -> Expression:
        return Expression(Unary("negate_checked", self.node, "(-{})"))

    def __pos__(self) -> Expression:
        return self

    def __abs__(self) -> Expression:
        return Expression(Unary("abs_checked", self.node, "abs({})"))

    def __invert__(self) -> Expression:
        return Expression(Unary("invert", self.node, "(not {})"))

    def __and__(self, other: object) -> Expression:
        return Expression(Logical("&", self.node, as_expression(other).node))

    def __rand__(self, other: object) -> Expression:
        return Expression(Logical("&", as_expression(other).node, self.node))

    def __or__(self, other: object) -> Expression:
        return Expression(Logical("|", self.node, as_expression(other).node))

    def __ror__(self, other: object) -> Expression:
        return Expression(Logical("|", as_expression(other).node, self.node))

    def __eq__(self, other: object) -> Expression:  # type: ignore[override]
        return comparison("==", self, other)

    def __ne__(self, other: object) -> Expression:  # type: ignore[override]
        return comparison("!=", self, other)

    def __lt__(self, other: object) -> Expression:
        return comparison("<", self, other)

    def __le__(self, other: object) -> Expression:
        return comparison("<=", self, other)

    def __gt__(self, other: object) -> Expression:
        return comparison(">", self, other)

    def __ge__(self, other: object) -> Expression:
        return comparison(">=", self, other)

    def __bool__(self) -> NoReturn:
        raise TypeError(
            f"the expression {self} has no truth of its own; combine conditions with & | ~ (in brackets) "
            f"instead of and, or, not"
        )

    def __str__(self) -> str:
        return str(self.node) if self._alias is None else f"{self.node} as {self._alias}"

    def __repr__(self) -> str:
        return f"<Expression {self}>"


def replace_node(expression: Expression, node: Node) -> Expression:
    """The same result name over another node: a cast column keeps its name, as in Spark."""
    return Expression(node, expression.name)


def arithmetic(operator: str, left: object, right: object) -> Expression:
    return Expression(Arithmetic(operator, as_expression(left).node, as_expression(right).node))


def comparison(operator: str, left: object, right: object) -> Expression:
    return Expression(Comparison(operator, as_expression(left).node, as_expression(right).node))


@dataclass(frozen=True)
class CaseBuilder:
    """What `when` gives: add branches with `when`, finish with `otherwise` (or leave it out: null)."""

    branches: tuple[tuple[Node, Node], ...]

    def when(self, condition: object, value: object) -> CaseBuilder:
        """Add a branch: `value` where `condition` is true and no branch before it was."""
        return replace(self, branches=(*self.branches, (as_expression(condition).node, as_expression(value).node)))

    def otherwise(self, value: object) -> Expression:
        """The value where no condition is true."""
        return Expression(Case(self.branches, as_expression(value).node))

    def alias(self, name: str) -> Expression:
        """Name the result; null where no condition is true."""
        return self.otherwise(None).alias(name)


def col(name: str) -> Expression:
    """A column by name."""
    if not isinstance(name, str):
        raise TypeError(f"a column is named by text, got {name!r}")
    return Expression(Column(name))


def lit(value: object) -> Expression:
    """A literal: int (int32, or int64 if it must), float, text, bytes, bool, Decimal, a date or time, None."""
    if isinstance(value, float) and math.isnan(value):
        return Expression(Literal(pa.scalar(value, pa.float64())))
    return as_expression(value)


def when(condition: object, value: object) -> CaseBuilder:
    """`value` where `condition` is true: `when(c > 0, "up").when(c < 0, "down").otherwise("level")`."""
    return CaseBuilder(()).when(condition, value)


def coalesce(*values: object) -> Expression:
    """The first value that is not null; later ones are evaluated only where all before are null."""
    if not values:
        raise TypeError("coalesce needs at least one value")
    expressions = [as_expression(value) for value in values]
    branches = tuple((expression.is_valid().node, expression.node) for expression in expressions[:-1])
    return Expression(Case(branches, expressions[-1].node)) if branches else expressions[0]
