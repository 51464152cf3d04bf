"""Goal 10: a pipeline that takes a snapshot each second against the same without, and how long it stops for one."""

from collections.abc import Iterator
from statistics import median, median_low
from typing import Any

import jetfast as jf
from benchmarks.answers import WindowReference
from benchmarks.goals.feed import cached_events
from benchmarks.goals.options import Options
from benchmarks.goals.pipelines import right_results
from benchmarks.measure import Cost, measure
from benchmarks.report import Entry, Goal, milliseconds, ratio
from benchmarks.suite.pipelines import CountingSink, sliding_pipeline
from benchmarks.suite.repeated import TURN_ROWS, RepeatedEvents
from jetfast.core.source import Source
from jetfast.core.windows import Window

SIZE_US = 10_000_000
PEER = "no-snapshots"


def goal_10(options: Options) -> Iterator[Entry]:
    """10k keys in sliding windows, whose state is 1M pairs of key and frame; and 1M keys with one state each."""
    if not options.chosen({PEER: None}):
        return
    sliding = WithSnapshots(options, 10_000, jf.sliding("10s", "100ms"), 100_000, "10 s by 100 ms")
    yield from sliding.compare(options.snapshot_rows, Goal(10, 0.97, 0.99))
    tumbling = WithSnapshots(options, options.many_keys, jf.tumbling("10s"), SIZE_US, "10 s tumbling")
    yield from tumbling.compare(options.snapshot_rows_many_keys, Goal(10, 0.9, 0.95))


class WithSnapshots:
    """One pipeline, run with snapshots and without."""

    def __init__(self, options: Options, key_count: int, window: Window, slide_us: int, case: str) -> None:
        self.options = options
        self.key_count = key_count
        self.window = window
        self.slide_us = slide_us
        self.label = {1_000_000: "1m"}.get(key_count, f"{key_count // 1000}k")
        self.case = f"{key_count} keys uniform, {case}"
        self.cluster = jf.LocalCluster(workers=1)

    def submit(self, rows: Source, sink: object, interval: str | None) -> jf.Job:
        """Start a job; `interval` None: without snapshots."""
        pipeline = sliding_pipeline(rows, sink, window=self.window)
        if interval is None:
            return self.cluster.submit(pipeline, progress=False)
        store = jf.snapshots.memory()
        job = self.cluster.submit(pipeline, progress=False, snapshot_store=store, snapshot_interval=interval)
        assert job.guarantee is jf.Guarantee.EXACTLY_ONCE
        return job

    def answers_are_right(self) -> bool:
        """Does a job give every window once while it takes snapshots all the time? The goal's jobs only count rows."""
        rows = -(-self.options.rows // TURN_ROWS) * TURN_ROWS
        events = cached_events(rows, self.key_count)
        reference = WindowReference(events, self.key_count, SIZE_US, self.slide_us)
        job = self.submit(RepeatedEvents.of(events, 1), jf.collect(), "20ms")
        return right_results(job.to_arrow(), reference) and job.metrics["snapshots_failed"] == 0

    def compare(self, rows: int, goal: Goal) -> Iterator[Entry]:
        """Turns in pairs. A second between snapshots is one of a processor that the job has to itself: where it has to
        wait for others it lasts longer, as the turn without snapshots did.
        """
        equal = self.answers_are_right()
        turn_rows = min(rows, 1 << 22)
        source = RepeatedEvents.of(cached_events(turn_rows, self.key_count), rows // turn_rows)
        pairs: list[tuple[Cost, Cost]] = []
        snapshots: list[dict[str, Any]] = []
        taken: list[int] = []
        for _ in range(self.options.snapshot_pairs):
            plain_job, plain = self.turn(source, None)
            interval_us = round(1_000_000 * max(1.0, plain.wall_s / plain.cpu_s))
            job, cost = self.turn(source, f"{interval_us}us")
            pairs.append((cost, plain))
            metrics = job.metrics
            equal = equal and metrics["rows_written"] == plain_job.metrics["rows_written"] > 0
            regular = [each for each in metrics["snapshots"] if each["kind"] == "regular"]
            if metrics["snapshots_failed"] or len(regular) < self.options.snapshots_min:
                raise AssertionError(f"of {metrics['snapshots_taken']} snapshots {metrics['snapshots_failed']} failed")
            taken.append(metrics["snapshots_taken"])
            snapshots += regular or metrics["snapshots"]
        ours, theirs = median_low_pair(pairs)
        megabytes = median(each["bytes"] for each in snapshots) / 1e6
        case = (
            f"{self.case}; median of {len(pairs)} pairs, {median_low(taken)} snapshots a turn, {megabytes:.0f} MB each"
        )
        name = f"snapshots-{self.label}"
        yield ratio(f"{name}-vs-none", case, PEER, ours, theirs, rows // turn_rows * turn_rows, equal, goal)
        pauses_ms = [each["pause_us"] / 1e3 for each in snapshots]
        for which, pause_ms in (("median", median(pauses_ms)), ("longest", max(pauses_ms))):
            case = f"{self.case}; {which}"
            yield milliseconds(f"{name}-pause", case, PEER, pause_ms, ours, theirs, rows, equal, Goal(10))

    def turn(self, source: Source, interval: str | None) -> tuple[jf.Job, Cost]:
        """From building the pipeline to the end of its job."""
        jobs: list[jf.Job] = []

        def work() -> None:
            jobs.append(self.submit(source, CountingSink(), interval))
            jobs[0].wait()

        cost = measure(work)
        return jobs[0], cost


def median_low_pair(pairs: list[tuple[Cost, Cost]]) -> tuple[Cost, Cost]:
    """The pair whose ratio is the median."""
    return sorted(pairs, key=lambda pair: pair[1].cpu_s / pair[0].cpu_s)[(len(pairs) - 1) // 2]
