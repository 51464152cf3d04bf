"""The pipeline of a hunted job: numbered rows, gathered by key into windows, and taken out of them again.

So the state of windows is on the way, and yet each row of the source is to be in the sink once, by its number.
"""

import struct
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import pyarrow as pa

import jetfast as jf
from jetfast.core.batch import Batch
from jetfast.core.guarantee import Delivery
from jetfast.core.processor import ProcessorContext
from jetfast.core.source import Position, Rows
from tests.chaos.watched import Watched

PARTITIONS = 6
KEYS = 40
WINDOW_US = 400
"""And a row each microsecond of event time."""
BATCH_ROWS = 4096
BATCH_DELAY_US = 2_000

_POSITION = struct.Struct("<q")
_RESULTS = pa.schema([("row", pa.int64()), ("key", pa.int64()), ("window_start", pa.timestamp("us"))])


class NumberedRows:
    """Source partition p holds the rows p, p + PARTITIONS, ...; all of them together give `rate` rows a second, until
    somebody says how many there are.
    """

    name = "numbered"
    bounded = True
    cooperative = True
    source_delivery = Delivery.REPLAYABLE

    def __init__(self, rate: float, watched: Watched, columns: Sequence[str] = ("row", "key", "time")) -> None:
        self.rate = rate
        self.watched = watched
        self.columns = list(columns)
        self.schema = self.make(np.arange(0)).schema

    def partitions(self) -> Sequence[str]:
        return [str(partition) for partition in range(PARTITIONS)]

    def open_reader(self, partition: str, position: Position | None, context: ProcessorContext) -> "NumberedReader":
        first = int(partition) if position is None else _POSITION.unpack(position)[0]
        return NumberedReader(self, first, context)

    def with_columns(self, names: Sequence[str]) -> Self:
        return type(self)(self.rate, self.watched, names)

    def make(self, numbers: Any) -> pa.RecordBatch:
        """Return the rows of these numbers."""
        columns = {"row": numbers, "key": numbers % KEYS, "time": pa.array(numbers, pa.timestamp("us"))}
        return pa.record_batch({name: columns[name] for name in self.columns})


class NumberedReader:
    """Gives out rows when they are due, counted from when it was opened."""

    def __init__(self, source: NumberedRows, first: int, context: ProcessorContext) -> None:
        self.source = source
        self.next = first
        self.context = context
        self.opened_us = self.given_us = context.now_us()
        self.given = 0
        self.empty = Batch.from_arrow(source.make(np.arange(0)))

    def read(self) -> Rows | None:
        rows = self.source.watched.rows
        if rows is None:
            end = self.next + self._due() * PARTITIONS
        elif self.next < rows:
            end = min(self.next + BATCH_ROWS * PARTITIONS, rows)
        else:
            return None
        numbers = np.arange(self.next, end, PARTITIONS, dtype=np.int64)
        if len(numbers) == 0:
            return Rows(self.empty, _POSITION.pack(self.next))
        self.source.watched.begin(self.context)
        self.given += len(numbers)
        self.next += len(numbers) * PARTITIONS
        return Rows(Batch.from_arrow(self.source.make(numbers)), _POSITION.pack(self.next))

    def _due(self) -> int:
        now = self.context.now_us()
        if now - self.given_us < BATCH_DELAY_US:
            return 0
        self.given_us = now
        due = int((now - self.opened_us) * self.source.rate / PARTITIONS / 1_000_000) - self.given
        return min(max(due, 0), BATCH_ROWS)

    def close(self) -> None:
        """Holds nothing."""


class TakeOut:
    """Takes the rows out of their windows."""

    def __init__(self, watched: Watched) -> None:
        self.watched = watched

    def __call__(self, windows: pa.RecordBatch) -> pa.RecordBatch:
        if windows.num_rows:
            self.watched.see_results()
        each = windows["each"]
        parents = each.value_parent_indices()
        columns = [each.flatten(), windows["key"].take(parents), windows["window_start"].take(parents)]
        return pa.record_batch(columns, schema=_RESULTS)


def hunted_pipeline(sink: Any, rate: float, watched: Watched) -> jf.Pipeline:
    """Return it, writing to `sink`."""
    pipeline = jf.Pipeline("hunted")
    timed = pipeline.read(NumberedRows(rate, watched), name="numbered").with_event_time(
        "time", jf.watermarks.fixed_lag("1us")
    )
    windows = (
        timed.group_by("key").window(jf.tumbling(f"{WINDOW_US}us")).agg(each=jf.collect_list("row"), name="gather")
    )
    windows.map_batches(TakeOut(watched), schema=_RESULTS, name="take out").write(sink, name="sink")
    return pipeline
