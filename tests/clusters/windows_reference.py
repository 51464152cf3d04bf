"""What a windowed aggregation must give, by Polars, the slow way: every row times every window that holds it."""

from datetime import datetime

import polars as pl
import pyarrow as pa

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("partition", pa.string()),
        pa.field("key", pa.string()),  # nulls are a group of their own
        pa.field("code", pa.int32()),
        pa.field("time", pa.timestamp("us")),  # rows without a time are rejected
        pa.field("value", pa.float64()),  # nulls are skipped; multiples of 1/64, so that sums are exact
    ]
)
RESULT = ["rows", "values", "sum_id", "total", "mean", "least", "greatest", "spread"]
EPOCH = datetime(1970, 1, 1)


def reference(rows: pa.Table, size_us: int, slide_us: int, missed_until: dict[int, int | None]) -> pl.DataFrame:
    """Return the windows of `rows`, sorted by keys and window.

    Parameters
    ----------
    rows : SCHEMA; rows without a time are left out
    missed_until : id -> end (us) of the last window that a row missed
    """
    frame = pl.DataFrame(rows).filter(pl.col("time").is_not_null())
    missed = pl.DataFrame(
        {"id": list(missed_until), "missed": list(missed_until.values())},
        schema={"id": pl.Int64, "missed": pl.Int64},
    )
    time = pl.col("time").dt.epoch("us")
    first_end = (time // slide_us + 1) * slide_us
    windows = (
        frame.join(missed, on="id", how="left")
        .with_columns(pl.int_ranges(first_end, first_end + size_us, slide_us).alias("end"))
        .explode("end")
        .filter(pl.col("missed").is_null() | (pl.col("end") > pl.col("missed")))
    )
    return (
        windows.group_by("key", "code", "end")
        .agg(
            pl.len().cast(pl.Int64).alias("rows"),
            pl.col("value").count().cast(pl.Int64).alias("values"),
            pl.col("id").sum().alias("sum_id"),
            pl.when(pl.col("value").count() > 0).then(pl.col("value").sum()).alias("total"),
            pl.col("value").mean().alias("mean"),
            pl.col("value").min().alias("least"),
            pl.col("value").max().alias("greatest"),
            pl.col("value").var().alias("spread"),
        )
        .select(
            "key",
            "code",
            (pl.col("end") - size_us).cast(pl.Datetime("us")).alias("window_start"),
            pl.col("end").cast(pl.Datetime("us")).alias("window_end"),
            *RESULT,
        )
        .sort("window_end", "key", "code")
    )


def as_sorted(result: pa.Table) -> pl.DataFrame:
    """Return what a job gave, in the reference's order."""
    frame = pl.DataFrame(result)
    return frame.sort("window_end", "key", "code")
