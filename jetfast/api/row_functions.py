"""Functions over rows, and over lists, as functions over record batches; and what a function gives, if nobody says."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import length_hint
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jetfast.core.batch import Batch
from jetfast.core.failed_row import FailedRow
from jetfast.errors import JobDefinitionError

BatchFunction = Callable[[pa.RecordBatch], Any]
"""Takes a record batch of 1 row or more; gives a record batch, a table, an iterable of those, or None for no rows."""


class RowFunction:
    """A function over rows as one over record batches."""

    def __init__(self, function: Callable[[dict[str, Any]], Any], schema: pa.Schema) -> None:
        self.function = function
        self.schema = schema
        self.__qualname__ = getattr(function, "__qualname__", type(function).__name__)

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        rows = batch.to_pylist()
        results = self.results(rows, map(self.function, rows_left := iter(rows)), rows_left)
        made = [row for row in results if row is not None]
        try:
            return self.rows(made)
        except (TypeError, ValueError, AttributeError, pa.ArrowException) as error:
            origins = [number for number, row in enumerate(results) if row is not None]
            raise self.failure(rows, made, origins, error) from error

    def results(self, rows: list[Any], made: Iterable[Any], rows_left: Iterator[Any]) -> list[Any]:
        """Return what is made of rows; an error of the user's function names the row that was taken last."""
        try:
            return list(made)
        except Exception as error:
            number = len(rows) - length_hint(rows_left) - 1
            raise FailedRow(number, rows[number]) from error

    def failure(self, rows: list[Any], made: list[Any], origins: Sequence[int], error: Exception) -> Exception:
        """Find the first row of which nothing fitting was made; `origins`: number of the row that each was made of."""
        for row, origin in zip(made, origins, strict=True):
            try:
                self.rows([row])
            except (TypeError, ValueError, AttributeError, pa.ArrowException) as own_error:
                failed = FailedRow(origin, rows[origin])
                failed.__cause__ = own_error
                return failed
        return error

    def rows(self, made: list[Any]) -> pa.RecordBatch:
        """Return a record batch of dicts. Raises TypeError or ValueError, saying so, if they are none of its schema."""
        try:
            rows = pa.RecordBatch.from_pylist(made, schema=self.schema)
        except (TypeError, AttributeError) as error:
            wrong = next((row for row in made if not isinstance(row, Mapping)), None)
            if wrong is None:
                raise
            raise TypeError(f"a row must be a dict of columns, it made {wrong!r} ({type(wrong).__name__})") from error
        if made and made[0] and not any(name in made[0] for name in self.schema.names):
            raise ValueError(
                f"a row has none of the columns of its schema ({', '.join(self.schema.names)}): {made[0]!r}"
            )
        return rows


class FlatFunction(RowFunction):
    """A function that gives several rows for one, as one over record batches."""

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        rows = batch.to_pylist()
        rows_left = iter(rows)
        origins: list[int] = []

        def make() -> Iterator[Any]:
            for number, results in enumerate(map(self.function, rows_left)):
                for row in results or ():
                    origins.append(number)
                    yield row

        made = self.results(rows, make(), rows_left)
        try:
            return self.rows(made)
        except (TypeError, ValueError, AttributeError, pa.ArrowException) as error:
            raise self.failure(rows, made, origins, error) from error


class ListElements:
    """Makes a row of each element of a column of lists."""

    def __init__(self, position: int, schema: pa.Schema) -> None:
        self.position = position
        self.schema = schema
        self.__qualname__ = f"explode({schema.names[position]})"

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        lists = batch.column(self.position)
        rows = Batch.from_arrow(batch).take(pc.list_parent_indices(lists).to_numpy().astype(np.int32)).to_arrow()
        columns = rows.columns
        columns[self.position] = pc.list_flatten(lists)
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def infer_schema(function: BatchFunction, schema: pa.Schema, step: str) -> pa.Schema:
    """Call a function of the user on an empty batch, and return the schema of what it gives."""
    empty = pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)
    try:
        result = function(empty)
    except Exception as error:
        raise JobDefinitionError(
            f"step {step!r}: the function raised {type(error).__name__} on a batch without rows ({error}); give "
            f"schema= so that it need not be called to find the schema"
        ) from error
    if not isinstance(result, pa.RecordBatch | pa.Table):
        raise JobDefinitionError(
            f"step {step!r}: the function must return a pyarrow.RecordBatch, it returned {type(result).__name__} for a "
            f"batch without rows; mend it, or give schema="
        )
    for field in result.schema:
        if field.type == pa.null() and schema.get_all_field_indices(field.name) == []:
            raise JobDefinitionError(
                f"step {step!r}: the function returns column {field.name!r} without a type (null) for a batch without "
                f"rows; write pa.array(values, type), or give schema="
            )
    return result.schema
