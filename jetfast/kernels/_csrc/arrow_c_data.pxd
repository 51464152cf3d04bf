# Declarations of csrc/jetfast/arrow_c_data.hpp
from libc.stdint cimport int64_t
from libcpp cimport bool as cbool
from libcpp.string cimport string
from libcpp.vector cimport vector

from jetfast.kernels._csrc.arena cimport Arena
from jetfast.kernels._csrc.batch cimport Column, Rows
from jetfast.kernels._csrc.column_view cimport ColumnView


cdef extern from "jetfast/arrow_c_data.hpp" nogil:
    cdef struct ArrowSchema:
        const char* format
        void (*release)(ArrowSchema*) noexcept nogil

    cdef struct ArrowArray:
        int64_t length
        void (*release)(ArrowArray*) noexcept nogil

    cdef struct ArrowArrayStream:
        int (*get_schema)(ArrowArrayStream*, ArrowSchema*) noexcept nogil
        int (*get_next)(ArrowArrayStream*, ArrowArray*) noexcept nogil
        const char* (*get_last_error)(ArrowArrayStream*) noexcept nogil
        void (*release)(ArrowArrayStream*) noexcept nogil


cdef extern from "jetfast/arrow_c_data.hpp" namespace "jetfast" nogil:
    cdef cppclass ColumnType:
        string name
        ColumnView view
        cbool is_converted
        cbool has_metadata

    vector[ColumnType] parse_schema(const ArrowSchema& schema) except +
    ColumnType parse_column_type(const ArrowSchema& schema) except +
    Rows import_rows(const vector[ColumnType]& types, ArrowArray* source) except +
    Column import_single(const ColumnType& type, ArrowArray* source) except +
    void export_column(const Column& column, Arena& arena, ArrowArray* out) except +
    void export_rows(const Rows& rows, Arena& arena, ArrowArray* out) except +
