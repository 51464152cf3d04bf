"""Asking a service: order, how many calls at a time, watermarks, snapshots; answers come when the test says so."""

import threading
from itertools import chain

import pyarrow as pa
import pytest

from jetfast.core.batch import Batch
from jetfast.core.items import Watermark
from jetfast.core.processor import ProcessorContext
from jetfast.errors import JobFailedError
from jetfast.processors.map_using_service import MapUsingService
from jetfast.testing import verify_processor

SCHEMA = pa.schema([("n", pa.int64())])
SECOND = 1_000_000


def rows(*numbers):
    return pa.record_batch([pa.array(numbers, pa.int64())], schema=SCHEMA)


def double(service, batch):
    return pa.record_batch([pa.array([2 * n for n in batch.column(0).to_pylist()])], schema=SCHEMA)


async def double_soon(service, batch):
    return double(service, batch)


def processor(function, create=dict, **settings):
    defaults = {"concurrency": 3, "batch_rows": 2, "ordered": True, "saves": False, "timeout_us": 60 * SECOND}
    return MapUsingService(create, function, SCHEMA, **(defaults | settings))


INPUTS = [rows(1, 2, 3), Watermark(10), rows(4), rows(5, 6, 7, 8, 9), Watermark(20), rows(10)]


@pytest.mark.parametrize("function", [double, double_soon])
@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("saves", [True, False])
def test_every_row_is_answered_once_before_the_watermark_behind_it(function, ordered, saves):
    def normalize(output):
        numbers = [item["n"] // 2 for item in output if isinstance(item, dict)]
        marks = [item.value for item in output if isinstance(item, Watermark)]
        assert marks == sorted(set(marks))
        for mark, first in ((10, {1, 2, 3}), (20, set(range(1, 10)))):
            if mark in marks:
                before = output[: output.index(Watermark(mark))]
                assert first <= {item["n"] // 2 for item in before if isinstance(item, dict)}
        return numbers if ordered else sorted(numbers)

    found = verify_processor(
        lambda: processor(function, ordered=ordered, saves=saves), INPUTS, normalize=normalize, ordered=ordered
    )
    assert normalize(found) == list(range(1, 11))


class Gates:
    """Lets calls answer when they are told to."""

    def __init__(self):
        self.gates = {}
        self.lock = threading.Lock()
        self.asked = []
        self.closed = False

    def gate(self, number):
        with self.lock:
            return self.gates.setdefault(number, threading.Event())

    def answer(self, service, batch):
        number = batch.column(0)[0].as_py()
        self.asked.append(number)
        assert self.gate(number).wait(60)
        return double(service, batch)

    def close(self):
        self.closed = True


def opened(made):
    made.open(ProcessorContext("service"))
    return made


def take(output):
    return [item.to_arrow().column(0).to_pylist() if isinstance(item, Batch) else item for item in output]


def until_something(made):
    while not (output := take(made.process_silence())):
        pass
    return output


@pytest.mark.timeout(120)
def test_answers_leave_as_they_come_only_if_the_order_may_be_lost():
    for ordered in (False, True):
        gates = Gates()
        made = opened(processor(gates.answer, ordered=ordered))
        for number in (1, 2):
            assert take(made.process(0, Batch.from_arrow(rows(number)))) == []
        assert take(made.process_watermark(5)) == []
        gates.gate(2).set()
        made.pending[1].answer.result(60)
        early = take(made.process_silence())
        gates.gate(1).set()
        assert early == ([] if ordered else [[4]])
        rest = until_something(made)
        while Watermark(5) not in rest:
            rest += until_something(made)
        assert rest == ([[2], [4], Watermark(5)] if ordered else [[2], Watermark(5)])
        made.close(None)


@pytest.mark.timeout(120)
def test_no_more_calls_are_under_way_than_were_allowed():
    gates = Gates()
    made = opened(processor(gates.answer, concurrency=2, batch_rows=1))
    output = iter(made.process(0, Batch.from_arrow(rows(1, 2, 3))))
    gates.gate(1).set()
    first = next(output)
    assert take([first]) == [[2]]
    assert 3 not in gates.asked
    for number in (2, 3):
        gates.gate(number).set()
    assert take(output) + take(made.complete()) == [[4], [6]]
    made.close(None)


@pytest.mark.timeout(120)
def test_rows_under_way_are_part_of_the_state_or_waited_for():
    gates = Gates()
    made = opened(processor(gates.answer, saves=True))
    list(made.process(0, Batch.from_arrow(rows(1, 2, 3))))
    assert list(made.process_barrier()) == []
    (state,) = made.save_snapshot()
    assert state.rows.column(0).to_pylist() == [1, 2, 3]
    again = opened(processor(double, saves=True))
    again.restore_snapshot(state)
    assert next(iter(again.save_snapshot())).rows.column(0).to_pylist() == [1, 2, 3]
    assert take(again.process_idle()) == [[2, 4], [6]]
    waiting = opened(processor(double))
    list(waiting.process(0, Batch.from_arrow(rows(1))))
    found = take(waiting.process_barrier())
    assert found in ([], [[2]])  # it may have been answered before
    assert list(waiting.save_snapshot()) == []
    for number in (1, 3):
        gates.gate(number).set()
    for each in (made, again, waiting):
        each.close(None)


def test_the_service_is_made_and_closed_by_the_processor():
    gates = Gates()
    made = opened(processor(double, create=lambda: gates))
    assert made.service is gates
    made.close(None)
    assert gates.closed


def fail(service, batch):
    raise OSError("no route")


@pytest.mark.timeout(120)
def test_what_goes_wrong_is_said_with_the_rows():
    for function, message in (
        (fail, "fail failed on 2 rows, the first of them {'n': 1}: OSError: no route"),
        (lambda service, batch: 3, "failed on 2 rows, .*it returned int; a pyarrow.RecordBatch is needed"),
    ):
        made = opened(processor(function))
        with pytest.raises(JobFailedError, match=message):
            list(chain(made.process(0, Batch.from_arrow(rows(1, 2))), made.complete()))
        made.close(None)
    gates = Gates()
    made = opened(processor(gates.answer, timeout_us=1000))
    list(made.process(0, Batch.from_arrow(rows(1))))
    with pytest.raises(JobFailedError, match=r"gave no answer within 0.001 s"):
        list(made.complete())
    gates.gate(1).set()
    made.close(None)
