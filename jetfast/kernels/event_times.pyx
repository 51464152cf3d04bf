# distutils: language = c++
"""The times of a batch as its source needs them: how far they reach, in one pass."""

from libc.stdint cimport int64_t
from libcpp cimport bool as cbool

from jetfast.kernels._csrc.column_view cimport ColumnView, Layout
from jetfast.kernels._csrc.kernel_clock cimport KernelClock
from jetfast.kernels._csrc.timestamps cimport is_time_kind
from jetfast.kernels._csrc.timestamps cimport time_range as time_range_of_column
from jetfast.kernels.clocks cimport kernel_clock
from jetfast.kernels.columns cimport Batch


def time_range(Batch batch not None, int column):
    """Return the least and the greatest time of a batch.

    column : index of a date or timestamp column

    Returns
    -------
    (least, greatest) : int, microseconds (floored); None if there is no row, a null, or a time that does not fit int64:
        `Batch.timestamps` tells which

    Raises ValueError for another type, IndexError if there is no such column.
    """
    if column < 0 or <size_t>column >= batch.rows.columns.size():
        raise IndexError(f"there is no column {column}, only 0 to {<int64_t>batch.rows.columns.size() - 1}")
    cdef ColumnView* view = &batch.rows.columns[column].view
    if not is_time_kind(view.kind) or view.layout != Layout.fixed:
        raise ValueError(f"column {column} must be a date or timestamp, it is {batch.schema.field(column).type}")
    cdef int64_t least = 0, greatest = 0
    cdef cbool known
    cdef KernelClock* clock = kernel_clock()
    with nogil:
        clock.enter()
        known = time_range_of_column(view[0], &least, &greatest)
        clock.leave()
    return (least, greatest) if known else None
