"""Rows bear the time at which they came, watermarks follow the clock, and neither goes back."""

import pyarrow as pa

from jetfast.core.batch import Batch
from jetfast.core.items import Watermark
from jetfast.core.processor import ProcessorContext
from jetfast.core.throttling import EmitByFrame, NoThrottling
from jetfast.core.windows import Window
from jetfast.processors.processing_time import ProcessingTime
from jetfast.testing import VirtualClock, verify_processor


def rows(*values):
    return pa.record_batch({"value": pa.array(values, pa.int64())})


def seen(value):
    return {"value": value, "seen": pa.scalar(7, pa.timestamp("us")).as_py()}


def dropping_repeated_watermarks(output):
    """Where rows are cut finer or state is restored, the same watermark may stand elsewhere; the first one counts."""
    return [item for item in output if not isinstance(item, Watermark)]


def opened(clock, throttle):
    processor = ProcessingTime("seen", throttle)
    processor.open(ProcessorContext("clock", now_us=clock))
    return processor


def shown(output):
    return [
        item.to_arrow()["seen"].cast(pa.int64()).to_pylist() if isinstance(item, Batch) else item for item in output
    ]


def test_a_row_bears_the_time_at_which_it_came_and_its_watermark_follows_it():
    verify_processor(
        lambda: ProcessingTime("seen", NoThrottling()),
        [rows(1, 2), rows(3)],
        [seen(1), seen(2), Watermark(7), seen(3)],
        now_us=lambda: 7,
        normalize=dropping_repeated_watermarks,
    )


def test_the_watermark_follows_the_clock_while_no_row_comes_frame_by_frame():
    clock = VirtualClock("1970-01-01T00:00:00")
    processor = opened(clock, EmitByFrame(Window(10, 10)))
    found = []
    for step in (3, 4, 5, 25):
        clock.advance_us(step)
        found += shown(processor.process_silence())
    assert found == [Watermark(0), Watermark(10), Watermark(30)]
    clock.advance_us(4)
    assert shown(processor.process(0, Batch.from_arrow(rows(1)))) == [[41], Watermark(40)]


def test_a_clock_that_is_set_back_stands_still_also_over_a_restart():
    clock = VirtualClock("1970-01-01T00:00:00")
    clock.advance_us(100)
    before = opened(clock, NoThrottling())
    assert shown(before.process(0, Batch.from_arrow(rows(1)))) == [[100], Watermark(100)]
    after = opened(VirtualClock("1970-01-01T00:00:00"), NoThrottling())
    for state in before.save_snapshot():
        after.restore_snapshot(state)
    after.finish_restore()
    assert shown(after.process(0, Batch.from_arrow(rows(1)))) == [[100], Watermark(100)]
