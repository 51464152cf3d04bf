"""The goals that compare.py runs: one function each, which measures, checks the answers and yields report entries."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa

import jetfast as jf
from benchmarks.measure import Cost, measure, side_by_side
from benchmarks.peers.frames import frames_duckdb, frames_polars, frames_pyarrow
from benchmarks.peers.partitioning import split_numpy, split_polars, split_pyarrow
from benchmarks.suite.batches import BATCH_ROWS, DISORDER_US, SCHEMA, Events, make_events
from benchmarks.suite.pipelines import CountingSink, sliding_pipeline
from jetfast.core.routing import partition_owners
from jetfast.kernels.columns import Batch
from jetfast.kernels.partitioning import Splitter
from jetfast.kernels.windows import WindowTable
from jetfast.types import MAX_TIME

SIZE_US = 10_000_000
SLIDE_US = 100_000
PARTS = 8


@dataclass(frozen=True)
class Entry:
    """One line of the report. `value` is peer CPU / our CPU unless the goal says otherwise."""

    goal: int | None
    name: str
    case: str
    peer: str
    unit: str
    value: float
    better: str
    gate: float | None
    stretch: float | None
    passed: bool
    cpu_s: float
    peer_cpu_s: float
    wall_s: float
    peer_wall_s: float
    rows: int
    answers_equal: bool


@dataclass(frozen=True)
class Options:
    """What the command line chose. `peer`: only that one."""

    quick: bool = False
    peer: str | None = None

    @property
    def repeats(self) -> int:
        return 3 if self.quick else 5

    def chosen(self, peers: dict[str, Callable[[], Cost]]) -> dict[str, Callable[[], Cost]]:
        return {name: work for name, work in peers.items() if self.peer in (None, name)}


def entry(
    goal: int | None, name: str, case: str, peer: str, ours: Cost, theirs: Cost, rows: int, equal: bool,
    gate: float | None = None, stretch: float | None = None,
) -> Entry:  # fmt: skip
    """A ratio of CPU times, higher is better."""
    value = theirs.cpu_s / ours.cpu_s
    return Entry(
        goal, name, case, peer, "ratio", round(value, 3), "higher", gate, stretch, gate is None or value >= gate,
        round(ours.cpu_s, 4), round(theirs.cpu_s, 4), round(ours.wall_s, 4), round(theirs.wall_s, 4), rows, equal,
    )  # fmt: skip


def as_dict(found: Entry) -> dict[str, object]:
    return asdict(found)


# Goal 1: partition a batch


def same_split(batch: pa.RecordBatch, pieces: list[tuple[np.ndarray, np.ndarray, np.ndarray]]) -> bool:
    """Every row in exactly one piece, each key in one piece, and the order of rows kept inside a piece."""
    keys, times, values = (batch.column(index).to_numpy() for index in range(3))
    home = np.full(int(keys.max()) + 1, -1)
    for index, (piece_keys, _, _) in enumerate(pieces):
        if ((home[piece_keys] != -1) & (home[piece_keys] != index)).any():
            return False
        home[piece_keys] = index
    ids = home[keys]
    for index, (piece_keys, piece_times, piece_values) in enumerate(pieces):
        mine = ids == index
        if not (
            np.array_equal(keys[mine], piece_keys)
            and np.array_equal(times[mine], piece_times)
            and np.array_equal(values[mine], piece_values)
        ):
            return False
    return sum(len(piece[0]) for piece in pieces) == len(keys)


def goal_1(options: Options) -> Iterator[Entry]:
    """Partition batches of 8192 rows and 3 columns into 8."""
    batch_count = 256
    passes = 4 if options.quick else 12
    events = make_events(batch_count * BATCH_ROWS, 100_000)
    schema = pa.schema([("key", pa.int64()), ("time", pa.int64()), ("value", pa.float64())])
    table = pa.table([events.keys, events.times, events.values], schema=schema)
    arrow = table.to_batches(max_chunksize=BATCH_ROWS)
    batches = [Batch.from_arrow(batch) for batch in arrow]
    arrays = [[column.to_numpy() for column in batch.columns] for batch in arrow]
    frames = [pl.DataFrame(pa.Table.from_batches([batch])) for batch in arrow]
    splitter = Splitter(schema, ["key"], partition_owners(271, 1, PARTS), PARTS)

    def repeat(call: Callable[[int], object]) -> Callable[[], Cost]:
        def work() -> None:
            for _ in range(passes):
                for index in range(batch_count):
                    call(index)

        return lambda: measure(work)

    def pieces_of(split: list[object]) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        found = []
        for piece in split:
            if isinstance(piece, Batch):
                piece = piece.to_arrow()
            if isinstance(piece, pa.RecordBatch):
                found.append(tuple(column.to_numpy() for column in piece.columns))
            elif isinstance(piece, pl.DataFrame):
                found.append(tuple(piece[name].to_numpy() for name in ("key", "time", "value")))
            elif piece is not None:
                found.append(tuple(piece))
        return found

    calls: dict[str, Callable[[int], list[object]]] = {
        "jetfast": lambda index: splitter.split(batches[index]),
        "numpy": lambda index: split_numpy(arrays[index], PARTS),
        "pyarrow": lambda index: split_pyarrow(arrow[index], PARTS),
        "polars": lambda index: split_polars(frames[index], PARTS),
    }
    equal = {
        name: all(same_split(arrow[index], pieces_of(call(index))) for index in range(0, batch_count, 16))
        for name, call in calls.items()
    }
    peers = options.chosen({name: repeat(call) for name, call in calls.items() if name != "jetfast"})
    costs = side_by_side(repeat(calls["jetfast"]), peers, options.repeats)
    rows = passes * batch_count * BATCH_ROWS
    ours = costs.pop("jetfast")
    for name, theirs in costs.items():
        gate, stretch = (7.0, 10.0) if name == "polars" else (None, None)
        yield entry(
            1, f"partition-vs-{name}", "8192 rows, 3 columns, 8 parts", name, ours, theirs, rows,
            equal["jetfast"] and equal[name], gate, stretch,
        )  # fmt: skip
    if options.peer is None:
        fastest = min(costs, key=lambda name: costs[name].cpu_s)
        yield entry(
            1, "partition-vs-best", "8192 rows, 3 columns, 8 parts", fastest, ours, costs[fastest], rows,
            all(equal.values()), 5.0, 7.0,
        )  # fmt: skip


# Goals 2 and 3: sliding windows


AGGREGATES = [("count", "count", None), ("mean", "mean", "value")]


class SlidingRun:
    """Feeds batches to a WindowTable as the engine does: rows, then the watermark that follows them, then results."""

    def __init__(self) -> None:
        self.table = WindowTable(SCHEMA, ["key"], "time", AGGREGATES, SIZE_US, SLIDE_US)
        self.results = 0

    def feed(self, batches: list[Batch], watermarks: list[int], keep: list[pa.RecordBatch] | None = None) -> None:
        table = self.table
        for batch, watermark in zip(batches, watermarks, strict=True):
            table.accumulate(batch)
            table.advance(watermark)
            while (result := table.emit()) is not None:
                self.results += result.row_count
                if keep is not None:
                    keep.append(result.to_arrow())


def watermarks_of(events: Events, batch_rows: int = BATCH_ROWS) -> list[int]:
    """The watermark after each batch: the greatest time so far less the disorder."""
    tops = np.maximum.reduceat(events.times, np.arange(0, len(events), batch_rows))
    return (np.maximum.accumulate(tops) - DISORDER_US).tolist()


def expected_windows(events: Events, key_count: int, watermark: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(window ends, counts, sums) of the windows that `watermark` closes; counts and sums: shape (windows, key_count).

    Frames by numpy, windows as differences of running totals: exact, as all sums are multiples of 1/64 below 2**53.
    """
    first = int(events.times.min()) // SLIDE_US
    frame_count = int(events.times.max()) // SLIDE_US - first + 1
    cell = (events.times // SLIDE_US - first) * key_count + events.keys
    shape = (frame_count, key_count)
    counts = np.bincount(cell, minlength=frame_count * key_count).reshape(shape)
    sums = np.bincount(cell, weights=events.values, minlength=frame_count * key_count).reshape(shape)
    hops = SIZE_US // SLIDE_US
    ends = (np.arange(frame_count + hops - 1) + first + 1) * SLIDE_US
    windows = []
    for frames in (counts, sums):
        totals = np.zeros((frame_count + 1, key_count), dtype=frames.dtype)
        np.cumsum(frames, axis=0, out=totals[1:])
        last = np.minimum(np.arange(1, frame_count + hops), frame_count)
        windows.append(totals[last] - totals[np.maximum(np.arange(1, frame_count + hops) - hops, 0)])
    closed = ends <= watermark
    return ends[closed], windows[0][closed], windows[1][closed]


def same_windows(results: list[pa.RecordBatch], events: Events, key_count: int, watermark: int) -> bool:
    """Row by row: no window more, none less, counts and means equal to the last bit."""
    ends, counts, sums = expected_windows(events, key_count, watermark)
    table = pa.Table.from_batches(results)
    keys = table["key"].to_numpy()
    window = (table["window_end"].cast(pa.int64()).to_numpy() - ends[0]) // SLIDE_US
    if len(keys) != np.count_nonzero(counts) or window.min() < 0 or window.max() >= len(ends):
        return False
    if keys.min() < 0 or keys.max() >= key_count:
        return False
    cell = window * key_count + keys
    if len(np.unique(cell)) != len(cell):
        return False
    flat_counts = counts.ravel()[cell]
    return bool(
        np.array_equal(table["count"].to_numpy(), flat_counts)
        and np.array_equal(table["mean"].to_numpy(), sums.ravel()[cell] / flat_counts)
        and np.array_equal(
            table["window_end"].cast(pa.int64()).to_numpy() - table["window_start"].cast(pa.int64()).to_numpy(),
            np.full(len(keys), SIZE_US),
        )
    )


def same_frames(frames: pa.Table, events: Events, key_count: int) -> bool:
    """A peer's (key, frame, count, sum) rows equal numpy's."""
    cell = (events.times // SLIDE_US) * key_count + events.keys
    cell -= cell.min()
    counts = np.bincount(cell)
    sums = np.bincount(cell, weights=events.values)
    keys, frame, count, total = (frames.column(index).to_numpy() for index in range(4))
    mine = frame * key_count + keys - int(((events.times // SLIDE_US) * key_count + events.keys).min())
    return bool(
        len(mine) == np.count_nonzero(counts)
        and np.array_equal(counts[mine], count)
        and np.array_equal(sums[mine], total)
    )


def sliding(goal: int, key_count: int, gates: dict[str, tuple[float, float]], options: Options) -> Iterator[Entry]:
    """Sliding 10 s by 100 ms, count and mean, with emission; peers only group by (key, frame)."""
    rows = 4_000_000 if options.quick else 8_000_000
    warm_rows = -(-SIZE_US // BATCH_ROWS) * BATCH_ROWS  # one window length at 1 M rows/s
    everything = make_events(warm_rows + rows, key_count)
    arrow = everything.record_batches()
    batches = [Batch.from_arrow(batch) for batch in arrow]
    watermarks = watermarks_of(everything)
    warm = warm_rows // BATCH_ROWS
    events = everything[warm_rows:]
    case = f"{key_count} keys, 10 s by 100 ms"

    results: list[pa.RecordBatch] = []
    SlidingRun().feed(batches, watermarks, keep=results)
    equal = same_windows(results, everything, key_count, watermarks[-1])
    results.clear()

    def ours() -> Cost:
        run = SlidingRun()
        run.feed(batches[:warm], watermarks[:warm])
        return measure(lambda: run.feed(batches[warm:], watermarks[warm:]))

    table = events.table()
    frame = pl.DataFrame(table)
    frame_parts = list(frame.iter_slices(BATCH_ROWS))
    connection = duckdb.connect()
    connection.sql("set threads = 1")

    def polars_by_batch() -> Cost:
        return measure(lambda: [frames_polars(part, SLIDE_US).height for part in frame_parts])

    calls: dict[str, Callable[[], object]] = {
        "polars": lambda: frames_polars(frame, SLIDE_US),
        "duckdb": lambda: frames_duckdb(connection, table, SLIDE_US),
        "pyarrow": lambda: frames_pyarrow(table, SLIDE_US),
    }
    answers = {
        "polars": frames_polars(frame, SLIDE_US).to_arrow(),
        "duckdb": frames_duckdb(connection, table, SLIDE_US),
        "pyarrow": frames_pyarrow(table, SLIDE_US).select(["key", "frame", "value_count", "value_sum"]),
    }
    peers_equal = {name: same_frames(answer, events, key_count) for name, answer in answers.items()}
    del answers

    def timed(call: Callable[[], object]) -> Callable[[], Cost]:
        return lambda: measure(call)

    peers = {name: timed(call) for name, call in calls.items()}
    if "polars-batch" in gates:
        peers["polars-batch"] = polars_by_batch
        partial = pl.concat([frames_polars(part, SLIDE_US) for part in frame_parts])
        whole = partial.group_by("key", "time").agg(pl.col("count").sum(), pl.col("sum").sum())
        peers_equal["polars-batch"] = same_frames(whole.to_arrow(), events, key_count)
    costs = side_by_side(ours, options.chosen(peers), options.repeats)
    our_cost = costs.pop("jetfast")
    short = f"{key_count // 1000}k" if key_count >= 1000 else str(key_count)
    for name, theirs in costs.items():
        gate, stretch = gates.get(name, (None, None))
        yield entry(
            goal if gate is not None else None, f"sliding-{short}-vs-{name}", case, name, our_cost, theirs, rows,
            equal and peers_equal[name], gate, stretch,
        )  # fmt: skip
    whole_table = {name: cost for name, cost in costs.items() if name != "polars-batch"}
    if "best" in gates and options.peer is None:
        fastest = min(whole_table, key=lambda name: whole_table[name].cpu_s)
        yield entry(
            goal, f"sliding-{short}-vs-best", case, fastest, our_cost, whole_table[fastest], rows,
            equal and all(peers_equal.values()), *gates["best"],
        )  # fmt: skip


def goal_2(options: Options) -> Iterator[Entry]:
    """100 keys."""
    yield from sliding(2, 100, {"polars": (1.8, 2.5)}, options)


def goal_3(options: Options) -> Iterator[Entry]:
    """10k keys."""
    gates = {"polars": (5.0, 8.0), "polars-batch": (10.0, 16.0), "best": (3.5, 5.5)}
    yield from sliding(3, 10_000, gates, options)


# Goal 8: the whole pipeline against its kernels


def goal_8(options: Options) -> Iterator[Entry]:
    """Memory -> sliding windows -> sink through the public API, against the same batches and a WindowTable alone."""
    rows = 4_000_000 if options.quick else 8_000_000
    key_count = 10_000
    events = make_events(rows, key_count)
    arrow = events.record_batches()
    batches = [Batch.from_arrow(batch) for batch in arrow]
    watermarks = watermarks_of(events)
    watermarks[-1] = MAX_TIME  # the end of the input flushes every open window, as in the pipeline

    def submit(sink: object) -> jf.Job:
        return jf.LocalCluster(workers=1).submit(sliding_pipeline(arrow, sink), progress=False)

    collected = submit(jf.collect()).to_arrow()
    equal = same_windows(collected.to_batches(), events, key_count, MAX_TIME)
    del collected

    def kernels() -> Cost:
        run = SlidingRun()
        return measure(lambda: run.feed(batches, watermarks))

    costs = side_by_side(lambda: measure(lambda: submit(CountingSink()).wait()), {"kernels": kernels}, options.repeats)
    yield entry(
        8, "pipeline-vs-kernels", f"{key_count} keys, 10 s by 100 ms", "kernels",
        costs["jetfast"], costs["kernels"], rows, equal, 0.7, 0.9,
    )  # fmt: skip


GOALS: dict[int, Callable[[Options], Iterator[Entry]]] = {1: goal_1, 2: goal_2, 3: goal_3, 8: goal_8}
