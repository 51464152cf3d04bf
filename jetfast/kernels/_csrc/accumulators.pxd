# Declarations of csrc/jetfast/accumulators.hpp
from libc.stdint cimport int32_t


cdef extern from "jetfast/accumulators.hpp" namespace "jetfast" nogil:
    cdef enum class FieldKind "jetfast::FieldKind":
        rows
        nulls
        sum128
        sum192
        sum_float
        minimum
        maximum
        moments
        sum_double

    cdef enum class ValueClass "jetfast::ValueClass":
        i64
        u64
        f64
        i128

    cdef cppclass Field:
        FieldKind kind
        ValueClass value_class
        int column
        int32_t width
