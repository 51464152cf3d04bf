# distutils: language = c++
"""The bounded queue between two tasklets, and the memory budget that all queues of a job share."""

from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject
from libc.stdint cimport int64_t

from jetfast.kernels._csrc cimport spsc_queue as cpp
from jetfast.kernels.columns cimport Batch, BatchRun


cdef struct Slot:
    PyObject* item  # an owned reference, handed from the producer to the consumer
    int64_t nbytes


cdef class MemoryBudget:
    """Bytes that wait in all channels of a job. Any thread.

    Parameters
    ----------
    limit_bytes : int, at least 0
    """

    cdef cpp.MemoryBudget* budget

    def __cinit__(self, int64_t limit_bytes):
        if limit_bytes < 0:
            raise ValueError(f"limit_bytes must not be negative, got {limit_bytes}")
        self.budget = new cpp.MemoryBudget(limit_bytes)

    def __dealloc__(self):
        del self.budget

    @property
    def limit_bytes(self):
        return self.budget.limit()

    @property
    def used_bytes(self):
        """Bytes in all channels now."""
        return self.budget.used()

    @property
    def peak_bytes(self):
        """The most bytes that were in all channels at one time, one that was offered in vain included."""
        return self.budget.peak()


cdef class SpscQueue:
    """Bounded queue of Python objects, one producer thread and one consumer thread, without locks.

    A BatchRun has room while at most a quarter of the capacity is taken: it stands for many batches.

    With a budget, a queue that is not empty takes an item only while the bytes in all queues of that budget are below
    its limit; an empty queue always takes one. So memory is bounded and no producer waits for ever.

    Parameters
    ----------
    capacity : int, at least 1; items
    budget : MemoryBudget shared by the queues of a job, or None
    """

    cdef cpp.SpscQueue[Slot]* queue
    cdef MemoryBudget budget

    def __cinit__(self, Py_ssize_t capacity, MemoryBudget budget=None):
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1, got {capacity}")
        self.queue = new cpp.SpscQueue[Slot](capacity)
        self.budget = budget

    def __dealloc__(self):
        if self.queue is not NULL:
            while self._take() is not None:
                pass
            del self.queue

    cdef object _take(self):
        cdef Slot* slot = self.queue.front()
        if slot is NULL:
            return None
        cdef object item = <object>slot.item
        Py_DECREF(item)  # the queue's reference; `item` holds its own
        if self.budget is not None and slot.nbytes != 0:
            self.budget.budget.add(-slot.nbytes)
        self.queue.pop()
        return item

    def offer(self, item not None, int64_t nbytes=0):
        """Producer: put an item of `nbytes` bytes in; False: no room now, nothing was taken."""
        if type(item) is BatchRun and 4 * self.queue.size() > self.queue.capacity():
            return False
        if self.budget is not None and nbytes != 0 and self.budget.budget.exhausted() and not self.queue.drained():
            return False
        cdef Slot slot
        slot.item = <PyObject*>item
        slot.nbytes = nbytes
        if self.budget is not None and nbytes != 0:
            self.budget.budget.add(nbytes)  # before the consumer can deduct it
        Py_INCREF(item)
        if self.queue.offer(slot):
            return True
        Py_DECREF(item)
        if self.budget is not None and nbytes != 0:
            self.budget.budget.add(-nbytes)
        return False

    def poll(self):
        """Consumer: take the next item, or None if there is none now."""
        return self._take()

    def poll_batches(self, int64_t rows_max, schema):
        """Consumer: take the batches and runs of batches that come next, up to the first other item or schema, or to `rows_max`
        rows in all."""
        cdef list batches = []
        cdef Slot* slot
        cdef int64_t rows = 0
        cdef object found
        while True:
            slot = self.queue.front()
            if slot is NULL:
                return batches
            if type(<object>slot.item) is Batch:
                rows += (<Batch>slot.item).row_count
                found = (<Batch>slot.item).schema
            elif type(<object>slot.item) is BatchRun:
                rows += (<BatchRun>slot.item).row_count
                found = (<BatchRun>slot.item).schema
            else:
                return batches
            if rows > rows_max or (found is not schema and not found.equals(schema)):
                return batches
            batches.append(self._take())

    def peek(self):
        """Consumer: the next item, left in the queue, or None."""
        cdef Slot* slot = self.queue.front()
        return None if slot is NULL else <object>slot.item

    def __len__(self):
        return self.queue.size()

    @property
    def capacity(self):
        return self.queue.capacity()
