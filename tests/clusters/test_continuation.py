"""A job that another coordinator goes on with: as it was submitted, by what its store says."""

from typing import Any

import pytest

import jetfast as jf
from jetfast.clusters.continuation import continue_job
from jetfast.control.job import Job
from jetfast.engine.snapshot_store import ExecutionRecord
from jetfast.errors import JobCancelledError, JobDefinitionError

SETTINGS: dict[str, Any] = {
    "guarantee": jf.Guarantee.AT_LEAST_ONCE,
    "snapshot_interval": "123ms",
    "max_restarts": 7,
    "suspend_on_failure": True,
    "memory_limit": "10MB",
    "two_stage": False,
    "max_watermark_retention": "9s",
}


def endless(name: str = "pipeline") -> jf.Pipeline:
    pipeline = jf.Pipeline(name)
    pipeline.read(jf.memory({"n": [1, 2, 3]}, unbounded=True), name="rows").write(jf.console(limit=0))
    return pipeline


def cancel(job: Job) -> None:
    while job.status is not jf.JobStatus.RUNNING:
        job.runner.wait(0.005)
    job.cancel()
    with pytest.raises(JobCancelledError):
        job.wait()


def test_a_job_goes_on_as_it_was_submitted() -> None:
    store = jf.snapshots.memory()
    cluster = jf.LocalCluster(3, 2, snapshot_store=store, partition_count=19)
    before = cluster.submit(endless(), name="rows", progress=False, **SETTINGS)
    cancel(before)
    after = continue_job(store, "rows", endless(), progress=False)
    cancel(after)
    plans = [job.runner.plan for job in (before, after)]
    assert plans[0].submission == plans[1].submission
    for what in (
        "job",
        "member_count",
        "workers",
        "partition_count",
        "guarantee",
        "memory_limit_bytes",
        "snapshot_interval_s",
    ):
        assert getattr(plans[0], what) == getattr(plans[1], what)
    assert (plans[1].max_restarts, plans[1].suspend_on_failure, plans[1].fresh) == (7, True, False)
    assert after.id == before.id


def test_a_job_goes_on_elsewhere_if_it_is_told_so() -> None:
    store = jf.snapshots.memory()
    cancel(jf.LocalCluster(3, 2, snapshot_store=store).submit(endless(), progress=False))
    after = continue_job(store, "pipeline", endless(), cluster=jf.LocalCluster(1, 1), progress=False)
    cancel(after)
    found = store.read_record("pipeline")
    assert found is not None
    assert found.record.submission is not None
    assert (found.record.submission.members, found.record.submission.workers) == (1, 1)


def test_a_pipeline_of_another_name_is_told(caplog: pytest.LogCaptureFixture) -> None:
    store = jf.snapshots.memory()
    cancel(jf.LocalCluster(1, 1, snapshot_store=store).submit(endless(), progress=False))
    cancel(continue_job(store, "pipeline", endless("other"), progress=False))
    assert "job pipeline: its pipeline was 'pipeline', and is 'other' now" in caplog.text


def test_what_a_store_does_not_know_or_has_completed_is_refused() -> None:
    store = jf.snapshots.memory()
    with pytest.raises(JobDefinitionError, match="memory knows no job named 'rows'"):
        continue_job(store, "rows", endless())
    store.replace_record(ExecutionRecord("rows", "id", 1, settled=True), 0)
    with pytest.raises(JobDefinitionError, match="knows no job named 'rows'"):
        continue_job(store, "rows", endless())
    pipeline = jf.Pipeline("bounded")
    pipeline.read(jf.memory({"n": [1]})).write(jf.console(limit=0))
    jf.LocalCluster(1, 1, snapshot_store=store).submit(pipeline, progress=False).wait()
    with pytest.raises(JobDefinitionError, match="is completed"):
        continue_job(store, "bounded", pipeline)


def test_a_job_of_another_kind_of_cluster_needs_one() -> None:
    store = jf.snapshots.memory()
    cluster = jf.LocalCluster(1, 1, snapshot_store=store)
    cluster.kind = "spark"
    cancel(cluster.submit(endless(), progress=False))
    with pytest.raises(JobDefinitionError, match="of kind 'spark': give cluster="):
        continue_job(store, "pipeline", endless())


def test_equal_pipelines_have_equal_digests_whatever_their_functions_do() -> None:
    def digest(pipeline: jf.Pipeline) -> str:
        return pipeline.plan(member_count=1, workers=1, two_stage=None).digest()

    assert digest(endless()) == digest(endless())
    other = endless()
    other.read(jf.memory({"n": [1.5]}), name="more").write(jf.console(limit=0), name="more shown")
    assert digest(other) != digest(endless())
