"""Beside the goals: sessions by key, with emission, against the sessions of the whole table at once."""

from collections.abc import Iterator
from functools import partial

import polars as pl

from benchmarks.goals.feed import COUNT_AND_MEAN, cached_events, engine_batches, watermarks_of
from benchmarks.goals.options import Options
from benchmarks.measure import Cost, measure, side_by_side, timed
from benchmarks.peers import polars as polars_peer
from benchmarks.report import Entry, ratio
from benchmarks.suite.batches import SCHEMA
from jetfast.kernels.columns import Batch
from jetfast.kernels.sessions import SessionTable
from jetfast.types import MAX_TIME

KEYS = 10_000
TIMEOUT_US = 50_000
"""A key has a row every 10 ms: one gap in 150 ends a session."""


def sessions(options: Options) -> Iterator[Entry]:
    """Count and mean by session, 10k keys. On both sides every session comes out."""
    if not options.chosen({"polars": None}):
        return
    events = cached_events(options.rows, KEYS)
    batches, watermarks = engine_batches(events), watermarks_of(events)
    frame = pl.DataFrame(events.table())

    def feed(results: list[Batch] | None = None) -> None:
        table = SessionTable(SCHEMA, ["key"], "time", COUNT_AND_MEAN, TIMEOUT_US)
        for batch, watermark in zip(batches, watermarks, strict=True):
            table.accumulate(batch)
            emit(table, watermark, results)
        emit(table, MAX_TIME, results)

    def emit(table: SessionTable, watermark: int, results: list[Batch] | None) -> None:
        table.advance(watermark)
        while (result := table.emit()) is not None:
            if results is not None:
                results.append(result)

    def turn() -> Cost:
        return measure(feed)

    found: list[Batch] = []
    feed(found)
    ours = pl.concat([pl.DataFrame(batch.to_arrow()) for batch in found]).sort("key", "window_start")
    answers = [group(frame, TIMEOUT_US) for group in polars_peer.SESSIONS.values()]
    equal = all(polars_peer.sessions_columns(answer).equals(ours) for answer in answers)
    forms = {form: timed(partial(group, frame, TIMEOUT_US)) for form, group in polars_peer.SESSIONS.items()}
    costs = side_by_side(turn, {"polars": forms}, options.repeats)
    case = f"{KEYS} keys uniform, session {TIMEOUT_US // 1000} ms"
    yield ratio("session-10k-vs-polars", case, "polars", costs["jetfast"], costs["polars"], options.rows, equal)
