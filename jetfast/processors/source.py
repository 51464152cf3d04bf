"""Reads a Source: its partitions become batches, watermarks and rejected rows."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from jetfast.core.acknowledging import is_acknowledging
from jetfast.core.batch import Batch, BatchRun
from jetfast.core.event_time import IDLE_TIMEOUT_US, PolledClock, SourceEventTime
from jetfast.core.event_time_report import report_event_time
from jetfast.core.items import Emit, Output
from jetfast.core.processor import BROADCAST, ProcessorContext, SourceProcessor, StateBatch
from jetfast.core.readable import rows_as_json
from jetfast.core.source import (
    LARGE_BATCH_ROWS,
    REJECTED_SCHEMA,
    PartitionReader,
    Position,
    ReadyRows,
    Rows,
    Source,
    discovery_interval_us,
)
from jetfast.core.throttling import NoThrottling, WatermarkThrottleFactory
from jetfast.core.transient_errors import is_transient
from jetfast.core.watermark_policies import WatermarkPolicyFactory
from jetfast.errors import JetfastError, JobDefinitionError, JobFailedError, RestartableError
from jetfast.kernels.event_times import reached_times
from jetfast.types import BATCH_ROWS_MAX, MAX_TIME, MIN_TIME

logger = logging.getLogger("jetfast")

REJECTED_PORT = 1
"""Output port of rejected rows (REJECTED_SCHEMA); rows go to MAIN_PORT."""

CUT_ROWS = 4096
CUT_FRAMES = 64
"""Batches of up to CUT_ROWS rows are never cut for spanning many frames; a row costs more in small batches."""

POLL_ROWS = 32_768
"""A poll of a source that never waits goes on after a large batch, up to so many rows: Python runs once for them."""
READY_ROWS = 393_216
"""The same for rows that are in memory before they are read, so that they need no room while they wait."""
FRAMES_PER_WATERMARK = 8
"""Batches that are taken together leave together, with one watermark behind them, if they reach over so many frames at
most: each watermark costs every step behind the source a few calls."""

_STATE_KIND = "source_partitions"
_STATE_SCHEMA = pa.schema(
    [
        pa.field("partition", pa.string(), nullable=False),
        pa.field("position", pa.binary()),  # null: nothing has been read yet
        pa.field("row", pa.int64(), nullable=False),  # rows read so far, for messages
        pa.field("watermark", pa.int64(), nullable=False),
        pa.field("idle", pa.bool_(), nullable=False),
        pa.field("finished", pa.bool_(), nullable=False),
        pa.field("reader", pa.int32(), nullable=False),  # index of the processor
        pa.field("parallelism", pa.int32(), nullable=False),
    ]
)


@dataclass(frozen=True)
class ReadSource:
    """Supplier of source processors; source partition i is read by processor i mod parallelism.

    Parameters
    ----------
    source : what is read
    event_time_column : timestamp or date column that holds the time of each row; None: rows without event time
    policy : makes the watermark policy of each source partition; needed if and only if there is an event time
    idle_timeout_us : polled time after which a silent partition is idle, microseconds; 0: never
    batch_rows : rows of a batch at most
    throttle : makes the throttle of each processor: which watermarks leave
    frame_us : slide of the finest window downstream, microseconds: a batch of more than CUT_ROWS rows is cut where it
        would span more than CUT_FRAMES of them, so that watermarks keep up with time in sparse data. None: no window
    """

    source: Source
    event_time_column: str | None = None
    policy: WatermarkPolicyFactory | None = None
    idle_timeout_us: int = IDLE_TIMEOUT_US
    batch_rows: int = BATCH_ROWS_MAX
    frame_us: int | None = None
    throttle: WatermarkThrottleFactory = NoThrottling
    partitions: tuple[str, ...] = field(default=(), init=False)
    """What the source listed when the job was submitted; unbounded ones are asked again."""

    def __post_init__(self) -> None:
        if (self.event_time_column is None) != (self.policy is None):
            raise JobDefinitionError(f"{self.source.name}: an event time column and a watermark policy need each other")
        if not 1 <= self.batch_rows <= BATCH_ROWS_MAX:
            raise JobDefinitionError(f"batch_rows must be in [1, {BATCH_ROWS_MAX}], got {self.batch_rows}")
        # What cannot be read is seen here and not on a member; and members that list by themselves may find others.
        object.__setattr__(self, "partitions", tuple(self.source.partitions()))
        if not self.partitions and not self.source.bounded and discovery_interval_us(self.source) is None:
            raise JobDefinitionError(f"{self.source.name}: it never ends, but has no partition to be read")
        if self.event_time_column is not None:
            check_event_time(self.source, self.event_time_column)

    def __call__(self) -> "SourceReader":
        if is_acknowledging(self.source):
            from jetfast.processors.acknowledging_source import AcknowledgingSourceReader

            return AcknowledgingSourceReader(self)
        interval_us = discovery_interval_us(self.source)
        if interval_us is not None:
            from jetfast.processors.discovering_source import DiscoveringSourceReader

            return DiscoveringSourceReader(self, interval_us)
        return SourceReader(self)


class SourceReader(SourceProcessor):
    """Reads its share of the partitions of a source: see `ReadSource`.

    Each poll asks partitions in turn, that with the lowest watermark first, until one has rows (POLL_ROWS of them,
    if it gives large batches without waiting and stays the one with the lowest watermark). Without event time a
    bounded source is read partition by partition, an unbounded one in rotation.
    """

    def __init__(self, settings: ReadSource) -> None:
        self.settings = settings
        self.source = settings.source
        self.cooperative = settings.source.cooperative
        self.readers: list[PartitionReader | None] = []

    def open(self, context: ProcessorContext) -> None:
        self.context = context
        self.all_partitions = list(self.settings.partitions)
        self.restored: dict[str, dict[str, Any]] = {}
        self.is_restored = False
        self.gone: list[tuple[Any, ...]] = []
        """Saved state of partitions that were read to their end and are not there now: should they come back, they
        are not read again."""
        self.started = False
        self.rotation = 0  # where an unbounded source without event time begins to ask
        self.clock = PolledClock()
        self.event_time: SourceEventTime | None = None
        self.batch_rows = self.settings.batch_rows
        frame_us = self.settings.frame_us
        self.span_us = MAX_TIME if frame_us is None else min(CUT_FRAMES * frame_us, MAX_TIME)
        self.watermark_span_us = MAX_TIME if frame_us is None else min(FRAMES_PER_WATERMARK * frame_us, MAX_TIME)
        if self.settings.event_time_column is not None:
            self.time_column = self.source.schema.get_field_index(self.settings.event_time_column)
        self._take_partitions(self._assigned(context))
        context.counters.setdefault("rows_read", 0)
        context.counters.setdefault("rejected_rows", 0)

    def _assigned(self, context: ProcessorContext) -> list[str]:
        """The partitions that this processor reads if nothing is restored."""
        return self.all_partitions[context.index :: context.parallelism]

    def _take_partitions(self, names: list[str]) -> None:
        """These are read here, from their beginning."""
        self.partitions = names
        count = len(names)
        self.positions: list[Position | None] = [None] * count
        self.next_rows = [0] * count  # for messages
        self.unfinished = list(range(count))
        self.readers = [None] * count
        # Of readers that are ReadsSeveral.
        self.read_ready: list[Callable[[int], ReadyRows | None] | None] = [None] * count
        # While there are several: how many rows are taken of each at a time, and over what time the last ones reached.
        self.ready_rows = [LARGE_BATCH_ROWS] * count
        self.ready_span_us = [0] * count
        if self.settings.policy is not None:
            self.event_time = SourceEventTime(
                self.settings.policy,
                count,
                bounded=self.source.bounded,
                idle_timeout_us=self.settings.idle_timeout_us,
                throttle=self.settings.throttle,
                now_us=self.context.now_us(),
            )

    def _add_partition(self, name: str) -> tuple[Output, ...]:
        """This one is read here, too, from its beginning; what leaves because of it."""
        self.partitions.append(name)
        self.positions.append(None)
        self.next_rows.append(0)
        self.readers.append(None)
        self.read_ready.append(None)
        self.ready_rows.append(LARGE_BATCH_ROWS)
        self.ready_span_us.append(0)
        self.unfinished.append(len(self.partitions) - 1)
        return () if self.event_time is None else self.event_time.add_partition(self.context.now_us())

    def poll(self) -> Sequence[Output] | None:
        now_us = self.context.now_us
        now = now_us()
        self.clock.begin_poll(now)
        output: list[Output] = []
        if not self.started:
            self.started = True
            if self.event_time is not None:
                output += self.event_time.start()
        for partition in self._reading_order():
            rows = self._read(partition)
            if rows is None:
                self._finish(partition, output)
                continue
            self.positions[partition] = rows.position
            if _tells_of_rows(rows):
                if not self.cooperative:
                    now = now_us()  # reading took its time
                row_count = self._take(partition, rows, now, output)
                if self.cooperative and LARGE_BATCH_ROWS <= row_count < POLL_ROWS:
                    self._take_more(partition, row_count, now, output)
                break
            if self.event_time is not None:
                now = now_us()
                output += self.event_time.observe_empty(partition, self.clock.read(now), now)
        if output:
            self.clock.stop()
            return _in_runs(output) if len(output) > 2 else output
        self.clock.end_poll(now_us(), False)
        # The list of partitions is fixed: a processor that has none has nothing to wait for.
        return output if self.unfinished else None

    def save_snapshot(self) -> Sequence[StateBatch]:
        self.clock.stop()
        rows = []
        for partition, name in enumerate(self.partitions):
            watermark, idle = MIN_TIME, False
            if self.event_time is not None:
                watermark, idle = self.event_time.watermarks[partition], self.event_time.idle[partition]
            finished = partition not in self.unfinished
            position, row = self.positions[partition], self.next_rows[partition]
            rows.append((name, position, row, watermark, idle, finished, self.context.index, self.context.parallelism))
        rows += self.gone
        columns = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in _STATE_SCHEMA]
        return (StateBatch(BROADCAST, _STATE_KIND, pa.record_batch(columns, schema=_STATE_SCHEMA)),)

    def restore_snapshot(self, state: StateBatch) -> None:
        self.is_restored = True
        for saved in state.rows.to_pylist():
            self.restored[saved["partition"]] = saved

    def finish_restore(self) -> None:
        names = set(self.all_partitions)
        lost = sorted(name for name, saved in self.restored.items() if name not in names and not saved["finished"])
        if lost:
            raise JobFailedError(
                f"{self.source.name}: the snapshot holds positions in partitions that are gone: {', '.join(lost)}"
            )
        if self.is_restored:
            self._take_partitions(self._assigned_again())
            if self.context.index == 0:
                place = {"reader": 0, "parallelism": self.context.parallelism}
                self.gone = [
                    tuple((each | place).values()) for name, each in self.restored.items() if name not in names
                ]
        for partition, name in enumerate(self.partitions):
            saved = self.restored.get(name)
            if saved is None:
                continue  # it is newer than the snapshot
            self.positions[partition] = saved["position"]
            self.next_rows[partition] = saved["row"]
            if saved["finished"]:
                self.unfinished.remove(partition)
            if self.event_time is not None:
                self.event_time.restore(partition, saved["watermark"], saved["idle"], saved["finished"])
        self.restored.clear()
        self.clock.stop()

    def _assigned_again(self) -> list[str]:
        """The partitions that this processor reads after a restore; every processor finds the same for all.

        One that had read all of its own has told its end, which holds for what reads from it. So with the same
        parallelism partitions stay with their readers, though others may have come or gone, and new ones go to
        readers that have not ended; with another, nobody has ended before the last partition of all.
        """
        index, parallelism = self.context.index, self.context.parallelism
        saved = self.restored
        known = [name for name in self.all_partitions if name in saved]
        new = [name for name in self.all_partitions if name not in saved]
        unfinished = {each["reader"] for each in saved.values() if not each["finished"]}
        if all(each["parallelism"] == parallelism for each in saved.values()):
            mine = {name for name in known if saved[name]["reader"] == index}
            takers = sorted(unfinished)
        else:
            mine = set(known[index::parallelism])
            takers = list(range(parallelism)) if unfinished else []
        if not takers:
            if new and index == 0:
                logger.warning(
                    "%s: the job had read all of its input before these came, and does not read them: %s",
                    self.source.name,
                    ", ".join(new),
                )
            new = []
        mine |= {name for number, name in enumerate(new) if takers[number % len(takers)] == index}
        return [name for name in self.all_partitions if name in mine]

    def close(self, error: BaseException | None) -> None:
        readers, self.readers = self.readers, []
        failure: Exception | None = None
        for reader in readers:
            if reader is not None:
                try:
                    reader.close()
                except Exception as close_error:  # the others must be closed too
                    failure = failure or close_error
        if failure is not None and error is None:
            raise failure

    def describe_event_time(self) -> dict[str, Any] | None:
        if self.event_time is None:
            return None
        return report_event_time(self.event_time, self.partitions, [reader is not None for reader in self.readers])

    def _reading_order(self) -> list[int]:
        if self.event_time is not None:
            return self.event_time.reading_order()
        unfinished = self.unfinished
        if self.source.bounded or len(unfinished) < 2:
            return list(unfinished)
        self.rotation = (self.rotation + 1) % len(unfinished)
        return unfinished[self.rotation :] + unfinished[: self.rotation]

    def _read(self, partition: int) -> Rows | ReadyRows | None:
        reader = self.readers[partition]
        name = self.partitions[partition]
        try:
            if reader is None:
                reader = self.source.open_reader(name, self.positions[partition], self.context)
                self.readers[partition] = reader
                self.read_ready[partition] = getattr(reader, "read_ready", None)
            read_ready = self.read_ready[partition]
            ready = None if read_ready is None else read_ready(self._count_ready(partition))
            return reader.read() if ready is None else ready
        except JetfastError:
            raise  # the connector has said which file or offset
        except Exception as error:
            kind = RestartableError if is_transient(error) else JobFailedError
            raise kind(
                f"{self.source.name}: source partition {name!r} cannot be read at row {self.next_rows[partition]}: "
                f"{type(error).__name__}: {error}"
            ) from error

    def _finish(self, partition: int, output: list[Output]) -> None:
        reader = self.readers[partition]
        self.readers[partition] = None
        self.unfinished.remove(partition)
        if reader is not None:
            reader.close()
        if self.event_time is not None:
            output += self.event_time.observe_finished(partition)

    def _count_ready(self, partition: int) -> int:
        """How many rows that are there may be taken at once.

        Of one of several partitions fewer, if they would lead it far ahead of the others: what waits for these is kept
        by the steps behind.
        """
        event_time = self.event_time
        if event_time is None or len(self.unfinished) == 1:
            return READY_ROWS
        rows = self.ready_rows[partition]
        far = self.ready_span_us[partition] > self.span_us
        self.ready_rows[partition] = max(rows // 2, LARGE_BATCH_ROWS) if far else min(rows * 2, READY_ROWS)
        return self.ready_rows[partition]

    def _take_more(self, partition: int, row_count: int, now: int, output: list[Output]) -> None:
        """Go on with a partition that gives large batches without waiting, while it stays the next to be read."""
        event_time = self.event_time
        while row_count < POLL_ROWS and (event_time is None or event_time.is_next(partition)):
            rows = self._read(partition)
            if rows is None:
                self._finish(partition, output)
                return
            self.positions[partition] = rows.position
            if not _tells_of_rows(rows):
                if event_time is not None:
                    output += event_time.observe_empty(partition, self.clock.read(now), now)
                return
            more = self._take(partition, rows, now, output)
            if more < LARGE_BATCH_ROWS:
                return
            row_count += more

    def _take(self, partition: int, rows: Rows | ReadyRows, now: int, output: list[Output]) -> int:
        """Turn an answer of a reader into output; how many rows it has."""
        if isinstance(rows, Rows):
            if rows.rejected is not None or not self._take_whole(
                partition, self._with_origin(partition, rows.batch, rows), now, output
            ):
                self._take_apart(partition, rows, now, output)
            return rows.batch.row_count
        batches = rows.batches
        if not self._take_whole(partition, batches, now, output):
            for batch in batches:
                assert batch.origin is not None
                self._take_apart(partition, Rows(batch, rows.position, batch.origin[1]), now, output)
        return batches.row_count

    def _take_whole(self, partition: int, batches: Batch | BatchRun, now: int, output: list[Output]) -> bool:
        """Let batches leave as they are; False if one must be looked at, and nothing was done.

        Their times are looked at together, which is all that most of them need, and few watermarks leave between them.
        """
        event_time = self.event_time
        if event_time is None or not event_time.takes_greatest or event_time.is_behind(partition):
            return False
        reached = reached_times(
            batches if isinstance(batches, BatchRun) else (batches,),
            self.time_column,
            self.batch_rows,
            CUT_ROWS,
            self.span_us,
            self.watermark_span_us,
        )
        if reached is None:
            return False
        row_count = batches.row_count
        output += event_time.observe_rows(partition, self.clock.read(now))
        self.context.counters["rows_read"] += row_count
        self.next_rows[partition] += row_count
        self.ready_span_us[partition], parts = reached
        start = 0
        for end, greatest in parts:
            output.append(batches if isinstance(batches, Batch) or len(parts) == 1 else batches.slice(start, end))
            output += event_time.observe_greatest(partition, greatest, now)
            start = end
        return True

    def _take_apart(self, partition: int, rows: Rows, now: int, output: list[Output]) -> None:
        """Turn one answer of a reader into output: ACTIVE, rejected rows, then batches with a watermark behind each."""
        batch = rows.batch
        row_count = batch.row_count
        counters = self.context.counters
        event_time = self.event_time
        if event_time is not None:
            output += event_time.observe_rows(partition, self.clock.read(now))
        if rows.rejected is not None:
            counters["rows_read"] += rows.rejected.row_count
            counters["rejected_rows"] += rows.rejected.row_count
            self._reject(rows.rejected, output)
        if row_count == 0:
            return
        counters["rows_read"] += row_count
        self.next_rows[partition] += row_count
        timestamps: npt.NDArray[np.int64] | None = None
        if event_time is not None:
            batch, timestamps = self._convert_times(partition, rows, output)
            row_count = batch.row_count
        if row_count:
            batch = self._with_origin(partition, batch, rows)
        start = 0
        while start < row_count:
            end = self._cut(timestamps, start, row_count)
            output.append(batch if end - start == row_count else batch.slice(start, end - start))
            if event_time is not None and timestamps is not None:
                output += event_time.observe_timestamps(partition, timestamps[start:end], now)
            start = end

    def _with_origin(self, partition: int, batch: Batch, rows: Rows) -> Batch:
        """The batch, which knows where it comes from; a reader may have said it already."""
        if batch.origin is not None:
            return batch
        return batch.with_origin(rows.origin or self.partitions[partition], rows.first_row)

    def _cut(self, timestamps: npt.NDArray[np.int64] | None, start: int, row_count: int) -> int:
        """Return where the batch that begins at row `start` ends."""
        end = min(start + self.settings.batch_rows, row_count)
        if timestamps is None or self.settings.frame_us is None or end - start <= CUT_ROWS:
            return end
        times = timestamps[start:end]
        span_limit_us = min(CUT_FRAMES * self.settings.frame_us, MAX_TIME)
        if int(times.max()) - int(times.min()) <= span_limit_us:  # nearly always
            return end
        if int(times[:CUT_ROWS].max()) - int(times[:CUT_ROWS].min()) > span_limit_us:
            return start + CUT_ROWS
        span_us = np.uint64(span_limit_us)
        spans_us = _span_us(np.minimum.accumulate(times), np.maximum.accumulate(times))
        return start + int(np.searchsorted(spans_us, span_us, side="right"))  # they ascend

    def _convert_times(self, partition: int, rows: Rows, output: list[Output]) -> tuple[Batch, npt.NDArray[np.int64]]:
        """Return the rows that have a time, and their times; the others are rejected."""
        column = self.settings.event_time_column
        assert column is not None
        batch = rows.batch
        reasons: list[tuple[npt.NDArray[np.bool_], str]] = []
        try:
            timestamps, valid = batch.timestamps(column)
        except (ValueError, OverflowError):
            fitting = _fitting_times(batch.to_arrow().column(column))
            reasons.append((~fitting, f"{column} does not fit 64 bits of microseconds"))
            timestamps, valid = batch.take(np.flatnonzero(fitting).astype(np.int32)).timestamps(column)
            keep = fitting.copy()
            if valid is not None:
                keep[np.flatnonzero(fitting)] = valid
                reasons.append((fitting & ~keep, f"{column} is null"))
                timestamps = timestamps[valid]
        else:
            if valid is None:
                return batch, timestamps
            keep = valid
            reasons.append((~valid, f"{column} is null"))
            timestamps = timestamps[valid]
        for mask, reason in reasons:
            bad = np.flatnonzero(mask)
            if len(bad):
                self.context.counters["rejected_rows"] += len(bad)
                if REJECTED_PORT in self.context.connected_ports:
                    self._reject(self._rejected_batch(partition, rows, bad, reason), output)
        return batch.take(np.flatnonzero(keep).astype(np.int32)), timestamps

    def _rejected_batch(self, partition: int, rows: Rows, bad: npt.NDArray[np.intp], reason: str) -> Batch:
        numbers = rows.first_row + bad if rows.row_numbers is None else rows.row_numbers[bad]
        origin = rows.origin or self.partitions[partition]
        texts = rows_as_json(rows.batch.take(bad.astype(np.int32)).to_arrow())
        columns = [[origin] * len(bad), numbers.tolist(), [reason] * len(bad), texts]
        return Batch.from_arrow(pa.record_batch(columns, schema=REJECTED_SCHEMA))

    def _reject(self, rejected: Batch, output: list[Output]) -> None:
        if REJECTED_PORT in self.context.connected_ports:
            output.append(Emit(REJECTED_PORT, rejected))


def _tells_of_rows(rows: Rows | ReadyRows) -> bool:
    """Is an answer of a reader more than a sound empty one?"""
    if isinstance(rows, ReadyRows):
        return True
    return rows.batch.row_count > 0 or rows.rejected is not None or rows.filtered_rows > 0


def _in_runs(output: list[Output]) -> list[Output]:
    """The same output; batches that follow each other are sent together."""
    groups: list[Any] = []
    for item in output:
        if not isinstance(item, Batch | BatchRun):
            groups.append(item)
        elif groups and isinstance(groups[-1], list) and item.schema.equals(groups[-1][0].schema):
            groups[-1].append(item)
        else:
            groups.append([item])
    return [item if not isinstance(item, list) else item[0] if len(item) == 1 else BatchRun.of(item) for item in groups]


def _span_us(least: Any, greatest: Any) -> Any:
    """Differences as uint64: they need not fit int64."""
    return np.asarray(greatest).view(np.uint64) - np.asarray(least).view(np.uint64)


def check_event_time(source: Source, column: str) -> None:
    """Raise JobDefinitionError if a column of a source cannot be its event time."""
    if column not in source.schema.names:
        raise JobDefinitionError(
            f"{source.name}: there is no event time column {column!r}; there are {', '.join(source.schema.names)}"
        )
    column_type = source.schema.field(column).type
    if not (pa.types.is_timestamp(column_type) or pa.types.is_date(column_type)):
        raise JobDefinitionError(
            f"{source.name}: event time column {column!r} must be a timestamp or a date, it is {column_type}"
        )
    check = getattr(source, "check_event_time", None)  # ChecksEventTime
    if check is not None:
        check(column)


def _fitting_times(column: pa.Array) -> npt.NDArray[np.bool_]:
    """Which times fit int64 microseconds, nulls included; for timestamps in seconds or milliseconds and for dates."""
    column_type = column.type
    if pa.types.is_date32(column_type):
        factor, raw = 86_400_000_000, column.cast(pa.int32())
    elif pa.types.is_date64(column_type):
        factor, raw = 1_000, column.cast(pa.int64())
    else:
        factor, raw = {"s": 1_000_000, "ms": 1_000}.get(column_type.unit, 1), column.cast(pa.int64())
    values = raw.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    fitting: npt.NDArray[np.bool_] = (values <= MAX_TIME // factor) & (values >= -(MAX_TIME // factor))
    return fitting
