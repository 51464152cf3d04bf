"""Servers that tests of connectors share."""

from collections.abc import Iterator

import pytest

from tests.connectors.postgres_server import PostgresServer


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A PostgreSQL server with prepared transactions."""
    with PostgresServer() as server:
        yield server


@pytest.fixture(scope="session")
def unprepared_server() -> Iterator[PostgresServer]:
    """A PostgreSQL server as it comes: max_prepared_transactions is 0."""
    with PostgresServer(max_prepared_transactions=0) as server:
        yield server


@pytest.fixture(params=["prepared", "staged"])
def server(request: pytest.FixtureRequest) -> PostgresServer:
    """A server of either kind."""
    name = "postgres_server" if request.param == "prepared" else "unprepared_server"
    found: PostgresServer = request.getfixturevalue(name)
    return found
