# What other kernels cimport from keys.pyx: key columns by value, and the views of a batch's columns.
from libcpp.vector cimport vector

from jetfast.kernels._csrc.batch cimport Rows
from jetfast.kernels._csrc.column_view cimport ColumnView
from jetfast.kernels.columns cimport Batch

# Views of some columns of a batch, or of its rows, which own their memory.
cdef vector[ColumnView] column_views(Batch batch, const vector[int]& indices) except *
cdef int copy_views(const Rows& rows, const vector[int]& indices, vector[ColumnView]* views) except -1 nogil

# Types of the fields of a pyarrow.Schema, none of them a dictionary.
cdef vector[ColumnView] plain_types(object schema) except *
