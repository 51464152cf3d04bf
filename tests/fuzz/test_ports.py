"""Jobs whose ports are attacked end right: a short form of `python -m tests.fuzz.ports`."""

import pytest

from tests.fuzz.ports import Fuzz


@pytest.mark.services
@pytest.mark.timeout(1200)
def test_a_job_ends_right_whatever_comes_to_its_ports() -> None:
    fuzz = Fuzz(seed=0)
    fuzz.run(seconds=6.0)
    assert fuzz.problems == []
    assert fuzz.attacks.total() > 0
