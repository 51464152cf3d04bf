"""What hunted jobs do: numbered rows through windows, or a query of NEXMark; and how that is compared."""

from typing import Any

import msgspec

import jetfast as jf
from tests.chaos.grounds import ClusterKind
from tests.chaos.hunted_pipeline import hunted_pipeline
from tests.chaos.hunted_query import answer_of, hunted_query
from tests.chaos.targets import Found, Target
from tests.chaos.watched import Watched

ROWS_MARGIN = 1.2
"""More than clocks differ, and a batch."""


class Work(msgspec.Struct, frozen=True):
    """What the job of each target does."""

    rate: float
    """Rows that come in a second until the source is told to end."""
    snapshot_interval: str
    cluster: ClusterKind = "processes"
    query: str = ""
    """Of NEXMark; empty: numbered rows."""
    events: int = 0
    """That the query is asked about."""
    faults: bool = False
    """Do the systems around the job fail as well?"""

    def pipeline(self, sink: Any, watched: Watched) -> jf.Pipeline:
        """Return the pipeline that writes to `sink`."""
        if self.query:
            return hunted_query(self.query, self.events, sink, self.rate, watched)
        return hunted_pipeline(sink, self.rate, watched)

    def rows_until(self, seconds: float) -> int:
        """Return how many rows a source has in all that is told to end now, `seconds` after it began."""
        return self.events or int(self.rate * seconds * ROWS_MARGIN)

    def compare(self, target: Target, rows: int) -> Found:
        """Compare what was written with what so many rows give."""
        return target.compare_with(answer_of(self.query, rows)) if self.query else target.compare(rows)


NUMBERED = Work(rate=6_000.0, snapshot_interval="25ms")
NUMBERED_ON_SPARK = Work(rate=6_000.0, snapshot_interval="100ms", cluster="spark")
# In ten kills a small part of the events comes at this rate; the others when nobody is killed any more.
NEXMARK_Q5 = Work(rate=30_000.0, snapshot_interval="1s", query="q5", events=5_000_000)
WORKS = {"numbered": NUMBERED, "nexmark-q5": NEXMARK_Q5}
