"""Requests to a job: each is answered once, whatever comes first."""

import pytest

from jetfast.control.open_requests import OpenRequests
from jetfast.errors import OperationRefused

PATIENCE_S = 30.0


def refusal() -> OperationRefused:
    return OperationRefused("the job is over")


def test_a_request_is_answered_by_its_number() -> None:
    requests = OpenRequests()
    (first, done), (second, failed) = requests.add(), requests.add()
    requests.answer(second, OperationRefused("not now"))
    assert not done.done()
    requests.answer(first, None)
    assert done.result(PATIENCE_S) is None
    with pytest.raises(OperationRefused, match="not now"):
        failed.result(PATIENCE_S)


def test_what_is_asked_before_and_after_the_end_is_refused_then() -> None:
    requests = OpenRequests()
    _, before = requests.add()
    requests.close(refusal)
    _, after = requests.add()
    for future in (before, after):
        assert isinstance(future.exception(PATIENCE_S), OperationRefused)
    assert before.exception(PATIENCE_S) is not after.exception(PATIENCE_S), "each has a traceback of its own"


def test_an_answer_after_the_end_changes_nothing() -> None:
    requests = OpenRequests()
    request, future = requests.add()
    requests.close(refusal)
    requests.answer(request, None)
    assert isinstance(future.exception(PATIENCE_S), OperationRefused)
