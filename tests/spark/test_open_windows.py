"""The second stage of window_aggregate over a stream, without Spark: late as Spark says, whatever is in which batch."""

import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jetfast as jf
from jetfast.core.aggregate import AggregateColumn, AggregateKind, AnyAggregateColumn, BatchAggregateColumn
from jetfast.core.windows import Window
from jetfast.errors import JobDefinitionError
from jetfast.spark.streaming_windows import OpenWindows
from jetfast.spark.window_aggregate import shuffle_labels
from jetfast.spark.window_stages import AccumulateRows, CombineStates, WindowedRows

INSTANT = pa.timestamp("us", "UTC")
ROWS = pa.schema([("key", pa.int64()), ("time", INSTANT), ("value", pa.int64())])
MS = 1000
SLIDING = jf.sliding("12ms", "3ms")
AGGREGATES: tuple[AnyAggregateColumn, ...] = (
    AggregateColumn("n", AggregateKind.COUNT),
    AggregateColumn("total", AggregateKind.SUM, "value"),
    BatchAggregateColumn("different", jf.count_distinct("value").function, ("value",)),
)

Row = tuple[int | None, int, int]
State = tuple[str, int, bytes]


def stages(
    window: Window, aggregates: tuple[AnyAggregateColumn, ...] = AGGREGATES, partition_count: int = 3
) -> tuple[AccumulateRows, CombineStates]:
    labels = shuffle_labels(partition_count)
    windowed = WindowedRows(ROWS, ("key",), "time", aggregates, window, len(labels))
    bounds = pa.struct([("start", INSTANT), ("end", INSTANT)])
    results = [pa.field(each.name, pa.int64()) for each in aggregates]
    result = pa.schema([ROWS.field("key"), pa.field("window", bounds), *results])
    return AccumulateRows(windowed, labels), pickle.loads(pickle.dumps(CombineStates(windowed, labels, result)))


def batch_of(rows: list[Row]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    return pa.record_batch(
        [pa.array(list(column), field.type) for column, field in zip(columns, ROWS, strict=True)], schema=ROWS
    )


def run(batches: list[tuple[list[Row], int]], window: Window) -> list[list[tuple[Any, ...]]]:
    """Rows and the watermark (ms) of each micro-batch; return the results of each, in no order."""
    accumulate, combine = stages(window)
    states: dict[int, State] = {}
    found = []
    for rows, watermark_ms in batches:
        pieces = [] if not rows else [piece for piece in accumulate(iter([batch_of(rows)]))]
        table = pa.Table.from_batches(pieces) if pieces else None
        given = []
        for label in combine.labels:
            windows = OpenWindows(combine, label, states.get(label))
            if table is not None:
                windows.add(table.filter(pa.compute.equal(table["partition"], label))["states"].to_pylist())
            for result in windows.advance(watermark_ms * MS):
                assert result.schema == combine.result
                given += [(row["key"], as_us(row["window"]["start"]), as_us(row["window"]["end"]), row["n"],
                           row["total"], row["different"]) for row in result.to_pylist()]  # fmt: skip
            states[label] = windows.definition, watermark_ms, windows.save()
        found.append(given)
    return found


def as_us(time: Any) -> int:
    return int(np.datetime64(time.replace(tzinfo=None), "us").astype(np.int64))


def expected(batches: list[tuple[list[Row], int]], window: Window) -> list[list[tuple[Any, ...]]]:
    """Row by row: each counts in its windows that end behind the watermark of the batch before."""
    open_windows: dict[tuple[Any, int], list[int]] = {}
    found = []
    before = 0
    for rows, watermark_ms in batches:
        watermark = watermark_ms * MS
        for key, time, value in rows:
            first = window.frame_of(time)
            for end in range(first, first + window.size_us, window.slide_us):
                if end > before:
                    open_windows.setdefault((key, end), []).append(value)
        given = []
        for key, end in [cell for cell in open_windows if cell[1] <= watermark]:
            values = open_windows.pop((key, end))
            given.append((key, end - window.size_us, end, len(values), sum(values), len(set(values))))
        before = watermark
        found.append(given)
    return found


times = st.integers(-20 * MS, 60 * MS)
some_rows = st.lists(st.tuples(st.none() | st.integers(0, 3), times, st.integers(-2, 2)), max_size=12)


@settings(max_examples=20)
@given(st.lists(st.tuples(some_rows, st.integers(0, 15)), min_size=1, max_size=5), st.sampled_from([1, 4]))
def test_each_batch_gives_the_windows_that_its_watermark_ends_without_what_came_too_late(
    steps: list[tuple[list[Row], int]], frames: int
) -> None:
    window = Window(frames * 3 * MS, 3 * MS, MS)
    watermark, batches = 0, []
    for rows, step in steps:
        watermark += step
        batches.append((rows, watermark))
    found = run(batches, window)
    assert [sorted(given, key=repr) for given in found] == [
        sorted(given, key=repr) for given in expected(batches, window)
    ]


@pytest.mark.parametrize(
    "changed",
    [
        {"window": jf.sliding("12ms", "4ms")},
        {"window": SLIDING, "partition_count": 5},
        {"window": SLIDING, "aggregates": AGGREGATES[:1]},
    ],
    ids=["window", "partitions", "aggregates"],
)
def test_a_state_of_other_windows_is_refused(changed: dict[str, Any]) -> None:
    _, combine = stages(SLIDING)
    windows = OpenWindows(combine, combine.labels[0], None)
    state = windows.definition, 0, windows.save()
    _, other = stages(**changed)
    with pytest.raises(JobDefinitionError, match="the checkpoint is of other windows .*begin with a new checkpoint"):
        OpenWindows(other, combine.labels[0], state)


def test_a_label_that_is_not_there_any_more_is_refused() -> None:
    _, combine = stages(SLIDING, partition_count=5)
    _, fewer = stages(SLIDING, partition_count=2)
    gone = next(label for label in combine.labels if label not in fewer.labels)
    state = OpenWindows(combine, gone, None).definition, 0, b""
    with pytest.raises(JobDefinitionError, match=r"shuffle\.partitions 5.*shuffle\.partitions 2"):
        OpenWindows(fewer, gone, state)


def test_windows_too_large_for_sparks_state_store_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    accumulate, combine = stages(SLIDING)
    monkeypatch.setattr("jetfast.spark.streaming_windows.STATE_BYTES_MAX", 100)
    (piece,) = accumulate(iter([batch_of([(1, 0, 1), (1, 5 * MS, 2), (1, 10 * MS, 2)])]))
    windows = OpenWindows(combine, piece["partition"][0].as_py(), None)
    windows.add(piece["states"].to_pylist())
    with pytest.raises(JobDefinitionError, match=r"one of 3 partitions .* a greater spark\.sql\.shuffle\.partitions"):
        windows.save()
