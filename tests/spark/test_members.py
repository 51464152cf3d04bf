"""Members find, prove and leave the coordinator as they should; here they are threads with real sockets, no JVM."""

import os
import pickle
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle
import numpy as np
import pyarrow as pa
import pytest

from jetfast.api.snapshots import directory
from jetfast.connectors.arrow import collect
from jetfast.connectors.memory import memory
from jetfast.control import messages
from jetfast.control.endpoint import Address, Listener, dial
from jetfast.control.job import Job
from jetfast.control.job_settings import JobSettings
from jetfast.control.member_links import MemberLinks, OnEnd
from jetfast.control.messages import NO_EXECUTION, LeaseGranted, Registered, Versions
from jetfast.control.remote_member import MemberTask
from jetfast.control.runner import Runner
from jetfast.control.versions import running_versions
from jetfast.control.wire import COORDINATOR, Connection, Hello, Proven, Purpose, make_token
from jetfast.core.dag import Dag, Edge, Vertex
from jetfast.core.guarantee import Guarantee
from jetfast.core.routing import BROADCAST, Routing, partitioned
from jetfast.engine.transport import MemoryNetwork
from jetfast.errors import JobCancelledError, MemberLostError, ResourcesError
from jetfast.processors.sink import WriteSink
from jetfast.processors.source import ReadSource
from jetfast.spark.jobs import SparkJobs
from jetfast.spark.members import load_dag, make_execution_that_shares, run_spark_member

ROWS = 5000
TABLE = pa.table({"key": np.arange(ROWS) % 37, "value": np.arange(ROWS)})
RunMember = Callable[[MemberTask], None]


def graph(routing: Routing, unbounded: bool = False) -> Dag:
    """Rows from memory, over one distributed edge, to the submitter."""
    source = memory(TABLE, partitions=12, batch_rows=500, unbounded=unbounded)
    dag = Dag("numbers")
    dag.add_vertex(Vertex("source", ReadSource(source)))
    dag.add_vertex(Vertex("sink", WriteSink(collect(), source.schema)))
    dag.add_edge(Edge("source", "sink", source.schema, routing=routing, distributed=True))
    return dag


class ThreadJobs(SparkJobs):
    """Members as threads. `run` may be given for some members, to misbehave."""

    def __init__(self, **run: RunMember) -> None:
        super().__init__(spark=None)
        self.run = run
        self.tasks: dict[int, MemberTask] = {}
        self.cancelled: list[str] = []

    def start(self, group: str, description: str, task: MemberTask, on_end: OnEnd) -> threading.Thread:
        self.tasks[task.member] = task
        received: MemberTask = pickle.loads(cloudpickle.dumps(task))  # as it would travel
        run = self.run.get(f"member_{task.member}", run_spark_member)

        def run_and_tell() -> None:
            try:
                run(received)
            except Exception as error:
                on_end(error)
            else:
                on_end(None)

        thread = threading.Thread(target=run_and_tell, name=f"{group} {description}", daemon=True)
        thread.start()
        return thread

    def cancel(self, group: str) -> None:
        self.cancelled.append(group)


def submit(
    jobs: ThreadJobs,
    dag: Dag | None = None,
    members: int = 2,
    workers: int = 1,
    start_timeout_s: float = 60.0,
    memory_limit_bytes: int = 10**9,
) -> Job:
    dag = graph(partitioned("key")) if dag is None else dag
    runner = Runner(
        JobSettings(
            job="numbers",
            job_id="id",
            dag=cloudpickle.dumps(dag),
            member_count=members,
            workers=workers,
            guarantee=Guarantee.NONE,
            memory_limit_bytes=memory_limit_bytes,
        )
    )
    links = MemberLinks(jobs, runner, "127.0.0.1", None, None, start_timeout_s)
    runner.summon = links.summon
    runner.release = links.close
    runner.start()
    return Job(runner, dag, progress=False)


def ending(job: Job, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        job.wait()


@pytest.fixture(autouse=True)
def members_end_without_their_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jetfast.spark.members.EXIT_GRACE_S", 20.0)


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    give_up = time.monotonic() + 20
    while left := set(threading.enumerate()) - before:
        assert time.monotonic() < give_up, left
        os.sched_yield()


@pytest.mark.parametrize("members", [1, 2, 3])
@pytest.mark.parametrize("workers", [1, 2])
def test_rows_reach_their_owners_over_sockets(members: int, workers: int) -> None:
    jobs = ThreadJobs()
    job = submit(jobs, members=members, workers=workers)
    rows = job.to_arrow()
    assert jobs.cancelled == []
    assert sorted(rows["value"].to_pylist()) == list(range(ROWS))
    metrics = job.metrics
    assert len(metrics["members"]) == members
    for member in metrics["members"]:
        assert member["pid"] == os.getpid()
        assert member["rows_read"] > 0
        if members > 1:
            assert member["rows_received"] > 0
            assert member["bytes_received"] > 16 * member["rows_received"]
            assert member["bytes_sent"] > 16 * member["rows_sent"]


def test_broadcast_rows_reach_every_processor_of_every_member() -> None:
    rows = submit(ThreadJobs(), graph(BROADCAST), members=3).to_arrow()
    assert Counter(rows["value"].to_pylist()) == dict.fromkeys(range(ROWS), 3)


@pytest.mark.parametrize("memory_limit_bytes", [1, 10_000])
def test_a_job_gets_through_however_little_may_wait(memory_limit_bytes: int) -> None:
    rows = submit(ThreadJobs(), members=3, memory_limit_bytes=memory_limit_bytes).to_arrow()
    assert sorted(rows["value"].to_pylist()) == list(range(ROWS))


def test_a_second_copy_of_a_live_member_is_turned_away_and_raises() -> None:
    jobs = ThreadJobs()
    job = submit(jobs, graph(partitioned("key"), unbounded=True))
    while not job.metrics["rows_written"]:
        os.sched_yield()
    with pytest.raises(
        MemberLostError, match=rf"member 1 on .* was turned away: member 1 lives already, as pid {os.getpid()}"
    ):
        run_spark_member(jobs.tasks[1])
    assert job.status.value == "running"
    job.cancel()
    ending(job, JobCancelledError, "cancelled")
    with pytest.raises(
        ResourcesError, match="member 1 on .* cannot reach the coordinator: .*set host= of SparkCluster"
    ):
        run_spark_member(jobs.tasks[1])


def registers(task: MemberTask, **changes: Any) -> Connection:
    """A member that registers, and does nothing more."""
    hello = Hello(Purpose.CONTROL, NO_EXECUTION, task.member, COORDINATOR)
    connection = Connection(dial(task.coordinator, task.token, hello))
    registered = {
        "execution_id": NO_EXECUTION,
        "member": task.member,
        "incarnation": task.incarnation,
        "pid": 4711,
        "host": "elsewhere",
        "address": Address("127.0.0.1", 1).encode(),
        "versions": running_versions(),
        **changes,
    }
    connection.send(messages.encode(Registered(**registered)))
    connection.receive()
    return connection


def test_a_member_that_dies_fails_the_job_and_the_others_end() -> None:
    def dies(task: MemberTask) -> None:
        connection = registers(task)
        connection.receive()  # it begins
        connection.close()

    ending(submit(ThreadJobs(member_1=dies)), MemberLostError, r"member 1 \(pid 4711 on elsewhere\) is lost: ")


def test_a_member_that_dies_before_the_execution_has_begun_is_started_again() -> None:
    def dies_once(task: MemberTask) -> None:
        if task.incarnation == 0:
            registers(task).close()
        else:
            run_spark_member(task)

    late = threading.Event()

    def comes_late(task: MemberTask) -> None:
        late.wait(20)
        run_spark_member(task)

    jobs = ThreadJobs(member_0=comes_late, member_1=dies_once)
    job = submit(jobs)
    while not any(member["pid"] == os.getpid() for member in job.metrics["members"]):
        os.sched_yield()
    assert jobs.tasks[1].incarnation == 1
    late.set()
    assert job.to_arrow().num_rows == ROWS


def test_a_retry_of_spark_is_turned_away_once_its_member_was_there() -> None:
    """Spark starts a task again that has ended, with the task that it had; the coordinator submits another."""

    def is_retried(task: MemberTask) -> None:
        if task.incarnation == 0:
            registers(task).close()
        else:
            with pytest.raises(MemberLostError, match="turned away: this process is not the one that was started last"):
                run_spark_member(replace(task, incarnation=0))
            turned_away.set()
            run_spark_member(task)

    def comes_late(task: MemberTask) -> None:
        turned_away.wait(20)
        run_spark_member(task)

    turned_away = threading.Event()
    assert submit(ThreadJobs(member_0=comes_late, member_1=is_retried)).to_arrow().num_rows == ROWS


def test_a_member_that_speaks_nonsense_is_dropped() -> None:
    def babbles(task: MemberTask) -> None:
        connection = registers(task)
        connection.receive()
        connection.send(b"nonsense")
        connection.receive()
        connection.close()

    ending(
        submit(ThreadJobs(member_1=babbles)), MemberLostError, "member 1 .* is lost: a member sent 8 bytes that are no"
    )


def test_a_spark_job_that_ends_before_its_member_came_is_explained() -> None:
    def lacks_pyarrow(_: MemberTask) -> None:
        raise RuntimeError("An exception was thrown:\nTraceback\nModuleNotFoundError: No module named 'pyarrow'\n")

    ending(
        submit(ThreadJobs(member_1=lacks_pyarrow)),
        ResourcesError,
        "member 1 did not start: No module named 'pyarrow'.*PYSPARK_PYTHON",
    )


def test_a_member_that_cannot_reach_the_coordinator_says_which_setting() -> None:
    def is_far_away(task: MemberTask) -> None:
        try:
            run_spark_member(MemberTask(task.member, Address("127.0.0.1", 1), task.token))
        except ResourcesError as error:
            raise RuntimeError(f"Traceback\njetfast.errors.ResourcesError: {error}\n SQLSTATE") from error

    ending(
        submit(ThreadJobs(member_0=is_far_away)),
        ResourcesError,
        r"member 0 on .* cannot reach the coordinator: 127.0.0.1:1 .*; set host=",
    )


def test_a_peer_that_cannot_be_reached_is_named_before_any_row_is_read() -> None:
    def hides(task: MemberTask) -> None:
        connection = registers(task)
        while (data := connection.receive()) is not None:
            said = messages.decode_from_coordinator(data)
            if isinstance(said, messages.Cancel):
                failed = messages.Failed(
                    execution_id=said.execution_id, member=task.member, kind="JobCancelledError", error="cancelled"
                )
                connection.send(messages.encode(failed))
            elif isinstance(said, messages.Shutdown):
                break
        connection.close()

    job = submit(ThreadJobs(member_0=hides))
    ending(job, ResourcesError, r"member 1 on 127.0.0.1 cannot reach member 0: 127.0.0.1:1 .*set host=.*port_range=")
    assert job.metrics["rows_read"] == 0


def test_members_that_do_not_come_in_time_are_named() -> None:
    let_go = threading.Event()
    jobs = ThreadJobs(member_1=lambda _: let_go.wait(20))
    jobs.cancel = lambda group: let_go.set()  # type: ignore[method-assign]
    ending(submit(jobs, start_timeout_s=0.05), ResourcesError, r"did not start within .*start_timeout=")


def test_a_job_that_fails_while_its_members_are_submitted_leaves_none() -> None:
    def cannot_start(_: MemberTask) -> None:
        raise RuntimeError("no")

    let_go = threading.Event()
    jobs = ThreadJobs(
        member_0=cannot_start, **{f"member_{member}": lambda _: let_go.wait(20) for member in range(1, 9)}
    )
    jobs.cancel = lambda group: let_go.set()  # type: ignore[method-assign]
    ending(submit(jobs, members=9), ResourcesError, "member 0 did not start: no")  # and no thread is left


def test_other_versions_are_refused() -> None:
    def is_old(task: MemberTask) -> None:
        connection = registers(task, versions=Versions("2.7.18", "0.0.1", "3.0.0"))
        connection.receive()
        connection.close()

    ending(
        submit(ThreadJobs(member_1=is_old)), ResourcesError, "member 1 on elsewhere cannot take part: .*Python 2.7.18"
    )


def test_a_cancelled_job_ends_on_all_members() -> None:
    job = submit(ThreadJobs(), graph(partitioned("key"), unbounded=True), members=3)
    while job.metrics["rows_written"] < ROWS:
        os.sched_yield()
    job.cancel()
    ending(job, JobCancelledError, "cancelled")


def test_a_job_that_is_cancelled_before_its_members_come_cancels_their_spark_jobs() -> None:
    let_go = threading.Event()
    jobs = ThreadJobs(member_0=lambda _: let_go.wait(20), member_1=lambda _: let_go.wait(20))
    jobs.cancel = lambda group: let_go.set()  # type: ignore[method-assign]
    job = submit(jobs)
    job.cancel()
    ending(job, JobCancelledError, "cancelled")


class BareCoordinator:
    """Welcomes one member, and says nothing more."""

    def __init__(self) -> None:
        self.connection: Connection | None = None
        self.token = make_token()
        self.listener = Listener(self.token, "coordinator", lambda hello: None, self.welcome)
        self.task = MemberTask(0, self.listener.address, self.token)
        self.lease_us = 3_600_000_000

    def welcome(self, proven: Proven, hello: Hello) -> None:
        connection = Connection(proven)
        connection.receive()
        connection.send(messages.encode(LeaseGranted(execution_id=0, number=0, lease_us=self.lease_us)))
        self.connection = connection

    def go(self) -> None:
        while self.connection is None:
            os.sched_yield()
        self.connection.close()


def test_a_member_ends_when_the_coordinator_goes() -> None:
    coordinator = BareCoordinator()
    with ThreadPoolExecutor(1) as pool:
        member = pool.submit(run_spark_member, coordinator.task)
        coordinator.go()
        with pytest.raises(MemberLostError, match="member 0 on .* ended: the coordinator has gone"):
            member.result()
    coordinator.listener.close()


def test_a_member_ends_with_its_lease() -> None:
    coordinator = BareCoordinator()
    coordinator.lease_us = 50_000
    with ThreadPoolExecutor(1) as pool:
        member = pool.submit(run_spark_member, coordinator.task)
        with pytest.raises(MemberLostError, match="ended: its lease has run out: the coordinator did not answer"):
            member.result()
    coordinator.go()
    coordinator.listener.close()


def test_a_member_ends_when_its_jvm_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    parents = iter([4711, 4711, 1])
    monkeypatch.setattr("jetfast.control.remote_member.LOOK_S", 0.01)
    monkeypatch.setattr("jetfast.spark.members.os.getppid", lambda: next(parents))
    coordinator = BareCoordinator()
    with pytest.raises(MemberLostError, match="ended: its JVM has gone"):
        run_spark_member(coordinator.task)
    coordinator.go()
    coordinator.listener.close()


def test_a_member_that_does_not_stop_by_itself_ends_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    stuck = threading.Event()
    statuses: list[int] = []

    def end_process(status: int) -> None:
        statuses.append(status)
        stuck.set()

    monkeypatch.setattr("jetfast.spark.members.EXIT_GRACE_S", 0.01)
    monkeypatch.setattr("jetfast.control.remote_member.LOOK_S", 0.01)
    monkeypatch.setattr("jetfast.control.remote_member.os._exit", end_process)
    monkeypatch.setattr("jetfast.control.remote_member.MemberAgent.run", lambda agent: stuck.wait(20))
    coordinator = BareCoordinator()
    with ThreadPoolExecutor(1) as pool:
        member = pool.submit(run_spark_member, coordinator.task)
        coordinator.go()
        with pytest.raises(MemberLostError):
            member.result()
    assert statuses == [1]
    coordinator.listener.close()


def test_a_module_that_workers_lack_is_named_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("only_in_the_driver")
    exec("def supplier():\n    pass", module.__dict__)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    module.supplier.__module__ = module.__name__
    dag = graph(partitioned("key"))
    dag.vertices["source"] = Vertex("source", module.supplier)
    pickled = cloudpickle.dumps(dag)
    monkeypatch.delitem(sys.modules, module.__name__)
    with pytest.raises(ResourcesError, match=r"No module named 'only_in_the_driver'.*addPyFile"):
        load_dag(pickled)


def test_a_snapshot_store_that_is_not_shared_with_the_driver_is_refused(tmp_path: Path) -> None:
    prepare = messages.Prepare(
        execution_id=1,
        job="numbers",
        job_id="id",
        member=0,
        member_count=1,
        workers=1,
        peers=[""],
        dag=b"",
        guarantee=Guarantee.EXACTLY_ONCE,
        memory_limit_bytes=2**20,
        snapshot_store=cloudpickle.dumps(directory(tmp_path / "of this host")),
    )
    transport = MemoryNetwork(1).transport(0)
    with pytest.raises(ResourcesError, match="is not that of the driver: it knows no job 'numbers'.*executors share"):
        make_execution_that_shares(graph(BROADCAST), prepare, transport, lambda *_: None)


def test_the_text_of_a_task_does_not_show_the_token() -> None:
    token = make_token()
    assert repr(bytes(token))[2:-1] not in repr(MemberTask(0, Address("127.0.0.1", 1), token))
