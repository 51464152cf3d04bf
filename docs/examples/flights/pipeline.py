"""The demo's one pipeline: delays by carrier and airport over the last 24 hours, every hour. It names no cluster."""

from pathlib import Path

import jetfast as jf

BATCH_ROWS = 256
"""Most of a day's departures. A batch never makes its own rows late: a year in one batch would have no late row."""


def delays_pipeline(streams: Path, output: Path, lag: str) -> jf.Pipeline:
    """Read `streams`/flights-*.parquet, write windows, late rows and rejected rows into `output`."""
    pipeline = jf.Pipeline(f"delays with lag {lag}")
    news = jf.files(f"{streams}/flights-*.parquet", batch_rows=BATCH_ROWS)
    flights = pipeline.read(news, name="flights").with_event_time("scheduled", jf.watermarks.fixed_lag(lag))
    delays = (
        flights.group_by("carrier", "origin")
        .window(jf.sliding("24h", "1h"))
        .agg(
            flights=jf.count(),
            departed=jf.count("dep_delay"),
            mean_delay=jf.mean("dep_delay"),
            min_delay=jf.min("dep_delay"),
            max_delay=jf.max("dep_delay"),
            fingerprints=jf.sum("fingerprint"),
            name="delays",
        )
    )
    delays.write(jf.files(f"{output}/windows.parquet"))
    delays.late_rows.write(jf.files(f"{output}/late.parquet"))
    flights.rejected_rows.write(jf.files(f"{output}/rejected.parquet"))
    return pipeline
