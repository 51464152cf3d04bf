# distutils: language = c++
"""Rows by group: numbers for the places that occur, and the order of rows within groups."""

import numpy as np

from libc.stdint cimport int64_t
from libc.string cimport memcpy
from libcpp.vector cimport vector

from jetfast.kernels._csrc cimport grouping as cpp


def number_places(places, starts=None):
    """Number the different places of each span of rows.

    places : int64 ndarray, shape (rows,), not negative
    starts : int64 ndarray, shape (spans + 1,): span s is rows [starts[s], starts[s + 1]); default: one span of all

    Returns
    -------
    groups : int64 ndarray, shape (rows,): the number of each row's place, counted on from span to span
    group_places : int64 ndarray, shape (groups,): the place of each number, ascending within a span
    bounds : int64 ndarray, shape (spans + 1,): numbers [bounds[s], bounds[s + 1]) are those of span s

    Raises ValueError for negative places and for spans that do not follow one another from the first row to the last.
    """
    cdef const int64_t[::1] place_view = np.ascontiguousarray(places, dtype=np.int64)
    cdef Py_ssize_t row_count = place_view.shape[0]
    if starts is None:
        starts = np.array([0, row_count], dtype=np.int64)
    starts = np.ascontiguousarray(starts, dtype=np.int64)
    cdef const int64_t[::1] start_view = starts
    cdef Py_ssize_t span_count = start_view.shape[0] - 1
    if span_count < 1 or starts[0] != 0 or starts[-1] != row_count or (starts[1:] < starts[:-1]).any():
        raise ValueError(f"spans must follow one another from 0 to {row_count}, got {starts}")
    if row_count > 0 and np.min(place_view) < 0:
        raise ValueError("places must not be negative")
    groups = np.empty(row_count, dtype=np.int64)
    bounds = np.zeros(span_count + 1, dtype=np.int64)
    cdef int64_t[::1] group_view = groups
    cdef int64_t[::1] bound_view = bounds
    cdef vector[int64_t] numbered
    if row_count > 0:
        with nogil:
            cpp.number_places(&place_view[0], &start_view[0], span_count, &group_view[0], numbered, &bound_view[0])
    group_places = np.empty(numbered.size(), dtype=np.int64)
    cdef int64_t[::1] numbered_view = group_places
    if numbered.size() > 0:
        memcpy(&numbered_view[0], numbered.data(), numbered.size() * sizeof(int64_t))
    return groups, group_places, bounds


def order_by_group(groups, int64_t group_count, keys=None, second_keys=None):
    """Return the order of rows by group, then by keys, then by second_keys, then as they come.

    groups : int64 ndarray, shape (rows,), values in [0, group_count)
    keys, second_keys : int64 ndarrays, shape (rows,), or None

    Returns
    -------
    order : int64 ndarray, shape (rows,)

    Raises ValueError for groups out of their range and arrays of different lengths.
    """
    groups = np.ascontiguousarray(groups, dtype=np.int64)
    cdef const int64_t[::1] group_view = groups
    cdef Py_ssize_t row_count = group_view.shape[0]
    order = np.empty(row_count, dtype=np.int64)
    if row_count == 0:
        return order
    if groups.min() < 0 or groups.max() >= group_count:
        raise ValueError(f"groups must be in [0, {group_count})")
    cdef const int64_t[::1] key_view
    cdef const int64_t[::1] second_view
    cdef const int64_t* key_pointer = NULL
    cdef const int64_t* second_pointer = NULL
    if keys is not None:
        key_view = np.ascontiguousarray(keys, dtype=np.int64)
        if key_view.shape[0] != row_count:
            raise ValueError(f"there are {key_view.shape[0]} keys for {row_count} rows")
        key_pointer = &key_view[0]
    if second_keys is not None:
        if keys is None:
            raise ValueError("second_keys need keys")
        second_view = np.ascontiguousarray(second_keys, dtype=np.int64)
        if second_view.shape[0] != row_count:
            raise ValueError(f"there are {second_view.shape[0]} second keys for {row_count} rows")
        second_pointer = &second_view[0]
    cdef int64_t[::1] order_view = order
    with nogil:
        cpp.order_by_group(&group_view[0], key_pointer, second_pointer, row_count, group_count, &order_view[0])
    return order
