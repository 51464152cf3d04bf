"""Aggregate functions as the user names them. What they compute lives in csrc/jetfast/accumulators.hpp."""

from dataclasses import dataclass
from enum import Enum
from typing import Any

import pyarrow as pa

from jetfast.kernels.windows import aggregate_result_type


class AggregateKind(Enum):
    """The value is the name that the kernels and Spark SQL use."""

    COUNT = "count"  # rows
    COUNT_VALUES = "count_values"  # rows whose value is not null
    SUM = "sum"
    MEAN = "mean"
    MIN = "min"
    MAX = "max"
    VAR_SAMP = "var_samp"
    VAR_POP = "var_pop"
    STDDEV_SAMP = "stddev_samp"
    STDDEV_POP = "stddev_pop"


@dataclass(frozen=True)
class Aggregate:
    """One aggregate over `column` (a name or an expression; None only for COUNT)."""

    kind: AggregateKind
    column: Any = None


def count(column: Any = None) -> Aggregate:
    """Count rows, or with a column its values that are not null (Spark's count(*) and count(x))."""
    return Aggregate(AggregateKind.COUNT if column is None else AggregateKind.COUNT_VALUES, column)


def sum(column: Any) -> Aggregate:
    """Sum: int64 of integers, decimal(p + 10, s) of decimals, else float64. One that does not fit is an error."""
    return Aggregate(AggregateKind.SUM, column)


def mean(column: Any) -> Aggregate:
    """Mean of values as float64 (decimal(p + 4, s + 4) for decimals, as Spark)."""
    return Aggregate(AggregateKind.MEAN, column)


avg = mean


def min(column: Any) -> Aggregate:
    """Smallest value."""
    return Aggregate(AggregateKind.MIN, column)


def max(column: Any) -> Aggregate:
    """Greatest value; NaN counts as greater than any number, as in Spark."""
    return Aggregate(AggregateKind.MAX, column)


def var_samp(column: Any) -> Aggregate:
    """Sample variance (null for fewer than two values)."""
    return Aggregate(AggregateKind.VAR_SAMP, column)


variance = var_samp


def var_pop(column: Any) -> Aggregate:
    """Population variance."""
    return Aggregate(AggregateKind.VAR_POP, column)


def stddev_samp(column: Any) -> Aggregate:
    """Sample standard deviation (null for fewer than two values)."""
    return Aggregate(AggregateKind.STDDEV_SAMP, column)


stddev = stddev_samp


def stddev_pop(column: Any) -> Aggregate:
    """Population standard deviation."""
    return Aggregate(AggregateKind.STDDEV_POP, column)


@dataclass(frozen=True)
class AggregateColumn:
    """An aggregate as a processor needs it: result name, kind, and the input column by name (None for COUNT)."""

    name: str
    kind: AggregateKind
    column: str | None = None


def result_type(kind: AggregateKind, value_type: pa.DataType | None) -> pa.DataType:
    """Return the Arrow type of an aggregate's result by Spark's rules; TypeError if the type cannot be aggregated so.

    `value_type` is the column's type, None only for COUNT.
    """
    return aggregate_result_type(kind.value, value_type)
