"""Reading a PostgreSQL table that grows: every type, no row twice, none passed over that commits later."""

import datetime
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import jetfast as jf
from jetfast.connectors.postgres import Postgres
from jetfast.core.processor import ProcessorContext
from jetfast.errors import JobDefinitionError, JobFailedError, TransportError
from tests.connectors.postgres_server import PostgresServer

pytestmark = pytest.mark.services
COLUMNS = (
    "id bigint generated always as identity primary key, t text, b numeric(10,2), n numeric, z timestamptz, "
    "p timestamp, d date, y bytea, f float8, o bool, j jsonb, u uuid, r real, m time, s smallint"
)


class Clock:
    """Time that goes on by one second each time it is looked at."""

    now = 0

    def __call__(self) -> int:
        self.now += 1_000_000
        return self.now


@pytest.fixture
def database(postgres_server: PostgresServer) -> Iterator[Any]:
    import psycopg

    postgres_server.clear()
    with psycopg.connect(postgres_server.conninfo, autocommit=True) as connection:
        yield connection


def reader_of(source: Postgres, position: bytes | None = None, clock: Any = None) -> Any:
    source.schema  # noqa: B018  # as the planner looks at it
    context = ProcessorContext(vertex="read", now_us=clock or Clock())
    return source.open_reader(source.partitions()[0], position, context)


def ids(rows: Any) -> list[int]:
    return rows.batch.to_arrow().column("id").to_pylist()


def test_every_type_arrives_as_it_is(postgres_server: PostgresServer, database: Any) -> None:
    database.execute(f"create table every ({COLUMNS})")
    database.execute(
        "insert into every (t,b,n,z,p,d,y,f,o,j,u,r,m,s) values (%s,1.25,'123456789012345678901234567890.5',"
        "'2020-01-01 00:00:00.123456+02','1969-12-31 23:59:59.999999','0044-03-15','\\x00ff','NaN',true,'{\"a\": 1}',"
        "'00000000-0000-0000-0000-000000000001',1.5,'12:34:56.789',-32768), ('',null,null,null,null,null,'','-inf',"
        "false,null,null,null,null,null), (null,null,null,null,null,null,null,null,null,null,null,null,null,null)",
        ('line\n"two", ä\\',),
    )
    p = jf.Pipeline("types")
    p.read(jf.postgres(postgres_server.conninfo, "every", key="id", bounded=True)).write(jf.collect())
    with jf.LocalCluster().submit(p, progress=False) as job:
        job.wait()
        rows = job.to_arrow().to_pylist()
    utc = datetime.UTC
    assert rows[0] == {
        "id": 1,
        "t": 'line\n"two", ä\\',
        "b": Decimal("1.25"),
        "n": "123456789012345678901234567890.5",
        "z": datetime.datetime(2019, 12, 31, 22, 0, 0, 123456, tzinfo=utc),
        "p": datetime.datetime(1969, 12, 31, 23, 59, 59, 999999),
        "d": datetime.date(44, 3, 15),
        "y": b"\x00\xff",
        "f": pytest.approx(float("nan"), nan_ok=True),
        "o": True,
        "j": '{"a": 1}',
        "u": "00000000-0000-0000-0000-000000000001",
        "r": 1.5,
        "m": datetime.time(12, 34, 56, 789000),
        "s": -32768,
    }
    assert (rows[1]["t"], rows[1]["y"], rows[1]["f"], rows[1]["o"]) == ("", b"", float("-inf"), False)
    assert all(value is None for name, value in rows[2].items() if name != "id")


def test_rows_are_read_in_pages_and_from_a_position_on(postgres_server: PostgresServer, database: Any) -> None:
    database.execute("create table numbers (id int primary key, x text)")
    database.execute("insert into numbers select i, 'x' || i from generate_series(1, 25) i")
    source = jf.postgres(postgres_server.conninfo, "numbers", key="id", bounded=True, batch_rows=10)
    reader = reader_of(source)
    pages = []
    while (rows := reader.read()) is not None:
        pages.append((ids(rows), rows.position))
    reader.close()
    assert [page for page, _ in pages if page] == [[*range(1, 11)], [*range(11, 21)], [*range(21, 26)]]
    database.execute("insert into numbers values (26, 'later')")
    again = reader_of(source, pages[0][1])
    rest = []
    while (rows := again.read()) is not None:
        rest += ids(rows)
    again.close()
    assert rest == [*range(11, 26)], "a bounded reader ends where it would have ended before the restart"


def test_an_unbounded_reader_goes_on_with_what_comes_later(postgres_server: PostgresServer, database: Any) -> None:
    database.execute("create table numbers (id int primary key)")
    reader = reader_of(jf.postgres(postgres_server.conninfo, "numbers", key="id", start_after=5))
    assert ids(reader.read()) == []
    database.execute("insert into numbers values (5), (7)")
    assert ids(reader.read()) == [7]
    assert ids(reader.read()) == []
    database.execute("insert into numbers values (8)")
    assert ids(reader.read()) == [8]
    reader.close()


def test_the_database_is_not_asked_more_often_than_wanted(postgres_server: PostgresServer, database: Any) -> None:
    database.execute("create table numbers (id int primary key)")
    clock = Clock()
    reader = reader_of(jf.postgres(postgres_server.conninfo, "numbers", key="id", poll_interval="10s"), clock=clock)
    assert ids(reader.read()) == []
    database.execute("insert into numbers values (1)")
    assert ids(reader.read()) == []
    clock.now += 10_000_000
    assert ids(reader.read()) == [1]
    reader.close()


def test_a_row_that_commits_late_is_not_passed_over(postgres_server: PostgresServer, database: Any) -> None:
    import psycopg

    database.execute("create table orders (id serial primary key, x text)")
    reader = reader_of(jf.postgres(postgres_server.conninfo, "orders", key="id"))
    with psycopg.connect(postgres_server.conninfo) as slow:
        slow.execute("insert into orders (x) values ('first, committed last')")
        database.execute("insert into orders (x) values ('second, committed first')")
        for _ in range(3):
            assert ids(reader.read()) == [], "key 1 may still appear before key 2"
        slow.commit()
        assert ids(reader.read()) == [1, 2]
        slow.execute("insert into orders (x) values ('rolled back')")
        database.execute("insert into orders (x) values ('fourth')")
        assert ids(reader.read()) == []
        slow.rollback()
        assert ids(reader.read()) == [4]
    reader.close()


def test_a_writer_that_has_a_key_but_no_transaction_id_yet_is_waited_for(
    postgres_server: PostgresServer, database: Any
) -> None:
    import threading

    import psycopg

    # The default takes the key, then waits: no transaction id has been given out by then.
    database.execute("create table orders (id serial primary key)")
    database.execute("select pg_advisory_lock(1)")
    database.execute(
        "create function key_then_wait() returns int volatile language plpgsql as $$ declare k int; begin "
        "k := nextval('orders_id_seq'); perform pg_advisory_xact_lock_shared(1); return k; end $$"
    )
    database.execute("alter table orders alter id set default key_then_wait()")
    database.execute("select nextval('orders_id_seq')")  # so that the next one need not be logged
    reader = reader_of(jf.postgres(postgres_server.conninfo, "orders", key="id"))
    with psycopg.connect(postgres_server.conninfo, autocommit=True) as slow:
        thread = threading.Thread(target=slow.execute, args=("insert into orders default values",))
        thread.start()
        while not database.execute("select 1 from pg_locks where locktype = 'advisory' and not granted").fetchone():
            pass
        database.execute("insert into orders values (3)")
        assert ids(reader.read()) == []
        database.execute("select pg_advisory_unlock(1)")
        thread.join()
        assert ids(reader.read()) == [2, 3]
    reader.close()


def test_a_prepared_transaction_is_waited_for(postgres_server: PostgresServer, database: Any) -> None:
    database.execute("create table orders (id serial primary key)")
    database.execute("begin; insert into orders default values; prepare transaction 'p'")
    database.execute("insert into orders default values")
    reader = reader_of(jf.postgres(postgres_server.conninfo, "orders", key="id"))
    assert ids(reader.read()) == []
    database.execute("commit prepared 'p'")
    assert ids(reader.read()) == [1, 2]
    reader.close()


def test_writers_of_a_partition_are_waited_for(postgres_server: PostgresServer, database: Any) -> None:
    import psycopg

    database.execute("create table parts (id serial primary key) partition by range (id)")
    database.execute("create table part partition of parts for values from (0) to (100)")
    reader = reader_of(jf.postgres(postgres_server.conninfo, "parts", key="id"))
    with psycopg.connect(postgres_server.conninfo) as slow:
        slow.execute("insert into part values (1)")
        database.execute("insert into parts values (2)")
        assert ids(reader.read()) == []
        slow.commit()
    assert ids(reader.read()) == [1, 2]
    reader.close()


@pytest.mark.parametrize(
    ("definition", "key", "message"),
    [
        ("id int primary key", None, "by which column it grows"),
        ("id int primary key", "nr", "no column 'nr'"),
        ("id int primary key, p point", "id", r"cannot be read: p \(point\)"),
        ("id jsonb primary key", "id", "order of id"),
        ("id int unique", "id", "may be null"),
        ("id int not null", "id", "not unique"),
        ("id int not null, x int, unique (id, x)", "id", "not unique"),
        ("id int generated always as identity (cache 10) primary key", "id", "CACHE 1"),
    ],
)
def test_tables_of_which_rows_would_be_lost_are_refused(
    postgres_server: PostgresServer, database: Any, definition: str, key: str | None, message: str
) -> None:
    database.execute(f"create table bad ({definition})")
    with pytest.raises(JobDefinitionError, match=message):
        jf.Pipeline("x").read(jf.postgres(postgres_server.conninfo, "bad", key=key))


def test_a_table_or_server_that_is_not_there_is_an_error_without_the_password(postgres_server: PostgresServer) -> None:
    with pytest.raises(JobDefinitionError, match="no such table in database 'postgres' on 127.0.0.1"):
        jf.Pipeline("x").read(jf.postgres(postgres_server.conninfo, "nothing", key="id"))
    with pytest.raises(JobDefinitionError) as caught:
        jf.Pipeline("x").read(jf.postgres("postgresql://me:secret@127.0.0.1:1/db", "t", key="id"))
    assert "127.0.0.1" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_lost_connection_is_a_reason_to_restart_and_a_lost_table_is_not(
    postgres_server: PostgresServer, database: Any
) -> None:
    database.execute("create table numbers (id int primary key)")
    source = jf.postgres(postgres_server.conninfo, "numbers", key="id")
    reader = reader_of(source)
    reader.read()
    database.execute("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'jetfast'")
    with pytest.raises(TransportError):
        reader.read()
    reader.close()
    reader = reader_of(source)
    database.execute("drop table numbers")
    with pytest.raises(JobFailedError, match="rows behind key None"):
        reader.read()
    reader.close()


def test_a_time_that_arrow_cannot_hold_is_an_error_that_says_what_to_do(
    postgres_server: PostgresServer, database: Any
) -> None:
    database.execute("create table times (id int primary key, at timestamp)")
    database.execute("insert into times values (1, 'infinity')")
    reader = reader_of(jf.postgres(postgres_server.conninfo, "times", key="id"))
    with pytest.raises(JobFailedError, match="infinity"):
        reader.read()
    reader.close()


def test_only_the_columns_that_are_needed_are_read(postgres_server: PostgresServer, database: Any) -> None:
    database.execute('create table "Odd ""name""" (id int primary key, "Ä b" text, unread point, x int)')
    database.execute('insert into "Odd ""name""" values (1, \'a\', null, 2)')
    database.execute('create view seen as select id, "Ä b", x from "Odd ""name"""')
    for table in ('"Odd ""name"""', "seen"):
        source = jf.postgres(postgres_server.conninfo, table, key="id")
        if table != "seen":
            with pytest.raises(JobDefinitionError, match="unread"):
                source.schema  # noqa: B018
            continue
        reader = reader_of(source.with_columns(["x", "Ä b"]))
        assert reader.read().batch.to_arrow().equals(pa.record_batch({"x": pa.array([2], pa.int32()), "Ä b": ["a"]}))
        reader.close()
