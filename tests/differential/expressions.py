"""Random typed expressions in three forms: jetfast's, Spark's SQL, and exact Python, which says what is right.

The rules are those of docs/pipelines.md: Spark's in ANSI mode, but NaN equals nothing, and unsigned integers, which
Spark lacks, are compared by value. An expression that Spark cannot be asked about has no SQL.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_DOWN, Decimal
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa

import jetfast as jf
from jetfast import col

NUMBER, CONDITION, TEXT, TIME = "number", "condition", "text", "time"
ARITHMETIC = ["+", "-", "*", "/", "%"]
COMPARISONS = ["==", "!=", "<", "<=", ">", ">="]
SQL_NAMES = {"==": "=", "!=": "!=", "&": "and", "|": "or"}
DIGITS = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 20}
MICROSECONDS_A_DAY = 86_400_000_000


class RowError(Exception):
    """A row of which the expression is an error."""


class NoRuleError(Exception):
    """No written rule says what an expression of these types is."""


@dataclass
class Watch:
    """What an evaluation met."""

    is_certain: bool = True
    """False: an operand failed beside a null one; whether it is evaluated is not written."""
    has_compared_nan: bool = False
    forgives: bool = False
    """Is an operation that fails null?"""


@dataclass(frozen=True)
class Tree:
    """An operator over operands. `detail` is a column's name, a literal, or values."""

    operator: str
    data_type: pa.DataType
    operands: tuple["Tree", ...] = ()
    detail: Any = None

    def columns(self) -> set[str]:
        """Names of all columns it reads."""
        own = {self.detail} if self.operator == "column" else set()
        return own.union(*(operand.columns() for operand in self.operands))

    def __repr__(self) -> str:
        if self.operator in ("column", "literal"):
            return str(self.detail) if self.operator == "column" else f"{self.detail!r}:{self.data_type}"
        what = f"{self.operator}[{self.detail}]" if self.detail is not None else self.operator
        what += f"<{self.data_type}>" if self.operator in ("cast", "try_cast") else ""
        return f"{what}({', '.join(map(repr, self.operands))})"


# -- types


def is_number(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_integer(data_type) or pa.types.is_floating(data_type) or pa.types.is_decimal(data_type))


def category(data_type: pa.DataType) -> str | None:
    """Which expressions a column may stand in, or None."""
    if pa.types.is_float16(data_type) or pa.types.is_decimal256(data_type):
        return None
    if is_number(data_type):
        return NUMBER
    if pa.types.is_boolean(data_type):
        return CONDITION
    if pa.types.is_string(data_type):
        return TEXT
    return TIME if pa.types.is_date32(data_type) or pa.types.is_timestamp(data_type) else None


def as_spark(data_type: pa.DataType) -> pa.DataType:
    """The type that Spark reads unsigned integers and narrow decimals as; other types as they are."""
    if pa.types.is_decimal32(data_type) or pa.types.is_decimal64(data_type):
        return pa.decimal128(data_type.precision, data_type.scale)
    wider = {
        pa.uint8(): pa.int16(),
        pa.uint16(): pa.int32(),
        pa.uint32(): pa.int64(),
        pa.uint64(): pa.decimal128(20, 0),
    }
    return wider.get(data_type, data_type)


def as_decimal(data_type: pa.DataType, literal: Any = None) -> tuple[int, int]:
    """Precision and scale of a number beside a decimal."""
    if pa.types.is_decimal(data_type):
        return data_type.precision, data_type.scale
    return (len(str(abs(literal))) if literal is not None else DIGITS[data_type]), 0


def decimal_type(precision: int, scale: int) -> pa.DataType:
    """Beyond 38 digits those behind the point give way, down to six."""
    if precision > 38:
        scale = max(38 - (precision - scale), min(scale, 6))
    return pa.decimal128(min(precision, 38), scale)


def arithmetic_type(operator: str, left: Tree, right: Tree) -> pa.DataType:
    """The type of a result."""
    types = as_spark(left.data_type), as_spark(right.data_type)
    if any(map(pa.types.is_floating, types)):
        return pa.float32() if types == (pa.float32(), pa.float32()) and operator != "/" else pa.float64()
    if not any(map(pa.types.is_decimal, types)):
        return pa.float64() if operator == "/" else max(types, key=lambda each: int(each.bit_width))
    (p1, s1), (p2, s2) = (
        as_decimal(data_type, each.detail if each.operator == "literal" else None)
        for data_type, each in zip(types, (left, right), strict=True)
    )
    scale = max(s1, s2)
    if operator == "*":
        return decimal_type(p1 + p2 + 1, s1 + s2)
    if operator == "/":
        scale = max(6, s1 + p2 + 1)
        return decimal_type(p1 - s1 + s2 + scale, scale)
    if operator == "%":
        return decimal_type(min(p1 - s1, p2 - s2) + scale, scale)
    return decimal_type(max(p1 - s1, p2 - s2) + scale + 1, scale)


def common_type(types: Sequence[pa.DataType]) -> pa.DataType:
    """The type of values of which one is chosen."""
    if len(set(types)) == 1:
        return types[0]
    different = {as_spark(each) for each in types}
    if len(different) == 1:
        return different.pop()
    if not all(map(is_number, different)):
        raise NoRuleError
    if any(map(pa.types.is_floating, different)):
        return pa.float64()
    if any(map(pa.types.is_decimal, different)):
        pairs = [as_decimal(each) for each in different]
        scale = max(scale for _, scale in pairs)
        precision = max(precision - own for precision, own in pairs) + scale
        if precision > 38:
            raise NoRuleError
        return pa.decimal128(precision, scale)
    return max(different, key=lambda each: int(each.bit_width))


# -- exact value


def fit(value: Any, data_type: pa.DataType) -> Any:
    """A number as a value of a type; RowError if it does not fit."""
    if value is None:
        return None
    if pa.types.is_integer(data_type):
        low = -(2 ** (data_type.bit_width - 1)) if pa.types.is_signed_integer(data_type) else 0
        if not low <= value < low + 2**data_type.bit_width:
            raise RowError
        return int(value)
    if pa.types.is_float32(data_type):
        return to_float32(value)
    if pa.types.is_floating(data_type):
        return float(value)
    return rounded(Fraction(value), data_type) if pa.types.is_decimal(data_type) else value


def rounded(value: Fraction, data_type: pa.DataType) -> Decimal:
    """Half up, away from zero."""
    unscaled = math.floor(abs(value) * 10**data_type.scale + Fraction(1, 2))
    if unscaled >= 10**data_type.precision:
        raise RowError
    return Decimal(-unscaled if value < 0 else unscaled).scaleb(-data_type.scale)


def to_float32(value: Any) -> float:
    """The nearest float32."""
    with np.errstate(all="ignore"):
        if isinstance(value, int):
            exact = np.int64(value) if value < 2**63 else np.uint64(value)
            return float(exact.astype(np.float32))
        return float(np.float32(value))


def comparable(left: Any, right: Any) -> tuple[Any, Any]:
    """Two numbers as they are compared: as doubles if one is a float, else exactly."""
    if isinstance(left, float) != isinstance(right, float):
        return float(left), float(right)
    return left, right


def compare(operator: str, left: Any, right: Any, watch: Watch) -> bool:
    """By value."""
    left, right = comparable(left, right) if not isinstance(left, str | bytes) else (left.encode(), right.encode())
    if any(isinstance(each, float) and math.isnan(each) for each in (left, right)):
        watch.has_compared_nan = True
    tests: dict[str, Callable[[], bool]] = {
        "==": lambda: left == right,
        "!=": lambda: left != right,
        "<": lambda: left < right,
        "<=": lambda: left <= right,
        ">": lambda: left > right,
        ">=": lambda: left >= right,
    }
    return bool(tests[operator]())


def calculate(operator: str, left: Any, right: Any, data_type: pa.DataType) -> Any:
    """One operator of arithmetic over two numbers."""
    if pa.types.is_floating(data_type):
        left, right = float(left), float(right)
        if operator in "/%" and right == 0:
            raise RowError
        with np.errstate(all="ignore"):
            one, other = np.float64(left), np.float64(right)
            made = {
                "+": lambda: one + other,
                "-": lambda: one - other,
                "*": lambda: one * other,
                "/": lambda: one / other,
                "%": lambda: np.fmod(one, other),
            }[operator]()
        return fit(float(made), data_type)
    if operator in "/%" and right == 0:
        raise RowError
    one, other = Fraction(left), Fraction(right)
    if operator == "/":
        exact = one / other
    elif operator == "%":
        exact = one - other * math.trunc(one / other)
    else:
        exact = {"+": one + other, "-": one - other, "*": one * other}[operator]
    return fit(exact if pa.types.is_decimal(data_type) else int(exact), data_type)


def evaluate(tree: Tree, row: Mapping[str, Any], watch: Watch) -> Any:
    """The value of an expression for one row. Raises RowError, unless `watch` forgives."""
    try:
        return evaluate_checked(tree, row, watch)
    except RowError:
        if watch.forgives:
            return None
        raise


def evaluate_checked(tree: Tree, row: Mapping[str, Any], watch: Watch) -> Any:
    operator = tree.operator
    if operator == "column":
        return row[tree.detail]
    if operator == "literal":
        return tree.detail
    if operator in ("&", "|"):
        decides = operator == "|"
        left = evaluate(tree.operands[0], row, watch)
        if left is decides:
            return decides
        right = evaluate(tree.operands[1], row, watch)
        if right is decides:
            return decides
        return None if left is None or right is None else not decides
    if operator == "when":
        *branches, default = tree.operands
        for condition, value in zip(branches[::2], branches[1::2], strict=True):
            if evaluate(condition, row, watch) is True:
                return fit(evaluate(value, row, watch), tree.data_type)
        return fit(evaluate(default, row, watch), tree.data_type)
    if operator == "coalesce":
        for operand in tree.operands:
            value = evaluate(operand, row, watch)
            if value is not None:
                return fit(value, tree.data_type)
        return None
    if operator == "try_cast":
        value = evaluate(tree.operands[0], row, watch)
        try:
            return None if value is None else cast(value, tree.operands[0].data_type, tree.data_type)
        except RowError:
            return None
    return evaluate_strict(tree, row, watch)


def evaluate_strict(tree: Tree, row: Mapping[str, Any], watch: Watch) -> Any:
    """Operators that are null where an operand is."""
    operator = tree.operator
    values: list[Any] = []
    failed = False
    for operand in tree.operands:
        try:
            values.append(evaluate(operand, row, watch))
        except RowError:
            failed = True
    if failed:
        watch.is_certain = watch.is_certain and not any(value is None for value in values)
        raise RowError
    if operator in ("is_null", "is_valid"):
        return (values[0] is None) == (operator == "is_null")
    if any(value is None for value in values):
        return None
    if operator in COMPARISONS:
        return compare(operator, *values, watch)
    if operator in ARITHMETIC:
        return calculate(operator, *values, tree.data_type)
    (value,) = values
    if operator == "isin":
        if any(each is not None and compare("==", value, each, watch) for each in tree.detail):
            return True
        return None if None in tree.detail else False
    if operator == "cast":
        return cast(value, tree.operands[0].data_type, tree.data_type)
    functions: dict[str, Callable[[], Any]] = {
        "not": lambda: not value,
        "neg": lambda: fit(-value, tree.data_type),
        "abs": lambda: fit(abs(value), tree.data_type),
        "is_nan": lambda: math.isnan(value),
    }
    return functions[operator]()


NUMBERS_AS_TEXT = [" 12 ", "+5", "-1.5", "1e3", "2.675", "0x1F", "yes", "Infinity", "99999999999999999999"]
FRACTION = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
WHOLE = re.compile(r"[+-]?[0-9]+")
TRUE, FALSE = {"t", "true", "y", "yes", "1"}, {"f", "false", "n", "no", "0"}


def cast(value: Any, source: pa.DataType, target: pa.DataType) -> Any:
    """As Spark in ANSI mode."""
    if source == target:
        return value
    if pa.types.is_string(source):
        return cast_text(value.strip(" \t\r\n"), target)
    if pa.types.is_string(target):
        return text_of(value, source)
    if pa.types.is_date32(source):
        return value * MICROSECONDS_A_DAY
    if pa.types.is_timestamp(source):
        return value // MICROSECONDS_A_DAY
    if pa.types.is_boolean(target):
        return value != 0
    if pa.types.is_integer(target) and isinstance(value, float):
        if not math.isfinite(value):
            raise RowError
        return fit(math.trunc(value), target)
    if pa.types.is_decimal(target) and isinstance(value, float):
        if not math.isfinite(value):
            raise RowError
        return fit(Fraction(repr(value)), target)
    if pa.types.is_integer(target):
        return fit(int(Decimal(value).to_integral_value(ROUND_DOWN)), target)
    return fit(value, target)


def cast_text(text: str, target: pa.DataType) -> Any:
    if pa.types.is_boolean(target):
        if text.lower() not in TRUE | FALSE:
            raise RowError
        return text.lower() in TRUE
    if pa.types.is_integer(target):
        if WHOLE.fullmatch(text) is None:
            raise RowError
        return fit(int(text), target)
    if pa.types.is_floating(target) and text.lower().lstrip("+-") in ("inf", "infinity", "nan"):
        return float(text)
    if FRACTION.fullmatch(text) is None:
        raise RowError
    return fit(float(text) if pa.types.is_floating(target) else Fraction(text), target)


def text_of(value: Any, source: pa.DataType) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if pa.types.is_date32(source):
        return str(np.datetime64(value, "D"))
    if isinstance(value, float):
        return java_text(value)
    return f"{value:f}" if isinstance(value, Decimal) else str(value)


def java_text(value: float) -> str:
    """A float as Java writes it, with the fewest digits that give it back: 1.0, 1.5E7, NaN."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    _, digits, exponent = Decimal(repr(abs(value))).normalize().as_tuple()
    assert isinstance(exponent, int)
    minus = "-" if math.copysign(1, value) < 0 else ""
    if value == 0:
        return f"{minus}0.0"
    if 1e-3 <= abs(value) < 1e7:
        text = f"{Decimal(repr(abs(value))):f}"
        return minus + (text if "." in text else f"{text}.0")
    written = "".join(map(str, digits))
    return f"{minus}{written[0]}.{written[1:] or '0'}E{exponent + len(digits) - 1}"


# -- other forms


def to_jetfast(tree: Tree) -> Any:
    """The expression as users write it."""
    operator = tree.operator
    if operator == "column":
        return col(tree.detail)
    if operator == "literal":
        return jf.lit(to_literal(tree))
    made = [to_jetfast(operand) for operand in tree.operands]
    if operator == "when":
        *branches, default = made
        case = jf.when(branches[0], branches[1])
        for condition, value in zip(branches[2::2], branches[3::2], strict=True):
            case = case.when(condition, value)
        return case.otherwise(default)
    if operator == "coalesce":
        return jf.coalesce(*made)
    if operator == "isin":
        return made[0].isin(*tree.detail)
    if operator in ("cast", "try_cast"):
        return getattr(made[0], operator)(tree.data_type)
    if len(made) == 1:
        functions: dict[str, Callable[[Any], Any]] = {
            "not": lambda x: ~x,
            "neg": lambda x: -x,
            "abs": abs,
            "is_null": lambda x: x.is_null(),
            "is_valid": lambda x: x.is_valid(),
            "is_nan": lambda x: x.is_nan(),
        }
        return functions[operator](made[0])
    binary: dict[str, Callable[[Any, Any], Any]] = {
        "+": lambda x, y: x + y,
        "-": lambda x, y: x - y,
        "*": lambda x, y: x * y,
        "/": lambda x, y: x / y,
        "%": lambda x, y: x % y,
        "==": lambda x, y: x == y,
        "!=": lambda x, y: x != y,
        "<": lambda x, y: x < y,
        "<=": lambda x, y: x <= y,
        ">": lambda x, y: x > y,
        ">=": lambda x, y: x >= y,
        "&": lambda x, y: x & y,
        "|": lambda x, y: x | y,
    }
    return binary[operator](*made)


def to_literal(tree: Tree) -> Any:
    """The Python value of a literal."""
    if pa.types.is_date32(tree.data_type):
        return np.datetime64(tree.detail, "D").astype(object)
    if pa.types.is_timestamp(tree.data_type):
        return pa.scalar(tree.detail, tree.data_type).as_py()
    return tree.detail


SPARK_TYPES = {
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.date32(): "date",
    pa.timestamp("us"): "timestamp_ntz",
    pa.timestamp("us", "UTC"): "timestamp",
}


def spark_type(data_type: pa.DataType) -> str | None:
    """Spark's name of a type, or None if it has none of the same values."""
    data_type = as_spark(data_type)
    if pa.types.is_decimal128(data_type):
        return f"decimal({data_type.precision},{data_type.scale})"
    return SPARK_TYPES.get(data_type)


def to_sql(tree: Tree, prefix: str) -> str | None:
    """The expression in Spark's SQL over columns whose names begin with `prefix`, or None."""
    if spark_type(tree.data_type) is None:
        return None
    operator = tree.operator
    if operator == "column":
        return f"`{prefix}{tree.detail}`"
    if operator == "literal":
        return sql_literal(tree.detail, tree.data_type)
    made = [to_sql(operand, prefix) for operand in tree.operands]
    parts = [part for part in made if part is not None]
    if len(parts) < len(made):
        return None
    if operator == "when":
        *branches, default = parts
        cases = " ".join(f"when {one} then {other}" for one, other in zip(branches[::2], branches[1::2], strict=True))
        return f"(case {cases} else {default} end)"
    if operator == "coalesce":
        return f"coalesce({', '.join(parts)})"
    if operator in ("cast", "try_cast"):
        return f"{operator}({parts[0]} as {spark_type(tree.data_type)})"
    if operator == "isin":
        values = [sql_literal(value, None) for value in tree.detail]
        return f"({parts[0]} in ({', '.join(values)}))"
    if len(parts) == 1:
        patterns = {
            "not": "(not {})",
            "neg": "(- {})",
            "abs": "abs({})",
            "is_null": "({} is null)",
            "is_valid": "({} is not null)",
            "is_nan": "isnan({})",
        }
        nan_of_null = operator == "is_nan"
        made_sql = patterns[operator].format(parts[0])
        return f"if({parts[0]} is null, null, {made_sql})" if nan_of_null else made_sql
    return f"({parts[0]} {SQL_NAMES.get(operator, operator)} {parts[1]})"


def sql_literal(value: Any, data_type: pa.DataType | None) -> str:
    if value is None:
        return "null"
    if data_type is not None and pa.types.is_date32(data_type):
        return f"date'{np.datetime64(value, 'D')}'"
    if data_type is not None and pa.types.is_timestamp(data_type):
        return f"{spark_type(data_type)}'{np.datetime64(value, 'us')}'"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value!r}D"
    if isinstance(value, Decimal):
        return f"{value:f}BD"
    if isinstance(value, int):
        return f"({value})"
    text = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{text}'"


# -- drawing


def column(name: str, data_type: pa.DataType) -> Tree:
    return Tree("column", data_type, (), name)


def literal(value: Any, data_type: pa.DataType) -> Tree:
    return Tree("literal", data_type, (), value)


def whole(value: int) -> Tree:
    """A literal as Spark types it."""
    return literal(value, pa.int32() if -(2**31) <= value < 2**31 else pa.int64())


class Drawer:
    """Draws expressions over columns of known types."""

    def __init__(self, random: Random, types: Mapping[str, pa.DataType]) -> None:
        self.random = random
        self.by_category: dict[str, list[Tree]] = {}
        for name, data_type in types.items():
            kind = category(data_type)
            if kind is not None:
                self.by_category.setdefault(kind, []).append(column(name, data_type))

    def draw(self, kind: str | None = None, depth: int = 3) -> Tree:
        """An expression of a kind."""
        kind = kind or self.random.choice([NUMBER, NUMBER, CONDITION, CONDITION, TEXT, TIME])
        methods = {NUMBER: self.number, CONDITION: self.condition, TEXT: self.text, TIME: self.time}
        for _ in range(50):
            try:
                return methods[kind](depth)
            except NoRuleError:
                continue
        return self.leaf(kind)

    def leaf(self, kind: str) -> Tree:
        """A column, or a literal."""
        columns = self.by_category.get(kind)
        if columns and self.random.random() < 0.75:
            return self.random.choice(columns)
        random = self.random
        if kind == CONDITION:
            return literal(random.random() < 0.5, pa.bool_())
        if kind == TEXT:
            return literal(random.choice(["", "a", "ab", "7", "x'y", *NUMBERS_AS_TEXT]), pa.string())
        if kind == TIME:
            if random.random() < 0.5:
                return literal(random.choice([0, 11_016, -25_567]), pa.date32())
            return literal(random.choice([0, -1, 951_782_400_000_000]), pa.timestamp("us"))
        shape = random.random()
        if shape < 0.6:
            return whole(random.choice([0, 1, 2, 3, -1, -7, 100, 2**31 - 1, 2**31, 2**53 + 1]))
        if shape < 0.85:
            return literal(random.choice([0.5, 1.0, -2.75, 1e6, 2.5, 1e20, 0.1]), pa.float64())
        text = random.choice(["0.5", "1.25", "-3.00", "100"])
        exact = Decimal(text)
        digits = max(len(exact.as_tuple().digits), -int(exact.as_tuple().exponent))
        return literal(exact, pa.decimal128(digits, -int(exact.as_tuple().exponent)))

    def number(self, depth: int) -> Tree:
        random = self.random
        if depth == 0 or random.random() < 0.2:
            return self.leaf(NUMBER)
        kind = random.random()
        if kind < 0.5:
            operator = random.choice(ARITHMETIC)
            left, right = self.draw(NUMBER, depth - 1), self.draw(NUMBER, depth - 1)
            return Tree(operator, arithmetic_type(operator, left, right), (left, right))
        if kind < 0.6:
            operand = self.draw(NUMBER, depth - 1)
            return Tree(random.choice(["neg", "abs"]), as_spark(operand.data_type), (operand,))
        if kind < 0.8:
            return self.cast_to_number(depth)
        return self.choice(NUMBER, depth)

    def cast_to_number(self, depth: int) -> Tree:
        source = self.draw(self.random.choice([NUMBER, NUMBER, CONDITION, TEXT]), depth - 1)
        wholes = [pa.int8(), pa.int16(), pa.int32(), pa.int64()]
        targets = [*wholes, pa.float64(), pa.float32()]
        if pa.types.is_string(source.data_type):
            targets = [*wholes, pa.float64()]
        if not pa.types.is_boolean(source.data_type) and not pa.types.is_float32(source.data_type):
            targets = [*targets, pa.decimal128(10, 2), pa.decimal128(20, 0), pa.decimal128(38, 6)]
        operator = "try_cast" if self.random.random() < 0.2 else "cast"
        return Tree(operator, self.random.choice(targets), (source,))

    def choice(self, kind: str, depth: int) -> Tree:
        """`when` or `coalesce` of values of a kind."""
        if self.random.random() < 0.5:
            values = [self.draw(kind, depth - 1) for _ in range(self.random.randint(2, 3))]
            return Tree("coalesce", common_type([each.data_type for each in values]), tuple(values))
        parts: list[Tree] = []
        values = []
        for _ in range(self.random.randint(1, 2)):
            values.append(self.draw(kind, depth - 1))
            parts += [self.draw(CONDITION, depth - 1), values[-1]]
        values.append(self.draw(kind, depth - 1))
        return Tree("when", common_type([each.data_type for each in values]), (*parts, values[-1]))

    def condition(self, depth: int) -> Tree:
        random = self.random
        if depth == 0:
            return self.leaf(CONDITION)
        kind = random.random()
        if kind < 0.45:
            return self.comparison(depth)
        if kind < 0.65:
            operands = self.draw(CONDITION, depth - 1), self.draw(CONDITION, depth - 1)
            return Tree(random.choice("&|"), pa.bool_(), operands)
        if kind < 0.75:
            return Tree("not", pa.bool_(), (self.draw(CONDITION, depth - 1),))
        if kind < 0.85:
            what = random.choice([NUMBER, TEXT, TIME, CONDITION])
            return Tree(random.choice(["is_null", "is_valid"]), pa.bool_(), (self.draw(what, depth - 1),))
        if kind < 0.95:
            return self.membership(depth)
        operand = self.draw(NUMBER, depth - 1)
        if not pa.types.is_floating(operand.data_type):
            raise NoRuleError
        return Tree("is_nan", pa.bool_(), (operand,))

    def comparison(self, depth: int) -> Tree:
        kind = self.random.choice([NUMBER, NUMBER, NUMBER, TEXT, TIME])
        left, right = self.draw(kind, depth - 1), self.draw(kind, depth - 1)
        if kind == TIME and left.data_type != right.data_type:
            raise NoRuleError
        return Tree(self.random.choice(COMPARISONS), pa.bool_(), (left, right))

    def membership(self, depth: int) -> Tree:
        random = self.random
        operand = self.draw(random.choice([NUMBER, TEXT]), depth - 1)
        if pa.types.is_string(operand.data_type):
            values: list[Any] = random.sample(["", "a", "b", "7", "ab"], random.randint(1, 3))
        else:
            values = random.sample([0, 1, 2, -7, 2.5, 0.1, 2**24 + 1, 2**53 + 1, 1.0], random.randint(1, 3))
        if random.random() < 0.2:
            values.append(None)
        return Tree("isin", pa.bool_(), (operand,), tuple(values))

    def text(self, depth: int) -> Tree:
        if depth == 0 or self.random.random() < 0.4:
            return self.leaf(TEXT)
        if self.random.random() < 0.5:
            return self.choice(TEXT, depth)
        operand = self.draw(self.random.choice([NUMBER, CONDITION, TIME]), depth - 1)
        if pa.types.is_float32(operand.data_type) or pa.types.is_timestamp(operand.data_type):
            raise NoRuleError
        return Tree("cast", pa.string(), (operand,))

    def time(self, depth: int) -> Tree:
        if depth == 0 or self.random.random() < 0.6:
            return self.leaf(TIME)
        operand = self.draw(TIME, depth - 1)
        if pa.types.is_date32(operand.data_type):
            return Tree("cast", pa.timestamp("us"), (operand,))
        if operand.data_type != pa.timestamp("us"):
            raise NoRuleError
        return Tree("cast", pa.date32(), (operand,))


def simpler(tree: Tree) -> Iterator[Tree]:
    """Expressions of the same type that are smaller."""
    for place, operand in enumerate(tree.operands):
        if operand.data_type == tree.data_type:
            yield operand
        for other in simpler(operand):
            yield replace(tree, operands=(*tree.operands[:place], other, *tree.operands[place + 1 :]))
