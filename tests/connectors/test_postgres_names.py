"""Names in PostgreSQL: percent signs, quotes, dots, braces, blanks, Unicode, and the longest ones."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import jetfast as jf
from jetfast.connectors.postgres import Postgres
from jetfast.errors import JobDefinitionError
from tests.connectors.postgres_server import PostgresServer

pytestmark = pytest.mark.services
NAMES = [
    "100%",
    "%s %(x)s %%",
    'it\'s "quoted"',
    "schema.table",
    "{0} {x}",
    "a\\b",
    "größe 大小 😀",
    " ",
    "select",
    "MiXeD",
    "n" * 63,
    "é" * 31,
    "-- /* ; $1 $$",
]


@pytest.fixture
def database(server: PostgresServer) -> Iterator[Any]:
    import psycopg

    with psycopg.connect(server.conninfo, autocommit=True) as connection:
        yield connection


def quoted(*names: str) -> str:
    from psycopg import sql

    return sql.Identifier(*names).as_string(None)


@pytest.mark.parametrize("upsert", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_a_name_of_a_schema_a_table_and_a_column_is_taken_as_it_is(
    server: PostgresServer, database: Any, name: str, upsert: bool
) -> None:
    table = quoted(name, name)
    database.execute(f"create schema {quoted(name)}")
    database.execute(f"create table {table} ({quoted(name)} bigint primary key, {quoted(name[:-1] + '+')} text)")
    rows = pa.table({name: pa.array([1, 2, 3]), name[:-1] + "+": ["a", None, "%s"]})
    written = jf.Pipeline("there")
    sink = jf.postgres(server.conninfo, table, upsert_by=name if upsert else None)
    written.read(jf.memory(rows)).write(sink)
    cluster = jf.LocalCluster(workers=1, snapshot_store=jf.snapshots.memory())
    job = cluster.submit(written, snapshot_interval="50ms", progress=False)
    assert job.guarantee is jf.Guarantee.EXACTLY_ONCE
    job.wait(60)
    assert database.execute(f"select * from {table} order by 1").fetchall() == [(1, "a"), (2, None), (3, "%s")]
    back = jf.Pipeline("back")
    back.read(jf.postgres(server.conninfo, table, key=name, bounded=True)).write(jf.collect())
    with cluster.submit(back, progress=False) as job:
        assert job.to_arrow().equals(rows)
    left = database.execute("select gid from pg_prepared_xacts").fetchall()
    assert left == []


@pytest.mark.parametrize("name", NAMES)
def test_what_a_crash_left_under_any_name_is_settled(server: PostgresServer, database: Any, name: str) -> None:
    from jetfast.testing import verify_sink

    table = quoted(name, name)
    database.execute(f"create schema {quoted(name)}")
    database.execute(f"create table {table} ({quoted(name)} bigint)")

    def numbers(found: Any) -> pa.RecordBatch:
        return pa.record_batch({name: pa.array(found, pa.int64())})

    def visible() -> list[int]:
        return [number for (number,) in database.execute(f"select * from {table}").fetchall()]

    verify_sink(jf.postgres(server.conninfo, table), visible, seed=1, row_count=10, rows=numbers)


def test_names_that_are_too_long_are_refused_by_name(server: PostgresServer, database: Any) -> None:
    long = "c" * 70
    database.execute(f"create table target ({long} bigint)")  # the server cuts it
    rows = jf.Pipeline("p").read(jf.memory({long: [1]}))
    with pytest.raises(JobDefinitionError, match=rf"no column '{long}'; it has {'c' * 63}"):
        rows.write(jf.postgres(server.conninfo, "target"))


@pytest.mark.parametrize(
    ("sink", "name"),
    [({}, "jetfast transaction"), ({"upsert_by": "id"}, "jetfast row")],
)
def test_names_of_jetfasts_own_columns_are_refused_in_rows(
    server: PostgresServer, database: Any, sink: dict[str, str], name: str
) -> None:
    database.execute(f'create table target (id bigint primary key, "{name}" text)')
    rows = jf.Pipeline("p").read(jf.memory({"id": [1], name: ["x"]}))
    with pytest.raises(JobDefinitionError, match=f"jetfast itself needs the column name '{name}'"):
        rows.write(jf.postgres(server.conninfo, "target", **sink))


def test_the_name_of_jetfasts_own_column_is_refused_where_it_is_read(server: PostgresServer, database: Any) -> None:
    database.execute('create table source (id bigint primary key, "jetfast key" text)')
    source: Postgres = jf.postgres(server.conninfo, "source", key="id")
    with pytest.raises(JobDefinitionError, match="jetfast itself needs the column name 'jetfast key'"):
        jf.Pipeline("p").read(source)
