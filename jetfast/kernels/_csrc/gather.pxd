# Declarations of csrc/jetfast/gather.hpp
from libc.stdint cimport int32_t, int64_t
from libcpp cimport bool as cbool
from libcpp.vector cimport vector

from jetfast.kernels._csrc.arena cimport Arena
from jetfast.kernels._csrc.batch cimport Column


cdef extern from "jetfast/gather.hpp" namespace "jetfast" nogil:
    int64_t first_out_of_range(const int32_t* rows, int64_t count, int64_t row_count) noexcept
    Column take_column(Arena& arena, const Column& column, const int32_t* rows, int64_t count) except +
    Column concatenate_columns(Arena& arena, const vector[const Column*]& parts, cbool* done) except +
