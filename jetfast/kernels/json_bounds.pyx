# distutils: language = c++
"""Bounds of JSON lines, checked before a parser sees them."""

from libc.stdint cimport int64_t, uint8_t

from jetfast.kernels._csrc cimport json_bounds as cpp


def find_too_deep(const uint8_t[::1] text not None, int64_t depth_max):
    """Return the offset of the first bracket by which a value nests deeper than `depth_max`; -1 if there is none.

    text : bytes of whole JSON lines. Brackets in strings do not count. Of text that is not JSON only what stands before
        the first mistake is looked at for certain.
    depth_max : at least 1
    """
    if depth_max < 1:
        raise ValueError(f"depth_max must be at least 1, got {depth_max}")
    cdef int64_t size = text.shape[0]
    if size == 0:
        return -1
    cdef int64_t found
    with nogil:
        found = cpp.JsonBounds.find_too_deep(&text[0], size, depth_max)
    return found


def count_columns(const uint8_t[::1] text not None, int64_t columns_max):
    """Return how many columns the objects of some lines have together, nested ones included.

    text : bytes of whole JSON lines that do not nest too deep: see `find_too_deep`
    columns_max : counting ends there, and the result is columns_max + 1; at least 1
    """
    if columns_max < 1:
        raise ValueError(f"columns_max must be at least 1, got {columns_max}")
    cdef int64_t size = text.shape[0]
    if size == 0:
        return 0
    cdef int64_t found
    with nogil:
        found = cpp.JsonBounds.count_columns(&text[0], size, columns_max)
    return found


def count_open(const uint8_t[::1] text not None):
    """Return how many bytes of a text open an object or a list, those in strings included."""
    cdef int64_t size = text.shape[0]
    if size == 0:
        return 0
    cdef int64_t found
    with nogil:
        found = cpp.JsonBounds.count_open(&text[0], size)
    return found
