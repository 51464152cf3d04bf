"""What a tasklet does at a snapshot barrier (SEMANTICS 3), with scripted sources and a chosen order of steps."""

import itertools

import pyarrow as pa
import pytest

from jetfast.core.guarantee import Guarantee
from jetfast.core.items import IDLE, Watermark
from jetfast.core.processor import BROADCAST, Processor, SourceProcessor, StateBatch
from jetfast.core.snapshot_kind import SnapshotKind
from jetfast.engine.execution import Execution
from jetfast.engine.memory_snapshot_store import MemorySnapshotStore
from jetfast.engine.snapshot_store import SnapshotArea
from jetfast.errors import JobFailedError, ProtocolError, RestartableError
from tests.engine.graphs import Log, LoggingSink, Passing, ScriptedSource, batch_of, graph, values_of
from tests.engine.rounds import CommittingSink, Outside, Run

REGULAR, TERMINAL, FINAL = SnapshotKind.REGULAR, SnapshotKind.TERMINAL, SnapshotKind.FINAL


class Told(Processor):
    """Tells a log of all that it is asked to do, and passes rows on."""

    def __init__(self, log, name="told"):
        self.log = log
        self.name = name
        self.seen = []

    def tell(self, *event):
        self.log.event(self.name, *event)

    def process(self, ordinal, batch):
        self.seen += values_of(batch)
        self.tell("rows", *values_of(batch))
        return (batch,)

    def process_barrier(self):
        self.tell("barrier")
        return ()

    def save_snapshot(self):
        self.tell("save", *self.seen)
        return (StateBatch(BROADCAST, "seen", pa.record_batch([pa.array(self.seen, pa.int64())], names=["value"])),)

    def restore_snapshot(self, state):
        self.tell("restore", *state.rows.column("value").to_pylist())
        self.seen += state.rows.column("value").to_pylist()

    def finish_restore(self):
        self.tell("restored")

    def prepare(self, snapshot_id):
        self.tell("prepare", snapshot_id)
        return True

    def commit(self, snapshot_id, success):
        self.tell("commit", snapshot_id, success)
        return True

    def complete(self):
        self.tell("complete")
        return ()


class Waiting(SourceProcessor):
    """Gives what a test puts into `items`; never ends before the test says so (None)."""

    def __init__(self, items):
        self.items = items

    def poll(self):
        if not self.items:
            return ()
        item = self.items.pop(0)
        return None if item is None else (item,)


def pipeline(*steps, source=None, log=None):
    """source -> steps -> sink, one after the other; steps are suppliers."""
    names = ["source", *(f"step{number}" for number in range(len(steps))), "sink"]
    suppliers = [source, *steps, lambda: LoggingSink(log or Log())]
    return graph(*zip(names, suppliers, strict=True), edges=list(itertools.pairwise(names)))


def run(dag, **arguments):
    return Run(dag, store=MemorySnapshotStore(), **arguments)


def settle(run, count=200):
    """Step often enough that whatever can happen has happened."""
    run.steps(count)


def test_what_process_barrier_gives_leaves_ahead_of_the_barrier_and_the_state_is_saved_after_it():
    log, items = Log(), [batch_of(1)]

    class Flushing(Told):
        def process(self, ordinal, batch):
            self.seen += values_of(batch)
            return ()

        def process_barrier(self):
            for value in self.seen:
                yield batch_of(value)
            self.seen = []
            self.tell("flushed")

    job = run(pipeline(lambda: Flushing(log), lambda: Told(log, "next"), source=lambda: Waiting(items)))
    settle(job)
    job.snapshot()
    assert log.of("told")[-4:] == [("flushed",), ("save",), ("prepare", 1), ("commit", 1, True)]
    assert ("save", 1) in log.of("next")


def test_state_is_never_saved_inside_a_half_emitted_result():
    log, items = Log(), [batch_of(1), batch_of(2)]

    class Many(Told):
        def process(self, ordinal, batch):
            for number in range(30):
                self.tell("gives", number)
                yield batch_of(number)

    dag = graph(
        ("source", lambda: Waiting(items)),
        ("many", lambda: Many(log)),
        ("sink", lambda: LoggingSink(Log())),
        edges=[("source", "many"), ("many", "sink", {"queue_items": 1})],
    )
    job = run(dag, seed=3)
    job.steps(40, "source-0", "many-0")  # the sink takes nothing: the output is half taken
    given = len(log.of("told"))
    assert 0 < given < 60
    job.start_snapshot()
    job.until(job.saved)
    events = log.of("told")
    assert len([event for event in events if event[0] == "gives"][: events.index(("barrier",))]) in (30, 60)


def test_a_barrier_leaves_as_soon_as_the_state_is_frozen_and_input_goes_on_before_it_is_stored():
    log, items = Log(), [batch_of(1)]
    dag = pipeline(lambda: Told(log, "first"), lambda: Told(log, "second"), source=lambda: Waiting(items))
    job = run(dag)
    settle(job)
    (works,) = job.works
    names = ["source-0", "step0-0", "step1-0", "sink-0"]
    job.executions[0].start_snapshot(1, REGULAR)
    items.append(batch_of(2))
    for _ in range(100):
        for stepped in job.stepped:
            for name in names:
                stepped.step(job.tasklet(name))
    assert len(works.waiting) == 4
    assert log.of("first")[-2:] == [("save", 1), ("rows", 2)]
    assert log.of("second")[-2:] == [("save", 1), ("rows", 2)]
    job.last_snapshot = 1
    job.until(job.saved)
    assert log.of("first")[-1] == ("prepare", 1)


def test_prepare_comes_after_the_state_is_stored_and_is_asked_again_until_it_is_done():
    log, answers, items = Log(), [False, False, True], []
    store = MemorySnapshotStore()

    class Slow(Told):
        def prepare(self, snapshot_id):
            stored = [entry.kind for entry in store.read_files("test", SnapshotArea(1, 1), "step0")]
            self.tell("prepare", stored)
            return answers.pop(0)

    job = Run(pipeline(lambda: Slow(log), source=lambda: Waiting(items)), store=store)
    settle(job)
    job.snapshot()
    assert [event for event in log.of("told") if event[0] == "prepare"] == [("prepare", ["seen"])] * 3
    assert answers == []


def test_commit_is_asked_again_until_it_is_done():
    answers = [False, False, True]

    class Slow(Passing):
        def commit(self, snapshot_id, success):
            return answers.pop(0)

    job = run(pipeline(Slow, source=lambda: Waiting([])))
    job.snapshot()
    assert answers == []


@pytest.mark.parametrize("where", ["save_snapshot", "prepare"])
def test_an_error_in_phase_1_is_a_flag_and_stops_nothing(where):
    log, items = Log(), [batch_of(1)]

    class Failing(Told):
        pass

    def fail(self, *arguments):
        raise OSError("disk full")

    setattr(Failing, where, fail)
    job = run(pipeline(lambda: Failing(log), lambda: Told(log, "next"), source=lambda: Waiting(items)))
    settle(job)
    job.start_snapshot()
    job.until(job.saved)
    (error,) = job.members[0].saved[1].errors
    assert "step 'step0', processor 0" in error
    assert "OSError: disk full" in error
    assert ("save", 1) in log.of("next"), "the barrier went on"
    job.end_snapshot(success=False)
    assert log.of("told")[-1] == ("commit", 1, False)
    assert log.of("next")[-1] == ("commit", 1, False)
    items.append(batch_of(2))
    settle(job)
    assert ("rows", 2) in log.of("next")


@pytest.mark.parametrize("kind", [JobFailedError, RestartableError])
def test_a_sink_that_could_not_flush_ends_the_execution_when_the_round_is_over(kind):
    log = Log()

    class Failing(Told):
        def save_snapshot(self):
            raise kind("sink: cannot flush")

    job = run(pipeline(lambda: Failing(log), lambda: Told(log, "next"), source=lambda: Waiting([batch_of(1)])))
    settle(job)
    job.start_snapshot()
    job.until(job.saved)
    assert job.members[0].saved[1].errors == [
        f"step 'step0', processor 0: its state could not be saved: {kind.__name__}: sink: cannot flush"
    ]
    assert ("save", 1) in log.of("next"), "the barrier went on"
    with pytest.raises(kind, match="sink: cannot flush"):
        job.end_snapshot(success=False)


def test_what_could_not_be_stored_is_not_prepared():
    log = Log()

    class Full(MemorySnapshotStore):
        def write_file(self, *arguments, **named):
            raise OSError("disk full")

    job = Run(pipeline(lambda: Told(log), source=lambda: Waiting([])), store=Full())
    job.start_snapshot()
    job.until(job.saved)
    assert job.members[0].saved[1].errors == ["step 'step0', processor 0: its state was not stored: OSError: disk full"]
    assert not [event for event in log.of("told") if event[0] == "prepare"]


def test_an_error_in_phase_2_ends_the_execution_and_names_step_and_snapshot():
    class Failing(Passing):
        def commit(self, snapshot_id, success):
            raise OSError("gone")

    job = run(pipeline(Failing, source=lambda: Waiting([])))
    with pytest.raises(JobFailedError, match=r"step 'step0' failed in phase 2 of snapshot 1 on member 0.*gone"):
        job.snapshot()


def test_after_a_terminal_barrier_nothing_is_read_flushed_or_emitted_and_the_end_is_not_sent():
    log, items = Log(), [batch_of(1)]
    job = run(pipeline(lambda: Told(log), source=lambda: Waiting(items), log=log))
    settle(job)
    job.start_snapshot(TERMINAL)
    job.until(job.saved)
    items += [batch_of(2), None]
    settle(job)
    assert log.of("told") == [("restored",), ("rows", 1), ("barrier",), ("save", 1), ("prepare", 1)]
    job.decide()
    job.end_snapshot()
    job.until(lambda: job.members[0].errors)
    assert job.members[0].errors == [None]
    assert log.of("told")[-1] == ("commit", 1, True)
    assert not log.of("complete")
    assert len(items) == 2


def test_a_terminal_round_that_fails_leaves_the_tasklets_waiting():
    items = []
    job = run(pipeline(Passing, source=lambda: Waiting(items)))
    job.start_snapshot(TERMINAL)
    job.until(job.saved)
    job.end_snapshot(success=False)
    items.append(batch_of(2))
    settle(job)
    assert job.members[0].errors == []
    assert len(items) == 1


def test_a_processor_that_has_ended_stays_for_later_rounds_with_its_final_state():
    log = Log()
    short, long = [batch_of(1), None], [batch_of(2)]
    dag = graph(
        ("short", lambda: Waiting(short)),
        ("long", lambda: Waiting(long)),
        ("ended", lambda: Told(log)),
        ("sink", lambda: LoggingSink(log)),
        edges=[("short", "ended"), ("ended", "sink"), ("long", "sink", {"ordinal": 1})],
    )
    job = run(dag)
    settle(job)
    assert log.of("told")[-1] == ("complete",)
    for number in (1, 2):
        job.snapshot()
        assert log.of("told")[-3:] == [("save", 1), ("prepare", number), ("commit", number, True)]
    assert ("barrier",) not in log.of("told")
    long.append(None)
    job.finish()


def test_a_processor_whose_inputs_all_end_without_the_barrier_saves_by_itself():
    log = Log()
    short, long = [batch_of(1)], [batch_of(2)]
    dag = graph(
        ("short", lambda: Waiting(short)),
        ("long", lambda: Waiting(long)),
        ("told", lambda: Told(log)),
        ("sink", lambda: LoggingSink(log)),
        edges=[("short", "told"), ("told", "sink"), ("long", "sink", {"ordinal": 1})],
    )
    job = run(dag)
    settle(job)
    short.append(None)
    job.steps(50, "short-0")  # its end is on its way
    job.snapshot()
    assert log.of("told") == [
        ("restored",),
        ("rows", 1),
        ("complete",),
        ("save", 1),
        ("prepare", 1),
        ("commit", 1, True),
    ]


def test_nothing_ends_before_phase_2_of_a_final_snapshot_that_has_succeeded():
    log = Log()
    job = run(pipeline(lambda: Told(log), source=lambda: ScriptedSource([batch_of(1)])))
    job.until(lambda: job.input_taken)
    settle(job)
    assert job.members[0].errors == []
    job.start_snapshot(FINAL)
    job.until(job.saved)
    job.end_snapshot(success=False)
    settle(job)
    assert job.members[0].errors == []
    job.finish()
    assert [event for event in log.of("told") if event[0] == "commit"] == [("commit", 1, False), ("commit", 2, True)]


def test_a_snapshot_waits_until_edges_of_higher_priority_are_finished():
    log, build, probe = Log(), [batch_of(1)], [batch_of(2)]
    dag = graph(
        ("build", lambda: Waiting(build)),
        ("prepared", Passing),
        ("probe", lambda: Waiting(probe)),
        ("join", lambda: Told(log)),
        ("sink", lambda: LoggingSink(log)),
        edges=[
            ("build", "prepared"),
            ("prepared", "join"),
            ("probe", "join", {"ordinal": 1, "priority": 1}),
            ("join", "sink"),
        ],
    )
    job = run(dag)
    job.start_snapshot()
    settle(job, 500)
    assert log.of("told") == [("restored",), ("rows", 1)]
    assert job.executions[0].snapshots.waits_for_edges
    build.append(None)
    job.until(job.saved)
    assert log.of("told") == [("restored",), ("rows", 1), ("rows", 2), ("barrier",), ("save", 1, 2), ("prepare", 1)]


def test_a_sink_whose_transactions_are_all_in_use_takes_no_rows_and_the_round_still_ends():
    outside, items = Outside(), [batch_of(1)]
    dag = graph(
        ("source", lambda: Waiting(items)),
        ("step", Passing),
        ("sink", lambda: CommittingSink(outside, overlapping=False)),
        edges=[("source", "step", {"queue_items": 1}), ("step", "sink", {"queue_items": 1})],
    )
    job = run(dag)
    settle(job)
    job.start_snapshot()
    items += [batch_of(value) for value in range(2, 20)]
    job.until(job.saved)
    settle(job, 500)
    assert outside.visible == []
    job.decide()
    job.end_snapshot()
    assert outside.visible == [(1, 1)]
    job.snapshot()
    items.append(None)
    job.finish()
    assert sorted(outside.visible) == [(value, value) for value in range(1, 20)]


def test_prepare_and_commit_do_not_wait_for_room_downstream():
    items = []
    answered = []

    class Full(Passing):
        def process(self, ordinal, batch):
            for number in range(100):
                yield batch_of(number)

        def prepare(self, snapshot_id):
            answered.append("prepared")
            return True

    dag = graph(
        ("source", lambda: Waiting(items)),
        ("full", Full),
        ("sink", lambda: CommittingSink(Outside(), overlapping=False)),
        edges=[("source", "full"), ("full", "sink", {"queue_items": 1})],
    )
    job = run(dag)
    job.executions[0].start_snapshot(1, REGULAR)
    job.last_snapshot = 1
    for _ in range(20):
        job.stepped[0].step(job.tasklet("source-0"))
        job.stepped[0].step(job.tasklet("full-0"))
    items.append(batch_of(1))
    for _ in range(20):
        job.stepped[0].step(job.tasklet("source-0"))
        job.stepped[0].step(job.tasklet("full-0"))
    assert job.tasklet("full-0").busy, "it stands inside a result, and nobody reads it"
    while job.works[0].waiting:
        job.works[0].do()
    job.stepped[0].step(job.tasklet("full-0"))
    assert answered == ["prepared"]


def test_rows_that_leave_ahead_of_a_barrier_while_all_inputs_are_idle_are_followed_by_idle_again():
    log = Log()

    class Late(Passing):
        def process_barrier(self):
            yield batch_of(7)

    items = [Watermark(5), IDLE]
    job = run(pipeline(Late, source=lambda: Waiting(items), log=log))
    settle(job)
    job.snapshot()
    settle(job)
    told = [event for event in log.events if event[0] in ("rows", "idle", "watermark")]
    assert [event[0] for event in told] == ["watermark", "idle", "rows", "idle"]


def test_a_wrong_order_of_rounds_is_an_error():
    job = run(pipeline(source=lambda: Waiting([])))
    job.snapshot()
    with pytest.raises(ProtocolError, match="snapshot 7 cannot end: the last one that has begun here is 1"):
        job.executions[0].end_snapshot(7, True)
    job.executions[0].end_snapshot(1, True)  # a message that comes twice
    assert job.members[0].ended == [1]


def test_without_a_guarantee_there_are_no_snapshots():
    dag = pipeline(source=lambda: Waiting([]))
    execution = Execution(dag, job="test", execution_id=1, workers=1, transport=None)
    with pytest.raises(ProtocolError, match="no guarantee"):
        execution.start_snapshot(1)
    with pytest.raises(ProtocolError, match="need each other"):
        Execution(dag, job="test", execution_id=1, workers=1, transport=None, guarantee=Guarantee.EXACTLY_ONCE)


def test_a_member_without_processors_answers_as_the_others_do():
    items = [batch_of(1), None]
    dag = graph(
        ("source", lambda: Waiting(items), {"total_parallelism_one": True}),
        ("sink", lambda: LoggingSink(Log()), {"total_parallelism_one": True}),
        edges=[("source", "sink")],
    )
    job = run(dag, members=2)
    assert job.members[1].input_taken_calls == 1
    job.snapshot()
    job.finish()
    assert job.members[1].ended == [1, 2]


def test_a_barrier_of_another_member_may_come_before_the_round_was_started_here():
    log = Log()
    dag = graph(
        ("source", lambda: Waiting([]), {"total_parallelism_one": True}),
        ("sink", lambda: Told(log)),
        edges=[("source", "sink", {"distributed": True})],
    )
    job = run(dag, members=2)
    job.executions[0].start_snapshot(1, REGULAR)
    settle(job)
    job.last_snapshot = 1
    assert job.saved()
    job.executions[1].start_snapshot(1, REGULAR)
    settle(job)
    job.end_snapshot()
    assert log.of("told").count(("commit", 1, True)) == 2
