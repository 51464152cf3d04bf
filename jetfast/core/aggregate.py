"""Aggregates of a step: what a user asked for, and what a processor needs to know of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from jetfast.kernels.windows import aggregate_result_type

if TYPE_CHECKING:
    from jetfast.core.batch_aggregate import BatchAggregate


class AggregateKind(Enum):
    """Aggregates that csrc/jetfast/accumulators.hpp computes. The value is the name that kernels and Spark SQL use."""

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
    """What `agg` takes: a function of columns (names or expressions; none for COUNT)."""

    function: AggregateKind | BatchAggregate
    columns: tuple[Any, ...] = ()


@dataclass(frozen=True)
class AggregateColumn:
    """An aggregate as a processor needs it: result name, kind, and the input column by name (None for COUNT)."""

    name: str
    kind: AggregateKind
    column: str | None = None


@dataclass(frozen=True)
class BatchAggregateColumn:
    """A batch aggregate as a processor needs it: result name, function, and the input columns by name.

    `names`: what the function finds the columns under; without them, as they are named in the input.
    """

    name: str
    aggregate: BatchAggregate
    columns: tuple[str, ...] = ()
    names: tuple[str, ...] = ()


AnyAggregateColumn = AggregateColumn | BatchAggregateColumn


def result_type(kind: AggregateKind, value_type: pa.DataType | None) -> pa.DataType:
    """Return the Arrow type of an aggregate's result by Spark's rules; TypeError if the type cannot be aggregated so.

    `value_type` is the column's type, None only for COUNT.
    """
    return aggregate_result_type(kind.value, value_type)
