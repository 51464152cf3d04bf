"""The first stage that lets rows pass by where it would not thin them: whatever it chooses, results are the same."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetfast.core.aggregate import AggregateColumn, AggregateKind
from jetfast.core.batch import Batch, BatchRun
from jetfast.core.items import Emit, Output, Watermark, one_by_one
from jetfast.core.processor import Processor, ProcessorContext
from jetfast.core.windows import Window
from jetfast.processors import accumulate_where_it_pays
from jetfast.processors.accumulate_where_it_pays import PARTIALS_PORT, ROWS_PER_PARTIAL, AccumulateWhereItPays
from jetfast.processors.combine_frames import PARTIALS, CombineFrames
from jetfast.processors.sliding_window import SlidingWindowProcessor
from jetfast.testing import OnPort, verify_processor
from jetfast.types import MAX_TIME

SCHEMA = pa.schema([("key", pa.int64()), ("time", pa.timestamp("us")), ("value", pa.int64())])
AGGREGATES = [AggregateColumn("rows", AggregateKind.COUNT), AggregateColumn("total", AggregateKind.SUM, "value")]
WINDOW = Window(size_us=20, slide_us=10)
ROWS = 1
"""Inbound edge of the second stage for rows as they are."""


def batch_of(keys: Sequence[int], time: int) -> Batch:
    columns = [pa.array(keys, pa.int64()), pa.array([time] * len(keys)).cast(pa.timestamp("us")), pa.array(keys)]
    return Batch.from_arrow(pa.record_batch(columns, schema=SCHEMA))


def opened(processor: Processor, context: ProcessorContext | None = None) -> Any:
    processor.open(context or ProcessorContext("window"))
    return processor


def first_stage(context: ProcessorContext | None = None, crosses: bool = False) -> AccumulateWhereItPays:
    return opened(AccumulateWhereItPays(SCHEMA, ["key"], "time", AGGREGATES, WINDOW, crosses), context)


def seasoned(first: AccumulateWhereItPays) -> AccumulateWhereItPays:
    """One that has accumulated since before the frames that are open."""
    list(first.process(0, frame(1, 1, -9)))
    list(first.process_watermark(-80))
    assert first.cut_frames == 0
    return first


def frame(keys: int, rows_each: int, number: int) -> Batch:
    return batch_of(list(range(keys)) * rows_each, 10 * number)


def ports(output: Iterable[Output]) -> list[int]:
    return [item.port if isinstance(item, Emit) else 0 for item in output]


def test_rows_that_partials_stand_for_by_the_few_pass_by_and_are_tried_again_later() -> None:
    first = seasoned(first_stage())
    assert ports(first.process(0, frame(8, ROWS_PER_PARTIAL - 1, 0))) == []
    first.process(0, frame(8, 1, 1))
    assert ports(first.process_watermark(10)) == [PARTIALS_PORT] * 2  # the frame that is open leaves, too
    for number in range(1, 17):
        run = BatchRun.of([frame(8, 1, number), frame(8, 1, number)])
        assert list(first.process_batches(0, run)) == [run]
        assert list(first.process_watermark(10 * (number + 1))) == []
    assert list(first.process(0, frame(8, ROWS_PER_PARTIAL, 18))) == []
    assert ports(first.process_watermark(190)) == [PARTIALS_PORT]
    assert list(first.process(0, frame(8, ROWS_PER_PARTIAL, 19))) == []


def test_frames_that_began_before_it_accumulated_are_not_judged() -> None:
    first = first_stage()
    for number in (-1, 0, 1):  # three frames are open when the first one ends
        first.process(0, frame(8, 1, number))
    for watermark in (0, 10, 20):
        assert ports(first.process_watermark(watermark)) == [PARTIALS_PORT]
        assert not first.passes_rows
    first.process(0, frame(8, 1, 2))
    list(first.process_watermark(30))
    assert first.passes_rows


def test_it_waits_twice_as_long_each_time_that_it_finds_too_few_rows() -> None:
    first = first_stage()
    number, waits = 0, []
    while len(waits) < 9:
        while not first.passes_rows:
            first.process(0, frame(8, 1, number))
            list(first.process_watermark(10 * number + 10))
            number += 1
        number -= 1
        tried = number
        while first.passes_rows:
            number += 1
            list(first.process_watermark(10 * number + 10))
        waits.append(number - tried)
        number += 1
    assert waits == [16, 32, 64, 128, 256, 512, 1024, 1024, 1024]


def test_frames_that_a_barrier_or_an_idle_input_cuts_short_are_not_judged() -> None:
    first = first_stage()
    first = seasoned(first)
    for flush in (first.process_barrier, first.process_idle):
        first.process(0, frame(8, 1, 0))
        assert ports(flush()) == [PARTIALS_PORT]
        assert not first.passes_rows


def test_rows_that_would_cross_between_members_are_accumulated_sooner() -> None:
    first, crossing = seasoned(first_stage()), seasoned(first_stage(crosses=True))
    for processor in (first, crossing):
        processor.process(0, frame(8, 2, 0))
        list(processor.process_watermark(10))
    assert first.passes_rows
    assert not crossing.passes_rows


def test_more_keys_than_fit_the_caches_pass_by_before_their_frame_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accumulate_where_it_pays, "KEYS_MAX", 7)
    first, crossing = first_stage(), first_stage(crosses=True)
    assert ports(first.process(0, frame(8, 50, 0))) == [PARTIALS_PORT]
    assert ports(first.process(0, frame(8, 50, 0))) == [0]
    assert list(crossing.process(0, frame(8, 50, 0))) == []
    list(first.process_watermark(1000))  # it looks anew, though it had so many keys once
    assert list(first.process(0, frame(7, 50, 100))) == []


@pytest.mark.parametrize("rows_each", [1, ROWS_PER_PARTIAL])
def test_partials_say_whose_they_are(rows_each: int) -> None:
    owners = np.arange(271, dtype=np.int32) % 3
    first = first_stage(ProcessorContext("first", member_count=2, partition_owners={PARTIALS_PORT: owners}))
    first.process(0, frame(40, rows_each, 0))
    found = {item.owner: item.batch.row_count for item in one_by_one(first.process_watermark(10))}
    assert found.keys() == {0, 1, 2}
    assert sum(found.values()) == 40


KEY_LISTS = st.lists(st.integers(0, 5), min_size=1, max_size=12)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(KEY_LISTS, st.integers(0, 90), st.integers(0, 40)), max_size=25), st.integers(1, 4))
def test_two_stages_give_what_one_gives_whatever_passes_by(steps: list[Any], first_stages: int) -> None:
    """Partials leave before the watermark does: rows are judged by the one before it, as in one stage."""
    one = opened(SlidingWindowProcessor(SCHEMA, ["key"], "time", AGGREGATES, WINDOW))
    second = opened(CombineFrames(SCHEMA, ["key"], "time", AGGREGATES, WINDOW))
    first = [first_stage() for _ in range(first_stages)]
    wanted: list[Any] = []
    found: list[Any] = []

    def combine(output: Iterable[Output]) -> None:
        for item in output:
            ordinal, batch = (PARTIALS, item.batch) if isinstance(item, Emit) else (ROWS, item)
            second.process(ordinal, batch)

    watermark = -(10**6)
    for number, (keys, time, step) in enumerate(steps):
        batch = batch_of(keys, time)
        one.process(0, batch)
        combine(first[number % first_stages].process(0, batch))
        watermark = max(watermark, step - 10)
        for processor in first:
            combine(processor.process_watermark(watermark))
            combine(processor.process_barrier())
        wanted += one.process_watermark(watermark)
        found += second.process_watermark(watermark)
    for processor in first:
        combine(processor.complete())
    wanted += one.process_watermark(MAX_TIME)
    found += second.process_watermark(MAX_TIME)
    assert sorted(rows_of(found)) == sorted(rows_of(wanted))
    assert second.counters == one.counters


def rows_of(batches: Iterable[Batch]) -> list[str]:
    return [repr(row) for batch in one_by_one(batches) for row in batch.to_arrow().to_pylist()]


def test_it_gives_partials_and_rows_that_add_up_in_every_mode() -> None:
    inputs: list[Any] = [frame(8, rows, number).to_arrow() for number, rows in enumerate((1, 2, 5))]

    def rows_in(output: list[Any]) -> int:
        rows = [item.row if isinstance(item, OnPort) else item for item in output]
        return sum(row.get("rows", 1) for row in rows if isinstance(row, dict))

    def supplier() -> AccumulateWhereItPays:
        return AccumulateWhereItPays(SCHEMA, ["key"], "time", AGGREGATES, WINDOW, False)

    script = [inputs[0], Watermark(10), inputs[1], Watermark(20), inputs[2]]
    verify_processor(supplier, script, normalize=rows_in, connected_ports=(0, PARTIALS_PORT))
