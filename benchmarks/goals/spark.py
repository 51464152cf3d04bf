"""jetfast beside Spark, both on local[2] over the same Parquet files: windows by key, batch and Structured Streaming.

Costs are CPU seconds of all processes, JVM and workers, per million rows, when all is warm. What a job of jetfast takes
until its members run is an entry of its own.
"""

import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

import jetfast as jf
from benchmarks.answers import WindowReference, same_windows
from benchmarks.goals.options import Options
from benchmarks.measure import Cost
from benchmarks.peers import spark as spark_peer
from benchmarks.report import Entry, Goal, ratio
from benchmarks.suite.batches import DISORDER_US, Events, make_events
from jetfast.core.windows import Window
from jetfast.spark import SparkCluster, window_aggregate
from jetfast.types import MAX_TIME

SPARK = "spark"
KEYS = 10_000
PARTITIONS = 2
"""Source partitions; each is in time order."""
FILE_ROWS = 1_250_000
LAG_US = DISORDER_US
LAG = f"{LAG_US // 1000} milliseconds"
GATES = {
    ("tumbling", "batch"): Goal(12, 5.0),
    ("tumbling", "streaming"): Goal(12, 10.0),
    ("sliding", "batch"): Goal(12, 100.0),
    ("sliding", "streaming"): Goal(12, 200.0),
}
PER_ROWS = 1_000_000


@dataclass(frozen=True)
class Case:
    """One kind of window, and how many rows each side takes."""

    name: str
    size: str
    slide: str
    our_rows: int
    their_rows: int
    repeats: int

    @property
    def window(self) -> Window:
        return jf.tumbling(self.size) if self.size == self.slide else jf.sliding(self.size, self.slide)


def goal_12(options: Options) -> Iterator[Entry]:
    """Tumbling 1 s and sliding 10 s by 100 ms, count and mean, 10k keys."""
    if not options.chosen({SPARK: None}):
        return
    rows, few = options.spark_rows, options.spark_sliding_rows
    with tempfile.TemporaryDirectory(prefix="jetfast-spark-") as name:
        directory = Path(name)
        session = spark_peer.start_session(directory)
        try:
            bench = Bench(session, directory, options)
            yield from bench.compare(Case("tumbling", "1 second", "1 second", rows, rows, options.spark_repeats))
            yield from bench.compare(Case("sliding", "10 seconds", "100 milliseconds", rows, few, 1))
            yield bench.start_up()
        finally:
            session.stop()


class Bench:
    """The session, the files, and what both sides do with them."""

    def __init__(self, session: Any, directory: Path, options: Options) -> None:
        self.session = session
        self.directory = directory
        self.options = options
        self.sources: dict[int, tuple[Path, Events]] = {}
        self.start_ups: list[Cost] = []

    def compare(self, case: Case) -> Iterator[Entry]:
        """Each side once to warm up and to check its answers, then those turns that count."""
        ours, ours_equal = self.best(case, "jetfast", case.our_rows, lambda out: self.run_ours(case, out), MAX_TIME)
        source, events = self.source(case.their_rows)
        closed = int(events.times.max()) - LAG_US
        for kind, watermark, run in (
            ("batch", MAX_TIME, lambda out: spark_peer.run_batch(self.session, source, out, case.size, case.slide)),
            ("streaming", closed, lambda out: self.run_streaming(case, source, out)),
            ("dataframe", MAX_TIME, lambda out: self.run_dataframe(case, source, out)),
        ):
            cost, equal = self.best(case, kind, case.their_rows, lambda out, run=run: measured(run, out), watermark)
            rows = f"{KEYS} keys, {case.window}; all processes, per 1M rows, of {case.our_rows} and {case.their_rows}"
            peer = {"dataframe": "window_aggregate"}.get(kind, f"spark-{kind}")
            goal = GATES.get((case.name, kind))
            yield ratio(
                f"spark-{case.name}-{kind}", rows, peer, ours, cost, PER_ROWS, ours_equal and equal,
                None if goal is None else Goal(goal.number, goal.gate),
            )  # fmt: skip

    def best(self, case: Case, kind: str, rows: int, run: Callable[[Path], Cost], watermark: int) -> tuple[Cost, bool]:
        """Cost per million rows of the best turn, and whether the results of the first were right."""
        out = self.directory / f"{case.name}-{kind}"
        _, events = self.source(rows)
        run(out)
        equal = self.right(case, events, out, watermark)
        found = min((run(out) for _ in range(case.repeats)), key=lambda cost: cost.cpu_s)
        spark_peer.emptied(out)
        return Cost(found.cpu_s / rows * PER_ROWS, found.wall_s / rows * PER_ROWS), equal

    def source(self, rows: int) -> tuple[Path, Events]:
        """Parquet files of so many events: of each stretch of time one for each source partition."""
        if rows not in self.sources:
            directory = self.directory / f"rows-{rows}"
            directory.mkdir()
            events = make_events(rows, KEYS)
            file_rows = min(FILE_ROWS, rows // (2 * PARTITIONS))
            for number, first in enumerate(range(0, rows, file_rows * PARTITIONS)):
                stretch = slice(first, first + file_rows * PARTITIONS)
                for partition in range(PARTITIONS):
                    part = slice(stretch.start + partition, stretch.stop, PARTITIONS)
                    table = pa.table(
                        {
                            "key": events.keys[part],
                            "time": pa.array(events.times[part], pa.timestamp("us", "UTC")),
                            "value": events.values[part],
                        }
                    )
                    pq.write_table(table, directory / f"stretch-{number:04d}-partition-{partition}.parquet")
            self.sources[rows] = directory, events
        return self.sources[rows]

    def run_ours(self, case: Case, out: Path) -> Cost:
        """A pipeline on members that read the files themselves."""
        source, _ = self.source(case.our_rows)
        pipeline = jf.Pipeline("windows")
        rows = pipeline.read(jf.files(str(source), partitions=r"partition-\d"), name="events")
        timed = rows.with_event_time("time", jf.watermarks.fixed_lag(LAG))
        windows = timed.group_by("key").window(case.window).agg(count=jf.count(), mean=jf.mean("value"), name="windows")
        windows.write(jf.files(spark_peer.emptied(out), format="parquet"))
        wall, cpu = time.perf_counter(), spark_peer.cpu_of_all_processes()
        job = SparkCluster(self.session, members=PARTITIONS).submit(pipeline, progress=False)
        while job.status not in (jf.JobStatus.RUNNING, jf.JobStatus.COMPLETED, jf.JobStatus.FAILED):
            time.sleep(0.005)
        running = time.perf_counter(), spark_peer.cpu_of_all_processes()
        self.start_ups.append(Cost(running[1] - cpu, running[0] - wall))
        job.wait()
        return Cost(spark_peer.cpu_of_all_processes() - running[1], time.perf_counter() - running[0])

    def run_streaming(self, case: Case, source: Path, out: Path) -> None:
        spark_peer.run_streaming(self.session, source, out, case.size, case.slide, LAG, PARTITIONS)

    def run_dataframe(self, case: Case, source: Path, out: Path) -> None:
        """`window_aggregate`, which gets its rows from Spark."""
        df = self.session.read.parquet(str(source))
        found = window_aggregate(df, time="time", by="key", window=case.window, count=jf.count(), mean=jf.mean("value"))
        flat = found.selectExpr("key", "window.start as window_start", "window.end as window_end", "count", "mean")
        flat.write.parquet(spark_peer.emptied(out))

    def right(self, case: Case, events: Events, out: Path, watermark: int) -> bool:
        """Is every window there that the watermark closes, and no other?"""
        found = ds.dataset(str(out), format="parquet").to_table()
        starts, ends = (as_us(found[name]) for name in ("window_start", "window_end"))
        window = case.window
        reference = WindowReference(events, KEYS, window.size_us, window.slide_us)
        keys = found["key"].to_numpy()
        aggregates = {name: found[name].to_numpy() for name in ("count", "mean")}
        return bool((ends - starts == window.size_us).all()) and same_windows(
            reference, watermark, keys, ends, aggregates
        )

    def start_up(self) -> Entry:
        """What a job takes until all members run, which no other entry counts."""
        cost = min(self.start_ups, key=lambda cost: cost.wall_s)
        milliseconds = cost.wall_s * 1000
        return Entry(
            None, "spark-start-up", f"{PARTITIONS} members, workers warm: until all have registered", "jetfast", "ms",
            round(milliseconds, 1), "lower", None, None, True, round(cost.cpu_s, 3), round(cost.cpu_s, 3),
            round(cost.wall_s, 3), round(cost.wall_s, 3), 1, True,
        )  # fmt: skip


def measured(run: Callable[[Path], None], out: Path) -> Cost:
    return spark_peer.measure_all_processes(lambda: run(out))


def as_us(column: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    found: npt.NDArray[np.int64] = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()).to_numpy()
    return found
