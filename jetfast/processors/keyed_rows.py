"""The doors of a join: rows of either side by key and time, those that come too late put aside, saved rows."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from jetfast.core.batch import Batch, concatenate, put_beside
from jetfast.core.items import Emit
from jetfast.core.joins import LATE_PORTS, Join, JoinSide
from jetfast.core.processor import BY_KEYS, ProcessorContext, StateBatch
from jetfast.errors import JobDefinitionError
from jetfast.kernels.joins import NO_SLOT
from jetfast.kernels.keys import KeyIndex, plain_field

Times = npt.NDArray[np.int64]
Slots = npt.NDArray[np.uint32]

SIDE_KINDS = ("left", "right")
"""Kinds of saved rows."""
MISSED_UNTIL = "missed_until"
COUNTERS = ("on_time_rows", "late_rows", "partly_late_rows", "rejected_rows")


class KeySlots:
    """Slots of keys that two sides have in common; a row with a null among its keys has NO_SLOT."""

    def __init__(self, join: Join) -> None:
        self.sides = join.sides
        self.names = join.schema.names[: join.key_count]
        left = join.sides[0]
        fields = [plain_field(left.schema.field(key)) for key in left.keys]
        self.index = KeyIndex(
            pa.schema([field.with_name(name) for field, name in zip(fields, self.names, strict=True)]), self.names
        )

    def of_rows(self, ordinal: int, batch: Batch) -> Slots:
        """The slot of each row of one side, shape (rows,); new keys get new ones."""
        keys = batch.select(self.sides[ordinal].keys, self.names)
        slots = self.index.assign_slots(keys)
        nulls = null_rows(keys)
        if nulls is not None:
            slots[nulls] = NO_SLOT
        return slots

    @property
    def limit(self) -> int:
        """All slots are below."""
        return self.index.slot_limit


def null_rows(keys: Batch) -> npt.NDArray[np.bool_] | None:
    """Which rows have a null in any column, shape (rows,); None: none has."""
    nulls: npt.NDArray[np.bool_] | None = None
    for column in keys.to_arrow().columns:
        if column.null_count:
            here = pc.is_null(column).to_numpy(zero_copy_only=False)
            nulls = here if nulls is None else nulls | here
    return nulls


class SideInput:
    """What comes over one edge of a join: reads times, judges lateness, saves rows. `ordinal`: which side."""

    def __init__(self, side: JoinSide, ordinal: int, context: ProcessorContext) -> None:
        self.side = side
        self.ordinal = ordinal
        self.counters = context.counters
        self.late_port = LATE_PORTS[ordinal]
        self.collects_late = self.late_port in context.connected_ports
        self.late_schema = pa.schema(
            [
                *(side.schema.field(name) for name in side.late_columns if name != MISSED_UNTIL),
                pa.field(MISSED_UNTIL, pa.timestamp("us")),
            ]
        )

    def with_times(self, batch: Batch) -> tuple[Batch, Times]:
        """Rows that have a time, and their times in microseconds; others are counted as rejected."""
        side = self.side
        assert side.time is not None
        times, validity = batch.timestamps(side.time)
        if validity is not None:
            rows = np.flatnonzero(validity).astype(np.int32)
            self.counters["rejected_rows"] += batch.row_count - len(rows)
            batch, times = batch.take(rows), times[rows]
        if side.time_shift_us:
            times = times + side.time_shift_us
        return batch, times

    def late(self, batch: Batch, rows: npt.NDArray[np.intp], missed_until: Times | None) -> tuple[Emit, ...]:
        """Put rows aside, if anybody wants them; `missed_until` of each, None: there is no window to miss."""
        if not self.collects_late or len(rows) == 0:
            return ()
        ends = pa.nulls(len(rows), pa.timestamp("us")) if missed_until is None else pa.array(missed_until)
        column = pa.record_batch([ends.cast(pa.timestamp("us"))], names=[MISSED_UNTIL])
        kept = batch.select(self.late_schema.names[:-1]).take(rows.astype(np.int32))
        return (Emit(self.late_port, put_beside(self.late_schema, [kept, Batch.from_arrow(column)])),)

    def saved(self, rows: Batch) -> list[StateBatch]:
        """Rows as state, in their order."""
        if rows.row_count == 0:
            return []
        return [StateBatch(BY_KEYS, SIDE_KINDS[self.ordinal], rows.to_arrow(), tuple(self.side.keys))]

    def joined(self, states: Sequence[pa.RecordBatch]) -> Batch | None:
        """Rows that `saved` gave, together; columns that nobody wants any more are left out.

        Raises JobDefinitionError for state that lacks columns.
        """
        batches = []
        for rows in states:
            for field in self.side.schema:
                position = rows.schema.get_field_index(field.name)
                if position < 0 or rows.schema.field(position).type != field.type:
                    raise JobDefinitionError(
                        f"the saved rows of the {SIDE_KINDS[self.ordinal]} side of the join have no column "
                        f"{field.name!r} of type {field.type}: they have {', '.join(map(str, rows.schema))}. A changed "
                        f"join needs another name"
                    )
            columns = [rows.column(name) for name in self.side.schema.names]
            batches.append(Batch.from_arrow(pa.RecordBatch.from_arrays(columns, schema=self.side.schema)))
        return concatenate(batches) if batches else None
