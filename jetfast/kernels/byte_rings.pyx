# distutils: language = c++
"""A ring of bytes in memory that two processes map: one writes, the other reads, neither waits."""

from cpython.buffer cimport (
    PyBUF_SIMPLE,
    PyBUF_WRITABLE,
    PyBuffer_Release,
    PyObject_GetBuffer,
)
from libc.stdint cimport int64_t, uint8_t

from libcpp.vector cimport vector

from jetfast.kernels._csrc cimport byte_ring as cpp
from jetfast.kernels._csrc.kernel_clock cimport KernelClock
from jetfast.kernels.clocks cimport kernel_clock

RING_HEAD_BYTES = cpp.kRingHeadBytes

cdef int64_t _WITHOUT_GIL_FROM = 32 * 1024  # bytes; fewer are copied in less time than a hand-over takes


cdef int64_t _capacity(Py_buffer* memory) except -1:
    """The capacity of a ring in this memory: a power of two."""
    cdef int64_t capacity = memory.len - cpp.kRingHeadBytes
    if capacity < 64 or capacity & (capacity - 1) or <size_t>memory.buf % 64:
        raise ValueError(
            f"a ring needs {cpp.kRingHeadBytes} bytes and a power of two, at least 64, aligned to 64; got {memory.len}"
        )
    return capacity


cdef object _broken():
    return ValueError("the positions of the ring do not fit together: the other side has spoilt its memory")


cdef class RingEnd:
    """What both ends of a ring have: its memory.

    Parameters
    ----------
    memory : writable buffer of RING_HEAD_BYTES and a power of two of bytes, zeros when the first end is made; kept
    """

    cdef Py_buffer memory
    cdef readonly int64_t capacity

    def __cinit__(self, memory):
        PyObject_GetBuffer(memory, &self.memory, PyBUF_SIMPLE | PyBUF_WRITABLE)
        self.capacity = _capacity(&self.memory)

    def __dealloc__(self):
        PyBuffer_Release(&self.memory)


cdef class RingWriter(RingEnd):
    """The writing end; one thread at a time."""

    cdef cpp.RingWriter* ring

    def __cinit__(self, memory):
        self.ring = new cpp.RingWriter(<uint8_t*>self.memory.buf, self.capacity)

    def __dealloc__(self):
        del self.ring

    def offer(self, pieces):
        """Write pieces (objects with a contiguous buffer) one after the other, or none of them.

        Returns False if there is no room for all now. Raises ValueError if the other side has spoilt the ring.
        """
        cdef vector[Py_buffer] buffers
        buffers.resize(len(pieces))
        cdef size_t held = 0
        cdef size_t index
        cdef int64_t total = 0
        cdef int64_t room
        cdef KernelClock* clock
        try:
            for piece in pieces:
                PyObject_GetBuffer(piece, &buffers[held], PyBUF_SIMPLE)
                total += buffers[held].len
                held += 1
            room = self.ring.room(total)
            if room == cpp.kRingBroken:
                raise _broken()
            if room < total:
                return False
            if total < _WITHOUT_GIL_FROM:
                for index in range(held):
                    self.ring.put(<const uint8_t*>buffers[index].buf, buffers[index].len)
            else:
                clock = kernel_clock()
                with nogil:
                    clock.enter()
                    for index in range(held):
                        self.ring.put(<const uint8_t*>buffers[index].buf, buffers[index].len)
                    clock.leave()
            self.ring.publish()
            return True
        finally:
            for index in range(held):
                PyBuffer_Release(&buffers[index])

    def write_some(self, piece, int64_t start):
        """Write what has room of a buffer's bytes from `start` on; how many. Raises ValueError as `offer` does."""
        cdef Py_buffer buffer
        cdef int64_t count
        PyObject_GetBuffer(piece, &buffer, PyBUF_SIMPLE)
        try:
            if not 0 <= start <= buffer.len:
                raise ValueError(f"start must be in [0, {buffer.len}], got {start}")
            count = self.ring.room(buffer.len - start)
            if count == cpp.kRingBroken:
                raise _broken()
            count = min(count, buffer.len - start)
            with nogil:
                self.ring.put(<const uint8_t*>buffer.buf + start, count)
                self.ring.publish()
            return count
        finally:
            PyBuffer_Release(&buffer)


cdef class RingReader(RingEnd):
    """The reading end; one thread at a time."""

    cdef cpp.RingReader* ring

    def __cinit__(self, memory):
        self.ring = new cpp.RingReader(<uint8_t*>self.memory.buf, self.capacity)

    def __dealloc__(self):
        del self.ring

    @property
    def readable(self):
        """Bytes that can be read now. Raises ValueError if the other side has spoilt the ring."""
        cdef int64_t count = self.ring.readable()
        if count == cpp.kRingBroken:
            raise _broken()
        return count

    def read_some(self, buffer, int64_t start):
        """Fill a writable buffer from `start` on with what can be read now; how many bytes. ValueError as above."""
        cdef Py_buffer into
        cdef int64_t count
        cdef KernelClock* clock
        PyObject_GetBuffer(buffer, &into, PyBUF_SIMPLE | PyBUF_WRITABLE)
        try:
            if not 0 <= start <= into.len:
                raise ValueError(f"start must be in [0, {into.len}], got {start}")
            count = self.ring.readable()
            if count == cpp.kRingBroken:
                raise _broken()
            count = min(count, into.len - start)
            if count < _WITHOUT_GIL_FROM:
                self.ring.take(<uint8_t*>into.buf + start, count)
            else:
                clock = kernel_clock()
                with nogil:
                    clock.enter()
                    self.ring.take(<uint8_t*>into.buf + start, count)
                    clock.leave()
            return count
        finally:
            PyBuffer_Release(&into)
