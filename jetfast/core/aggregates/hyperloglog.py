"""The approximate number of different values, by HyperLogLog (Flajolet, Fusy, Gandouet, Meunier 2007).

Registers are sparse: only those that have been hit are kept, so few values are counted almost exactly and cheaply. The
estimate is the improved raw estimator of Ertl 2017, which needs no tables to correct its bias. The hash is Spark's
Murmur3 twice, with seeds that do not depend on each other; so equal values count once however they are written (-0.0,
NaN).
"""

import math

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from jetfast.core.aggregates.entries import Ints, pack, take, unpack, valid_rows
from jetfast.core.batch_aggregate import BatchAggregate, Groups
from jetfast.kernels.grouping import order_by_group
from jetfast.kernels.partitioning import hash_columns

RANK_BITS = 6


class ApproxCountDistinct(BatchAggregate):
    """About how many different values there are; nulls do not count. State: a list of register << 6 | rank.

    Parameters
    ----------
    error : wanted relative standard deviation, in [0.002, 0.26]; 2^p registers, p in [4, 18], so that 1.04 / sqrt(2^p)
    is
        at most that
    """

    skips_nulls = True

    def __init__(self, error: float) -> None:
        self.precision = max(4, math.ceil(2 * math.log2(1.04 / error)))

    @property
    def label(self) -> str:
        return "approx_count_distinct"

    def state_type(self, inputs: pa.Schema) -> pa.DataType:
        hash_columns([pa.array([], inputs.field(0).type)])  # TypeError: values that have no hash
        return pa.list_(pa.int32())

    def result_type(self, inputs: pa.Schema) -> pa.DataType:
        return pa.int64()

    def accumulate(self, rows: pa.RecordBatch, groups: Groups, group_count: int) -> pa.Array:
        values = rows.column(0)
        valid = valid_rows(values)
        if valid is not None:
            values, groups = take(values, valid), groups[valid]
        return highest(self.entries(values), groups, group_count)

    def combine(self, states: pa.Array, groups: Groups, group_count: int) -> pa.Array:
        entries, entry_groups = unpack(states, groups)
        return highest(entries.to_numpy(), entry_groups, group_count)

    def export(self, states: pa.Array) -> pa.Array:
        entries, groups = unpack(states, np.arange(len(states)))
        rank_count = 64 - self.precision + 2
        cells = groups * rank_count + (entries.to_numpy() & ((1 << RANK_BITS) - 1))
        counts = np.bincount(cells, minlength=len(states) * rank_count).reshape(len(states), rank_count)
        counts[:, 0] = (1 << self.precision) - counts.sum(axis=1)
        return pa.array(np.rint(estimate(counts)).astype(np.int64))

    def entries(self, values: pa.Array) -> npt.NDArray[np.int32]:
        """Register and rank of each value."""
        seed = pa.array(np.zeros(len(values), np.int32))
        low, high = (
            hashes.view(np.uint32).astype(np.uint64)
            for hashes in (hash_columns([values]), hash_columns([seed, values]))
        )
        hashes = high << np.uint64(32) | low
        registers = hashes & np.uint64((1 << self.precision) - 1)
        rest = hashes >> np.uint64(self.precision) | np.uint64(1 << (64 - self.precision))
        lowest_bit = rest & (~rest + np.uint64(1))
        ranks = np.frexp(lowest_bit.astype(np.float64))[1]  # zeros below the lowest bit, and one
        return (registers.astype(np.int32) << RANK_BITS) | ranks.astype(np.int32)


def highest(entries: npt.NDArray[np.int32], groups: Groups, group_count: int) -> pa.Array:
    """A list for each group of its registers, each with the highest rank that occurs."""
    order = order_by_group(groups, group_count, entries.astype(np.int64))
    entries, groups = entries[order], groups[order]
    registers = entries >> RANK_BITS
    last = np.ones(len(entries), np.bool_)
    last[:-1] = (registers[1:] != registers[:-1]) | (groups[1:] != groups[:-1])
    return pack(pa.array(entries[last]), groups[last], group_count)


def estimate(counts: Ints) -> npt.NDArray[np.float64]:
    """Number of different values (Ertl 2017, algorithm 6).

    counts : shape (groups, q + 2), registers by rank, 0 those that were never hit
    """
    registers = counts[0].sum() if len(counts) else 1
    z = registers * tau(1 - counts[:, -1] / registers)
    for rank in range(counts.shape[1] - 2, 0, -1):
        z = 0.5 * (z + counts[:, rank])
    z = z + registers * sigma(counts[:, 0] / registers)
    return registers * registers / (2 * math.log(2) * z)


def sigma(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """x + sum of x^(2^k) * 2^(k - 1), k >= 1; infinite for 1."""
    with np.errstate(over="ignore", invalid="ignore"):
        y, total = 1.0, x.copy()
        empty = x == 1
        x = np.where(empty, 0, x)
        while True:
            x = x * x
            more = total + x * y
            if (more == total).all():
                break
            total, y = more, 2 * y
    return np.where(empty, np.inf, total)


def tau(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """(1 - x - sum of (1 - x^(2^-k))^2 * 2^-k, k >= 1) / 3; 0 for 0 and 1."""
    y, total = 1.0, 1 - x
    edge = (x == 0) | (x == 1)
    while True:
        x, y = np.sqrt(x), y / 2
        less = total - (1 - x) ** 2 * y
        if (less == total).all():
            break
        total = less
    return np.where(edge, 0.0, total / 3)
