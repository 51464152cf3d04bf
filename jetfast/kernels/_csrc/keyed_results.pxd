# Declarations of csrc/jetfast/keyed_results.hpp
from libc.stdint cimport int32_t, int64_t, uint32_t
from libcpp.vector cimport vector


cdef extern from "jetfast/keyed_results.hpp" namespace "jetfast" nogil:
    cdef cppclass LateRows:
        vector[int32_t] rows
        vector[int64_t] missed_until

    cdef struct Overflow "jetfast::KeyedResults::Overflow":
        int aggregate
        uint32_t slot
        int64_t window_start
        int64_t window_end
