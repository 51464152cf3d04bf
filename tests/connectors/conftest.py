"""The PostgreSQL server of a test, of either kind."""

import pytest

from tests.connectors.postgres_server import PostgresServer


@pytest.fixture(params=["prepared", "staged"])
def server(request: pytest.FixtureRequest) -> PostgresServer:
    """A server of either kind, empty: tests before may have left what they made."""
    name = "postgres_server" if request.param == "prepared" else "unprepared_server"
    found: PostgresServer = request.getfixturevalue(name)
    found.clear()
    return found
