# Declarations of csrc/jetfast/hash.hpp
from libc.stdint cimport int32_t, int64_t, uint32_t
from libcpp cimport bool as cbool

from jetfast.kernels._csrc.column_view cimport ColumnView


cdef extern from "jetfast/hash.hpp" namespace "jetfast" nogil:
    const uint32_t kHashSeed
    cbool is_hashable(const ColumnView& column) noexcept
    int64_t hash_scratch_values(const ColumnView& column) noexcept
    void hash_column(const ColumnView& column, cbool uniform, uint32_t seed, uint32_t* hashes, int32_t* scratch) noexcept
