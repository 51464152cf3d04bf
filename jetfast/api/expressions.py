"""Expressions over columns: a small tree that is lowered to `pyarrow.compute.Expression` once the schema is known.

The tree exists because Arrow's expression alone does not know its types, and Spark's rules need them:

    1 / 2 = 0.5             `/` is true division; whole numbers become float64 first
    -7 % 3 = -1             the remainder bears the sign of the dividend
    x / 0                   an error of the row (or null, with on_error="null"), never infinity
    b != 0 & a / b > 1      the right side is not evaluated in rows that the left side decides: Arrow evaluates all
                            rows of every operand, so one that can fail is masked with null there (so too in `when`)
    lit(1)                  int32 if it fits, else int64: col("int32") + 1 stays int32, and overflow is an error

Where this follows Arrow and not Spark: NaN equals nothing (IEEE), and a decimal divided by a decimal has Arrow's scale.
"""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, NoReturn, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from jetfast.errors import JobDefinitionError

REMAINDER_FUNCTION = "jetfast_remainder"

Typed = tuple[pc.Expression, pa.DataType]
"""A lowered expression and its type."""

HIDDEN = "\x01"
"""First character of columns that exist only inside a step; what follows is the name that users know, if any."""


class Way(Enum):
    """How a tree is lowered: see Lowering."""

    QUICK = "quick"
    CAREFUL = "careful"
    FORGIVING = "forgiving"


_SPARK_TYPE_NAMES = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
}


class UnknownColumnError(Exception):
    """An expression names a column that the schema lacks. Steps turn it into a JobDefinitionError that names them."""

    def __init__(self, column: str) -> None:
        super().__init__(column)
        self.column = column


class ExpressionTypeError(Exception):
    """An expression does not fit the types of its columns. Steps turn it into a JobDefinitionError that names them."""


def as_data_type(value: pa.DataType | str) -> pa.DataType:
    """Return an Arrow type from an Arrow type, Arrow's name of it ("int64") or Spark's ("bigint", "decimal(10,2)")."""
    if isinstance(value, pa.DataType):
        return value
    if not isinstance(value, str):
        raise TypeError(f"a type is a pyarrow type or its name, got {value!r}")
    name = value.strip().lower()
    if name in _SPARK_TYPE_NAMES:
        return _SPARK_TYPE_NAMES[name]
    if name.startswith("decimal(") and name.endswith(")"):
        precision, _, scale = name[len("decimal(") : -1].partition(",")
        return pa.decimal128(int(precision), int(scale or 0))
    try:
        return pa.type_for_alias(name)
    except ValueError as error:
        raise JobDefinitionError(
            f'no type is named {value!r}; write an Arrow type, its name ("int64", "timestamp[us]") '
            f'or Spark\'s ("bigint")'
        ) from error


def as_scalar(value: object) -> pa.Scalar:
    """Return a Python value as Spark types it: int32 if it fits, else int64; timestamps in microseconds."""
    if isinstance(value, pa.Scalar):
        return value
    if isinstance(value, bool) or value is None:
        return pa.scalar(value)
    if isinstance(value, int):
        return pa.scalar(value, pa.int32() if -(2**31) <= value < 2**31 else pa.int64())
    if isinstance(value, datetime.datetime):
        return pa.scalar(value, pa.timestamp("us", tz="UTC" if value.tzinfo is not None else None))
    if isinstance(value, datetime.timedelta):
        return pa.scalar(value, pa.duration("us"))
    if isinstance(value, float | str | bytes | decimal.Decimal | datetime.date | datetime.time):
        return pa.scalar(value)
    try:
        return pa.scalar(value.item() if hasattr(value, "item") else value)  # numpy scalars
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise TypeError(f"{value!r} ({type(value).__name__}) is neither a column expression nor a literal") from error


def as_expression(value: object) -> Expression:
    """Wrap whatever may stand in an expression: one of ours, a bare Arrow one, or a literal."""
    if isinstance(value, Expression):
        return value
    if isinstance(value, pc.Expression):
        return Expression(Bare(value))
    if isinstance(value, CaseBuilder):
        return value.otherwise(None)
    return Expression(Literal(as_scalar(value)))


@dataclass
class Lowering:
    """One lowering of one tree to Arrow's expressions, in one of three ways.

    QUICK       as written: any row that fails in any operand fails the batch
    CAREFUL     operands are masked with null where a condition before them, or a branch not taken, makes them moot
    FORGIVING   careful, and functions that can fail are lowered to ones that cannot; `guards` collects the conditions
                that are true where they would have failed. What no guard foresees is found by evaluating fewer rows

    What the latter two use more than once (conditions, masks, operands of guards) is computed once, as a hidden column:
    masks hold all conditions before them, so that written out they would double with every condition.
    """

    schema: pa.Schema
    way: Way
    guards: list[pc.Expression] = field(default_factory=list)
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

    def null_where(self, fails: pc.Expression, value: Typed, mask: pc.Expression | None) -> Typed:
        """Null instead of `value` where `fails` is true; in those rows the whole result will be null."""
        condition = self.condition(fails)
        self.guards.append(condition if mask is None else call("and", [mask, condition]))
        return call("if_else", [condition, null_of(value[1]), value[0]]), value[1]


class Node(Protocol):
    """One node of the tree."""

    def lower(self, lowering: Lowering, mask: pc.Expression | None) -> Typed:
        """Return the Arrow form. `mask` is true in the rows whose result matters; None: all rows."""

    def columns(self, schema: pa.Schema) -> set[str]:
        """Names of the columns read."""


def call(function: str, arguments: Sequence[pc.Expression], options: Any = None) -> pc.Expression:
    """Call an Arrow function by name; `pc.Expression` offers this by an underscored name only."""
    return pc.Expression._call(function, list(arguments), options)


def null_of(data_type: pa.DataType) -> pc.Expression:
    return pc.scalar(pa.scalar(None, data_type))


def plain_type(data_type: pa.DataType) -> pa.DataType:
    """The type of the same values in a layout that Arrow's functions take: dictionaries and views are not."""
    if pa.types.is_dictionary(data_type):
        return plain_type(data_type.value_type)
    if pa.types.is_string_view(data_type):
        return pa.string()
    return pa.binary() if pa.types.is_binary_view(data_type) else data_type


@dataclass(frozen=True)
class Column:
    name: str

    def lower(self, lowering: Lowering, mask: pc.Expression | None) -> Typed:
        index = lowering.schema.get_field_index(self.name)
        if index < 0:
            raise UnknownColumnError(self.name)
        data_type = lowering.schema.field(index).type
        plain = plain_type(data_type)
        column = pc.field(self.name)
        return (column, data_type) if plain == data_type else (column.cast(plain), plain)

    def columns(self, schema: pa.Schema) -> set[str]:
        return {self.name}

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Literal:
    scalar: pa.Scalar

    def lower(self, lowering: Lowering, mask: pc.Expression | None) -> Typed:
        return pc.scalar(self.scalar), self.scalar.type

    def columns(self, schema: pa.Schema) -> set[str]:
        return set()

    def __str__(self) -> str:
        value = self.scalar.as_py()
        return repr(value) if isinstance(value, str | bytes) else str(value)


@dataclass(frozen=True)
class Bare:
    """A `pyarrow.compute.Expression` of the user: Arrow's own rules hold inside it, and no masks reach into it."""

    expression: pc.Expression

    def lower(self, lowering: Lowering, mask: pc.Expression | None) -> Typed:
        missing = self.columns(lowering.schema) - set(lowering.schema.names)
        if missing:
            raise UnknownColumnError(min(missing))
        return lowering.typed(self.expression)

    def columns(self, schema: pa.Schema) -> set[str]:
        # Arrow does not list the fields of an expression: a column is read if binding fails without it.
        name = missing_field(self.expression, schema)
        if name is not None:
            return {name}
        return {
            column
            for column in schema.names
            if missing_field(self.expression, pa.schema([f for f in schema if f.name != column])) is not None
        }

    def __str__(self) -> str:
        return str(self.expression)


def missing_field(expression: pc.Expression, schema: pa.Schema) -> str | None:
    """Return the name of a column that a bare expression reads and the schema lacks, or None."""
    try:
        evaluate_column(empty_record_batch(schema), expression)
    except pa.ArrowInvalid as error:
        _, found, rest = str(error).partition("FieldRef.Name(")
        return rest.partition(")")[0] if found else None
    except pa.ArrowException:
        return None
    return None


@dataclass(frozen=True)
class Arithmetic:
    """`+ - * / %`, checked."""

    operator: str
    left: Node
    right: Node

    def lower(self, lowering: Lowering, mask: pc.Expression | None) -> Typed:
        left, right = self.left.lower(lowering, mask), self.right.lower(lowering, mask)
        left, right = beside_decimal(left, right[1], self.left), beside_decimal(right, left[1], self.right)
        if self.operator in ("/", "%"):
            for side in (left, right):
                if not is_number(side[1]) and not pa.types.is_null(side[1]):
                    raise ExpressionTypeError(f"{self} needs numbers, got {left[1]} {self.operator} {right[1]}")
        both_decimal = pa.types.is_decimal(left[1]) and pa.types.is_decimal(right[1])
        as_float = self.operator == "/" and not both_decimal
        if as_float or mixes_float32_and_integers(left[1], right[1]):
            left, right = to_float64(left), to_float64(right)
        left, right = to_wider(left, right[1]), to_wider(right, left[1])
        if self.operator == "/":
            return lowering.call("divide_checked", [lowering.masked(left, mask), self.divisor(right, lowering, mask)])
        if self.operator == "%":
            return self.lower_remainder(left, right, lowering, mask)
        function = {"+": "add_checked", "-": "subtract_checked", "*": "multiply_checked"}[self.operator]
        checked = lowering.call(function, [lowering.masked(left, mask), right[0]])
        if lowering.null_on_error and pa.types.is_signed_integer(checked[1]):
            return self.lower_overflow(left, right, checked[1], lowering, mask)
        return checked

    def divisor(self, right: Typed, lowering: Lowering, mask: pc.Expression | None) -> pc.Expression:
        """The divisor; with null_on_error null instead of zero, and its rows are remembered."""
        if not lowering.null_on_error:
            return right[0]
        right = lowering.once(right)
        return lowering.null_where(call("equal", [right[0], pc.scalar(pa.scalar(0, pa.int32()))]), right, mask)[0]

    def lower_overflow(
        self, left: Typed, right: Typed, data_type: pa.DataType, lowering: Lowering, mask: pc.Expression | None
    ) -> Typed:
        """The wrapped result, null where it is wrong (Warren, Hacker's Delight 2-13, 2012)."""
        first = lowering.once((left[0].cast(data_type), data_type))[0]
        second = lowering.once((right[0].cast(data_type), data_type))[0]
        unchecked = {"+": "add", "-": "subtract", "*": "multiply"}[self.operator]
        result = lowering.once((call(unchecked, [first, second]), data_type))
        zero, one = (pc.scalar(pa.scalar(value, data_type)) for value in (0, 1))
        if self.operator == "*":
            divisor = call("if_else", [call("equal", [first, zero]), one, first])
            # The smallest integer divided by -1 gives 0 in Arrow, which differs from `second` as it must.
            differs = call("not_equal", [call("divide", [result[0], divisor]), second])
            return lowering.null_where(call("and", [call("not_equal", [first, zero]), differs]), result, mask)
        # The sign of the result is wrong: not that of both terms (of the minuend, if the subtrahend has the other one).
        one_sign = call("bit_wise_xor", [first, result[0] if self.operator == "+" else second])
        other_sign = call("bit_wise_xor", [second if self.operator == "+" else first, result[0]])
        return lowering.null_where(call("less", [call("bit_wise_and", [one_sign, other_sign]), zero]), result, mask)

    def lower_remainder(self, left: Typed, right: Typed, lowering: Lowering, mask: pc.Expression | None) -> Typed:
        result_type = lowering.call("add", [left[0], right[0]])[1]
        if pa.types.is_decimal(result_type):
            raise ExpressionTypeError(f"{self} of decimals is not supported; cast both sides, e.g. to float64")
        dividend = lowering.once((lowering.masked(left, mask), left[1]))[0]
        divisor = self.divisor(right, lowering, mask)
        if pa.types.is_floating(result_type):
            register_remainder()
            arguments = [dividend.cast(pa.float64(), safe=False), divisor.cast(pa.float64(), safe=False)]
            return call(REMAINDER_FUNCTION, arguments).cast(result_type, safe=False), result_type
        # a - trunc(a / b) * b; the division of the smallest integer by -1 would overflow, and x % -1 equals x % 1.
        may_be_minus_one = not isinstance(self.right, Literal) or self.right.scalar.as_py() == -1
        if may_be_minus_one and pa.types.is_signed_integer(right[1]):
            minus_one = pc.scalar(pa.scalar(-1, right[1]))
            one = pc.scalar(pa.scalar(1, right[1]))
            divisor = lowering.once((divisor, right[1]))[0]
            divisor = call("if_else", [call("equal", [divisor, minus_one]), one, divisor])
        divisor = lowering.once((divisor, right[1]))[0]
        quotient = call("divide_checked", [dividend, divisor])
        return lowering.call("subtract_checked", [dividend, call("multiply_checked", [quotient, divisor])])

    def columns(self, schema: pa.Schema) -> set[str]:
        return self.left.columns(schema) | self.right.columns(schema)

    def __str__(self) -> str:
        return f"({self.left} {self.operator} {self.right})"


@dataclass(frozen=True)
class Comparison:
    """`== != < <= > >=`; text is read as a time when the other side is one."""

    operator: str
    left: Node
    right: Node

    def lower(self, lowering: Lowering, mask: pc.Expression | None) -> Typed:
        left, right = self.left.lower(lowering, mask), self.right.lower(lowering, mask)
        left, right = self.read_text(left, right[1], self.left), self.read_text(right, left[1], self.right)
        left, right = beside_decimal(left, right[1], self.left), beside_decimal(right, left[1], self.right)
        if mixes_float32_and_integers(left[1], right[1]):
            left, right = to_float64(left), to_float64(right)
        names = {
            "==": "equal",
            "!=": "not_equal",
            "<": "less",
            "<=": "less_equal",
            ">": "greater",
            ">=": "greater_equal",
        }
        return lowering.call(names[self.operator], [left[0], right[0]])

    def read_text(self, side: Typed, other_type: pa.DataType, node: Node) -> Typed:
        if not (isinstance(node, Literal) and pa.types.is_string(side[1]) and pa.types.is_temporal(other_type)):
            return side
        try:
            return pc.scalar(read_time(node.scalar, other_type)), other_type
        except pa.ArrowException as error:
            raise ExpressionTypeError(f"{node} in {self} cannot be read as {other_type}: {error}") from error

    def columns(self, schema: pa.Schema) -> set[str]:
        return self.left.columns(schema) | self.right.columns(schema)

    def __str__(self) -> str:
        return f"({self.left} {self.operator} {self.right})"


def read_time(text: pa.Scalar, data_type: pa.DataType) -> pa.Scalar:
    """Read text as a time; without an offset it is local time in the zone of the type."""
    if not pa.types.is_timestamp(data_type) or data_type.tz is None:
        return text.cast(data_type)
    try:
        return text.cast(data_type)
    except pa.ArrowInvalid:
        return pc.assume_timezone(text.cast(pa.timestamp(data_type.unit)), data_type.tz)


@dataclass(frozen=True)
class Logical:
    """`&` and `|` with Kleene's nulls; the right side matters only where the left one does not decide."""

    operator: str
    left: Node
    right: Node

    def lower(self, lowering: Lowering, mask: pc.Expression | None) -> Typed:
        left = self.left.lower(lowering, mask)
        require_boolean(left, self)
        left = lowering.once(left)
        if self.operator == "&":
            undecided = call("coalesce", [left[0], pc.scalar(True)])
        else:
            undecided = call("invert", [call("coalesce", [left[0], pc.scalar(False)])])
        right = self.right.lower(lowering, lowering.narrowed(mask, undecided))
        require_boolean(right, self)
        return lowering.call("and_kleene" if self.operator == "&" else "or_kleene", [left[0], right[0]])

    def columns(self, schema: pa.Schema) -> set[str]:
        return self.left.columns(schema) | self.right.columns(schema)

    def __str__(self) -> str:
        return f"({self.left} {self.operator} {self.right})"


def require_boolean(value: Typed, node: object) -> None:
    if not pa.types.is_boolean(value[1]) and not pa.types.is_null(value[1]):
        raise ExpressionTypeError(f"{node} needs conditions (bool), got {value[1]}")


@dataclass(frozen=True)
class Unary:
    """Functions of one argument: minus, not, is null and so on. `fallible` ones fail on overflow."""

    function: str
    argument: Node
    text: str

    def lower(self, lowering: Lowering, mask: pc.Expression | None) -> Typed:
        value = self.argument.lower(lowering, mask)
        if self.function == "invert":
            require_boolean(value, self)
        if self.function.endswith("_checked"):
            if lowering.null_on_error and pa.types.is_signed_integer(value[1]):
                value = lowering.once(value)
                smallest = pc.scalar(pa.scalar(smallest_integer(value[1]), value[1]))
                unchecked = lowering.call(self.function.removesuffix("_checked"), [value[0]])
                return lowering.null_where(call("equal", [value[0], smallest]), unchecked, mask)
            return lowering.call(self.function, [lowering.masked(value, mask)])
        return lowering.call(self.function, [value[0]])

    def columns(self, schema: pa.Schema) -> set[str]:
        return self.argument.columns(schema)

    def __str__(self) -> str:
        return self.text.format(self.argument)


@dataclass(frozen=True)
class Cast:
    """Spark's casts: a fraction is cut off, a value that does not fit is an error."""

    argument: Node
    data_type: pa.DataType

    def lower(self, lowering: Lowering, mask: pc.Expression | None) -> Typed:
        value = self.argument.lower(lowering, mask)
        source, target = value[1], self.data_type
        if source == target:
            return value
        if lowering.null_on_error:
            value = lowering.once(value)
            fails = cast_failure(value, target)
            if fails is not None:
                value = lowering.null_where(fails, value, mask)
        argument = lowering.masked(value, mask)
        if pa.types.is_floating(source) and pa.types.is_integer(target):
            return lowering.typed(call("trunc", [argument]).cast(target))
        if is_number(source) and pa.types.is_floating(target):
            return lowering.typed(argument.cast(target, safe=False))  # rounds, as 2**53 + 1 must
        if pa.types.is_temporal(source) and pa.types.is_temporal(target):
            return lowering.call("cast", [argument], pc.CastOptions(target, allow_time_truncate=True))
        return lowering.typed(argument.cast(target))

    def columns(self, schema: pa.Schema) -> set[str]:
        return self.argument.columns(schema)

    def __str__(self) -> str:
        return f"cast({self.argument} as {self.data_type})"


@dataclass(frozen=True)
class IsIn:
    """SQL's `in`: null stays null, and no match among values with a null is null."""

    argument: Node
    values: tuple[Any, ...]

    def lower(self, lowering: Lowering, mask: pc.Expression | None) -> Typed:
        value = lowering.once(self.argument.lower(lowering, mask))
        known = [v for v in self.values if v is not None]
        try:
            value_set = pa.array([v.as_py() if isinstance(v, pa.Scalar) else v for v in known], value[1])
        except (pa.ArrowException, TypeError, OverflowError) as error:
            raise ExpressionTypeError(f"the values of {self} do not fit {value[1]}: {error}") from error
        found = call("is_in", [value[0]], pc.SetLookupOptions(value_set, skip_nulls=True))
        if len(known) < len(self.values):
            return lowering.call("if_else", [found, pc.scalar(True), null_of(pa.bool_())])
        return lowering.call("if_else", [call("is_valid", [value[0]]), found, null_of(pa.bool_())])

    def columns(self, schema: pa.Schema) -> set[str]:
        return self.argument.columns(schema)

    def __str__(self) -> str:
        return f"({self.argument} in ({', '.join(map(str, self.values))}))"


@dataclass(frozen=True)
class Case:
    """`when(...).when(...).otherwise(...)`: the first branch whose condition is true; none is evaluated elsewhere."""

    branches: tuple[tuple[Node, Node], ...]
    default: Node

    def lower(self, lowering: Lowering, mask: pc.Expression | None) -> Typed:
        remaining = mask
        lowered: list[tuple[pc.Expression, Typed]] = []
        for condition, value in self.branches:
            test = condition.lower(lowering, remaining)
            require_boolean(test, condition)
            taken = lowering.condition(test[0])
            lowered.append((taken, value.lower(lowering, lowering.narrowed(remaining, taken))))
            remaining = lowering.narrowed(remaining, call("invert", [taken]))
        result = self.default.lower(lowering, remaining)
        for taken, branch in reversed(lowered):
            if pa.types.is_null(result[1]):
                result = null_of(branch[1]), branch[1]
            if mixes_float32_and_integers(branch[1], result[1]):
                branch, result = to_float64(branch), to_float64(result)
            branch, result = to_wider(branch, result[1]), to_wider(result, branch[1])
            chosen = null_of(result[1]) if pa.types.is_null(branch[1]) else branch[0]
            try:
                result = lowering.call("if_else", [taken, chosen, result[0]])
            except (pa.ArrowNotImplementedError, pa.ArrowInvalid, pa.ArrowTypeError) as error:
                raise ExpressionTypeError(
                    f"the branches of {self} have types {branch[1]} and {result[1]}; cast them"
                ) from error
        return result

    def columns(self, schema: pa.Schema) -> set[str]:
        found = self.default.columns(schema)
        for condition, value in self.branches:
            found |= condition.columns(schema) | value.columns(schema)
        return found

    def __str__(self) -> str:
        branches = " ".join(f"when {condition} then {value}" for condition, value in self.branches)
        return f"(case {branches} else {self.default})"


def is_number(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_integer(data_type) or pa.types.is_floating(data_type) or pa.types.is_decimal(data_type))


def mixes_float32_and_integers(left: pa.DataType, right: pa.DataType) -> bool:
    """float32 cannot hold every integer: Spark computes such a pair in double."""
    return any(pa.types.is_float32(one) and pa.types.is_integer(other) for one, other in ((left, right), (right, left)))


_DECIMAL_DIGITS = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 20}


def beside_decimal(side: Typed, other_type: pa.DataType, node: Node) -> Typed:
    """Convert one side as Spark does when the other is a decimal, or the decimal when the other is a float.

    Whole numbers become decimals with room for all their values, literals with just their own digits.
    """
    if pa.types.is_decimal(side[1]) and pa.types.is_floating(other_type):
        return to_float64(side)
    if not (pa.types.is_decimal(other_type) and pa.types.is_signed_integer(side[1])):
        return side
    if isinstance(node, Literal) and node.scalar.is_valid:
        data_type = pa.decimal128(len(str(abs(node.scalar.as_py()))), 0)
        return pc.scalar(pa.scalar(decimal.Decimal(node.scalar.as_py()), data_type)), data_type
    data_type = pa.decimal128(_DECIMAL_DIGITS[side[1]], 0)
    return side[0].cast(data_type), data_type


def smallest_integer(data_type: pa.DataType) -> int:
    return -(1 << (int(data_type.bit_width) - 1))


_TEXT_PATTERNS = (
    (pa.types.is_integer, r"^[+-]?([0-9]+|0[xX][0-9a-fA-F]+)$"),
    (pa.types.is_floating, r"^[+-]?([0-9.]+([eE][+-]?[0-9]+)?|(?i:inf|infinity|nan))$"),
    (pa.types.is_boolean, r"^(?i:true|false|0|1)$"),
    (pa.types.is_date, r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"),
    (pa.types.is_timestamp, r"^[0-9]{4}-[0-9]{2}-[0-9]{2}"),
)
"""Text that matches none of these can be no such value; text that does match may still fail."""


def cast_failure(value: Typed, target: pa.DataType) -> pc.Expression | None:
    """Return a condition true in rows that surely cannot be cast, or None if nothing is known beforehand."""
    expression, source = value
    if pa.types.is_signed_integer(target) and (pa.types.is_signed_integer(source) or pa.types.is_floating(source)):
        if pa.types.is_integer(source) and source.bit_width <= target.bit_width:
            return None
        low = smallest_integer(target)
        if pa.types.is_integer(source):
            bounds = [pc.scalar(pa.scalar(bound, source)) for bound in (low, -low - 1)]
            fits = call(
                "and", [call("greater_equal", [expression, bounds[0]]), call("less_equal", [expression, bounds[1]])]
            )
        else:  # -low is a power of two, so it is exact as a float; NaN fits nowhere
            whole = call("trunc", [expression.cast(pa.float64())])
            bounds = [pc.scalar(float(bound)) for bound in (low, -low)]
            fits = call("and", [call("greater_equal", [whole, bounds[0]]), call("less", [whole, bounds[1]])])
        return call("invert", [fits])
    if pa.types.is_string(source) or pa.types.is_large_string(source):
        for matches, pattern in _TEXT_PATTERNS:
            if matches(target):
                return call("invert", [call("match_substring_regex", [expression], pc.MatchSubstringOptions(pattern))])
    return None


def to_wider(value: Typed, other_type: pa.DataType) -> Typed:
    """Widen a number to the type beside it. Arrow would narrow a literal to the column's type instead."""
    both_integers = pa.types.is_signed_integer(value[1]) and pa.types.is_signed_integer(other_type)
    both_floats = pa.types.is_floating(value[1]) and pa.types.is_floating(other_type)
    if (both_integers or both_floats) and value[1].bit_width < other_type.bit_width:
        return value[0].cast(other_type), other_type
    if pa.types.is_integer(value[1]) and pa.types.is_float64(other_type):
        return to_float64(value)
    return value


def to_float64(value: Typed) -> Typed:
    if pa.types.is_float64(value[1]):
        return value
    return value[0].cast(pa.float64(), safe=False), pa.float64()


def register_remainder() -> None:
    """Make the exact remainder of floats known to Arrow, which has none; once per process."""
    if REMAINDER_FUNCTION in pc.list_functions():
        return
    import numpy as np

    def remainder(context: object, dividend: Any, divisor: Any) -> Any:
        dividends = np.asarray(
            dividend.to_numpy(zero_copy_only=False) if isinstance(dividend, pa.Array) else dividend.as_py(), float
        )
        divisors = np.asarray(
            divisor.to_numpy(zero_copy_only=False) if isinstance(divisor, pa.Array) else divisor.as_py(), float
        )
        valid = np.broadcast_to(
            validity(dividend) & validity(divisor), np.broadcast_shapes(dividends.shape, divisors.shape)
        )
        if np.any(valid & (divisors == 0)):
            raise pa.ArrowInvalid("divide by zero")
        with np.errstate(invalid="ignore"):
            results = np.fmod(dividends, divisors)
        if results.ndim == 0:
            return pa.scalar(float(results) if valid else None, pa.float64())
        return pa.array(results, pa.float64(), mask=~valid)

    def validity(value: Any) -> Any:
        return (
            value.is_valid().to_numpy(zero_copy_only=False)
            if isinstance(value, pa.Array)
            else np.asarray(value.is_valid)
        )

    document = {
        "summary": "remainder with the sign of the dividend",
        "description": "C's fmod; a divisor of 0 is an error",
    }
    types = {"dividend": pa.float64(), "divisor": pa.float64()}
    try:
        pc.register_scalar_function(remainder, REMAINDER_FUNCTION, document, types, pa.float64())
    except KeyError:
        return  # another thread was faster


def empty_record_batch(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], f.type) for f in schema], schema=schema)


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
            for guard in lowering.guards:
                result = call("if_else", [guard, null_of(data_type), result])
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
        """True where the value is among `values` (arguments, or one list); null for null, as in SQL."""
        if len(values) == 1 and isinstance(values[0], Iterable) and not isinstance(values[0], str | bytes):
            values = tuple(values[0])
        return Expression(IsIn(self.node, values))

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
