"""Goal 1: splitting batches by the hash of a key."""

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from benchmarks.answers import same_split
from benchmarks.goals.options import Options
from benchmarks.measure import Work, side_by_side, timed
from benchmarks.peers import numpy as numpy_peer
from benchmarks.peers import polars as polars_peer
from benchmarks.peers import pyarrow as pyarrow_peer
from benchmarks.report import Entry, Goal, ratio
from benchmarks.suite.batches import BATCH_ROWS, make_events
from jetfast.core.routing import partition_owners
from jetfast.kernels.columns import Batch
from jetfast.kernels.partitioning import Splitter

PARTS = 8
BATCHES = 256
CASE = f"{BATCH_ROWS} rows, 3 columns, {PARTS} parts"
SCHEMA = pa.schema([("key", pa.int64()), ("time", pa.int64()), ("value", pa.float64())])


def pieces_of(split: list[object]) -> list[list[npt.NDArray]]:
    """The columns of each part as numpy arrays."""
    found = []
    for piece in split:
        if isinstance(piece, Batch):
            piece = piece.to_arrow()
        if isinstance(piece, pa.RecordBatch):
            found.append([column.to_numpy() for column in piece.columns])
        elif isinstance(piece, pl.DataFrame):
            found.append([piece[name].to_numpy() for name in SCHEMA.names])
        elif piece is not None:
            found.append(piece)
    return found


def goal_1(options: Options) -> Iterator[Entry]:
    """Partition batches of 8192 rows and 3 columns into 8; what one call gives is dropped before the next."""
    events = make_events(BATCHES * BATCH_ROWS, 100_000)
    table = pa.table([events.keys, events.times, events.values], schema=SCHEMA)
    arrow = table.to_batches(max_chunksize=BATCH_ROWS)
    arrays = [[column.to_numpy() for column in batch.columns] for batch in arrow]
    frames = [pl.DataFrame(pa.Table.from_batches([batch])) for batch in arrow]
    splitter = Splitter(SCHEMA, ["key"], partition_owners(271, 1, PARTS), PARTS)
    passes = range(options.partition_passes)

    def turn(split: Callable[[object, int], object], batches: list[object]) -> Work:
        def work() -> None:
            for _ in passes:
                for batch in batches:
                    split(batch, PARTS)

        return timed(work)

    def split_ours(batch: Batch, parts: int) -> list[Batch | None]:
        return splitter.split(batch)

    ours = [Batch.from_arrow(batch) for batch in arrow]
    engines = options.chosen(
        {
            "numpy": (numpy_peer.SPLIT, arrays),
            "pyarrow": (pyarrow_peer.SPLIT, arrow),
            "polars": (polars_peer.SPLIT, frames),
        }
    )
    if not engines:
        return
    checked = np.arange(0, BATCHES, 16)
    ours_equal = all(same_split(arrays[i], pieces_of(split_ours(ours[i], PARTS))) for i in checked)
    equal = {
        name: ours_equal
        and all(same_split(arrays[i], pieces_of(split(batches[i], PARTS))) for split in forms.values() for i in checked)
        for name, (forms, batches) in engines.items()
    }
    costs = side_by_side(
        turn(split_ours, ours),
        {
            name: {form: turn(split, batches) for form, split in forms.items()}
            for name, (forms, batches) in engines.items()
        },
        options.repeats,
    )
    rows = options.partition_passes * BATCHES * BATCH_ROWS
    our_cost = costs.pop("jetfast")
    for name, cost in costs.items():
        goal = Goal(1, 7.0, 10.0) if name == "polars" else None
        yield ratio(f"partition-vs-{name}", CASE, name, our_cost, cost, rows, equal[name], goal)
    if options.peer is None:
        best = min(costs, key=lambda name: costs[name].cpu_s)
        goal = Goal(1, 5.0, 7.0)
        yield ratio("partition-vs-best", CASE, best, our_cost, costs[best], rows, all(equal.values()), goal)
