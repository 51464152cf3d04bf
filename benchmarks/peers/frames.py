"""Count and sum per (key, 100 ms frame) by polars, duckdb, pyarrow: less than a sliding window, which adds up 100."""

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc


def frames_polars(frame: pl.DataFrame, slide_us: int) -> pl.DataFrame:
    """One group_by over what it gets: a whole table, or one batch."""
    return frame.group_by("key", pl.col("time").dt.timestamp("us") // slide_us).agg(
        pl.len().alias("count"), pl.col("value").sum().alias("sum")
    )


def frames_duckdb(connection: duckdb.DuckDBPyConnection, table: pa.Table, slide_us: int) -> pa.Table:
    """One grouped query over an Arrow table."""
    connection.register("events", table)
    return connection.sql(
        f"select key, epoch_us(time) // {slide_us} as frame, count(*), sum(value) from events group by all"
    ).to_arrow_table()


def frames_pyarrow(table: pa.Table, slide_us: int) -> pa.Table:
    """Table.group_by without threads."""
    frame = pc.divide(table["time"].cast(pa.int64()), slide_us)
    return (
        table.append_column("frame", frame)
        .group_by(["key", "frame"], use_threads=False)
        .aggregate([("value", "count"), ("value", "sum")])
    )
