"""With which status a command ends: by who must act. docs/command_line.md lists them for users."""

from jetfast.connectors.away import is_away
from jetfast.errors import (
    JetfastError,
    JobCancelledError,
    JobDefinitionError,
    JobNotFound,
    JobUnreachable,
    OperationRefused,
    RestartableError,
    StoreUnavailable,
    SystemUnavailable,
    TransportError,
)

FAILED = 1
WRONG = 2
NOT_FOUND = 3
REFUSED = 4
UNREACHABLE = 5
CANCELLED = 6
INTERRUPTED = 130
"""Of SIGINT: 128 + 2."""
STOPPED = 143
"""Of SIGTERM without a last snapshot: 128 + 15."""

_BY_ERROR: tuple[tuple[type[Exception], int], ...] = (
    (JobNotFound, NOT_FOUND),
    (OperationRefused, REFUSED),
    (JobUnreachable, UNREACHABLE),
    (StoreUnavailable, UNREACHABLE),
    (SystemUnavailable, UNREACHABLE),
    (TransportError, UNREACHABLE),
    (JobCancelledError, CANCELLED),
    (JobDefinitionError, WRONG),
    (TypeError, WRONG),
    (JetfastError, FAILED),
)


def status_of(error: Exception) -> int:
    """Return the exit status for the error of a command; FAILED for one that is not foreseen."""
    if isinstance(error, OSError) and is_away(error):
        return UNREACHABLE
    return next((status for kind, status in _BY_ERROR if isinstance(error, kind)), FAILED)


def status_of_job(error: Exception) -> int:
    """Return the exit status for the error that a job has ended with.

    A job tries again by itself while a system is away. One that has ended has no restart left: that is a failure.
    """
    return FAILED if isinstance(error, RestartableError) else status_of(error)
