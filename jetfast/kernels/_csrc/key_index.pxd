# Declarations of csrc/jetfast/key_index.hpp
from libc.stdint cimport int32_t, int64_t, uint32_t
from libcpp.vector cimport vector

from jetfast.kernels._csrc.arena cimport Arena
from jetfast.kernels._csrc.batch cimport Column
from jetfast.kernels._csrc.column_view cimport ColumnView


cdef extern from "jetfast/key_index.hpp" namespace "jetfast" nogil:
    cdef cppclass KeyIndex:
        KeyIndex(vector[ColumnView] types) except +
        uint32_t slot_limit() noexcept
        int64_t live() noexcept
        int64_t bytes() noexcept
        void reserve(int64_t keys) except +
        void find_or_insert(const ColumnView* columns, const int32_t* rows, int64_t count, uint32_t* slots) except +
        void find(const ColumnView* columns, const int32_t* rows, int64_t count, uint32_t* slots) except +
        void release(uint32_t slot) except +
        vector[Column] keys_of(const uint32_t* slots, int64_t count, Arena& arena) except +
