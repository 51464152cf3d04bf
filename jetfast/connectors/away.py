"""Which errors of outside systems mean that the system is away now, and may answer when it is asked again."""

import re

_AWS_AWAY = re.compile(
    r"AWS Error (NETWORK_CONNECTION|REQUEST_TIMEOUT|SERVICE_UNAVAILABLE|SLOW_DOWN|THROTTLING|INTERNAL_FAILURE)"
)
"""In the text of an OSError of Arrow's S3 file system."""
_POSTGRES_REFUSES = re.compile(
    r"password authentication failed|no password supplied|no pg_hba\.conf entry|"
    r"(database|role) \"[^\"]*\" does not exist"
)
"""In the text of libpq's errors: the server is there, and the connection string is wrong."""


def is_away(error: BaseException) -> bool:
    """Does an error of a system call or of a file system mean that the other side is away?"""
    if isinstance(error, ConnectionError | TimeoutError):
        return True
    return isinstance(error, OSError) and _AWS_AWAY.search(str(error)) is not None


def postgres_is_away(text: str) -> bool:
    """Does libpq's text about a connection that failed mean that the server is away?"""
    return _POSTGRES_REFUSES.search(text) is None
