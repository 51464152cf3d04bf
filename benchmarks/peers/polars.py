"""Polars: splitting a batch by a hash of its key, grouping by key, by key and frame, and by session."""

import numpy.typing as npt
import polars as pl

COUNT_AND_SUM = [pl.len().alias("count"), pl.col("value").sum().alias("sum")]


def split_by_partition(frame: pl.DataFrame, parts: int) -> list[pl.DataFrame]:
    """Its own partition_by over its own hash."""
    return frame.with_columns(part=pl.col("key").hash() % parts).partition_by("part", include_key=False)


def split_by_filter(frame: pl.DataFrame, parts: int) -> list[pl.DataFrame]:
    """Its own hash, one filter for each part."""
    ids = frame.select(pl.col("key").hash() % parts).to_series()
    return [frame.filter(ids == part) for part in range(parts)]


SPLIT = {"partition_by": split_by_partition, "filter": split_by_filter}


def frames_eager(frame: pl.DataFrame, slide_us: int) -> pl.DataFrame:
    """One group_by over what it gets: a whole table, or one batch."""
    return frame.group_by("key", (pl.col("time").to_physical() // slide_us).alias("frame")).agg(COUNT_AND_SUM)


def frames_streaming(frame: pl.DataFrame, slide_us: int) -> pl.DataFrame:
    """The same by its streaming engine, which is the faster one for whole tables."""
    grouped = frame.lazy().group_by("key", (pl.col("time").to_physical() // slide_us).alias("frame"))
    return grouped.agg(COUNT_AND_SUM).collect(engine="streaming")


FRAMES = {"eager": frames_eager, "streaming": frames_streaming}


def frames_arrays(found: pl.DataFrame) -> dict[str, npt.NDArray]:
    return {name: found[name].to_numpy() for name in ("key", "frame", "count", "sum")}


def frames_by_batch(batches: list[pl.DataFrame], slide_us: int) -> list[pl.DataFrame]:
    """A group_by for each batch, as a stream comes; what they give is not put together. Streaming loses here."""
    return [frames_eager(batch, slide_us) for batch in batches]


def frames_by_batch_arrays(found: list[pl.DataFrame]) -> dict[str, npt.NDArray]:
    """Put together here, for the check only."""
    return frames_arrays(pl.concat(found).group_by("key", "frame").agg(pl.col("count", "sum").sum()))


def groups_eager(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.group_by("key").agg(COUNT_AND_SUM)


def groups_streaming(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.lazy().group_by("key").agg(COUNT_AND_SUM).collect(engine="streaming")


GROUPS = {"eager": groups_eager, "streaming": groups_streaming}


def groups_arrays(found: pl.DataFrame) -> dict[str, npt.NDArray]:
    return {name: found[name].to_numpy() for name in ("key", "count", "sum")}


def sessions_lazy(frame: pl.DataFrame, timeout_us: int) -> pl.LazyFrame:
    """Sort, and a new session wherever the key changes or the gap is too long: cheaper than diff().over("key")."""
    time = pl.col("time").to_physical()
    starts = (time.diff() > timeout_us) | (pl.col("key").diff() != 0)
    return (
        frame.lazy()
        .sort("key", "time")
        .with_columns(session=starts.fill_null(True).cum_sum())
        .group_by("session")
        .agg(pl.col("key").first(), time.min().alias("start"), time.max().alias("last"), *COUNT_AND_SUM)
        .with_columns(pl.col("last") + timeout_us)
    )


def sessions_eager(frame: pl.DataFrame, timeout_us: int) -> pl.DataFrame:
    return sessions_lazy(frame, timeout_us).collect(engine="in-memory")


def sessions_streaming(frame: pl.DataFrame, timeout_us: int) -> pl.DataFrame:
    return sessions_lazy(frame, timeout_us).collect(engine="streaming")


SESSIONS = {"eager": sessions_eager, "streaming": sessions_streaming}


def sessions_columns(found: pl.DataFrame) -> pl.DataFrame:
    """As jetfast gives them, in order of key and start; for the check only."""
    return found.select(
        "key",
        pl.col("start").cast(pl.Datetime("us")).alias("window_start"),
        pl.col("last").cast(pl.Datetime("us")).alias("window_end"),
        pl.col("count").cast(pl.Int64),
        (pl.col("sum") / pl.col("count")).alias("mean"),
    ).sort("key", "window_start")
