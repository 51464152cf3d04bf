"""Tables of kernels/windows and kernels/sessions with batch aggregates beside them: the same methods, more columns.

The kernel's table stays in charge of keys, lateness, frames, bounds and the order of results. It tells where each row
went and which place each result comes from; the states of batch aggregates are kept by place (frame_states, state_log).
They are saved, and sent from a first stage to the second, as further columns of the kernel's rows.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from jetfast.core.aggregate import AnyAggregateColumn
from jetfast.core.batch import Batch, BatchRun, concatenate
from jetfast.core.windows import Window
from jetfast.kernels.grouping import number_places
from jetfast.kernels.keys import check_batch_schema
from jetfast.kernels.sessions import SessionTable
from jetfast.kernels.windows import FrameTable, ResultTable, WindowTable
from jetfast.processors.batch_inputs import BatchInputs, grouped_by_frame
from jetfast.processors.frame_states import FrameStates, by_frame
from jetfast.processors.state_log import Piece, Places, StateLog, gather, gather_all
from jetfast.types import MIN_TIME

Table = TypeVar("Table", bound=ResultTable)


class BatchResultTable(Generic[Table]):
    """What windows and sessions share: rows in, results out, state saved and restored by partition.

    Parameters
    ----------
    table : of the kernel, made with those of the aggregates that it computes
    schema, key_count, time, aggregates : of the step
    """

    def __init__(
        self,
        table: Table,
        schema: pa.Schema,
        key_count: int,
        time: str,
        aggregates: Sequence[AnyAggregateColumn],
    ) -> None:
        table.tell_places()
        self.table = table
        self.inputs = BatchInputs(schema, time, aggregates, table.partial_schema)
        self.state_kind = "sessions" if isinstance(table, SessionTable) else "windows"
        self.key_count = key_count
        results = {bound.name: pa.field(bound.name, bound.result_type) for bound in self.inputs.bound}
        self.output_names = [*table.output_schema.names[: key_count + 2], *(aggregate.name for aggregate in aggregates)]
        self.result_schema = pa.schema(list(results.values()))
        self.output_schema = pa.schema(
            [results.get(name) or table.output_schema.field(name) for name in self.output_names]
        )

    @property
    def partial_schema(self) -> pa.Schema:
        """As of the kernel's table, and the states."""
        return self.inputs.partial_schema

    @property
    def late_schema(self) -> pa.Schema:
        return self.table.late_schema

    def row_counts(self) -> tuple[int, int, int, int]:
        return self.table.row_counts()

    def accumulate(self, batch: Batch, collect_late: bool = False) -> Batch | None:
        late = self.table.accumulate(batch, collect_late)
        self.take_rows(batch)
        return late

    def take_rows(self, batch: Batch) -> None:
        """The kernel's table has taken in rows of a batch: so do the states."""
        raise NotImplementedError

    def result_columns(self, results: pa.RecordBatch, places: Places) -> list[pa.Array]:
        """Results of the batch aggregates for rows that the kernel's table gave."""
        raise NotImplementedError

    def saved_states(self, rows: Sequence[pa.RecordBatch], places: Places) -> list[pa.Array]:
        """States that belong to saved rows of the kernel's table; `places` of all of them."""
        raise NotImplementedError

    def emit(self, rows_max: int = 65536) -> Batch | None:
        results = self.table.emit(rows_max)
        if results is None:
            return None
        columns = self.result_columns(results.to_arrow(), self.table.emitted_places())
        more = Batch.from_arrow(pa.record_batch(columns, schema=self.result_schema))
        return results.with_columns(more).select(self.output_names)

    def emit_run(self) -> BatchRun | None:
        results = self.emit()
        return None if results is None else BatchRun.of([results])

    def save(self) -> list[pa.RecordBatch]:
        saved = self.table.save_with_places()
        if not saved:
            return []
        states = self.saved_states([rows for rows, _ in saved], np.concatenate([places for _, places in saved]))
        whole, first = [], 0
        for rows, _ in saved:
            own = [column.slice(first, rows.num_rows) for column in states]
            first += rows.num_rows
            whole.append(pa.record_batch([*rows.columns, *own], schema=self.partial_schema))
        return whole

    def bounds(self) -> dict[int, int]:
        return self.table.bounds()

    def restore(self, rows: pa.RecordBatch) -> None:
        check_batch_schema(rows.schema, self.partial_schema, f"saved {self.state_kind} (is the pipeline another one?)")
        self.table.restore(rows.select(self.inputs.native_names))
        self.take_restored([rows.column(name) for name in self.inputs.state_names])

    def restore_bound(self, partition: int, bound: int) -> None:
        self.table.restore_bound(partition, bound)

    def take_restored(self, states: Sequence[pa.Array]) -> None:
        """The kernel's table has taken in saved rows, of which these are the states."""
        raise NotImplementedError

    def finish_restore(self) -> None:
        self.table.finish_restore()


class BatchWindowTable(BatchResultTable[WindowTable]):
    """A WindowTable with batch aggregates beside it."""

    def __init__(
        self,
        table: WindowTable,
        schema: pa.Schema,
        key_count: int,
        time: str,
        aggregates: Sequence[AnyAggregateColumn],
        window: Window,
    ) -> None:
        super().__init__(table, schema, key_count, time, aggregates)
        self.window = window
        self.states = [FrameStates(bound, window) for bound in self.inputs.bound]
        self.restored: list[tuple[Places, npt.NDArray[np.int64], list[pa.Array]]] = []
        """Places, frames and states of saved rows, a partition at a time: they are added together."""
        self.watermark = MIN_TIME

    def accumulate_all(self, batches: BatchRun | Sequence[Batch]) -> None:
        """Take in several batches, which come together, as one: what small batches cost is calls."""
        self.accumulate(concatenate(batches))

    def accumulate_partials(self, batch: Batch) -> None:
        check_batch_schema(batch.schema, self.partial_schema, "a batch of partial results")
        self.table.accumulate_partials(batch.select(self.inputs.native_names))
        rows, places, frames = self.table.taken_rows()
        if len(rows) > 0:
            taken = pa.array(rows)
            states = batch.select(self.inputs.state_names).to_arrow().columns
            self.add_states(places, frames, [column.take(taken) for column in states])

    def accumulate_all_partials(self, batches: BatchRun | Sequence[Batch]) -> None:
        for batch in batches:
            self.accumulate_partials(batch)

    def take_rows(self, batch: Batch) -> None:
        rows, places, frames = self.table.taken_rows()
        if len(rows) == 0:
            return
        groups, group_places, spans = grouped_by_frame(places, frames)
        span = spans[0][0] - self.window.slide_us, spans[-1][0]
        self.add(group_places, spans, self.inputs.states_of(batch, rows, groups, len(group_places), span))

    def take_restored(self, states: Sequence[pa.Array]) -> None:
        rows, places, frames = self.table.taken_rows()
        taken = pa.array(rows)
        self.restored.append((places, frames, [column.take(taken) for column in states]))

    def finish_restore(self) -> None:
        super().finish_restore()
        if not self.restored:
            return
        all_places, all_frames, all_states = zip(*self.restored, strict=True)
        self.restored = []
        frames = np.concatenate(all_frames)
        order = np.argsort(frames, kind="stable")
        states = [pa.concat_arrays(columns).take(pa.array(order)) for columns in zip(*all_states, strict=True)]
        if len(order) > 0:
            self.add_states(np.concatenate(all_places)[order], frames[order], states)

    def add_states(self, places: Places, frames: npt.NDArray[np.int64], states: Sequence[pa.Array]) -> None:
        """Add states of places in frames, which ascend."""
        groups, group_places, spans = grouped_by_frame(places, frames)
        combined = []
        for bound, column in zip(self.inputs.bound, states, strict=True):
            bound.window = spans[0][0] - self.window.slide_us, spans[-1][0]
            combined.append(bound.combine(column, groups, len(group_places)))
        self.add(group_places, spans, combined)

    def add(self, places: Places, spans: list[tuple[int, int, int]], states: list[pa.Array]) -> None:
        for own, column in zip(self.states, states, strict=True):
            for frame, first, behind in spans:
                own.add(frame, places[first:behind], column.slice(first, behind - first))

    def advance(self, watermark: int) -> bool:
        self.watermark = watermark
        if self.table.advance(watermark):
            return True
        self.finish()
        return False

    def emit(self, rows_max: int = 65536) -> Batch | None:
        results = super().emit(rows_max)
        if results is None:
            self.finish()
        return results

    def finish(self) -> None:
        """Nothing is due any more."""
        for states in self.states:
            states.finish(self.watermark)

    def result_columns(self, results: pa.RecordBatch, places: Places) -> list[pa.Array]:
        ends = results.column(self.key_count + 1).cast(pa.int64()).to_numpy()
        bounds = [0, *(np.flatnonzero(np.diff(ends)) + 1).tolist(), len(ends)]
        columns = []
        for states in self.states:
            parts = [
                states.aggregate.export(states.window_states(int(ends[first]), places[first:behind]))
                for first, behind in pairwise(bounds)
            ]
            columns.append(parts[0] if len(parts) == 1 else pa.concat_arrays(parts))
        return columns

    def saved_states(self, rows: Sequence[pa.RecordBatch], places: Places) -> list[pa.Array]:
        ends = np.concatenate([piece.column(self.key_count).to_numpy() for piece in rows])
        return [by_frame(states.aggregate, states.frames, ends, places) for states in self.states]


class BatchSessionTable(BatchResultTable[SessionTable]):
    """A SessionTable with batch aggregates beside it."""

    def __init__(
        self,
        table: SessionTable,
        schema: pa.Schema,
        key_count: int,
        time: str,
        aggregates: Sequence[AnyAggregateColumn],
    ) -> None:
        super().__init__(table, schema, key_count, time, aggregates)
        self.logs = [StateLog(bound) for bound in self.inputs.bound]

    def take_rows(self, batch: Batch) -> None:
        rows, places, _ = self.table.taken_rows()
        if len(rows) == 0:
            return
        self.merge_sessions()
        groups, group_places, _ = number_places(places)
        self.add(group_places, self.inputs.states_of(batch, rows, groups, len(group_places)))

    def take_restored(self, states: Sequence[pa.Array]) -> None:
        rows, places, _ = self.table.taken_rows()
        if len(rows) == 0:
            return
        self.merge_sessions()
        groups, group_places, _ = number_places(places)
        self.add(
            group_places,
            [
                bound.combine(column.take(pa.array(rows)), groups, len(group_places))
                for bound, column in zip(self.inputs.bound, states, strict=True)
            ],
        )

    def add(self, places: Places, states: list[pa.Array]) -> None:
        for log, column in zip(self.logs, states, strict=True):
            log.add(Piece(places, column))

    def merge_sessions(self) -> None:
        """What was known of sessions that joined others becomes theirs."""
        gone, kept = self.table.merged_places()
        if len(gone) == 0:
            return
        for log in self.logs:
            found, states = gather(log.aggregate, [log], gone, remove=True)
            if len(found) > 0:
                groups, places, _ = number_places(kept[found])
                log.add(Piece(places, log.aggregate.combine(states, groups, len(places))))

    def advance(self, watermark: int) -> bool:
        return self.table.advance(watermark)

    def result_columns(self, results: pa.RecordBatch, places: Places) -> list[pa.Array]:
        starts = results.column(self.key_count).cast(pa.int64()).to_numpy()
        ends = results.column(self.key_count + 1).cast(pa.int64()).to_numpy()
        columns = []
        for log in self.logs:
            log.aggregate.window = int(starts.min()), int(ends[-1])
            columns.append(log.aggregate.export(gather_all(log.aggregate, [log], places, remove=True)))
            log.drop_dead()
        return columns

    def saved_states(self, rows: Sequence[pa.RecordBatch], places: Places) -> list[pa.Array]:
        return [gather_all(log.aggregate, [log], places) for log in self.logs]


class BatchFrameTable:
    """A FrameTable with batch aggregates beside it: the first stage of two."""

    def __init__(
        self,
        table: FrameTable,
        schema: pa.Schema,
        key_count: int,
        time: str,
        aggregates: Sequence[AnyAggregateColumn],
        window: Window,
    ) -> None:
        table.tell_places()
        self.table = table
        self.inputs = BatchInputs(schema, time, aggregates, table.partial_schema)
        self.window = window
        self.logs: list[dict[int, StateLog]] = [{} for _ in self.inputs.bound]
        self.key_count = key_count

    @property
    def partial_schema(self) -> pa.Schema:
        return self.inputs.partial_schema

    @property
    def rejected_rows(self) -> int:
        return self.table.rejected_rows

    def accumulate(self, batch: Batch) -> None:
        self.table.accumulate(batch)
        rows, places, frames = self.table.taken_rows()
        if len(rows) == 0:
            return
        groups, group_places, spans = grouped_by_frame(places, frames)
        span = spans[0][0] - self.window.slide_us, spans[-1][0]
        states = self.inputs.states_of(batch, rows, groups, len(group_places), span)
        for bound, logs, column in zip(self.inputs.bound, self.logs, states, strict=True):
            for frame, first, behind in spans:
                log = logs.get(frame)
                if log is None:
                    log = logs[frame] = StateLog(bound)
                log.add(Piece(group_places[first:behind], column.slice(first, behind - first)))

    def accumulate_all(self, batches: BatchRun | Sequence[Batch]) -> None:
        """Take in several batches, which come together, as one: what small batches cost is calls."""
        self.accumulate(concatenate(batches))

    def advance(self, watermark: int) -> None:
        self.table.advance(watermark)

    def flush(self) -> None:
        self.table.flush()

    def take_partials(self, rows_max: int = 65536) -> Batch | None:
        partials = self.table.take_partials(rows_max)
        if partials is None:
            return None
        places = self.table.partial_places()
        ends = partials.to_arrow().column(self.key_count).to_numpy()
        states = []
        for bound, logs in zip(self.inputs.bound, self.logs, strict=True):
            states.append(by_frame(bound, logs, ends, places, remove=True))
            for frame in np.unique(ends).tolist():
                logs[frame].drop_dead()
                if not logs[frame].pieces:
                    del logs[frame]
        return self.inputs.add_states(partials, states)

    def take_partial_run(self) -> list[tuple[int, BatchRun]]:
        partials = self.take_partials()
        return [] if partials is None else [(0, BatchRun.of([partials]))]
