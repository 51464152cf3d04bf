"""Bids that come when they happen, by a virtual clock that stands still until all of them have been seen."""

import threading

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from jetfast.connectors.generator import GeneratorReader
from jetfast.core.processor import ProcessorContext
from jetfast.core.source import Position
from jetfast.errors import JobDefinitionError
from jetfast.nexmark.events import BASE_TIME_US
from jetfast.nexmark.source import EventSource

STEP_US = 1_000_000


class BidClock:
    """What a job takes for the wall clock: whole seconds of event time, those at which bids are due.

    It moves on when all bids that are due have been seen, so that each is seen in the first second that is not before
    it, whatever the workers do.

    Parameters
    ----------
    times_us : of all bids, in order, microseconds since 1970; shape (bids,)
    """

    def __init__(self, times_us: npt.NDArray[np.int64]) -> None:
        self.times_us = times_us
        self.now_us = BASE_TIME_US
        self.seen = 0
        self.lock = threading.Lock()

    def __call__(self) -> int:
        """Return the time, microseconds since 1970."""
        return self.now_us

    def count_due(self) -> int:
        """Return how many bids have happened by now."""
        return int(np.searchsorted(self.times_us, self.now_us, side="right"))

    def see(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Count rows, and give them back: the function of a step behind the one that looks at the clock."""
        with self.lock:
            self.seen += rows.num_rows
        return rows

    def move_on(self) -> None:
        """Go to the second of the next bid, if none that is due is on its way."""
        with self.lock:
            if self.seen == self.count_due() < len(self.times_us):
                self.now_us = -(-int(self.times_us[self.seen]) // STEP_US) * STEP_US


class LiveBids(EventSource):
    """As its base, but a row comes when the clock of the job, a BidClock, has reached its event time."""

    def open_reader(self, partition: str, position: Position | None, context: ProcessorContext) -> "LiveBidsReader":
        clock = context.now_us
        if not isinstance(clock, BidClock):
            raise JobDefinitionError(f"{self.name}: live bids come by a BidClock; give one to LocalCluster(clock=...)")
        return LiveBidsReader(self, int(partition), position, clock)


class LiveBidsReader(GeneratorReader):
    """Gives out bids that have happened, and moves the clock on when there are none."""

    def __init__(self, source: LiveBids, partition: int, position: Position | None, clock: BidClock) -> None:
        super().__init__(source, partition, position, clock)
        self.bid_clock = clock

    def due_rows(self) -> int:
        due = len(range(self.partition, self.bid_clock.count_due(), self.source.partition_count)) - self.row
        if due <= 0:
            self.bid_clock.move_on()
        return due
