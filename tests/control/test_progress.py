"""Progress: short texts, lines without a terminal, rich only on one."""

import io
import logging
import subprocess
import sys

import pytest

from jetfast.control.metrics import merge_metrics
from jetfast.control.progress import (
    LogLines,
    NoProgress,
    TerminalBar,
    describe_briefly,
    describe_last_snapshot,
    describe_progress,
    format_time,
    make_progress,
)
from jetfast.types import MAX_TIME, MIN_TIME


def metrics(**more: object) -> dict[str, object]:
    return {**merge_metrics([], [], [], 1.0), **more}


def test_what_stands_beside_the_bar_fits_a_terminal_of_80_columns() -> None:
    text = describe_briefly(
        "running", metrics(rows_read=987_654_321, rows_per_second=1_234_567.8, watermark_us=1_700_000_000_000_000)
    )
    assert text == "988M rows 1.23M/s 2023-11-14 22:13:20"
    assert len(text) <= 42
    assert describe_briefly("starting", metrics()).startswith("starting 0 rows")


def test_progress_tells_rows_rate_and_watermark() -> None:
    text = describe_progress(metrics(rows_read=1500, rows_per_second=1500.4, watermark_us=0))
    assert text == "1,500 rows  1,500 rows/s  watermark 1970-01-01 00:00:00"
    assert "watermark" not in describe_progress(metrics())


def test_progress_tells_size_time_and_pause_of_the_last_snapshot_or_that_it_failed() -> None:
    taken = {"snapshot_id": 7, "bytes": 48_200_000, "seconds": 0.123, "pause_us": 4321, "errors": []}
    assert describe_last_snapshot(metrics(snapshots=[])) == ""
    text = describe_progress(metrics(snapshots=[{**taken, "snapshot_id": 6}, taken]))
    assert text == "0 rows  0 rows/s  snapshot 7: 48.2MB in 0.12 s, pause 4.3 ms"
    failed = {**taken, "errors": ["member 0: the disk is full"]}
    assert describe_last_snapshot(metrics(snapshots=[failed])) == "snapshot 7 failed after 0.12 s"


@pytest.mark.parametrize("time_us", [None, MIN_TIME, MAX_TIME])
def test_no_watermark_is_shown_for_none_and_the_ends_of_time(time_us: int | None) -> None:
    assert format_time(time_us) == ""


def test_a_time_that_no_calendar_holds_is_shown_as_a_number() -> None:
    assert format_time(MAX_TIME - 1) == f"{MAX_TIME - 1} us"


def test_without_a_terminal_there_are_log_lines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "jetfast")
    progress = make_progress("flights", None)
    assert isinstance(progress, LogLines)
    progress.update("running", metrics(rows_read=7))
    progress.finish("the end")
    assert [r.message for r in caplog.records] == ["job flights running: 7 rows  0 rows/s", "the end"]


def test_progress_false_shows_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "jetfast")
    progress = make_progress("flights", False)
    assert isinstance(progress, NoProgress)
    progress.update("running", metrics())
    progress.finish("the end")
    assert not caplog.records


class Terminal(io.StringIO):
    """A terminal that remembers."""

    def isatty(self) -> bool:
        return True


def test_on_a_terminal_there_is_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    progress = make_progress("flights", None)
    assert isinstance(progress, TerminalBar)
    progress.update("running", metrics(rows_read=1234))
    progress.update("running", metrics(rows_read=5678, total_rows=9999))
    progress.finish("job flights completed")
    assert "1.23k rows" in terminal.getvalue()
    assert "5.68k rows" in terminal.getvalue()
    assert terminal.getvalue().endswith("job flights completed\n")


def test_lines_are_seen_where_nobody_configured_logging_and_rich_is_not_imported() -> None:
    program = (
        "import sys; from jetfast.control.progress import make_progress;"
        "make_progress('flights', None).finish('the end'); assert 'rich' not in sys.modules"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert result.stderr == "jetfast: the end\n"
