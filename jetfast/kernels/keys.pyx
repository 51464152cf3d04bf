# distutils: language = c++
"""Keys to dense slots: equal keys of one or several columns get the same small number, until it is given back."""

import numpy as np
import pyarrow as pa

from cython.operator cimport dereference
from libc.stdint cimport int64_t, uint32_t
from libcpp cimport bool as cbool
from libcpp.memory cimport make_unique, unique_ptr
from libcpp.vector cimport vector

from jetfast.kernels.partitioning import check_key_types

from jetfast.kernels._csrc cimport key_index as cpp
from jetfast.kernels._csrc.arrow_c_data cimport ColumnType
from jetfast.kernels._csrc.batch cimport Rows
from jetfast.kernels._csrc.column_view cimport ColumnView
from jetfast.kernels.columns cimport Batch, column_types, make_batch, shared_arena


cdef vector[ColumnView] column_views(Batch batch, const vector[int]& indices) except *:
    cdef vector[ColumnView] views
    copy_views(batch.rows, indices, &views)
    return views


cdef int copy_views(const Rows& rows, const vector[int]& indices, vector[ColumnView]* views) except -1 nogil:
    cdef size_t position
    views.resize(indices.size())
    for position in range(indices.size()):
        views[0][position] = rows.columns[indices[position]].view
    return 0


cdef vector[ColumnView] plain_types(object schema) except *:
    cdef vector[ColumnType] types = column_types(schema)
    cdef vector[ColumnView] views
    cdef size_t position
    for position in range(types.size()):
        views.push_back(types[position].view)
    return views


def plain_field(field):
    """Return the field as its values are kept: a dictionary by its value type, nullable."""
    data_type = field.type
    while pa.types.is_dictionary(data_type):
        data_type = data_type.value_type
    return pa.field(field.name, data_type)


def check_batch_schema(found, wanted, what):
    """Check that a batch has the columns that were announced: names and types, in order. Raises ValueError naming them."""
    if found is wanted or found.equals(wanted):
        return
    if found.names == wanted.names and found.types == wanted.types:
        return
    if found.names != wanted.names:
        raise ValueError(
            f"{what} must have the columns {', '.join(wanted.names) or '(none)'}, got {', '.join(found.names) or '(none)'}"
        )
    for index, name in enumerate(wanted.names):
        if found.types[index] != wanted.types[index]:
            raise ValueError(f"column {name!r} of {what} must be {wanted.types[index]}, got {found.types[index]}")


cdef class KeyIndex:
    """Gives each key a slot: small numbers without gaps, reused after `release`.

    schema : pyarrow.Schema of the batches
    keys : names of the key columns; none means one global key
    key_schema : pyarrow.Schema of the keys as they come out again (dictionaries by their value type)

    Raises ValueError for a column that is not there and TypeError for one that cannot be a key.
    """

    cdef unique_ptr[cpp.KeyIndex] index
    cdef vector[int] columns
    cdef readonly object schema
    cdef readonly object key_schema

    def __init__(self, schema, keys):
        schema = Batch.empty(schema).schema
        check_key_types(schema, keys)
        self.schema = schema
        self.columns = [schema.get_field_index(key) for key in keys]
        self.key_schema = pa.schema([plain_field(schema.field(key)) for key in keys])
        self.index = make_unique[cpp.KeyIndex](plain_types(self.key_schema))

    def __len__(self):
        return dereference(self.index).live()

    @property
    def slot_limit(self):
        """All slots are below this number."""
        return dereference(self.index).slot_limit()

    @property
    def nbytes(self):
        """Bytes that the table of keys takes."""
        return dereference(self.index).bytes()

    def clear(self):
        """Forget all keys: as one that was made anew, but cheaper."""
        self.index = make_unique[cpp.KeyIndex](plain_types(self.key_schema))

    def reserve(self, int64_t key_count):
        """Make room for that many keys at once."""
        with nogil:
            dereference(self.index).reserve(key_count)

    def assign_slots(self, Batch batch not None):
        """Return the slot of each row's key; new keys get new ones.

        Returns
        -------
        slots : uint32 ndarray, shape (rows,), values in [0, slot_limit)

        NULL is a key like others; all NaN are one key and so are 0.0 and -0.0. Raises ValueError for a batch of another schema.
        """
        return self.slots_of(batch, True)

    def find_slots(self, Batch batch not None):
        """As `assign_slots`, but no key is added: those that are not there have NO_SLOT."""
        return self.slots_of(batch, False)

    cdef slots_of(self, Batch batch, cbool inserts):
        check_batch_schema(batch.schema, self.schema, "a batch of keys")
        slots = np.empty(batch.row_count, dtype=np.uint32)
        cdef uint32_t[::1] view = slots
        cdef vector[ColumnView] columns = column_views(batch, self.columns)
        cdef uint32_t* target
        if batch.row_count > 0:
            target = &view[0]
            with nogil:
                if inserts:
                    dereference(self.index).find_or_insert(columns.data(), NULL, batch.row_count, target)
                else:
                    dereference(self.index).find(columns.data(), NULL, batch.row_count, target)
        return slots

    def keys_of(self, slots):
        """Return the keys of some slots as a batch of key_schema.

        slots : uint32 ndarray, shape (rows,), of slots that are in use
        """
        chosen = np.ascontiguousarray(slots, dtype=np.uint32)
        if len(chosen) and chosen.max() >= self.slot_limit:
            raise ValueError(f"slot {chosen.max()} is not below {self.slot_limit}")
        cdef const uint32_t[::1] view = chosen
        cdef Rows rows
        cdef const uint32_t* source
        rows.row_count = len(chosen)
        if rows.row_count == 0:
            return Batch.empty(self.key_schema)
        source = &view[0]
        with nogil:
            rows.columns = dereference(self.index).keys_of(source, rows.row_count, dereference(shared_arena()))
        return make_batch(self.key_schema, rows)

    def release(self, slots):
        """Forget the keys of some slots, each of which must be in use and named once: the slots are given out again."""
        chosen = np.ascontiguousarray(slots, dtype=np.uint32)
        if len(chosen) and chosen.max() >= self.slot_limit:
            raise ValueError(f"slot {chosen.max()} is not below {self.slot_limit}")
        cdef const uint32_t[::1] view = chosen
        cdef Py_ssize_t position
        with nogil:
            for position in range(view.shape[0]):
                dereference(self.index).release(view[position])
