"""Whole jobs between PostgreSQL tables, whose members, coordinator and server die: each row counts once."""

from collections.abc import Iterator
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import jetfast as jf
from jetfast.control import restarts
from jetfast.core.crash_points import CRASH_POINTS, CrashPoint, set_crash_hook
from jetfast.engine.memory_snapshot_store import MemorySnapshotStore
from jetfast.engine.snapshot_store import ValidationRecord
from jetfast.errors import JobCancelledError, JobFailedError, StoreUnavailable
from jetfast.testing import VirtualClock, kill_member
from tests.connectors.postgres_server import PostgresServer
from tests.simulation.simulated_run import SimulatedCrash
from tests.simulation.stepped_job import SteppedJob

pytestmark = pytest.mark.services
PATIENCE_S = 60.0
ROWS = 200
COORDINATORS = {"before_validation_record", "between_records", "after_execution_record", "before_phase2"}


class FailingAtFirst(MemorySnapshotStore):
    """Fails the first two snapshots behind their preparation: the third commits three transactions of a sink."""

    failures = 2

    def write_validation(self, job: str, record: ValidationRecord) -> None:
        if self.failures:
            self.failures -= 1
            raise StoreUnavailable("not yet")
        super().write_validation(job, record)


class Tables:
    """Where rows come from and go to."""

    def __init__(self, server: PostgresServer, connection: Any) -> None:
        self.server = server
        self.connection = connection
        self.rows = 0

    def execute(self, command: str) -> Any:
        return self.connection.execute(command)

    def grow(self, rows: int) -> None:
        self.execute(f"insert into source (x) select 'x' || n from generate_series(1, {rows}) n")
        self.rows += rows

    def pipeline(self, *, bounded: bool = False, upsert_by: str | None = None, batch_rows: int = 7) -> jf.Pipeline:
        conninfo = self.server.conninfo
        source = jf.postgres(conninfo, "source", key="id", bounded=bounded, batch_rows=batch_rows, poll_interval="10ms")
        result = jf.Pipeline("copying")
        result.read(source, name="source").write(jf.postgres(conninfo, "target", upsert_by=upsert_by), name="target")
        return result

    def written(self) -> int:
        return int(self.execute("select count(*) from target").fetchone()[0])

    def check(self) -> None:
        """Each row is there once, by its identity, and nothing is left over."""
        found = self.execute("select id, x from target order by id").fetchall()
        assert found == self.execute("select id, x from source order by id").fetchall()
        assert len(found) == self.rows
        self.check_nothing_is_left()

    def check_nothing_is_left(self) -> None:
        assert self.execute("select gid from pg_prepared_xacts").fetchall() == []
        staged = self.execute("select tablename from pg_tables where tablename like 'jetfast_staged_%'").fetchall()
        for (name,) in staged:
            assert self.execute(f"select * from {name}").fetchall() == []

    def hang_up(self) -> None:
        """The connections of a process end with it."""
        self.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity "
            "where application_name like 'jetfast%' and pid <> pg_backend_pid()"
        )


def connect(server: PostgresServer) -> Any:
    import psycopg

    return psycopg.connect(server.conninfo, autocommit=True)


@pytest.fixture
def tables(server: PostgresServer) -> Iterator[Tables]:
    with connect(server) as connection:
        connection.execute("create table source (id bigint generated always as identity primary key, x text)")
        connection.execute("create table target (id bigint, x text)")
        yield Tables(server, connection)


def stepped(pipeline: jf.Pipeline, seed: int, members: int = 1, **options: Any) -> SteppedJob:
    store = options.pop("store", None) or MemorySnapshotStore()
    job = SteppedJob(pipeline, seed=seed, store=store, interval="30ms", members=members, **options)
    assert job.job.guarantee is jf.Guarantee.EXACTLY_ONCE
    return job


def finish(job: SteppedJob, tables: Tables) -> None:
    """Go on until everything is there, then end."""
    job.run(lambda: tables.written() >= tables.rows)
    job.job.cancel()
    job.run()
    assert isinstance(job.runner.error, JobCancelledError)


@pytest.mark.parametrize("members", [1, 2])
@pytest.mark.parametrize("seed", range(2))
def test_each_row_of_a_growing_table_is_written_once_though_members_die(
    tables: Tables, members: int, seed: int
) -> None:
    job = stepped(tables.pipeline(), seed, members)
    for _ in range(4):
        tables.grow(ROWS // 4)
        for _ in range(job.random.randrange(20, 400)):
            job.step()
        job.run(lambda: bool(job.members))
        job.kill(job.random.choice(list(job.members)))
    finish(job, tables)
    assert job.job.metrics["restarts"] >= 1
    tables.check()


@pytest.mark.parametrize("point", CRASH_POINTS)
def test_each_row_is_written_once_whatever_dies_at_a_crash_point(tables: Tables, point: CrashPoint) -> None:
    tables.grow(4 * ROWS)  # enough for three snapshots, in whatever order steps come
    # A restore has something to commit when a coordinator died between decision and phase 2.
    due: list[CrashPoint] = ["before_phase2", point] if point.startswith("restore") else [point]
    reached: list[CrashPoint] = []

    def crash(here: CrashPoint) -> None:
        if due and here == due[0]:
            reached.append(due.pop(0))
            raise SimulatedCrash

    store, clock = FailingAtFirst(), VirtualClock()
    job = stepped(tables.pipeline(bounded=True), 1, store=store, clock=clock)
    set_crash_hook(crash)
    try:
        while not job.ended:
            try:
                job.run()
            except SimulatedCrash:
                for member in list(job.members):
                    job.kill(member)
                tables.hang_up()
                if reached[-1] in COORDINATORS:  # it dies with them, and somebody submits the job again
                    job = stepped(tables.pipeline(bounded=True), 1, store=store, clock=clock)
    finally:
        set_crash_hook(None)
    assert reached[-1] == point
    assert job.runner.error is None
    tables.check()


def test_a_server_that_is_restarted_interrupts_a_job_and_no_more(server: PostgresServer) -> None:
    with connect(server) as connection:
        connection.execute("create table source (id bigint generated always as identity primary key, x text)")
        connection.execute("create table target (id bigint, x text)")
        tables = Tables(server, connection)
        tables.grow(ROWS)
        job = stepped(tables.pipeline(), seed=1)
        job.run(lambda: tables.written() > 0)
    server.stop("immediate")
    for _ in range(200):
        job.step()
    server.start()
    with connect(server) as connection:
        tables.connection = connection
        tables.grow(ROWS)
        finish(job, tables)
        assert job.job.metrics["restarts"] >= 1
        tables.check()
    server.clear()


@pytest.mark.parametrize("members", [1, 2])
def test_rows_that_are_written_by_key_are_the_last_of_their_key_though_members_die(
    tables: Tables, members: int
) -> None:
    tables.execute("create unique index on target (id)")
    tables.grow(ROWS)
    tables.execute(f"insert into target select id, 'of old' from source where id <= {ROWS // 2}")
    job = stepped(tables.pipeline(upsert_by="id"), seed=1, members=members)
    for _ in range(3):
        for _ in range(job.random.randrange(20, 300)):
            job.step()
        job.run(lambda: bool(job.members))
        job.kill(job.random.choice(list(job.members)))
    job.run(lambda: tables.execute("select count(*) from target where x <> 'of old'").fetchone()[0] == ROWS)
    job.job.cancel()
    job.run()
    tables.check()


class KillingAt:
    """Lets rows pass, and kills a member of the job at some of them, once each, on a thread of a member."""

    def __init__(self, rows: list[int], seed: int) -> None:
        self.rows = rows
        self.random = Random(seed)
        self.job: jf.Job | None = None

    def __call__(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        due = {row for row in self.rows if row in rows["id"].to_pylist()}
        if due and self.job is not None:
            self.rows = [row for row in self.rows if row not in due]
            kill_member(self.job, self.random.randrange(2))
        return rows


def test_members_on_threads_that_are_killed_lose_and_double_nothing(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restarts, "RESTART_DELAY_MIN_S", 0.001)
    tables.grow(5_000)
    killing = KillingAt([500, 2_000, 3_500], seed=1)
    conninfo = tables.server.conninfo
    copying = jf.Pipeline("copying")
    source = jf.postgres(conninfo, "source", key="id", bounded=True, batch_rows=50)
    schema = pa.schema([("id", pa.int64()), ("x", pa.string())])
    copying.read(source).map_batches(killing, schema=schema).write(jf.postgres(conninfo, "target"))
    cluster = jf.LocalCluster(members=2, workers=1, snapshot_store=jf.snapshots.memory())
    job = cluster.submit(copying, snapshot_interval="5ms", progress=False)
    killing.job = job
    job.wait(PATIENCE_S)
    assert killing.rows == []
    assert job.metrics["restarts"] >= 1
    tables.check()


def test_a_row_that_the_table_refuses_fails_the_job_at_once_though_it_may_be_seen_only_in_phase_2(
    tables: Tables,
) -> None:
    tables.grow(20)
    tables.execute("alter table target add check (id <> 15)")
    store = MemorySnapshotStore()
    job = stepped(tables.pipeline(bounded=True), seed=1, store=store)
    job.run()
    assert isinstance(job.runner.error, JobFailedError)
    assert 'violates check constraint "target_id_check"' in str(job.runner.error)
    assert job.job.metrics["restarts"] == 0
    tables.execute("alter table target drop constraint target_id_check")
    job = stepped(tables.pipeline(bounded=True), seed=2, store=store)
    job.run()
    assert job.runner.error is None
    tables.check()
