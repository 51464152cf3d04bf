# distutils: language = c++
"""Session windows by key: rows that lie close enough together share a session (SEMANTICS 1.6 and 2)."""

import numpy as np
import pyarrow as pa

from cython.operator cimport dereference
from libc.stdint cimport INT64_MIN, int32_t, int64_t
from libcpp.memory cimport make_unique, unique_ptr
from libcpp.vector cimport vector

from jetfast.kernels.keys import check_batch_schema

from jetfast.kernels._csrc cimport session_table as cpp
from jetfast.kernels._csrc.batch cimport Rows, slice_rows
from jetfast.kernels._csrc.keyed_frames cimport BatchColumns, MemoryUse
from jetfast.kernels._csrc.keyed_results cimport LateRows
from jetfast.kernels._csrc.kernel_clock cimport KernelClock
from jetfast.kernels.clocks cimport kernel_clock
from jetfast.kernels.columns cimport Batch, make_batch, shared_arena
from jetfast.kernels.windows cimport TableLayout

cdef int64_t _SAVED_ROWS = 1 << 20  # rows of state that are copied at a time


cdef class SessionTable:
    """Aggregates per key and session; the state of one processor. Used by one thread.

    schema, keys, time, aggregates, partition_count, partitions : as for WindowTable
    timeout_us : a row covers [time, time + timeout_us]; rows of a key that overlap or touch share a session

    A row is late if its time is below the watermark. A session is emitted when the watermark has passed its end.
    `accumulate`, then `advance` and `emit` until it gives None, then `accumulate` again. Raises ValueError for unknown
    columns, TypeError for types that cannot be used.
    """

    cdef unique_ptr[cpp.SessionTable] table
    cdef TableLayout layout
    cdef object owned
    cdef bint started

    def __init__(self, schema, keys, time, aggregates, timeout_us, partition_count=271, partitions=None):
        if timeout_us < 1:
            raise ValueError(f"timeout_us must be at least 1, got {timeout_us}")
        self.layout = TableLayout(schema, keys, time, aggregates, 1, 1, 0, partition_count)
        self.owned = range(partition_count) if partitions is None else [int(partition) for partition in partitions]
        for partition in self.owned:
            self._check_partition(partition)
        self.table = make_unique[cpp.SessionTable](self.layout.spec, <int64_t>timeout_us, dereference(shared_arena()))
        self.layout.set_partial_schema(dereference(self.table).fields(), ("first", "last"))

    @property
    def output_schema(self):
        """Keys, window_start (the first time), window_end (the last time + timeout; both timestamp[us]), aggregates."""
        return self.layout.output_schema

    @property
    def partial_schema(self):
        """Of saved sessions: keys, first, last (times, int64 microseconds), rows, then the fields of each value column."""
        return self.layout.partial_schema

    @property
    def late_schema(self):
        """The input's columns and missed_until: timestamp[us], always null (there is no window that the row missed)."""
        return self.layout.late_schema

    @property
    def rows(self):
        """All rows taken in: on time, late and rejected ones."""
        return dereference(self.table).rows

    @property
    def late_rows(self):
        """Rows with a time below the watermark."""
        return dereference(self.table).late_rows

    @property
    def partly_late_rows(self):
        """Always 0: a row is in its session or late."""
        return 0

    @property
    def rejected_rows(self):
        """Rows whose time is null or does not fit 64 bits of microseconds."""
        return dereference(self.table).rejected_rows

    def row_counts(self):
        """As WindowTable.row_counts; no row is partly late."""
        cdef int64_t late = dereference(self.table).late_rows
        cdef int64_t rejected = dereference(self.table).rejected_rows
        return dereference(self.table).rows - late - rejected, late, 0, rejected

    def accumulate(self, Batch batch not None, collect_late=False):
        """Take in rows, judged by the last watermark.

        Returns a batch of late_schema with the late rows, in their order, or None if there is none (or `collect_late` is
        False). Raises ValueError while sessions that are due have not been emitted.
        """
        cdef BatchColumns columns = self.layout.batch_columns(batch)
        cdef LateRows late
        cdef LateRows* late_target = &late if collect_late else NULL
        cdef KernelClock* clock = kernel_clock()
        self.started = True
        with nogil:
            clock.enter()
            dereference(self.table).accumulate(columns, late_target)
            clock.leave()
        if late.rows.empty():
            return None
        cdef int64_t count = late.rows.size()
        rows = np.asarray(<int32_t[:count]>late.rows.data()).copy()
        missed_until = pa.record_batch([pa.nulls(count, pa.timestamp("us"))], names=["missed_until"])
        return batch.take(rows).with_columns(Batch.from_arrow(missed_until))

    def advance(self, int64_t watermark):
        """Make every session with an end below the watermark due. MAX_TIME: all. ValueError if it goes back.

        Returns whether any is due; if not, there is nothing to emit.
        """
        cdef KernelClock* clock = kernel_clock()
        self.started = True
        with nogil:
            clock.enter()
            dereference(self.table).advance(watermark)
            clock.leave()
        return dereference(self.table).is_emitting()

    def emit(self, int64_t rows_max=65536):
        """Return the next due results (output_schema, ascending window_end, at most rows_max rows), or None: none is left.

        Raises OverflowError naming aggregate, key and session if a sum does not fit its type.
        """
        cdef Rows rows
        if rows_max < 1:
            raise ValueError(f"rows_max must be at least 1, got {rows_max}")
        if not dereference(self.table).is_emitting():
            return None
        cdef KernelClock* clock = kernel_clock()
        try:
            with nogil:
                clock.enter()
                rows = dereference(self.table).emit(rows_max)
                clock.leave()
        except OverflowError:
            raise OverflowError(
                self.layout.overflow_message(dereference(self.table).overflow, dereference(self.table).keys())
            ) from None
        if rows.row_count == 0:
            return None
        return make_batch(self.layout.output_schema, rows)

    def save(self):
        """Return the state: (partition, kind, pyarrow.RecordBatch), at most one million rows copied at a time.

        kind "sessions": open sessions (rows of partial_schema); "bounds": the watermark of the partition; "counters".
        ValueError while sessions that are due have not been emitted.
        """
        cdef int64_t next_entry = 0
        cdef vector[int64_t] offsets
        cdef Rows rows, part
        cdef int64_t first, count
        cdef int32_t partition
        state = []
        while True:
            with nogil:
                rows = dereference(self.table).save(next_entry, _SAVED_ROWS, offsets)
            if rows.row_count == 0:
                break
            for partition in range(self.layout.spec.partition_count):
                first = offsets[partition]
                count = offsets[partition + 1] - first
                if count > 0:
                    part = slice_rows(rows, first, count)
                    state.append((partition, "sessions", make_batch(self.layout.partial_schema, part).to_arrow()))
        bounds = [dereference(self.table).bound(owned) for owned in self.owned]
        bound_rows = pa.record_batch([pa.array(bounds, pa.int64())], names=["bound"])
        for position, owned in enumerate(self.owned):
            if bounds[position] > INT64_MIN:
                state.append((owned, "bounds", bound_rows.slice(position, 1)))
        counters = {"rows": self.rows, "late_rows": self.late_rows, "rejected_rows": self.rejected_rows}
        if any(counters.values()) and len(self.owned):
            state.append((self.owned[0], "counters", pa.RecordBatch.from_pylist([counters])))
        return state

    def _check_partition(self, partition):
        if not 0 <= partition < self.layout.spec.partition_count:
            raise ValueError(f"partition must be in [0, {self.layout.spec.partition_count}), got {partition}")

    def restore(self, partition, kind, rows):
        """Take back one piece of saved state, in any order, before any row or watermark.

        Another timeout than the saved one is allowed: sessions get new ends, and those that now meet merge. Raises
        ValueError for keys or aggregates other than the saved ones.
        """
        self._check_partition(partition)
        if self.started:
            raise ValueError("state can only be restored before the first row and watermark")
        cdef cpp.SessionColumns columns
        if kind == "sessions":
            check_batch_schema(rows.schema, self.layout.partial_schema, "saved sessions (is the pipeline another one?)")
            batch = Batch.from_arrow(rows)
            columns = self._session_columns(batch)
            with nogil:
                dereference(self.table).restore(columns)
        elif kind == "bounds":
            for bound in rows.column("bound").to_pylist():
                dereference(self.table).restore_bound(partition, bound)
        elif kind == "counters":
            for counters in rows.to_pylist():
                dereference(self.table).add_counters(counters["rows"], counters["rejected_rows"], counters["late_rows"], 0)
        else:
            raise ValueError(f"a session window saves sessions, bounds and counters, not {kind!r}")

    cdef cpp.SessionColumns _session_columns(self, Batch batch) except *:
        cdef cpp.SessionColumns columns
        cdef size_t key_count = self.layout.key_columns.size()
        cdef size_t position
        columns.row_count = batch.row_count
        for position in range(batch.rows.columns.size()):
            if position < key_count:
                columns.keys.push_back(batch.rows.columns[position].view)
            elif batch.rows.columns[position].view.null_count > 0:
                raise ValueError(f"column {batch.schema.names[position]!r} of saved sessions must not have nulls")
            elif position == key_count:
                columns.first = batch.rows.columns[position].view
            elif position == key_count + 1:
                columns.last = batch.rows.columns[position].view
            else:
                columns.fields.push_back(batch.rows.columns[position].view)
        return columns

    def finish_restore(self):
        """All state has come back; rows may follow."""
        self.started = True

    def memory(self):
        """Return what the state takes: keys, sessions (open ones), key_bytes, session_bytes, and the averages bytes_per_key
        and bytes_per_session (which count idle keys and room for more sessions too)."""
        cdef MemoryUse use = dereference(self.table).memory()
        return {
            "keys": use.keys,
            "sessions": use.entries,
            "key_bytes": use.key_bytes,
            "session_bytes": use.frame_bytes,
            "bytes_per_key": use.key_bytes // max(use.keys, 1),
            "bytes_per_session": use.frame_bytes // max(use.entries, 1),
        }
