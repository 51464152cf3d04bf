"""What the demo prints: the year in a table, then the clusters and the members that did the work."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import polars as pl
from rich import box
from rich.console import Console
from rich.table import Table

from docs.examples.flights.check import Classes
from docs.examples.flights.data import AIRPORTS

DEPARTURES_MIN = 20
"""Fewer than that in 24 hours is no airline's bad day."""


@dataclass(frozen=True)
class Run:
    """One run of the pipeline, checked."""

    cluster: str
    lag: str
    start_seconds: float
    """Until the members were ready to read."""
    seconds: float
    """From the first row to the end."""
    rows: int
    windows: int
    classes: Classes
    members: list[dict[str, Any]]
    """As in `job.metrics["members"]`."""


def _table(title: str) -> Table:
    return Table(
        title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1)
    )


def worst_days(windows: pl.DataFrame, airlines: dict[str, str], count: int = 8) -> Table:
    """The worst 24 hours of a carrier at an airport, no two of them within two days."""
    table = _table("The worst 24 hours of 2013, by carrier and airport")
    for name in ("carrier", "airport", "24 hours until (UTC)"):
        table.add_column(name)
    for name in ("flights", "cancelled", "mean delay", "from", "to"):
        table.add_column(name, justify="right")
    shown: list[tuple[str, str, Any]] = []
    for row in (
        windows.filter(pl.col("departed") >= DEPARTURES_MIN).sort("mean_delay", descending=True).iter_rows(named=True)
    ):
        key = (row["carrier"], row["origin"])
        if any(key == (c, o) and abs(row["window_end"] - end) < timedelta(days=2) for c, o, end in shown):
            continue
        shown.append((*key, row["window_end"]))
        table.add_row(
            airlines.get(row["carrier"], row["carrier"]),
            AIRPORTS.get(row["origin"], row["origin"]),
            f"{row['window_end']:%b %d, %H:%M}",
            str(row["flights"]),
            str(row["flights"] - row["departed"]),
            f"[bold]{row['mean_delay']:.0f}[/] min",
            f"{row['min_delay']} min",
            f"{row['max_delay']} min",
        )
        if len(shown) == count:
            break
    return table


def runs(done: list[Run]) -> Table:
    """One line a run: how fast, and where each row went."""
    table = _table("Runs")
    for name in ("cluster", "lag"):
        table.add_column(name)
    for name in ("rows", "start", "run", "rows/s", "windows", "on time", "partly late", "late", "rejected"):
        table.add_column(name, justify="right")
    for run in done:
        table.add_row(
            run.cluster,
            run.lag,
            f"{run.rows:,}",
            f"{run.start_seconds:.2f} s",
            f"{run.seconds:.2f} s",
            f"[bold]{run.rows / run.seconds:,.0f}[/]",
            f"{run.windows:,}",
            f"{run.classes.on_time:,}",
            f"{run.classes.partly_late:,}",
            f"{run.classes.late:,}",
            f"{run.classes.rejected:,}",
        )
    return table


def spark_members(run: Run) -> Table:
    """One line a member: what it read, what it got from the others, and over which weight of bytes."""
    table = _table(f"Spark members, lag {run.lag}")
    for name in ("member", "pid"):
        table.add_column(name)
    for name in ("rows read", "rows received from peers", "bytes received", "bytes sent"):
        table.add_column(name, justify="right")
    for member in run.members:
        table.add_row(
            str(member["member"]), str(member["pid"]), f"{member['rows_read']:,}", f"{member['rows_received']:,}",
            f"{member['bytes_received']:,}", f"{member['bytes_sent']:,}",
        )  # fmt: skip
    return table


def show(windows: pl.DataFrame, airlines: dict[str, str], done: list[Run], console: Console) -> None:
    """Print all of it."""
    console.print()
    console.print(worst_days(windows, airlines))
    console.print(runs(done))
    for run in done:
        if run.cluster == "spark":
            console.print(spark_members(run))
