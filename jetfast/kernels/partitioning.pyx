# distutils: language = c++
"""Partitions of keys, as Spark SQL assigns them: its hash, pmod, and batches split by the owner of each row's partition."""

import os

import numpy as np
import pyarrow as pa

from cython.operator cimport dereference
from libc.stdint cimport int32_t, int64_t, uint32_t
from libcpp.string cimport string
from libcpp.utility cimport move
from libcpp.vector cimport vector

from jetfast.kernels._csrc.arena cimport Block
from jetfast.kernels._csrc.arrow_c_data cimport ColumnType
from jetfast.kernels._csrc.batch cimport Column, Rows
from jetfast.kernels._csrc.column_view cimport ColumnView, Kind
from jetfast.kernels._csrc.hash cimport hash_column, hash_scratch_values, is_hashable, kHashSeed
from jetfast.kernels._csrc.kernel_clock cimport KernelClock
from jetfast.kernels._csrc.partition cimport assign_partitions as assign_partitions_of_hashes
from jetfast.kernels._csrc.partition cimport split_rows, split_run
from jetfast.kernels._csrc.simd cimport SimdLevel, available_simd, choose_simd, simd_level, simd_name
from jetfast.kernels.carried import carried_schema

from jetfast.kernels.clocks cimport kernel_clock
from jetfast.kernels.columns cimport Batch, append_rows, column_types, import_array, make_batch, make_run, shared_arena


cdef _check_simd():
    cdef SimdLevel level
    cdef string problem
    cdef bytes wanted = os.environ.get("JETFAST_SIMD", "").encode()
    if not choose_simd(wanted, &level, &problem):
        raise ValueError(problem.decode())


_check_simd()


def simd():
    """Return the vector instructions in use, and the best that this machine has: "plain", "avx2" or "avx512"."""
    return simd_name(simd_level()).decode(), simd_name(available_simd()).decode()


cdef object _key_problem(object name, const ColumnView& view, object data_type):
    """TypeError for a column that Spark has no type for: says what to cast it to."""
    if view.kind == Kind.uint64:
        cast = "cast it to int64, or to decimal128(20, 0) if values may be 2^63 or more"
    elif view.kind == Kind.float16:
        cast = "cast it to float32"
    elif view.kind == Kind.decimal256:
        cast = f"cast it to decimal128(38, {min(view.scale, 38)})"
    else:
        cast = "take its parts as keys, or cast it to string"
    return TypeError(f"column {name!r} of type {data_type} cannot be a key: Spark has no hash for it; {cast}")


cdef _check_hashable(object name, const Column& column, object data_type):
    if not is_hashable(column.view):
        raise _key_problem(name, column.view, data_type)


def check_key_types(schema, keys):
    """Check that columns can be keys.

    Raises ValueError for a column that is not in `schema` (a pyarrow.Schema), TypeError naming the column and the cast to
    make for uint64, float16, decimal256 and nested types.
    """
    schema = carried_schema(schema)
    cdef vector[ColumnType] types = column_types(schema)
    cdef int index
    for key in keys:
        index = schema.get_field_index(key)
        if index < 0:
            raise ValueError(f"there is no column {key!r}; the columns are {', '.join(schema.names) or '(none)'}")
        if not is_hashable(types[index].view):
            raise _key_problem(key, types[index].view, schema.field(index).type)


def _named_columns(columns):
    """Columns as (name for messages, list of chunks)."""
    if isinstance(columns, Batch):
        columns = columns.to_arrow()
    if isinstance(columns, (pa.RecordBatch, pa.Table)):
        named = list(zip(columns.schema.names, columns.columns))
    elif isinstance(columns, (list, tuple)):
        named = list(enumerate(columns))
    else:
        named = [(0, columns)]
    return [(name, _chunks(name, column)) for name, column in named]


def _chunks(name, column):
    if isinstance(column, pa.ChunkedArray):
        return column.chunks or [pa.nulls(0, column.type)]
    if hasattr(column, "__arrow_c_array__"):
        return [column]
    if hasattr(column, "__arrow_c_stream__"):
        return _chunks(name, pa.chunked_array(column))
    if isinstance(column, np.ndarray):
        return [pa.array(column)]
    raise TypeError(f"column {name!r} must be an Arrow array, chunked array or numpy array, got {type(column).__name__}")


def hash_columns(columns):
    """Return Spark SQL's hash(...) of every row.

    columns : one array or a sequence of them (Arrow arrays, chunked ones, numpy arrays), or a RecordBatch, Table or Batch

    Returns
    -------
    hashes : int32 ndarray, shape (rows,); 42 where all values of a row are null

    Raises TypeError for types that Spark cannot hash (uint64, float16, decimal256, nested), naming the cast to make, and
    ValueError if columns differ in length or there is none.
    """
    cdef Column column
    cdef int64_t row_count = -1, start
    cdef bint uniform = True
    cdef uint32_t[::1] hashes_view
    cdef Block scratch
    cdef uint32_t* hashes
    hash_values = None
    for name, chunks in _named_columns(columns):
        length = sum(len(chunk) for chunk in chunks)
        if row_count < 0:
            row_count = length
            hash_values = np.full(row_count, kHashSeed, dtype=np.uint32)
            hashes_view = hash_values
        elif row_count != length:
            raise ValueError(f"column {name!r} has {length} rows, the columns before it {row_count}")
        start = 0
        for chunk in chunks:
            column = import_array(chunk, name)
            _check_hashable(name, column, getattr(chunk, "type", "?"))
            if column.view.row_count > 0:
                hashes = &hashes_view[start]
                with nogil:
                    scratch = shared_arena().allocate(hash_scratch_values(column.view) * 4)
                    hash_column(column.view, uniform, kHashSeed, hashes, <int32_t*>scratch.get())
                    scratch.reset()
            start += column.view.row_count
        uniform = False
    if row_count < 0:
        raise ValueError("hash_columns needs at least one column")
    return hash_values.view(np.int32)


def assign_partitions(columns, partition_count=271):
    """Return the partition of every row: Spark SQL's pmod(hash(...), partition_count).

    columns : as in hash_columns
    partition_count : int, at least 1

    Returns
    -------
    partition_ids : int32 ndarray, shape (rows,), values in [0, partition_count)
    """
    _check_partition_count(partition_count)
    partition_ids = hash_columns(columns)
    cdef int32_t[::1] ids = partition_ids
    cdef int32_t count = partition_count
    if ids.shape[0] > 0:
        with nogil:
            assign_partitions_of_hashes(<uint32_t*>&ids[0], ids.shape[0], count, &ids[0])
    return partition_ids


def _check_partition_count(partition_count):
    if not 1 <= partition_count < 2**31:
        raise ValueError(f"partition_count must be at least 1 and below 2^31, got {partition_count}")


cdef int64_t _RUN_ROWS = 1 << 15  # rows that are split together at most: they and their parts stay in the cache meanwhile


cdef struct Split:  # of one batch, or of several as one
    size_t first
    size_t batch_count
    int64_t row_count
    vector[Rows] parts
    Block order
    vector[int64_t] starts


cdef class Splitter:
    """Splits batches by the owner of each row's partition; the order of rows within an owner is kept.

    schema : pyarrow.Schema of the batches
    keys : names of the key columns; none means that every row is in partition 0
    owners : int32 ndarray, shape (partition_count,): destination of each partition, in [0, owner_count)
    owner_count : int, at least 1

    Raises ValueError and TypeError as check_key_types, and ValueError for owners out of range. May be used by several
    threads at once.
    """

    cdef readonly object schema
    cdef vector[int32_t] keys
    cdef vector[int32_t] owners
    cdef int32_t owner_count

    def __init__(self, schema, keys, owners, owner_count):
        check_key_types(schema, keys)
        owner_array = np.ascontiguousarray(owners)
        if owner_array.dtype != np.int32 or owner_array.ndim != 1 or len(owner_array) == 0:
            raise ValueError(f"owners must be int32, one per partition, got shape {owner_array.shape} of {owner_array.dtype}")
        if owner_count < 1 or owner_array.min() < 0 or owner_array.max() >= owner_count:
            raise ValueError(f"owners must be in [0, {owner_count}), got {owner_array.min()} to {owner_array.max()}")
        self.schema = schema
        self.owner_count = owner_count
        self.keys = [schema.get_field_index(key) for key in keys]
        self.owners = owner_array.tolist()

    def split(self, Batch batch not None):
        """Return one batch per owner, None where it gets no row. ValueError if the batch has another number of columns."""
        cdef list parts = []
        for run in self.split_all((batch,)):
            if run is not None and run.row_count == batch.row_count:
                parts.append(batch)  # it still knows where it comes from
            else:
                parts.append(None if run is None else run[0])
        return parts

    def split_all(self, batches not None):
        """Split batches that follow each other (a BatchRun, or a sequence of Batch), in one call without the GIL.

        Returns for each owner a BatchRun of its parts, in order, or None; where that is a mere copy, parts of several batches are
        one. Raises ValueError if a batch has another number of columns.
        """
        cdef vector[const Rows*] rows
        cdef vector[Split] splits
        cdef vector[vector[Rows]] parts_of_owners
        cdef size_t column_count = len(self.schema)
        cdef size_t index
        cdef int32_t owner
        schema = append_rows(batches, rows)
        parts_of_owners.resize(self.owner_count)
        if not rows.empty() and rows[0].columns.size() != column_count:
            raise ValueError(f"the batch has {rows[0].columns.size()} columns, the splitter's schema {column_count}")
        cdef KernelClock* clock = kernel_clock()
        if self.keys.empty():
            for index in range(rows.size()):
                if rows[index].row_count > 0:
                    parts_of_owners[self.owners[0]].push_back(rows[index][0])
        else:
            with nogil:
                clock.enter()
                self.split_rows_of(rows, splits)
                clock.leave()
            for index in range(splits.size()):
                self._hand_out(schema, rows[splits[index].first][0], splits[index], parts_of_owners)
        return [
            None if parts_of_owners[owner].empty() else make_run(schema, parts_of_owners[owner])
            for owner in range(self.owner_count)
        ]

    cdef int split_rows_of(self, const vector[const Rows*]& batches, vector[Split]& splits) except -1 nogil:
        """Split batches: as many together as fit into a run, or one by one."""
        cdef size_t first = 0, end
        cdef Split split
        while first < batches.size():
            split.first = first
            split.row_count = 0
            end = first
            while end < batches.size() and (end == first or split.row_count + batches[end].row_count <= _RUN_ROWS):
                split.row_count += batches[end].row_count
                end += 1
            split.batch_count = end - first
            if split.row_count > 0:
                splits.push_back(split)
                if not split_run(
                    dereference(shared_arena()), &batches[first], split.batch_count, self.keys, self.owners, self.owner_count,
                    &splits.back().parts,
                ):
                    splits.pop_back()
                    self.split_one_by_one(batches, first, end, splits)
            first = end
        return 0

    cdef int split_one_by_one(
        self, const vector[const Rows*]& batches, size_t first, size_t end, vector[Split]& splits
    ) except -1 nogil:
        cdef Split split
        cdef size_t index
        split.batch_count = 1
        for index in range(first, end):
            if batches[index].row_count > 0:
                split.first = index
                split.row_count = batches[index].row_count
                splits.push_back(split)
                splits.back().parts = split_rows(
                    dereference(shared_arena()), batches[index][0], self.keys, self.owners, self.owner_count,
                    &splits.back().order, &splits.back().starts,
                )
        return 0

    cdef int _hand_out(self, schema, const Rows& rows, Split& split, vector[vector[Rows]]& parts_of_owners) except -1:
        """Append the parts of a split, whose first batch has these rows, to those of their owners."""
        cdef int32_t owner
        cdef size_t column
        if split.batch_count == 1:
            for owner in range(self.owner_count):
                if split.parts[owner].row_count == split.row_count:
                    parts_of_owners[owner].push_back(rows)
                    return 0
        opaque = _opaque_columns(schema, rows, <int32_t*>split.order.get())
        for owner in range(self.owner_count):
            if split.parts[owner].row_count == 0:
                continue
            for column, name, array in opaque:
                split.parts[owner].columns[column] = import_array(
                    array.slice(split.starts[owner], split.parts[owner].row_count), name
                )
            parts_of_owners[owner].push_back(move(split.parts[owner]))
        return 0


cdef list _opaque_columns(schema, const Rows& rows, int32_t* order):
    """Columns that only Arrow can move, in the order of owners: (index, name, pyarrow array)."""
    cdef size_t column
    cdef Rows copied
    indices = [column for column in range(rows.columns.size()) if rows.columns[column].view.kind == Kind.nested]
    if not indices:
        return []
    copied = rows
    arrow = make_batch(schema, copied).to_arrow()
    order_array = pa.array(np.asarray(<int32_t[:rows.row_count]>order))
    return [(index, schema.field(index).name, arrow.column(index).take(order_array)) for index in indices]
