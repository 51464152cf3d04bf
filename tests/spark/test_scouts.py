"""Scouts wait for slots and hold them: as many as are wanted, until they are let go."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from jetfast.spark.jobs import SparkJobs
from jetfast.spark.scouts import AGAIN_S, Scouts
from jetfast.spark.slots import count_slots

PATIENCE_S = 300.0


class Holder:
    """Slots without Spark: whoever is sent has one."""

    def __init__(self) -> None:
        self.sent: dict[str, tuple[threading.Thread, threading.Event]] = {}
        self.deaf: set[str] = set()
        """Groups that do not hear the first time that they are told to go."""

    def hold_slot(self, group: str, description: str) -> threading.Thread:
        told = threading.Event()
        thread = threading.Thread(target=told.wait, name=description, daemon=True)
        self.sent[group] = thread, told
        thread.start()
        return thread

    def cancel(self, group: str) -> None:
        if group in self.deaf:
            self.deaf.remove(group)
            return
        self.end(group)

    def end(self, group: str) -> None:
        thread, told = self.sent[group]
        told.set()
        thread.join(PATIENCE_S)

    def has_task(self, group: str) -> bool:
        return self.sent[group][0].is_alive()

    @property
    def there(self) -> list[str]:
        return [group for group in self.sent if self.has_task(group)]


def test_as_many_as_are_wanted_are_sent_and_the_others_let_go() -> None:
    holder = Holder()
    scouts = Scouts(holder, "counts", "c0ffee")
    for count in (0, 2, 3, 3, 1, 0, 2):
        scouts.want(count, 0.0)
        assert scouts.seated == len(holder.there) == count
    assert len(holder.sent) == 5, "who is there stays"
    scouts.close()
    assert not holder.there


def test_one_that_was_told_before_it_could_hear_is_told_again() -> None:
    holder = Holder()
    scouts = Scouts(holder, "counts", "c0ffee")
    scouts.want(1, 0.0)
    holder.deaf = set(holder.sent)
    scouts.want(0, 0.0)
    assert len(holder.there) == 1
    assert scouts.seated == 0, "its slot is no longer counted on"
    scouts.want(0, 0.0)
    assert not holder.there
    scouts.want(2, 0.0)
    holder.deaf = set(holder.there)
    scouts.close()
    assert not holder.there


def test_others_are_sent_after_a_while_for_those_that_ended_by_themselves() -> None:
    holder = Holder()
    scouts = Scouts(holder, "counts", "c0ffee")
    scouts.want(2, 100.0)
    holder.end(holder.there[0])
    for now_s in (101.0, 100.9 + AGAIN_S):
        scouts.want(2, now_s)
        assert scouts.seated == 1
    scouts.want(2, 101.0 + AGAIN_S)
    assert scouts.seated == 2
    scouts.close()


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_on_spark_they_hold_the_slots_that_there_are_and_let_go_of_them(spark: Any) -> None:
    def until(condition: Callable[[], object]) -> None:
        for _ in range(int(PATIENCE_S / 0.05)):
            if condition():
                return
            threading.Event().wait(0.05)
        raise AssertionError("it did not come to that")

    until(lambda: count_slots(spark).busy == 0)
    scouts = Scouts(SparkJobs(spark), "counts", "c0ffee")
    scouts.want(5, 0.0)
    until(lambda: scouts.seated == count_slots(spark).busy == 4)
    scouts.want(2, 0.0)
    until(lambda: scouts.seated == count_slots(spark).busy == 2)
    scouts.close()
    until(lambda: count_slots(spark).busy == 0)
