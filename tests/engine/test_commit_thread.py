"""Phase 2 of a sink that blocks never waits behind a write of that sink; its errors end the execution at once."""

import threading
from dataclasses import dataclass

import pytest

from jetfast.core.guarantee import Guarantee
from jetfast.core.snapshot_kind import SnapshotKind
from jetfast.engine.execution import Execution
from jetfast.engine.memory_snapshot_store import MemorySnapshotStore
from jetfast.errors import DataLostError, RestartableError
from jetfast.processors.sink import WriteSink
from jetfast.testing import TransactionalMemory
from jetfast.testing.transactional_memory import TransactionalMemoryWriter
from tests.engine.graphs import SCHEMA, batch_of, graph
from tests.engine.test_barriers_execution import PATIENCE_S, Mailbox
from tests.engine.test_barriers_tasklet import Waiting


class LockingSystem:
    """A write waits until nothing is prepared, as behind a statement of another user that waits for prepared locks."""

    def __init__(self):
        self.memory = TransactionalMemory.named()
        self.changed = threading.Condition()
        self.blocked = threading.Event()
        """Set when a write has found that it must wait."""
        self.released = False
        self.writers = []
        self.error = None
        """What a commit raises."""

    def wait_for_locks(self):
        def prepared():
            return any(stored.prepared for stored in self.memory.transactions.values())

        with self.changed:
            if prepared():
                self.blocked.set()
            if not self.changed.wait_for(lambda: self.released or not prepared(), PATIENCE_S):
                raise RestartableError("the write waits for the commit, and the commit for the write")

    def release(self):
        with self.changed:
            self.released = True
            self.changed.notify_all()


@dataclass(frozen=True)
class LockingSink:
    system: LockingSystem
    name = "locking"
    cooperative = False
    parallelism_one = False
    sink_delivery = TransactionalMemory.named().sink().sink_delivery

    def open_transactions(self, schema, context):
        return LockingWriter(self.system, context.execution_id)


class LockingWriter(TransactionalMemoryWriter):
    """Belongs to the thread that opens it."""

    def __init__(self, system, execution_id):
        super().__init__(system.memory, execution_id)
        self.locking = system
        self.thread = threading.current_thread()
        self.closed = 0
        system.writers.append(self)

    def write(self, batch):
        assert threading.current_thread() is self.thread
        self.locking.wait_for_locks()
        super().write(batch)

    def commit(self, transaction, token):
        assert threading.current_thread() is self.thread
        if self.locking.error is not None:
            raise self.locking.error
        super().commit(transaction, token)
        with self.locking.changed:
            self.locking.changed.notify_all()

    def close(self):
        assert threading.current_thread() is self.thread
        self.closed += 1
        super().close()


class Watched(Execution):
    """Tells when it has failed; its threads may be in a call still."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.failed = threading.Event()

    def fail(self, error):
        super().fail(error)
        self.failed.set()


def started(system, items, guarantee=Guarantee.EXACTLY_ONCE):
    dag = graph(
        ("source", lambda: Waiting(items), {"parallelism": 1}),
        ("sink", WriteSink(LockingSink(system), SCHEMA), {"parallelism": 1}),
        edges=[("source", "sink")],
    )
    execution = Watched(
        dag,
        job="test",
        execution_id=1,
        workers=1,
        transport=None,
        guarantee=guarantee,
        snapshot_store=MemorySnapshotStore(),
    )
    execution.open()
    listener = Mailbox()
    execution.start(listener)
    return execution, listener


def prepared(execution, listener, snapshot_id, kind=SnapshotKind.REGULAR):
    execution.start_snapshot(snapshot_id, kind)
    (report,) = listener.take("saved")
    assert report.errors == []


@pytest.fixture
def system():
    return LockingSystem()


def test_a_commit_does_not_wait_for_a_write_that_waits_for_what_is_prepared(system):
    items = [batch_of(1)]
    execution, listener = started(system, items)
    prepared(execution, listener, 1)
    items.append(batch_of(2))
    assert system.blocked.wait(PATIENCE_S)
    execution.end_snapshot(1, True)
    assert listener.take("ended") == (1,)
    items.append(None)
    listener.take("input taken")
    prepared(execution, listener, 2, SnapshotKind.FINAL)
    execution.end_snapshot(2, True)
    listener.take("ended")
    assert listener.take("finished") == (None,)
    assert [row["value"] for row in system.memory.rows()] == [1, 2]


def test_the_two_writers_of_a_sink_belong_to_one_thread_each_and_are_closed_there(system):
    items = [batch_of(1), None]
    execution, listener = started(system, items)
    listener.take("input taken")
    prepared(execution, listener, 1, SnapshotKind.FINAL)
    execution.end_snapshot(1, True)
    listener.take("ended")
    assert listener.take("finished") == (None,)
    assert execution.join(PATIENCE_S)
    assert [writer.closed for writer in system.writers] == [1, 1]
    threads = [writer.thread for writer in system.writers]
    assert len(set(threads)) == 2
    assert not any(thread.is_alive() for thread in threads)


def test_an_error_of_a_commit_ends_the_execution_though_a_write_is_blocked(system):
    items = [batch_of(1)]
    execution, listener = started(system, items)
    prepared(execution, listener, 1)
    items.append(batch_of(2))
    assert system.blocked.wait(PATIENCE_S)
    system.error = DataLostError("it was rolled back")
    execution.end_snapshot(1, True)
    assert execution.failed.wait(PATIENCE_S)
    system.release()
    (error,) = listener.take("finished")
    assert isinstance(error, DataLostError)
    assert "step 'sink' failed in phase 2 of snapshot 1" in str(error)
    assert execution.join(PATIENCE_S)
    assert [writer.closed for writer in system.writers] == [1, 1]


@pytest.mark.parametrize("end", ["cancel", "abandon"])
def test_no_thread_is_left_however_the_execution_ends(system, end):
    execution, listener = started(system, [batch_of(1)])
    prepared(execution, listener, 1)
    execution.end_snapshot(1, True)
    listener.take("ended")
    getattr(execution, end)()
    listener.take("finished")
    assert execution.join(PATIENCE_S)
    assert not any(writer.thread.is_alive() for writer in system.writers)
