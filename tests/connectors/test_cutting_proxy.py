"""The proxy that cuts connections: passes bytes both ways, cuts after a number of them, and is away with its server."""

import socket
import threading
from collections.abc import Iterator

import pytest

from tests.connectors.cutting_proxy import CuttingProxy


@pytest.fixture
def echo() -> Iterator[int]:
    """The port of a server that sends back what it gets."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                with client:
                    while data := client.recv(1024):
                        client.sendall(data)

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()


def ask(port: int, data: bytes) -> bytes:
    """Send, and return all that comes back until as much has come or the connection ends."""
    found = b""
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(data)
        try:
            while len(found) < len(data) and (part := client.recv(1024)):
                found += part
        except ConnectionResetError:
            pass
    return found


def test_bytes_pass_both_ways(echo):
    with CuttingProxy(echo) as proxy:
        assert ask(proxy.port, b"hello") == b"hello"
        assert proxy.cuts == 0


@pytest.mark.parametrize("budget", [0, 3, 7])
def test_a_connection_is_cut_after_a_number_of_bytes_of_both_ways(echo, budget):
    with CuttingProxy(echo) as proxy:
        proxy.cut_after_bytes(budget)
        assert len(ask(proxy.port, b"hello")) == max(budget - 5, 0)
        assert proxy.cuts == 1
        proxy.pass_all()
        assert ask(proxy.port, b"hello") == b"hello"


def test_without_its_server_the_proxy_closes_connections():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with CuttingProxy(port) as proxy:
        assert ask(proxy.port, b"hello") == b""
