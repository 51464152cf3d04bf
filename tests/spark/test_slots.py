"""A job that would wait for Spark slots without a word is refused before anything runs, with figures."""

import itertools
from types import SimpleNamespace

import pytest

from jetfast.errors import JobDefinitionError, ResourcesError
from jetfast.spark import SparkCluster
from jetfast.spark.slots import Size, Slots, choose_size, require_slots


def test_what_is_no_session_of_this_process_is_refused() -> None:
    connect = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    with pytest.raises(ResourcesError, match="Spark Connect session"):
        SparkCluster(connect)
    with pytest.raises(JobDefinitionError, match="needs a SparkSession, got str"):
        SparkCluster("local[4]")
    stopped = SimpleNamespace(sparkContext=SimpleNamespace(_jsc=None))
    with pytest.raises(ResourcesError, match="has been stopped"):
        SparkCluster(stopped)


def test_speculation_of_long_tasks_is_refused() -> None:
    settings = {"spark.speculation": "true", "spark.speculation.task.duration.threshold": "10min"}
    context = SimpleNamespace(_jsc=object(), getConf=lambda: settings)
    with pytest.raises(ResourcesError, match=r"spark\.speculation is on with .*Unset one of the two"):
        SparkCluster(SimpleNamespace(sparkContext=context, conf={}))
    settings["spark.speculation"] = "false"
    assert SparkCluster(SimpleNamespace(sparkContext=context, conf={}), members=2).members == 2


def looks(*answers: Slots) -> tuple[list[float], "itertools.chain[Slots]"]:
    """A clock that moves by the sleeps only, and what is seen at each look (the last one for ever)."""
    return [0.0], itertools.chain(answers, itertools.repeat(answers[-1]))


def require(needed: int, *answers: Slots) -> tuple[Slots, float]:
    time_s, seen = looks(*answers)

    def sleep(seconds: float) -> None:
        time_s[0] += seconds

    return require_slots(lambda: next(seen), needed, 20.0, lambda: time_s[0], sleep), time_s[0]


def test_enough_free_slots_are_taken_at_once() -> None:
    assert require(2, Slots(1, 4, 2, 1)) == (Slots(1, 4, 2, 1), 0.0)


def test_too_few_slots_name_needed_and_present() -> None:
    with pytest.raises(
        ResourcesError, match=r"3 free Spark slots are needed.* there are 2: 1 executor\(s\) with 2 slot"
    ):
        require(3, Slots(1, 2, 0, 1, executors_expected=1))


def test_busy_slots_are_not_free() -> None:
    with pytest.raises(ResourcesError, match=r"there are 1: .* 3 of them busy"):
        require(2, Slots(1, 4, 3, 1, executors_expected=1))


def test_slots_that_cannot_come_are_not_waited_for() -> None:
    time_s, seen = looks(Slots(2, 4, 0, 1, executors_expected=2))
    with pytest.raises(ResourcesError):
        require_slots(lambda: next(seen), 5, 20.0, lambda: time_s[0], lambda _: pytest.fail("waited"))


def test_executors_that_are_still_starting_are_waited_for() -> None:
    slots, waited_s = require(3, Slots(0, 0, 0, 1, 2), Slots(1, 2, 0, 1, 2), Slots(2, 4, 0, 1, 2))
    assert slots.total == 4
    assert waited_s == pytest.approx(0.4)


def patience(answer: Slots, needed: int = 3) -> float:
    """How long slots are waited for if 20 s are given in all, and 120 s for what is certain to come."""
    time_s = [0.0]

    def sleep(seconds: float) -> None:
        time_s[0] += seconds

    with pytest.raises(ResourcesError, match=f"{needed} free Spark slots are needed"):
        require_slots(lambda: answer, needed, 20.0, lambda: time_s[0], sleep, start_wait_s=120.0)
    return time_s[0]


def test_executors_that_are_certain_to_come_and_the_first_one_have_the_time_of_a_start() -> None:
    assert patience(Slots(1, 2, 0, 1, executors_expected=2)) == pytest.approx(120, abs=0.5)
    assert patience(Slots(0, 0, 0, 1)) == pytest.approx(120, abs=0.5)
    assert patience(Slots(1, 2, 0, 1)) == pytest.approx(20, abs=0.5), "nobody knows of another"
    assert patience(Slots(2, 4, 3, 1, executors_expected=2)) == pytest.approx(20, abs=0.5), "others hold them"
    assert patience(Slots(0, 0, 0, 1, may_grow_to=8), needed=9) == pytest.approx(20, abs=0.5), "it cannot grow so far"


def test_the_next_executor_has_its_time_when_one_has_come() -> None:
    none_yet, one = [Slots(0, 0, 0, 1)] * 90, [Slots(1, 2, 0, 1)] * 90  # a look every 0.2 s
    slots, waited_s = require(4, *none_yet, *one, Slots(2, 4, 0, 1))
    assert slots.total == 4
    assert waited_s == pytest.approx(36)


def test_slots_of_a_job_that_is_just_ending_are_waited_for() -> None:
    assert require(2, Slots(1, 4, 4, 1, 1), Slots(1, 4, 2, 1, 1))[0].free == 2


def test_executors_that_do_not_come_are_an_error_in_the_end() -> None:
    with pytest.raises(ResourcesError, match="there are 2"):
        require(3, Slots(1, 2, 0, 1, None))


def test_dynamic_allocation_counts_with_what_it_may_bring() -> None:
    assert require(3, Slots(0, 0, 0, 1, may_grow_to=8))[1] == 0.0
    with pytest.raises(ResourcesError, match="dynamic allocation may bring it to 8"):
        require(9, Slots(0, 0, 0, 1, may_grow_to=8))
    with pytest.raises(ResourcesError, match="7 of them busy"):
        require(2, Slots(4, 8, 7, 1, may_grow_to=8))


@pytest.mark.parametrize(
    ("slots", "size"),
    [
        (Slots(1, 4, 0, 1, executors_expected=1, per_executor=4), Size(1, 4)),  # local[4]
        (Slots(0, 0, 0, 1, executors_expected=3, per_executor=2), Size(3, 2)),  # they have not come yet
        (Slots(2, 4, 1, 2, per_executor=2), Size(2, 4)),  # spark.task.cpus=2
        (Slots(0, 0, 0, 1, may_grow_to=2**20, per_executor=1), Size(2, 1)),
        (Slots(0, 0, 0, 1, may_grow_to=8, per_executor=8), Size(1, 8)),
        (Slots(5, 20, 0, 1, may_grow_to=80, per_executor=4), Size(5, 4)),
    ],
)
def test_by_default_each_executor_has_a_member_with_all_its_cores(slots: Slots, size: Size) -> None:
    assert choose_size(lambda: slots, sleep=lambda _: pytest.fail("waited")) == size


def test_where_nobody_knows_how_many_executors_come_the_first_is_waited_for() -> None:
    time_s, seen = looks(Slots(0, 0, 0, 1), Slots(0, 0, 0, 1), Slots(2, 4, 0, 1, per_executor=2))

    def sleep(seconds: float) -> None:
        time_s[0] += seconds

    assert choose_size(lambda: next(seen), 20.0, lambda: time_s[0], sleep) == Size(2, 2)
    assert time_s[0] == pytest.approx(0.4)
    assert choose_size(lambda: Slots(0, 0, 0, 1), 20.0, lambda: time_s[0], sleep) == Size(1, 1)
