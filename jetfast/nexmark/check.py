"""Answers a query with DuckDB over tables of the same events, and compares row by row."""

from typing import Any

import pyarrow as pa

from jetfast.errors import JobDefinitionError
from jetfast.nexmark.events import kind_named
from jetfast.nexmark.query import Events, Query


def answer_with_duckdb(query: Query, events: Events) -> pa.Table:
    """Return the rows that the query's SQL gives; raises JobDefinitionError if DuckDB is not installed."""
    try:
        import duckdb
    except ImportError as error:
        raise JobDefinitionError("the check needs DuckDB: install duckdb") from error
    connection: Any = duckdb.connect()
    try:
        for kind, names in query.reads.items():
            connection.register(kind, events.table(kind_named(kind), names))
        return connection.sql(query.sql).to_arrow_table()
    finally:
        connection.close()


def find_difference(answer: pa.Table, expected: pa.Table) -> str | None:
    """Say how the rows differ, in whatever order they are; None if they do not.

    Columns are compared by name, those of `expected` as the types of `answer`.
    """
    if set(answer.column_names) != set(expected.column_names):
        return f"columns {answer.column_names}, not {expected.column_names}"
    if answer.num_rows != expected.num_rows:
        return f"{answer.num_rows} rows, not {expected.num_rows}"
    order = [(name, "ascending") for name in answer.column_names]
    given = answer.sort_by(order).combine_chunks()
    wanted = expected.select(answer.column_names).cast(answer.schema).sort_by(order).combine_chunks()
    if given.equals(wanted):
        return None
    row = next(row for row in range(given.num_rows) if not given.slice(row, 1).equals(wanted.slice(row, 1)))
    return f"row {row} in order is {given.slice(row, 1).to_pylist()[0]}, not {wanted.slice(row, 1).to_pylist()[0]}"
