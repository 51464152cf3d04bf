"""The probe of a PostgreSQL server at submission, through connections that break at every step."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

import jetfast as jf
from jetfast.cli.exit_status import UNREACHABLE, status_of
from jetfast.connectors import postgres
from jetfast.connectors.postgres import Postgres
from jetfast.errors import JobDefinitionError, TransportError
from tests.connectors.cutting_proxy import CuttingProxy
from tests.connectors.postgres_server import PostgresServer

pytestmark = pytest.mark.services
PIECES_MAX = 500


@pytest.fixture
def database(postgres_server: PostgresServer) -> Iterator[Any]:
    import psycopg

    postgres_server.clear()
    with psycopg.connect(postgres_server.conninfo, autocommit=True) as connection:
        connection.execute("create table target (id bigint)")
        yield connection


@pytest.fixture
def proxy(postgres_server: PostgresServer) -> Iterator[CuttingProxy]:
    with CuttingProxy(postgres_server.port) as found:
        yield found


def sink_through(proxy: CuttingProxy) -> Postgres:
    """A sink that has looked at its table."""
    sink = jf.postgres(f"host=127.0.0.1 port={proxy.port} user=postgres dbname=postgres sslmode=disable", "target")
    assert sink.found.table == "public.target"
    return sink


def prepared(database: Any) -> list[str]:
    return [gid for (gid,) in database.execute("select gid from pg_prepared_xacts").fetchall()]


@pytest.mark.parametrize("before", [True, False])
def test_a_connection_that_is_lost_at_any_step_leaves_no_transaction_and_does_not_blame_the_server(
    proxy: CuttingProxy, database: Any, before: bool
) -> None:
    sink = sink_through(proxy)
    failures: list[TransportError] = []
    for pieces in range(1, PIECES_MAX):
        proxy.cut_after(pieces, before=before)
        try:
            sink.check_target()
        except TransportError as error:
            failures.append(error)
        assert prepared(database) == [], f"cut at piece {pieces}"
        if proxy.left is not None:
            break
    assert proxy.left is not None, "it never came to the end"
    assert len(failures) > 10
    assert {status_of(error) for error in failures} == {UNREACHABLE}
    proxy.left = None
    sink.check_target()


def test_a_probe_that_could_not_be_rolled_back_is_swept_by_a_later_submission(
    proxy: CuttingProxy, database: Any, postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The proxy stays dead from the cut on, so that the submission can clean nothing up itself."""
    sink = sink_through(proxy)
    for pieces in range(1, PIECES_MAX):
        proxy.cut_after(pieces, before=False, stays_dead=True)
        with suppress(TransportError):
            sink.check_target()
        if proxy.left is not None:
            break
    proxy.left = None
    sessions = "select from pg_stat_activity where application_name like 'jetfast%'"
    while database.execute(sessions).fetchone() is not None:
        continue  # the server has not seen yet that they are cut
    left = len(prepared(database))
    assert left > 0
    direct = jf.postgres(postgres_server.conninfo, "target")
    direct.check_target()
    assert len(prepared(database)) == left, "they may be in use"
    monkeypatch.setattr(postgres, "PROBE_AGE_S", 0.0)
    direct.check_target()
    assert prepared(database) == []
    assert database.execute("select * from jetfast_commits").fetchall() == []


def test_only_probes_of_the_same_role_are_swept(
    database: Any, postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psycopg

    monkeypatch.setattr(postgres, "PROBE_AGE_S", 0.0)
    number = "0123456789abcdef" * 2
    mine = [f"jetfast-probe.{number}", f"jetfast.probe=20{number}..probe.1.0.0"]
    kept = [f"jetfast.probe=20{number}.id.probe.1.0.0", "jetfast-probe.x", f"jetfast.probe=20{number}..probe.2.0.0"]
    database.execute("create role clerk login")
    try:
        with psycopg.connect(postgres_server.conninfo.replace("user=postgres", "user=clerk"), autocommit=True) as clerk:
            for connection, gids in ((database, mine + kept), (clerk, [f"jetfast-probe.{number[::-1]}"])):
                for gid in gids:
                    connection.execute("begin")
                    connection.execute("select pg_advisory_xact_lock_shared(1)")
                    connection.execute(f"prepare transaction '{gid}'")
        jf.postgres(postgres_server.conninfo, "target").check_target()
        assert sorted(prepared(database)) == sorted([*kept, f"jetfast-probe.{number[::-1]}"])
    finally:
        for gid in prepared(database):
            database.execute(f"rollback prepared '{gid}'")
        database.execute("drop role clerk")


def test_a_server_that_refuses_to_commit_is_blamed_and_nothing_is_left(
    database: Any, postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise ValueError("not over this connection")

    monkeypatch.setattr(postgres.PostgresTransactions, "commit", refuse)
    with pytest.raises(JobDefinitionError, match="cannot be committed by another"):
        jf.postgres(postgres_server.conninfo, "target").check_target()
    assert prepared(database) == []
