"""Quantiles by DDSketch (Masson, Rim, Lee 2019): counts of values in buckets whose bounds grow by a constant factor.

The sketch was chosen over t-digest (Dunning 2019): its error is bounded, and counts make it the same whatever the order
of rows, the cutting of batches and the number of workers; frames that leave a sliding window are deducted exactly. The
known libraries keep one sketch per object and take values one by one; here the sketches of all groups are made at once.

With relative error a, gamma = (1 + a) / (1 - a): bucket i > 0 holds (gamma^(i - 1 - z), gamma^(i - z)] and stands for
2 gamma^(i - z) / (gamma + 1), which is within a times the value of every value in it. z makes the bucket of the least
normal float 1, so that buckets are ordered as values are: -i for negative values, 0 for 0 and what is too small to be
normal. Nothing is collapsed: there are at most 1420 / a buckets, and as many as are needed in fact.
"""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from jetfast.core.aggregates.entries import Ints, as_doubles, unpack
from jetfast.core.aggregates.multisets import Multiset
from jetfast.core.batch_aggregate import Groups
from jetfast.kernels.grouping import order_by_group

LEAST_NORMAL = np.finfo(np.float64).tiny
GREATEST = np.finfo(np.float64).max
INFINITY = 2**30
NAN = 2**30 + 1


class Quantiles(Multiset):
    """Values at several quantiles, or at one; null without values. State: buckets with counts.

    The value at quantile q of n values is the one with rank ceil(q * n) in ascending order (the first for q = 0), NaN
    last.

    Parameters
    ----------
    quantiles : each in [0, 1]
    error : greatest relative error of what is given, in [1e-6, 0.5]; values below 2.3e-308 count as 0
    single : the result is the value at the only quantile, not a list
    """

    def __init__(self, quantiles: Sequence[float], error: float, single: bool) -> None:
        self.quantiles = tuple(quantiles)
        self.error = error
        self.single = single
        self.log_gamma = math.log1p(error) - math.log1p(-error)
        self.zero = math.ceil(math.log(LEAST_NORMAL) / self.log_gamma) - 1

    @property
    def label(self) -> str:
        return "quantile" if self.single else "quantiles"

    def item_type(self, inputs: pa.Schema) -> pa.DataType:
        data_type = inputs.field(0).type
        if not (pa.types.is_integer(data_type) or pa.types.is_floating(data_type) or pa.types.is_decimal(data_type)):
            raise TypeError(f"{self.label} needs numbers, got {data_type}")
        return pa.int32()

    def result_type(self, inputs: pa.Schema) -> pa.DataType:
        return pa.float64() if self.single else pa.list_(pa.float64())

    def items(self, values: pa.Array) -> pa.Array:
        return pa.array(self.buckets(as_doubles(values)))

    def buckets(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.int32]:
        """The bucket of each value."""
        sizes = np.abs(values)
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.ceil(np.log(sizes) / self.log_gamma) - self.zero
        logs[sizes < LEAST_NORMAL] = 0
        logs[np.isinf(sizes)] = INFINITY
        logs[np.isnan(sizes)] = NAN
        return np.where(values < 0, -logs, logs).astype(np.int32)

    def estimates(self, buckets: Ints) -> npt.NDArray[np.float64]:
        """The value that stands for each bucket."""
        sizes = np.abs(buckets)
        with np.errstate(over="ignore"):
            values = np.exp((sizes + self.zero) * self.log_gamma + math.log(2 / (1 + math.exp(self.log_gamma))))
        values = np.minimum(values, GREATEST)
        values[sizes == 0] = 0
        values[sizes == INFINITY] = np.inf
        values[sizes == NAN] = np.nan
        return np.where(buckets < 0, -values, values)

    def export(self, states: pa.Array) -> pa.Array:
        entries, groups = unpack(states, np.arange(len(states)))
        buckets = entries.field(0).to_numpy().astype(np.int64)
        order = order_by_group(groups, len(states), buckets)
        values, valid = self.values_at(buckets[order], entries.field(1).to_numpy()[order], groups, len(states))
        if self.single:
            return pa.array(values[:, 0], mask=~valid)
        offsets = np.arange(len(states) + 1, dtype=np.int32) * len(self.quantiles)
        return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values.ravel()), mask=pa.array(~valid))

    def values_at(
        self, buckets: Ints, counts: Ints, groups: Groups, group_count: int
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
        """Values, shape (groups, quantiles), and whether a group has any; buckets ascend within their group."""
        totals = np.zeros(group_count, np.int64)
        np.add.at(totals, groups, counts)
        before = np.cumsum(totals) - totals  # counts of the groups before
        behind = np.cumsum(counts)  # counts as far as each bucket
        values = np.zeros((group_count, len(self.quantiles)))
        if len(buckets) == 0:
            return values, totals > 0
        for column, quantile in enumerate(self.quantiles):
            # q * n may be off in the last digit: 0.55 * 100 is a little more than 55
            rank = np.maximum(np.ceil(np.round(quantile * totals, 9)).astype(np.int64), 1)
            place = np.searchsorted(behind, before + rank)
            values[:, column] = self.estimates(buckets[np.minimum(place, len(buckets) - 1)])
        return values, totals > 0
