# distutils: language = c++
"""The times of batches as their source needs them: how far they reach, in one pass."""

from libc.stdint cimport int64_t, uint64_t
from libcpp cimport bool as cbool
from libcpp.vector cimport vector

from jetfast.kernels._csrc.batch cimport Rows
from jetfast.kernels._csrc.column_view cimport ColumnView, Layout
from jetfast.kernels._csrc.kernel_clock cimport KernelClock
from jetfast.kernels._csrc.timestamps cimport is_time_kind
from jetfast.kernels._csrc.timestamps cimport time_range as time_range_of_column
from jetfast.kernels.clocks cimport kernel_clock
from jetfast.kernels.columns cimport append_rows


def reached_times(
    batches not None, int column, int64_t rows_max, int64_t small_rows, int64_t span_us, int64_t part_span_us
):
    """Return how far the times of batches reach, found in one call without the GIL, if all of them can leave as they are.

    batches : BatchRun, or a sequence of Batch
    column : index of a date or timestamp column
    rows_max : a batch of more rows must be cut
    small_rows : a batch of at most so many rows may reach over any span of time
    span_us : one of more rows must be cut if it reaches over more, microseconds
    part_span_us : at least 0; batches belong together while their greatest times are at most so much above that of the first

    Returns
    -------
    span_us : int, from the greatest time of the first batch to that of the last, microseconds
    parts : list of (int, int), for those that belong together: index behind the last batch, and greatest time of all of them,
        microseconds (floored)

    Or None if a batch must be cut, has no rows, a null, or a time that does not fit int64 (`Batch.timestamps` tells which).
    Raises ValueError for another type, IndexError if there is no such column.
    """
    cdef vector[const Rows*] rows
    cdef vector[int64_t] ends, greatest
    cdef const ColumnView* view
    cdef int64_t low, high
    cdef int64_t first = 0, last = 0, part_first = 0
    cdef size_t index
    cdef cbool whole = True
    schema = append_rows(batches, rows)
    if rows.empty():
        return 0, []
    if column < 0 or <size_t>column >= rows[0].columns.size():
        raise IndexError(f"there is no column {column}, only 0 to {<int64_t>rows[0].columns.size() - 1}")
    view = &rows[0].columns[column].view
    if not is_time_kind(view.kind) or view.layout != Layout.fixed:
        raise ValueError(f"column {column} must be a date or timestamp, it is {schema.field(column).type}")
    cdef KernelClock* clock = kernel_clock()
    with nogil:
        clock.enter()
        for index in range(rows.size()):
            view = &rows[index].columns[column].view
            if view.row_count > rows_max or not time_range_of_column(view[0], &low, &high):
                whole = False
            elif view.row_count > small_rows and <uint64_t>high - <uint64_t>low > <uint64_t>span_us:
                whole = False
            if not whole:
                break
            last = high
            if index == 0:
                first = high
            if index == 0 or (high > part_first and <uint64_t>high - <uint64_t>part_first > <uint64_t>part_span_us):
                part_first = high
                ends.push_back(index + 1)
                greatest.push_back(high)
            else:
                ends[ends.size() - 1] = index + 1
                if high > greatest[greatest.size() - 1]:
                    greatest[greatest.size() - 1] = high
        clock.leave()
    if not whole:
        return None
    return <object>last - <object>first, [(ends[index], greatest[index]) for index in range(ends.size())]
