"""An error crosses from a member to the submitter as what it is."""

import pytest

from jetfast import errors
from jetfast.control.failures import describe, rebuild
from jetfast.errors import JetfastError, JobFailedError, RestartableError, StoreUnavailable


class BrokerBusyError(RestartableError):
    """A class of a connector's own."""


@pytest.mark.parametrize(
    "kind", [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, JetfastError)]
)
def test_every_error_of_jetfast_arrives_as_it_left(kind: type[JetfastError]) -> None:
    rebuilt = rebuild(describe(kind("words")), 3)
    assert type(rebuilt) is kind
    assert str(rebuilt) == "words"


def test_a_class_of_a_connectors_own_arrives_as_the_nearest_that_is_known() -> None:
    rebuilt = rebuild(describe(BrokerBusyError("later")), 3)
    assert type(rebuilt) is RestartableError
    assert isinstance(rebuild(describe(StoreUnavailable("full")), 3), RestartableError)


def test_any_other_error_fails_the_job_and_names_member_and_class() -> None:
    rebuilt = rebuild(describe(KeyError("x")), 3)
    assert type(rebuilt) is JobFailedError
    assert str(rebuilt) == "member 3: KeyError: 'x'"
