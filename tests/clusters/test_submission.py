"""Submitting: wrong settings are refused before anything runs, with what was needed and what came."""

import logging
from typing import Any

import pytest

from jetfast.clusters import LocalCluster
from jetfast.clusters.submission import accept_submission, bytes_of
from jetfast.core.dag import Dag
from jetfast.core.guarantee import Guarantee
from jetfast.errors import JobDefinitionError


class Planned:
    """A pipeline that remembers how it was planned."""

    def __init__(self) -> None:
        self.name = "flights"
        self.asked: list[dict[str, Any]] = []

    def plan(self, *, member_count: int, workers: int, two_stage: bool | None) -> Dag:
        self.asked.append({"member_count": member_count, "workers": workers, "two_stage": two_stage})
        return Dag(self.name)


def accept(pipeline: Any = None, **settings: Any) -> Any:
    defaults: dict[str, Any] = {
        "member_count": 2,
        "workers": 3,
        "name": None,
        "guarantee": None,
        "memory_limit": "1GB",
        "progress": False,
        "two_stage": None,
    }
    return accept_submission(pipeline or Planned(), **{**defaults, **settings})


def test_a_pipeline_is_planned_for_the_members_and_workers_there_are() -> None:
    pipeline = Planned()
    submission = accept(pipeline, two_stage=True)
    assert pipeline.asked == [{"member_count": 2, "workers": 3, "two_stage": True}]
    assert submission.job == "flights"
    assert submission.memory_limit_bytes == 10**9
    assert accept(name="other").job == "other"
    assert accept().job_id != accept().job_id


@pytest.mark.parametrize(
    ("settings", "error", "text"),
    [
        ({"pipeline": 3}, TypeError, "needs a jetfast.Pipeline, got int"),
        ({"name": ""}, JobDefinitionError, "name must be text"),
        ({"guarantee": "exactly-once"}, TypeError, "Guarantee.EXACTLY_ONCE"),
        ({"guarantee": Guarantee.EXACTLY_ONCE}, JobDefinitionError, "EXACTLY_ONCE needs snapshots"),
        ({"guarantee": Guarantee.AT_LEAST_ONCE}, JobDefinitionError, "AT_LEAST_ONCE needs snapshots"),
        ({"memory_limit": 5}, TypeError, 'did you mean "5MB"'),
        ({"memory_limit": None}, TypeError, "got NoneType"),
        ({"memory_limit": "a lot"}, JobDefinitionError, "'a lot' cannot be read"),
        ({"memory_limit": "-1GB"}, JobDefinitionError, "cannot be read"),
        ({"memory_limit": "0MB"}, JobDefinitionError, "greater than zero"),
        ({"progress": "yes"}, TypeError, "progress must be True, False or None"),
        ({"two_stage": "yes"}, TypeError, "two_stage must be True, False or None"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        accept(**settings)


def test_the_default_guarantee_is_none_and_said_so(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "jetfast")
    assert accept().guarantee is Guarantee.NONE
    assert "guarantee NONE (no snapshot store: a restart starts from the beginning)" in caplog.text


@pytest.mark.parametrize(
    ("text", "size"),
    [("1B", 1), ("2kB", 2000), ("512MB", 512 * 10**6), ("1.5 GiB", 3 * 2**29), ("1TB", 10**12), (" 1 mib ", 2**20)],
)
def test_sizes_are_read_in_powers_of_1000_and_of_1024(text: str, size: int) -> None:
    assert bytes_of(text, "memory_limit") == size


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"members": 0}, JobDefinitionError, "members must be at least 1, got 0"),
        ({"workers": -1}, JobDefinitionError, "workers must be at least 1, got -1"),
        ({"members": 1.5}, TypeError, "members must be a whole number"),
        ({"workers": True}, TypeError, "workers must be a whole number"),
    ],
)
def test_a_cluster_needs_whole_members_and_workers(
    arguments: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        LocalCluster(**arguments)


def test_workers_default_to_the_cores_shared_out_among_members() -> None:
    alone, many = LocalCluster(), LocalCluster(members=1000)
    assert alone.workers >= 1
    assert many.workers == 1
    assert repr(LocalCluster(members=2, workers=3)) == "LocalCluster(members=2, workers=3)"
