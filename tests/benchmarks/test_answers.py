"""What compares answers in benchmarks.compare finds a wrong cell, a lost row and a row too many."""

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from benchmarks.answers import WindowCheck, WindowReference, same_groups, same_split, same_windows
from benchmarks.goals.feed import WindowFeed, engine_batches
from benchmarks.goals.partitioning import pieces_of
from benchmarks.goals.windows import SIZE_US, SLIDE_US
from benchmarks.peers import duckdb as duckdb_peer
from benchmarks.peers import numpy as numpy_peer
from benchmarks.peers import polars as polars_peer
from benchmarks.peers import pyarrow as pyarrow_peer
from benchmarks.suite.batches import BATCH_ROWS, Events, make_events

KEYS = 7
CLOSED = 15_000_000
"""A watermark that closes some windows and leaves others open."""
ALL = 1 << 62
"""One that closes all."""
KINDS = ("count", "mean", "min", "max")


@pytest.fixture(scope="module")
def events() -> Events:
    """5000 rows over 20 s."""
    made = make_events(5000, KEYS)
    return Events(made.keys, made.times * 4000, made.values)


@pytest.fixture(scope="module")
def reference(events) -> WindowReference:
    return WindowReference(events, KEYS, SIZE_US, SLIDE_US, extremes=True)


@pytest.fixture(scope="module")
def windows(events) -> pa.RecordBatch:
    """Every closed window, gathered row by row."""
    values_of: dict[tuple[int, int], list[float]] = {}
    for key, time, value in zip(events.keys.tolist(), events.times.tolist(), events.values.tolist(), strict=True):
        first = (time // SLIDE_US + 1) * SLIDE_US
        for end in range(first, min(first + SIZE_US, CLOSED + 1), SLIDE_US):
            values_of.setdefault((end, key), []).append(value)
    cells = sorted(values_of)
    ends = np.array([end for end, _ in cells])
    return pa.record_batch(
        {
            "key": [key for _, key in cells],
            "window_start": pa.array(ends - SIZE_US).cast(pa.timestamp("us")),
            "window_end": pa.array(ends).cast(pa.timestamp("us")),
            "count": [len(values_of[cell]) for cell in cells],
            "mean": [sum(values_of[cell]) / len(values_of[cell]) for cell in cells],
            "min": [min(values_of[cell]) for cell in cells],
            "max": [max(values_of[cell]) for cell in cells],
        }
    )


def accepted(reference: WindowReference, *batches: pa.RecordBatch, watermark: int = CLOSED) -> bool:
    check = WindowCheck(reference, watermark)
    for batch in batches:
        check.take_batch(batch, SIZE_US)
    return check.finish()


def test_true_windows_are_accepted_however_they_are_cut(reference, windows):
    assert accepted(reference, windows)
    assert accepted(reference, *[windows.slice(start, 3) for start in range(0, windows.num_rows, 3)])


@pytest.mark.parametrize("column", [*KINDS, "window_start", "window_end", "key"])
@pytest.mark.parametrize("row", [0, 500, -1])
def test_one_wrong_cell_is_found(reference, windows, column, row):
    values = windows[column].cast(pa.float64() if column in KINDS[1:] else pa.int64()).to_numpy().copy()
    values[row] = values[row] * 2 + 1 if column in KINDS else values[row] + SLIDE_US * 1000
    wrong = pa.array(values).cast(windows.schema.field(column).type)
    index = windows.schema.get_field_index(column)
    assert not accepted(reference, windows.set_column(index, column, wrong))


@pytest.mark.parametrize("row", [0, 500, -1])
def test_a_lost_row_and_a_row_that_came_twice_are_found(reference, windows, row):
    row %= windows.num_rows
    before, one, after = windows.slice(0, row), windows.slice(row, 1), windows.slice(row + 1)
    assert not accepted(reference, before, after)
    assert not accepted(reference, before, one, one, after)


def test_a_lost_window_and_no_windows_at_all_are_found(reference, windows):
    assert not accepted(reference)
    ends = windows["window_end"].cast(pa.int64()).to_numpy()
    for lost in (ends[0], ends[500], ends[-1]):
        assert not accepted(reference, windows.filter(pa.array(ends != lost)))


def test_a_window_that_is_not_closed_yet_is_found(reference, windows):
    assert not accepted(reference, windows, watermark=CLOSED - SLIDE_US)


def test_jetfast_gives_these_windows(events, reference):
    batches = engine_batches(events)
    aggregates = [(kind, kind, None if kind == "count" else "value") for kind in KINDS]
    check = WindowCheck(reference, CLOSED)
    WindowFeed(aggregates, SIZE_US, SLIDE_US).feed(
        batches, [CLOSED], lambda result: check.take_batch(result.to_arrow(), SIZE_US)
    )
    assert check.finish()


def test_every_form_of_every_peer_gives_the_same_frames(events):
    table = events.table()
    frame = pl.DataFrame(table)
    reference = WindowReference(events, KEYS, SLIDE_US, SLIDE_US)

    def right(found: dict[str, np.ndarray], rows: slice = slice(None)) -> bool:
        found = {name: array[rows] for name, array in found.items()}
        return same_windows(reference, ALL, found.pop("key"), (found.pop("frame") + 1) * SLIDE_US, found)

    for group in polars_peer.FRAMES.values():
        found = polars_peer.frames_arrays(group(frame, SLIDE_US))
        assert right(found)
        assert not right(found, slice(1, None))
    parts = polars_peer.frames_by_batch(list(frame.iter_slices(500)), SLIDE_US)
    assert right(polars_peer.frames_by_batch_arrays(parts))
    for group in duckdb_peer.FRAMES.values():
        assert right(duckdb_peer.frames_arrays(group(duckdb_peer.Database(table), SLIDE_US)))
    for group in pyarrow_peer.FRAMES.values():
        assert right(pyarrow_peer.frames_arrays(group(table, SLIDE_US)))


def test_an_expansion_by_duckdb_gives_the_windows(events, reference):
    table = duckdb_peer.expand_windows(duckdb_peer.Database(events.table()), SIZE_US // SLIDE_US, SLIDE_US)
    keys, ends, counts, means = (column.to_numpy() for column in table)
    aggregates = {"count": counts, "mean": means}
    assert same_windows(reference, ALL, keys, ends * SLIDE_US, aggregates)
    assert not same_windows(reference, ALL, keys, ends * SLIDE_US, {"count": counts + 1, "mean": means})


def test_groups_of_polars_are_right_and_a_wrong_one_is_found(events):
    for group in polars_peer.GROUPS.values():
        found = polars_peer.groups_arrays(group(pl.DataFrame(events.table())))
        keys = found.pop("key")
        assert same_groups(events, KEYS, keys, found)
        assert not same_groups(events, KEYS, keys, {**found, "sum": found["sum"] + 1})
        assert not same_groups(events, KEYS, keys[:-1], {name: array[:-1] for name, array in found.items()})


def test_a_split_keeps_each_row_once_each_key_in_one_part_and_the_order():
    batch = make_events(BATCH_ROWS, 1000).table().to_batches()[0]
    columns = [column.to_numpy() for column in batch.columns]
    for split in numpy_peer.SPLIT.values():
        assert same_split(columns, split(columns, 8))
    for split in pyarrow_peer.SPLIT.values():
        assert same_split(columns, pieces_of(split(batch, 8)))
    for split in polars_peer.SPLIT.values():
        assert same_split(columns, pieces_of(split(pl.DataFrame(pa.Table.from_batches([batch])), 8)))
    pieces = numpy_peer.split_by_sort(columns, 8)
    assert not same_split(columns, pieces[1:])
    assert not same_split(columns, [[column[::-1] for column in pieces[0]], *pieces[1:]])
    assert not same_split(columns, [[column[:-1] for column in pieces[0]], *pieces[1:]])
