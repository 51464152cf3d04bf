# Declarations of csrc/jetfast/partition.hpp
from libc.stdint cimport int32_t, int64_t, uint32_t
from libcpp.vector cimport vector

from jetfast.kernels._csrc.arena cimport Arena, Block
from jetfast.kernels._csrc.batch cimport Rows


cdef extern from "jetfast/partition.hpp" namespace "jetfast" nogil:
    void assign_partitions(const uint32_t* hashes, int64_t count, int32_t partition_count, int32_t* ids) noexcept
    vector[Rows] split_rows(Arena& arena, const Rows& rows, const vector[int32_t]& keys, const vector[int32_t]& owners,
                            int32_t owner_count, Block* order_block, vector[int64_t]* starts) except +
    bint split_run(Arena& arena, const Rows* const* batches, size_t batch_count, const vector[int32_t]& keys,
                   const vector[int32_t]& owners, int32_t owner_count, vector[Rows]* parts) except +
