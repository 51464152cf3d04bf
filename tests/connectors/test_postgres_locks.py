"""Statements of other sessions that need the whole table while a job writes it get through, and no row is lost."""

import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import jetfast as jf
from jetfast.connectors.postgres_writer import PostgresTransactions
from jetfast.control import restarts
from jetfast.core.batch import Batch
from jetfast.core.guarantee import Guarantee
from jetfast.core.processor import ProcessorContext
from jetfast.core.transaction import TransactionId, TransactionOwner
from jetfast.errors import JobDefinitionError, RestartableError
from tests.connectors.postgres_server import PostgresServer

pytestmark = pytest.mark.services
PATIENCE_S = 120.0
SCHEMA = pa.schema([("id", pa.int64()), ("x", pa.string())])
OWNER = TransactionOwner("job", "id", "write")
STATEMENTS = [
    "alter table target add column added int",
    "begin; lock table target in access exclusive mode; commit",
    "create index on target (x)",
    "truncate target",
    "vacuum full target",
    "vacuum full",
    "begin; alter table source add column added int; alter table target add column other int; commit",
]
ROWS_BETWEEN = 300


def connect(server: PostgresServer) -> Any:
    import psycopg

    return psycopg.connect(server.conninfo, autocommit=True)


class Session:
    """Another session, which executes statements on a thread of its own."""

    def __init__(self, server: PostgresServer, text: str) -> None:
        self.server = server
        self.text = text
        self.connection = connect(server)
        self.pid = self.connection.info.backend_pid
        self.error: Exception | None = None
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self) -> None:
        try:
            for statement in self.text.split("; "):
                self.connection.execute(statement)
        except Exception as error:
            self.error = error

    def wait_until_it_waits(self) -> None:
        """Return when it waits for a lock, or has got through."""
        with connect(self.server) as asking:
            while self.thread.is_alive():
                waits = asking.execute("select from pg_locks where pid = %s and not granted", (self.pid,)).fetchone()
                if waits is not None:
                    return

    def end(self) -> None:
        self.thread.join(PATIENCE_S)
        assert not self.thread.is_alive(), f"it does not get through: {self.text}"
        self.connection.close()
        if self.error is not None:
            raise self.error


class Disturbance:
    """Lets rows pass, and executes statements at some of them; the row waits until the statement waits for a lock."""

    def __init__(self, server: PostgresServer) -> None:
        self.server = server
        self.due = {ROWS_BETWEEN * (number + 1): text for number, text in enumerate(STATEMENTS)}
        self.sessions: list[Session] = []

    def __call__(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        for row in rows["id"].to_pylist():
            text = self.due.pop(row, None)
            if text is not None:
                self.sessions.append(session := Session(self.server, text))
                session.wait_until_it_waits()
        return rows


@pytest.fixture
def database(postgres_server: PostgresServer) -> Iterator[Any]:
    postgres_server.clear()
    with connect(postgres_server) as connection:
        yield connection


@pytest.mark.parametrize("processors", [1, 3])
@pytest.mark.parametrize("mode", ["prepared", "staged", "upsert"])
def test_statements_that_lock_the_table_get_through_and_each_row_is_there_once(
    postgres_server: PostgresServer, database: Any, monkeypatch: pytest.MonkeyPatch, mode: str, processors: int
) -> None:
    """Two steps write the table. TRUNCATE removes the rows that were committed before it: a trigger keeps those."""
    monkeypatch.setattr(restarts, "RESTART_DELAY_MIN_S", 0.001)
    row_count = ROWS_BETWEEN * (len(STATEMENTS) + 1)
    database.execute("create table source (id bigint generated always as identity primary key, x text)")
    database.execute("create table target (id bigint, x text)")
    database.execute("create table truncated (id bigint, x text)")
    database.execute(
        "create function keep() returns trigger language plpgsql as $$ begin "
        "insert into truncated select id, x from target; return null; end $$"
    )
    database.execute("create trigger keep before truncate on target execute function keep()")
    if mode == "upsert":
        database.execute("create unique index on target (id)")
    database.execute(f"insert into source (x) select 'x' || n from generate_series(1, {row_count}) n")
    conninfo = postgres_server.conninfo
    options: dict[str, Any] = {"upsert_by": "id"} if mode == "upsert" else {"transactions": mode}
    disturbance = Disturbance(postgres_server)
    p = jf.Pipeline("writing")
    source = jf.postgres(conninfo, "source", key="id", bounded=True, batch_rows=10, lock_timeout="300ms")
    rows = p.read(source, name="source").map_batches(disturbance, schema=SCHEMA)
    for name, rest in (("even", 0), ("odd", 1)):
        sink = jf.postgres(conninfo, "target", lock_timeout="300ms", **options)
        rows.where(jf.col("id") % 2 == rest).write(sink, name=name)
    cluster = jf.LocalCluster(workers=processors, snapshot_store=jf.snapshots.memory())
    job = cluster.submit(p, snapshot_interval="20ms", progress=False)
    assert job.guarantee is jf.Guarantee.EXACTLY_ONCE
    job.wait(PATIENCE_S)
    assert len(disturbance.sessions) == len(STATEMENTS)
    for session in disturbance.sessions:
        session.end()
    written = "select id, x from target union all select id, x from truncated"
    if mode == "upsert":  # rows that were truncated may be written again by a restart: with the same values
        written = "select id, x from target union select id, x from truncated"
    found = database.execute(f"select * from ({written}) w order by id").fetchall()
    assert found == database.execute("select id, x from source order by id").fetchall()
    assert database.execute("select gid from pg_prepared_xacts").fetchall() == []
    assert database.execute("select count(*) from truncated").fetchone()[0] > 0


def writer_of(server: PostgresServer, processor: int, lock_timeout: str | None = "100ms") -> PostgresTransactions:
    context = ProcessorContext(
        vertex="write", job="job", job_id="id", execution_id=1, local_index=processor, local_parallelism=2
    )
    sink = jf.postgres(server.conninfo, "target", transactions="prepared", lock_timeout=lock_timeout)
    return sink.open_transactions(SCHEMA, context)


def rows_of(*numbers: int) -> Batch:
    return Batch.from_arrow(pa.record_batch([list(numbers), [f"x{number}" for number in numbers]], schema=SCHEMA))


def text(processor: int, sequence: int = 1) -> str:
    return OWNER.text(TransactionId(1, processor, sequence))


def test_a_write_that_waits_too_long_names_table_lock_and_who_is_in_the_way(
    postgres_server: PostgresServer, database: Any
) -> None:
    database.execute("create table target (id bigint, x text)")
    first, second = writer_of(postgres_server, 0), writer_of(postgres_server, 1)
    first.begin(text(0))
    first.write(rows_of(1))
    token = first.seal(text(0))
    assert first.prepare(text(0))
    first.begin(text(0, 2))
    first.write(rows_of(2))
    session = Session(postgres_server, "alter table target\n  add column added int")
    session.wait_until_it_waits()
    second.begin(text(1))
    with pytest.raises(RestartableError) as caught:
        second.write(rows_of(3))
    said = str(caught.value)
    assert "postgres(target): cannot write" in said
    assert "RowExclusiveLock on target" in said
    own = first.data.connection.info.backend_pid
    assert f"pid {session.pid} (AccessExclusiveLock, not granted, waits for a prepared transaction, pid {own}: " in said
    assert "alter table target add column added int)" in said
    first.commit(text(0), token)  # by its other connection, though its own transaction is open
    first.rollback(text(0, 2))
    session.end()
    second.rollback(text(1))
    for writer in (first, second):
        writer.close()
    assert database.execute("select id, added from target").fetchall() == [(1, None)]


def test_a_write_that_waits_for_a_row_names_the_transactions_that_have_written_to_the_table(
    postgres_server: PostgresServer, database: Any
) -> None:
    database.execute("create table target (id bigint primary key, x text)")
    writer = writer_of(postgres_server, 0)
    with connect(postgres_server) as other:
        other.execute("begin")
        other.execute("insert into target values (7, 'mine')")
        writer.begin(text(0))
        with pytest.raises(RestartableError) as caught:
            writer.write(rows_of(7))
        assert f"pid {other.info.backend_pid} (RowExclusiveLock: insert into target values (7, 'mine'))" in str(
            caught.value
        )
        assert "no lock on the table is in the way" in str(caught.value)
    writer.close()


def test_a_marker_that_waits_too_long_fails_the_round(postgres_server: PostgresServer, database: Any) -> None:
    database.execute("create table target (id bigint, x text)")
    writer = writer_of(postgres_server, 0)
    writer.begin(text(0))
    writer.write(rows_of(1))
    with connect(postgres_server) as other:
        other.execute("begin")
        other.execute("lock table jetfast_commits")
        with pytest.raises(RestartableError, match=rf"on jetfast_commits, behind pid {other.info.backend_pid} "):
            writer.prepare(text(0))
    writer.close()


def test_a_read_that_waits_too_long_names_table_lock_and_who_is_in_the_way(
    postgres_server: PostgresServer, database: Any
) -> None:
    database.execute("create table source (id bigint primary key)")
    database.execute("insert into source values (1)")
    source = jf.postgres(postgres_server.conninfo, "source", key="id", lock_timeout="100ms")
    source.schema  # noqa: B018  # as the planner looks at it
    reader = source.open_reader("source", None, ProcessorContext("read", guarantee=Guarantee.EXACTLY_ONCE))
    with connect(postgres_server) as other:
        other.execute("begin")
        other.execute("lock table source")
        with pytest.raises(RestartableError, match=rf"AccessShareLock on source, behind pid {other.info.backend_pid} "):
            reader.read()
    reader.close()


@pytest.mark.parametrize("guarantee", list(Guarantee))
def test_only_where_a_restart_repeats_nothing_does_a_statement_give_up(
    postgres_server: PostgresServer, database: Any, guarantee: Guarantee
) -> None:
    database.execute("create table target (id bigint primary key, x text)")
    context = ProcessorContext("step", guarantee=guarantee)
    table = jf.postgres(postgres_server.conninfo, "target", key="id", upsert_by="id", lock_timeout="7s")
    table.schema  # noqa: B018  # as the planner looks at it
    reader, writer = table.open_reader("target", None, context), table.open_writer(SCHEMA, context)
    for connection in (reader.connect(), writer.table.connection):
        told = connection.execute("show lock_timeout").fetchone()
        assert told == ("7s" if guarantee is Guarantee.EXACTLY_ONCE else "0",)
        connection.close()


def test_a_lock_timeout_is_a_duration(postgres_server: PostgresServer) -> None:
    with pytest.raises(JobDefinitionError, match="lock_timeout"):
        jf.postgres(postgres_server.conninfo, "target", lock_timeout="0s")
    assert jf.postgres(postgres_server.conninfo, "target").lock_timeout_us == 5_000_000
    assert jf.postgres(postgres_server.conninfo, "target", lock_timeout=None).lock_timeout_us is None
