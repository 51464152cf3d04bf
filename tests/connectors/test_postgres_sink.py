"""Writing to PostgreSQL: prepared and staged transactions across lost connections, upserts, plain rows."""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

import jetfast as jf
from jetfast.connectors.postgres import Postgres
from jetfast.connectors.postgres_writer import PostgresTransactions
from jetfast.core.batch import Batch
from jetfast.core.guarantee import Delivery
from jetfast.core.processor import ProcessorContext
from jetfast.core.transaction import TransactionId, TransactionOwner
from jetfast.errors import DataLostError, JobDefinitionError, JobFailedError, TransportError
from jetfast.testing import verify_sink
from tests.connectors.postgres_server import PostgresServer

pytestmark = pytest.mark.services
SCHEMA = pa.schema([("id", pa.int64()), ("x", pa.string())])
OWNER = TransactionOwner("job", "id", "write")


@pytest.fixture
def database(server: PostgresServer) -> Iterator[Any]:
    import psycopg

    with psycopg.connect(server.conninfo, autocommit=True) as connection:
        connection.execute("create table target (id bigint, x text, made serial not null)")
        yield connection


def rows(*numbers: int) -> Batch:
    return Batch.from_arrow(pa.record_batch([list(numbers), [f"x{number}" for number in numbers]], schema=SCHEMA))


def writer_of(server: PostgresServer, execution_id: int = 1, table: str = "target") -> PostgresTransactions:
    context = ProcessorContext(vertex="write", job="job", job_id="id", execution_id=execution_id)
    return jf.postgres(server.conninfo, table).open_transactions(SCHEMA, context)


def text(sequence: int, execution_id: int = 1) -> str:
    return OWNER.text(TransactionId(execution_id, 0, sequence))


def present(database: Any) -> list[int]:
    return [number for (number,) in database.execute("select id from target order by id").fetchall()]


def prepared(writer: PostgresTransactions, sequence: int, *numbers: int) -> bytes:
    writer.begin(text(sequence))
    writer.write(rows(*numbers))
    token = writer.seal(text(sequence))
    assert writer.prepare(text(sequence))
    return token


def test_it_is_transactional_or_idempotent(server: PostgresServer) -> None:
    assert jf.postgres(server.conninfo, "target").sink_delivery is Delivery.TRANSACTIONAL
    assert jf.postgres(server.conninfo, "target", upsert_by="id").sink_delivery is Delivery.IDEMPOTENT


def test_rows_are_seen_after_commit_and_not_before(server: PostgresServer, database: Any) -> None:
    writer = writer_of(server)
    token = prepared(writer, 1, 1, 2)
    assert present(database) == []
    writer.commit(text(1), token)
    assert present(database) == [1, 2]
    writer.commit(text(1), token)
    assert present(database) == [1, 2], "commit is idempotent"
    writer.close()


def test_a_later_transaction_is_open_while_an_earlier_one_is_committed(server: PostgresServer, database: Any) -> None:
    writer = writer_of(server)
    first = prepared(writer, 1, 1)
    writer.begin(text(2))
    writer.write(rows(2))
    writer.commit(text(1), first)
    assert present(database) == [1]
    second = writer.seal(text(2))
    assert writer.prepare(text(2))
    writer.commit(text(2), second)
    assert present(database) == [1, 2]
    writer.close()


def test_what_one_connection_has_prepared_another_commits_or_rolls_back(server: PostgresServer, database: Any) -> None:
    dead = writer_of(server)
    first = prepared(dead, 1, 1)
    prepared(dead, 2, 2)
    dead.begin(text(3))
    dead.write(rows(3))
    dead.close()
    heir = writer_of(server, execution_id=2)
    assert sorted(heir.list_open(OWNER.prefix)) == [text(1), text(2)]
    assert heir.list_open("jetfast.other.") == []
    heir.commit(text(1), first)
    heir.rollback(text(2))
    heir.rollback(text(2))
    assert present(database) == [1]
    assert heir.list_open(OWNER.prefix) == []
    heir.commit(text(1), first)
    assert present(database) == [1]
    heir.close()


def test_what_survives_a_restart_of_the_server_is_committed(server: PostgresServer, database: Any) -> None:
    import psycopg

    writer = writer_of(server)
    token = prepared(writer, 1, 1, 2)
    writer.begin(text(2))
    server.stop()
    server.start()
    with pytest.raises(TransportError):
        writer.write(rows(3))
    writer.close()
    heir = writer_of(server, execution_id=2)
    heir.commit(text(1), token)
    heir.close()
    with psycopg.connect(server.conninfo, autocommit=True) as connection:
        assert present(connection) == [1, 2]


def test_a_transaction_that_somebody_rolled_back_is_lost_and_that_is_said(
    server: PostgresServer, database: Any
) -> None:
    writer = writer_of(server)
    token = prepared(writer, 1, 1, 2)
    writer_of(server).rollback(text(1))
    with pytest.raises(DataLostError, match=r"jetfast\.job\.id\.write\.1\.0\.1.*2 rows are lost"):
        writer.commit(text(1), token)
    writer.close()


def test_a_process_that_has_lost_its_job_can_prepare_nothing_any_more(server: PostgresServer, database: Any) -> None:
    zombie = writer_of(server, execution_id=1)
    zombie.begin(text(1))
    zombie.write(rows(1))
    heir = writer_of(server, execution_id=2)
    with pytest.raises(TransportError):
        zombie.prepare(text(1))
    assert heir.list_open(OWNER.prefix) == []
    heir.close()
    zombie.close()


def test_writers_of_the_same_execution_and_of_other_sinks_are_left_alone(server: PostgresServer, database: Any) -> None:
    first = writer_of(server)
    first.begin(text(1))
    second = writer_of(server)
    other = jf.postgres(server.conninfo, "target").open_transactions(
        SCHEMA, ProcessorContext(vertex="other", job="job", job_id="id", execution_id=9)
    )
    first.write(rows(1))
    token = first.seal(text(1))
    assert first.prepare(text(1))
    first.commit(text(1), token)
    assert present(database) == [1]
    for writer in (first, second, other):
        writer.close()


def test_an_open_transaction_can_be_rolled_back_and_the_next_begun(server: PostgresServer, database: Any) -> None:
    writer = writer_of(server)
    writer.begin(text(1))
    writer.write(rows(1))
    writer.rollback(text(1))
    token = prepared(writer, 2, 2)
    writer.commit(text(2), token)
    assert present(database) == [2]
    writer.close()


def test_marks_of_commits_are_forgotten_when_no_snapshot_names_them(server: PostgresServer, database: Any) -> None:
    writer = writer_of(server)
    for sequence in (1, 2, 3):
        writer.commit(text(sequence), prepared(writer, sequence, sequence))
    writer.forget([text(1), text(2)])
    assert database.execute("select transaction from jetfast_commits").fetchall() == [(text(3),)]
    writer.close()


def test_staged_rows_leave_nothing_behind(server: PostgresServer, database: Any) -> None:
    writer = writer_of(server)
    writer.commit(text(1), prepared(writer, 1, 1, 2))
    prepared(writer, 2, 3)
    writer.rollback(text(2))
    tables = database.execute("select tablename from pg_tables where tablename like 'jetfast_staged%'").fetchall()
    for (table,) in tables:
        assert database.execute(f"select count(*) from {table}").fetchone() == (0,)
    writer.close()


def test_a_row_that_the_table_refuses_is_the_users_error_with_the_servers_words(
    server: PostgresServer, database: Any
) -> None:
    database.execute("create table positive (id bigint check (id > 0), x text)")
    writer = writer_of(server, table="positive")

    def write_and_commit() -> None:  # staged rows meet the table's checks when they are moved there
        writer.commit(text(1), prepared(writer, 1, -1))

    with pytest.raises(JobFailedError, match=r"postgres\(positive\).*positive_id_check"):
        write_and_commit()
    writer.close()


@pytest.mark.parametrize("wanted", ["prepared", None])
def test_a_server_that_prepares_nothing_is_told_how_to(
    unprepared_server: PostgresServer, wanted: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    sink = jf.postgres(unprepared_server.conninfo, "pg_class", transactions=wanted)
    if wanted is None:
        sink.check_target()
        told = caplog.text
    else:
        with pytest.raises(JobDefinitionError) as caught:
            sink.check_target()
        told = str(caught.value)
    assert "ALTER SYSTEM SET max_prepared_transactions" in told


def test_the_server_is_seen_to_commit_by_one_connection_what_another_prepared(
    postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psycopg

    postgres_server.clear()
    with psycopg.connect(postgres_server.conninfo, autocommit=True) as connection:
        connection.execute("create table seen (n bigint)")
        sink = jf.postgres(postgres_server.conninfo, "seen")
        sink.check_target()
        assert connection.execute("select count(*) from jetfast_commits").fetchone() == (0,)
        monkeypatch.setattr(PostgresTransactions, "prepare", lambda self, transaction: True)  # as a pooler may do
        with pytest.raises(JobDefinitionError, match="cannot be committed by another"):
            sink.check_target()
        connection.execute("drop table seen, jetfast_commits")


@pytest.mark.parametrize("seed", range(6))
def test_each_row_is_seen_once_whatever_crashes_and_when(server: PostgresServer, database: Any, seed: int) -> None:
    database.execute("create table numbers (n bigint)")

    def numbers(found: Sequence[int]) -> pa.RecordBatch:
        return pa.record_batch({"n": pa.array(found, pa.int64())})

    def visible() -> list[int]:
        return [number for (number,) in database.execute("select n from numbers").fetchall()]

    verify_sink(jf.postgres(server.conninfo, "numbers"), visible, seed=seed, rows=numbers)
    assert database.execute("select count(*) from pg_prepared_xacts").fetchone() == (0,)


def test_a_role_that_may_not_make_tables_is_told_at_submission(postgres_server: PostgresServer) -> None:
    import psycopg

    with psycopg.connect(postgres_server.conninfo, autocommit=True) as connection:
        connection.execute("create table plain (n bigint); create role clerk login; grant insert on plain to clerk")
        connection.execute("revoke create on schema public from public; grant usage on schema public to clerk")
    sink = jf.postgres(postgres_server.conninfo.replace("user=postgres", "user=clerk"), "plain")
    try:
        with pytest.raises(JobDefinitionError, match="permission denied for schema public"):
            sink.check_target()
    finally:
        with psycopg.connect(postgres_server.conninfo, autocommit=True) as connection:
            connection.execute("drop owned by clerk; drop role clerk; drop table plain")


def write_all(sink: Postgres, schema: pa.Schema, *batches: pa.RecordBatch) -> None:
    writer = sink.open_writer(schema, ProcessorContext(vertex="write"))
    for batch in batches:
        writer.write(Batch.from_arrow(batch))
    writer.flush()
    writer.finish()


def test_an_upsert_replaces_rows_of_the_same_key_and_the_last_one_counts(server: PostgresServer, database: Any) -> None:
    database.execute("create table totals (k bigint, j text, n bigint, primary key (k, j))")
    sink = jf.postgres(server.conninfo, "totals", upsert_by=["k", "j"])
    schema = pa.schema([("n", pa.int64()), ("j", pa.string()), ("k", pa.int64())])
    sink.check(schema)
    first = pa.record_batch([[1, 2, 3], ["a", "a", "b"], [1, 1, 1]], schema=schema)
    second = pa.record_batch([[9], ["b"], [1]], schema=schema)
    for _ in range(2):
        write_all(sink, schema, first, second)
        found = database.execute("select k, j, n from totals order by k, j").fetchall()
        assert found == [(1, "a", 2), (1, "b", 9)]


def test_an_upsert_of_keys_alone_keeps_them(server: PostgresServer, database: Any) -> None:
    database.execute("create table seen (k bigint primary key)")
    schema = pa.schema([("k", pa.int64())])
    write_all(jf.postgres(server.conninfo, "seen", upsert_by="k"), schema, pa.record_batch([[1, 1, 2]], schema=schema))
    assert database.execute("select k from seen order by k").fetchall() == [(1,), (2,)]


def test_rows_that_do_not_fit_the_table_are_refused_when_the_pipeline_is_built(
    server: PostgresServer, database: Any
) -> None:
    database.execute("create table totals (k bigint, n bigint)")
    source = jf.Pipeline("x").read(jf.memory({"k": [1], "m": [2], "l": [[1]]}))
    with pytest.raises(JobDefinitionError, match="no column 'm'; it has k, n"):
        source.select("k", "m").write(jf.postgres(server.conninfo, "totals"))
    with pytest.raises(JobDefinitionError, match="no unique index"):
        source.select("k").write(jf.postgres(server.conninfo, "totals", upsert_by="k"))
    with pytest.raises(JobDefinitionError, match="upsert_by names 'n'"):
        source.select("k").write(jf.postgres(server.conninfo, "totals", upsert_by="n"))
    database.execute("alter table totals add column l bigint[]")
    with pytest.raises(JobDefinitionError, match="'l' of type list"):
        source.select("l").write(jf.postgres(server.conninfo, "totals"))


def test_extreme_values_survive_the_way_there_and_back(server: PostgresServer, database: Any) -> None:
    import datetime
    from decimal import Decimal

    database.execute(
        "create table extreme (i bigint, f float8, r real, t text, b bytea, o bool, d date, p timestamp, "
        "z timestamptz, n numeric(38, 10), m time, key int primary key)"
    )
    when = datetime.datetime(9999, 12, 31, 23, 59, 59, 999999)
    columns = {
        "i": pa.array([2**63 - 1, -(2**63), None]),
        "f": pa.array([1.7976931348623157e308, -5e-324, float("nan")]),
        "r": pa.array([3.4028234663852886e38, float("-inf"), None], pa.float32()),
        "t": pa.array(['a,"b"\n\\.\r\n', "", None]),
        "b": pa.array([b"\x00\\\xff", b"", None]),
        "o": pa.array([True, False, None]),
        "d": pa.array([datetime.date(1, 1, 1), datetime.date(9999, 12, 31), None]),
        "p": pa.array([when, datetime.datetime(1, 1, 1), None], pa.timestamp("us")),
        "z": pa.array([when, datetime.datetime(1969, 12, 31, 0, 0, 1), None], pa.timestamp("us", "Europe/Paris")),
        "n": pa.array([Decimal("9999999999999999999999999999.9999999999"), Decimal("-0.0000000001"), None]).cast(
            pa.decimal128(38, 10)
        ),
        "m": pa.array([datetime.time(23, 59, 59, 999999), datetime.time(0), None], pa.time64("us")),
        "key": pa.array([1, 2, 3], pa.int32()),
    }
    batch = pa.record_batch(columns)
    write_all(jf.postgres(server.conninfo, "extreme"), batch.schema, batch)
    p = jf.Pipeline("back")
    p.read(jf.postgres(server.conninfo, "extreme", key="key", bounded=True)).write(jf.collect())
    with jf.LocalCluster().submit(p, progress=False) as job:
        job.wait()
        back = job.to_arrow().combine_chunks().to_batches()[0]
    for name in batch.schema.names:
        wanted = batch.column(name)
        if name == "z":
            wanted = wanted.cast(pa.timestamp("us", "UTC"))
        if name == "f":
            assert back.column(name).slice(0, 2).equals(wanted.slice(0, 2))
        else:
            assert back.column(name).equals(wanted), name
