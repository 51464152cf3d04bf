"""How fast an execution reads: rows of its last 10 s, by the reports of its members.

Rows that were restored are in the totals of a job, and not in its rate. Without new reports, when the job is suspended
or has ended, the rate stays that of the last 10 s of reports.
"""

import threading
from collections import deque
from collections.abc import Mapping
from typing import Any

WINDOW_S = 10.0
READ, RESTORED = "rows_read", "restored_rows_read"


class RowRate:
    """Rows a second of the present execution. Safe for any number of threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rows: dict[int, int] = {}
        """Rows that each member has read in this execution."""
        self._samples: deque[tuple[float, int]] = deque()
        """Time and rows of all members. The first is the last one that is not younger than the window."""

    def begin(self, now_s: float) -> None:
        """A new execution begins."""
        with self._lock:
            self._rows.clear()
            self._samples.clear()
            self._samples.append((now_s, 0))

    def observe(self, now_s: float, member: int, values: Mapping[str, Any]) -> None:
        """Take in a member's report, as `engine.metrics` describes it."""
        vertices = values.get("vertices", {}).values()
        with self._lock:
            self._rows[member] = sum(vertex.get(READ, 0) - vertex.get(RESTORED, 0) for vertex in vertices)
            self._samples.append((now_s, sum(self._rows.values())))
            while len(self._samples) > 1 and self._samples[1][0] <= now_s - WINDOW_S:
                self._samples.popleft()

    @property
    def per_second(self) -> float:
        """Rows a second between the oldest and the youngest report of the window."""
        with self._lock:
            if not self._samples:
                return 0.0
            (first_s, first), (last_s, last) = self._samples[0], self._samples[-1]
        return (last - first) / (last_s - first_s) if last_s > first_s else 0.0
