# What windows.pyx holds in C++: one table per processor.
from libc.stdint cimport int32_t
from libcpp.memory cimport unique_ptr
from libcpp.vector cimport vector

from jetfast.kernels._csrc cimport window_table as cpp
from jetfast.kernels._csrc.accumulators cimport Field
from jetfast.kernels._csrc.batch cimport Rows
from jetfast.kernels._csrc.frame_table cimport FrameTable as CppFrameTable
from jetfast.kernels._csrc.key_index cimport KeyIndex
from jetfast.kernels._csrc.keyed_frames cimport BatchColumns, PartialColumns, Places, TableSpec
from jetfast.kernels._csrc.keyed_results cimport KeyedResults, Overflow
from jetfast.kernels.columns cimport Batch


# Where the columns of a table are in its input, and the schemas of what it takes and gives.
cdef class TableLayout:
    cdef readonly object schema, key_schema, partial_schema, output_schema, late_schema
    cdef readonly list aggregate_names
    cdef object seen_schema  # the last one that was found equal to `schema`
    cdef TableSpec spec
    cdef vector[int] key_columns, value_columns
    cdef int time_column
    cdef vector[const Rows*] rows  # of the present call
    cdef vector[BatchColumns] columns  # of these

    cdef int set_partial_schema(self, const vector[Field]& fields, tuple times=*) except -1
    cdef object frame_schema(self, const vector[Field]& fields)
    cdef object schema_of_fields(self, const vector[Field]& fields, tuple times, time_type)
    cdef int find_rows(self, batches) except -1
    cdef int read_columns(self) except -1 nogil
    cdef str overflow_message(self, Overflow overflow, KeyIndex& keys)
    cdef PartialColumns partial_columns(self, const Rows& rows) except *


# What tables share that judge rows and emit results. Subclasses make `results` in __init__, and own it.
cdef class ResultTable:
    cdef KeyedResults* results
    cdef TableLayout layout
    cdef object owned
    cdef str state_kind  # kind of the saved rows
    cdef bint started
    cdef Places places

    cdef int start(self, TableLayout layout, partitions, str state_kind) except -1
    cdef int restore_rows(self, Batch batch) except -1
    cdef int _check_not_started(self) except -1


cdef class WindowTable(ResultTable):
    cdef unique_ptr[cpp.WindowTable] table
    cdef readonly object frame_schema  # of a frame as it lies
    cdef object seen_partial_schema, seen_frame_schema  # the last ones that were found to be those of its partials

    cdef int _is_frame(self, schema) except -1


cdef class FrameTable:
    cdef unique_ptr[CppFrameTable] table
    cdef TableLayout layout
    cdef readonly object frame_schema  # of a frame as it lies
    cdef Places places

    cdef list _runs_of_owners(self, vector[Rows]& batches, const vector[int32_t]& owners, const vector[int]& is_frame)
