"""Goals 8 and 9: whole pipelines through the public API, against their kernels alone, and two cores against one."""

import threading
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

import jetfast as jf
from benchmarks.answers import WindowCheck, WindowReference, same_windows
from benchmarks.goals.feed import COUNT_AND_MEAN, WindowFeed, cached_events, engine_batches, watermarks_of
from benchmarks.goals.options import Options
from benchmarks.goals.windows import SIZE_US, SLIDE_US
from benchmarks.measure import Cost, measure, side_by_side
from benchmarks.report import Entry, Goal, ratio
from benchmarks.suite.batches import Events
from benchmarks.suite.pipelines import CountingSink, sliding_pipeline
from jetfast.types import MAX_TIME

KEYS = 10_000
ROWS_FACTOR = 8
"""Rows of goal 9, as a multiple of those of other goals: so start and end are less than a twentieth of a turn."""
CASE = f"{KEYS} keys uniform, 10 s by 100 ms, flushed"


def right_results(table: pa.Table, reference: WindowReference) -> bool:
    """Are these all windows of the input, in any order?"""
    ends = table["window_end"].cast(pa.int64()).to_numpy()
    starts = table["window_start"].cast(pa.int64()).to_numpy()
    aggregates = {kind: table[kind].to_numpy() for kind in ("count", "mean")}
    spans_right = bool((ends - starts == reference.size_us).all())
    return spans_right and same_windows(reference, MAX_TIME, table["key"].to_numpy(), ends, aggregates)


def flushed_watermarks(events: Events) -> list[int]:
    """As a pipeline does: the end of the input flushes every open window."""
    return [*watermarks_of(events)[:-1], MAX_TIME]


def goal_8(options: Options) -> Iterator[Entry]:
    """Memory -> sliding windows -> sink, from building the pipeline to the end of its job, against the same batches
    and a window table in a loop. Rows come to the sink in the engine's batches, and are dropped there on both sides.
    """
    if not options.chosen({"kernels": None}):
        return
    events = cached_events(options.rows, KEYS)
    arrow = events.record_batches()
    batches, watermarks = engine_batches(events), flushed_watermarks(events)
    reference = WindowReference(events, KEYS, SIZE_US, SLIDE_US)
    cluster = jf.LocalCluster(workers=1)
    collecting = cluster.submit(sliding_pipeline(arrow, jf.collect()), progress=False)
    collected = collecting.to_arrow()
    results = collected.num_rows
    equal = right_results(collected, reference)
    del collected, collecting

    check = WindowCheck(reference, MAX_TIME)
    WindowFeed(COUNT_AND_MEAN, SIZE_US, SLIDE_US).feed(
        batches, watermarks, lambda result: check.take_batch(result.to_arrow(), SIZE_US)
    )
    equal = equal and check.finish()

    def pipeline() -> Cost:
        jobs: list[jf.Job] = []

        def work() -> None:
            job = cluster.submit(sliding_pipeline(arrow, CountingSink()), progress=False)
            jobs.append(job)
            job.wait()

        cost = measure(work)
        written = jobs[0].metrics["rows_written"]
        if written != results:
            raise AssertionError(f"the sink got {written} rows, there are {results}")
        return cost

    def kernels() -> Cost:
        run = WindowFeed(COUNT_AND_MEAN, SIZE_US, SLIDE_US)
        return measure(lambda: run.feed(batches, watermarks))

    costs = side_by_side(pipeline, {"kernels": {"": kernels}}, options.repeats)
    yield ratio(
        "pipeline-vs-kernels", CASE, "kernels", costs["jetfast"], costs["kernels"], options.rows, equal,
        Goal(8, 0.7, 0.9),
    )  # fmt: skip


class PlainThreads:
    """The work of a keyed pipeline without the pipeline: rows are divided by key beforehand, each half has a window
    table, and one thread runs both halves or two threads one each. What the machine itself gives two cores.
    """

    def __init__(self, events: Events) -> None:
        self.halves = []
        for half in range(2):
            rows = np.flatnonzero(events.keys % 2 == half)
            part = Events(events.keys[rows], events.times[rows], events.values[rows])
            self.halves.append((engine_batches(part), flushed_watermarks(part)))

    @staticmethod
    def run(halves: Sequence[tuple[list, list[int]]]) -> None:
        for batches, watermarks in halves:
            WindowFeed(COUNT_AND_MEAN, SIZE_US, SLIDE_US).feed(batches, watermarks)

    def one(self) -> None:
        self.run(self.halves)

    def two(self) -> None:
        threads = [threading.Thread(target=self.run, args=([half],)) for half in self.halves]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def goal_9(options: Options) -> Iterator[Entry]:
    """The same keyed pipeline over two source partitions by two workers and by one: wall time.

    Eight times as many rows as elsewhere: submission, threads and the hundred windows that are flushed at the end take
    5 to 6 ms, of which only the last become less with a second worker.
    """
    if not options.chosen({"one-core": None, "two-threads": None}):
        return
    events = cached_events(ROWS_FACTOR * options.rows, KEYS)
    arrow = events.record_batches()
    partitions = {"even": arrow[0::2], "odd": arrow[1::2]}
    if not partitions["odd"]:
        raise ValueError("goal 9 needs two batches at least")
    reference = WindowReference(events, KEYS, SIZE_US, SLIDE_US)

    def run(workers: int, sink: object) -> jf.Job:
        cluster = jf.LocalCluster(workers=workers)
        return cluster.submit(sliding_pipeline(jf.memory(partitions=partitions), sink), progress=False)

    equal = all(right_results(run(workers, jf.collect()).to_arrow(), reference) for workers in (1, 2))
    plain = PlainThreads(events)
    turns = {
        "one-core": {"": lambda: measure(lambda: run(1, CountingSink()).wait())},
        "one-thread": {"": lambda: measure(plain.one)},
        "two-threads": {"": lambda: measure(plain.two)},
    }
    costs = side_by_side(lambda: measure(lambda: run(2, CountingSink()).wait()), turns, options.wall_repeats, "wall_s")
    rows = len(events)
    threads = ratio(
        "two-threads-vs-one", f"{CASE}; window tables alone", "one-thread", costs["two-threads"], costs["one-thread"],
        rows, equal, clock="wall_s",
    )  # fmt: skip
    yield threads
    yield ratio(
        "two-cores-vs-one", CASE, "one-core", costs["jetfast"], costs["one-core"], rows, equal,
        Goal(9, 1.5, 0.95 * threads.value), "wall_s",
    )  # fmt: skip
