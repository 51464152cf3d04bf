"""A function of the user over whole Arrow batches."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa

from jetfast.core.batch import Batch, batches_from_arrow
from jetfast.core.failed_row import FailedRow
from jetfast.core.items import Output
from jetfast.core.processor import Processor, ProcessorContext
from jetfast.errors import JobFailedError
from jetfast.kernels.carried import carried_rows, carried_type

BatchFunction = Callable[[pa.RecordBatch], Any]
"""Takes a record batch of 1 row or more; gives a record batch, a table, an iterable of those, or None for no rows."""


class MapBatches(Processor):
    """Calls `function` with each batch and checks that what it gives has the declared schema.

    An error names the rows by their place among all that this processor took in, counted from 0, and shows the first.

    Parameters
    ----------
    function : see BatchFunction
    schema : of the results; names and types must be these, the order of columns is put right
    """

    def __init__(self, function: BatchFunction, schema: pa.Schema) -> None:
        self.function = function
        self.schema = schema
        self.name = getattr(function, "__qualname__", type(function).__name__)
        self.rows_before = 0

    def open(self, context: ProcessorContext) -> None:
        self.rows_before = 0

    def process(self, ordinal: int, batch: Batch) -> Iterator[Output]:
        rows = batch.to_arrow()
        first = self.rows_before
        self.rows_before += rows.num_rows
        try:
            result = self.function(rows)
            if result is None:
                return
            if isinstance(result, pa.RecordBatch | pa.Table):
                result = (result,)
            elif not isinstance(result, Iterable):
                raise JobFailedError(f"it returned {type(result).__name__}; a pyarrow.RecordBatch is needed")
            for part in result:
                for made in checked_batches(part, self.schema):
                    yield made if batch.origin is None else made.with_origin(*batch.origin)
        except FailedRow as failed:
            error = failed.__cause__
            raise JobFailedError(
                f"{self.name} failed on row {first + failed.number}, {failed.row}: {type(error).__name__}: {error}"
            ) from error
        except Exception as error:
            what = str(error) if isinstance(error, JobFailedError) else f"{type(error).__name__}: {error}"
            raise JobFailedError(
                f"{self.name} failed on rows {first} to {first + rows.num_rows - 1}, "
                f"the first of them {rows.slice(0, 1).to_pylist()[0]}: {what}"
            ) from error


def checked_batches(part: Any, wanted: pa.Schema) -> Iterator[Batch]:
    """Return what a function gave as batches of the declared schema; the order of columns is put right.

    Raises JobFailedError for anything but a record batch or a table with these columns.
    """
    if not isinstance(part, pa.RecordBatch | pa.Table):
        raise JobFailedError(f"it returned {type(part).__name__}; a pyarrow.RecordBatch is needed")
    if part.num_rows == 0:
        return
    if part.schema.names != wanted.names:
        if sorted(part.schema.names) != sorted(wanted.names):
            raise JobFailedError(
                f"it returned the columns {', '.join(part.schema.names)}; declared are {', '.join(wanted.names)}"
            )
        part = part.select(wanted.names)
    if part.schema.types != wanted.types:
        part = _carried(part, wanted)
    if not part.schema.equals(wanted, check_metadata=True):  # of nullability and metadata the declared ones hold
        part = type(part).from_arrays(part.columns, schema=wanted)
    if isinstance(part, pa.Table):
        yield from batches_from_arrow(part)
    else:
        yield Batch.from_arrow(part)


def _carried(part: pa.RecordBatch | pa.Table, wanted: pa.Schema) -> pa.RecordBatch | pa.Table:
    """Columns as they are carried. Raises JobFailedError unless they have the declared types then."""
    for field in wanted:
        came = part.schema.field(field.name).type
        if carried_type(came) != field.type:
            raise JobFailedError(f"it returned column {field.name!r} as {came}; declared is {field.type}")
    if isinstance(part, pa.Table):
        return pa.Table.from_batches([carried_rows(rows) for rows in part.to_batches()])
    return carried_rows(part)
