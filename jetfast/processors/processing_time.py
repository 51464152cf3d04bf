"""Stamps rows with the wall clock, and lets watermarks follow it, rows or not."""

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from jetfast.core.batch import Batch
from jetfast.core.items import Output, Watermark
from jetfast.core.processor import BROADCAST, Processor, ProcessorContext, StateBatch
from jetfast.core.throttling import WatermarkThrottleFactory
from jetfast.types import MIN_TIME

_STATE_KIND = "clock"


class ProcessingTime(Processor):
    """Adds a column with the time at which a row came here; it is its event time from here on.

    The watermark is the clock: what comes later bears that time or a later one, so no row is ever late. A clock that
    is set back stands still here until it has caught up, also over a restart.

    Parameters
    ----------
    column : its name; timestamp[us]
    throttle : makes the throttle: which watermarks leave
    """

    watches_clock = True
    forwards_watermark = False

    def __init__(self, column: str, throttle: WatermarkThrottleFactory) -> None:
        self.column = column
        self.throttle = throttle()

    def open(self, context: ProcessorContext) -> None:
        self.now_us = context.now_us
        self.time_us = MIN_TIME

    def read_clock(self) -> int:
        """The wall clock, microseconds since 1970; never less than before."""
        self.time_us = max(self.time_us, self.now_us())
        return self.time_us

    def process(self, ordinal: int, batch: Batch) -> tuple[Output, ...]:
        times = np.full(batch.row_count, self.read_clock(), dtype="datetime64[us]")
        stamped = batch.with_columns(Batch.from_arrow(pa.record_batch([pa.array(times)], names=[self.column])))
        return (stamped, *self.watermarks())

    def process_silence(self) -> tuple[Output, ...]:
        self.read_clock()
        return self.watermarks()

    def watermarks(self) -> tuple[Output, ...]:
        """The watermark that the clock allows, if it is worth sending."""
        watermark = self.throttle.throttle(self.time_us)
        return () if watermark is None else (Watermark(watermark),)

    def save_snapshot(self) -> Iterable[StateBatch]:
        if self.time_us > MIN_TIME:
            yield StateBatch(BROADCAST, _STATE_KIND, pa.record_batch({"time_us": [self.time_us]}))

    def restore_snapshot(self, state: StateBatch) -> None:
        self.time_us = max(self.time_us, *state.rows["time_us"].to_pylist())
