"""The two stages of window_aggregate, without Spark: every row in its windows, however rows and pieces are cut."""

import itertools
import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jetfast as jf
from jetfast.core.aggregate import AggregateColumn, AggregateKind, AnyAggregateColumn, BatchAggregateColumn
from jetfast.core.windows import AnyWindow, SessionWindow
from jetfast.spark import window_stages
from jetfast.spark.window_aggregate import shuffle_labels
from jetfast.spark.window_stages import AccumulateRows, CombineStates, WindowedRows

INSTANT = pa.timestamp("us", "UTC")
ROWS = pa.schema([("key", pa.int64()), ("time", INSTANT), ("value", pa.int64())])
COUNT_AND_SUM: tuple[AnyAggregateColumn, ...] = (
    AggregateColumn("n", AggregateKind.COUNT),
    AggregateColumn("total", AggregateKind.SUM, "value"),
)
DISTINCT = (*COUNT_AND_SUM, BatchAggregateColumn("different", jf.count_distinct("value").function, ("value",)))
WINDOWS = [jf.tumbling("7us", offset="2us"), jf.sliding("12us", "3us"), jf.session("4us")]

Row = tuple[int | None, int | None, int]


def run(rows: list[list[Row]], window: AnyWindow, keys: tuple[str, ...], aggregates: Any) -> list[tuple[Any, ...]]:
    """Rows of some Spark partitions, through both stages as Spark would call them. Results in no order."""
    labels = shuffle_labels(3)
    windowed = WindowedRows(ROWS, keys, "time", aggregates, window, len(labels))
    bounds = pa.struct([("start", INSTANT), ("end", INSTANT)])
    results = [pa.field(each.name, pa.int64()) for each in aggregates]
    schema = pa.schema([*(ROWS.field(key) for key in keys), pa.field("window", bounds), *results])
    first = pickle.loads(pickle.dumps(AccumulateRows(windowed, labels)))
    second = pickle.loads(pickle.dumps(CombineStates(windowed, labels, schema)))
    given = itertools.chain.from_iterable(first(batches_of(part)) for part in rows)
    pieces = pa.Table.from_batches(given, window_stages.PIECES)
    found: list[tuple[Any, ...]] = []
    for label in labels:
        mine = pieces.filter(pa.compute.equal(pieces["partition"], label)).sort_by("start")
        for result in second(iter(mine.to_batches(max_chunksize=2))):
            assert result.schema == schema
            for row in result.to_pylist():
                start, end = (as_us(row["window"][name]) for name in ("start", "end"))
                found.append((*(row[key] for key in keys), start, end, *(row[each.name] for each in aggregates)))
    return found


def batches_of(rows: list[Row]) -> Iterator[pa.RecordBatch]:
    """Spark names the zone of its session; the times are the same."""
    told = pa.timestamp("us", "America/New_York")
    for first in range(0, len(rows), 3):
        columns = zip(*rows[first : first + 3], strict=True)
        arrays = [pa.array(list(column), pa.int64()) for column in columns]
        yield pa.record_batch([arrays[0], arrays[1].cast(told), arrays[2]], names=ROWS.names)


def as_us(time: Any) -> int:
    return int(np.datetime64(time.replace(tzinfo=None), "us").astype(np.int64))


def expected(rows: list[Row], window: AnyWindow, keys: tuple[str, ...]) -> list[tuple[Any, ...]]:
    """Row by row: key, start, end, count, sum, different values."""
    groups: dict[tuple[Any, ...], list[int]] = {}
    by_key: dict[tuple[Any, ...], list[tuple[int, int]]] = {}
    for key, time, value in rows:
        if time is not None:
            by_key.setdefault((key,) if keys else (), []).append((time, value))
    for key, timed in by_key.items():
        if isinstance(window, SessionWindow):
            timed.sort()
            starts = [i for i in range(len(timed)) if i == 0 or timed[i][0] - timed[i - 1][0] > window.timeout_us]
            for first, behind in itertools.pairwise([*starts, len(timed)]):
                span = timed[first][0], timed[behind - 1][0] + window.timeout_us
                groups[(*key, *span)] = [value for _, value in timed[first:behind]]
        else:
            for time, value in timed:
                for end in range(window.frame_of(time), window.last_window_of(time) + 1, window.slide_us):
                    groups.setdefault((*key, end - window.size_us, end), []).append(value)
    return [(*group, len(values), sum(values), len(set(values))) for group, values in groups.items()]


def in_order(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(rows, key=repr)


row_lists = st.lists(
    st.tuples(st.none() | st.integers(0, 3), st.none() | st.integers(-40, 40), st.integers(-2, 2)), max_size=20
)


@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("keys", [("key",), ()], ids=["by key", "all together"])
@settings(max_examples=20)
@given(partitions=st.lists(row_lists, min_size=1, max_size=3))
def test_each_row_is_in_all_its_windows_and_once(
    window: AnyWindow, keys: tuple[str, ...], partitions: list[list[Row]]
) -> None:
    every = [row for part in partitions for row in part]
    found = run(partitions, window, keys, DISTINCT)
    assert in_order(found) == in_order(expected(every, window, keys))


@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_a_first_stage_that_holds_many_rows_gives_their_states_away(
    window: AnyWindow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window_stages, "HELD_ROWS_MAX", 3)
    generator = np.random.default_rng(5)
    rows: list[Row] = [(k, t, v) for k, t, v in generator.integers(0, 50, (60, 3)).tolist()]
    found = run([rows[:40], rows[40:]], window, ("key",), DISTINCT)
    assert in_order(found) == in_order(expected(rows, window, ("key",)))


def test_a_window_leaves_as_soon_as_no_piece_can_add_to_it() -> None:
    window = jf.sliding("20us", "10us")
    labels = shuffle_labels(1)
    windowed = WindowedRows(ROWS, ("key",), "time", COUNT_AND_SUM, window, 1)
    bounds = pa.struct([("start", INSTANT), ("end", INSTANT)])
    schema = pa.schema([ROWS.field("key"), ("window", bounds), ("n", pa.int64()), ("total", pa.int64())])
    pieces = [piece for time in (5, 15, 95) for piece in AccumulateRows(windowed, labels)(batches_of([(1, time, 1)]))]
    taken: list[int] = []

    def told() -> Iterator[pa.RecordBatch]:
        for number, piece in enumerate(pieces):
            taken.append(number)
            yield piece

    results = CombineStates(windowed, labels, schema)(told())
    first = next(results).to_pylist()
    assert [as_us(row["window"]["end"]) for row in first] == [10]
    assert taken == [0, 1]  # and not the last


@pytest.mark.parametrize("count", [1, 2, 7, 200])
def test_each_label_is_sent_to_a_partition_of_its_own(count: int) -> None:
    labels = shuffle_labels(count)
    assert jf.assign_partitions(pa.array(labels, pa.int32()), count).tolist() == list(range(count))
