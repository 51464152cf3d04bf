"""What became of the snapshots of a job: figures of the last ones, and counts of all."""

from collections import deque
from typing import Any

from jetfast.control.snapshot_round import ReportRound

KEPT = 100
"""Snapshots whose figures are kept."""


class SnapshotHistory:
    """Written by the coordinator's thread, read by any."""

    def __init__(self) -> None:
        self.taken = 0
        self.failed = 0
        self._last: deque[dict[str, Any]] = deque(maxlen=KEPT)

    def add(self, execution_id: int, report: ReportRound, started_s: float, ended_s: float) -> None:
        """Take down a round. Times are seconds since the job was submitted."""
        if report.errors:
            self.failed += 1
        else:
            self.taken += 1
        self._last.append(
            {
                "execution_id": execution_id,
                "snapshot_id": report.snapshot_id,
                "kind": report.kind.value,
                "started_s": started_s,
                "seconds": ended_s - started_s,
                "entries": report.totals.entries,
                "bytes": report.totals.nbytes,
                "pause_us": report.pause_us,
                "align_us": report.align_us,
                "errors": list(report.errors),
            }
        )

    @property
    def last(self) -> list[dict[str, Any]]:
        """The last ones, oldest first."""
        return [dict(figures) for figures in list(self._last)]
