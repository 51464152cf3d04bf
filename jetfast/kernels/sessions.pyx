# distutils: language = c++
"""Session windows by key: rows that lie close enough together share a session (SEMANTICS 1.6 and 2)."""

from cython.operator cimport dereference
from libc.stdint cimport int32_t, int64_t
from libcpp.memory cimport make_unique, unique_ptr

from jetfast.kernels._csrc cimport session_table as cpp
from jetfast.kernels._csrc.keyed_frames cimport MemoryUse
from jetfast.kernels._csrc.kernel_clock cimport KernelClock
from jetfast.kernels.clocks cimport kernel_clock
from jetfast.kernels.columns cimport Batch, shared_arena
from jetfast.kernels.windows cimport ResultTable, TableLayout


cdef class SessionTable(ResultTable):
    """Aggregates per key and session; the state of one processor. Used by one thread.

    schema, keys, time, aggregates, partition_count, partitions : as for WindowTable
    timeout_us : a row covers [time, time + timeout_us]; rows of a key that overlap or touch share a session

    A row is late if its time is below the watermark. A session is emitted when the watermark has passed its end.
    `accumulate`, then `advance` and `emit` until it gives None, then `accumulate` again. Raises ValueError for unknown
    columns, TypeError for types that cannot be used.
    """

    cdef unique_ptr[cpp.SessionTable] table

    def __init__(self, schema, keys, time, aggregates, timeout_us, partition_count=271, partitions=None):
        if timeout_us < 1:
            raise ValueError(f"timeout_us must be at least 1, got {timeout_us}")
        self.start(TableLayout(schema, keys, time, aggregates, 1, 1, 0, partition_count), partitions, "sessions")
        self.table = make_unique[cpp.SessionTable](self.layout.spec, <int64_t>timeout_us, dereference(shared_arena()))
        self.results = self.table.get()
        self.layout.set_partial_schema(self.results.partial_fields(), ("first", "last"))

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

    cdef int restore_rows(self, Batch batch) except -1:
        cdef cpp.SessionColumns columns = self._session_columns(batch)
        with nogil:
            dereference(self.table).restore(columns)
        return 0

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
