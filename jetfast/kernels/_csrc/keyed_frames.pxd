# Declarations of csrc/jetfast/keyed_frames.hpp
from libc.stdint cimport int32_t, int64_t, uint32_t
from libcpp.vector cimport vector

from jetfast.kernels._csrc.batch cimport Rows
from jetfast.kernels._csrc.column_view cimport ColumnView
from jetfast.kernels._csrc.frame cimport WindowShape


cdef extern from "jetfast/keyed_frames.hpp" namespace "jetfast" nogil:
    cdef enum class AggregateKind "jetfast::AggregateKind":
        count
        count_values
        sum
        mean
        minimum
        maximum
        var_samp
        var_pop
        stddev_samp
        stddev_pop

    cdef cppclass AggregateSpec:
        AggregateKind kind
        int column
        ColumnView result_type

    cdef cppclass TableSpec:
        WindowShape shape
        vector[ColumnView] key_types
        vector[ColumnView] value_types
        vector[AggregateSpec] aggregates
        int32_t partition_count

    cdef cppclass BatchColumns:
        int64_t row_count
        vector[ColumnView] keys
        ColumnView time
        vector[ColumnView] values

    cdef cppclass PartialColumns:
        int64_t row_count
        const Rows* columns
        vector[ColumnView] keys
        ColumnView frame
        vector[ColumnView] fields

    cdef cppclass Places:
        vector[int32_t] rows
        vector[uint32_t] places
        vector[int64_t] frames
        vector[uint32_t] merged_from
        vector[uint32_t] merged_to

    cdef struct MemoryUse:
        int64_t keys
        int64_t frames
        int64_t entries
        int64_t key_bytes
        int64_t frame_bytes
