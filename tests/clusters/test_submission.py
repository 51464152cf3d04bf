"""Submitting: wrong settings are refused before anything runs, with what was needed and what came."""

import logging
from typing import Any

import pytest

from jetfast.clusters import LocalCluster
from jetfast.clusters.snapshot_settings import SnapshotWishes
from jetfast.clusters.submission import accept_submission
from jetfast.core.dag import Dag, Vertex
from jetfast.core.guarantee import Delivery, Guarantee
from jetfast.core.processor import Processor
from jetfast.engine.memory_snapshot_store import MemorySnapshotStore
from jetfast.engine.snapshot_store import ExecutionRecord, SnapshotArea, StateTotals, ValidationRecord
from jetfast.errors import DurationError, JobDefinitionError

EXACTLY_ONCE, AT_LEAST_ONCE = Guarantee.EXACTLY_ONCE, Guarantee.AT_LEAST_ONCE


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
        "cluster": "local",
        "member_count": 2,
        "workers": 3,
        "name": None,
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
        ({"snapshots": SnapshotWishes("twice")}, JobDefinitionError, "Guarantee.EXACTLY_ONCE"),
        ({"snapshots": SnapshotWishes(EXACTLY_ONCE)}, JobDefinitionError, "EXACTLY_ONCE needs a place for snapshots"),
        ({"snapshots": SnapshotWishes(AT_LEAST_ONCE)}, JobDefinitionError, "needs a place for snapshots: give snap"),
        ({"snapshots": SnapshotWishes(store="/var/lib")}, TypeError, "snapshot_store must be a store of jetfast.snap"),
        ({"snapshots": SnapshotWishes(interval=10)}, TypeError, 'did you mean "10s"'),
        ({"snapshots": SnapshotWishes(interval="0s")}, DurationError, "must be greater than zero"),
        ({"snapshots": SnapshotWishes(max_restarts=-1)}, JobDefinitionError, "max_restarts must be at least 0"),
        ({"snapshots": SnapshotWishes(max_restarts="ever")}, TypeError, "max_restarts must be a whole number"),
        ({"snapshots": SnapshotWishes(fresh="yes")}, TypeError, "fresh must be True or False"),
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
    assert accept().snapshots.guarantee is Guarantee.NONE
    assert "guarantee NONE (no snapshot store: a restart starts from the beginning)" in caplog.text


def test_the_default_guarantee_is_exactly_once_where_there_is_a_store_and_what_that_survives_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "jetfast")
    chosen = accept(snapshots=SnapshotWishes(store=MemorySnapshotStore(), interval="2s", max_restarts=3)).settings()
    assert (chosen.guarantee, chosen.snapshot_interval_s, chosen.max_restarts) == (EXACTLY_ONCE, 2.0, 3)
    assert "guarantee EXACTLY_ONCE, a snapshot every 2s in memory, which survives the loss of members" in caplog.text


def test_a_store_is_not_asked_for_a_job_without_a_guarantee() -> None:
    settings = accept(snapshots=SnapshotWishes(Guarantee.NONE, MemorySnapshotStore())).settings()
    assert settings.snapshot_store is None


def test_the_guarantee_is_the_weakest_of_the_parts_and_who_weakens_it_is_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Printing(Planned):
        def plan(self, **settings: Any) -> Dag:
            dag = super().plan(**settings)
            dag.add_vertex(Vertex("printer", Processor, delivery=Delivery.REPEATING))
            dag.add_vertex(Vertex("console", Processor, delivery=Delivery.REPEATING, counts=False))
            dag.add_vertex(Vertex("flights", Processor, delivery=Delivery.REPLAYABLE))
            return dag

    settings = accept(Printing(), snapshots=SnapshotWishes(store=MemorySnapshotStore())).settings()
    assert settings.job_guarantee is AT_LEAST_ONCE
    assert settings.sink_guarantees == {"printer": AT_LEAST_ONCE, "console": AT_LEAST_ONCE}
    assert len(settings.weakened_by) == 2
    assert "the guarantee is AT_LEAST_ONCE instead of EXACTLY_ONCE: step 'printer' keeps" in caplog.text


def test_a_completed_job_is_refused_at_submission_unless_it_is_fresh() -> None:
    store = MemorySnapshotStore()
    store.replace_record(ExecutionRecord("flights", "id", 3, completed=True, settled=True), 0)
    with pytest.raises(JobDefinitionError, match="'flights' is completed.*fresh=True"):
        accept(snapshots=SnapshotWishes(store=store))
    assert accept(snapshots=SnapshotWishes(store=store, fresh=True)).settings().fresh
    assert accept(name="other", snapshots=SnapshotWishes(store=store)).job == "other"


def test_a_job_that_its_store_knows_says_from_where_it_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "jetfast")
    store = MemorySnapshotStore()
    area = SnapshotArea(3, 8)
    store.write_validation("flights", ValidationRecord(area, {"gone": StateTotals(1, 1, 1)}, 271, {"gone": 1}))
    store.replace_record(ExecutionRecord("flights", "id", 3, area), 0)
    accept(snapshots=SnapshotWishes(store=store))
    assert "memory knows a job of this name; it goes on from snapshot 3-8" in caplog.text
    assert "its snapshot holds state of steps that it has no more: 'gone'" in caplog.text


def test_targets_are_looked_at_unless_the_job_goes_on() -> None:
    class Writing(Planned):
        def plan(self, **settings: Any) -> Dag:
            dag = super().plan(**settings)
            dag.add_vertex(Vertex("files", Processor, check_target=refuse))
            return dag

    def refuse() -> None:
        raise JobDefinitionError("the directory holds files already")

    store = MemorySnapshotStore()
    with pytest.raises(JobDefinitionError, match="holds files already"):
        accept(Writing(), snapshots=SnapshotWishes(store=store))
    store.replace_record(ExecutionRecord("flights", "id", 3), 0)
    accept(Writing(), snapshots=SnapshotWishes(store=store))  # what it wrote before it was stopped is there
    for anew in (SnapshotWishes(store=store, fresh=True), SnapshotWishes(guarantee=Guarantee.NONE, store=store)):
        with pytest.raises(JobDefinitionError, match="holds files already"):
            accept(Writing(), snapshots=anew)


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
