"""Writing to a sink: everything is handed on, finished once, and aborted if it was not finished."""

from typing import Any

import pyarrow as pa
import pytest

from jetfast.core.batch import Batch
from jetfast.core.processor import ProcessorContext
from jetfast.errors import JobFailedError
from jetfast.processors.sink import WriteSink
from jetfast.testing import verify_processor

SCHEMA = pa.schema([("value", pa.int64())])
ROWS = pa.record_batch({"value": [1, 2, 3]})


class RecordingSink:
    """Remembers what was asked of its writers; `fails` is the call that raises."""

    name, cooperative, parallelism_one, target = "recording", True, False, None

    def __init__(self, fails: str = "") -> None:
        self.calls: list[Any] = []
        self.fails = fails

    def check(self, schema: pa.Schema) -> None: ...

    def check_target(self) -> None: ...

    def open_writer(self, schema: pa.Schema, context: ProcessorContext) -> "RecordingSink":
        return self

    def write(self, batch: Batch) -> None:
        self.call(batch.to_arrow().column(0).to_pylist())

    def flush(self) -> None:
        self.call("flush")

    def finish(self) -> None:
        self.call("finish")

    def abort(self) -> None:
        self.call("abort")

    def call(self, what: Any) -> None:
        self.calls.append(what)
        if self.fails and (what == self.fails or (self.fails == "write" and isinstance(what, list))):
            raise OSError("no space left")


def opened(sink: RecordingSink) -> Any:
    processor = WriteSink(sink, SCHEMA)()
    processor.open(ProcessorContext("sink"))
    return processor


def test_batches_are_handed_on_and_the_writer_is_finished_once() -> None:
    sink = RecordingSink()
    processor = opened(sink)
    processor.process(0, Batch.from_arrow(ROWS))
    processor.complete()
    processor.close(None)
    assert sink.calls == [[1, 2, 3], "finish"]
    assert processor.context.counters == {"rows_written": 3}


@pytest.mark.parametrize("error", [None, ValueError("elsewhere")])
def test_a_writer_that_was_not_finished_is_aborted(error: Exception | None) -> None:
    sink = RecordingSink()
    processor = opened(sink)
    processor.process(0, Batch.from_arrow(ROWS))
    processor.close(error)
    assert sink.calls == [[1, 2, 3], "abort"]


@pytest.mark.parametrize("call", ["write", "flush", "finish"])
def test_a_failure_names_the_sink_and_aborts(call: str) -> None:
    sink = RecordingSink(call)
    processor = opened(sink)
    steps = {"write": lambda: processor.process(0, Batch.from_arrow(ROWS)), "flush": processor.save_snapshot}
    with pytest.raises(JobFailedError, match=f"recording: cannot {call}: OSError: no space left"):
        steps.get(call, processor.complete)()
    processor.close(JobFailedError("x"))
    assert sink.calls[-1] == "abort"


def test_what_was_written_is_flushed_before_state_is_saved() -> None:
    sink = RecordingSink()
    processor = opened(sink)
    processor.process(0, Batch.from_arrow(ROWS))
    assert processor.save_snapshot() == ()
    processor.complete()
    processor.save_snapshot()  # in a later round, when there is nothing left to write
    assert sink.calls == [[1, 2, 3], "flush", "finish"]


def test_a_sink_processor_passes_verification() -> None:
    assert verify_processor(WriteSink(RecordingSink(), SCHEMA), [ROWS, ROWS], []) == []


def test_close_without_open_does_nothing() -> None:
    sink = RecordingSink()
    WriteSink(sink, SCHEMA)().close(None)
    assert sink.calls == []
