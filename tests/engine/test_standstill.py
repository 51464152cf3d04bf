"""What members tell of processors that stand still: which, since when, and for what."""

import threading

from jetfast.core.processor import Processor
from jetfast.engine.execution import Execution
from jetfast.engine.memory_snapshot_store import MemorySnapshotStore
from jetfast.testing import VirtualClock
from tests.engine.graphs import EndlessSource, EndListener, Log, LoggingSink, Passing, batch_of, graph
from tests.engine.rounds import Run
from tests.engine.test_barriers_tasklet import Waiting

PATIENCE_S = 60


class Blocked(Passing):
    """Its calls return when a test says so."""

    def __init__(self):
        self.entered = threading.Event()
        self.let_go = threading.Event()

    def process(self, ordinal, batch):
        self.entered.set()
        assert self.let_go.wait(PATIENCE_S)
        return (batch,)


class Full(Processor):
    """Takes nothing in."""

    takes_input = False


def told(execution):
    return [(still["step"], still["kind"], still["for"]) for still in execution.metrics()["standstill"]]


def stepped(dag, clock):
    run = Run(dag, store=MemorySnapshotStore())
    (execution,) = run.executions
    execution.now_us = clock
    return run, execution


def test_a_processor_that_does_something_now_and_then_does_not_stand_still():
    clock = VirtualClock()
    dag = graph(("source", lambda: Waiting([])), ("sink", lambda: LoggingSink(Log())), edges=[("source", "sink")])
    _, execution = stepped(dag, clock)
    assert told(execution) == []
    clock.advance("4s")
    for tasklet in execution.tasklets:
        tasklet.busy_ns += 1
    assert told(execution) == []
    clock.advance("4s")
    assert told(execution) == []
    clock.advance("1s")
    assert [step for step, _, _ in told(execution)] == ["source-0", "sink-0"]
    assert [still["seconds"] for still in execution.metrics()["standstill"]] == [5.0, 5.0]


def test_a_step_waits_for_rows_of_its_inputs_and_a_source_for_rows_to_read():
    clock = VirtualClock()
    dag = graph(
        ("left", lambda: Waiting([])),
        ("right", lambda: Waiting([])),
        ("both", Passing),
        ("sink", lambda: LoggingSink(Log())),
        edges=[("left", "both"), ("right", "both", {"ordinal": 1, "priority": 1}), ("both", "sink")],
    )
    run, execution = stepped(dag, clock)
    told(execution)
    run.steps(50)
    clock.advance("10s")
    assert told(execution) == [
        ("left-0", "source", "rows: its source has none to read"),
        ("right-0", "source", "rows: its source has none to read"),
        ("both-0", "input", "the end of left-0, which it reads before its other inputs"),
        ("sink-0", "input", "rows of both-0"),
    ]


def test_a_step_waits_for_room_in_the_queues_of_those_that_do_not_read_and_for_barriers_of_its_other_inputs():
    clock = VirtualClock()
    dag = graph(
        ("left", lambda: Waiting([batch_of(value) for value in range(1500)])),
        ("right", lambda: Waiting([])),
        ("both", Passing),
        ("full", Full, {"parallelism": 1}),
        edges=[("left", "both"), ("right", "both", {"ordinal": 1}), ("both", "full")],
    )
    run, execution = stepped(dag, clock)
    told(execution)
    run.steps(3000)
    clock.advance("6s")
    found = {step: (kind, reason) for step, kind, reason in told(execution)}
    assert found["both-0"] == ("room", "room in the queues to full-0")
    assert found["left-0"] == ("room", "room in the queues to both-0")
    run, execution = stepped(graph(
        ("left", lambda: Waiting([])),
        ("right", lambda: Waiting([])),
        ("both", Passing),
        edges=[("left", "both"), ("right", "both", {"ordinal": 1})],
    ), clock)  # fmt: skip
    told(execution)
    run.executions[0].start_snapshot(1)
    for name in ("left-0", "left-0", "both-0"):
        run.stepped[0].step(run.tasklet(name))
    clock.advance("6s")
    assert ("both-0", "barrier", "snapshot barriers of right-0") in told(execution)


def test_a_call_that_does_not_return_is_told_with_its_place_and_what_waits_for_it():
    clock = VirtualClock()
    blocked = Blocked()
    dag = graph(
        ("source", lambda: EndlessSource(cooperative=False), {"parallelism": 1}),
        ("step", lambda: blocked, {"parallelism": 1}),
        ("sink", lambda: LoggingSink(Log()), {"parallelism": 1}),
        edges=[("source", "step"), ("step", "sink")],
    )
    execution = Execution(dag, job="test", execution_id=1, workers=1, transport=None, now_us=clock)
    execution.open()
    ended = threading.Event()
    execution.start(EndListener(lambda error: ended.set()))
    try:
        assert blocked.entered.wait(PATIENCE_S)
        source = execution.tasklets[0]
        moment = threading.Event()
        while not source.outbox.blocked:
            moment.wait(0.001)
        told(execution)
        clock.advance("7s")
        found = {step: (kind, reason) for step, kind, reason in told(execution)}
        kind, reason = found.pop("step-0")
        assert kind == "call"
        assert reason.startswith("a call to return, in Blocked.process (test_standstill.py:")
        assert "; batches that wait for it: " in reason
        assert reason.endswith(" of source-0")
        assert "sink-0" not in found, "it waits for its turn"
    finally:
        blocked.let_go.set()
        execution.cancel()
    assert ended.wait(PATIENCE_S)
    assert execution.join(PATIENCE_S)
