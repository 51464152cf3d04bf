# distutils: language = c++
"""Windowed aggregation by key: frames, lateness, sliding, emission and state (SEMANTICS 1.6 and 2)."""

import numpy as np
import pyarrow as pa

from cython.operator cimport dereference
from libc.stdint cimport INT64_MIN, int32_t, int64_t, uint32_t
from libcpp.memory cimport make_unique
from libcpp.utility cimport move
from libcpp.vector cimport vector

from jetfast.kernels.keys import check_batch_schema, plain_field
from jetfast.kernels.partitioning import check_key_types
from jetfast.types import format_time

from jetfast.kernels._csrc cimport window_table as cpp
from jetfast.kernels._csrc.accumulators cimport Field, FieldKind, ValueClass
from jetfast.kernels._csrc.batch cimport Rows
from jetfast.kernels._csrc.column_view cimport ColumnView
from jetfast.kernels._csrc.frame_table cimport FrameTable as CppFrameTable
from jetfast.kernels._csrc.key_index cimport KeyIndex
from jetfast.kernels._csrc.keyed_frames cimport AggregateKind, AggregateSpec, BatchColumns, MemoryUse, PartialColumns, Places, TableSpec
from jetfast.kernels._csrc.keyed_results cimport LateRows, Overflow
from jetfast.kernels._csrc.kernel_clock cimport KernelClock
from jetfast.kernels.clocks cimport kernel_clock
from jetfast.kernels.columns cimport Batch, append_rows, make_batch, make_run, shared_arena
from jetfast.kernels.keys cimport copy_views, plain_types

AGGREGATE_KINDS = (
    "count", "count_values", "sum", "mean", "min", "max", "var_samp", "var_pop", "stddev_samp", "stddev_pop",
)  # fmt: skip
"""Names of the aggregates, those of Spark SQL; count_values is Spark's count(column)."""

cdef int64_t _SAVED_ROWS = 1 << 20  # rows of state that are copied at a time
cdef int64_t _EMITTED_ROWS = 1 << 16  # of one batch of results


def _is_number(data_type):
    return (
        pa.types.is_integer(data_type)
        or pa.types.is_floating(data_type)
        or (pa.types.is_decimal(data_type) and not pa.types.is_decimal256(data_type))
    )


def _is_time(data_type):
    return (
        pa.types.is_date(data_type)
        or pa.types.is_time(data_type)
        or pa.types.is_timestamp(data_type)
        or pa.types.is_duration(data_type)
    )


def aggregate_result_type(kind, value_type):
    """Return the Arrow type of an aggregate's result, by Spark's rules.

    kind : one of AGGREGATE_KINDS
    value_type : pyarrow.DataType of the column (of the values, for a dictionary); None only for "count"

    Sums of integers are int64, of decimals decimal128(p + 10, s), of floats float64; means are float64, of decimals
    decimal128(p + 4, s + 4). Minimum and maximum have the type of the values. Raises TypeError for a type that cannot be
    aggregated so, and ValueError for an unknown kind.
    """
    if kind not in AGGREGATE_KINDS:
        raise ValueError(f"there is no aggregate {kind!r}; there are {', '.join(AGGREGATE_KINDS)}")
    if kind in ("count", "count_values"):
        return pa.int64()
    while pa.types.is_dictionary(value_type):
        value_type = value_type.value_type
    if pa.types.is_decimal256(value_type):
        raise TypeError(f"{kind} cannot take {value_type}; cast it to decimal128")
    if kind in ("min", "max"):
        if _is_number(value_type) or _is_time(value_type) or pa.types.is_boolean(value_type):
            return value_type
        raise TypeError(f"{kind} needs numbers, times or booleans, got {value_type}")
    if not _is_number(value_type):
        raise TypeError(f"{kind} needs numbers, got {value_type}")
    if kind == "sum":
        if pa.types.is_decimal(value_type):
            return pa.decimal128(min(value_type.precision + 10, 38), value_type.scale)
        return pa.float64() if pa.types.is_floating(value_type) else pa.int64()
    if kind == "mean" and pa.types.is_decimal(value_type):
        precision = min(value_type.precision + 4, 38)
        return pa.decimal128(precision, min(value_type.scale + 4, precision))
    return pa.float64()


def is_ranked(data_type):
    """Can results of this type be ranked while they are emitted? Numbers of up to 64 bits, times and booleans."""
    number = pa.types.is_integer(data_type) or pa.types.is_floating(data_type)
    return number or _is_time(data_type) or pa.types.is_boolean(data_type)


def _field_type(field):
    """The type of a field of partial results; wide ones are bytes, exactly as they lie in memory."""
    kind, value_class, width = field
    if kind in (<int>FieldKind.rows, <int>FieldKind.nulls):
        return pa.int64()
    if kind == <int>FieldKind.sum_double:
        return pa.float64()
    if kind in (<int>FieldKind.minimum, <int>FieldKind.maximum) and width == 8:
        if value_class == <int>ValueClass.i64:
            return pa.int64()
        return pa.uint64() if value_class == <int>ValueClass.u64 else pa.float64()
    return pa.binary(width)


_FIELD_NAMES = {
    <int>FieldKind.nulls: "nulls",
    <int>FieldKind.sum128: "sum",
    <int>FieldKind.sum192: "sum",
    <int>FieldKind.sum_float: "sum",
    <int>FieldKind.sum_double: "sum",
    <int>FieldKind.minimum: "min",
    <int>FieldKind.maximum: "max",
    <int>FieldKind.moments: "moments",
}


def unused_name(name, names):
    """Return the name, with underscores after it until it is not among names."""
    while name in names:
        name += "_"
    return name


cdef class TableLayout:
    """Checks the definition of a table and finds its columns. Shared by both stages, so that their partials agree."""

    def __init__(self, schema, keys, time, aggregates, size_us, slide_us, offset_us, partition_count):
        cdef AggregateSpec aggregate
        schema = Batch.empty(schema).schema
        check_key_types(schema, keys)
        self.schema = self.seen_schema = schema
        self.key_columns = [schema.get_field_index(key) for key in keys]
        self.key_schema = pa.schema([plain_field(schema.field(key)) for key in keys])
        self.time_column = self._find(time, "time")
        time_type = schema.field(self.time_column).type
        if not (pa.types.is_timestamp(time_type) or pa.types.is_date(time_type)):
            raise TypeError(f"the time column {time!r} must be a timestamp or date, it is {time_type}")
        if slide_us <= 0 or size_us <= 0 or size_us % slide_us:
            raise ValueError(f"size_us must be a positive multiple of slide_us, got {size_us} and {slide_us}")
        if not 1 <= partition_count < 2**31:
            raise ValueError(f"partition_count must be at least 1 and below 2^31, got {partition_count}")
        self.spec.shape.size = size_us
        self.spec.shape.slide = slide_us
        self.spec.shape.offset = offset_us % slide_us
        self.spec.partition_count = partition_count

        value_names = []
        result_fields = []
        columns = []
        for name, kind, column in aggregates:
            if kind != "count" and column is None:
                raise ValueError(f"aggregate {name!r}: {kind} needs a column")
            if kind == "count":
                columns.append(-1)
                value_type = None
            else:
                index = self._find(column, f"aggregate {name!r}:")
                value_type = plain_field(schema.field(index)).type
                if column not in value_names:
                    value_names.append(column)
                columns.append(value_names.index(column))
            try:
                result_fields.append(pa.field(name, aggregate_result_type(kind, value_type)))
            except TypeError as error:
                raise TypeError(f"aggregate {name!r} of column {column!r}: {error}") from None
        self.value_columns = [schema.get_field_index(name) for name in value_names]
        self.aggregate_names = [(name, kind, column) for name, kind, column in aggregates]
        self.spec.key_types = plain_types(self.key_schema)
        self.spec.value_types = plain_types(pa.schema([plain_field(schema.field(name)) for name in value_names]))
        cdef vector[ColumnView] result_types = plain_types(pa.schema(result_fields))
        for position, (_, kind, _) in enumerate(aggregates):
            aggregate.kind = <AggregateKind><int>AGGREGATE_KINDS.index(kind)
            aggregate.column = columns[position]
            aggregate.result_type = result_types[position]
            self.spec.aggregates.push_back(aggregate)

        times = [pa.field("window_start", pa.timestamp("us")), pa.field("window_end", pa.timestamp("us"))]
        self.output_schema = pa.schema([*self.key_schema, *times, *result_fields])
        names = self.output_schema.names
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two result columns are named {name!r}; rename a key or an aggregate")
        missed = pa.field("missed_until", pa.timestamp("us"))
        position = schema.get_field_index("missed_until")
        self.late_schema = schema.append(missed) if position < 0 else schema.set(position, missed)

    def _find(self, name, what):
        index = self.schema.get_field_index(name)
        if index < 0:
            raise ValueError(f"{what} there is no column {name!r}; the columns are {', '.join(self.schema.names)}")
        return index

    cdef int set_partial_schema(self, const vector[Field]& fields, tuple times=("frame",)) except -1:
        self.partial_schema = self.schema_of_fields(fields, times, pa.int64())
        return 0

    cdef object frame_schema(self, const vector[Field]& fields):
        """Of a frame as it lies: its end is the same in all rows."""
        return self.schema_of_fields(fields, ("frame",), pa.dictionary(pa.int64(), pa.int64()))

    cdef object schema_of_fields(self, const vector[Field]& fields, tuple times, time_type):
        """Of rows of keys, times and fields."""
        cdef size_t position
        result = list(self.key_schema)
        for name in times:
            result.append(pa.field(unused_name(name, [taken.name for taken in result]), time_type))
        for position in range(fields.size()):
            field = (<int>fields[position].kind, <int>fields[position].value_class, fields[position].width)
            if fields[position].column < 0:
                name = "rows"
            else:
                name = f"{self.schema.field(self.value_columns[fields[position].column]).name}.{_FIELD_NAMES[field[0]]}"
            result.append(pa.field(unused_name(name, [taken.name for taken in result]), _field_type(field)))
        return pa.schema(result)

    cdef int find_rows(self, batches) except -1:
        """Let `rows` be those of these batches: a BatchRun or Batches, which own them."""
        self.rows.clear()
        schema = append_rows(batches, self.rows)
        if schema is not None and schema is not self.seen_schema:
            check_batch_schema(schema, self.schema, "a batch for this window")
            self.seen_schema = schema
        return 0

    cdef int read_columns(self) except -1 nogil:
        """Let `columns` be those of `rows`. Memory is used again: one call for many batches costs each little."""
        cdef size_t position
        self.columns.resize(self.rows.size())
        for position in range(self.rows.size()):
            self.columns[position].row_count = self.rows[position].row_count
            copy_views(self.rows[position][0], self.key_columns, &self.columns[position].keys)
            self.columns[position].time = self.rows[position].columns[self.time_column].view
            copy_views(self.rows[position][0], self.value_columns, &self.columns[position].values)
        return 0

    cdef str overflow_message(self, Overflow overflow, KeyIndex& keys):
        cdef Rows key
        name, kind, column = self.aggregate_names[overflow.aggregate]
        key.row_count = 1
        key.columns = keys.keys_of(&overflow.slot, 1, dereference(shared_arena()))
        text = "all rows"
        if len(self.key_schema):
            values = make_batch(self.key_schema, key).to_arrow().to_pylist()[0]
            text = "key " + ", ".join(f"{key_name}={value!r}" for key_name, value in values.items())
        result_type = self.output_schema.field(name).type
        return (
            f"aggregate {name!r}: {kind} of {column!r} does not fit {result_type} for {text}"
            f" in the window [{format_time(overflow.window_start)}, {format_time(overflow.window_end)})"
        )

    cdef PartialColumns partial_columns(self, const Rows& rows) except *:
        cdef PartialColumns columns
        cdef size_t key_count = self.key_columns.size()
        cdef size_t position
        columns.row_count = rows.row_count
        for position in range(rows.columns.size()):
            if position < key_count:
                columns.keys.push_back(rows.columns[position].view)
            elif rows.columns[position].view.null_count > 0:
                raise ValueError(
                    f"column {self.partial_schema.names[position]!r} of partial results must not have nulls"
                )
            elif position == key_count:
                columns.frame = rows.columns[position].view
            else:
                columns.fields.push_back(rows.columns[position].view)
        return columns


cdef object _longs(const vector[uint32_t]& values):
    """A copy as int64."""
    copied = np.empty(values.size(), dtype=np.int64)
    cdef int64_t[::1] view = copied
    cdef size_t position
    for position in range(values.size()):
        view[position] = values[position]
    return copied


cdef tuple _taken_rows(const Places& places):
    rows = np.empty(places.rows.size(), dtype=np.int32)
    frames = np.empty(places.frames.size(), dtype=np.int64)
    cdef int32_t[::1] row_view = rows
    cdef int64_t[::1] frame_view = frames
    cdef size_t position
    for position in range(places.rows.size()):
        row_view[position] = places.rows[position]
    for position in range(places.frames.size()):
        frame_view[position] = places.frames[position]
    return rows, _longs(places.places), frames


cdef dict _memory(MemoryUse use):
    cells = max(use.entries, 1)
    return {
        "keys": use.keys,
        "frames": use.frames,
        "keys_and_frames": use.entries,
        "key_bytes": use.key_bytes,
        "frame_bytes": use.frame_bytes,
        "bytes_per_key": use.key_bytes // max(use.keys, 1),
        "bytes_per_key_and_frame": use.frame_bytes // cells,
    }


cdef class ResultTable:
    """What WindowTable and SessionTable share: rows are judged and counted, results emitted, state saved by partition."""

    cdef int start(self, TableLayout layout, partitions, str state_kind) except -1:
        self.layout = layout
        self.state_kind = state_kind
        partition_count = layout.spec.partition_count
        self.owned = frozenset(range(partition_count) if partitions is None else map(int, partitions))
        for partition in self.owned:
            self._check_partition(partition)
        return 0

    cdef int restore_rows(self, Batch batch) except -1:
        raise NotImplementedError

    @property
    def output_schema(self):
        """Keys, window_start, window_end (timestamp[us], end exclusive), aggregates."""
        return self.layout.output_schema

    @property
    def partial_schema(self):
        """Of partial results and of saved state: keys, times (int64 microseconds), rows, the fields of each value column.

        The times: of windows "frame", its exclusive end; of sessions "first" and "last", those of rows.
        """
        return self.layout.partial_schema

    @property
    def late_schema(self):
        """The input's columns and missed_until: timestamp[us], the end of the last window that the row missed.

        Null for sessions: there is no window that a late row missed.
        """
        return self.layout.late_schema

    @property
    def rows(self):
        """All rows taken in: on time, partly late, late and rejected ones."""
        return self.results.rows

    @property
    def late_rows(self):
        """Rows that missed every window."""
        return self.results.late_rows

    @property
    def partly_late_rows(self):
        """Rows that missed some windows and count in the others; of sessions always 0."""
        return self.results.partly_late_rows

    @property
    def rejected_rows(self):
        """Rows whose time is null or does not fit 64 bits of microseconds."""
        return self.results.rejected_rows

    def tell_places(self):
        """From now on tell where rows go, for states that are kept beside the table. Rows then are taken in more slowly.

        A place is a small number: of windows the slot of a key, of sessions the session. It gets another meaning only when
        what it stood for has been emitted.
        """
        self.results.places = &self.places

    def taken_rows(self):
        """Return which rows the last call took in, and where to: of a batch, of partials, or of restored state.

        Returns
        -------
        rows : int32 ndarray, shape (taken rows,)
        places : int64 ndarray, shape (taken rows,)
        frames : int64 ndarray, shape (taken rows,): the ends of their frames; of sessions empty
        """
        return _taken_rows(self.places)

    def merged_places(self):
        """Return which sessions the last call joined, as two int64 ndarrays: what was at the first is now at the second.

        `taken_rows` of that call speaks of what is left.
        """
        return _longs(self.places.merged_from), _longs(self.places.merged_to)

    def emitted_places(self):
        """Return the place of each row that the last `emit` gave: int64 ndarray, shape (rows,)."""
        return _longs(self.places.places)

    def row_counts(self):
        """Return the rows on time, late, partly late and rejected; every row taken in is in exactly one of these."""
        cdef int64_t late = self.results.late_rows
        cdef int64_t partly_late = self.results.partly_late_rows
        cdef int64_t rejected = self.results.rejected_rows
        return self.results.rows - late - partly_late - rejected, late, partly_late, rejected

    def accumulate(self, Batch batch not None, collect_late=False):
        """Take in rows, judged by the last watermark.

        Returns a batch of late_schema with the rows that missed a window, in their order, or None if there is none (or
        `collect_late` is False). Raises ValueError while results that are due have not been emitted.
        """
        cdef LateRows late
        cdef LateRows* late_target = &late if collect_late else NULL
        cdef KernelClock* clock = kernel_clock()
        self.layout.find_rows((batch,))
        self.started = True
        with nogil:
            clock.enter()
            self.layout.read_columns()
            self.results.accumulate(self.layout.columns[0], late_target)
            clock.leave()
        if late.rows.empty():
            return None
        cdef int64_t count = late.rows.size()
        rows = np.asarray(<int32_t[:count]>late.rows.data()).copy()
        if late.missed_until.empty():
            missed_until = pa.nulls(count, pa.timestamp("us"))
        else:
            missed_until = pa.array(np.asarray(<int64_t[:count]>late.missed_until.data()).copy()).view(pa.timestamp("us"))
        missed = pa.record_batch([missed_until], names=["missed_until"])
        return batch.take(rows).with_columns(Batch.from_arrow(missed))

    def emit(self, int64_t rows_max=_EMITTED_ROWS):
        """Return the next due results (output_schema, ascending window_end, at most rows_max rows), or None: none is left.

        Raises OverflowError naming aggregate, key and window if a sum does not fit its type.
        """
        cdef Rows rows
        if rows_max < 1:
            raise ValueError(f"rows_max must be at least 1, got {rows_max}")
        if not self.results.is_emitting():
            return None
        cdef KernelClock* clock = kernel_clock()
        try:
            with nogil:
                clock.enter()
                rows = self.results.emit(rows_max)
                clock.leave()
        except OverflowError:
            raise OverflowError(self.layout.overflow_message(self.results.overflow, self.results.keys())) from None
        if rows.row_count == 0:
            return None
        return make_batch(self.layout.output_schema, rows)

    def emit_run(self, int64_t rows_max=32768):
        """Return the next due results as `emit` does, found in one call without the GIL: a BatchRun, which ends when it has
        rows_max rows or more. None: none is left."""
        cdef vector[Rows] batches
        cdef int64_t row_count = 0
        if rows_max < 1:
            raise ValueError(f"rows_max must be at least 1, got {rows_max}")
        if not self.results.is_emitting():
            return None
        cdef KernelClock* clock = kernel_clock()
        try:
            with nogil:
                clock.enter()
                while row_count < rows_max and self.results.is_emitting():
                    batches.push_back(self.results.emit(_EMITTED_ROWS))
                    row_count += batches.back().row_count
                    if batches.back().row_count == 0:
                        batches.pop_back()
                clock.leave()
        except OverflowError:
            raise OverflowError(self.layout.overflow_message(self.results.overflow, self.results.keys())) from None
        return None if batches.empty() else make_run(self.layout.output_schema, batches)

    def save(self):
        """Return what is open: a list of pyarrow.RecordBatch of partial_schema, of about one million rows at most.

        `bounds` goes with it; counts of rows are not part of the state. ValueError while results that are due have not been
        emitted.
        """
        return [rows for rows, _ in self.save_with_places()]

    def save_with_places(self):
        """Return the batches of `save`, each with the places of its rows (`tell_places`)."""
        cdef int64_t cursor = INT64_MIN
        cdef Rows rows
        state = []
        while True:
            with nogil:
                rows = self.results.save(cursor, _SAVED_ROWS)
            if rows.row_count == 0:
                return state
            saved = make_batch(self.layout.partial_schema, rows).to_arrow()
            state.append((saved, _longs(self.places.places)))

    def bounds(self):
        """Return, by owned partition, up to which watermark its results have been emitted; nothing before the first one."""
        bounds = {partition: self.results.bound(partition) for partition in sorted(self.owned)}
        return {partition: bound for partition, bound in bounds.items() if bound > INT64_MIN}

    def _check_partition(self, partition):
        if not 0 <= partition < self.layout.spec.partition_count:
            raise ValueError(f"partition must be in [0, {self.layout.spec.partition_count}), got {partition}")

    def restore(self, rows):
        """Take back saved rows (pyarrow.RecordBatch), in any order, before any row or watermark.

        Another size, slide or timeout than the saved one is allowed: frames move to the next boundary and merge; sessions
        get new ends, and those that now meet merge. Raises ValueError for keys or aggregates other than the saved ones.
        """
        self._check_not_started()
        saved = f"saved {self.state_kind} (is the pipeline another one?)"
        check_batch_schema(rows.schema, self.layout.partial_schema, saved)
        self.restore_rows(Batch.from_arrow(rows))

    def restore_bound(self, partition, int64_t bound):
        """Take back the bound of a partition; nothing happens if this table does not own it."""
        self._check_partition(partition)
        self._check_not_started()
        if partition in self.owned:
            self.results.restore_bound(partition, bound)

    def finish_restore(self):
        """All state has come back; rows may follow."""
        with nogil:
            self.results.finish_restore()
        self.started = True

    def check_invariants(self):
        """Read the whole state and compare what must fit together; RuntimeError with the invariant that is violated."""
        with nogil:
            self.results.check_invariants()

    cdef int _check_not_started(self) except -1:
        if self.started:
            raise ValueError("state can only be restored before the first row and watermark")
        return 0


cdef class WindowTable(ResultTable):
    """Aggregates per key and window; the state of one processor. Used by one thread.

    schema : pyarrow.Schema of the batches
    keys : names of the key columns; none means one global key
    time : name of the event time column (timestamp or date)
    aggregates : (result name, one of AGGREGATE_KINDS, input column or None)
    size_us, slide_us, offset_us : the window, in microseconds; size a multiple of slide
    partition_count : of the cluster
    partitions : the partitions that this table owns, all if None; `bounds` has one for each

    A row counts in every window that holds it and has not been emitted. `accumulate`, then `advance` and `emit` until it
    gives None, then `accumulate` again. Raises ValueError for unknown columns, TypeError for types that cannot be used.
    """

    def __init__(
        self, schema, keys, time, aggregates, size_us, slide_us, offset_us=0, partition_count=271, partitions=None
    ):
        layout = TableLayout(schema, keys, time, aggregates, size_us, slide_us, offset_us, partition_count)
        self.start(layout, partitions, "windows")
        self.table = make_unique[cpp.WindowTable](self.layout.spec, dereference(shared_arena()))
        self.results = self.table.get()
        self.layout.set_partial_schema(self.results.partial_fields())
        self.frame_schema = self.layout.frame_schema(dereference(self.table).fields())

    def keep_top(self, str by, int64_t count, bint ascending=False, per=()):
        """Emit only the `count` best results of each window, or of each group of keys `per` in it; others are never made.

        by : aggregate whose values are compared: the greatest are best (`ascending`: the least); NaN is greater than any
            number, nulls are worst. Of equal values the least keys are best, column by column, nulls last
        Raises ValueError for names that are not there, TypeError for decimals and for what is not a plain number or time.
        """
        cdef cpp.TopSpec spec
        names = [name for name, _, _ in self.layout.aggregate_names]
        if by not in names:
            raise ValueError(f"there is no aggregate {by!r}; there are {', '.join(names)}")
        if not is_ranked(self.layout.output_schema.field(by).type):
            raise TypeError(f"results are not ranked by {by!r}: {self.layout.output_schema.field(by).type}")
        if count < 1:
            raise ValueError(f"count must be at least 1, got {count}")
        spec.aggregate = names.index(by)
        spec.count = count
        spec.ascending = ascending
        for key in per:
            if key not in self.layout.key_schema.names:
                raise ValueError(f"there is no key {key!r}; there are {', '.join(self.layout.key_schema.names)}")
            spec.group_keys.push_back(self.layout.key_schema.names.index(key))
        dereference(self.table).keep_top(spec)

    def accumulate_all(self, batches):
        """Take in several batches, one after the other, in one call without the GIL; rows that are late are only counted."""
        cdef size_t position
        cdef KernelClock* clock = kernel_clock()
        self.layout.find_rows(batches)
        self.started = True
        with nogil:
            clock.enter()
            self.layout.read_columns()
            for position in range(self.layout.columns.size()):
                dereference(self.table).accumulate(self.layout.columns[position], NULL)
            clock.leave()

    def accumulate_partials(self, Batch batch not None):
        """Take in partial results of a first stage: rows of partial_schema, or of a frame as it lies (`FrameTable.share_frames`).
        Lateness counts the rows they stand for."""
        self.accumulate_all_partials((batch,))

    def accumulate_all_partials(self, batches):
        """`accumulate_partials` of several batches of one schema, one after the other, in one call without the GIL."""
        cdef vector[const Rows*] rows
        cdef vector[PartialColumns] columns
        cdef size_t position
        cdef KernelClock* clock = kernel_clock()
        schema = append_rows(batches, rows)
        if schema is None:
            return
        cdef bint is_frame = self._is_frame(schema)
        columns.reserve(rows.size())
        for position in range(rows.size()):
            if rows[position].row_count == 0:  # a frame without rows has no end
                continue
            columns.push_back(self.layout.partial_columns(rows[position][0]))
            columns.back().columns = rows[position]
        self.started = True
        with nogil:
            clock.enter()
            for position in range(columns.size()):
                if is_frame:
                    dereference(self.table).accumulate_frame(columns[position])
                else:
                    dereference(self.table).accumulate_partials(columns[position])
            clock.leave()

    cdef int _is_frame(self, schema) except -1:
        """Are rows of this schema a frame as it lies? If not, they are partials."""
        if schema is self.seen_frame_schema:
            return 1
        if schema is self.seen_partial_schema:
            return 0
        if schema.equals(self.frame_schema) and not schema.equals(self.layout.partial_schema):
            self.seen_frame_schema = schema
            return 1
        check_batch_schema(schema, self.layout.partial_schema, "a batch of partial results")
        self.seen_partial_schema = schema
        return 0

    def advance(self, int64_t watermark):
        """Make every window with an end at or below the watermark due. MAX_TIME: all. ValueError if it goes back.

        Returns whether any is due; if not, there is nothing to emit.
        """
        self.started = True
        dereference(self.table).advance(watermark)  # takes less time than to let go of the GIL and to get it back
        return dereference(self.table).is_emitting()

    cdef int restore_rows(self, Batch batch) except -1:
        cdef PartialColumns columns = self.layout.partial_columns(batch.rows)
        with nogil:
            dereference(self.table).restore(columns)
        return 0

    def memory(self):
        """Return what the state takes: keys, frames, keys_and_frames (entries), key_bytes, frame_bytes, and the averages
        bytes_per_key and bytes_per_key_and_frame (which count spare frames and idle keys too)."""
        return _memory(dereference(self.table).memory())


cdef class FrameTable:
    """First stage of two: accumulates per key and frame, judges nothing, gives partial results away. Used by one thread.

    Parameters as for WindowTable.
    """

    def __init__(self, schema, keys, time, aggregates, size_us, slide_us, offset_us=0):
        self.layout = TableLayout(schema, keys, time, aggregates, size_us, slide_us, offset_us, 1)
        self.table = make_unique[CppFrameTable](self.layout.spec, dereference(shared_arena()))
        self.layout.set_partial_schema(dereference(self.table).partial_fields())
        self.frame_schema = self.layout.frame_schema(dereference(self.table).fields())

    def set_owners(self, owners, int32_t owner_count):
        """Give partials by the owner of their keys from now on: `owner` tells whose those of the last call are.

        owners : int32 ndarray, shape (partition_count,), in [0, owner_count)
        Raises ValueError for owners out of range. Before the first row.
        """
        if owner_count < 1 or len(owners) == 0 or min(owners) < 0 or max(owners) >= owner_count:
            raise ValueError(f"owners must be in [0, {owner_count}), one for each partition")
        dereference(self.table).set_owners(owners, owner_count)

    def share_frames(self):
        """From now on a frame that many keys have rows in leaves as it lies, to each owner the part of his keys: not of
        `partial_schema`, but as WindowTable takes it too. Before the first row."""
        dereference(self.table).share_frames()

    def check_invariants(self):
        """Read the whole state and compare what must fit together; RuntimeError with the invariant that is violated."""
        with nogil:
            dereference(self.table).check_invariants()

    @property
    def owner(self):
        """Of all that the last `take_partials` gave; 0 if there are no owners."""
        return dereference(self.table).owner

    @property
    def partials(self):
        """Pairs of a key and a frame that it has rows in, of all frames that have left."""
        return dereference(self.table).partials

    @property
    def partial_rows(self):
        """Rows that were in those frames."""
        return dereference(self.table).partial_rows

    @property
    def frames_left(self):
        """How many frames that is."""
        return dereference(self.table).frames_left

    @property
    def keys(self):
        """Keys that have a slot: those of the frames, and others that left a while ago."""
        return dereference(self.table).keys().live()

    @property
    def partial_schema(self):
        """As WindowTable.partial_schema of the same definition."""
        return self.layout.partial_schema

    @property
    def rows(self):
        """All rows taken in, rejected ones included."""
        return dereference(self.table).rows

    @property
    def rejected_rows(self):
        """Rows whose time is null or does not fit 64 bits of microseconds."""
        return dereference(self.table).rejected_rows

    def accumulate(self, Batch batch not None):
        """Take in rows. Raises ValueError while partials that are due have not been taken."""
        self.accumulate_all((batch,))

    def accumulate_all(self, batches):
        """Take in several batches, one after the other, in one call without the GIL."""
        cdef size_t position
        cdef KernelClock* clock = kernel_clock()
        self.layout.find_rows(batches)
        with nogil:
            clock.enter()
            self.layout.read_columns()
            for position in range(self.layout.columns.size()):
                dereference(self.table).accumulate(self.layout.columns[position], NULL)
            clock.leave()

    def advance(self, int64_t watermark):
        """Make every frame that ends at or below the watermark due."""
        dereference(self.table).advance(watermark)

    def flush(self):
        """Make every frame due."""
        dereference(self.table).flush()

    def forget_keys(self):
        """Let go of all keys that are in no frame; some are kept otherwise, for they often come back."""
        dereference(self.table).forget_keys()

    def take_partials(self, int64_t rows_max=65536):
        """Return the next due partials (partial_schema, of one owner, for whom frames ascend; at most rows_max rows), or None:
        none is left. Of frames that nearly all keys have rows in, the others come along with a row count of 0."""
        cdef Rows rows
        if rows_max < 1:
            raise ValueError(f"rows_max must be at least 1, got {rows_max}")
        cdef KernelClock* clock = kernel_clock()
        with nogil:
            clock.enter()
            rows = dereference(self.table).emit(rows_max)
            clock.leave()
        if rows.row_count == 0:
            return None
        return make_batch(self.frame_schema if dereference(self.table).is_frame else self.layout.partial_schema, rows)

    def take_partial_run(self, int64_t rows_max=32768):
        """Return the next due partials as `take_partials` does, found in one call without the GIL, until there are rows_max rows
        or more: a list of (owner, BatchRun), in each batches of one schema. Empty: none is left."""
        cdef vector[Rows] batches
        cdef vector[int32_t] owners
        cdef vector[int] is_frame
        cdef int64_t row_count = 0
        if rows_max < 1:
            raise ValueError(f"rows_max must be at least 1, got {rows_max}")
        if not dereference(self.table).has_due():
            return []
        cdef KernelClock* clock = kernel_clock()
        with nogil:
            clock.enter()
            while row_count < rows_max and dereference(self.table).has_due():
                batches.push_back(dereference(self.table).emit(_EMITTED_ROWS))
                owners.push_back(dereference(self.table).owner)
                is_frame.push_back(dereference(self.table).is_frame)
                row_count += batches.back().row_count
            clock.leave()
        return self._runs_of_owners(batches, owners, is_frame)

    cdef list _runs_of_owners(self, vector[Rows]& batches, const vector[int32_t]& owners, const vector[int]& is_frame):
        """Those of one owner together, as long as they have one schema."""
        cdef vector[Rows] run
        cdef vector[int] taken
        cdef list runs = []
        cdef size_t first, index
        taken.resize(batches.size(), 0)
        for first in range(batches.size()):
            if taken[first] or batches[first].row_count == 0:
                continue
            run.clear()
            for index in range(first, batches.size()):
                if owners[index] != owners[first] or batches[index].row_count == 0:
                    continue
                if is_frame[index] != is_frame[first]:
                    break
                taken[index] = 1
                run.push_back(move(batches[index]))
            runs.append((owners[first], make_run(self.frame_schema if is_frame[first] else self.layout.partial_schema, run)))
        return runs

    def tell_places(self):
        """As WindowTable.tell_places."""
        dereference(self.table).places = &self.places

    def taken_rows(self):
        """As WindowTable.taken_rows."""
        return _taken_rows(self.places)

    def partial_places(self):
        """Return the place of each row that the last `take_partials` gave: int64 ndarray, shape (rows,)."""
        return _longs(self.places.places)

    def memory(self):
        """As WindowTable.memory."""
        return _memory(dereference(self.table).memory())
