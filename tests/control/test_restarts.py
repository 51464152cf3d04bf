"""How often a job is started again, and how soon."""

from jetfast.control.restarts import Restarts
from jetfast.errors import MemberLostError, TransportError

CUT_OFF, LOST = TransportError("cut off"), MemberLostError("died")


def test_the_delay_doubles_from_1_s_to_60_s_until_the_job_comes_further() -> None:
    restarts = Restarts(None)
    assert [restarts.next_delay_s(CUT_OFF) for _ in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]
    restarts.came_further()
    assert restarts.next_delay_s(CUT_OFF) == 1


def test_the_first_lost_member_is_replaced_at_once_and_the_delays_of_others_stay() -> None:
    restarts = Restarts(None)
    assert [restarts.next_delay_s(error) for error in (CUT_OFF, LOST, LOST, CUT_OFF)] == [1, 0, 2, 4]
    restarts.came_further()
    assert [restarts.next_delay_s(LOST) for _ in range(2)] == [0, 1]


def test_restarts_are_counted_from_the_beginning_and_limited_since_the_job_was_resumed() -> None:
    restarts = Restarts(2)
    restarts.count += 1
    assert restarts.is_left
    restarts.count += 1
    assert not restarts.is_left
    restarts.resume()
    assert restarts.is_left
    assert restarts.count == 2
    assert not Restarts(0).is_left
