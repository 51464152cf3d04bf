# distutils: language = c++
"""Rows of two sides that belong together: by the slots of their keys, and by slots and times."""

import numpy as np

from cython.operator cimport dereference
from libc.stdint cimport int32_t, int64_t, uint32_t, uint8_t
from libc.string cimport memcpy
from libcpp cimport bool as cbool
from libcpp.memory cimport make_unique, unique_ptr

from jetfast.kernels._csrc.kernel_clock cimport KernelClock
from jetfast.kernels._csrc.slot_matches cimport SlotMatches as CppSlotMatches
from jetfast.kernels._csrc.slot_matches cimport kJoinsNothing
from jetfast.kernels._csrc.time_chains cimport TimeChains as CppTimeChains
from jetfast.kernels.clocks cimport kernel_clock

NO_SLOT = kJoinsNothing
"""Slot of a row whose key is null: it matches nothing."""

cdef int64_t ROW_LIMIT = 2**31 - 1


cdef class SlotMatches:
    """Pairs rows of two sides that have the same slot.

    right_slots : uint32, shape (right rows,): slots of the right side; NO_SLOT matches nothing
    slot_limit : slots from here on have no right rows
    """

    cdef unique_ptr[CppSlotMatches] matches
    cdef const uint32_t[::1] probed

    def __init__(self, const uint32_t[::1] right_slots not None, uint32_t slot_limit):
        cdef int64_t count = right_slots.shape[0]
        if count > ROW_LIMIT:
            raise ValueError(f"one side of a join has {count} rows in one place, more than {ROW_LIMIT}")
        cdef const uint32_t* slots = NULL
        if count > 0:
            slots = &right_slots[0]
        self.matches = make_unique[CppSlotMatches](slots, count, slot_limit)

    def probe(self, const uint32_t[::1] left_slots not None):
        """Begin with other left rows: uint32, shape (left rows,)."""
        if left_slots.shape[0] > ROW_LIMIT:
            raise ValueError(f"one side of a join has {left_slots.shape[0]} rows in one place, more than {ROW_LIMIT}")
        self.probed = left_slots
        cdef const uint32_t* slots = NULL
        if left_slots.shape[0] > 0:
            slots = &left_slots[0]
        dereference(self.matches).probe(slots, left_slots.shape[0])

    def next(self, int64_t rows_max, cbool keep_left=False):
        """Return the next pairs, or None when there are no more.

        keep_left : a left row without match comes, too, beside the row number `right_count`

        Returns
        -------
        left_rows, right_rows : int32 ndarrays, shape (pairs,), at most rows_max; by left row, then by right row
        """
        if rows_max < 1:
            raise ValueError(f"rows_max must be at least 1, got {rows_max}")
        cdef int64_t count, made
        cdef KernelClock* clock = kernel_clock()
        with nogil:
            clock.enter()
            count = dereference(self.matches).count_next(rows_max, keep_left)
            clock.leave()
        if count == 0:
            return None
        left = np.empty(count, dtype=np.int32)
        right = np.empty(count, dtype=np.int32)
        cdef int32_t[::1] left_view = left
        cdef int32_t[::1] right_view = right
        cdef int32_t missing = <int32_t>dereference(self.matches).right_count()
        with nogil:
            clock.enter()
            made = dereference(self.matches).next(count, keep_left, missing, &left_view[0], &right_view[0])
            clock.leave()
        assert made == count
        return left, right

    @property
    def right_count(self):
        """Number of right rows."""
        return dereference(self.matches).right_count()

    def unmatched(self):
        """Return the right rows that were in no pair so far: int32, ascending."""
        rows = np.empty(dereference(self.matches).right_count(), dtype=np.int32)
        cdef int32_t[::1] view = rows
        cdef int64_t count = 0
        if view.shape[0] > 0:
            with nogil:
                count = dereference(self.matches).unmatched(&view[0])
        return rows[:count]


cdef class TimeChains:
    """Rows of one side of a join by slot and time, numbered as they come. None is taken out."""

    cdef CppTimeChains chains
    cdef const uint32_t[::1] probed_slots
    cdef const int64_t[::1] probed_times
    cdef uint8_t[::1] found

    def __len__(self):
        return self.chains.size()

    @property
    def nbytes(self):
        """Bytes that the chains take."""
        return self.chains.bytes()

    def append(self, const uint32_t[::1] slots not None, const int64_t[::1] times not None, uint32_t slot_limit,
               const uint8_t[::1] matched=None):
        """Add rows.

        slots : uint32, shape (rows,), below slot_limit or NO_SLOT
        times : int64 microseconds, shape (rows,)
        matched : uint8, shape (rows,): 1 for rows that have met one of the other side; default: none

        Raises ValueError for arrays of different lengths, slots out of range, and more than 2^31 rows.
        """
        cdef int64_t count = slots.shape[0]
        cdef int64_t row
        cdef cbool outside = False
        if times.shape[0] != count or (matched is not None and matched.shape[0] != count):
            raise ValueError(f"there are {count} slots and {times.shape[0]} times")
        if self.chains.size() + count > ROW_LIMIT:
            raise ValueError(f"one side of a join holds more than {ROW_LIMIT} rows")
        if count == 0:
            return
        cdef const uint8_t* flags = NULL
        if matched is not None:
            flags = &matched[0]
        cdef KernelClock* clock = kernel_clock()
        with nogil:
            clock.enter()
            for row in range(count):
                outside = outside or (slots[row] >= slot_limit and slots[row] != kJoinsNothing)
            if not outside:
                self.chains.append(&slots[0], &times[0], flags, count, slot_limit)
            clock.leave()
        if outside:
            raise ValueError(f"slots must be below {slot_limit}")

    def probe(self, const uint32_t[::1] slots not None, const int64_t[::1] times not None, int64_t lower,
              int64_t upper):
        """Begin with rows of the other side: row i meets rows of its slot with a time in [times[i] + lower, times[i] + upper].

        Returns
        -------
        found : uint8 ndarray, shape (rows,): 1 for each row that has met one, as far as `next` has come
        """
        cdef int64_t count = slots.shape[0]
        if times.shape[0] != count:
            raise ValueError(f"there are {count} slots and {times.shape[0]} times")
        found = np.zeros(count, dtype=np.uint8)
        self.probed_slots = slots
        self.probed_times = times
        self.found = found
        if count > 0:
            self.chains.probe(&slots[0], &times[0], count, lower, upper, &self.found[0])
        else:
            self.chains.probe(NULL, NULL, 0, lower, upper, NULL)
        return found

    def next(self, int64_t rows_max):
        """Return the next pairs, or None when there are no more. Nothing may be appended before that.

        Returns
        -------
        probed_rows, rows : int32 ndarrays, shape (pairs,), at most rows_max; by probed row, then the latest first
        """
        if rows_max < 1:
            raise ValueError(f"rows_max must be at least 1, got {rows_max}")
        probed = np.empty(rows_max, dtype=np.int32)
        rows = np.empty(rows_max, dtype=np.int32)
        cdef int32_t[::1] probed_view = probed
        cdef int32_t[::1] row_view = rows
        cdef int64_t made
        cdef KernelClock* clock = kernel_clock()
        with nogil:
            clock.enter()
            made = self.chains.next(rows_max, &probed_view[0], &row_view[0])
            clock.leave()
        return None if made == 0 else (probed[:made], rows[:made])

    def find_latest(self, const uint32_t[::1] slots not None, const int64_t[::1] times not None, int64_t reach):
        """Return for each row of another side the latest row of its slot not after it, and at most `reach` before it.

        Returns
        -------
        rows : int32 ndarray, shape (rows,); -1 where there is none. Of rows of one time it is the one that came last
        """
        cdef int64_t count = slots.shape[0]
        if times.shape[0] != count:
            raise ValueError(f"there are {count} slots and {times.shape[0]} times")
        rows = np.empty(count, dtype=np.int32)
        cdef int32_t[::1] view = rows
        cdef KernelClock* clock = kernel_clock()
        if count > 0:
            with nogil:
                clock.enter()
                self.chains.find_latest(&slots[0], &times[0], count, reach, &view[0])
                clock.leave()
        return rows

    def expire(self, int64_t bound):
        """Return the rows before `bound` that have met none, int32, ascending; each is returned once."""
        rows = np.empty(self.chains.size(), dtype=np.int32)
        cdef int32_t[::1] view = rows
        cdef int64_t count = 0
        if view.shape[0] > 0:
            with nogil:
                count = self.chains.expire(bound, &view[0])
        return rows[:count]

    def count_before(self, int64_t bound):
        """Return how many rows are before `bound`, at least."""
        return self.chains.count_before(bound)

    def keep(self, int64_t bound, floor=None):
        """Return the rows from `bound` on, int32, ascending.

        floor : of each slot the latest row before `bound` is among them, too, unless its time is less than this; None: it is not
        """
        cdef int64_t least = bound if floor is None else floor
        rows = np.empty(self.chains.size(), dtype=np.int32)
        cdef int32_t[::1] view = rows
        cdef int64_t count = 0
        if view.shape[0] > 0:
            with nogil:
                count = self.chains.keep(bound, least, &view[0])
        return rows[:count]

    def times(self):
        """Return the times of all rows: int64 microseconds, shape (rows,); a copy."""
        times = np.empty(self.chains.size(), dtype=np.int64)
        cdef int64_t[::1] view = times
        if view.shape[0] > 0:
            memcpy(&view[0], self.chains.times(), view.shape[0] * sizeof(int64_t))
        return times

    def times_of(self, const int32_t[::1] rows not None):
        """Return the times of some rows: int64 microseconds, shape (rows,)."""
        times = np.empty(rows.shape[0], dtype=np.int64)
        cdef int64_t[::1] view = times
        cdef const int64_t* source = self.chains.times()
        cdef int64_t index, size = self.chains.size()
        for index in range(rows.shape[0]):
            if rows[index] < 0 or rows[index] >= size:
                raise ValueError(f"row {rows[index]} is not in [0, {size})")
            view[index] = source[rows[index]]
        return times

    def matched(self):
        """Return which rows have met one of the other side, or were returned by `expire`: bool, shape (rows,); a copy."""
        matched = np.empty(self.chains.size(), dtype=np.uint8)
        cdef uint8_t[::1] view = matched
        if view.shape[0] > 0:
            memcpy(&view[0], self.chains.matched(), view.shape[0])
        return matched.view(np.bool_)
