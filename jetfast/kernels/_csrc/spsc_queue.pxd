# Declares csrc/jetfast/spsc_queue.hpp.
from libc.stdint cimport int64_t
from libcpp cimport bool as cpp_bool


cdef extern from "jetfast/spsc_queue.hpp" namespace "jetfast" nogil:
    cppclass SpscQueue[T]:
        SpscQueue(size_t capacity) except +
        size_t capacity()
        size_t size() noexcept
        cpp_bool offer(const T& item) noexcept
        cpp_bool drained() noexcept
        T* front() noexcept
        void pop() noexcept

    cppclass MemoryBudget:
        MemoryBudget(int64_t limit) except +
        int64_t limit()
        int64_t used() noexcept
        int64_t peak() noexcept
        cpp_bool exhausted() noexcept
        void add(int64_t bytes) noexcept
