"""Executions with snapshots: threads, sockets, what is restored to whom, and what a snapshot waits for."""

import queue
import socket

import numpy as np
import pyarrow as pa
import pytest

import jetfast as jf
from jetfast.core.dag import Vertex
from jetfast.core.guarantee import Guarantee
from jetfast.core.items import Watermark
from jetfast.core.processor import BROADCAST, Processor, StateBatch
from jetfast.core.routing import BROADCAST as TO_ALL
from jetfast.core.routing import partitioned
from jetfast.core.snapshot_kind import SnapshotKind
from jetfast.engine.execution import Execution
from jetfast.engine.memory_snapshot_store import MemorySnapshotStore
from jetfast.engine.snapshot_store import SnapshotArea, SnapshotDamaged, ValidationRecord
from jetfast.engine.socket_transport import SocketTransport
from jetfast.errors import JobFailedError, ProtocolError
from tests.engine.graphs import EndlessSource, Log, LoggingSink, Passing, batch_of, graph, values_of
from tests.engine.rounds import CommittingSink, Outside, Run
from tests.engine.test_barriers_restore import PIPELINES, plan, rows, undisturbed
from tests.engine.test_barriers_tasklet import Told, Waiting

PATIENCE_S = 30


class Mailbox:
    """A listener that keeps what it is told, for a test that waits."""

    def __init__(self):
        self.told = queue.Queue()

    def finished(self, error):
        self.told.put(("finished", error))

    def first_edges_read(self):
        self.told.put(("first edges read",))

    def input_taken(self):
        self.told.put(("input taken",))

    def snapshot_saved(self, report):
        self.told.put(("saved", report))

    def snapshot_ended(self, snapshot_id):
        self.told.put(("ended", snapshot_id))

    def take(self, kind):
        told = self.told.get(timeout=PATIENCE_S)
        assert told[0] == kind, told
        return told[1:]


@pytest.mark.parametrize("cooperative", [True, False])
def test_on_threads_of_workers_and_of_processors_that_block_rounds_go_as_on_one_thread(cooperative):
    outside, store = Outside(), MemorySnapshotStore()
    items = [batch_of(value) for value in range(50)]

    class Blocking(Waiting):
        pass

    Blocking.cooperative = cooperative
    dag = graph(
        ("source", lambda: Blocking(items), {"parallelism": 1}),
        ("step", Passing),
        ("sink", lambda: CommittingSink(outside, cooperative, overlapping=False)),
        edges=[("source", "step"), ("step", "sink")],
    )
    execution = Execution(
        dag,
        job="test",
        execution_id=1,
        workers=2,
        transport=None,
        guarantee=Guarantee.EXACTLY_ONCE,
        snapshot_store=store,
    )
    execution.open()
    listener = Mailbox()
    execution.start(listener)
    for number in (1, 2, 3):
        execution.start_snapshot(number)
        (report,) = listener.take("saved")
        assert report.errors == []
        execution.end_snapshot(number, True)
        assert listener.take("ended") == (number,)
    items.append(None)
    listener.take("input taken")
    execution.start_snapshot(4, SnapshotKind.FINAL)
    listener.take("saved")
    execution.end_snapshot(4, True)
    assert listener.take("ended") == (4,)
    assert listener.take("finished") == (None,)
    assert execution.join(PATIENCE_S)
    assert sorted(outside.visible) == [(value, value) for value in range(50)]


def test_an_execution_with_snapshots_is_cancelled_at_any_time_and_leaves_no_thread():
    dag = graph(("source", EndlessSource), ("sink", lambda: LoggingSink(Log())), edges=[("source", "sink")])
    execution = Execution(
        dag,
        job="test",
        execution_id=1,
        workers=1,
        transport=None,
        guarantee=Guarantee.AT_LEAST_ONCE,
        snapshot_store=MemorySnapshotStore(),
    )
    execution.open()
    listener = Mailbox()
    execution.start(listener)
    execution.start_snapshot(1)
    listener.take("saved")
    execution.cancel()
    (error,) = listener.take("finished")
    assert "was cancelled" in str(error)
    assert execution.join(PATIENCE_S)


def test_barriers_cross_sockets_between_members():
    make, two_stage = PIPELINES["windows in two stages"]
    outside, store = Outside(), MemorySnapshotStore()
    area = None
    for execution_id in (1, 2):
        ends = socket.socketpair()
        transports = [SocketTransport(0, {1: ends[0]}), SocketTransport(1, {0: ends[1]})]
        dag = plan(make(0), outside, 2, 1, two_stage)
        run = Run(
            dag,
            store=store,
            members=2,
            execution_id=execution_id,
            restore=area,
            seed=execution_id,
            transports=transports,
        )
        if execution_id == 1:
            run.steps(100)
            area = run.snapshot()
            run.steps(100)
            run.crash()
        else:
            run.finish()
        for transport in transports:
            transport.close()
    assert outside.rows() == undisturbed(make, 0)


# ---- what is restored to whom


class Keeper(Processor):
    """Keeps each row under the partition that is its value; `log` learns of what it is given back, and counts."""

    def __init__(self, log):
        self.log = log
        self.kept = {}

    def open(self, context):
        self.context = context

    def process(self, ordinal, batch):
        for value in values_of(batch):
            self.kept.setdefault(value % self.context.partition_count, []).append(value)
        self.context.count("kept_rows", batch.row_count)
        return ()

    def save_snapshot(self):
        for partition, values in self.kept.items():
            yield StateBatch(partition, "kept", pa.record_batch({"value": values}))
        yield StateBatch(BROADCAST, "who", pa.record_batch({"index": [self.context.index]}))

    def restore_snapshot(self, state):
        index = self.context.index
        if state.kind == "who":
            self.log.event("who", index, state.rows.column("index")[0].as_py())
            return
        self.log.event("kept", index, state.partition)
        self.kept.setdefault(state.partition, []).extend(state.rows.column("value").to_pylist())


def keep(log, items, **edge):
    edges = [("source", "keeper", edge)]
    dag = graph(("source", lambda: Waiting(list(items))), ("keeper", lambda: Keeper(log)), edges=edges)
    dag.vertices["source"] = Vertex("source", dag.vertices["source"].supplier, total_parallelism_one=True)
    return dag


def test_state_of_a_partition_goes_to_its_owner_and_broadcast_state_to_all():
    store = MemorySnapshotStore()
    items = [batch_of(value) for value in range(30)]
    edge = {"routing": partitioned("key"), "distributed": True}
    first = Run(keep(Log(), items, **edge), store=store, members=2, workers=2)
    first.steps(2000)
    area = first.snapshot()
    saved = [entry for entry in store.read_files("test", area, "keeper") if entry.kind == "kept"]
    assert sorted(partition for entry in saved for partition in entry.partitions) == list(range(30))
    log = Log()
    second = Run(keep(log, [], **edge), store=store, members=3, execution_id=2, restore=area)
    second.steps(200)
    owners = {t.context.index: set(t.context.partitions) for e in second.executions for t in e.tasklets if t.inbound}
    assert sorted(partition for _, partition in log.of("kept")) == list(range(30))
    assert all(partition in owners[index] for index, partition in log.of("kept"))
    assert sorted(log.of("who")) == [(new, old) for new in range(3) for old in range(4)]


@pytest.mark.parametrize("distributed", [False, True])
def test_state_of_processors_that_own_no_partition_goes_to_exactly_one_of_them(distributed):
    store = MemorySnapshotStore()
    edge = {"routing": TO_ALL, "distributed": distributed}
    first = Run(keep(Log(), [batch_of(*range(10))], **edge), store=store, members=1, workers=1)
    first.steps(200)
    area = first.snapshot()
    log = Log()
    sizes = {"members": 2, "workers": 2} if distributed else {"members": 1, "workers": 3}
    second = Run(keep(log, [], **edge), store=store, execution_id=2, restore=area, **sizes)
    second.steps(300)
    assert sorted(log.of("kept")) == sorted(
        (partition % len(second.executions[0].tasklets[1:]) if not distributed else partition % 4, partition)
        for partition in range(10)
    )


def test_state_behind_an_edge_that_stays_in_each_member_is_not_doubled():
    store = MemorySnapshotStore()

    def make(log, items):
        return graph(
            ("source", lambda: Waiting(items)),
            ("keeper", lambda: Keeper(log)),
            edges=[("source", "keeper", {"routing": partitioned("key")})],
        )

    first = Run(make(Log(), [batch_of(*range(10))]), store=store, members=1)
    first.steps(200)
    area = first.snapshot()
    log = Log()
    second = Run(make(log, []), store=store, members=2, workers=2, execution_id=2, restore=area)
    second.steps(300)
    assert sorted(partition for _, partition in log.of("kept")) == list(range(10))
    owned = {t.context.index: set(t.context.partitions) for e in second.executions for t in e.tasklets if t.inbound}
    assert all(partition in owned[index] for index, partition in log.of("kept"))


def test_counters_go_on_once_whatever_the_number_of_processors():
    store = MemorySnapshotStore()
    edge = {"routing": partitioned("key"), "distributed": True}
    area = None
    for execution_id, members in ((1, 2), (2, 3), (3, 1)):
        items = [batch_of(value) for value in range(10)]
        run = Run(keep(Log(), items, **edge), store=store, members=members, execution_id=execution_id, restore=area)
        run.steps(1500)
        counted = [execution.metrics()["vertices"]["keeper"].get("kept_rows", 0) for execution in run.executions]
        assert sum(counted) == 10 * execution_id
        area = run.snapshot()


class Total(Told):
    """Gives a sum at the end: twice, if it were asked twice."""

    def complete(self):
        self.tell("complete")
        return (batch_of(sum(self.seen)),)


def total_beside_a_long_source(log, short, long):
    one = {"parallelism": 1}
    return graph(
        ("short", lambda: Waiting(short), one),
        ("total", lambda: Total(log), one),
        ("long", lambda: Waiting(long)),
        ("sink", lambda: Told(log, "sink"), one),
        edges=[("short", "total"), ("total", "sink"), ("long", "sink", {"ordinal": 1})],
    )


@pytest.mark.parametrize("workers", [1, 2])
def test_a_processor_that_had_ended_is_restored_as_ended_and_sends_its_end_again(workers):
    log, store = Log(), MemorySnapshotStore()
    first = Run(total_beside_a_long_source(log, [batch_of(1), batch_of(2), None], []), store=store)
    first.steps(300)
    assert ("rows", 3) in log.of("sink")
    area = first.snapshot()
    log.events.clear()
    dag = total_beside_a_long_source(log, [None], [batch_of(9), None, None])
    Run(dag, store=store, execution_id=2, restore=area, workers=workers).finish()
    assert log.of("told")[:2] == [("restore", 1, 2), ("restored",)]
    assert ("complete",) not in log.of("told")
    assert [event for event in log.of("sink") if event[0] == "rows"] == [("rows", 9)]


def test_exactly_once_rows_for_a_processor_that_was_restored_as_ended_are_an_error():
    store = MemorySnapshotStore()
    first = Run(total_beside_a_long_source(Log(), [None], []), store=store)
    first.steps(300)
    area = first.snapshot()
    dag = total_beside_a_long_source(Log(), [batch_of(1), None], [])
    second = Run(dag, store=store, execution_id=2, restore=area)
    with pytest.raises(ProtocolError, match="step 'total-0' was restored as finished, but rows come in"):
        second.steps(300)


def test_an_ended_vertex_of_another_parallelism_is_restored_as_ended_if_all_its_processors_were():
    log, store = Log(), MemorySnapshotStore()

    def make(workers):
        return graph(
            ("short", lambda: Waiting([None])),
            ("told", lambda: Told(log)),
            ("long", lambda: Waiting([])),
            ("sink", lambda: LoggingSink(Log())),
            edges=[("short", "told"), ("told", "sink"), ("long", "sink", {"ordinal": 1})],
        )

    first = Run(make(2), store=store, workers=2)
    first.steps(400)
    area = first.snapshot()
    log.events.clear()
    second = Run(make(3), store=store, workers=3, execution_id=2, restore=area)
    second.steps(400)
    assert ("complete",) not in log.of("told")
    assert all(second.tasklet(f"told-{index}").done_sent for index in range(3))


def test_a_vertex_of_which_some_processors_had_not_ended_gets_its_end_from_its_inputs_elsewhere():
    log, store = Log(), MemorySnapshotStore()
    scripts = [[None], []]

    def make(scripts):
        scripts = iter(scripts)
        return graph(
            ("source", lambda: Waiting(next(scripts))),
            ("told", lambda: Told(log)),
            edges=[("source", "told", {"routing": jf.core.routing.ISOLATED})],
        )

    first = Run(make(scripts), store=store, workers=2)
    first.steps(300)
    assert [first.tasklet(f"told-{index}").done_sent for index in range(2)] == [True, False]
    area = first.snapshot()
    log.events.clear()
    second = Run(make([[None], [None], [None]]), store=store, workers=3, execution_id=2, restore=area)
    second.finish()
    assert log.of("told").count(("complete",)) == 3


def test_state_by_partition_is_refused_with_another_number_of_key_partitions():
    store = MemorySnapshotStore()
    dag = keep(Log(), [batch_of(1)], routing=partitioned("key"))
    first = Run(dag, store=store)
    first.steps(100)
    run = Run(dag, store=store, execution_id=2, restore=first.snapshot(), partition_count=17)
    with pytest.raises(JobFailedError, match=r"snapshot 1-1 .* has 271 key partitions, the cluster 17, and step"):
        run.steps(50)


def test_a_snapshot_without_its_record_is_refused():
    with pytest.raises(SnapshotDamaged, match="no validation record"):
        Run(keep(Log(), []), store=MemorySnapshotStore(), restore=SnapshotArea(1, 1))


def test_an_error_while_state_is_restored_names_step_and_processor():
    store = MemorySnapshotStore()
    area = Run(keep(Log(), [batch_of(1)]), store=store).snapshot()

    class Another(Keeper):
        def restore_snapshot(self, state):
            raise ValueError("this is not mine")

    dag = keep(Log(), [])
    dag.vertices["keeper"] = Vertex("keeper", lambda: Another(Log()))
    run = Run(dag, store=store, execution_id=2, restore=area)
    with pytest.raises(JobFailedError, match=r"step 'keeper' failed when its state was restored on member 0.*not mine"):
        run.steps(50)


def test_vertices_that_a_snapshot_does_not_know_start_empty():
    store = MemorySnapshotStore()
    store.write_validation("test", ValidationRecord(SnapshotArea(1, 1), {}, 271, {}))
    log = Log()
    Run(keep(log, [batch_of(1)]), store=store, execution_id=2, restore=SnapshotArea(1, 1)).steps(100)
    assert log.of("who") == []


# ---- event time


def test_after_a_restore_the_restored_watermark_comes_once_and_first_and_nothing_at_or_below_it_again():
    store = MemorySnapshotStore()
    data = rows(3, partitions=3)

    def make(log):
        pipeline = jf.Pipeline("times")
        source = jf.memory(partitions=data, batch_rows=3)
        stage = pipeline.read(source, name="rows").with_event_time("time", jf.watermarks.fixed_lag("30us"))
        stage.where(jf.col("value") >= 0).write(jf.files("unused", format="parquet"))
        dag = pipeline.plan(member_count=1, workers=1, two_stage=False)
        (sink,) = [name for name in dag.vertices if not dag.outbound(name)]
        dag.vertices[sink] = Vertex(sink, lambda: WatermarkLog(log))
        return dag

    class WatermarkLog(Processor):
        def __init__(self, log):
            self.log = log

        def process(self, ordinal, batch):
            self.log.event("rows")
            return ()

        def process_watermark(self, watermark):
            self.log.event("watermark", watermark)
            return ()

    before = Log()
    first = Run(make(before), store=store)
    first.until(lambda: len(before.of("watermark")) > 5)
    area = first.snapshot(SnapshotKind.TERMINAL)
    reached = before.of("watermark")[-1][0]
    after = Log()
    Run(make(after), store=store, execution_id=2, restore=area).finish()
    watermarks = [value for (value,) in after.of("watermark")]
    assert after.events[0] == ("watermark", watermarks[0])
    assert watermarks[0] == reached
    assert watermarks == sorted(set(watermarks))


# ---- transactions only


def test_an_execution_that_only_settles_restores_who_commits_and_reads_nothing():
    outside, store, log = Outside(), MemorySnapshotStore(), Log()
    items = [batch_of(1)]

    def make():
        return graph(
            ("source", lambda: Waiting(items)),
            ("told", Untold),
            ("sink", lambda: CommittingSink(outside)),
            edges=[("source", "told"), ("told", "sink")],
        )

    class Untold(Passing):
        def open(self, context):
            log.event("opened")

    first = Run(make(), store=store)
    first.steps(100)
    area = first.snapshot(commit=False)
    items.append(batch_of(2))
    first.steps(100)
    first.start_snapshot()  # prepares what is never decided
    first.until(first.saved)
    first.crash()
    log.events.clear()
    items.append(batch_of(3))
    assert len(outside.prepared) == 2
    second = Run(make(), store=store, execution_id=2, restore=area, settle_only=True)
    second.until(lambda: second.members[0].errors)
    assert second.members[0].errors == [None]
    assert second.members[0].input_taken_calls == 0
    assert outside.visible == [(1, 1)]
    assert outside.prepared == {}
    assert log.of("opened") == []
    assert len(items) == 1


# ---- what it waits for


def waits(run):
    (execution,) = run.executions
    told = execution.metrics()["snapshot"]
    return [] if told is None else [f"{wait['step']} waits for {wait['for']}" for wait in told["waits"]]


def test_metrics_say_which_processor_and_which_input_a_snapshot_waits_for():
    dag = graph(
        ("left", lambda: Waiting([])),
        ("right", lambda: Waiting([])),
        ("both", Passing),
        ("sink", lambda: LoggingSink(Log())),
        edges=[("left", "both"), ("right", "both", {"ordinal": 1}), ("both", "sink")],
    )
    run = Run(dag, store=MemorySnapshotStore())
    assert waits(run) == []
    run.executions[0].start_snapshot(1)
    run.last_snapshot = 1
    for name in ("left-0", "left-0", "both-0"):
        run.stepped[0].step(run.tasklet(name))
    assert waits(run) == [
        "left-0 waits for its state to be stored",
        "right-0 waits for its turn",
        "both-0 waits for barriers of right-0",
        "sink-0 waits for barriers of both-0",
    ]
    run.until(run.saved)
    assert waits(run) == []
    run.executions[0].end_snapshot(1, True)
    assert set(waits(run)) == {
        f"{name}-0 waits for its transactions to be committed" for name in ("left", "right", "both", "sink")
    }


def test_metrics_say_that_a_snapshot_waits_for_an_edge_that_is_read_before_others():
    dag = graph(
        ("build", lambda: Waiting([])),
        ("probe", lambda: Waiting([])),
        ("join", Passing),
        edges=[("build", "join"), ("probe", "join", {"ordinal": 1, "priority": 1})],
    )
    run = Run(dag, store=MemorySnapshotStore())
    run.executions[0].start_snapshot(1)
    run.steps(100)
    assert waits(run)[:2] == [
        "build-0 waits for edges that must be done before others are read",
        "probe-0 waits for edges that must be done before others are read",
    ]


def test_the_pause_and_the_alignment_of_the_slowest_processor_are_reported():
    clock = np.array([0])

    class Slow(Passing):
        def save_snapshot(self):
            clock[0] += 700
            return ()

    items = [Watermark(1)]
    dag = graph(
        ("left", lambda: Waiting(items)),
        ("right", lambda: Waiting([])),
        ("slow", Slow),
        edges=[("left", "slow"), ("right", "slow", {"ordinal": 1})],
    )
    run = Run(dag, store=MemorySnapshotStore(), now_us=lambda: int(clock[0]))
    run.executions[0].start_snapshot(1)
    run.last_snapshot = 1
    for name in ("left-0", "left-0", "slow-0", "slow-0"):
        run.stepped[0].step(run.tasklet(name))
    clock[0] = 250
    run.until(run.saved)
    report = run.members[0].saved[1]
    assert (report.align_us, report.pause_us) == (250, 700)
