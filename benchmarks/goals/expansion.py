"""Goal 5: the same sliding results as row times 100, which is what Spark plans for a sliding window, run by DuckDB."""

from collections.abc import Iterator

import pyarrow as pa

from benchmarks.answers import WindowCheck, WindowReference, same_windows
from benchmarks.goals.feed import COUNT_AND_MEAN, ZIPF, WindowFeed, engine_batches, watermarks_of
from benchmarks.goals.options import Options
from benchmarks.goals.windows import SIZE_US, SLIDE_US, short
from benchmarks.measure import side_by_side, timed
from benchmarks.peers import duckdb as duckdb_peer
from benchmarks.report import Entry, Goal, ratio
from benchmarks.suite.batches import Events, make_events
from jetfast.kernels.columns import Batch
from jetfast.types import MAX_TIME

FEW_KEYS, KEYS, MANY_KEYS = Goal(5, 120.0, 200.0), Goal(5, 250.0, 450.0), Goal(5, 60.0, 110.0)


def goal_5(options: Options) -> Iterator[Entry]:
    """From the first row to the last window, flushed on both sides."""
    if not options.chosen({"duckdb": None}):
        return
    rows = options.expansion_rows
    for key_count, zipf, goal in ((100, None, FEW_KEYS), (10_000, None, KEYS), (10_000, ZIPF, Goal(5))):
        yield expansion(make_events(rows, key_count, zipf=zipf), key_count, zipf, goal, options)
    events = make_events(options.expansion_rows_many_keys, options.many_keys)
    yield expansion(events, options.many_keys, None, MANY_KEYS, options)


def expansion(events: Events, key_count: int, zipf: float | None, goal: Goal, options: Options) -> Entry:
    """One number of keys."""
    batches = engine_batches(events)
    watermarks = watermarks_of(events)
    watermarks[-1] = MAX_TIME
    reference = WindowReference(events, key_count, SIZE_US, SLIDE_US)

    check = WindowCheck(reference, MAX_TIME)

    def take(result: Batch) -> None:
        check.take_batch(result.to_arrow(), SIZE_US)

    WindowFeed(COUNT_AND_MEAN, SIZE_US, SLIDE_US).feed(batches, watermarks, take)
    database = duckdb_peer.Database(events.table())

    def expand() -> pa.Table:
        return duckdb_peer.expand_windows(database, SIZE_US // SLIDE_US, SLIDE_US)

    found = {name: column.to_numpy() for name, column in zip(("key", "end", "count", "mean"), expand(), strict=True)}
    keys, ends = found.pop("key"), found.pop("end") * SLIDE_US
    equal = check.finish() and same_windows(reference, MAX_TIME, keys, ends, found)
    del found, keys, ends
    ours = timed(lambda: WindowFeed(COUNT_AND_MEAN, SIZE_US, SLIDE_US).feed(batches, watermarks))
    costs = side_by_side(ours, {"duckdb": {"unnest": timed(expand)}}, options.expansion_repeats)
    label = short(key_count) + ("" if zipf is None else "-zipf")
    case = f"{key_count} keys {'uniform' if zipf is None else f'Zipf {zipf}'}, 10 s by 100 ms, flushed"
    return ratio(
        f"expansion-{label}-vs-duckdb", case, "duckdb", costs["jetfast"], costs["duckdb"], len(events), equal, goal,
    )  # fmt: skip
