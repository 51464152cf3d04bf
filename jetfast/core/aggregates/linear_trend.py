"""The slope of the line through points (x, y) by least squares."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from jetfast.core.aggregates.entries import as_doubles, valid_rows
from jetfast.core.batch_aggregate import BatchAggregate, Groups

Floats = npt.NDArray[np.float64]
SECOND = 1e6  # microseconds
FIELDS = pa.struct(
    [
        ("count", pa.int64()),
        ("origin", pa.int64()),  # of x: whole numbers, times among them, are as exact far from 0 as near to it
        ("x", pa.float64()),  # mean, from the origin
        ("y", pa.float64()),  # mean
        ("xx", pa.float64()),  # sum of squared deviations of x
        ("xy", pa.float64()),  # sum of products of deviations
    ]
)


class LinearTrend(BatchAggregate):
    """Slope of y over x (Spark's regr_slope), over event time per second; null for fewer than two different x.

    Points where either is null do not count. State: moments about the mean, combined as Chan, Golub and LeVeque (1979)
    do, so that nothing cancels.

    Parameters
    ----------
    over_time : x is the event time, not the second column
    """

    skips_nulls = True

    def __init__(self, over_time: bool) -> None:
        self.takes_time = over_time

    @property
    def label(self) -> str:
        return "linear_trend"

    def state_type(self, inputs: pa.Schema) -> pa.DataType:
        for field in inputs:
            kinds = pa.types
            if not (kinds.is_integer(field.type) or kinds.is_floating(field.type) or kinds.is_decimal(field.type)):
                hint = "; without x it is over event time" if kinds.is_temporal(field.type) else ""
                raise TypeError(f"{self.label} needs numbers, {field.name!r} is {field.type}{hint}")
        return FIELDS

    def result_type(self, inputs: pa.Schema) -> pa.DataType:
        return pa.float64()

    def accumulate(self, rows: pa.RecordBatch, groups: Groups, group_count: int) -> pa.Array:
        y, x = rows.column(0), rows.column(1)
        valid = valid_rows(y, x)
        if valid is not None:
            indices = pa.array(valid)
            y, x, groups = y.take(indices), x.take(indices), groups[valid]
        origin = np.zeros(group_count, np.int64)
        if self.takes_time or (pa.types.is_integer(x.type) and not pa.types.is_uint64(x.type)):
            whole = x.cast(pa.int64()).to_numpy()
            origin = least(whole, groups, group_count)
            far = distance(whole, origin[groups])
        else:
            far = as_doubles(x)
        ones = np.ones(len(groups), np.int64)
        zeros = np.zeros(len(groups))
        near = as_doubles(y)
        return moments(origin, ones, far, near, zeros, zeros, groups, group_count)

    def combine(self, states: pa.Array, groups: Groups, group_count: int) -> pa.Array:
        count, own, x, y, xx, xy = (states.field(index).to_numpy(zero_copy_only=False) for index in range(6))
        some = np.flatnonzero(count > 0)
        groups = groups[some]
        origin = least(own[some], groups, group_count)
        far = x[some] + distance(own[some], origin[groups])
        return moments(origin, count[some], far, y[some], xx[some], xy[some], groups, group_count)

    def export(self, states: pa.Array) -> pa.Array:
        xx, xy = (states.field(index).to_numpy(zero_copy_only=False) for index in (4, 5))
        with np.errstate(all="ignore"):
            slopes = xy / xx * (SECOND if self.takes_time else 1.0)
        return pa.array(slopes, mask=(xx == 0) | (states.field(0).to_numpy() < 2), from_pandas=False)


def least(values: npt.NDArray[np.int64], groups: Groups, group_count: int) -> npt.NDArray[np.int64]:
    """The least value of each group, 0 without any."""
    result = np.full(group_count, np.iinfo(np.int64).max)
    np.minimum.at(result, groups, values)
    result[np.bincount(groups, minlength=group_count) == 0] = 0
    return result


def distance(values: npt.NDArray[np.int64], origins: npt.NDArray[np.int64]) -> Floats:
    """values - origins, which are not greater; right also where int64 would overflow."""
    return (values.view(np.uint64) - origins.view(np.uint64)).astype(np.float64)


def moments(
    origin: npt.NDArray[np.int64],
    counts: npt.NDArray[np.int64],
    x: Floats,
    y: Floats,
    xx: Floats,
    xy: Floats,
    groups: Groups,
    group_count: int,
) -> pa.Array:
    """Moments of each group of moments."""

    def summed(values: Any) -> Floats:
        return np.bincount(groups, values, group_count).astype(np.float64)  # of no rows it would be whole

    def mean(values: Floats) -> Floats:
        """Mean of each group, as a distance from one of its values: the mean of equal values is exactly that value."""
        near = np.zeros(group_count)
        near[groups] = values
        return near + summed(counts * (values - near[groups])) / total

    total = summed(counts)
    with np.errstate(all="ignore"):
        mean_x, mean_y = mean(x), mean(y)
        away_x, away_y = x - mean_x[groups], y - mean_y[groups]
        columns = [
            total.astype(np.int64),
            origin,
            np.where(total > 0, mean_x, 0),
            np.where(total > 0, mean_y, 0),
            summed(xx + counts * away_x * away_x),
            summed(xy + counts * away_x * away_y),
        ]
    return pa.StructArray.from_arrays([pa.array(column) for column in columns], fields=list(FIELDS))
