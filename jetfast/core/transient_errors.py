"""Which errors of clients pass by themselves: what a source meets then restarts the job instead of failing it."""

TRANSIENT_STATUSES = frozenset({408, 425, 429, 502, 503, 504})
"""HTTP statuses of a server that is overloaded, restarts, or cannot reach what is behind it."""

_TRANSIENT_CLASSES = frozenset(
    {
        "aiohttp.ClientConnectionError",
        "aiohttp.ClientPayloadError",
        "botocore.HTTPClientError",
        "httpx.TransportError",
        "http.HTTPException",  # http.client: a reply that was cut
        "pymongo.AutoReconnect",
        "redis.ConnectionError",
        "redis.TimeoutError",
        "requests.ChunkedEncodingError",
        "requests.ConnectionError",
        "requests.Timeout",
        "urllib3.ProtocolError",
        "urllib3.TimeoutError",
        "urllib3.MaxRetryError",
    }
)
"""By package and class: clients whose errors are neither ConnectionError nor TimeoutError of Python."""


def is_transient(error: BaseException) -> bool:
    """Return whether what failed may well succeed later: a lost connection, a time-out, a server that is overloaded."""
    if isinstance(error, ConnectionError | TimeoutError):
        return True
    status = _status_of(error)
    if status is not None:
        return status in TRANSIENT_STATUSES
    classes = {f"{base.__module__.partition('.')[0]}.{base.__name__}" for base in type(error).__mro__}
    if not classes.isdisjoint(_TRANSIENT_CLASSES):
        return True
    reason = getattr(error, "reason", None)  # urllib.error.URLError wraps what it met
    return isinstance(reason, BaseException) and is_transient(reason)


def _status_of(error: BaseException) -> int | None:
    """The HTTP status that an error of the usual clients bears: of urllib, aiohttp, requests, httpx and botocore."""
    response = getattr(error, "response", None)
    candidates = [getattr(error, "code", None), getattr(error, "status", None), getattr(response, "status_code", None)]
    if isinstance(response, dict):
        candidates.append(response.get("ResponseMetadata", {}).get("HTTPStatusCode"))
    for status in candidates:
        if isinstance(status, int) and 100 <= status < 600:
            return status
    return None
