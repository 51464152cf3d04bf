"""Whole executions with snapshots on one thread, in an order that a seed chooses; a sink that commits by snapshot."""

import random
from collections import Counter
from dataclasses import dataclass, field

import pyarrow as pa

from jetfast.core.guarantee import Guarantee
from jetfast.core.processor import BROADCAST, Processor, StateBatch
from jetfast.core.snapshot_kind import SnapshotKind
from jetfast.engine.execution import Execution
from jetfast.engine.execution_plan import make_execution_plan
from jetfast.engine.memory_snapshot_store import MemorySnapshotStore
from jetfast.engine.snapshot_store import NO_STATE, SnapshotArea, ValidationRecord
from jetfast.engine.stepping import SteppedExecution
from jetfast.engine.transport import MemoryNetwork

JOB = "test"
STEPS_MAX = 200_000


class Stuck(Exception):
    """What a test waited for did not come."""


@dataclass
class Member:
    """The listener of one member."""

    saved: dict = field(default_factory=dict)
    ended: list = field(default_factory=list)
    first_edges_read_calls: int = 0
    input_taken_calls: int = 0
    errors: list = field(default_factory=list)

    def finished(self, error):
        self.errors.append(error)

    def first_edges_read(self):
        self.first_edges_read_calls += 1

    def input_taken(self):
        self.input_taken_calls += 1

    def snapshot_saved(self, report):
        assert report.snapshot_id not in self.saved
        self.saved[report.snapshot_id] = report

    def snapshot_ended(self, snapshot_id):
        self.ended.append(snapshot_id)


class Works:
    """A state writer whose work is done when somebody says so."""

    def __init__(self):
        self.waiting = []

    def __call__(self, work):
        self.waiting.append(work)

    def do(self):
        self.waiting.pop(0)()


class Run:
    """One execution of a Dag on members of this process, stepped in an order that `seed` chooses.

    What a coordinator does is done here in the plainest way: `snapshot` performs a whole round.
    """

    def __init__(
        self,
        dag,
        *,
        store,
        execution_id=1,
        members=1,
        workers=1,
        guarantee=Guarantee.EXACTLY_ONCE,
        restore=None,
        seed=0,
        transports=None,
        **arguments,
    ):
        self.dag = dag
        self.store = store
        self.execution_id = execution_id
        self.random = random.Random(seed)
        self.members = [Member() for _ in range(members)]
        self.works = [Works() for _ in range(members)]
        if transports is None:
            network = MemoryNetwork(members)
            transports = [network.transport(member) for member in range(members)]
        plan = make_execution_plan(dag, members, workers)
        self.parallelism = {name: vertex.total for name, vertex in plan.vertices.items()}
        self.executions = [
            Execution(
                dag,
                job=JOB,
                execution_id=execution_id,
                member=member,
                member_count=members,
                workers=workers,
                transport=transports[member],
                guarantee=guarantee,
                snapshot_store=store,
                restore=restore,
                state_writer=self.works[member],
                **arguments,
            )
            for member in range(members)
        ]
        for execution in self.executions:
            execution.open()
        self.stepped = [
            SteppedExecution(execution, member) for execution, member in zip(self.executions, self.members, strict=True)
        ]
        self.last_snapshot = 0

    def tasklet(self, name):
        """The tasklet of that name, such as "sink-0"."""
        (found,) = [t for execution in self.executions for t in execution.tasklets if t.name == name]
        return found

    def step(self, *names):
        """Step one tasklet (of these names, or of all) or let a writer do one piece of work, as the seed has it."""
        running = [
            (stepped, tasklet)
            for stepped in self.stepped
            for tasklet in stepped.running
            if not names or tasklet.name in names
        ]
        works = [works for works in self.works if works.waiting]
        choice = self.random.randrange(len(running) + len(works)) if running or works else -1
        if choice >= len(running):
            works[choice - len(running)].do()
        elif choice >= 0:
            stepped, tasklet = running[choice]
            stepped.step(tasklet)
        for member in self.members:
            for error in member.errors:
                if error is not None:
                    raise error
        return choice >= 0

    def steps(self, count, *names):
        for _ in range(count):
            self.step(*names)

    def until(self, condition):
        for _ in range(STEPS_MAX):
            if condition():
                return
            self.step()
        raise Stuck([execution.metrics()["vertices"] for execution in self.executions])

    def start_snapshot(self, kind=SnapshotKind.REGULAR):
        self.last_snapshot += 1
        for execution in self.random.sample(self.executions, len(self.executions)):
            execution.start_snapshot(self.last_snapshot, kind)
            self.steps(self.random.randrange(20))  # messages do not come at one time

    def saved(self):
        return all(self.last_snapshot in member.saved for member in self.members)

    def decide(self):
        """Write what makes the snapshot count; return its area."""
        reports = [member.saved[self.last_snapshot] for member in self.members]
        assert [error for report in reports for error in report.errors] == []
        vertices = {}
        for report in reports:
            for vertex, totals in report.vertices.items():
                vertices[vertex] = vertices.get(vertex, NO_STATE) + totals
        area = SnapshotArea(self.execution_id, self.last_snapshot)
        record = ValidationRecord(area, vertices, self.executions[0].partition_count, self.parallelism)
        self.store.write_validation(JOB, record)
        return area

    def end_snapshot(self, success=True):
        for execution in self.random.sample(self.executions, len(self.executions)):
            execution.end_snapshot(self.last_snapshot, success)
            self.steps(self.random.randrange(20))
        self.until(lambda: all(self.last_snapshot in member.ended for member in self.members))

    def snapshot(self, kind=SnapshotKind.REGULAR, commit=True):
        """A whole round, or (`commit` False) one whose members crash right after the decision."""
        self.start_snapshot(kind)
        self.until(self.saved)
        area = self.decide()
        if commit:
            self.end_snapshot()
        return area

    @property
    def input_taken(self):
        return all(member.input_taken_calls for member in self.members)

    def finish(self):
        """Run to the end of input, and end with a final snapshot."""
        self.until(lambda: self.input_taken)
        area = self.snapshot(SnapshotKind.FINAL)
        self.until(lambda: all(member.errors for member in self.members))
        assert [member.errors for member in self.members] == [[None]] * len(self.members)
        assert [member.input_taken_calls for member in self.members] == [1] * len(self.members)
        return area

    def crash(self):
        """Every member is gone at once: nothing more is called, what was not stored is lost."""
        self.stepped = []


class Outside:
    """The system that CommittingSink writes to; it outlives executions."""

    def __init__(self):
        self.visible = []
        self.prepared = {}

    def rows(self):
        return Counter(self.visible)

    def commit(self, transaction):
        self.visible += self.prepared.pop(transaction, [])


class CommittingSink(Processor):
    """Makes rows visible in phase 2 of the snapshot that they belong to (EXACTLY_ONCE), or at once.

    `overlapping` False: it takes no rows while a transaction waits for its end.
    """

    def __init__(self, outside, cooperative=True, overlapping=True):
        self.outside = outside
        self.cooperative = cooperative
        self.overlapping = overlapping

    def open(self, context):
        self.context = context
        self.exactly_once = context.guarantee is Guarantee.EXACTLY_ONCE
        self.rows = []
        self.sealed = []
        self.restored = []
        self.sequence = 0

    def process(self, ordinal, batch):
        rows = [tuple(map(hashable, row.values())) for row in batch.to_arrow().to_pylist()]
        (self.rows if self.exactly_once else self.outside.visible).extend(rows)
        return ()

    def save_snapshot(self):
        if self.rows:
            self.sequence += 1
            self.sealed.append(((self.context.execution_id, self.context.index, self.sequence), self.rows))
            self.rows = []
            self.takes_input = self.overlapping
        ids = [str(transaction) for transaction, _ in self.sealed]
        return (StateBatch(BROADCAST, "transactions", pa.record_batch([pa.array(ids, pa.string())], names=["id"])),)

    def restore_snapshot(self, state):
        self.restored += state.rows.column("id").to_pylist()

    def finish_restore(self):
        for transaction in list(self.outside.prepared):
            if str(transaction) in self.restored:
                self.outside.commit(transaction)
            elif transaction[0] != self.context.execution_id:
                del self.outside.prepared[transaction]

    def prepare(self, snapshot_id):
        for transaction, rows in self.sealed:
            self.outside.prepared[transaction] = rows
        return True

    def commit(self, snapshot_id, success):
        if success:
            for transaction, _ in self.sealed:
                self.outside.commit(transaction)
            self.sealed = []
            self.takes_input = True
        return True


def hashable(value):
    return tuple(value) if isinstance(value, list) else value


def run_undisturbed(dag, outside, **arguments):
    """The rows that a Dag gives without a crash."""
    Run(dag, store=MemorySnapshotStore(), **arguments).finish()
    return outside.rows()
