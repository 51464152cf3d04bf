"""Goals 2, 3, 4, 6 and 7: windows by key, with emission, against engines that only group the whole table."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy.typing as npt
import polars as pl

from benchmarks.answers import WindowCheck, WindowReference, same_groups, same_windows
from benchmarks.goals.feed import COUNT_AND_MEAN, ZIPF, WindowFeed, cached_events, engine_batches, watermarks_of
from benchmarks.goals.options import Options
from benchmarks.measure import Cost, Work, measure, side_by_side, timed
from benchmarks.peers import duckdb as duckdb_peer
from benchmarks.peers import polars as polars_peer
from benchmarks.peers import pyarrow as pyarrow_peer
from benchmarks.report import Entry, Goal, ratio
from benchmarks.suite.batches import BATCH_ROWS, ROWS_PER_SECOND, Events
from jetfast.types import MAX_TIME

SECOND_US = 1_000_000
SIZE_US = 10 * SECOND_US
SLIDE_US = SECOND_US // 10

Aggregates = Sequence[tuple[str, str, str | None]]


def short(number: int) -> str:
    """1_000_000 -> 1m, 10_000 -> 10k."""
    for factor, letter in ((1_000_000, "m"), (1_000, "k")):
        if number >= factor:
            return f"{number // factor}{letter}"
    return str(number)


@dataclass(frozen=True)
class Workload:
    """Keyed events and the windows over them; `warm` rows come first and do not count."""

    options: Options
    key_count: int
    zipf: float | None = None
    size_us: int = SIZE_US
    slide_us: int = SLIDE_US

    @property
    def label(self) -> str:
        return short(self.key_count) + ("" if self.zipf is None else "-zipf")

    @property
    def case(self) -> str:
        keys = "uniform" if self.zipf is None else f"Zipf {self.zipf}"
        windows = f"{self.size_us / SECOND_US:g} s by {self.slide_us // 1000} ms"
        if self.size_us == self.slide_us:
            windows = f"tumbling {self.size_us / SECOND_US:g} s"
        return f"{self.key_count} keys {keys}, {windows}"

    @property
    def warm(self) -> int:
        """One window length, in whole batches."""
        rows = self.size_us * ROWS_PER_SECOND // SECOND_US
        return -(-rows // BATCH_ROWS) * BATCH_ROWS if self.options.warm_up else 0

    def judged(self, goal: Goal) -> Goal:
        """Gates are for uniform keys: equal keys close together make less work for engines that only group."""
        return goal if self.zipf is None else Goal(goal.number)

    def everything(self) -> Events:
        return cached_events(self.warm + self.options.rows, self.key_count, zipf=self.zipf)

    def measured(self) -> Events:
        return self.everything()[self.warm :]


class Ours:
    """jetfast's side of a workload: a window table that stands at its working size when the clock starts."""

    def __init__(self, work: Workload) -> None:
        self.work = work
        events = work.everything()
        self.batches = engine_batches(events)
        self.watermarks = watermarks_of(events)

    def equal(self, aggregates: Aggregates = COUNT_AND_MEAN, extremes: bool = False) -> bool:
        """Run once, from the first row, with every result checked."""
        work = self.work
        reference = WindowReference(work.everything(), work.key_count, work.size_us, work.slide_us, extremes)
        check = WindowCheck(reference, self.watermarks[-1])
        WindowFeed(aggregates, work.size_us, work.slide_us).feed(
            self.batches, self.watermarks, lambda result: check.take_batch(result.to_arrow(), work.size_us)
        )
        return check.finish()

    def turn(self, aggregates: Aggregates = COUNT_AND_MEAN) -> Work:
        warm = self.work.warm // BATCH_ROWS

        def turn() -> Cost:
            run = WindowFeed(aggregates, self.work.size_us, self.work.slide_us)
            run.feed(self.batches[:warm], self.watermarks[:warm])
            return measure(lambda: run.feed(self.batches[warm:], self.watermarks[warm:]))

        return turn


class Frames:
    """The peers' side: count and sum by (key, frame) over one table. They add up no windows: they do less."""

    def __init__(self, work: Workload, slide_us: int, by_batch: bool = False, chosen: Sequence[str] = ()) -> None:
        self.events = work.measured()
        self.key_count = work.key_count
        self.slide_us = slide_us
        self.reference = WindowReference(self.events, self.key_count, slide_us, slide_us)
        table = self.events.table()
        frame = pl.DataFrame(table)
        self.peers: dict[str, tuple[Mapping[str, Callable], object, Callable[[object], dict[str, npt.NDArray]]]] = {}
        if not chosen or "polars" in chosen:
            self.peers["polars"] = (polars_peer.FRAMES, frame, polars_peer.frames_arrays)
        if not chosen or "duckdb" in chosen:
            self.peers["duckdb"] = (duckdb_peer.FRAMES, duckdb_peer.Database(table), duckdb_peer.frames_arrays)
        if not chosen or "pyarrow" in chosen:
            self.peers["pyarrow"] = (pyarrow_peer.FRAMES, table, pyarrow_peer.frames_arrays)
        if by_batch:
            batches = list(frame.iter_slices(BATCH_ROWS))
            forms = {"eager": polars_peer.frames_by_batch}
            self.peers["polars-batch"] = (forms, batches, polars_peer.frames_by_batch_arrays)

    def turns(self, name: str) -> dict[str, Work]:
        forms, data, _ = self.peers[name]
        return {form: timed(partial(group, data, self.slide_us)) for form, group in forms.items()}

    def equal(self, name: str) -> bool:
        """Every form gives the right groups."""
        forms, data, arrays = self.peers[name]
        for group in forms.values():
            found = arrays(group(data, self.slide_us))
            keys, ends = found.pop("key"), (found.pop("frame") + 1) * self.slide_us
            if not same_windows(self.reference, MAX_TIME, keys, ends, found):
                return False
        return True


def sliding(work: Workload, gates: Mapping[str, Goal], chosen: Sequence[str] = ()) -> Iterator[Entry]:
    """Sliding 10 s by 100 ms, count and mean. `gates` by peer; "best": the fastest peer over the whole table."""
    options = work.options
    gates = {name: work.judged(goal) for name, goal in gates.items()}
    peers = Frames(work, work.slide_us, by_batch="polars-batch" in gates, chosen=chosen)
    names = list(options.chosen(peers.peers))
    if not names:
        return
    ours = Ours(work)
    ours_equal = ours.equal()
    equal = {name: ours_equal and peers.equal(name) for name in names}
    costs = side_by_side(ours.turn(), {name: peers.turns(name) for name in names}, options.repeats)
    our_cost = costs.pop("jetfast")
    for name, cost in costs.items():
        yield ratio(
            f"sliding-{work.label}-vs-{name}", work.case, name, our_cost, cost, options.rows, equal[name],
            gates.get(name),
        )  # fmt: skip
    if "best" in gates and options.peer is None:
        best = min((name for name in costs if name != "polars-batch"), key=lambda name: costs[name].cpu_s)
        yield ratio(
            f"sliding-{work.label}-vs-best", work.case, best, our_cost, costs[best], options.rows,
            all(equal.values()), gates["best"],
        )  # fmt: skip


def goal_2(options: Options) -> Iterator[Entry]:
    """100 keys."""
    for zipf in (None, ZIPF):
        yield from sliding(Workload(options, 100, zipf), {"polars": Goal(2, 1.8, 2.5)})


def goal_3(options: Options) -> Iterator[Entry]:
    """10k keys."""
    gates = {"polars": Goal(3, 5.0, 8.0), "polars-batch": Goal(3, 10.0, 16.0), "best": Goal(3, 3.5, 5.5)}
    for zipf in (None, ZIPF):
        yield from sliding(Workload(options, 10_000, zipf), gates)


def goal_4(options: Options) -> Iterator[Entry]:
    """1M keys: about 9 results a row, a group for nearly every row on the other side."""
    gates = {"polars": Goal(4, 1.3, 2.5), "duckdb": Goal(4, 1.5, 3.0)}
    for zipf in (None, ZIPF) if options.many_keys_zipf else (None,):
        yield from sliding(Workload(options, options.many_keys, zipf), gates, chosen=["polars", "duckdb"])


def goal_6(options: Options) -> Iterator[Entry]:
    """Tumbling 1 s against a group by key alone, over the whole table; beside it, by key and second."""
    goal = Goal(6, 1.1, 1.8)
    for key_count, zipf in ((100, None), (10_000, None), (10_000, ZIPF), (options.many_keys, None)):
        work = Workload(options, key_count, zipf, SECOND_US, SECOND_US)
        if not options.chosen({"polars": None}):
            return
        ours = Ours(work)
        ours_equal = ours.equal()
        events = work.measured()
        frame = pl.DataFrame(events.table())
        equal = ours_equal
        for group in polars_peer.GROUPS.values():
            found = polars_peer.groups_arrays(group(frame))
            equal = equal and same_groups(events, key_count, found.pop("key"), found)
        seconds = Frames(work, SECOND_US, chosen=["polars"])
        seconds_equal = ours_equal and seconds.equal("polars")
        groups = {form: timed(partial(group, frame)) for form, group in polars_peer.GROUPS.items()}
        costs = side_by_side(ours.turn(), {"key": groups, "key, second": seconds.turns("polars")}, options.repeats)
        our_cost, name, rows = costs["jetfast"], f"tumbling-{work.label}-vs-polars", options.rows
        yield ratio(name, work.case, "polars", our_cost, costs["key"], rows, equal, work.judged(goal))
        case = f"{work.case}; polars by key and second"
        yield ratio(f"{name}-by-second", case, "polars", our_cost, costs["key, second"], rows, seconds_equal)


def goal_7(options: Options) -> Iterator[Entry]:
    """Least, and greatest: against count, one aggregate each in the same windows. Beside it, both at once."""
    if not options.chosen({"count": None}):
        return
    counts: Aggregates = [("count", "count", None)]
    least: Aggregates = [("min", "min", "value")]
    greatest: Aggregates = [("max", "max", "value")]
    goal = Goal(7, 0.5, 0.7)
    for key_count, zipf in ((100, None), (10_000, None), (10_000, ZIPF)):
        work = Workload(options, key_count, zipf)
        ours = Ours(work)
        count_equal = ours.equal(counts)
        for name, aggregates in (("min", least), ("max", greatest), ("min-max", [*least, *greatest])):
            equal = count_equal and ours.equal(aggregates, extremes=True)
            costs = side_by_side(ours.turn(aggregates), {"count": {"": ours.turn(counts)}}, options.repeats)
            yield ratio(
                f"sliding-{work.label}-{name}-vs-count", f"{work.case}; {name}", "count", costs["jetfast"],
                costs["count"], options.rows, equal, work.judged(goal) if name != "min-max" else None,
            )  # fmt: skip
