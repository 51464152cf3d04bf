"""Where rows by key and time come in: times are read, what is too late is put aside, rows are saved."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from jetfast.core.batch import Batch, concatenate
from jetfast.core.items import Emit
from jetfast.core.keyed_input import KeyedInput
from jetfast.core.processor import BY_KEYS, ProcessorContext, StateBatch
from jetfast.errors import JobDefinitionError
from jetfast.processors.partition_bounds import PartitionBounds

Times = npt.NDArray[np.int64]

MISSED_UNTIL = "missed_until"
COUNTERS = ("on_time_rows", "late_rows", "partly_late_rows", "rejected_rows")


class KeyedRows:
    """The door for what comes over one edge: reads times, puts late rows aside, saves rows.

    Parameters
    ----------
    rows : what comes
    late_port : output port of its late rows
    kind : of its saved rows
    """

    def __init__(
        self,
        rows: KeyedInput,
        late_port: int,
        kind: str,
        context: ProcessorContext,
    ) -> None:
        self.input = rows
        self.kind = kind
        self.counters = context.counters
        for name in COUNTERS:
            self.counters.setdefault(name, 0)
        self.late_port = late_port
        self.collects_late = late_port in context.connected_ports

    def with_times(self, batch: Batch) -> tuple[Batch, Times]:
        """Rows that have a time, and their times in microseconds; others are counted as rejected."""
        assert self.input.time is not None
        times, validity = batch.timestamps(self.input.time)
        if validity is not None:
            rows = np.flatnonzero(validity).astype(np.int32)
            self.counters["rejected_rows"] += batch.row_count - len(rows)
            batch, times = batch.take(rows), times[rows]
        if self.input.time_shift_us:
            times = times + self.input.time_shift_us
        return batch, times

    def on_time(self, batch: Batch, bounds: PartitionBounds) -> tuple[Batch, Times, tuple[Emit, ...]]:
        """Rows that have a time which is not behind the bound of their key, their times, and what is put aside."""
        batch, times = self.with_times(batch)
        late: tuple[Emit, ...] = ()
        if not bounds.is_open:
            behind = times < bounds.of_rows(batch.to_arrow(), self.input.keys)
            missed = np.flatnonzero(behind)
            if len(missed):
                self.counters["late_rows"] += len(missed)
                late = self.late(batch, missed, None)
                kept = np.flatnonzero(~behind)
                batch, times = batch.take(kept.astype(np.int32)), times[kept]
        self.counters["on_time_rows"] += batch.row_count
        return batch, times, late

    def late(self, batch: Batch, rows: npt.NDArray[np.intp], missed_until: Times | None) -> tuple[Emit, ...]:
        """Put rows aside, if anybody wants them; `missed_until` of each, None: there is no window to miss."""
        if not self.collects_late or len(rows) == 0:
            return ()
        ends = pa.nulls(len(rows), pa.timestamp("us")) if missed_until is None else pa.array(missed_until)
        column = Batch.from_arrow(pa.record_batch([ends.cast(pa.timestamp("us"))], names=[MISSED_UNTIL]))
        kept = batch.select(self.input.late_columns).take(rows.astype(np.int32))
        return (Emit(self.late_port, kept.with_columns(column)),)

    def saved(self, rows: Batch) -> list[StateBatch]:
        """Rows as state, in their order."""
        return [StateBatch(BY_KEYS, self.kind, rows.to_arrow(), self.input.keys)] if rows.row_count else []

    def joined(self, states: Sequence[pa.RecordBatch]) -> Batch | None:
        """Rows that `saved` gave, together; columns that nobody wants any more are left out.

        Raises JobDefinitionError for state that lacks columns.
        """
        batches = []
        for rows in states:
            for field in self.input.schema:
                position = rows.schema.get_field_index(field.name)
                if position < 0 or rows.schema.field(position).type != field.type:
                    raise JobDefinitionError(
                        f"saved {self.kind} have no column {field.name!r} of type {field.type}: they have "
                        f"{', '.join(map(str, rows.schema))}. A changed step needs another name"
                    )
            columns = [rows.column(name) for name in self.input.schema.names]
            batches.append(Batch.from_arrow(pa.RecordBatch.from_arrays(columns, schema=self.input.schema)))
        return concatenate(batches) if batches else None
