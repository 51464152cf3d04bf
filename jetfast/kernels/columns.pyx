# distutils: language = c++
"""The engine's batch: columns in pooled or foreign memory, and its doors to and from Arrow (C data interface, zero-copy)."""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_FillInfo, PyObject_GetBuffer
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_IsValid, PyCapsule_New
from cython.operator cimport dereference
from libc.stdint cimport int32_t, int64_t, uint8_t, uintptr_t
from libc.string cimport memcpy, memset
from libcpp cimport bool as cbool
from libcpp.memory cimport make_shared, shared_ptr
from libcpp.utility cimport move
from libcpp.vector cimport vector

import itertools

import numpy as np
import pyarrow as pa

cimport numpy as cnp

from jetfast.kernels._csrc.arena cimport Arena, ArenaStatistics, Block
from jetfast.kernels._csrc.arrow_c_data cimport (
    ArrowArray,
    ArrowArrayStream,
    ArrowSchema,
    ColumnType,
    export_column,
    export_rows,
    import_rows,
    import_single,
    parse_column_type,
    parse_schema,
)
from jetfast.kernels._csrc.batch cimport Column, Rows, column_bytes, slice_rows
from jetfast.kernels._csrc.column_view cimport ColumnView, Kind, Layout, TimeUnit
from jetfast.kernels._csrc.framing cimport Message, OpaqueBytes, decode_rows, encode_rows
from jetfast.kernels._csrc.gather cimport concatenate_columns, first_out_of_range, take_column
from jetfast.kernels._csrc.kernel_clock cimport KernelClock
from jetfast.kernels._csrc.sent_columns cimport ReceivedColumns as CppReceivedColumns
from jetfast.kernels._csrc.sent_columns cimport SentColumns as CppSentColumns
from jetfast.kernels._csrc.timestamps cimport convert_to_microseconds, expand_validity, is_time_kind

from jetfast.kernels.carried import carried_array, carried_rows, carried_schema, carried_type

from jetfast.kernels.clocks cimport kernel_clock

cnp.import_array()

cdef extern from *:
    """
    #include <memory>
    // A buffer of a Python object, released under the GIL by whatever thread drops its last column.
    struct PythonBuffer {
      Py_buffer buffer{};
      ~PythonBuffer() {
        if (buffer.obj == nullptr || !Py_IsInitialized()) return;
        PyGILState_STATE state = PyGILState_Ensure();
        PyBuffer_Release(&buffer);
        PyGILState_Release(state);
      }
    };
    static inline std::shared_ptr<PythonBuffer> make_python_buffer() { return std::make_shared<PythonBuffer>(); }
    template <typename Owner>
    static inline std::shared_ptr<const void> owned_by(const Owner& owner) { return owner; }
    """
    cdef cppclass PythonBuffer:
        Py_buffer buffer
    shared_ptr[PythonBuffer] make_python_buffer() except +
    shared_ptr[const void] owned_by(const Block& owner) nogil
    shared_ptr[const void] owned_by(const shared_ptr[PythonBuffer]& owner) nogil

# Never destroyed: batches may be dropped by any thread up to the end of the process.
cdef Arena* _arena = new Arena()


cdef Arena* shared_arena() noexcept nogil:
    return _arena


def arena_statistics():
    """Return what the pool of this process holds.

    Returns
    -------
    dict of int : "bytes_in_use" and "bytes_pooled" (whole blocks), "allocations" (blocks from the system) and "reuses", ever
    """
    cdef ArenaStatistics statistics = _arena.statistics()
    return {
        "bytes_in_use": statistics.bytes_in_use,
        "bytes_pooled": statistics.bytes_pooled,
        "allocations": statistics.allocations,
        "reuses": statistics.reuses,
    }


cdef class _PooledMemory:
    cdef Block block
    cdef int64_t size

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self.block.get(), self.size, 0, flags)


def pooled_memory(int64_t size):
    """Return memory of the pool as a writable memoryview, shape (size,), of bytes that are whatever was there.

    It goes back when the last view of it is gone, on any thread. ValueError for a negative size.
    """
    if size < 0:
        raise ValueError(f"size must not be negative, got {size}")
    cdef _PooledMemory memory = _PooledMemory.__new__(_PooledMemory)
    memory.block = _arena.allocate(size)
    memory.size = size
    return memoryview(memory)


def release_pooled():
    """Give the memory that waits in the pool back to the system."""
    with nogil:
        _arena.release_pooled()


# ---- schemas ---------------------------------------------------------------------------------------------------------


cdef vector[ColumnType] column_types(object schema) except *:
    capsule = schema.__arrow_c_schema__()
    return parse_schema(dereference(<ArrowSchema*>PyCapsule_GetPointer(capsule, "arrow_schema")))


cdef cbool _is_converted(const vector[ColumnType]& types):
    cdef size_t index
    for index in range(types.size()):
        if types[index].is_converted:
            return True
    return False


cdef cbool _has_null_values(const Rows& rows):
    """Is there a dictionary with a null among its values? Its rows are null, though their codes are not."""
    cdef size_t index
    for index in range(rows.columns.size()):
        if rows.columns[index].view.layout == Layout.dictionary and rows.columns[index].view.dictionary.null_count > 0:
            return True
    return False


cdef Batch _carried_batch(object schema, Rows& rows):
    cdef Batch batch = make_batch(schema, rows)
    return Batch.from_arrow(carried_rows(batch.to_arrow())) if _has_null_values(batch.rows) else batch


cdef cbool _has_metadata(const vector[ColumnType]& types):
    cdef size_t index
    for index in range(types.size()):
        if types[index].has_metadata:
            return True
    return False


cdef ArrowSchema* _schema_pointer(object capsule) except NULL:
    if not PyCapsule_IsValid(capsule, "arrow_schema"):
        raise ValueError(f"__arrow_c_array__ must give a schema capsule first, got {type(capsule).__name__}")
    return <ArrowSchema*>PyCapsule_GetPointer(capsule, "arrow_schema")


cdef ArrowArray* _array_pointer(object capsule) except NULL:
    if not PyCapsule_IsValid(capsule, "arrow_array"):
        raise ValueError(f"__arrow_c_array__ must give an array capsule second, got {type(capsule).__name__}")
    return <ArrowArray*>PyCapsule_GetPointer(capsule, "arrow_array")


cdef Column import_array(object array, object name) except *:
    cdef ColumnType type
    cdef bytes encoded = str(name).encode()
    if not hasattr(array, "__arrow_c_array__"):
        raise TypeError(f"column {name!r} must be an Arrow array (offer __arrow_c_array__), got {_type_name(array)}")
    schema_capsule, array_capsule = array.__arrow_c_array__()
    type = parse_column_type(dereference(_schema_pointer(schema_capsule)))
    type.name = encoded
    if type.is_converted:
        imported = pa.Array._import_from_c_capsule(schema_capsule, array_capsule)
        return import_array(carried_array(imported, carried_type(imported.type)), name)
    return import_single(type, _array_pointer(array_capsule))


# ---- what a channel carries once -------------------------------------------------------------------------------------


cdef class SentColumns:
    """Columns that the receiver of a channel keeps, as its sender knows them: 64 at most, of 16 MB. One thread at a time."""

    cdef CppSentColumns columns

    def settle(self):
        """The message that was encoded last has left."""
        self.columns.settle()


cdef class ReceivedColumns:
    """Columns that a channel keeps since they come again: what its sender's `SentColumns` says. One thread at a time."""

    cdef CppReceivedColumns columns


# ---- the batch -------------------------------------------------------------------------------------------------------


def _type_name(value):
    return f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")


cdef Batch make_batch(object schema, Rows& rows):
    cdef Batch batch = Batch.__new__(Batch)
    batch.schema = schema
    batch.row_count = rows.row_count
    batch.rows = move(rows)
    return batch


cdef Batch _with_origin(Batch batch, object partition, int64_t first_row):
    batch.partition = partition
    batch.first_row = first_row
    return batch


cdef void _release_array_capsule(object capsule) noexcept:
    cdef ArrowArray* array = <ArrowArray*>PyCapsule_GetPointer(capsule, "arrow_array")
    if array.release != NULL:
        array.release(array)
    PyMem_Free(array)


@cython.no_gc  # what it refers to never refers back: not looking at thousands of them spares collections
cdef class Batch:
    """Rows in columns: immutable, counted references to pooled memory or to foreign Arrow buffers.

    Made by `from_arrow`, `empty`, `decode` and by the kernels; may be read from several threads at once.
    """

    def __init__(self):
        raise TypeError("a Batch is made by Batch.from_arrow, Batch.empty or batches_from_arrow")

    def __len__(self):
        return self.row_count

    def __repr__(self):
        return f"Batch({self.row_count} rows: {', '.join(f'{field.name}: {field.type}' for field in self.schema)})"

    def __reduce__(self):
        return Batch.from_arrow, (self.to_arrow(),)

    @property
    def column_names(self):
        """Names of the columns, in order."""
        return self.schema.names

    @property
    def origin(self):
        """(source partition, number of the first row in it), or None if that is not known."""
        return None if self.partition is None else (self.partition, self.first_row)

    @property
    def nbytes(self):
        """Bytes that these rows take: slices by their rows, dictionaries by the share of the rows."""
        return self.count_bytes()

    cdef int64_t count_bytes(self) except -1:
        cdef int64_t total = 0
        cdef Column* column
        cdef size_t index
        for index in range(self.rows.columns.size()):
            column = &self.rows.columns[index]
            total += column_bytes(column.view)
            if column.view.layout == Layout.opaque:
                total += _to_arrow_array(dereference(column), self.schema.field(index).type).nbytes
        return total

    cdef int find_column(self, name) except -1:
        cdef int index = self.schema.get_field_index(name)
        if index < 0:
            count = self.schema.names.count(name)
            problem = f"{count} columns are named {name!r}" if count else f"there is no column {name!r}"
            raise ValueError(f"{problem}; the columns are {', '.join(self.schema.names) or '(none)'}")
        return index

    @staticmethod
    def from_arrow(source):
        """Take in rows without copying them.

        source : anything with `__arrow_c_array__` whose array is a struct, such as a pyarrow.RecordBatch. Its columns
            are taken in as `jetfast.kernels.carried` says: extension types as their storage, run ends decoded, and so on

        Like all who take Arrow data from the same process, this trusts what buffers hold (offsets, dictionary codes, views);
        pyarrow reads damaged files without a word, so call `validate(full=True)` on what comes from outside.

        Raises ValueError for anything else, and for arrays that contradict their schema.
        """
        if isinstance(source, Batch):
            return source
        if not hasattr(source, "__arrow_c_array__"):
            hint = "; take batches_from_arrow for tables and streams" if hasattr(source, "__arrow_c_stream__") else ""
            raise ValueError(f"a batch is made from an object with __arrow_c_array__, got {_type_name(source)}{hint}")
        schema_capsule, array_capsule = source.__arrow_c_array__()
        cdef vector[ColumnType] types = parse_schema(dereference(_schema_pointer(schema_capsule)))
        if _is_converted(types):
            return Batch.from_arrow(carried_rows(pa.RecordBatch._import_from_c_capsule(schema_capsule, array_capsule)))
        schema = source.schema if isinstance(source, pa.RecordBatch) else pa.Schema._import_from_c_capsule(schema_capsule)
        if _has_metadata(types):
            schema = carried_schema(schema)
        # This takes less time than to let go of the GIL and to get it back.
        cdef Rows rows = import_rows(types, _array_pointer(array_capsule))
        return _carried_batch(schema, rows)

    @staticmethod
    def empty(schema):
        """Return a batch of no rows."""
        schema = carried_schema(schema)
        return Batch.from_arrow(
            pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)
        )

    def to_arrow(self):
        """Return the rows as a pyarrow.RecordBatch that shares this batch's memory."""
        cdef ArrowArray array
        memset(&array, 0, sizeof(ArrowArray))
        with nogil:
            export_rows(self.rows, dereference(_arena), &array)
        return pa.RecordBatch._import_from_c(<uintptr_t>&array, self.schema)

    def __arrow_c_schema__(self):
        """Arrow PyCapsule interface: the schema."""
        return self.schema.__arrow_c_schema__()

    def __arrow_c_array__(self, requested_schema=None):
        """Arrow PyCapsule interface: schema and rows, zero-copy unless another schema is requested."""
        if requested_schema is not None:
            return self.to_arrow().__arrow_c_array__(requested_schema)
        schema_capsule = self.schema.__arrow_c_schema__()
        cdef ArrowArray* array = <ArrowArray*>PyMem_Malloc(sizeof(ArrowArray))
        if array == NULL:
            raise MemoryError()
        memset(array, 0, sizeof(ArrowArray))
        try:
            array_capsule = PyCapsule_New(array, "arrow_array", &_release_array_capsule)
        except BaseException:
            PyMem_Free(array)
            raise
        with nogil:
            export_rows(self.rows, dereference(_arena), array)
        return schema_capsule, array_capsule

    def with_origin(self, partition, first_row):
        """Return these rows, known to come from a source partition, numbered in it from `first_row` on; zero-copy."""
        cdef Rows rows = self.rows
        return _with_origin(make_batch(self.schema, rows), partition, first_row)

    def slice(self, start, row_count=None):
        """Return rows [start, start + row_count), or all from `start` on; zero-copy. ValueError outside of the batch."""
        cdef int64_t first = start
        cdef int64_t count = self.row_count - first if row_count is None else row_count
        if first < 0 or count < 0 or first > self.row_count or count > self.row_count - first:
            raise ValueError(f"rows [{first}, {first + count}) are not in a batch of {self.row_count} rows")
        cdef Rows rows = slice_rows(self.rows, first, count)
        return _with_origin(make_batch(self.schema, rows), self.partition, self.first_row + first)

    def take(self, rows):
        """Return the rows of these indices, in that order, in pooled memory.

        rows : int32 ndarray, shape (result rows,), values in [0, row_count); may repeat. ValueError for others.
        """
        indices = np.ascontiguousarray(rows)
        if indices.dtype != np.int32 or indices.ndim != 1:
            raise ValueError(f"rows must be a one-dimensional int32 array, got {indices.ndim} dimensions of {indices.dtype}")
        cdef const int32_t[::1] index_view = indices
        cdef int64_t count = index_view.shape[0]
        cdef const int32_t* pointer = &index_view[0] if count > 0 else NULL
        cdef int64_t wrong
        cdef Rows result
        cdef size_t column
        cdef KernelClock* clock = kernel_clock()
        with nogil:
            clock.enter()
            wrong = first_out_of_range(pointer, count, self.row_count)
            if wrong < 0:
                result.row_count = count
                for column in range(self.rows.columns.size()):
                    if self.rows.columns[column].view.layout == Layout.opaque:
                        result.columns.push_back(Column())
                    else:
                        result.columns.push_back(take_column(_arena[0], self.rows.columns[column], pointer, count))
            clock.leave()
        if wrong >= 0:
            raise ValueError(f"row {index_view[wrong]} is not in a batch of {self.row_count} rows")
        for column in range(self.rows.columns.size()):
            if self.rows.columns[column].view.layout == Layout.opaque:
                array = _to_arrow_array(self.rows.columns[column], self.schema.field(column).type)
                result.columns[column] = import_array(array.take(pa.array(indices)), self.schema.field(column).name)
        return _with_origin(make_batch(self.schema, result), self.partition, self.first_row)

    def select(self, columns, names=None):
        """Return some columns, in that order, under new names if given; zero-copy. ValueError for an unknown column."""
        cdef Rows result
        cdef int index
        key = (id(self.schema), tuple(columns), None if names is None else tuple(names))
        known = _selections.get(key)
        if known is None:
            known = self._selection(key[1], key[2])
            if len(_selections) >= 256:
                _selections.clear()
            _selections[key] = known
        result.row_count = self.row_count
        result.columns.reserve(len(known[2]))
        for index in known[2]:
            result.columns.push_back(self.rows.columns[index])
        return _with_origin(make_batch(known[1], result), self.partition, self.first_row)

    def _selection(self, columns, names):
        """What select does for a schema: that schema (kept, so that its id is not used again), the new one, indices."""
        if names is not None and len(names) != len(columns):
            raise ValueError(f"{len(columns)} columns need as many names, got {len(names)}")
        indices = [self.find_column(name) for name in columns]
        fields = [self.schema.field(index) for index in indices]
        if names is not None:
            fields = [field.with_name(name) for field, name in zip(fields, names)]
        return self.schema, pa.schema(fields, metadata=self.schema.metadata), indices

    def with_columns(self, Batch other not None):
        """Return this batch with the columns of `other`: those of the same name replaced, the rest appended; zero-copy.

        ValueError if the row counts differ.
        """
        if other.row_count != self.row_count:
            raise ValueError(f"columns of {other.row_count} rows cannot be put beside {self.row_count} rows")
        cdef Rows result = self.rows
        cdef int index, source
        schema = self.schema
        for source, field in enumerate(other.schema):
            index = -1 if field.name not in schema.names else self.find_column(field.name)
            if index < 0:
                schema = schema.append(field)
                result.columns.push_back(other.rows.columns[source])
            else:
                schema = schema.set(index, field)
                result.columns[index] = other.rows.columns[source]
        return _with_origin(make_batch(schema, result), self.partition, self.first_row)

    def timestamps(self, column):
        """Return a date or timestamp column as microseconds since 1970.

        Returns
        -------
        times : int64 ndarray, shape (row_count,), read-only; finer units floored, null rows hold 0 or anything
        validity : bool ndarray, shape (row_count,), or None if no row is null

        Raises ValueError for another type, and when a time does not fit int64 microseconds.
        """
        cdef int index = self.find_column(column)
        cdef ColumnView* view = &self.rows.columns[index].view
        if not is_time_kind(view.kind) or view.layout != Layout.fixed:
            raise ValueError(f"column {column!r} must be a date or timestamp, it is {self.schema.field(index).type}")
        cdef cnp.npy_intp shape = self.row_count
        cdef int64_t[::1] times_view
        cdef uint8_t[::1] valid_view
        cdef int64_t overflow
        cdef KernelClock* clock
        validity = None
        if view.null_count > 0:
            valid = np.empty(self.row_count, dtype=np.uint8)
            valid_view = valid
            with nogil:
                expand_validity(view[0], &valid_view[0])
            validity = valid.view(np.bool_)
        if view.kind == Kind.timestamp and view.unit == TimeUnit.micro and self.row_count > 0:
            times = cnp.PyArray_SimpleNewFromData(1, &shape, cnp.NPY_INT64, <void*>view.values)
            cnp.set_array_base(times, self)
            times.setflags(write=False)
            return times, validity
        times = np.empty(self.row_count, dtype=np.int64)
        if self.row_count > 0:
            times_view = times
            clock = kernel_clock()
            with nogil:
                clock.enter()
                overflow = convert_to_microseconds(view[0], &times_view[0])
                clock.leave()
            if overflow >= 0:
                raise ValueError(f"row {overflow} of column {column!r} does not fit 64 bits of microseconds")
        times.setflags(write=False)
        return times, validity


    def that_comes_again(self, columns):
        """Return these rows, with the word of their maker that the memory of these columns (names) will be sent again."""
        cdef Rows rows = self.rows
        for name in columns:
            rows.columns[self.find_column(name)].comes_again = True
        return _with_origin(make_batch(self.schema, rows), self.partition, self.first_row)

    def encode(self, SentColumns sent=None):
        """Return the rows as one message in pieces: a header, then the buffers with the padding between them.

        sent : of the channel that the message is for: what it has sent before and will come again is not sent again.
            `sent.settle()` says that the message has left; without it the next one is encoded as if this had never been

        Returns
        -------
        pieces : list of memoryview of bytes, none empty; joined they are the message. They share the batch's memory.
        """
        cdef vector[OpaqueBytes] opaque
        cdef OpaqueBytes bytes_of_column
        cdef size_t index
        kept = []
        for index in range(self.rows.columns.size()):
            if self.rows.columns[index].view.layout == Layout.opaque:
                field = self.schema.field(index)
                serialized = _serialize(_to_arrow_array(self.rows.columns[index], field.type), field)
                kept.append(serialized)
                bytes_of_column.bytes = <const void*><uintptr_t>serialized.address
                bytes_of_column.size = serialized.size
                opaque.push_back(bytes_of_column)
        cdef _EncodedBatch encoded = _EncodedBatch.__new__(_EncodedBatch)
        encoded.kept = kept
        cdef CppSentColumns* columns = NULL
        if sent is not None:
            columns = &sent.columns
        cdef KernelClock* clock = kernel_clock()
        with nogil:
            clock.enter()
            encoded.message = encode_rows(dereference(_arena), self.rows, opaque, columns)
            clock.leave()
        cdef int64_t position = <int64_t>encoded.message.header.size() * 8
        pieces = [_piece(encoded, encoded.message.header.data(), position)]
        for index in range(encoded.message.pieces.size()):
            if encoded.message.pieces[index].size == 0:
                continue
            if position & 63:
                pieces.append(_PADDING[position & 63 :])
            position = (position + 63) & ~63
            pieces.append(_piece(encoded, encoded.message.pieces[index].bytes, encoded.message.pieces[index].size))
            position += encoded.message.pieces[index].size
        return pieces

    @staticmethod
    def decode(schema, message, ReceivedColumns received=None):
        """Return the batch that a message holds, zero-copy: the batch keeps the message's buffer.

        schema : pyarrow.Schema of the batch that was encoded
        message : object with the buffer protocol, contiguous bytes; copied only if not aligned to 8 bytes
        received : of the channel that the message came on, if it was encoded with a `SentColumns`; messages in their order

        Every size, offset, code and view in it is checked, nested columns by Arrow: a damaged message gives an error or
        other values, and never makes anybody read outside of it. That text is UTF-8 is not checked, but in nested columns.

        Raises ValueError for a message that is damaged or of another schema.
        """
        cdef shared_ptr[PythonBuffer] held = make_python_buffer()
        cdef Py_buffer* buffer = &held.get().buffer
        PyObject_GetBuffer(message, buffer, PyBUF_SIMPLE)
        cdef const uint8_t* bytes_start = <const uint8_t*>buffer.buf
        cdef int64_t size = buffer.len
        cdef shared_ptr[const void] owner
        cdef Block copied
        cdef _SchemaTypes known = _known_types(schema)
        cdef Rows rows
        cdef CppReceivedColumns* columns = NULL
        if received is not None:
            columns = &received.columns
        cdef KernelClock* clock = kernel_clock()
        with nogil:
            clock.enter()
            if <uintptr_t>bytes_start & 7:
                copied = _arena.allocate(size)
                memcpy(copied.get(), bytes_start, size)
                bytes_start = copied.get()
                owner = owned_by(copied)
            else:
                owner = owned_by(held)
            rows = decode_rows(dereference(_arena), known.types, bytes_start, size, owner, columns)
            clock.leave()
        cdef size_t index
        cdef Column* column
        for index in range(rows.columns.size()):
            column = &rows.columns[index]
            if column.view.layout == Layout.opaque:
                start = <const uint8_t*>column.view.values - bytes_start
                part = pa.py_buffer(message).slice(start, column.view.bits_offset)
                array = _deserialize(part, schema.field(index))
                if len(array) != rows.row_count:
                    raise ValueError(f"column {schema.field(index).name!r} has another number of rows than the message")
                rows.columns[index] = import_array(array, schema.field(index).name)
        return make_batch(schema, rows)


_PADDING = memoryview(bytes(64))


cdef class _SchemaTypes:
    """The parsed types of a schema, kept so that each is parsed once."""

    cdef vector[ColumnType] types
    cdef object schema


cdef dict _types_of_schemas = {}  # id(schema) -> _SchemaTypes, which holds the schema: an id is not used again


cdef dict _selections = {}  # (id(schema), columns, names) -> Batch._selection


cdef _SchemaTypes _known_types(schema):
    cdef _SchemaTypes known = _types_of_schemas.get(id(schema))
    if known is None:
        known = _SchemaTypes.__new__(_SchemaTypes)
        known.types = column_types(schema)
        known.schema = schema
        if len(_types_of_schemas) >= 256:
            _types_of_schemas.clear()
        _types_of_schemas[id(schema)] = known
    return known


cdef class _EncodedBatch:
    cdef Message message
    cdef object kept


cdef class _MessageBytes:
    """Bytes of an encoded batch, for the buffer protocol."""

    cdef _EncodedBatch owner
    cdef const void* start
    cdef int64_t size

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        PyBuffer_FillInfo(buffer, self, <void*>self.start, self.size, 1, flags)

    def __releasebuffer__(self, Py_buffer* buffer):
        pass


cdef object _piece(_EncodedBatch owner, const void* start, int64_t size):
    cdef _MessageBytes piece = _MessageBytes.__new__(_MessageBytes)
    piece.owner = owner
    piece.start = start
    piece.size = size
    return memoryview(piece)


def _serialize(array, field):
    """A nested column as an Arrow IPC stream of one batch."""
    sink = pa.BufferOutputStream()
    schema = pa.schema([field])
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays([array], schema=schema))
    return sink.getvalue()


def _deserialize(buffer, field):
    """The column that _serialize wrote. Arrow reads what is damaged without a word, so it is checked in full."""
    try:
        with pa.ipc.open_stream(buffer) as reader:
            if reader.schema.types != [field.type]:
                raise ValueError(f"it has the types {reader.schema.types}, not {field.type}")
            array = reader.read_next_batch().column(0)
            array.validate(full=True)
            return array
    except (pa.ArrowException, OSError, StopIteration, ValueError) as error:
        raise ValueError(f"column {field.name!r} cannot be read from the message: {error}") from error


cdef object _to_arrow_array(const Column& column, object data_type):
    cdef ArrowArray array
    memset(&array, 0, sizeof(ArrowArray))
    export_column(column, dereference(_arena), &array)
    return pa.Array._import_from_c(<uintptr_t>&array, data_type)


# ---- many batches ----------------------------------------------------------------------------------------------------


@cython.final
@cython.no_gc  # as Batch
cdef class BatchRun:
    """Batches of one schema that follow each other: an immutable sequence of `Batch`, which are made when they are looked at.

    What takes or gives many batches at a time does so in one object, and touches none of them in Python.
    Made by `of` and by the kernels.
    """

    def __init__(self):
        raise TypeError("a BatchRun is made by BatchRun.of and by kernels")

    @staticmethod
    def of(items):
        """Return a run of the batches of these items, one or more of Batch and BatchRun, in order.

        It has the origin of the first. Raises ValueError if schemas differ.
        """
        cdef vector[const Rows*] rows
        cdef vector[Rows] pieces
        cdef size_t index
        cdef object schema = None
        cdef BatchRun run
        for item in items:
            found = append_rows(item if isinstance(item, BatchRun) else (item,), rows)
            if schema is None:
                schema = found
            else:
                _check_same_schema(found, schema)
        if schema is None:
            raise ValueError("a run needs one batch at least")
        pieces.reserve(rows.size())
        for index in range(rows.size()):
            pieces.push_back(rows[index][0])
        run = make_run(schema, pieces)
        origin = items[0].origin
        return run if origin is None else run.with_origin(*origin)

    def __len__(self):
        return self.count

    def __getitem__(self, Py_ssize_t index):
        cdef int64_t row = self.first_row
        cdef Py_ssize_t before
        if index < 0:
            index += self.count
        if not 0 <= index < <Py_ssize_t>self.count:
            raise IndexError(f"batch {index} of a run of {self.count}")
        for before in range(index):
            row += dereference(self.pieces)[self.first + before].row_count
        return self.batch_at(index, row)

    def __iter__(self):
        cdef int64_t row = self.first_row
        cdef size_t index
        for index in range(self.count):
            batch = self.batch_at(index, row)
            row += batch.row_count
            yield batch

    def __repr__(self):
        return f"BatchRun({self.count} batches of {self.row_count} rows: {', '.join(self.schema.names)})"

    @property
    def origin(self):
        """As `Batch.origin`, of the first batch."""
        return None if self.partition is None else (self.partition, self.first_row)

    @property
    def nbytes(self):
        """As `Batch.nbytes`, of all together."""
        cdef int64_t total = 0
        cdef size_t index, column
        cdef const Rows* rows
        for index in range(self.count):
            rows = &dereference(self.pieces)[self.first + index]
            for column in range(rows.columns.size()):
                if rows.columns[column].view.layout == Layout.opaque:
                    return sum(batch.nbytes for batch in self)
                total += column_bytes(rows.columns[column].view)
        return total

    def with_origin(self, partition, int64_t first_row):
        """Return these batches, known to come from a source partition, numbered through in it from `first_row` on."""
        cdef BatchRun run = self.part(0, self.count, self.row_count)
        run.partition = partition
        run.first_row = first_row
        return run

    def slice(self, size_t start, end=None):
        """Return the batches [start, end), or all from `start` on; zero-copy. ValueError outside of the run."""
        cdef size_t behind = self.count if end is None else end
        cdef size_t index
        cdef int64_t rows = 0
        if start > behind or behind > self.count:
            raise ValueError(f"batches [{start}, {behind}) are not in a run of {self.count}")
        for index in range(start, behind):
            rows += dereference(self.pieces)[self.first + index].row_count
        return self.part(start, behind, rows)

    def take_sized(self, size_t start, int64_t least_rows, int64_t most_rows, int64_t rows_max):
        """Return the batches from `start` on that have at least least_rows rows and at most most_rows each; zero-copy.

        They end with the one that makes it rows_max rows or more.
        """
        cdef size_t end = start
        cdef int64_t rows = 0
        cdef int64_t row_count
        while end < self.count and rows < rows_max:
            row_count = dereference(self.pieces)[self.first + end].row_count
            if not least_rows <= row_count <= most_rows:
                break
            rows += row_count
            end += 1
        return self.part(start, end, rows)

    cdef BatchRun part(self, size_t start, size_t end, int64_t row_count):
        cdef BatchRun run = BatchRun.__new__(BatchRun)
        cdef size_t index
        run.pieces = self.pieces
        run.first = self.first + start
        run.count = end - start
        run.row_count = row_count
        run.schema = self.schema
        run.partition = self.partition
        run.first_row = self.first_row
        if self.partition is not None:
            for index in range(start):
                run.first_row += dereference(self.pieces)[self.first + index].row_count
        return run

    cdef Batch batch_at(self, size_t index, int64_t first_row):
        cdef Rows rows = dereference(self.pieces)[self.first + index]
        return _with_origin(make_batch(self.schema, rows), self.partition, first_row)


cdef BatchRun make_run(object schema, vector[Rows]& pieces):
    cdef BatchRun run = BatchRun.__new__(BatchRun)
    cdef size_t index
    run.schema = schema
    run.pieces = make_shared[vector[Rows]](move(pieces))
    run.count = dereference(run.pieces).size()
    for index in range(run.count):
        run.row_count += dereference(run.pieces)[index].row_count
    return run


cdef object append_rows(object batches, vector[const Rows*]& rows):
    cdef BatchRun run
    cdef Batch batch
    cdef size_t index
    cdef object schema = None
    if isinstance(batches, BatchRun):
        run = batches
        for index in range(run.count):
            rows.push_back(&dereference(run.pieces)[run.first + index])
        return run.schema
    for batch in batches:
        if schema is None:
            schema = batch.schema
        else:
            _check_same_schema(batch.schema, schema)
        rows.push_back(&batch.rows)
    return schema


cdef int _check_same_schema(schema, first) except -1:
    if schema is not first and not schema.equals(first):
        raise ValueError(f"batches that follow each other must have one schema; one has\n{schema}\nthe first\n{first}")
    return 0


cdef class _Stream:
    """Owns an ArrowArrayStream moved out of its capsule."""

    cdef ArrowArrayStream stream

    def __cinit__(self, capsule):
        memset(&self.stream, 0, sizeof(ArrowArrayStream))
        if not PyCapsule_IsValid(capsule, "arrow_array_stream"):
            raise ValueError(f"__arrow_c_stream__ must give a stream capsule, got {type(capsule).__name__}")
        cdef ArrowArrayStream* source = <ArrowArrayStream*>PyCapsule_GetPointer(capsule, "arrow_array_stream")
        if source.release == NULL:
            raise ValueError("the Arrow stream was already consumed")
        self.stream = source[0]
        source.release = NULL

    def __dealloc__(self):
        if self.stream.release != NULL:
            self.stream.release(&self.stream)

    cdef int fail(self, int code) except -1:
        cdef const char* message = self.stream.get_last_error(&self.stream)
        text = message.decode("utf-8", "replace") if message != NULL else f"error {code}"
        raise ValueError(f"the Arrow stream failed: {text}")


def batches_from_arrow(source, rows_max=65536):
    """Iterate over rows as batches of at most `rows_max` rows, chunk by chunk, zero-copy.

    source : anything with `__arrow_c_stream__` (Table, RecordBatchReader, a polars DataFrame) or `__arrow_c_array__`

    Empty chunks are left out. Raises ValueError (on the first step) for anything else, and when the stream fails.
    """
    cdef int64_t limit = rows_max
    if limit < 1:
        raise ValueError(f"rows_max must be at least 1, got {limit}")
    if isinstance(source, Batch) or hasattr(source, "__arrow_c_array__"):
        yield from _sliced(Batch.from_arrow(source), limit)
        return
    if not hasattr(source, "__arrow_c_stream__"):
        raise ValueError(
            f"batches are made from an object with __arrow_c_stream__ or __arrow_c_array__, got {_type_name(source)}"
        )
    cdef _Stream stream = _Stream(source.__arrow_c_stream__())
    cdef ArrowSchema c_schema
    cdef ArrowArray array
    cdef vector[ColumnType] types
    cdef Rows rows
    cdef int code
    with nogil:
        code = stream.stream.get_schema(&stream.stream, &c_schema)
    if code != 0:
        stream.fail(code)
    try:
        types = parse_schema(c_schema)
    except BaseException:
        c_schema.release(&c_schema)
        raise
    source_schema = pa.Schema._import_from_c(<uintptr_t>&c_schema)
    schema = carried_schema(source_schema)
    converted = _is_converted(types)
    while True:
        with nogil:
            code = stream.stream.get_next(&stream.stream, &array)
        if code != 0:
            stream.fail(code)
        if array.release == NULL:
            return
        if converted:
            batch = Batch.from_arrow(pa.RecordBatch._import_from_c(<uintptr_t>&array, source_schema))
        else:
            with nogil:
                rows = import_rows(types, &array)
            batch = _carried_batch(schema, rows)
        yield from _sliced(batch, limit)


def batches_with_origin(items not None, Py_ssize_t start, int64_t rows_max, partition, int64_t first_row):
    """Take in record batches that follow each other in a source partition, without copying their rows.

    items : sequence; items[start] is a pyarrow.RecordBatch of one row or more, and so are those behind it up to the first other
        item, at most as many as would be rows_max rows if all had as many as the first. They have one schema: this is not checked
    partition, first_row : as for `Batch.with_origin`; of the first batch

    Returns a BatchRun of what `Batch.from_arrow(record_batch).with_origin(...)` gives of each, found in one call without the GIL.
    Raises ValueError as that does.
    """
    cdef vector[ColumnType] types
    cdef vector[Rows] pieces
    cdef ArrowArray array
    cdef size_t index
    cdef int code = 0
    first = items[start]
    schema = first.schema
    cdef Py_ssize_t batch_count = min(len(items) - start, -(-rows_max // first.num_rows))
    record_batch_type = type(first)
    record_batches = []
    for item in items[start : start + batch_count]:
        if type(item) is not record_batch_type:
            break
        record_batches.append(item)
    types = column_types(schema)
    if _is_converted(types):
        record_batches = itertools.takewhile(lambda item: item.num_rows > 0, record_batches)
        return BatchRun.of([Batch.from_arrow(item) for item in record_batches]).with_origin(partition, first_row)
    cdef _Stream stream = _Stream(pa.RecordBatchReader.from_batches(schema, record_batches).__arrow_c_stream__())
    cdef KernelClock* clock = kernel_clock()
    with nogil:
        clock.enter()
        pieces.reserve(batch_count)
        while code == 0:
            code = stream.stream.get_next(&stream.stream, &array)
            if code != 0 or array.release == NULL:
                break
            pieces.push_back(import_rows(types, &array))
            if pieces.back().row_count == 0:
                pieces.pop_back()
                break
        clock.leave()
    if code != 0:
        stream.fail(code)
    for index in range(pieces.size()):
        if _has_null_values(pieces[index]):
            carried = [Batch.from_arrow(item) for item in record_batches[: pieces.size()]]
            return BatchRun.of(carried).with_origin(partition, first_row)
    return make_run(carried_schema(schema) if _has_metadata(types) else schema, pieces).with_origin(partition, first_row)


def _sliced(Batch batch, int64_t rows_max):
    if 0 < batch.row_count <= rows_max:
        yield batch
        return
    cdef int64_t start
    for start in range(0, batch.row_count, rows_max):
        yield batch.slice(start, min(rows_max, batch.row_count - start))


def concatenate(batches):
    """Return all rows of `batches`, in order, in pooled memory (a single batch is returned as it is).

    Raises ValueError for no batches, and for schemas that differ.
    """
    if not batches:
        raise ValueError("concatenate needs at least one batch")
    batches = list(batches)  # a run makes them as they are asked for, and does not keep them
    cdef Batch first = batches[0]
    cdef Batch batch
    if len(batches) == 1:
        return first
    cdef vector[const Rows*] sources
    cdef Rows result
    for index, other in enumerate(batches):
        batch = other
        if batch.schema is not first.schema and not batch.schema.equals(first.schema):
            raise ValueError(f"batch {index} has the schema\n{batch.schema}\nwhere batch 0 has\n{first.schema}")
        sources.push_back(&batch.rows)
        result.row_count += batch.row_count
    cdef vector[const Column*] parts
    cdef vector[size_t] left
    cdef cbool done = True
    cdef size_t column, part
    cdef KernelClock* clock = kernel_clock()
    with nogil:
        clock.enter()
        for column in range(first.rows.columns.size()):
            parts.clear()
            for part in range(sources.size()):
                parts.push_back(&sources[part].columns[column])
            result.columns.push_back(concatenate_columns(_arena[0], parts, &done))
            if not done:
                left.push_back(column)
        clock.leave()
    for column in left:
        field = first.schema.field(column)
        # Arrow cannot concatenate some nested arrays without rows.
        with_rows = [other for other in batches if len(other) > 0] or batches[:1]
        arrays = [_to_arrow_array((<Batch>other).rows.columns[column], field.type) for other in with_rows]
        result.columns[column] = import_array(_concatenate_arrays(arrays, field), field.name)
    return make_batch(first.schema, result)


def put_beside(schema, batches):
    """Return the columns of several batches beside each other, under another schema; zero-copy.

    schema : pyarrow.Schema with the types of all columns, in order; names and nullability may be others
    batches : one or more, of equal row counts

    Raises ValueError if the numbers of columns or rows differ.
    """
    cdef Rows result
    cdef Batch batch = batches[0]
    cdef size_t column
    result.row_count = batch.row_count
    result.columns.reserve(len(schema))
    for other in batches:
        batch = other
        if batch.row_count != result.row_count:
            raise ValueError(f"columns of {batch.row_count} rows cannot be put beside {result.row_count} rows")
        for column in range(batch.rows.columns.size()):
            result.columns.push_back(batch.rows.columns[column])
    if <Py_ssize_t>result.columns.size() != len(schema):
        raise ValueError(f"there are {result.columns.size()} columns for a schema of {len(schema)}")
    return make_batch(schema, result)


def _concatenate_arrays(arrays, field):
    """Concatenate by Arrow what the kernel leaves to it: nested columns, and dictionaries that outgrow their codes."""
    if not pa.types.is_dictionary(field.type):
        return pa.concat_arrays(arrays)
    encoded = pa.concat_arrays([array.dictionary_decode() for array in arrays]).dictionary_encode()
    try:
        codes = encoded.indices.cast(field.type.index_type)
    except pa.ArrowInvalid as error:
        raise ValueError(
            f"column {field.name!r} has {len(encoded.dictionary)} different values in all, more than its codes "
            f"({field.type.index_type}) can name; cast it to {field.type.value_type}"
        ) from error
    return pa.DictionaryArray.from_arrays(codes, encoded.dictionary, ordered=field.type.ordered)
