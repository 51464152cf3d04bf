"""Running aggregates: each row with what its key has come to so far."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from jetfast.core.aggregate import AggregateColumn, AggregateKind, AnyAggregateColumn, result_type
from jetfast.core.aggregates.extremes import Extremes, needs_extremes
from jetfast.core.batch import Batch, put_beside
from jetfast.core.batch_aggregate import plain_array, plain_type
from jetfast.core.items import Output
from jetfast.core.keyed_input import KeyedInput
from jetfast.core.processor import ProcessorContext
from jetfast.errors import JobFailedError
from jetfast.kernels.keyed_state import NEVER_SEEN, number_states, run_counts, run_extremes, run_sums
from jetfast.processors.keyed_rows import Times
from jetfast.processors.keyed_state import KeyedState, Slots
from jetfast.types import MAX_TIME

Values = npt.NDArray[Any]
"""int64, float64 or objects."""
KINDS = (
    AggregateKind.COUNT,
    AggregateKind.COUNT_VALUES,
    AggregateKind.SUM,
    AggregateKind.MEAN,
    AggregateKind.MIN,
    AggregateKind.MAX,
)


def is_ranked(data_type: pa.DataType | None) -> bool:
    """Do values of a type have an order, but none that 64-bit numbers have?"""
    if data_type is None:
        return False
    wide = pa.types.is_decimal(data_type) or pa.types.is_boolean(data_type) or data_type == pa.uint64()
    return wide or needs_extremes(data_type)


class RunningColumn:
    """One aggregate: its state by slot, and its results by row.

    Raises TypeError for one that cannot be followed so.
    """

    def __init__(self, column: AnyAggregateColumn, schema: pa.Schema) -> None:
        self.name = column.name
        if isinstance(column, AggregateColumn):
            self.kind, self.argument = column.kind, column.column
        else:
            assert isinstance(column.aggregate, Extremes)
            self.kind = AggregateKind.MAX if column.aggregate.greatest else AggregateKind.MIN
            self.argument = column.columns[0]
        kind = self.kind
        if kind not in KINDS:
            raise TypeError(f"{kind.value} is not a running aggregate: there are count, sum, mean, min and max")
        value_type = None if self.argument is None else plain_type(schema.field(self.argument).type)
        self.by_rank = kind in (AggregateKind.MIN, AggregateKind.MAX) and is_ranked(value_type)
        """Are values compared by their ranks? Then they are kept as Python objects, None for none."""
        if self.by_rank:
            self.result_type: pa.DataType = value_type
            self.counts_only = False
            self.number_type: np.dtype[Any] = np.dtype(object)
            self.counts = np.zeros(0, np.int64)
            self.values: Values = np.empty(0, object)
            return
        self.result_type = result_type(kind, value_type)
        self.counts_only = kind in (AggregateKind.COUNT, AggregateKind.COUNT_VALUES)
        self.number_type = np.dtype(np.int64)
        if value_type is not None and not self.counts_only:
            whole = pa.types.is_integer(value_type) and value_type != pa.uint64()
            timed = pa.types.is_temporal(value_type) and kind in (AggregateKind.MIN, AggregateKind.MAX)
            if not (whole or timed or pa.types.is_floating(value_type)):
                raise TypeError(f"a running {kind.value} takes whole numbers, floats and times, not {value_type}")
            if pa.types.is_floating(value_type) or kind is AggregateKind.MEAN:
                self.number_type = np.dtype(np.float64)
        self.counts = np.zeros(0, np.int64)
        self.values = np.zeros(0, self.number_type)

    def grow(self, slot_count: int) -> None:
        self.counts = np.concatenate([self.counts, np.zeros(slot_count - len(self.counts), np.int64)])
        self.values = np.concatenate([self.values, np.zeros(slot_count - len(self.values), self.number_type)])

    @property
    def fields(self) -> list[pa.Field]:
        """Columns of its saved state."""
        number = pa.float64() if self.number_type == np.float64 else pa.int64()
        value = self.result_type if self.by_rank else number
        return [pa.field(f"{self.name}.count", pa.int64()), pa.field(f"{self.name}.value", value)]

    def state_of(self, slots: Slots) -> list[pa.Array]:
        values = self.values[slots]
        return [pa.array(self.counts[slots]), self.kept_values(values) if self.by_rank else pa.array(values)]

    def take_state(self, slots: Slots, counts: pa.Array, values: pa.Array) -> None:
        self.counts[slots] = counts.to_numpy()
        self.values[slots] = values.to_pylist() if self.by_rank else values.to_numpy()

    def follow(self, rows: pa.RecordBatch, groups: Slots, slots: Slots, fresh: npt.NDArray[np.bool_]) -> pa.Array:
        """Results of rows of groups, which go on with the state of their slots but where they are fresh."""
        counts, values = self.counts[slots], self.values[slots]
        counts[fresh], values[fresh] = 0, None if self.by_rank else 0
        array = valid = None
        if self.argument is not None:
            array = plain_array(rows.column(self.argument))
            if array.null_count:
                valid = pc.is_valid(array).to_numpy(zero_copy_only=False).view(np.uint8)
        met = counts.copy()
        found = run_counts(groups, valid, counts)
        result = (
            pa.array(found) if array is None or self.counts_only else self.results(array, valid, groups, met, values)
        )
        # Of several groups of one slot the last one stays.
        self.counts[slots], self.values[slots] = counts, values
        if self.counts_only or (found > 0).all():
            return result
        if self.by_rank:  # Arrow's if_else gives narrow decimals another type
            return result.take(pa.array(np.arange(len(result)), mask=found == 0))
        return pc.if_else(pa.array(found > 0), result, pa.scalar(None, result.type))

    def results(
        self, array: pa.Array, valid: npt.NDArray[np.uint8] | None, groups: Slots, counts: Values, values: Values
    ) -> pa.Array:
        """Results that count where there are values; `counts` and `values` of the groups are changed."""
        kind = self.kind
        if self.by_rank:
            return self.ranked_results(array, valid, groups, counts, values)
        numbers = self.numbers(array)
        if kind in (AggregateKind.MIN, AggregateKind.MAX):
            extremes = run_extremes(groups, numbers, valid, kind is AggregateKind.MAX, counts, values)
            return self.as_values(extremes)
        try:
            sums = run_sums(groups, numbers, valid, values)
        except OverflowError as error:
            raise JobFailedError(f"aggregate {self.name!r}: {error}") from error
        if kind is AggregateKind.MEAN:
            with np.errstate(invalid="ignore", divide="ignore"):
                sums = sums / run_counts(groups, valid, counts)
        return pa.array(sums).cast(self.result_type)

    def ranked_results(
        self, array: pa.Array, valid: npt.NDArray[np.uint8] | None, groups: Slots, counts: Values, values: Values
    ) -> pa.Array:
        """As `results`, by the ranks of values among those of this batch and of the states."""
        both = pa.concat_arrays([self.kept_values(values), array])
        comparable = both
        if pa.types.is_decimal(both.type) and both.type.bit_width < 128:  # Arrow ranks no narrow ones
            comparable = both.cast(pa.decimal128(both.type.precision, both.type.scale))
        ranks = pc.rank(comparable, "ascending", tiebreaker="dense").to_numpy().astype(np.int64)
        row_of_rank = np.zeros(len(both) + 1, np.int64)
        row_of_rank[ranks] = np.arange(len(both))
        kept = ranks[: len(values)].copy()
        extremes = run_extremes(groups, ranks[len(values) :], valid, self.kind is AggregateKind.MAX, counts, kept)
        kept_values = both.take(pa.array(row_of_rank[kept], mask=counts == 0)).to_pylist()
        values[:] = np.fromiter(kept_values, object, len(values))
        return both.take(pa.array(row_of_rank[extremes]))

    def kept_values(self, values: Values) -> pa.Array:
        return pa.array(values.tolist(), self.result_type)

    def numbers(self, array: pa.Array) -> Values:
        """The values as 64-bit numbers; nulls are anything."""
        if pa.types.is_temporal(array.type):
            array = array.view(pa.int32() if array.type.bit_width == 32 else pa.int64())
        number_type = pa.float64() if self.number_type == np.float64 else pa.int64()
        # A mean rounds integers that a double cannot hold.
        numbers: Values = array.cast(number_type, safe=False).fill_null(0).to_numpy()
        return numbers

    def as_values(self, numbers: Values) -> pa.Array:
        """What `numbers` made of values."""
        array = pa.array(numbers)
        if not pa.types.is_temporal(self.result_type):
            return array.cast(self.result_type)
        return (array.cast(pa.int32()) if self.result_type.bit_width == 32 else array).view(self.result_type)


class RollingAggregate(KeyedState):
    """Each row leaves with the running aggregates of its key beside it, in the order in which rows come.

    Parameters
    ----------
    rows : what comes in; its columns are in the result, followed by the aggregates
    aggregates : see RunningColumn
    schema : of the result
    ttl_us : a row that comes more than this after the one before it of its key begins anew; None: none does
    """

    def __init__(
        self, rows: KeyedInput, aggregates: Sequence[AnyAggregateColumn], schema: pa.Schema, ttl_us: int | None
    ) -> None:
        super().__init__(rows, ttl_us)
        self.aggregates = tuple(aggregates)
        self.schema = schema

    def open(self, context: ProcessorContext) -> None:
        self.running = [RunningColumn(column, self.input.schema) for column in self.aggregates]
        self.state_fields = tuple(field for column in self.running for field in column.fields)
        self.read = [name for name in self.input.schema.names if name in {each.argument for each in self.running}]
        self.group_of_slot = np.empty(0, np.int32)
        super().open(context)

    def grow(self, slot_count: int) -> None:
        self.group_of_slot = np.full(slot_count, -1, np.int32)
        for column in self.running:
            column.grow(slot_count)

    def process_rows(self, batch: Batch, slots: Slots, times: Times) -> tuple[Output, ...]:
        known = self.seen[slots] != NEVER_SEEN
        ttl_us = MAX_TIME if self.ttl_us is None else self.ttl_us
        numbers, group_slots, _, ended = number_states(slots, times, ttl_us, self.seen, self.group_of_slot)
        groups = numbers.astype(np.uint32)
        fresh = ended != NEVER_SEEN
        fresh[groups[~known]] = True
        rows = batch.select(self.read).to_arrow()
        results = [column.follow(rows, groups, group_slots, fresh) for column in self.running]
        names = [column.name for column in self.aggregates]
        made = Batch.from_arrow(pa.RecordBatch.from_arrays(results, names=names))
        return (put_beside(self.schema, [batch.select(self.input.columns), made]),)

    def state_of(self, slots: Slots) -> list[pa.Array]:
        return [array for column in self.running for array in column.state_of(slots)]

    def take_state(self, slots: Slots, columns: list[pa.Array]) -> None:
        for number, column in enumerate(self.running):
            column.take_state(slots, columns[2 * number], columns[2 * number + 1])
