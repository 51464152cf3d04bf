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
    """Return an error as text, under the nearest class of jetfast.errors that it belongs to: whether a job restarts
    after it must not depend on where it is looked at. An error that is not jetfast's own keeps its class in the text.
    """
    name = type(error).__name__
    kind = next((base.__name__ for base in type(error).__mro__ if getattr(errors, base.__name__, None) is base), name)
    text = str(error) if isinstance(error, JetfastError) else f"{name}: {error}"
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
