# distutils: language = c++
"""State of keys by slot, followed row by row: first rows within a horizon, running aggregates."""

import numpy as np

from libc.stdint cimport int32_t, int64_t, uint32_t, uint8_t

from jetfast.kernels._csrc cimport keyed_state as cpp

NEVER_SEEN = cpp.kNeverSeen
"""Time of a key that has no row."""

ctypedef fused number:
    int64_t
    double


cdef int check_slots(const uint32_t[::1] slots, Py_ssize_t row_count, Py_ssize_t slot_count) except -1:
    cdef Py_ssize_t row
    cdef uint32_t highest = 0
    if row_count != slots.shape[0]:
        raise ValueError(f"there are {slots.shape[0]} slots for {row_count} rows")
    with nogil:
        for row in range(slots.shape[0]):
            highest = max(highest, slots[row])
    if slots.shape[0] > 0 and highest >= slot_count:
        raise ValueError(f"slot {highest} is not below {slot_count}")
    return 0


def note_times(const uint32_t[::1] slots not None, const int64_t[::1] times not None, int64_t[::1] seen not None):
    """Raise the time at which each key was seen last to those of its rows.

    slots : uint32, shape (rows,)
    times : int64 microseconds, shape (rows,)
    seen : int64, by slot; changed. NEVER_SEEN: not yet
    """
    check_slots(slots, times.shape[0], seen.shape[0])
    if slots.shape[0] > 0:
        with nogil:
            cpp.note_times(&slots[0], &times[0], slots.shape[0], &seen[0])


def keep_first(const uint32_t[::1] slots not None, const int64_t[::1] times not None, int64_t horizon,
               int64_t[::1] seen not None):
    """Return the rows whose key was not kept before, or last more than `horizon` before them.

    slots : uint32, shape (rows,)
    times : int64 microseconds, shape (rows,)
    seen : int64, by slot, times of the rows kept last; changed. NEVER_SEEN: none

    Returns
    -------
    rows : int32 ndarray, ascending
    """
    check_slots(slots, times.shape[0], seen.shape[0])
    rows = np.empty(slots.shape[0], dtype=np.int32)
    cdef int32_t[::1] view = rows
    cdef int64_t count = 0
    if slots.shape[0] > 0:
        with nogil:
            count = cpp.keep_first(&slots[0], &times[0], slots.shape[0], horizon, &seen[0], &view[0])
    return rows[:count]


def number_states(const uint32_t[::1] slots not None, const int64_t[::1] times not None, int64_t ttl,
                  int64_t[::1] seen not None, int32_t[::1] group_of_slot not None):
    """Number the states that rows meet: one for each key, another one from a row on that comes more than `ttl` later.

    slots : uint32, shape (rows,)
    times : int64 microseconds, shape (rows,)
    ttl : a state lives so long after the last row of its key
    seen : int64, by slot, when its key was seen last, NEVER_SEEN: not yet; raised
    group_of_slot : int32, by slot, -1 everywhere; so again afterwards

    Returns
    -------
    groups : int64 ndarray, shape (rows,): number of the state of each row
    slots : uint32 ndarray, shape (groups,)
    before : int32 ndarray, shape (groups,): the group that ends with this one, -1: none of these
    ended : int64 ndarray, shape (groups,): until when the state before this one lived, NEVER_SEEN: none ends with it
    """
    cdef Py_ssize_t count = slots.shape[0]
    check_slots(slots, times.shape[0], min(seen.shape[0], group_of_slot.shape[0]))
    groups = np.empty(count, dtype=np.int64)
    slots_of = np.empty(count, dtype=np.uint32)
    before = np.empty(count, dtype=np.int32)
    ended = np.empty(count, dtype=np.int64)
    cdef int64_t[::1] group_view = groups
    cdef uint32_t[::1] slot_view = slots_of
    cdef int32_t[::1] before_view = before
    cdef int64_t[::1] ended_view = ended
    cdef int64_t made = 0
    if count > 0:
        with nogil:
            made = cpp.number_states(&slots[0], &times[0], count, ttl, &seen[0], &group_of_slot[0], &group_view[0],
                                     &slot_view[0], &before_view[0], &ended_view[0])
    return groups, slots_of[:made], before[:made], ended[:made]


def run_counts(const uint32_t[::1] slots not None, valid, int64_t[::1] counts not None):
    """Return how many values the key of each row has with it.

    slots : uint32, shape (rows,)
    valid : uint8, shape (rows,), 0 for a row without value; None: all have one
    counts : int64, by slot; changed

    Returns
    -------
    results : int64 ndarray, shape (rows,)
    """
    cdef const uint8_t[::1] valid_view = valid
    cdef const uint8_t* flags = NULL
    check_slots(slots, slots.shape[0] if valid is None else valid_view.shape[0], counts.shape[0])
    results = np.empty(slots.shape[0], dtype=np.int64)
    cdef int64_t[::1] view = results
    if slots.shape[0] > 0:
        if valid is not None:
            flags = &valid_view[0]
        with nogil:
            cpp.run_counts(&slots[0], flags, slots.shape[0], &counts[0], &view[0])
    return results


def run_sums(const uint32_t[::1] slots not None, const number[::1] values not None, valid, number[::1] sums not None):
    """Return the sum of the values that the key of each row has with it.

    values : int64 or float64, shape (rows,)
    sums : of the same type, by slot; changed
    slots, valid : as of `run_counts`

    Returns
    -------
    results : of the type of values, shape (rows,)

    Raises OverflowError for a sum that does not fit 64 bits.
    """
    cdef const uint8_t[::1] valid_view = valid
    cdef const uint8_t* flags = NULL
    cdef int64_t failed = -1
    check_slots(slots, values.shape[0], sums.shape[0])
    results = np.empty(slots.shape[0], dtype=np.int64 if number is int64_t else np.float64)
    cdef number[::1] view = results
    if slots.shape[0] > 0:
        if valid is not None:
            check_slots(slots, valid_view.shape[0], sums.shape[0])
            flags = &valid_view[0]
        with nogil:
            failed = cpp.run_sums(&slots[0], &values[0], flags, slots.shape[0], &sums[0], &view[0])
    if failed >= 0:
        raise OverflowError(f"row {failed}: the sum does not fit 64 bits")
    return results


def run_extremes(const uint32_t[::1] slots not None, const number[::1] values not None, valid, bint greatest,
                 int64_t[::1] counts not None, number[::1] extremes not None):
    """Return the least value, or the greatest, that the key of each row has with it; NaN is greater than any number.

    values, valid : as of `run_sums`
    counts : int64, by slot, values so far; changed
    extremes : of the type of values, by slot; changed

    Returns
    -------
    results : of the type of values, shape (rows,); of a key without values anything
    """
    cdef const uint8_t[::1] valid_view = valid
    cdef const uint8_t* flags = NULL
    check_slots(slots, values.shape[0], min(counts.shape[0], extremes.shape[0]))
    results = np.empty(slots.shape[0], dtype=np.int64 if number is int64_t else np.float64)
    cdef number[::1] view = results
    if slots.shape[0] > 0:
        if valid is not None:
            check_slots(slots, valid_view.shape[0], counts.shape[0])
            flags = &valid_view[0]
        with nogil:
            cpp.run_extremes(&slots[0], &values[0], flags, slots.shape[0], greatest, &counts[0], &extremes[0],
                                     &view[0])
    return results
