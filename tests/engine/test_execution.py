"""One member runs a graph: rows arrive, control items keep their place, every processor is opened and closed once."""

import gc
import threading
import weakref
from collections import Counter

import pytest

from jetfast.core.items import ACTIVE, IDLE, Emit, Watermark
from jetfast.core.processor import Processor
from jetfast.core.routing import ALL_TO_ONE, BROADCAST, FANOUT, ISOLATED, UNICAST, partitioned
from jetfast.engine.execution import Execution
from jetfast.errors import JobCancelledError, JobFailedError, ProtocolError, ResourcesError, RestartableError
from jetfast.processors.map_batches import MapBatches
from jetfast.processors.transform import Transform
from tests.engine.graphs import (
    SCHEMA,
    EndlessSource,
    EndListener,
    Log,
    LoggingSink,
    Passing,
    ScriptedSource,
    batch_of,
    finish,
    graph,
    run,
    source_to_sink,
    values_of,
)


def rows_of(log):
    return Counter(value for _, _, values in log.of("rows") for value in values)


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("cooperative", [True, False])
def test_every_row_arrives_once_and_in_order(workers, cooperative):
    log = Log()
    script = [batch_of(number) for number in range(100)]
    dag = graph(
        ("source", lambda: ScriptedSource(script, cooperative=cooperative), {"parallelism": 1}),
        ("pass", Passing, {"parallelism": 1}),
        ("sink", lambda: LoggingSink(log, cooperative), {"parallelism": 1}),
        edges=[("source", "pass", {"queue_items": 2}), ("pass", "sink", {"queue_items": 1})],
    )
    run(dag, workers=workers)
    assert [values for _, _, values in log.of("rows")] == [[number] for number in range(100)]
    assert len(log.of("complete")) == 1


@pytest.mark.parametrize(
    ("routing", "copies"), [(UNICAST, 1), (ISOLATED, 1), (ALL_TO_ONE, 1), (BROADCAST, 3), (FANOUT, 1)]
)
def test_routings_inside_a_member_give_each_row_to_whom_they_should(routing, copies):
    log = Log()
    dag = graph(
        ("source", lambda: ScriptedSource([batch_of(1, 2), batch_of(3)]), {"parallelism": 2}),
        ("sink", lambda: LoggingSink(log), {"parallelism": 3}),
        edges=[("source", "sink", {"routing": routing, "queue_items": 1})],
    )
    run(dag, workers=2)
    assert rows_of(log) == {1: 2 * copies, 2: 2 * copies, 3: 2 * copies}
    if routing is ALL_TO_ONE:
        assert {who for who, _, _ in log.of("rows")} == {("sink", 0)}
    assert len(log.of("complete")) == 3


@pytest.mark.parametrize("routing", [UNICAST, ISOLATED, ALL_TO_ONE, BROADCAST, FANOUT, partitioned("key")])
def test_a_watermark_is_broadcast_whatever_the_routing_of_its_edge(routing):
    log = Log()
    dag = graph(
        ("source", lambda: ScriptedSource([batch_of(1, 2), Watermark(5), batch_of(3)]), {"parallelism": 2}),
        ("sink", lambda: LoggingSink(log), {"parallelism": 3}),
        edges=[("source", "sink", {"routing": routing, "queue_items": 1})],
    )
    run(dag, workers=2)
    assert sorted(log.of("watermark")) == [(("sink", index), 5) for index in range(3)]


def test_a_watermark_follows_the_rows_before_it_and_reaches_every_processor():
    log = Log()
    source_to_sink(
        lambda: ScriptedSource([batch_of(1), Watermark(5), batch_of(2), Watermark(9)]),
        log,
        workers=1,
        sink=lambda: LoggingSink(log),
    )
    kinds = [(event[0], event[2:]) for event in log.events if event[0] in ("rows", "watermark")]
    assert kinds == [("rows", (0, [1])), ("watermark", (5,)), ("rows", (0, [2])), ("watermark", (9,))]


def test_a_watermark_of_zero_is_one_like_others():
    log = Log()
    source_to_sink(lambda: ScriptedSource([batch_of(1), Watermark(0), batch_of(2)]), log)
    assert [event[0] for event in log.events][:3] == ["rows", "watermark", "rows"]


def test_the_least_watermark_of_all_queues_arrives():
    log = Log()
    scripts = [[Watermark(5), batch_of(1)], [Watermark(3), batch_of(2)]]
    dag = graph(
        ("source", lambda: ScriptedSource(scripts.pop()), {"parallelism": 2}),
        ("sink", lambda: LoggingSink(log), {"parallelism": 2}),
        edges=[("source", "sink", {"routing": BROADCAST})],
    )
    run(dag, workers=2)
    for index in (0, 1):
        seen = [value for who, value in log.of("watermark") if who == ("sink", index)]
        assert seen in ([3, 5], [5])  # 3 only if the source with 5 was not the last one left
        assert seen[-1] == 5


class Relay(Processor):
    """Gives rows on at the watermark, at idle and at the end of its edge, as a window would."""

    def __init__(self):
        self.kept = []

    def process(self, ordinal, batch):
        self.kept.append(batch)
        return ()

    def flush(self):
        kept, self.kept = self.kept, []
        yield from kept

    def process_watermark(self, watermark):
        return self.flush()

    def process_idle(self):
        return self.flush()

    def complete_edge(self, ordinal):
        return self.flush()


def test_what_a_watermark_sets_free_leaves_before_the_watermark():
    log = Log()
    dag = graph(
        ("source", lambda: ScriptedSource([batch_of(1), Watermark(5), batch_of(2)])),
        ("relay", Relay),
        ("sink", lambda: LoggingSink(log)),
        edges=[("source", "relay"), ("relay", "sink")],
    )
    run(dag)
    kinds = [event[0] for event in log.events if event[0] in ("rows", "watermark")]
    assert kinds == ["rows", "watermark", "rows"]


def test_idle_leaves_after_what_came_before_it_and_active_ahead_of_what_follows():
    log = Log()
    dag = graph(
        ("source", lambda: ScriptedSource([batch_of(1), Watermark(4), IDLE, batch_of(2), IDLE, ACTIVE, Watermark(6)])),
        ("relay", Relay),
        ("sink", lambda: LoggingSink(log)),
        edges=[("source", "relay"), ("relay", "sink")],
    )
    run(dag)
    events = [(event[0], *event[2:]) for event in log.events if event[0] in ("rows", "watermark", "idle")]
    assert events == [
        ("rows", 0, [1]),
        ("watermark", 4),
        ("idle",),
        ("rows", 0, [2]),
        ("idle",),
        ("watermark", 6),
    ]


def test_a_step_that_emits_while_all_its_inputs_are_idle_sends_idle_again_after_it():
    class AtItsEnd(Passing):
        """Gives rows when an edge ends, as a step does that has kept them for the other one."""

        def complete_edge(self, ordinal):
            return (batch_of(7),) if ordinal == 0 else ()

    log = Log()
    dag = graph(
        ("short", lambda: ScriptedSource([IDLE, *[None] * 50])),
        ("long", lambda: ScriptedSource([IDLE, *[None] * 500])),
        ("step", AtItsEnd),
        ("sink", lambda: LoggingSink(log)),
        edges=[("short", "step"), ("long", "step", {"ordinal": 1}), ("step", "sink")],
    )
    run(dag)
    events = [(event[0], *event[3:]) for event in log.events if event[0] in ("rows", "idle")]
    assert events == [("idle",), ("rows", [7]), ("idle",)]


def test_an_idle_source_does_not_hold_back_the_others():
    log = Log()
    stop = threading.Event()

    class Waiting(ScriptedSource):
        def poll(self):
            return super().poll() if self.script or stop.is_set() else ()

    class Stopping(LoggingSink):
        def process_watermark(self, watermark):
            stop.set()
            return super().process_watermark(watermark)

    scripts = [[IDLE], [Watermark(7)]]
    dag = graph(
        ("source", lambda: Waiting(scripts.pop()), {"parallelism": 2}),
        ("sink", lambda: Stopping(log), {"parallelism": 1}),
        edges=[("source", "sink")],
    )
    run(dag)
    assert [value for _, value in log.of("watermark")] == [7]


def test_an_edge_of_lower_priority_is_read_after_the_others_are_done():
    log = Log()
    dag = graph(
        ("late", lambda: ScriptedSource([batch_of(1), batch_of(2)])),
        ("first", lambda: ScriptedSource([None] * 50 + [batch_of(3)])),
        ("sink", lambda: LoggingSink(log)),
        edges=[("late", "sink", {"ordinal": 0, "priority": 1}), ("first", "sink", {"ordinal": 1, "priority": 0})],
    )
    run(dag)
    order = [event[0:1] + event[2:] for event in log.events if event[0] in ("rows", "edge done")]
    assert order == [("rows", 1, [3]), ("edge done", 1), ("rows", 0, [1]), ("rows", 0, [2]), ("edge done", 0)]


def test_output_ports_lead_to_their_edges_only():
    log = Log()

    class Sorting(Processor):
        def process(self, ordinal, batch):
            for value in values_of(batch):
                yield Emit(value % 3, batch_of(value))

    dag = graph(
        ("source", lambda: ScriptedSource([batch_of(*range(9))])),
        ("sort", Sorting),
        ("zero", lambda: LoggingSink(log)),
        ("one", lambda: LoggingSink(log)),
        ("one again", lambda: LoggingSink(log)),
        edges=[
            ("source", "sort"),
            ("sort", "zero"),
            ("sort", "one", {"source_port": 1}),
            ("sort", "one again", {"source_port": 1}),
        ],
    )
    run(dag)
    got = {}
    for (vertex, _), _, values in log.of("rows"):
        got.setdefault(vertex, []).extend(values)
    assert got == {"zero": [0, 3, 6], "one": [1, 4, 7], "one again": [1, 4, 7]}


def test_a_failing_processor_is_named_with_its_cause_and_all_are_closed_once():
    log = Log()

    class Failing(Passing):
        def process(self, ordinal, batch):
            if values_of(batch) == [3]:
                raise KeyError("no such airport")
            return (batch,)

        def close(self, error):
            log.event("close", self, error)

    dag = graph(
        ("source", lambda: EndlessSource(log, cooperative=False)),
        ("fail", Failing),
        ("sink", lambda: LoggingSink(log)),
        edges=[("source", "fail"), ("fail", "sink")],
    )
    with pytest.raises(
        JobFailedError, match=r"step 'fail' failed on member 0, processor . of 2: KeyError: 'no such airport'"
    ) as raised:
        run(dag, workers=2)
    assert isinstance(raised.value.__cause__, KeyError)
    closed = log.of("close")
    assert len(closed) == len({id(processor) for processor, _ in closed}) == 6
    assert all(error is raised.value for _, error in closed)


def test_a_failure_names_the_source_partition_and_the_rows_if_they_are_known():
    def fail(batch):
        raise ZeroDivisionError("no distance")

    dag = graph(
        ("source", lambda: ScriptedSource([batch_of(1, 2, 3).with_origin("flights/jfk.csv", 100).slice(1)])),
        ("transform", lambda: Transform([lambda batch: batch.select(["value"])])),
        ("map", lambda: MapBatches(fail, SCHEMA)),
        edges=[("source", "transform"), ("transform", "map")],
    )
    message = (
        r"step 'map' failed on member 0, processor 0 of 1, rows from number 101 on of source partition "
        r"'flights/jfk.csv': .*fail failed on rows 0 to 1.*ZeroDivisionError: no distance"
    )
    with pytest.raises(JobFailedError, match=message):
        run(dag)


@pytest.mark.parametrize("error", [RestartableError("broker gone"), ProtocolError("impossible")])
def test_errors_that_are_not_the_users_pass_through(error):
    with pytest.raises(type(error)) as raised:
        source_to_sink(lambda: ScriptedSource([error]), Log())
    assert raised.value is error


def test_a_message_of_a_processor_is_kept_and_placed():
    with pytest.raises(JobFailedError, match=r"step 'source' failed on member 0, processor 0 of 1: file x.csv, line 3"):
        source_to_sink(lambda: ScriptedSource([JobFailedError("file x.csv, line 3")]), Log())


def test_a_processor_that_cannot_be_opened_fails_the_execution_and_is_closed():
    log = Log()

    class Broken(LoggingSink):
        def open(self, context):
            raise OSError("disk full")

    with pytest.raises(JobFailedError, match=r"step 'sink' failed when it was opened on member 0.*disk full"):
        source_to_sink(lambda: EndlessSource(log), log, sink=lambda: Broken(log))
    assert len(log.of("close")) == 2


def test_a_processor_that_cannot_be_closed_fails_the_execution():
    class Broken(LoggingSink):
        def close(self, error):
            raise OSError("rename refused")

    with pytest.raises(JobFailedError, match=r"step 'sink' failed when it was closed .*rename refused"):
        source_to_sink(lambda: ScriptedSource([]), Log(), sink=lambda: Broken(Log()))


def test_a_supplier_that_fails_closes_what_was_made():
    log = Log()

    def supplier():
        raise ValueError("no such table")

    dag = graph(("source", lambda: EndlessSource(log)), ("sink", supplier), edges=[("source", "sink")])
    execution = Execution(dag, job="test", execution_id=1, workers=2, transport=None)
    with pytest.raises(ValueError, match="no such table"):
        execution.open()
    assert len(log.of("close")) == 2
    execution.cancel()
    assert execution.join(0)


def test_only_one_step_on_a_path_makes_watermarks():
    class Second(Passing):
        def process(self, ordinal, batch):
            return (batch, Watermark(1))

    class Ahead(Second):
        forwards_watermark = False

        def process(self, ordinal, batch):
            return (batch, Watermark(2))

    for second in (Second, Ahead):
        refuse_second_watermarks(second)


def refuse_second_watermarks(second):
    dag = graph(
        ("source", lambda: ScriptedSource([Watermark(1), batch_of(1)])),
        ("second", second),
        ("sink", lambda: LoggingSink(Log())),
        edges=[("source", "second"), ("second", "sink")],
    )
    with pytest.raises(JobFailedError, match=r"step 'second' .* only one step on a path"):
        run(dag)


@pytest.mark.parametrize("cooperative", [True, False])
def test_cancel_stops_everything_and_no_thread_stays(cooperative):
    log = Log()
    entered = threading.Event()

    class Blocked(LoggingSink):
        def process(self, ordinal, batch):
            entered.set()
            return super().process(ordinal, batch)

    dag = graph(
        ("source", lambda: EndlessSource(log, cooperative)),
        ("sink", lambda: Blocked(log, cooperative)),
        edges=[("source", "sink", {"queue_items": 1})],
    )
    execution = Execution(dag, job="stop", execution_id=1, workers=2, transport=None)
    execution.open()
    ended = []
    finished = threading.Event()

    def on_finished(error):
        ended.append(error)
        finished.set()

    execution.start(EndListener(on_finished))
    assert entered.wait(10)
    execution.cancel()
    execution.cancel()
    assert finished.wait(10)
    assert execution.join(10)
    assert [type(error) for error in ended] == [JobCancelledError]
    assert len(log.of("close")) == 4
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("jetfast-stop")]


def test_a_thread_that_cannot_be_started_ends_the_execution_and_closes_everything():
    log = Log()
    dag = graph(("source", lambda: EndlessSource(log)), ("sink", lambda: LoggingSink(log)), edges=[("source", "sink")])
    execution = Execution(dag, job="test", execution_id=1, workers=2, transport=None)
    execution.open()

    def refuse():
        raise RuntimeError("can't start new thread")

    execution.workers[1].thread.start = refuse
    with pytest.raises(ResourcesError, match="needs 2 threads on member 0, but the system refused"):
        finish([execution])
    assert len(log.of("close")) == 4


def test_the_state_of_a_finished_processor_is_let_go():
    watches = []

    class Watched(Passing):
        def open(self, context):
            watches.append(weakref.ref(self))

    dag = graph(
        ("source", lambda: ScriptedSource([batch_of(1)])),
        ("pass", Watched),
        ("sink", lambda: LoggingSink(Log())),
        edges=[("source", "pass"), ("pass", "sink")],
    )
    (execution,) = run(dag)
    gc.collect()
    assert [watch() for watch in watches] == [None]
    assert execution.metrics()["vertices"]["pass"]["rows_out"] == 1


def test_cancel_before_the_start_closes_the_processors():
    log = Log()
    dag = graph(("source", lambda: EndlessSource(log)), ("sink", lambda: LoggingSink(log)), edges=[("source", "sink")])
    execution = Execution(dag, job="test", execution_id=1, workers=1, transport=None)
    execution.open()
    execution.cancel()
    assert [type(error) for _, error in log.of("close")] == [JobCancelledError] * 2
    assert execution.join(0)
    with pytest.raises(ProtocolError, match="cannot be started: it is finished"):
        execution.start(EndListener())


def test_metrics_count_rows_batches_watermarks_and_counters():
    log = Log()

    class Counting(Passing):
        def open(self, context):
            self.context = context

        def process(self, ordinal, batch):
            self.context.count("late_rows", 2)
            return (batch,)

    dag = graph(
        ("source", lambda: ScriptedSource([batch_of(1, 2), batch_of(3), Watermark(8)])),
        ("count", Counting),
        ("sink", lambda: LoggingSink(log)),
        edges=[("source", "count"), ("count", "sink")],
    )
    (execution,) = run(dag, memory_limit=1 << 20)
    metrics = execution.metrics()
    assert metrics["vertices"]["count"].pop("busy_us") > 0
    assert metrics["vertices"]["count"] == {
        "processors": 1,
        "finished": 1,
        "rows_in": 3,
        "rows_out": 3,
        "batches_in": 2,
        "batches_out": 2,
        "queued_items": 0,
        "queue_capacity": 16,
        "watermark_us": 8,
        "idle_processors": 0,
        "late_rows": 4,
    }
    assert metrics["vertices"]["source"]["watermark_us"] == 8
    assert metrics["queued_bytes"] == 0
    assert metrics["memory_limit"] == 1 << 20


def test_queues_stay_within_the_memory_limit_with_a_slow_sink():
    log = Log()
    peak = []
    script = [batch_of(*range(100)) for _ in range(200)]
    limit = 3 * script[0].nbytes

    class Slow(LoggingSink):
        def process(self, ordinal, batch):
            peak.append(executions[0].budget.used_bytes)
            return ()

    dag = graph(
        ("source", lambda: ScriptedSource(script, cooperative=False)),
        ("pass", Passing),
        ("sink", lambda: Slow(log, cooperative=False)),
        edges=[("source", "pass"), ("pass", "sink")],
    )
    executions = [Execution(dag, job="test", execution_id=1, workers=1, transport=None, memory_limit=limit)]
    executions[0].open()
    finish(executions)
    assert len(peak) == 200
    assert max(peak) <= limit + 2 * script[0].nbytes
    assert executions[0].budget.used_bytes == 0


@pytest.mark.parametrize("distributed", [False, True])
def test_a_processor_knows_the_partitions_that_its_partitioned_edge_brings(distributed):
    log = []

    class Owning(LoggingSink):
        def open(self, context):
            super().open(context)
            log.append(context.partitions)

    dag = graph(
        ("source", lambda: ScriptedSource([batch_of(1)]), {"parallelism": 1}),
        ("sink", lambda: Owning(Log()), {"parallelism": 3}),
        edges=[("source", "sink", {"routing": partitioned("value"), "distributed": distributed})],
    )
    run(dag, workers=2)
    assert sorted(log) == [tuple(range(index, 271, 3)) for index in range(3)]


def test_a_processor_without_partitioned_input_owns_no_partitions_of_its_own():
    owned = []

    class Owning(LoggingSink):
        def open(self, context):
            super().open(context)
            owned.append(context.partitions)

    source_to_sink(lambda: ScriptedSource([batch_of(1)]), Log(), sink=lambda: Owning(Log()))
    assert set(owned) == {None}


def test_a_processor_that_takes_several_batches_gets_those_with_nothing_between_them():
    log = Log()

    class Several(LoggingSink):
        def process_batches(self, ordinal, batches):
            self.log.event("several", [values_of(batch) for batch in batches])
            for batch in batches:
                self.process(ordinal, batch)
            return ()

    script = [batch_of(1), batch_of(2, 3), Watermark(5), batch_of(4), Watermark(6), batch_of(5), batch_of(6)]
    source_to_sink(lambda: ScriptedSource(script), log, workers=1, sink=lambda: Several(log))
    kinds = [event[::2] if event[0] == "watermark" else event[::3] for event in log.events]
    given = [kind for kind in kinds if kind[0] in ("rows", "watermark")]
    assert given == [
        *[("rows", [1]), ("rows", [2, 3]), ("watermark", 5)],
        *[("rows", [4]), ("watermark", 6)],
        *[("rows", [5]), ("rows", [6])],
    ]
    assert log.of("several") == [([[1], [2, 3]],), ([[5], [6]],)]
