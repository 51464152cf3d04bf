"""Making the events of NEXMark: only the columns that a query reads."""

import time

import numpy as np

from jetfast.connectors.generator import BLOCK_ROWS
from jetfast.nexmark.events import BID, BID_COUNT, EPOCH_EVENTS
from jetfast.nexmark.queries import QUERIES
from jetfast.nexmark.source import EVENT_RATE

BLOCKS = 64


class MakeBids:
    """Columns of bids that a query reads, in the blocks that a source makes; 64 a call."""

    params = ["q0", "q1", "q2", "q5", "q21"]
    param_names = ["query"]

    def setup(self, query: str) -> None:
        self.columns = QUERIES[query].reads["bid"]
        self.blocks = [np.arange(block * BLOCK_ROWS, (block + 1) * BLOCK_ROWS) for block in range(BLOCKS)]
        self.time_make(query)  # pools of texts are made once

    def time_make(self, query: str) -> None:
        for numbers in self.blocks:
            BID.make_rows(numbers, self.columns, 0, EVENT_RATE)

    def track_million_events_per_second(self, query: str) -> float:
        """Events of all kinds, of one core."""
        best = min(self.cpu_s(query) for _ in range(7))
        return BLOCKS * BLOCK_ROWS * EPOCH_EVENTS / BID_COUNT / best / 1e6

    track_million_events_per_second.unit = "M events/s"

    def cpu_s(self, query: str) -> float:
        """Of one call."""
        before = time.thread_time()
        self.time_make(query)
        return time.thread_time() - before
