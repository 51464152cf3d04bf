"""Shows how far a job has come: a bar on a terminal, plain log lines (logger "jetfast") elsewhere."""

import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Protocol

from jetfast.types import MAX_TIME, MIN_TIME

logger = logging.getLogger("jetfast")

BAR_INTERVAL_S = 0.1
LINE_INTERVAL_S = 5.0


class Progress(Protocol):
    """Shows one job."""

    interval_s: float
    """Seconds between two calls of `update`."""
    shows: bool
    """Does anybody see it? If not, nothing needs to be gathered for it."""

    def update(self, status: str, metrics: Mapping[str, Any]) -> None:
        """Show where the job stands."""

    def finish(self, line: str) -> None:
        """Show the last line, and nothing after it."""


class NoProgress:
    """`progress=False`."""

    interval_s = LINE_INTERVAL_S
    shows = False

    def update(self, status: str, metrics: Mapping[str, Any]) -> None:
        pass

    def finish(self, line: str) -> None:
        pass


class LogLines:
    """A line every few seconds."""

    interval_s = LINE_INTERVAL_S
    shows = True

    def __init__(self, job: str) -> None:
        self._job = job

    def update(self, status: str, metrics: Mapping[str, Any]) -> None:
        logger.info("job %s %s: %s", self._job, status, describe_progress(metrics))

    def finish(self, line: str) -> None:
        logger.info("%s", line)


class TerminalBar:
    """A bar that rich draws; it only pulses when nobody knows how many rows there will be."""

    interval_s = BAR_INTERVAL_S
    shows = True

    def __init__(self, job: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as RichProgress

        self._console = Console(stderr=True)
        self._bar = RichProgress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=16),
            TextColumn("{task.fields[figures]}"),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
            auto_refresh=False,  # refreshed by `update`: no thread of its own
        )
        self._task = self._bar.add_task(job, total=None, figures="")
        self._bar.start()

    def update(self, status: str, metrics: Mapping[str, Any]) -> None:
        self._bar.update(
            self._task,
            total=metrics.get("total_rows"),
            completed=metrics["rows_read"],
            figures=describe_briefly(status, metrics),
            refresh=True,
        )

    def finish(self, line: str) -> None:
        self._bar.stop()
        self._console.print(line, highlight=False, markup=False)


def make_progress(job: str, progress: bool | None) -> Progress:
    """Return what shows a job. None: a bar on a terminal, else lines; True: likewise; False: nothing."""
    if progress is False:
        return NoProgress()
    if sys.stderr is not None and sys.stderr.isatty():
        return TerminalBar(job)
    show_log_lines()
    return LogLines(job)


def show_log_lines() -> None:
    """Let lines of the logger "jetfast" be seen where the program has not configured logging at all."""
    if not logger.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("jetfast: %(message)s"))
        logger.addHandler(handler)
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.INFO)


def describe_progress(metrics: Mapping[str, Any]) -> str:
    """Return rows, rows/s, watermark and the last snapshot as one short text."""
    total = metrics.get("total_rows")
    of_total = f" of {total:,}" if total else ""
    text = f"{metrics['rows_read']:,}{of_total} rows  {metrics['rows_per_second']:,.0f} rows/s"
    watermark = format_time(metrics.get("watermark_us"))
    snapshot = describe_last_snapshot(metrics)
    return text + (f"  watermark {watermark}" if watermark else "") + (f"  {snapshot}" if snapshot else "")


def describe_last_snapshot(metrics: Mapping[str, Any]) -> str:
    """Return size, time and pause of the last snapshot, or that it failed; "" if there is none."""
    last = metrics.get("snapshots")
    if not last:
        return ""
    figures = last[-1]
    name = f"snapshot {figures['snapshot_id']}"
    if figures["errors"]:
        return f"{name} failed after {figures['seconds']:.2f} s"
    size = shorten_count(figures["bytes"])
    return f"{name}: {size}B in {figures['seconds']:.2f} s, pause {figures['pause_us'] / 1000:.1f} ms"


def describe_briefly(status: str, metrics: Mapping[str, Any]) -> str:
    """Return what stands beside the bar: rows, rows/s and watermark in at most 42 characters, for 80 columns."""
    text = f"{shorten_count(metrics['rows_read'])} rows {shorten_count(metrics['rows_per_second'])}/s"
    watermark = format_time(metrics.get("watermark_us"))
    return " ".join(part for part in (status if status != "running" else "", text, watermark) if part)


def shorten_count(count: float) -> str:
    """Return a count in three digits: 1234567 -> "1.23M"."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= size:
            value = count / size
            return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f}{unit}"
    return f"{count:.0f}"


def describe_end(job: str, status: str, metrics: Mapping[str, Any]) -> str:
    """Return the last line of a job: rows in and out, late, rejected, seconds."""
    return (
        f"job {job} {status}: {metrics['rows_read']:,} rows in, {metrics['rows_written']:,} out, "
        f"{metrics['late_rows']:,} late, {metrics['partly_late_rows']:,} partly late, "
        f"{metrics['rejected_rows']:,} rejected, {metrics['seconds']:.1f} s"
    )


def format_time(time_us: int | None) -> str:
    """Return event time as text in UTC, or "" for none (also for the ends of the range)."""
    if time_us is None or time_us in (MIN_TIME, MAX_TIME):
        return ""
    try:
        return datetime.fromtimestamp(time_us / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return f"{time_us} us"
