# distutils: language = c++
"""The times of batches as their source needs them: how far they reach, in one pass."""

from libc.stdint cimport int64_t, uint64_t
from libcpp cimport bool as cbool
from libcpp.vector cimport vector

from jetfast.kernels._csrc.column_view cimport ColumnView, Layout
from jetfast.kernels._csrc.kernel_clock cimport KernelClock
from jetfast.kernels._csrc.timestamps cimport is_time_kind
from jetfast.kernels._csrc.timestamps cimport time_range as time_range_of_column
from jetfast.kernels.clocks cimport kernel_clock
from jetfast.kernels.columns cimport Batch


def greatest_times(list batches not None, int column, int64_t rows_max, int64_t small_rows, int64_t span_us):
    """Return the greatest time of each batch, found in one call without the GIL, if all of them can leave as they are.

    batches : list of Batch
    column : index of a date or timestamp column
    rows_max : a batch of more rows must be cut
    small_rows : a batch of at most so many rows may reach over any span of time
    span_us : one of more rows must be cut if it reaches over more, microseconds

    Returns
    -------
    list of int : microseconds (floored); or None if a batch must be cut, has no rows, a null, or a time that does not fit int64
        (`Batch.timestamps` tells which)

    Raises ValueError for another type, IndexError if there is no such column.
    """
    cdef vector[ColumnView*] views
    cdef vector[int64_t] greatest
    cdef ColumnView* view
    cdef int64_t low, high
    cdef size_t index
    cdef cbool whole = True
    cdef Batch batch
    views.reserve(len(batches))
    for batch in batches:
        if column < 0 or <size_t>column >= batch.rows.columns.size():
            raise IndexError(f"there is no column {column}, only 0 to {<int64_t>batch.rows.columns.size() - 1}")
        view = &batch.rows.columns[column].view
        if not is_time_kind(view.kind) or view.layout != Layout.fixed:
            raise ValueError(f"column {column} must be a date or timestamp, it is {batch.schema.field(column).type}")
        if batch.row_count > rows_max:
            return None
        views.push_back(view)
    cdef KernelClock* clock = kernel_clock()
    with nogil:
        clock.enter()
        greatest.reserve(views.size())
        for view in views:
            if not time_range_of_column(view[0], &low, &high):
                whole = False
            elif view.row_count > small_rows and <uint64_t>high - <uint64_t>low > <uint64_t>span_us:
                whole = False
            if not whole:
                break
            greatest.push_back(high)
        clock.leave()
    return [greatest[index] for index in range(greatest.size())] if whole else None
