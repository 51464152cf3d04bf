"""Beside the goals: what 12 % NULLs, text keys and two key columns cost in the windows of goal 3."""

from collections.abc import Iterator

import numpy as np

from benchmarks.answers import WindowCheck, WindowReference
from benchmarks.goals.feed import COUNT_AND_MEAN, WindowFeed, watermarks_of
from benchmarks.goals.options import Options
from benchmarks.goals.windows import Workload
from benchmarks.measure import Cost, Work, measure, side_by_side
from benchmarks.report import Entry, ratio
from benchmarks.suite.batches import BATCH_ROWS, Events
from benchmarks.suite.inputs import KINDS, int64_keys, make_input
from jetfast.kernels.columns import Batch


def inputs(options: Options) -> Iterator[Entry]:
    """Sliding 10 s by 100 ms, count and mean, 10k keys; the peer is jetfast on int64 keys."""
    if not options.chosen({"int64": None}):
        return
    work = Workload(options, 10_000)
    turns: dict[str, Work] = {}
    equal: dict[str, bool] = {}
    for kind in KINDS:
        turns[kind], equal[kind] = prepare(work, kind)
    ours = turns.pop("int64")
    costs = side_by_side(ours, {kind: {"": turn} for kind, turn in turns.items()}, options.repeats)
    int64 = costs.pop("jetfast")
    for kind, cost in costs.items():
        name = f"sliding-{work.label}-{kind.replace(' ', '-')}-vs-int64"
        yield ratio(name, f"{work.case}; {kind}", "int64", cost, int64, options.rows, equal[kind] and equal["int64"])


def prepare(work: Workload, kind: str) -> tuple[Work, bool]:
    """A turn on one kind of input, and whether all its results are right."""
    events = work.everything()
    made = make_input(events, kind)
    batches, watermarks = [Batch.from_arrow(batch) for batch in made.batches], watermarks_of(events)
    null_key = work.key_count
    if made.key_nulls is not None:
        events = Events(np.where(made.key_nulls, null_key, events.keys), events.times, events.values)
    size_us, slide_us = work.size_us, work.slide_us
    reference = WindowReference(events, work.key_count + 1, size_us, slide_us, value_nulls=made.value_nulls)
    check = WindowCheck(reference, watermarks[-1])

    def take(result: Batch) -> None:
        rows = result.to_arrow()
        check.take_batch(rows, size_us, int64_keys(rows, kind, null_key))

    def start() -> WindowFeed:
        return WindowFeed(COUNT_AND_MEAN, size_us, slide_us, made.schema, made.keys)

    start().feed(batches, watermarks, take)
    warm = work.warm // BATCH_ROWS

    def turn() -> Cost:
        run = start()
        run.feed(batches[:warm], watermarks[:warm])
        return measure(lambda: run.feed(batches[warm:], watermarks[warm:]))

    return turn, check.finish()
