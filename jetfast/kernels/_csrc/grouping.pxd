# Declarations of csrc/jetfast/grouping.hpp
from libc.stdint cimport int64_t
from libcpp.vector cimport vector


cdef extern from "jetfast/grouping.hpp" namespace "jetfast" nogil:
    void number_places(const int64_t* places, const int64_t* starts, int64_t span_count, int64_t* groups,
                       vector[int64_t]& group_places, int64_t* bounds) except +
    void order_by_group(const int64_t* groups, const int64_t* keys, const int64_t* second_keys, int64_t count,
                        int64_t group_count, int64_t* order) except +
