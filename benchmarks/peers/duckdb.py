"""DuckDB: grouping by key and frame, and sliding windows as row times 100."""

from collections.abc import Mapping
from typing import Any

import duckdb
import numpy.typing as npt
import pyarrow as pa


def connect(tables: Mapping[str, pa.Table]) -> Any:
    """Return a database with tables of its own, filled from these; one thread, rows in any order."""
    connection: Any = duckdb.connect()
    connection.sql("set threads = 1")
    connection.sql("set preserve_insertion_order = false")
    connection.sql("set enable_progress_bar = false")
    for name, table in tables.items():
        connection.register("given", table)
        connection.sql(f"create table {name} as select * from given")
        connection.unregister("given")
    return connection


class Database:
    """One table of events, as DuckDB's own and as the Arrow table it came from."""

    def __init__(self, table: pa.Table) -> None:
        self.connection = connect({"own_events": table})
        self.connection.register("arrow_events", table)

    def query(self, sql: str) -> pa.Table:
        return self.connection.sql(sql).to_arrow_table()


def frames(database: Database, slide_us: int, source: str) -> pa.Table:
    """Count and sum by key and frame."""
    return database.query(
        f"select key, epoch_us(time) // {slide_us} as frame, count(*) as count, sum(value) as sum "
        f"from {source} group by all"
    )


def frames_own(database: Database, slide_us: int) -> pa.Table:
    return frames(database, slide_us, "own_events")


def frames_arrow(database: Database, slide_us: int) -> pa.Table:
    return frames(database, slide_us, "arrow_events")


FRAMES = {"own table": frames_own, "Arrow table": frames_arrow}


def frames_arrays(found: pa.Table) -> dict[str, npt.NDArray]:
    return {name: found[name].to_numpy() for name in ("key", "frame", "count", "sum")}


def expand_windows(database: Database, hops: int, slide_us: int) -> pa.Table:
    """Count and mean by key and window end (in slides): each row once for every window that holds it.

    That is what Spark plans for a sliding window. Faster than a cross join with the hops; the source makes no
    difference here.
    """
    frame = f"epoch_us(time) // {slide_us}"
    return database.query(
        "select key, last_frame, count(*) as count, avg(value) as mean from "
        f"(select key, value, unnest(range({frame} + 1, {frame} + {hops + 1})) as last_frame from own_events) "
        "group by key, last_frame"
    )
