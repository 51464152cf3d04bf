"""Errors of the usual clients that pass by themselves are known without importing these clients."""

import http.client
import urllib.error
from email.message import Message
from types import SimpleNamespace
from typing import Any

import pytest

from jetfast.core.transient_errors import is_transient


def error_of(module: str, name: str, *bases: type[Exception], **attributes: Any) -> Exception:
    """An error as a client of this module makes it."""
    made = type(name, bases or (Exception,), {"__module__": module})("boom")
    for attribute, value in attributes.items():
        setattr(made, attribute, value)
    assert isinstance(made, Exception)
    return made


def of_status(status: int) -> list[Exception]:
    response = SimpleNamespace(status_code=status)
    return [
        urllib.error.HTTPError("http://host", status, "boom", Message(), None),
        error_of("requests.exceptions", "HTTPError", OSError, response=response),
        error_of("httpx", "HTTPStatusError", response=response),
        error_of("aiohttp.client_exceptions", "ClientResponseError", status=status),
        error_of("botocore.exceptions", "ClientError", response={"ResponseMetadata": {"HTTPStatusCode": status}}),
    ]


@pytest.mark.parametrize(
    "error",
    [
        ConnectionResetError("reset"),
        ConnectionRefusedError("refused"),
        BrokenPipeError("broken"),
        TimeoutError("late"),
        http.client.RemoteDisconnected("gone"),
        http.client.IncompleteRead(b""),
        urllib.error.URLError(ConnectionRefusedError("refused")),
        error_of("requests.exceptions", "ConnectionError", OSError),
        error_of("requests.exceptions", "ReadTimeout", type(error_of("requests.exceptions", "Timeout", OSError))),
        error_of("httpx", "ConnectTimeout", type(error_of("httpx", "TransportError"))),
        error_of("aiohttp.client_exceptions", "ClientConnectionError"),
        *of_status(503),
        *of_status(429),
    ],
    ids=lambda error: f"{type(error).__module__}.{type(error).__name__}",
)
def test_a_lost_connection_a_time_out_or_an_overloaded_server_passes_by_itself(error: Exception) -> None:
    assert is_transient(error)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("bad row"),
        FileNotFoundError("no such file"),
        PermissionError("denied"),
        KeyError("column"),
        urllib.error.URLError("unknown url type"),
        error_of("requests.exceptions", "InvalidURL", ValueError),
        error_of("mine", "ConnectionError"),
        *of_status(404),
        *of_status(401),
        *of_status(500),
    ],
    ids=lambda error: f"{type(error).__module__}.{type(error).__name__}",
)
def test_an_error_of_data_or_settings_does_not(error: Exception) -> None:
    assert not is_transient(error)
