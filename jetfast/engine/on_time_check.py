"""Debug builds: on every output, no step makes a row late (SEMANTICS 1.5).

A row that was on time when it came in, and whatever is made of it, leaves before any watermark greater than its time.
Sources are excepted, and rows that were late when they came in. Asked for by JETFAST_DEBUG=1, when a job runs.
"""

import os
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from jetfast.core.batch import Batch, BatchRun
from jetfast.core.items import MAIN_PORT, ControlItem, Output, Watermark
from jetfast.core.processor import Processor
from jetfast.engine.inbound_edge import Inbound
from jetfast.engine.outbound_edge import OutboundEdge, Outbox
from jetfast.errors import ProtocolError
from jetfast.types import MIN_TIME


def is_debug() -> bool:
    """Is JETFAST_DEBUG=1 set?"""
    return os.environ.get("JETFAST_DEBUG") == "1"


class CheckingOutbox(Outbox):
    """An outbox that refuses rows behind the last watermark that left, unless such rows came in late.

    Parameters
    ----------
    edges : as of Outbox
    name : of the processor, for messages
    time_columns : by output port, the column that holds the time of its rows
    """

    def __init__(self, edges: Iterable[tuple[int, OutboundEdge]], name: str, time_columns: Mapping[int, str]) -> None:
        super().__init__(list(edges))
        self.name = name
        self.time_columns = time_columns
        self.watermark = MIN_TIME
        self.late_times: set[int] = set()
        """Times of rows that were late when they came in."""
        send, broadcast = self.send, self.broadcast

        def checked_send(batch: Batch) -> bool:
            self.check(MAIN_PORT, batch)
            return send(batch)

        def checked_broadcast(item: ControlItem) -> bool:
            if isinstance(item, Watermark):
                if item.value <= self.watermark:
                    raise ProtocolError(f"step {self.name!r}: watermark {item.value} leaves after {self.watermark}")
                self.watermark = item.value
            return broadcast(item)

        self.send, self.broadcast, self.send_run = checked_send, checked_broadcast, self.send_one_by_one

    def send_to(self, port: int, batch: Batch, owner: int | None = None) -> bool:
        """Send rows to a port (and there to `owner`); nothing happens if nobody reads it."""
        self.check(port, batch)
        return super().send_to(port, batch, owner)

    def send_run_to(self, port: int, batches: BatchRun, owner: int) -> bool:
        """`send_to` of several batches that follow each other."""
        for batch in batches:
            self.check(port, batch)
        return super().send_run_to(port, batches, owner)

    def check(self, port: int, batch: Batch) -> None:
        """Raise ProtocolError if a row is late, and none of its time was when it came in."""
        column = self.time_columns.get(port)
        if column is None:
            return
        made_late = set(times_before(batch, column, self.watermark).tolist()) - self.late_times
        if made_late:
            raise ProtocolError(
                f"step {self.name!r} made {len(made_late)} rows late: a row of time {min(made_late)} leaves behind the "
                f"watermark {self.watermark}"
            )


def watch_late_rows(
    processor: Processor, inbound: Inbound, outbox: CheckingOutbox, time_columns: Mapping[int, str]
) -> None:
    """Let the outbox of a processor know which rows were late when they came in. `time_columns`: by inbound ordinal."""
    process = processor.process

    def watching(ordinal: int, batch: Batch) -> Iterable[Output]:
        column = time_columns.get(ordinal)
        if column is not None:
            outbox.late_times.update(times_before(batch, column, inbound.watermark).tolist())
        return process(ordinal, batch)

    processor.process = watching  # type: ignore[method-assign]
    processor.process_batches = None  # several at once would pass by


def times_before(batch: Batch, column: str, watermark: int) -> npt.NDArray[np.int64]:
    """Times of the rows that are behind a watermark."""
    times: Any
    times, valid = batch.timestamps(column)
    if valid is not None:
        times = times[valid]
    late: npt.NDArray[np.int64] = times[times < watermark]
    return late
