"""The nodes of which expressions are trees: each lowers itself, operands first. The rules are told in `expressions`."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from jetfast.api.casts import cast_scalar, lower_cast
from jetfast.api.exact_numbers import (
    PRECISION_MAX,
    adjusted_decimal,
    checked_decimal_arithmetic,
    decimal_arithmetic,
    result_digits,
)
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
from jetfast.api.registered_functions import float_remainder, registered
from jetfast.api.spark_types import (
    Match,
    common_number,
    common_type,
    counts_as,
    decimal_of_integer,
    decimal_of_literal,
    finer_unit,
    integer_bounds,
    is_number,
    is_text,
    literal_at,
    local_as_instant,
    plain_type,
    time_of_unit,
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
class Operand:
    """One side of an operator, lowered. Literals are converted when the pipeline is built, columns in each batch."""

    value: pc.Expression
    data_type: pa.DataType
    scalar: pa.Scalar | None

    @property
    def typed(self) -> Typed:
        return self.value, self.data_type

    def at(self, data_type: pa.DataType, lowering: Lowering, mask: pc.Expression | None) -> Operand:
        """Return the same values at the type at which both sides meet."""
        if data_type == self.data_type:
            return self
        if self.scalar is not None:
            return literal_operand(cast_scalar(self.scalar, data_type))
        if is_number(data_type):
            mask = None  # a wider number cannot fail
        return Operand(*lower_cast(lowering, self.typed, data_type, mask, lowering.null_on_error), None)


def lower_operand(node: Node, lowering: Lowering, mask: pc.Expression | None) -> Operand:
    value, data_type = node.lower(lowering, mask)
    return Operand(value, data_type, node.scalar if isinstance(node, Literal) else None)


def literal_operand(scalar: pa.Scalar) -> Operand:
    return Operand(pc.scalar(scalar), scalar.type, scalar)


def time_literal(operand: Operand, other_type: pa.DataType, node: object) -> Operand:
    """Read a literal beside a time: text as such a time; text, dates and times without a zone as local in its zone."""
    scalar = operand.scalar
    if scalar is None or not scalar.is_valid or not pa.types.is_temporal(other_type):
        return operand
    zone = other_type.tz if pa.types.is_timestamp(other_type) else None
    try:
        if is_text(scalar.type):
            return literal_operand(read_time(scalar, other_type))
        if zone is not None and (pa.types.is_date(scalar.type) or is_naive(scalar.type)):
            return literal_operand(local_as_instant(pa.repeat(scalar, 1).cast(pa.timestamp("us")), zone)[0])
    except pa.ArrowException as error:
        raise ExpressionTypeError(f"{scalar.as_py()!r} in {node} cannot be read as {other_type}: {error}") from error
    return operand


def is_naive(data_type: pa.DataType) -> bool:
    return pa.types.is_timestamp(data_type) and data_type.tz is None


def read_time(text: pa.Scalar, data_type: pa.DataType) -> pa.Scalar:
    """Read text as a time; without an offset it is local time in the zone of the type."""
    if not pa.types.is_timestamp(data_type) or data_type.tz is None:
        return text.cast(data_type)
    try:
        return text.cast(data_type)
    except pa.ArrowInvalid:
        local = pa.repeat(text, 1).cast(pa.timestamp(data_type.unit))
        return local_as_instant(local, data_type.tz)[0]


def do_not_meet(node: object, left: pa.DataType, right: pa.DataType, operator: str) -> ExpressionTypeError:
    """The error of two types that have nothing in common."""
    zoned = next((t for t in (left, right) if pa.types.is_timestamp(t) and t.tz is not None), None)
    if zoned is not None and any(pa.types.is_date(t) or is_naive(t) for t in (left, right)):
        return ExpressionTypeError(
            f"{node} mixes a time with a zone and one without: {left} {operator} {right}; say which zone is meant, "
            f'such as col("x").cast("{zoned}")'
        )
    return ExpressionTypeError(
        f"{node} does not fit the types of its columns: {left} {operator} {right}; cast one side, such as "
        f'col("x").cast("{right}")'
    )


def is_chained(node: Node, operator: str) -> bool:
    """Is it an operand of the same operator as the one it stands beside?"""
    return isinstance(node, Arithmetic) and node.operator == operator


@dataclass(frozen=True)
class Arithmetic:
    """`+ - * / %`, checked."""

    operator: str
    left: Node
    right: Node

    def lower(self, lowering: Lowering, mask: pc.Expression | None) -> Typed:
        left, right = lower_operand(self.left, lowering, mask), lower_operand(self.right, lowering, mask)
        left, right = time_literal(left, right.data_type, self), time_literal(right, left.data_type, self)
        types = counts_as(left.data_type), counts_as(right.data_type)
        if all(map(pa.types.is_null, types)):
            return left.typed  # Arrow crashes when it adds two literals without a type
        numbers = [data_type for data_type in types if is_number(data_type)]
        if len(numbers) + sum(map(pa.types.is_null, types)) < 2 or not numbers:
            return self.lower_times(left, right, lowering, mask)
        first, second = (data_type if is_number(data_type) else numbers[0] for data_type in types)
        if any(map(pa.types.is_floating, (first, second))):
            wider = pa.float64() if self.operator == "/" else common_number(first, second, exact=False)
        elif any(map(pa.types.is_decimal, (first, second))):
            return self.lower_decimals(left, right, (first, second), lowering, mask)
        else:
            wider = pa.float64() if self.operator == "/" else common_number(first, second, exact=False)
        left, right = left.at(wider, lowering, mask), right.at(wider, lowering, mask)
        if self.operator == "/":
            divisor = self.divisor(right.typed, lowering)
            return call("divide_checked", [lowering.masked(left.typed, mask), divisor]), wider
        if self.operator == "%":
            return self.lower_remainder(left.typed, right.typed, lowering, mask)
        if lowering.null_on_error and pa.types.is_integer(wider):
            return self.lower_overflow(left.typed, right.typed, wider, lowering)
        function = {"+": "add_checked", "-": "subtract_checked", "*": "multiply_checked"}[self.operator]
        return call(function, self.as_written(lowering.masked(left.typed, mask), right.value, lowering)), wider

    def as_written(self, left: pc.Expression, right: pc.Expression, lowering: Lowering) -> list[pc.Expression]:
        """Keep Arrow from regrouping a chain of `+` or `*`: it flattens one and moves its literals to the front.

        (x + 1e20) + -1e20 is 0.0 and not x; (i + 2147483647) + 1 does not overflow for a negative i. A coalesce of one
        argument stops that. (a + b) + c keeps its order anyway.
        """
        if self.operator in "+*":
            if is_chained(self.left, self.operator) and not self.right.columns(lowering.schema):
                left = call("coalesce", [left])
            if is_chained(self.right, self.operator):
                right = call("coalesce", [right])
        return [left, right]

    def lower_times(self, left: Operand, right: Operand, lowering: Lowering, mask: pc.Expression | None) -> Typed:
        """What is no number: timestamps, dates and durations."""
        if self.operator in "/%":
            raise ExpressionTypeError(f"{self} needs numbers, got {left.data_type} {self.operator} {right.data_type}")
        function = {"+": "add_checked", "-": "subtract_checked", "*": "multiply_checked"}[self.operator]
        left, right = self.null_as_time(left, right.data_type), self.null_as_time(right, left.data_type)
        left, right = at_one_unit(left, right, lowering, mask)
        try:
            return lowering.fallible(function, left.typed, right.typed, mask)
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
            raise do_not_meet(self, left.data_type, right.data_type, self.operator) from error

    def null_as_time(self, operand: Operand, other_type: pa.DataType) -> Operand:
        """Give a null its type: a duration where it is added to a time, else the type beside it."""
        unit = unit_of(other_type)
        if not pa.types.is_null(operand.data_type) or unit is None:
            return operand
        data_type = pa.duration(unit) if self.operator == "+" else other_type
        return literal_operand(pa.scalar(None, data_type))

    def lower_decimals(
        self,
        left: Operand,
        right: Operand,
        types: tuple[pa.DataType, pa.DataType],
        lowering: Lowering,
        mask: pc.Expression | None,
    ) -> Typed:
        """Decimals, and integers beside them: precision and scale of the result are Spark's."""
        left, right = (
            self.as_decimal(operand, data_type, lowering, mask)
            for operand, data_type in zip((left, right), types, strict=True)
        )
        precision, scale = result_digits(self.operator, left.data_type, right.data_type)
        result_type = adjusted_decimal(precision, scale)
        arguments = self.as_written(lowering.masked(left.typed, mask), right.value, lowering)
        if self.operator in "+-*" and precision <= PRECISION_MAX:
            return call({"+": "add", "-": "subtract", "*": "multiply"}[self.operator], arguments), result_type
        compute = decimal_arithmetic if lowering.null_on_error else checked_decimal_arithmetic
        operator = self.operator
        name = registered(
            f"{'try_' if lowering.null_on_error else ''}decimal{operator}",
            lambda first, second: compute(operator, first, second, result_type),
            [left.data_type, right.data_type],
            result_type,
        )
        return call(name, arguments), result_type

    def as_decimal(
        self, operand: Operand, data_type: pa.DataType, lowering: Lowering, mask: pc.Expression | None
    ) -> Operand:
        if pa.types.is_integer(data_type):
            if operand.scalar is not None and operand.scalar.is_valid:
                return literal_operand(decimal_of_literal(operand.scalar))
            data_type = decimal_of_integer(data_type)
        if not pa.types.is_decimal128(data_type):
            raise ExpressionTypeError(
                f"{self} computes with {data_type}, and Spark's decimals have at most {PRECISION_MAX} digits; cast it"
            )
        return operand.at(data_type, lowering, mask)

    def divisor(self, right: Typed, lowering: Lowering) -> pc.Expression:
        """The divisor; with null_on_error null instead of zero."""
        if not lowering.null_on_error:
            return right[0]
        right = lowering.once(right)
        return lowering.null_where(call("equal", [right[0], pc.scalar(pa.scalar(0, right[1]))]), right)[0]

    def lower_overflow(self, left: Typed, right: Typed, data_type: pa.DataType, lowering: Lowering) -> Typed:
        """The wrapped result, null where it is wrong (Warren, Hacker's Delight 2-13, 2012)."""
        first, second = lowering.once(left)[0], lowering.once(right)[0]
        unchecked = {"+": "add", "-": "subtract", "*": "multiply"}[self.operator]
        result = lowering.once((call(unchecked, [first, second]), data_type))
        zero, one = (pc.scalar(pa.scalar(value, data_type)) for value in (0, 1))
        if self.operator == "*":
            divisor = call("if_else", [call("equal", [first, zero]), one, first])
            # The smallest integer divided by -1 gives 0 in Arrow, which differs from `second` as it must.
            differs = call("not_equal", [call("divide", [result[0], divisor]), second])
            return lowering.null_where(call("and", [call("not_equal", [first, zero]), differs]), result)
        # The sign of the result is wrong: not that of both terms (of the minuend, if the subtrahend has the other one).
        one_sign = call("bit_wise_xor", [first, result[0] if self.operator == "+" else second])
        other_sign = call("bit_wise_xor", [second if self.operator == "+" else first, result[0]])
        return lowering.null_where(call("less", [call("bit_wise_and", [one_sign, other_sign]), zero]), result)

    def lower_remainder(self, left: Typed, right: Typed, lowering: Lowering, mask: pc.Expression | None) -> Typed:
        data_type = left[1]
        dividend = lowering.once((lowering.masked(left, mask), data_type))[0]
        divisor = self.divisor(right, lowering)
        if pa.types.is_floating(data_type):
            double = pa.float64()
            name = registered("remainder", float_remainder, [double, double], double)
            arguments = [dividend.cast(double, safe=False), divisor.cast(double, safe=False)]
            return call(name, arguments).cast(data_type, safe=False), data_type
        # a - trunc(a / b) * b; the division of the smallest integer by -1 would overflow, and x % -1 equals x % 1.
        if not isinstance(self.right, Literal) or self.right.scalar.as_py() == -1:
            minus_one, one = (pc.scalar(pa.scalar(value, data_type)) for value in (-1, 1))
            divisor = lowering.once((divisor, data_type))[0]
            divisor = call("if_else", [call("equal", [divisor, minus_one]), one, divisor])
        divisor = lowering.once((divisor, data_type))[0]
        quotient = call("divide_checked", [dividend, divisor])
        return call("subtract_checked", [dividend, call("multiply_checked", [quotient, divisor])]), data_type

    def columns(self, schema: pa.Schema) -> set[str]:
        return self.left.columns(schema) | self.right.columns(schema)

    def __str__(self) -> str:
        return f"({self.left} {self.operator} {self.right})"


def at_one_unit(
    left: Operand, right: Operand, lowering: Lowering, mask: pc.Expression | None
) -> tuple[Operand, Operand]:
    """Bring times and durations to one unit: Arrow would cut a literal to the unit of the column."""
    left, right = at_unit_of(left, right.data_type), at_unit_of(right, left.data_type)
    first, second = unit_of(left.data_type), unit_of(right.data_type)
    if first is None or second is None:
        return left, right
    unit = finer_unit(first, second)
    if pa.types.is_date(left.data_type) and pa.types.is_date(right.data_type):
        return left, right
    return left.at(with_unit(left, unit), lowering, mask), right.at(with_unit(right, unit), lowering, mask)


def at_unit_of(literal: Operand, other_type: pa.DataType) -> Operand:
    """Return a literal at the unit of the other side, if that loses nothing."""
    unit = unit_of(other_type)
    if literal.scalar is None or unit is None or unit_of(literal.data_type) is None:
        return literal
    found = literal_at(literal.scalar, with_unit(literal, unit))
    return literal if isinstance(found, Match) else literal_operand(found)


def unit_of(data_type: pa.DataType) -> str | None:
    if pa.types.is_date(data_type):
        return "s" if pa.types.is_date32(data_type) else "ms"
    return data_type.unit if pa.types.is_temporal(data_type) and hasattr(data_type, "unit") else None


def with_unit(operand: Operand, unit: str) -> pa.DataType:
    """Return the operand's type with another unit; a date becomes a timestamp, for it has no finer one."""
    if pa.types.is_timestamp(operand.data_type):
        return pa.timestamp(unit, operand.data_type.tz)
    if pa.types.is_time(operand.data_type):
        return time_of_unit(unit)
    return pa.duration(unit) if pa.types.is_duration(operand.data_type) else pa.timestamp(unit)


_COMPARISONS = {
    "==": "equal",
    "!=": "not_equal",
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
}


@dataclass(frozen=True)
class Comparison:
    """`== != < <= > >=`; text is read as a time when the other side is one."""

    operator: str
    left: Node
    right: Node

    def lower(self, lowering: Lowering, mask: pc.Expression | None) -> Typed:
        left, right = lower_operand(self.left, lowering, mask), lower_operand(self.right, lowering, mask)
        return self.compare(left, right, lowering, mask)

    def compare(self, left: Operand, right: Operand, lowering: Lowering, mask: pc.Expression | None) -> Typed:
        if pa.types.is_null(left.data_type) and pa.types.is_null(right.data_type):
            return null_of(pa.bool_()), pa.bool_()
        left, right = time_literal(left, right.data_type, self), time_literal(right, left.data_type, self)
        left, right = at_the_columns_type(left, right.data_type), at_the_columns_type(right, left.data_type)
        if left.data_type != right.data_type or pa.types.is_float16(left.data_type):
            common = common_type(left.data_type, right.data_type, exact=True)
            common = None if common is None else counts_as(common)
            mixed_times = pa.types.is_temporal(left.data_type) and pa.types.is_temporal(right.data_type)
            if common is None and mixed_times:
                raise do_not_meet(self, left.data_type, right.data_type, self.operator)
            if common is not None:
                beyond = self.beyond_all(left, right, common)
                if beyond is not None:
                    return beyond
                left, right = left.at(common, lowering, mask), right.at(common, lowering, mask)
        try:
            return lowering.call(_COMPARISONS[self.operator], [left.value, right.value])
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
            raise do_not_meet(self, left.data_type, right.data_type, self.operator) from error

    def beyond_all(self, left: Operand, right: Operand, common: pa.DataType) -> Typed | None:
        """Return the answer if one side is a time that the other side's unit cannot express, else None."""
        for column, literal, sign in ((left, right, 1), (right, left, -1)):
            if literal.scalar is None or not pa.types.is_timestamp(common):
                continue
            try:
                cast_scalar(literal.scalar, common)
            except pa.ArrowInvalid:
                literal_is_later = literal.scalar.cast(pa.timestamp("us", common.tz)).value > 0
                order = -sign if literal_is_later else sign  # of left and right
                answer = {"==": False, "!=": True, "<": order < 0, "<=": order < 0, ">": order > 0, ">=": order > 0}
                known = call("is_valid", [column.value])
                return call("if_else", [known, pc.scalar(answer[self.operator]), null_of(pa.bool_())]), pa.bool_()
        return None

    def columns(self, schema: pa.Schema) -> set[str]:
        return self.left.columns(schema) | self.right.columns(schema)

    def __str__(self) -> str:
        return f"({self.left} {self.operator} {self.right})"


def at_the_columns_type(operand: Operand, other_type: pa.DataType) -> Operand:
    """Return a literal at the other side's type if that changes no answer: the column is compared as it is then."""
    if operand.scalar is None or not (is_number(other_type) or pa.types.is_temporal(other_type)):
        return operand
    found = literal_at(operand.scalar, other_type)
    return operand if isinstance(found, Match) else literal_operand(found)


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
            if is_number(value[1]):
                value = Operand(*value, None).at(counts_as(value[1]), lowering, mask).typed
            if lowering.null_on_error and pa.types.is_integer(value[1]):
                value = lowering.once(value)
                smallest = pc.scalar(pa.scalar(integer_bounds(value[1])[0], value[1]))
                unchecked = lowering.call(self.function.removesuffix("_checked"), [value[0]])
                return lowering.null_where(call("equal", [value[0], smallest]), unchecked)
            return lowering.call(self.function, [lowering.masked(value, mask)])
        return lowering.call(self.function, [value[0]])

    def columns(self, schema: pa.Schema) -> set[str]:
        return self.argument.columns(schema)

    def __str__(self) -> str:
        return self.text.format(self.argument)


@dataclass(frozen=True)
class Cast:
    """Spark's casts: a fraction is cut off, a value that does not fit is an error; of `try_cast` it is null."""

    argument: Node
    data_type: pa.DataType
    lenient: bool = False

    def lower(self, lowering: Lowering, mask: pc.Expression | None) -> Typed:
        value = self.argument.lower(lowering, mask)
        try:
            return lower_cast(lowering, value, self.data_type, mask, self.lenient or lowering.null_on_error)
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
            raise ExpressionTypeError(f"{self}: {value[1]} cannot be cast to {self.data_type}: {error}") from error

    def columns(self, schema: pa.Schema) -> set[str]:
        return self.argument.columns(schema)

    def __str__(self) -> str:
        return f"{'try_' if self.lenient else ''}cast({self.argument} as {self.data_type})"


@dataclass(frozen=True)
class IsIn:
    """SQL's `in`: true where `==` is true for one of the values; null for null, and for no match beside a null."""

    argument: Node
    values: tuple[pa.Scalar, ...]

    def lower(self, lowering: Lowering, mask: pc.Expression | None) -> Typed:
        value = Operand(*lowering.once(self.argument.lower(lowering, mask)), None)
        known = [scalar for scalar in self.values if scalar.is_valid]
        found: pc.Expression = pc.scalar(False)
        for data_type, scalars in self.by_type(value, known).items():
            at_type = value.at(data_type, lowering, mask).value
            is_in = call("is_in", [at_type], pc.SetLookupOptions(value_set(scalars, data_type), skip_nulls=True))
            found = is_in if len(known) == len(scalars) else call("or", [found, is_in])
        if len(known) < len(self.values):
            return lowering.call("if_else", [found, pc.scalar(True), null_of(pa.bool_())])
        return lowering.call("if_else", [call("is_valid", [value.value]), found, null_of(pa.bool_())])

    def by_type(self, value: Operand, known: list[pa.Scalar]) -> dict[pa.DataType, list[pa.Scalar]]:
        """Return the values that something can equal, under the type at which `==` would compare them."""
        own_type = value.data_type if pa.types.is_integer(value.data_type) else counts_as(value.data_type)
        found: dict[pa.DataType, list[pa.Scalar]] = {}
        for scalar in known:
            if pa.types.is_null(own_type):
                continue
            literal = time_literal(literal_operand(scalar), own_type, self).scalar
            assert literal is not None
            at_type = literal_at(literal, own_type)
            if at_type is Match.NEVER:
                continue
            if isinstance(at_type, pa.Scalar):
                found.setdefault(own_type, []).append(at_type)
                continue
            common = common_type(own_type, literal.type, exact=True)
            if common is None:
                raise do_not_meet(self, own_type, literal.type, "==")
            found.setdefault(common, []).append(cast_scalar(literal, common))
        return found

    def columns(self, schema: pa.Schema) -> set[str]:
        return self.argument.columns(schema)

    def __str__(self) -> str:
        return f"({self.argument} in ({', '.join(str(scalar.as_py()) for scalar in self.values)}))"


def value_set(scalars: list[pa.Scalar], data_type: pa.DataType) -> pa.Array:
    """Return the values to look up. NaN equals nothing, and 0.0 equals -0.0, which Arrow's tables tell apart."""
    values = pa.concat_arrays([pa.repeat(scalar, 1) for scalar in scalars])
    if not pa.types.is_floating(data_type):
        return values
    values = values.filter(pc.invert(pc.is_nan(values)))
    return pa.concat_arrays([values, pc.negate(values.filter(pc.equal(values, pa.scalar(0.0, data_type))))])


@dataclass(frozen=True)
class Case:
    """`when(...).when(...).otherwise(...)`: the first branch whose condition is true; none is evaluated elsewhere."""

    branches: tuple[tuple[Node, Node], ...]
    default: Node

    def lower(self, lowering: Lowering, mask: pc.Expression | None) -> Typed:
        remaining = mask
        conditions: list[pc.Expression] = []
        values: list[tuple[Operand, pc.Expression | None]] = []
        for condition, value in self.branches:
            test = condition.lower(lowering, remaining)
            require_boolean(test, condition)
            conditions.append(lowering.condition(test[0]))
            taken = lowering.narrowed(remaining, conditions[-1])
            values.append((lower_operand(value, lowering, taken), taken))
            remaining = lowering.narrowed(remaining, call("invert", [conditions[-1]]))
        values.append((lower_operand(self.default, lowering, remaining), remaining))
        data_type = self.common_type([operand for operand, _ in values])
        try:
            *branches, default = (
                time_literal(operand, data_type, self).at(data_type, lowering, taken).value for operand, taken in values
            )
            for condition_true, branch in zip(reversed(conditions), reversed(branches), strict=True):
                default = call("if_else", [condition_true, branch, default])
            return lowering.typed(default)
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise self.different(values[0][0].data_type, data_type) from error

    def common_type(self, operands: list[Operand]) -> pa.DataType:
        """Return the type of the result. Columns decide first: a literal without a zone takes the zone beside it."""
        found = pa.null()
        for operand in sorted(operands, key=lambda operand: operand.scalar is not None):
            operand = time_literal(operand, found, self) if not is_text_literal(operand) else operand
            common = common_type(found, operand.data_type, exact=False)
            if common is None:
                raise self.different(found, operand.data_type)
            found = common
        return found

    def different(self, one: pa.DataType, other: pa.DataType) -> ExpressionTypeError:
        return ExpressionTypeError(f"the branches of {self} have types {one} and {other}; cast them")

    def columns(self, schema: pa.Schema) -> set[str]:
        found = self.default.columns(schema)
        for condition, value in self.branches:
            found |= condition.columns(schema) | value.columns(schema)
        return found

    def __str__(self) -> str:
        branches = " ".join(f"when {condition} then {value}" for condition, value in self.branches)
        return f"(case {branches} else {self.default})"


def is_text_literal(operand: Operand) -> bool:
    return operand.scalar is not None and is_text(operand.data_type)
