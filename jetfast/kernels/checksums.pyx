# distutils: language = c++
"""Checksums of bytes, for what is stored."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport uint8_t, uint32_t

from jetfast.kernels._csrc cimport checksum as cpp


def crc32c(data, uint32_t crc=0):
    """Return the CRC-32C of bytes (Castagnoli; RFC 3720), by the instruction for it where there is one.

    data : bytes, a contiguous memoryview, or any other object with one buffer
    crc : that of the bytes before these, so that crc32c(a + b) == crc32c(b, crc32c(a))

    Raises TypeError for what has no buffer, BufferError for one that is not contiguous.
    """
    cdef Py_buffer buffer
    PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
    try:
        with nogil:
            crc = cpp.Crc32c.extend(crc, <const uint8_t*>buffer.buf, buffer.len)
    finally:
        PyBuffer_Release(&buffer)
    return crc
