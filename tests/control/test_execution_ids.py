"""Ids of executions: greater than all that were known when they were given."""

from jetfast.control.execution_ids import new_execution_id


def test_execution_ids_strictly_increase() -> None:
    ids = [new_execution_id() for _ in range(1000)]
    assert ids == sorted(set(ids))


def test_an_execution_id_is_greater_than_the_one_in_the_record_whatever_the_clock_says() -> None:
    ahead_of_the_clock = new_execution_id() + 10**15
    assert new_execution_id(ahead_of_the_clock) > ahead_of_the_clock
