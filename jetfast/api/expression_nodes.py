"""The nodes of which expressions are trees: each lowers itself, operands first. The rules are told in `expressions`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from jetfast.api.lowering import (
    ExpressionTypeError,
    Lowering,
    Node,
    Typed,
    UnknownColumnError,
    call,
    empty_record_batch,
    evaluate_column,
    null_of,
)
from jetfast.api.remainder import REMAINDER_FUNCTION, register_remainder
from jetfast.api.spark_types import (
    beside_decimal,
    cast_failure,
    is_number,
    mixes_float32_and_integers,
    plain_type,
    smallest_integer,
    to_float64,
    to_wider,
)


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
        left, right = beside_each_other(left, right, self)
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
        checked = call_on_two(lowering, function, (lowering.masked(left, mask), left[1]), right, self)
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


def call_on_two(lowering: Lowering, function: str, left: Typed, right: Typed, node: Arithmetic | Comparison) -> Typed:
    """Call a function, and say so if it does not take these types together."""
    try:
        return lowering.call(function, [left[0], right[0]])
    except pa.ArrowNotImplementedError as error:
        raise ExpressionTypeError(
            f"{node} does not fit the types of its columns: {left[1]} {node.operator} {right[1]}; cast one side, such "
            f'as col("x").cast("{right[1]}")'
        ) from error


def beside_each_other(left: Typed, right: Typed, node: Arithmetic | Comparison) -> tuple[Typed, Typed]:
    """Convert what stands beside a decimal, or the decimal beside a float; the others stay."""
    literals = [side.scalar if isinstance(side, Literal) else None for side in (node.left, node.right)]
    return beside_decimal(left, right[1], literals[0]), beside_decimal(right, left[1], literals[1])


@dataclass(frozen=True)
class Comparison:
    """`== != < <= > >=`; text is read as a time when the other side is one."""

    operator: str
    left: Node
    right: Node

    def lower(self, lowering: Lowering, mask: pc.Expression | None) -> Typed:
        left, right = self.left.lower(lowering, mask), self.right.lower(lowering, mask)
        left, right = self.read_text(left, right[1], self.left), self.read_text(right, left[1], self.right)
        left, right = beside_each_other(left, right, self)
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
        return call_on_two(lowering, names[self.operator], left, right, self)

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
