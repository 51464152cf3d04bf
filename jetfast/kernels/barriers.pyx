"""Waiting until a snapshot barrier has come on every queue (SEMANTICS 3)."""

from libc.stdint cimport int64_t

from jetfast.kernels._csrc cimport barrier_aligner as cpp
from jetfast.kernels._csrc.barrier_aligner cimport Outcome


cdef class BarrierAligner:
    """Aligns snapshot barriers over queues 0 .. queue_count - 1, all inbound edges of one processor together.

    Parameters
    ----------
    queue_count : int, at least 1
    exactly_once : True: a queue that has given its barrier is blocked until `release`. False (at least once): only by a
        terminal barrier.

    Raises
    ------
    ValueError : a barrier out of order, with a wrong id, a second time or on a queue that is done; the queue is named
    IndexError : no such queue
    """

    cdef cpp.BarrierAligner* aligner

    def __cinit__(self, Py_ssize_t queue_count, bint exactly_once):
        if queue_count < 1:
            raise ValueError(f"queue_count must be at least 1, got {queue_count}")
        self.aligner = new cpp.BarrierAligner(queue_count, exactly_once)

    def __dealloc__(self):
        del self.aligner

    cdef size_t checked(self, Py_ssize_t queue) except? 0:
        if queue < 0 or <size_t>queue >= self.aligner.queue_count():
            raise IndexError(f"there is no queue {queue}, only 0 to {self.aligner.queue_count() - 1}")
        return queue

    def observe_barrier(self, Py_ssize_t queue, int64_t snapshot_id, bint terminal=False):
        """Take note of a barrier; True: it has now come on every queue that is not done."""
        cdef size_t checked = self.checked(queue)
        cdef int64_t expected = self.aligner.expected_id()
        cdef Outcome outcome = self.aligner.observe_barrier(checked, snapshot_id, terminal)
        if outcome == Outcome.aligned:
            return True
        if outcome == Outcome.waiting:
            return False
        if outcome == Outcome.error_done:
            raise ValueError(f"queue {queue}: barrier {snapshot_id} after it was done")
        if outcome == Outcome.error_repeated:
            raise ValueError(f"queue {queue}: barrier {snapshot_id} while its barrier {self.aligner.snapshot_id()} is aligned")
        if outcome == Outcome.error_id:
            raise ValueError(f"queue {queue}: barrier {snapshot_id}, expected {expected}")
        if outcome == Outcome.error_terminal:
            raise ValueError(f"queue {queue}: barrier {snapshot_id} is terminal on some queues and not on others")
        raise ValueError(f"queue {queue}: barrier {snapshot_id} before the release of {self.aligner.snapshot_id()}")

    def observe_done(self, Py_ssize_t queue):
        """The queue has ended; True: this completed an alignment."""
        cdef size_t checked = self.checked(queue)
        if self.aligner.is_done(checked):
            raise ValueError(f"queue {queue}: done a second time")
        return self.aligner.observe_done(checked) == Outcome.aligned

    def is_blocked(self, Py_ssize_t queue):
        """May nothing be read from the queue now?"""
        return self.aligner.is_blocked(self.checked(queue))

    def is_missing(self, Py_ssize_t queue):
        """Is a barrier of this queue waited for?"""
        return self.aligner.is_missing(self.checked(queue))

    @property
    def aligning(self):
        """The snapshot id that is being aligned or waits for `release`, or None."""
        return self.aligner.snapshot_id() if self.aligner.is_aligning() else None

    def release(self):
        """State saved, barrier forwarded: queues may be read again (after a terminal barrier never)."""
        if not self.aligner.release():
            raise ValueError("there is no aligned barrier to release")
