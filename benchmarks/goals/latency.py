"""Goal 11: latency at a million events a second, of the kernels batch by batch, and of a job from end to end."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
import pyarrow as pa

import jetfast as jf
from benchmarks.answers import WindowReference
from benchmarks.goals.feed import COUNT_AND_MEAN, WindowFeed, cached_events, watermarks_of
from benchmarks.goals.options import Options
from benchmarks.goals.pipelines import KEYS, right_results
from benchmarks.goals.windows import SIZE_US, SLIDE_US
from benchmarks.hiccups import HiccupMeter, sleep_until
from benchmarks.measure import Cost, measure
from benchmarks.report import Entry, Goal, milliseconds
from benchmarks.suite.batches import ROWS_PER_SECOND, SCHEMA, Events
from benchmarks.suite.pipelines import CountingSink, sliding_pipeline
from jetfast.core.batch import Batch
from jetfast.core.guarantee import Delivery
from jetfast.core.processor import ProcessorContext
from jetfast.core.source import Position, Rows

BATCH_NS = 1_000_000
"""A batch is due each millisecond."""
BATCH_ROWS = ROWS_PER_SECOND * BATCH_NS // 1_000_000_000
WARM_UP_BATCHES = SIZE_US * 1000 // BATCH_NS
"""One window length: what comes later closes windows that are full."""
REST_NS = 500_000_000
"""Between the warm-up, which goes as fast as it can, and the first row that is due: the queues run empty."""
HICCUPS = "hiccup-meter"


def goal_11(options: Options) -> Iterator[Entry]:
    """Every latency counts from when a batch was due: one that had to wait for its predecessor is late by that, too."""
    if not options.chosen({HICCUPS: None}):
        return
    warm_up = WARM_UP_BATCHES if options.warm_up else 0
    rows = (warm_up + options.latency_batches) * BATCH_ROWS
    events = cached_events(rows, KEYS)
    arrow = events.record_batches(BATCH_ROWS)
    at_once = submit(PacedEvents(arrow, len(arrow), []), jf.collect()).to_arrow()
    equal = right_results(at_once, WindowReference(events, KEYS, SIZE_US, SLIDE_US))
    results = at_once.num_rows
    del at_once
    case = f"{KEYS} keys uniform, 10 s by 100 ms, {BATCH_ROWS} rows each ms"

    services = [service_time(events, warm_up) for _ in range(options.repeats)]
    service = min(services, key=lambda cost: cost.wall_s)
    yield milliseconds(
        "service-time", f"{case}; p99.99", HICCUPS, service.wall_s * 1e3, service, Cost(0.0, BATCH_NS / 1e9), rows,
        equal, Goal(11, 0.5, 0.15),
    )  # fmt: skip

    turns = [end_to_end(events, arrow, warm_up) for _ in range(options.latency_turns)]
    best = min(turns, key=lambda turn: turn.late.wall_s - turn.hiccup.wall_s)
    equal = equal and all(turn.results == results for turn in turns)
    yield milliseconds(
        "end-to-end-above-hiccups", f"{case}; p99.9", HICCUPS, (best.late.wall_s - best.hiccup.wall_s) * 1e3,
        best.late, best.hiccup, rows, equal, Goal(11, 0.5, 0.2),
    )  # fmt: skip


def service_time(events: Events, warm_up: int) -> Cost:
    """Return the CPU time of all batches; as wall time, p99.99 from a batch to its results, when warm."""
    feed = WindowFeed(COUNT_AND_MEAN, SIZE_US, SLIDE_US)
    batches = [Batch.from_arrow(batch) for batch in events.record_batches(BATCH_ROWS)]
    took: list[int] = []

    def serve() -> None:
        for batch, watermark in zip(batches, watermarks_of(events, BATCH_ROWS), strict=True):
            began = time.perf_counter_ns()
            feed.feed([batch], [watermark])
            took.append(time.perf_counter_ns() - began)

    cost = measure(serve)
    return Cost(cost.cpu_s, float(np.percentile(took[warm_up:], 99.99)) / 1e9)


@dataclass(frozen=True)
class PacedEvents:
    """Batches that are due one each millisecond from number `first_due` on; those before are read at once. As that of a
    broker would, the reader waits, on a thread of its own. It adds to `started` when the first was due.
    """

    batches: Sequence[pa.RecordBatch]
    first_due: int
    started: list[int]
    schema: pa.Schema = SCHEMA
    name: str = "paced events"
    bounded: bool = True
    cooperative: bool = False
    source_delivery: Delivery = Delivery.FLEETING

    def partitions(self) -> Sequence[str]:
        return ["0"]

    def open_reader(self, partition: str, position: Position | None, context: ProcessorContext) -> "PacedReader":
        return PacedReader(self)

    def with_columns(self, names: Sequence[str]) -> Self:
        chosen = [batch.select(list(names)) for batch in self.batches]
        return replace(self, batches=chosen, schema=pa.schema([self.schema.field(name) for name in names]))


class PacedReader:
    """Gives each batch when it is due, or when it is asked if that is later."""

    def __init__(self, source: PacedEvents) -> None:
        self.source = source
        self.batches = [Batch.from_arrow(batch) for batch in source.batches]
        self.number = 0

    def read(self) -> Rows | None:
        source, number = self.source, self.number
        if number == len(self.batches):
            return None
        if number >= source.first_due:
            if not source.started:
                source.started.append(time.perf_counter_ns() + REST_NS)
            sleep_until(source.started[0] + (number - source.first_due) * BATCH_NS)
        self.number += 1
        return Rows(self.batches[number], b"", number * BATCH_ROWS)

    def close(self) -> None:
        """Nothing is held."""


@dataclass
class Arrivals(CountingSink):
    """Notes for each batch of results when it came, for which end of windows, and how many they are."""

    times_ns: list[int] = field(default_factory=list)
    ends_us: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)

    def write(self, batch: Batch) -> None:
        self.times_ns.append(time.perf_counter_ns())
        self.ends_us.append(batch.slice(0, 1).to_arrow().column("window_end")[0].value)
        self.counts.append(batch.row_count)


def submit(source: PacedEvents, sink: object) -> jf.Job:
    """Start the job on one worker."""
    return jf.LocalCluster(workers=1).submit(sliding_pipeline(source, sink), progress=False)


@dataclass(frozen=True)
class Turn:
    """CPU time of a job and, as wall time, p99.9 of how late results came; and that of how late a sleeper woke."""

    late: Cost
    hiccup: Cost
    results: int


def end_to_end(events: Events, arrow: Sequence[pa.RecordBatch], warm_up: int) -> Turn:
    """Run the job at its pace. A result is late from when the batch that closes its window was due until the sink has
    it; those that only the end of the input gives are left out.
    """
    arrivals, started = Arrivals(), list[int]()
    with HiccupMeter() as meter:
        cost = measure(submit(PacedEvents(arrow, warm_up, started), arrivals).wait)
        hiccup_ns = meter.percentile_ns(started[0], started[0] + (len(arrow) - warm_up) * BATCH_NS)
    ends, counts = np.array(arrivals.ends_us), np.array(arrivals.counts)
    closing_batch = np.searchsorted(np.array(watermarks_of(events, BATCH_ROWS)), ends)
    due_ns = started[0] + (closing_batch - warm_up) * BATCH_NS
    measured = (closing_batch >= warm_up) & (closing_batch < len(arrow))
    late_ns = np.repeat((np.array(arrivals.times_ns) - due_ns)[measured], counts[measured])
    late = Cost(cost.cpu_s, float(np.percentile(late_ns, 99.9)) / 1e9)
    return Turn(late, Cost(0.0, hiccup_ns / 1e9), int(counts.sum()))
