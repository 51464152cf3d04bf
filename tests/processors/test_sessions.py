"""The session processor, verified in every mode against a plain definition of sessions (SEMANTICS 2)."""

from hypothesis import given, settings

from jetfast.core.items import IDLE, Watermark
from jetfast.core.windows import SessionWindow
from jetfast.processors.session_window import SessionWindowProcessor
from jetfast.testing import OnPort, verify_processor
from jetfast.types import MAX_TIME
from tests.kernels.reference_sessions import ReferenceSessions
from tests.processors.test_windows import (
    AGGREGATES,
    INPUTS,
    SCHEMA,
    counters_of,
    rows,
    streams,
    time_in_us,
    time_us,
)

TIMEOUT_US = 4


def processor():
    return SessionWindowProcessor(SCHEMA, ["key"], "time", AGGREGATES, SessionWindow(TIMEOUT_US))


def slow_output(inputs):
    """What comes out, item by item; and how rows were counted."""
    slow = ReferenceSessions(
        ["key"], "time", [(column.name, column.kind.value, column.column) for column in AGGREGATES], TIMEOUT_US
    )
    output = []

    def advance(watermark):
        for (end, key), values in sorted(slow.advance(watermark).items(), key=repr):
            mean = None if values["mean"] is None else float(values["mean"])
            row = {"key": key, "window_start": time_us(values.pop("window_start")), "window_end": time_us(end)}
            output.append(row | values | {"mean": mean})

    for item in inputs:
        if isinstance(item, Watermark):
            advance(item.value)
            output.append(item)
        elif item is IDLE:
            output.append(item)
        else:
            for row in slow.accumulate([row | {"time": time_in_us(row["time"])} for row in item.to_pylist()]):
                output.append(OnPort(1, row | {"time": time_us(row["time"]), "missed_until": None}))
    advance(MAX_TIME)
    late, rejected = slow.late_rows, slow.rejected_rows
    counts = {"late_rows": late, "partly_late_rows": 0, "rejected_rows": rejected}
    return output, {"on_time_rows": slow.rows - late - rejected} | counts


def result_time_us(row):
    """A session's own time is its end."""
    return time_in_us(row["window_end"])


def verify(inputs):
    verify_processor(
        processor,
        inputs,
        slow_output(inputs)[0],
        keys=["key"],
        ordered=False,
        event_time_us=result_time_us,
    )


def test_sessions_equal_their_definition_with_a_restore_at_every_pause():
    verify(INPUTS)


def test_sessions_that_rows_bridge_survive_every_pause():
    verify([rows(("a", 0, 1), ("a", 8, 2), ("b", 8, 3)), Watermark(0), rows(("a", 4, 4)), Watermark(13)])


@settings(max_examples=8, deadline=None)
@given(streams())
def test_sessions_equal_their_definition_on_random_streams(inputs):
    verify(inputs)


def test_every_row_is_counted_in_exactly_one_class():
    assert counters_of(processor(), INPUTS) == slow_output(INPUTS)[1]
    assert slow_output(INPUTS)[1]["late_rows"] == 3


def test_late_rows_are_not_made_when_nobody_reads_them():
    output = verify_processor(processor, INPUTS, keys=["key"], ordered=False, connected_ports=[0])
    assert not [item for item in output if isinstance(item, OnPort)]
