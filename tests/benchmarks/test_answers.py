"""What compares answers in benchmarks.compare finds a wrong cell, a lost row and a row too many."""

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from benchmarks import goals
from benchmarks.peers.frames import frames_duckdb, frames_polars, frames_pyarrow
from benchmarks.peers.partitioning import split_numpy, split_polars, split_pyarrow
from benchmarks.suite.batches import BATCH_ROWS, Events, make_events
from jetfast.kernels.columns import Batch

KEYS = 7
CLOSED = 15_000_000
"""A watermark that closes some windows and leaves others open."""


@pytest.fixture(scope="module")
def events() -> Events:
    """20,000 rows over 20 s."""
    made = make_events(20_000, KEYS)
    return Events(made.keys, made.times * 1000, made.values)


@pytest.fixture(scope="module")
def windows(events) -> pa.RecordBatch:
    """Every closed window, added up row by row."""
    counts: dict[tuple[int, int], int] = {}
    sums: dict[tuple[int, int], float] = {}
    for key, time, value in zip(events.keys.tolist(), events.times.tolist(), events.values.tolist(), strict=True):
        first = (time // goals.SLIDE_US + 1) * goals.SLIDE_US
        for end in range(first, min(first + goals.SIZE_US, CLOSED + 1), goals.SLIDE_US):
            counts[key, end] = counts.get((key, end), 0) + 1
            sums[key, end] = sums.get((key, end), 0.0) + value
    cells = sorted(counts)
    ends = np.array([end for _, end in cells])
    return pa.record_batch(
        {
            "key": [key for key, _ in cells],
            "window_start": pa.array(ends - goals.SIZE_US).cast(pa.timestamp("us")),
            "window_end": pa.array(ends).cast(pa.timestamp("us")),
            "count": [counts[cell] for cell in cells],
            "mean": [sums[cell] / counts[cell] for cell in cells],
        }
    )


def test_true_windows_are_accepted(events, windows):
    assert goals.same_windows([windows], events, KEYS, CLOSED)


@pytest.mark.parametrize("column", ["count", "mean", "window_start", "window_end", "key"])
def test_one_wrong_cell_is_found(events, windows, column):
    values = windows[column].cast(pa.float64() if column == "mean" else pa.int64()).to_numpy().copy()
    values[500] = values[500] * 2 + 1 if column in ("count", "mean") else values[500] + goals.SLIDE_US * 1000
    wrong = pa.array(values).cast(windows.schema.field(column).type)
    index = windows.schema.get_field_index(column)
    assert not goals.same_windows([windows.set_column(index, column, wrong)], events, KEYS, CLOSED)


def test_a_lost_window_and_a_window_that_came_twice_are_found(events, windows):
    assert not goals.same_windows([windows.slice(1)], events, KEYS, CLOSED)
    assert not goals.same_windows([windows, windows.slice(0, 1)], events, KEYS, CLOSED)


def test_a_window_that_is_not_closed_yet_is_found(events, windows):
    assert not goals.same_windows([windows], events, KEYS, CLOSED - goals.SLIDE_US)


def test_jetfast_gives_these_windows(events):
    batches = [Batch.from_arrow(batch) for batch in events.record_batches(1000)]
    results: list[pa.RecordBatch] = []
    goals.SlidingRun().feed(batches, [0] * (len(batches) - 1) + [CLOSED], keep=results)
    assert goals.same_windows(results, events, KEYS, CLOSED)


def test_frames_of_all_peers_are_equal(events):
    table = events.table()
    with duckdb.connect() as connection:
        assert goals.same_frames(frames_duckdb(connection, table, goals.SLIDE_US), events, KEYS)
    by_polars = frames_polars(pl.DataFrame(table), goals.SLIDE_US).to_arrow()
    assert goals.same_frames(by_polars, events, KEYS)
    assert not goals.same_frames(by_polars.slice(1), events, KEYS)
    by_pyarrow = frames_pyarrow(table, goals.SLIDE_US).select(["key", "frame", "value_count", "value_sum"])
    assert goals.same_frames(by_pyarrow, events, KEYS)


def test_a_split_keeps_each_row_once_each_key_in_one_part_and_the_order():
    batch = make_events(BATCH_ROWS, 1000).table().to_batches()[0]
    columns = [column.to_numpy() for column in batch.columns]
    pieces = [tuple(piece) for piece in split_numpy(columns, 8)]
    assert goals.same_split(batch, pieces)
    assert goals.same_split(batch, [tuple(c.to_numpy() for c in piece.columns) for piece in split_pyarrow(batch, 8)])
    frames = split_polars(pl.DataFrame(pa.Table.from_batches([batch])), 8)
    assert goals.same_split(batch, [tuple(frame[name].to_numpy() for name in frame.columns) for frame in frames])
    assert not goals.same_split(batch, pieces[1:])
    assert not goals.same_split(batch, [tuple(column[::-1] for column in pieces[0]), *pieces[1:]])
    assert not goals.same_split(batch, [tuple(column[:-1] for column in pieces[0]), *pieces[1:]])
