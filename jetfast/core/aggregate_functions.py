"""Aggregate functions as the user names them."""

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from jetfast.core.aggregate import Aggregate, AggregateKind
from jetfast.core.aggregates.by_time import FirstByTime, LastByTime
from jetfast.core.aggregates.collected import CollectList, Concat
from jetfast.core.aggregates.group_functions import GroupFunctions
from jetfast.core.aggregates.hyperloglog import ApproxCountDistinct
from jetfast.core.aggregates.linear_trend import LinearTrend
from jetfast.core.aggregates.multisets import CollectSet, CountDistinct
from jetfast.core.aggregates.quantiles import Quantiles
from jetfast.core.aggregates.top_n import TopRows, TopValues
from jetfast.errors import JobDefinitionError


def count(column: Any = None) -> Aggregate:
    """Count rows, or with a column its values that are not null (Spark's count(*) and count(x))."""
    return Aggregate(AggregateKind.COUNT) if column is None else Aggregate(AggregateKind.COUNT_VALUES, (column,))


def sum(column: Any) -> Aggregate:
    """Sum: int64 of integers, decimal(p + 10, s) of decimals, else float64. One that does not fit is an error."""
    return Aggregate(AggregateKind.SUM, (column,))


def mean(column: Any) -> Aggregate:
    """Mean of values as float64 (decimal(p + 4, s + 4) for decimals, as Spark)."""
    return Aggregate(AggregateKind.MEAN, (column,))


avg = mean


def min(column: Any) -> Aggregate:
    """Smallest value; text and bytes go by their bytes."""
    return Aggregate(AggregateKind.MIN, (column,))


def max(column: Any) -> Aggregate:
    """Greatest value, see `min`; NaN counts as greater than any number, as in Spark."""
    return Aggregate(AggregateKind.MAX, (column,))


def var_samp(column: Any) -> Aggregate:
    """Sample variance (null for fewer than two values)."""
    return Aggregate(AggregateKind.VAR_SAMP, (column,))


variance = var_samp


def var_pop(column: Any) -> Aggregate:
    """Population variance."""
    return Aggregate(AggregateKind.VAR_POP, (column,))


def stddev_samp(column: Any) -> Aggregate:
    """Sample standard deviation (null for fewer than two values)."""
    return Aggregate(AggregateKind.STDDEV_SAMP, (column,))


stddev = stddev_samp


def stddev_pop(column: Any) -> Aggregate:
    """Population standard deviation."""
    return Aggregate(AggregateKind.STDDEV_POP, (column,))


def first(column: Any, *, ignore_nulls: bool = False) -> Aggregate:
    """Value of the row with the least event time (of equal times the one that came first); its type is the column's.

    It is null if that row's value is, unless nulls are ignored (as Spark's `first`, ordered by event time).
    """
    return FirstByTime(bool(ignore_nulls)).over(column)


def last(column: Any, *, ignore_nulls: bool = False) -> Aggregate:
    """Value of the row with the greatest event time (of equal times the one that came last). See `first`."""
    return LastByTime(bool(ignore_nulls)).over(column)


def top_n(column: Any, n: int, *, by: Any = None) -> Aggregate:
    """The n greatest values, greatest first, as a list: `top_n("delay", 3)`; nulls do not count, NaN is the greatest.

    With `by` it is the values of the rows with the n greatest values of another column: `top_n("flight", 3,
    by="delay")`; several columns, `top_n(["flight", "tail"], 3, by="delay")`, give a list of structs. Of rows that are
    equal there the earlier in event time comes first. An empty list if no row counts.
    """
    return ranked(column, n, by, True)


def bottom_n(column: Any, n: int, *, by: Any = None) -> Aggregate:
    """The n least values, least first, as a list. See `top_n`."""
    return ranked(column, n, by, False)


def ranked(column: Any, n: int, by: Any, greatest: bool) -> Aggregate:
    """See top_n."""
    what = "top_n" if greatest else "bottom_n"
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise JobDefinitionError(f"{what} needs a whole number n of at least 1, got {n!r}")
    columns = tuple(column) if isinstance(column, list | tuple) else (column,)
    if not columns or (by is None and len(columns) > 1):
        raise JobDefinitionError(f"{what} of {len(columns)} columns needs by=, the column that decides")
    if by is None:
        return TopValues(n, greatest).over(*columns)
    return TopRows(n, greatest).over(*columns, by)


def count_distinct(column: Any) -> Aggregate:
    """Number of different values, exactly (int64); nulls do not count. Its state holds every value."""
    return CountDistinct().over(column)


def approx_count_distinct(column: Any, error: float = 0.05) -> Aggregate:
    """Number of different values (int64), with a relative standard deviation of at most `error`.

    By HyperLogLog (Flajolet et al. 2007). `error` is in [0.002, 0.26]; the default is Spark's. Its state takes at most
    4 * 2^ceil(2 * log2(1.04 / error)) bytes for each key and window: 2 KB for 0.05.
    """
    if isinstance(error, bool) or not isinstance(error, int | float) or not 0.002 <= error <= 0.26:
        raise JobDefinitionError(f"approx_count_distinct needs an error in [0.002, 0.26], got {error!r}")
    return ApproxCountDistinct(float(error)).over(column)


def quantile(column: Any, q: float, error: float = 0.01) -> Aggregate:
    """Value at quantile q of numbers (float64), within `error` times that value; null without values.

    By DDSketch (Masson, Rim, Lee 2019). Of n values it is the one with rank ceil(q * n), the least for q = 0; NaN is
    the greatest. `error` is in [1e-6, 0.5].
    """
    return Quantiles(checked_quantiles([q]), checked_error(error), single=True).over(column)


def quantiles(column: Any, q: Sequence[float], error: float = 0.01) -> Aggregate:
    """Values at several quantiles as a list of float64, in the order of `q`. See `quantile`."""
    if isinstance(q, str) or not isinstance(q, Sequence) or not q:
        raise JobDefinitionError(f"quantiles needs a list of quantiles such as [0.5, 0.99], got {q!r}")
    return Quantiles(checked_quantiles(q), checked_error(error), single=False).over(column)


def checked_quantiles(q: Sequence[float]) -> list[float]:
    """Return them as floats; JobDefinitionError unless each is in [0, 1]."""
    for each in q:
        if isinstance(each, bool) or not isinstance(each, int | float) or not 0 <= each <= 1:
            raise JobDefinitionError(f"a quantile is in [0, 1], such as 0.99, got {each!r}")
    return [float(each) for each in q]


def checked_error(error: float) -> float:
    """Return it as a float; JobDefinitionError unless it is in [1e-6, 0.5]."""
    if isinstance(error, bool) or not isinstance(error, int | float) or not 1e-6 <= error <= 0.5:
        raise JobDefinitionError(f"the error of a quantile is in [1e-6, 0.5], got {error!r}")
    return float(error)


def linear_trend(y: Any, x: Any = None) -> Aggregate:
    """Slope of the line through the points (x, y) by least squares, as float64 (Spark's `regr_slope`).

    Without x it is over event time, per second. Points where either is null do not count; null for fewer than two
    different x.
    """
    return LinearTrend(over_time=True).over(y) if x is None else LinearTrend(over_time=False).over(y, x)


def collect_list(column: Any) -> Aggregate:
    """All values as a list, by event time (those of equal times by arrival); nulls do not count."""
    return CollectList().over(column)


def collect_set(column: Any) -> Aggregate:
    """The different values as a list, in ascending order; nulls do not count."""
    return CollectSet().over(column)


def concat(column: Any, separator: str = "") -> Aggregate:
    """All texts by event time (those of equal times by arrival), joined by a separator; nulls do not count.

    Null if there are none.
    """
    if not isinstance(separator, str):
        raise JobDefinitionError(f"concat needs a text as separator, got {separator!r}")
    return Concat(separator).over(column)


def aggregate(
    *columns: Any,
    create: Callable[[], Any],
    accumulate: Callable[[Any, pa.RecordBatch], Any],
    combine: Callable[[Any, Any], Any],
    export: Callable[[Any], Any] = lambda state: state,
    deduct: Callable[[Any, Any], Any] | None = None,
    state: pa.DataType,
    result: pa.DataType | None = None,
    takes_time: bool = False,
) -> Aggregate:
    """Your own aggregate, made of functions that are called for one key at a time.

    That costs a few microseconds for each key in a batch. An aggregate over all keys of a batch at once, which costs
    that once, is a subclass of `jf.BatchAggregate`.

    Parameters
    ----------
    columns : names or expressions; the record batches that `accumulate` gets have them, in this order
    create : () -> state, of no rows
    accumulate : (state, rows) -> state; `rows` is a pyarrow.RecordBatch of at least one row of one key
    combine : (state, state) -> state; the order of the two says nothing
    export : (state) -> result; default: the state itself
    deduct : (state, leaving) -> state; what is left of a state when rows that were combined into it leave a sliding
    window.
        Only if that is exact; without it windows are made by combining alone
    state : Arrow type of states; what functions get is what Arrow makes of it (`to_pylist`: a dict for a struct)
    result : Arrow type of the result; default: that of states
    takes_time : rows get a last column "event_time", timestamp[us]
    """
    functions = {"create": create, "accumulate": accumulate, "combine": combine, "export": export}
    for what, function in functions.items():
        if not callable(function):
            raise JobDefinitionError(f"aggregate needs a function as {what}, got {function!r}")
    if deduct is not None and not callable(deduct):
        raise JobDefinitionError(f"aggregate needs a function as deduct, got {deduct!r}")
    result = state if result is None else result
    for what, data_type in (("state", state), ("result", result)):
        if not isinstance(data_type, pa.DataType):
            raise JobDefinitionError(
                f"aggregate needs an Arrow type as {what}, such as pa.float64(), got {data_type!r}"
            )
    return GroupFunctions(create, accumulate, combine, export, deduct, state, result, takes_time).over(*columns)
