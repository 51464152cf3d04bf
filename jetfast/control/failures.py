"""Carries an error from a member to the submitter: its class by name, its text, and its traceback as the cause."""

import traceback
from typing import NamedTuple

from jetfast import errors
from jetfast.errors import JetfastError, JobFailedError


class MemberTraceback(Exception):
    """The traceback as it was on the member. Shown as the cause of the error that `rebuild` returns."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"on the member:\n{self.text}"


class Failure(NamedTuple):
    """An error as plain text, fields as in `messages.Failed`."""

    kind: str
    error: str
    traceback: str


def describe(error: BaseException) -> Failure:
    """Return an error as text. An error that is not jetfast's own keeps the name of its class in the text."""
    kind = type(error).__name__
    text = str(error) if isinstance(error, JetfastError) else f"{kind}: {error}"
    return Failure(kind, text, "".join(traceback.format_exception(error)))


def rebuild(failure: Failure, member: int) -> JetfastError:
    """Return the error of a member; a kind that is not in jetfast.errors becomes a JobFailedError naming the member."""
    kind = getattr(errors, failure.kind, None)
    if isinstance(kind, type) and issubclass(kind, JetfastError):
        error = kind(failure.error)
    else:
        error = JobFailedError(f"member {member}: {failure.error}")
    if failure.traceback:
        error.__cause__ = MemberTraceback(failure.traceback)
    return error
