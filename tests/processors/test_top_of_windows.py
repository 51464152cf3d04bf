"""The best results of windows, local and of all, verified in every mode; what comes too late is counted."""

import pyarrow as pa
import pytest

from jetfast.core.batch import Batch
from jetfast.core.items import IDLE, Watermark
from jetfast.core.processor import ProcessorContext
from jetfast.core.top_results import TopResults
from jetfast.kernels.partitioning import assign_partitions
from jetfast.processors import top_of_windows
from jetfast.processors.partition_bounds import save_bounds
from jetfast.processors.top_of_windows import LocalTopOfWindows, TopOfWindows
from jetfast.testing import verify_processor

SCHEMA = pa.schema(
    [
        ("group", pa.string()),
        ("key", pa.int64()),
        ("window_start", pa.timestamp("us")),
        ("window_end", pa.timestamp("us")),
        ("value", pa.float64()),
    ]
)
NAN = float("nan")


def results(*rows):
    """Rows (group, key, window end, value) of windows of 10 us."""
    groups, keys, ends, values = zip(*rows, strict=True)
    starts = [end - 10 for end in ends]
    return pa.record_batch([list(groups), list(keys), starts, list(ends), list(values)], schema=SCHEMA)


def shown(output):
    rows = []
    for item in output:
        if isinstance(item, dict):
            place = (item["group"], item["key"], item["window_end"].microsecond)
            rows.append((*place, item["rank"]) if "rank" in item else place)
        else:
            rows.append(item)
    return rows


def top(per=(), count=2, ascending=False):
    return TopResults("value", count, ("group", "key"), ascending, per)


INPUTS = [
    results(("a", 1, 10, 1.0), ("a", 2, 10, 3.0), ("b", 1, 10, 2.0), (None, 1, 10, None)),
    results(("b", 3, 20, 5.0)),
    Watermark(10),
    results(("b", 2, 20, 5.0), ("b", 1, 20, NAN), ("a", 9, 20, 0.0)),
    IDLE,
    Watermark(25),
    results(("a", None, 30, 1.0), ("a", 7, 30, 1.0), (None, 5, 30, 1.0)),
]


def test_the_best_of_each_window_are_numbered_nan_first_null_last_ties_by_key():
    found = shown(verify_processor(lambda: TopOfWindows(SCHEMA, top()), INPUTS, partition_count=7))
    assert found == [
        ("a", 2, 10, 1), ("b", 1, 10, 2), Watermark(10), IDLE,
        ("b", 1, 20, 1), ("b", 2, 20, 2), Watermark(25),
        ("a", 7, 30, 1), ("a", None, 30, 2),
    ]  # fmt: skip


def test_the_best_of_each_group_are_found_wherever_the_group_is_at_home():
    found = shown(
        verify_processor(
            lambda: TopOfWindows(SCHEMA, top(("group",), 1)), INPUTS, keys=["group"], ordered=False, partition_count=7
        )
    )
    assert [item for item in found if isinstance(item, tuple)] == [
        ("a", 2, 10, 1), ("b", 1, 10, 1), (None, 1, 10, 1),
        ("a", 9, 20, 1), ("b", 1, 20, 1),
        ("a", 7, 30, 1), (None, 5, 30, 1),
    ]  # fmt: skip


def test_the_least_may_be_the_best_and_null_never_is():
    found = shown(verify_processor(lambda: TopOfWindows(SCHEMA, top(ascending=True)), INPUTS[:3]))
    assert [item for item in found if isinstance(item, tuple)] == [("a", 1, 10, 1), ("b", 1, 10, 2), ("b", 3, 20, 1)]


def test_local_results_leave_before_a_watermark_that_ends_their_window_and_before_idleness():
    found = shown(verify_processor(lambda: LocalTopOfWindows(SCHEMA, top()), INPUTS, normalize=only_the_best))
    assert found[:3] == [("a", 2, 10), ("b", 1, 10), Watermark(10)]
    assert ("a", 9, 20) not in found
    assert found.index(("b", 1, 20)) < found.index(IDLE)


def only_the_best(output):
    """What is flushed at a barrier may be more than what is flushed once: the best of it are the same."""
    rows = pa.Table.from_pylist([item for item in output if isinstance(item, dict)], schema=SCHEMA)
    return repr(top().choose(rows)[0].to_pylist())  # NaN equals no NaN


def test_what_is_not_among_the_best_is_let_go_before_its_window_ends(monkeypatch):
    monkeypatch.setattr(top_of_windows, "COMPACT_ROWS", 10)
    processor = TopOfWindows(SCHEMA, top())
    processor.open(ProcessorContext("top"))
    for key in range(100):
        processor.process(0, Batch.from_arrow(results(("a", key, 10, float(key % 50)))))
        assert processor.row_count <= 10 + 2 + 1
    found = [row for batch in processor.complete() for row in batch.to_arrow().to_pylist()]
    assert [(row["key"], row["rank"]) for row in found] == [(49, 1), (99, 2)]


@pytest.mark.parametrize("restored", [False, True])
def test_results_of_windows_that_were_given_are_late_and_counted(restored):
    processor = TopOfWindows(SCHEMA, top(("group",)))
    processor.open(ProcessorContext("top"))
    list(processor.process_watermark(20))
    if restored:
        states = list(processor.save_snapshot())
        processor = TopOfWindows(SCHEMA, top(("group",)))
        processor.open(ProcessorContext("top"))
        for state in states:
            processor.restore_snapshot(state)
        processor.finish_restore()
    processor.process(0, Batch.from_arrow(results(("a", 1, 20, 1.0), ("b", 1, 20, 1.0), ("a", 1, 30, 1.0))))
    assert processor.counters["late_rows"] == 2
    assert [batch.row_count for batch in processor.process_watermark(30)] == [1]
    assert not processor.bounds.restored


def test_an_owner_of_partitions_with_different_bounds_treats_each_by_its_own():
    groups = ["a", "b", "c"]
    partitions = [int(partition) for partition in assign_partitions([pa.array(groups)])]
    processor = TopOfWindows(SCHEMA, top(("group",)))
    processor.open(ProcessorContext("top"))
    for state in save_bounds(271, dict(zip(partitions, [10, 20, 30], strict=True))):
        processor.restore_snapshot(state)
    processor.finish_restore()
    list(processor.process_watermark(10))
    processor.process(0, Batch.from_arrow(results(*((group, 1, end, 1.0) for group in groups for end in (10, 20, 30)))))
    assert processor.counters["late_rows"] == 6
    found = [row for batch in processor.process_watermark(30) for row in batch.to_arrow().to_pylist()]
    assert [(row["group"], row["window_end"].microsecond) for row in found] == [("a", 20), ("a", 30), ("b", 30)]
