# What other kernels cimport from columns.pyx: the batch, and the arena that all kernels share.
from libc.stdint cimport int64_t
from libcpp.memory cimport shared_ptr
from libcpp.vector cimport vector

from jetfast.kernels._csrc.arena cimport Arena
from jetfast.kernels._csrc.arrow_c_data cimport ColumnType
from jetfast.kernels._csrc.batch cimport Column, Rows


cdef class Batch:
    cdef Rows rows
    cdef readonly int64_t row_count
    cdef readonly object schema  # pyarrow.Schema
    cdef object partition  # of the source that its rows come from, or None; `origin` tells both
    cdef int64_t first_row  # the number of its first row in that partition

    cdef int64_t count_bytes(self) except -1  # `nbytes`
    cdef int find_column(self, name) except -1  # ValueError that names the columns there are


# Batches that follow each other, [first, first + count) of those in `pieces`: slices share them.
cdef class BatchRun:
    cdef shared_ptr[vector[Rows]] pieces
    cdef size_t first, count
    cdef readonly int64_t row_count
    cdef readonly object schema
    cdef object partition  # as of the first batch
    cdef int64_t first_row

    cdef BatchRun part(self, size_t start, size_t end, int64_t row_count)
    cdef Batch batch_at(self, size_t index, int64_t first_row)

# All pieces as a run; they are moved out.
cdef BatchRun make_run(object schema, vector[Rows]& pieces)

# Append the rows of batches, a BatchRun or Batches, which own them. Returns the schema of the first, None if there is none;
# raises ValueError if that of another differs.
cdef object append_rows(object batches, vector[const Rows*]& rows)

# Rows as a batch: schema is a pyarrow.Schema whose fields have the types of the columns.
cdef Batch make_batch(object schema, Rows& rows)

# Types of a schema's columns; `view` of each is what allocate_fixed and allocate_strings take.
cdef vector[ColumnType] column_types(object schema) except *

# The arena of this process, which is never destroyed. Pass it to allocate_*; it is thread-safe.
cdef Arena* shared_arena() noexcept nogil

# An Arrow array (anything with __arrow_c_array__) as one column; name is for messages.
cdef Column import_array(object array, object name) except *
