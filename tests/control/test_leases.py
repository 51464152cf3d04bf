"""Leases: a member never believes in one longer than its coordinator, and two coordinators never grant at once."""

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from jetfast.control.leases import GrantedLeases, HeldLease, lease_clock

ROUNDED_S = 1e-9


def test_a_lease_runs_from_when_it_was_asked_for_not_from_when_its_grant_came() -> None:
    lease = HeldLease(until_s=5.0)
    first = lease.ask(2.0)
    lease.granted(first, 5.0)  # whenever that is
    assert lease.until_s == 7.0
    second, third = lease.ask(3.0), lease.ask(4.0)
    lease.granted(third, 5.0)
    lease.granted(second, 50.0)  # it was overtaken
    assert lease.until_s == 9.0
    assert (lease.left_s(8.5), lease.left_s(9.0)) == (0.5, 0.0)


def test_what_a_member_never_asked_renews_nothing_and_a_short_grant_shortens_nothing() -> None:
    lease = HeldLease(until_s=5.0)
    lease.granted(7, 100.0)
    number = lease.ask(1.0)
    lease.granted(number, 0.0)
    lease.granted(number, 100.0)
    assert lease.until_s == 5.0


def test_a_member_that_does_not_ask_is_given_up_after_one_lease() -> None:
    leases = GrantedLeases(5.0)
    assert leases.grant(0, 10.0) == leases.grant(1, 10.0) == 5.0
    assert leases.grant(1, 11.0) == 5.0
    assert leases.run_out(14.9) == []
    assert leases.run_out(15.0) == [0]
    leases.end(0)
    assert leases.run_out(15.9) == []
    assert leases.run_out(16.0) == [1]


def test_a_coordinator_grants_no_more_than_it_knows_that_the_job_is_its_own() -> None:
    leases = GrantedLeases(5.0, confirmed_s=-math.inf)
    assert leases.grant(0, 10.0) == 0.0
    leases.confirm(10.0)
    leases.confirm(9.0)  # a look that took long
    assert leases.grant(0, 12.0) == 3.0
    assert leases.grant(0, 15.0) == leases.grant(0, 16.0) == 0.0
    assert leases.left_s(12.0) == 3.0
    assert leases.run_out(14.9) == []
    assert leases.run_out(15.0) == [0]


@given(st.data())
@settings(deadline=None, max_examples=40)
def test_no_lease_outlives_what_its_coordinator_takes_it_for_or_the_claim_of_another_one(data: st.DataObject) -> None:
    """Questions and grants take any time, looks see the record as it was while they lasted."""
    now_s, claimed_s = 0.0, data.draw(st.floats(0, 20))
    member, leases = HeldLease(until_s=0.0), GrantedLeases(5.0, confirmed_s=0.0)
    asked: list[int] = []
    granted: list[tuple[int, float]] = []
    known_until_s = 0.0
    for _ in range(data.draw(st.integers(1, 20))):
        now_s += data.draw(st.floats(0, 3))
        what = data.draw(st.sampled_from(["ask", "grant", "hear", "look"]))
        if what == "ask":
            asked.append(member.ask(now_s))
        elif what == "grant" and asked:
            seconds = leases.grant(0, now_s)
            known_until_s = max(known_until_s, now_s + seconds)
            granted.append((asked.pop(0), seconds))
        elif what == "hear" and granted:
            member.granted(*granted.pop(0))
        elif what == "look":
            began_s = now_s
            now_s += data.draw(st.floats(0, 3))
            if data.draw(st.floats(began_s, now_s)) < claimed_s:  # when the record was read
                leases.confirm(began_s)
        assert member.until_s <= known_until_s + ROUNDED_S
        assert member.until_s <= claimed_s + 5.0 + ROUNDED_S
        if member.left_s(now_s) > ROUNDED_S:
            assert leases.run_out(now_s) == []


def test_the_clock_goes_on() -> None:
    assert lease_clock() <= lease_clock()
