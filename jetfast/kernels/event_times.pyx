# distutils: language = c++
"""The times of batches as their source needs them: how far they reach, in one pass."""

from libc.stdint cimport int64_t
from libcpp cimport bool as cbool
from libcpp.vector cimport vector

from jetfast.kernels._csrc.column_view cimport ColumnView, Layout
from jetfast.kernels._csrc.kernel_clock cimport KernelClock
from jetfast.kernels._csrc.timestamps cimport is_time_kind
from jetfast.kernels._csrc.timestamps cimport time_range as time_range_of_column
from jetfast.kernels.clocks cimport kernel_clock
from jetfast.kernels.columns cimport Batch


cdef struct Reach:
    ColumnView* view
    int64_t least
    int64_t greatest
    cbool known


def time_ranges(list batches not None, int column):
    """Return the least and the greatest time of each batch, found in one call without the GIL.

    batches : list of Batch
    column : index of a date or timestamp column

    Returns
    -------
    list of (least, greatest) : int, microseconds (floored); None for a batch without rows, with a null, or with a time that
        does not fit int64: `Batch.timestamps` tells which

    Raises ValueError for another type, IndexError if there is no such column.
    """
    cdef vector[Reach] reaches
    cdef Reach reach
    cdef size_t index
    cdef Batch batch
    reaches.reserve(len(batches))
    for batch in batches:
        if column < 0 or <size_t>column >= batch.rows.columns.size():
            raise IndexError(f"there is no column {column}, only 0 to {<int64_t>batch.rows.columns.size() - 1}")
        reach.view = &batch.rows.columns[column].view
        if not is_time_kind(reach.view.kind) or reach.view.layout != Layout.fixed:
            raise ValueError(f"column {column} must be a date or timestamp, it is {batch.schema.field(column).type}")
        reaches.push_back(reach)
    cdef KernelClock* clock = kernel_clock()
    with nogil:
        clock.enter()
        for index in range(reaches.size()):
            reaches[index].known = time_range_of_column(
                reaches[index].view[0], &reaches[index].least, &reaches[index].greatest
            )
        clock.leave()
    cdef list ranges = []
    for reach in reaches:
        ranges.append((reach.least, reach.greatest) if reach.known else None)
    return ranges
