"""jetfast beside Spark, both on local[2] over the same Parquet files: windows by key, batch and Structured Streaming.

Costs are CPU seconds of all processes, JVM and workers, per million rows, when all is warm. What a job of jetfast takes
until its members run is an entry of its own. Beside Spark's batch jetfast has no guarantee, as there a failed job is
run again; beside Structured Streaming it is exactly once, with snapshots in a directory as Spark's checkpoints are.
A micro-batch is a second of event time there, as long as the tumbling windows are; larger ones cost less for each row,
and give results later: how much less is an entry that has no gate.
"""

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
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
from benchmarks.suite.batches import DISORDER_US, ROWS_PER_SECOND, Events, make_events
from jetfast.core.windows import Window
from jetfast.spark import SparkCluster, window_aggregate
from jetfast.types import MAX_TIME

SPARK = "spark"
KEYS = 10_000
PARTITIONS = 2
"""Source partitions; each is in time order."""
FILE_ROWS = ROWS_PER_SECOND // PARTITIONS
"""So that the files of a second of event time are a micro-batch."""
LARGE_BATCH_SECONDS = 3
LAG_US = DISORDER_US
LAG = f"{LAG_US // 1000} milliseconds"
GATES = {
    ("tumbling", "batch"): Goal(12, 5.0),
    ("tumbling", "streaming"): Goal(12, 10.0),
    ("sliding", "batch"): Goal(12, 100.0),
    ("sliding", "streaming"): Goal(12, 200.0),
}
PER_ROWS = 1_000_000
WARM_UPS = 3
WARM_UP_SHARE = 20
"""Turns that do not count, over a twentieth of the rows: for what is compiled, or read for the first time."""
LOOK_S = 0.005
SNAPSHOT_INTERVAL = "100ms"
"""Between the end of one and the start of the next: not less often than Spark ends a micro-batch."""


@dataclass(frozen=True)
class Case:
    """One kind of window, and how many rows each side takes."""

    name: str
    size: str
    slide: str
    our_rows: int
    their_rows: int
    their_turns: int

    @property
    def window(self) -> Window:
        return jf.tumbling(self.size) if self.size == self.slide else jf.sliding(self.size, self.slide)


Run = Callable[[Case, Path, Path], Cost]
"""One turn: from the files of a directory to those of another, which is made."""


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
        """Each side by itself: turns over fewer rows to warm up, then those that count; the last is checked."""
        for kind, guarantee, all_rows, theirs, dataframe in (
            ("batch", jf.Guarantee.NONE, True, self.run_batch, self.run_dataframe),
            ("streaming", jf.Guarantee.EXACTLY_ONCE, False, self.run_streaming, self.run_stream),
        ):
            turns = self.options.spark_repeats
            ours, ours_equal = self.best(case, case.our_rows, True, turns, partial(self.run_ours, guarantee))
            cost, equal = self.best(case, case.their_rows, all_rows, case.their_turns, measured(theirs))
            rows = f"{KEYS} keys, {case.window}; all processes, per 1M rows"
            peer, goal = f"spark-{kind}", GATES[case.name, kind]
            yield ratio(
                f"spark-{case.name}-{kind}", f"{rows}, of {case.our_rows} and {case.their_rows}", peer, ours, cost,
                PER_ROWS, ours_equal and equal, goal,
            )  # fmt: skip
            if (case.name, kind) == ("tumbling", "streaming"):
                large = partial(self.run_streaming, seconds=LARGE_BATCH_SECONDS)
                large_cost, large_equal = self.best(case, case.their_rows, all_rows, case.their_turns, measured(large))
                yield ratio(
                    f"spark-{case.name}-{kind}-large", f"micro-batches of {LARGE_BATCH_SECONDS} s; {rows}", peer, ours,
                    large_cost, PER_ROWS, ours_equal and large_equal,
                )  # fmt: skip
            through, through_equal = self.best(case, case.their_rows, all_rows, turns, measured(dataframe))
            yield ratio(
                f"spark-{case.name}-{kind}-dataframe", f"window_aggregate: {rows}, of {case.their_rows}", peer, through,
                cost, PER_ROWS, through_equal and equal,
            )  # fmt: skip

    def best(self, case: Case, rows: int, all_rows: bool, turns: int, run: Run) -> tuple[Cost, bool]:
        """Cost per million rows of the best turn, and whether the results of the last were right.

        all_rows : every window is given; else those that the watermark closes
        """
        out = self.directory / "out"
        for _ in range(WARM_UPS):
            run(case, self.source(rows // WARM_UP_SHARE)[0], out)
        source, events = self.source(rows)
        costs = []
        for _ in range(turns):
            self.session._jvm.System.gc()  # what the turn before has left is not this one's
            costs.append(run(case, source, out))
        found = min(costs, key=lambda cost: cost.cpu_s)
        equal = self.right(case, events, out, MAX_TIME if all_rows else int(events.times.max()) - LAG_US)
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

    def run_ours(self, guarantee: jf.Guarantee, case: Case, source: Path, out: Path) -> Cost:
        """A pipeline on members that read the files themselves."""
        pipeline = jf.Pipeline("windows")
        rows = pipeline.read(jf.files(str(source), partitions=r"partition-\d"), name="events")
        timed = rows.with_event_time("time", jf.watermarks.fixed_lag(LAG))
        windows = timed.group_by("key").window(case.window).agg(count=jf.count(), mean=jf.mean("value"), name="windows")
        windows.write(jf.files(spark_peer.emptied(out), format="parquet"))
        store = jf.snapshots.directory(spark_peer.emptied(self.directory / "snapshots"))
        wall, cpu = time.perf_counter(), spark_peer.cpu_of_all_processes()
        job = SparkCluster(self.session, members=PARTITIONS).submit(
            pipeline,
            guarantee=guarantee,
            snapshot_store=None if guarantee is jf.Guarantee.NONE else store,
            snapshot_interval=SNAPSHOT_INTERVAL,
            progress=False,
        )
        # On a busy machine this thread may look late: what counts begins where the job did not run yet for certain.
        starting = looked = wall, cpu
        while job.status in (jf.JobStatus.NOT_RUNNING, jf.JobStatus.STARTING):
            starting = looked
            time.sleep(LOOK_S)
            looked = time.perf_counter(), spark_peer.cpu_of_all_processes()
        self.start_ups.append(Cost(starting[1] - cpu, starting[0] - wall))
        job.wait()
        if guarantee is not jf.Guarantee.NONE:
            print(f"    {job.metrics['snapshots_taken']} snapshots", file=sys.stderr)
        return Cost(spark_peer.cpu_of_all_processes() - starting[1], time.perf_counter() - starting[0])

    def run_batch(self, case: Case, source: Path, out: Path) -> None:
        spark_peer.run_batch(self.session, source, out, case.size, case.slide)

    def run_streaming(self, case: Case, source: Path, out: Path, seconds: int = 1) -> None:
        spark_peer.run_streaming(self.stream(source, seconds), out, case.size, case.slide)

    def run_dataframe(self, case: Case, source: Path, out: Path) -> None:
        """`window_aggregate`, which gets its rows from Spark."""
        spark_peer.flat(self.windows_over(self.session.read.parquet(str(source)), case)).write.parquet(
            spark_peer.emptied(out)
        )

    def run_stream(self, case: Case, source: Path, out: Path) -> None:
        """`window_aggregate` over the stream that Spark's own plan gets."""
        spark_peer.write_stream(spark_peer.flat(self.windows_over(self.stream(source), case)), out)

    def stream(self, source: Path, seconds: int = 1) -> Any:
        """The files as a stream; a micro-batch holds so many seconds of event time."""
        return spark_peer.read_stream(self.session, source, LAG, seconds * PARTITIONS)

    def windows_over(self, df: Any, case: Case) -> Any:
        return window_aggregate(df, time="time", by="key", window=case.window, count=jf.count(), mean=jf.mean("value"))

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


def measured(run: Callable[[Case, Path, Path], None]) -> Run:
    """Turn what Spark does into a turn: it reads a directory and writes to one."""
    return lambda case, source, out: spark_peer.measure_all_processes(lambda: run(case, source, out))


def as_us(column: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    found: npt.NDArray[np.int64] = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()).to_numpy()
    return found
