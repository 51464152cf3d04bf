"""With which status a command ends: by who must act. docs/command_line.md lists them for users."""

from jetfast.errors import (
    JetfastError,
    JobCancelledError,
    JobDefinitionError,
    JobNotFound,
    JobUnreachable,
    OperationRefused,
    StoreUnavailable,
)

FAILED = 1
WRONG = 2
NOT_FOUND = 3
REFUSED = 4
UNREACHABLE = 5
CANCELLED = 6
INTERRUPTED = 130

_BY_ERROR: tuple[tuple[type[Exception], int], ...] = (
    (JobNotFound, NOT_FOUND),
    (OperationRefused, REFUSED),
    (JobUnreachable, UNREACHABLE),
    (StoreUnavailable, UNREACHABLE),
    (JobCancelledError, CANCELLED),
    (JobDefinitionError, WRONG),
    (TypeError, WRONG),
    (JetfastError, FAILED),
)


def status_of(error: Exception) -> int:
    """Return the exit status for an error; FAILED for one that nobody foresaw."""
    return next((status for kind, status in _BY_ERROR if isinstance(error, kind)), FAILED)
