"""Reads an unbounded source whose partitions are asked for again while the job runs.

One list for all: one processor, the first that has not ended, asks the source, and announces what is new by way of the
coordinator, which hands the announcements to all processors in one order. Each processor makes the same assignment of
it, so each partition has exactly one reader, though lists may differ by moment and order.

    the one that asks       coordinator                every processor
    partitions() --------> PartitionsFound --------> AddPartitions: the same announcements, in the same order
    every interval           to all members            the reader with the fewest partitions takes the next one

A reader is decided once. It stands in the snapshot with the position, and changes only at a restart with another
parallelism. An announcement need not be in a snapshot: a partition is in it when its reader had taken it before the
barrier. Another one is new after a restart, and read from its beginning: none of its rows is in the snapshot.
"""

import logging
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from jetfast.core.items import IDLE, Output
from jetfast.core.processor import BROADCAST, AnnouncedPartitions, ProcessorContext, StateBatch
from jetfast.core.source import partitions_complete
from jetfast.core.transient_errors import is_transient
from jetfast.errors import JobFailedError, RestartableError
from jetfast.processors.source import ReadSource, SourceReader

logger = logging.getLogger("jetfast")

READERS = "source_readers"
"""Kind of the state that says which readers have ended."""

_READERS_SCHEMA = pa.schema(
    [
        pa.field("reader", pa.int32(), nullable=False),  # index of the processor
        pa.field("parallelism", pa.int32(), nullable=False),
        pa.field("ended", pa.bool_(), nullable=False),
    ]
)


class DiscoveringSourceReader(SourceReader):
    """As SourceReader, for partitions that come while it reads. Without any it is idle.

    It ends when the source has said that no more partitions come, and its own have ended.
    """

    def __init__(self, settings: ReadSource, interval_us: int) -> None:
        super().__init__(settings)
        self.interval_us = interval_us

    def open(self, context: ProcessorContext) -> None:
        super().open(context)
        self.known: set[str] = set()
        """Partitions that have a reader, of all processors."""
        self.loads = [0] * context.parallelism
        """Partitions by reader."""
        self.takers = list(range(context.parallelism))
        """Readers that take new partitions: those that have not ended."""
        self.announcements_taken = 0
        self.is_complete = False
        """No more partitions come."""
        self.ended = False
        self.found: set[str] = set()
        """Of the processor that asks: what it has announced."""
        self.next_ask_us: int | None = None
        self.saved_readers: list[dict[str, Any]] = []

    def _assigned(self, context: ProcessorContext) -> list[str]:
        return []  # they are announced

    def poll(self) -> Sequence[Output] | None:
        if self.ended:
            return None
        if self.context.index == self.takers[0] and not self.is_complete:
            self._ask_if_due()
        polled = super().poll()
        output = [*(polled or ()), *self._take_announced()]  # behind the restored watermark
        if self.is_complete and not self.unfinished:
            self.ended = True
            return output or None
        return output

    def _ask_if_due(self) -> None:
        """Ask the source for its partitions, and announce those that are new."""
        now_us = self.context.now_us()
        if self.next_ask_us is not None and now_us < self.next_ask_us:
            return
        is_first = self.next_ask_us is None
        self.clock.stop()
        try:
            complete = partitions_complete(self.source)
            names = self.source.partitions()
        except Exception as error:
            if isinstance(error, JobFailedError):
                raise
            what = f"{self.source.name}: its partitions cannot be listed: {type(error).__name__}: {error}"
            if is_first:
                raise (RestartableError(what) if is_transient(error) else JobFailedError(what)) from error
            logger.warning("%s; it is asked again", what)  # those that are known are read meanwhile
            self.context.count("failed_discoveries", 1)
            self.next_ask_us = self.context.now_us() + self.interval_us
            return
        self.next_ask_us = self.context.now_us() + self.interval_us
        new = [name for name in dict.fromkeys(names) if name not in self.known and name not in self.found]
        if not (is_first or new or complete):
            return
        self.found.update(new)
        announced = AnnouncedPartitions(tuple(new), complete)
        if self.context.announce is None:  # there is no other processor
            self.context.announced.append(announced)
        else:
            self.context.announce(announced)

    def _take_announced(self) -> Iterator[Output]:
        """Take in announcements: every processor decides the same readers for the same partitions."""
        announced = self.context.announced
        while self.announcements_taken < len(announced):
            names, complete = announced[self.announcements_taken]
            self.announcements_taken += 1
            for name in names:
                yield from self._take_partition(name)
            self.is_complete = self.is_complete or complete
            event_time = self.event_time
            if event_time is not None and not self.partitions and not self.is_complete and not event_time.sent_idle:
                event_time.sent_idle = True
                yield IDLE

    def _take_partition(self, name: str) -> Iterator[Output]:
        if name in self.known:
            return
        self.known.add(name)
        if not self.takers:
            if self.context.index == 0:
                logger.warning("%s: all of its partitions had ended, and %r is not read", self.source.name, name)
            return
        reader = min(self.takers, key=lambda index: (self.loads[index], index))
        self.loads[reader] += 1
        if reader == self.context.index:
            yield from self._add_partition(name)

    def save_snapshot(self) -> Sequence[StateBatch]:
        reader = pa.record_batch(
            [[self.context.index], [self.context.parallelism], [self.ended]], schema=_READERS_SCHEMA
        )
        return (*super().save_snapshot(), StateBatch(BROADCAST, READERS, reader))

    def restore_snapshot(self, state: StateBatch) -> None:
        if state.kind == READERS:
            self.saved_readers += state.rows.to_pylist()
        else:
            super().restore_snapshot(state)

    def finish_restore(self) -> None:
        """Every processor finds the same readers for all partitions that the snapshot knows.

        A partition that the source does not list any more has not ended: it is read on.
        """
        index, parallelism = self.context.index, self.context.parallelism
        saved = self.saved_readers
        if all(each["parallelism"] == parallelism for each in saved):
            # The steps behind a reader that has ended have taken its end, and accept no more rows of it.
            ended = {each["reader"] for each in saved if each["ended"]}
        else:  # nothing behind them is restored as finished, unless all have ended
            ended = set(range(parallelism)) if all(each["ended"] for each in saved) else set()
        self.takers = [reader for reader in range(parallelism) if reader not in ended]
        self.ended = index in ended
        self.all_partitions = sorted(self.restored)
        self.known = set(self.all_partitions)
        for number, name in enumerate(self.all_partitions):
            partition = self.restored[name]
            moves = partition["parallelism"] != parallelism
            self.loads[number % parallelism if moves else partition["reader"]] += not partition["finished"]
        super().finish_restore()
