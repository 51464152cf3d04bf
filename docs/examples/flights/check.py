"""Checks a run against DuckDB, row by row. The engine's own report of late rows is part of what is checked.

What a reference can and cannot say: which rows are late depends on how the streams were interleaved, so every run has
its own. But each run says which windows each late row missed, and then all else follows: the reference counts every row
in every window that contains it, except the windows up to the row's `missed_until`.
"""

from dataclasses import dataclass

import duckdb
import polars as pl

HOUR_US = 3_600_000_000
SIZE_US = 24 * HOUR_US
SLIDE_US = HOUR_US

KEYS = ["carrier", "origin", "window_end"]
VALUES = ["window_start", "flights", "departed", "mean_delay", "min_delay", "max_delay", "fingerprints"]


class DifferenceError(AssertionError):
    """A run is not what the reference says. The message shows the first rows that differ."""


@dataclass(frozen=True)
class Result:
    """What one run left behind: its windows, its late rows, and what its metrics say of the rows it took in."""

    windows: pl.DataFrame
    late: pl.DataFrame
    rejected: pl.DataFrame
    counted: dict[str, int]
    """rows, late_rows, partly_late_rows, rejected_rows as the job counted them."""


@dataclass(frozen=True)
class Classes:
    """How many rows of a run were in each class; their sum is the rows in."""

    on_time: int
    partly_late: int
    late: int
    rejected: int


def microseconds(frame: pl.DataFrame, *columns: str) -> pl.DataFrame:
    """Times as int64 microseconds since 1970 UTC, whatever unit and zone they were written with."""
    return frame.with_columns(pl.col(name).dt.timestamp("us") for name in columns)


def last_window_end(times: pl.Expr) -> pl.Expr:
    """End of the last window that holds a time (microseconds): frames are named by their exclusive end."""
    return (times // SLIDE_US + 1) * SLIDE_US + SIZE_US - SLIDE_US


def reference_windows(flights: pl.DataFrame, late: pl.DataFrame) -> pl.DataFrame:
    """Every window by DuckDB: each flight in all windows that contain it, less those it missed."""
    rows = microseconds(flights.select("id", "fingerprint", "carrier", "origin", "scheduled", "dep_delay"), "scheduled")
    missed = microseconds(late.select("id", "missed_until"), "missed_until")
    with duckdb.connect() as connection:
        connection.register("flights", rows.to_arrow())
        connection.register("missed", missed.to_arrow())
        return connection.sql(f"""
            with placed as (
                select flights.*, (scheduled // {SLIDE_US} + 1 + hop) * {SLIDE_US} as window_end
                from flights, range(0, {SIZE_US // SLIDE_US}) as hops(hop)
            )
            select carrier, origin, window_end,
                   window_end - {SIZE_US} as window_start,
                   count(*) as flights,
                   count(dep_delay) as departed,
                   avg(dep_delay) as mean_delay,
                   min(dep_delay) as min_delay,
                   max(dep_delay) as max_delay,
                   sum(fingerprint)::bigint as fingerprints
            from placed left join missed using (id)
            where missed_until is null or window_end > missed_until
            group by all
        """).pl()


def check_windows(flights: pl.DataFrame, result: Result) -> int:
    """(1) The windows equal the reference, row by row and cell by cell. Returns how many there are."""
    expected = reference_windows(flights, result.late)
    actual = microseconds(result.windows, "window_start", "window_end")
    missing_columns = [name for name in [*KEYS, *VALUES] if name not in actual.columns]
    if missing_columns:
        raise DifferenceError(f"the windows have no column {', '.join(missing_columns)}; they have {actual.columns}")
    twice = actual.filter(pl.struct(KEYS).is_duplicated())
    if len(twice):
        raise DifferenceError(f"{len(twice)} windows came more than once:\n{twice.sort(KEYS).head(6)}")
    # Casts only widen: a cell that a cast would change is a difference of its own.
    actual = actual.select(pl.col(name).cast(expected.schema[name], strict=True) for name in [*KEYS, *VALUES])
    absent = expected.join(actual, on=KEYS, how="anti")
    if len(absent):
        raise DifferenceError(f"{len(absent)} windows are missing:\n{absent.sort(KEYS).head(6)}")
    invented = actual.join(expected, on=KEYS, how="anti")
    if len(invented):
        raise DifferenceError(f"{len(invented)} windows should not be:\n{invented.sort(KEYS).head(6)}")
    both = actual.join(expected, on=KEYS, suffix="_expected")
    wrong = both.filter(pl.any_horizontal(pl.col(name).ne_missing(pl.col(f"{name}_expected")) for name in VALUES))
    if len(wrong):
        raise DifferenceError(f"{len(wrong)} of {len(both)} windows differ:\n{wrong.sort(KEYS).head(6)}")
    return len(actual)


def check_classes(flights: pl.DataFrame, result: Result) -> Classes:
    """(2) On time + partly late + late + rejected = rows in, by identity: each row in one class, as its file says.

    That partly late rows, and no other late ones, are in windows too is part of (1): there the fingerprints of exactly
    the rows that a window should hold add up, and a late row's last window is one that it missed.
    """
    late = result.late
    changed = late.drop("missed_until").join(flights, on=flights.columns, how="anti", nulls_equal=True)
    if len(changed):
        raise DifferenceError(f"{len(changed)} late rows are not rows of the input:\n{changed.head(6)}")
    if late["missed_until"].null_count():
        raise DifferenceError("a late row says no window that it missed")
    if late["id"].n_unique() != len(late):
        raise DifferenceError("a row is in the late file twice")
    late = microseconds(late, "scheduled", "missed_until").with_columns(
        first_window=(pl.col("scheduled") // SLIDE_US + 1) * SLIDE_US,
        last_window=last_window_end(pl.col("scheduled")),
    )
    outside = late.filter(
        (pl.col("missed_until") < pl.col("first_window"))
        | (pl.col("missed_until") > pl.col("last_window"))
        | (pl.col("missed_until") % SLIDE_US != 0)
    )
    if len(outside):
        raise DifferenceError(f"{len(outside)} late rows name a window that does not hold them:\n{outside.head(6)}")
    late_rows = int((late["missed_until"] == late["last_window"]).sum())
    classes = Classes(
        on_time=len(flights) - len(late) - len(result.rejected),
        partly_late=len(late) - late_rows,
        late=late_rows,
        rejected=len(result.rejected),
    )
    counted = {
        "rows": len(flights),
        "late_rows": classes.late,
        "partly_late_rows": classes.partly_late,
        "rejected_rows": classes.rejected,
    }
    if result.counted != counted:
        raise DifferenceError(f"the job counted {result.counted}, its files hold {counted}")
    if classes.rejected:
        raise DifferenceError(f"no flight has a bad time, but some were rejected:\n{result.rejected.head(6)}")
    # The same once more by the windows alone: every row is in 24 of them, less those it missed.
    entries = int(result.windows["flights"].sum())
    missed = int(((late["missed_until"] - late["first_window"]) // SLIDE_US + 1).sum())
    if entries + missed != len(flights) * (SIZE_US // SLIDE_US):
        raise DifferenceError(f"{entries} rows in windows + {missed} missed are not 24 for each of {len(flights)} rows")
    return classes


def check_nothing_late(result: Result) -> None:
    """(3) With a lag that covers the disorder no row is late."""
    if len(result.late):
        raise DifferenceError(f"{len(result.late)} rows are late although the lag covers them:\n{result.late.head(6)}")
