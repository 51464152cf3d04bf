"""Runs the demo: `python -m docs.examples.flights [--output out/demo] [--cluster local|spark]`.

The last line is `demo: N windows, both clusters equal to the reference`. Any difference ends it with exit code 1.
"""

import argparse
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
from rich.console import Console

import jetfast as jf
from docs.examples.flights.check import (
    Classes,
    DifferenceError,
    Result,
    check_classes,
    check_nothing_late,
    check_windows,
)
from docs.examples.flights.data import read_airline_names, read_flights, write_streams
from docs.examples.flights.pipeline import delays_pipeline
from docs.examples.flights.report import Run, show

LAG = "2h"  # most flights leave within two hours; those that do not are late rows
WHOLE_LAG = "24h"  # the worst left after 21.5 hours: nothing is late

MEMBERS = 2


def read_result(directory: Path, metrics: dict[str, Any]) -> Result:
    """What a run has written, and what it has counted."""
    return Result(
        windows=pl.read_parquet(directory / "windows.parquet"),
        late=pl.read_parquet(directory / "late.parquet"),
        rejected=pl.read_parquet(directory / "rejected.parquet"),
        counted={
            "rows": metrics["rows_read"],
            "late_rows": metrics["late_rows"],
            "partly_late_rows": metrics["partly_late_rows"],
            "rejected_rows": metrics["rejected_rows"],
        },
    )


def check_members(members: list[dict[str, Any]], rows: int) -> None:
    """Both Spark members are processes of their own, read, and got rows from each other through sockets."""
    if len(members) != MEMBERS or len({member["pid"] for member in members} | {os.getpid()}) != MEMBERS + 1:
        raise DifferenceError(f"expected {MEMBERS} members in processes of their own, the job had {members}")
    for member in members:
        for figure in ("rows_read", "rows_received", "bytes_received", "bytes_sent"):
            if not member[figure] > 0:
                raise DifferenceError(f"member {member['member']} reports {figure} = {member[figure]}")
    if sum(member["rows_read"] for member in members) != rows:
        raise DifferenceError(f"the members read {[member['rows_read'] for member in members]}, not {rows} rows")


def run(cluster: Any, kind: str, lag: str, flights: pl.DataFrame, streams: Path, directory: Path) -> tuple[Run, Result]:
    """Run the pipeline once and check what it left behind."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    job = cluster.submit(delays_pipeline(streams, directory, lag))
    started = time.perf_counter()
    while job.status.value in (
        "not running",
        "starting",
    ):  # Spark takes seconds to start members; no row waits for that
        time.sleep(0.002)
    running = time.perf_counter()
    job.wait()
    ended = time.perf_counter()
    metrics = job.metrics
    result = read_result(directory, metrics)
    windows = check_windows(flights, result)
    classes: Classes = check_classes(flights, result)
    if lag == WHOLE_LAG:
        check_nothing_late(result)
    elif not classes.partly_late:
        raise DifferenceError(f"no row was partly late with a lag of {lag}: the disorder has not come through")
    if kind == "spark":
        check_members(metrics["members"], len(flights))
    return Run(
        kind, lag, running - started, ended - running, len(flights), windows, classes, metrics["members"]
    ), result


def spark_cluster() -> Any:
    """Two members on a local Spark with four slots. They start as Spark tasks, in processes of their own."""
    from pyspark.sql import SparkSession

    from jetfast.spark import SparkCluster

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # else Spark warns of the name of the host
    session = (
        SparkSession.builder.master("local[4]")
        .appName("jetfast demo")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    return SparkCluster(session, members=MEMBERS)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m docs.examples.flights", description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("out/demo"), help="directory for data and results")
    parser.add_argument("--cluster", choices=["local", "spark"], action="append", help="only this one")
    arguments = parser.parse_args()
    output: Path = arguments.output.absolute()
    console = Console()
    if not console.is_terminal:
        console.width = 130

    flights = read_flights()
    streams = output / "streams"
    shutil.rmtree(streams, ignore_errors=True)
    write_streams(flights, streams)
    console.print(f"{len(flights):,} flights in {flights['origin'].n_unique()} streams: {streams}")

    makers: dict[str, Callable[[], Any]] = {"local": lambda: jf.LocalCluster(workers=2), "spark": spark_cluster}
    chosen = arguments.cluster or list(makers)
    done: list[Run] = []
    complete: Result | None = None
    for kind in chosen:
        cluster = makers[kind]()
        for lag, directory in ((LAG, output / kind), (WHOLE_LAG, output / kind / "whole")):
            try:
                finished, result = run(cluster, kind, lag, flights, streams, directory)
            except DifferenceError as difference:
                console.print(f"[red]demo: {kind}, lag {lag}: NOT equal to the reference[/]")
                print(difference)
                return 1
            done.append(finished)
            if lag == WHOLE_LAG:
                complete = result
            console.print(f"{kind}, lag {lag}: {finished.windows:,} windows, equal to the reference")
    assert complete is not None
    from docs.examples.flights.picture import draw  # matplotlib takes a second: after what was asked for

    picture = output / "delays.svg"
    draw(complete.windows, picture)
    show(complete.windows, read_airline_names(), done, console)
    console.print(f"windows, late rows and the picture: {output}")
    windows = next(finished.windows for finished in done if finished.lag == LAG)
    both = "both clusters" if len(chosen) == len(makers) else f"cluster {chosen[0]}"
    print(f"demo: {windows} windows, {both} equal to the reference")
    return 0


if __name__ == "__main__":
    sys.exit(main())
