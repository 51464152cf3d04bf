"""Goes on with a job whose coordinator has gone: how it was submitted stands in its store, the pipeline is given again.

What is found there is plain data; nothing of it is unpickled. Starting an execution fences whoever had the job before
(SEMANTICS 4): a coordinator that lives yet ends with RecordConflict.
"""

import logging
from collections.abc import Sequence
from datetime import timedelta

from jetfast.clusters.cluster import Cluster
from jetfast.clusters.local import LocalCluster
from jetfast.clusters.processes import ProcessCluster
from jetfast.clusters.snapshot_settings import check_store
from jetfast.clusters.submission import Pipeline
from jetfast.control.job import Job
from jetfast.control.job_outcomes import refuse_completed
from jetfast.engine.snapshot_store import SnapshotStore
from jetfast.engine.submission_record import SubmissionRecord
from jetfast.errors import JobDefinitionError

logger = logging.getLogger("jetfast")


def continue_job(
    store: SnapshotStore,
    job: str,
    pipeline: Pipeline,
    *,
    cluster: Cluster | None = None,
    progress: bool | None = None,
    accept_loss: Sequence[str] = (),
) -> Job:
    """Start a job again from its last snapshot, as it was submitted, and return its handle at once.

    Parameters
    ----------
    store : where it keeps its snapshots, of `jetfast.snapshots`
    job : its name
    pipeline : jetfast.Pipeline, the same or a changed one
    cluster : where its members are to live; default: a cluster of the same kind and size
    progress, accept_loss : as of `submit`

    Raises JobDefinitionError when the store knows no such job, or it is completed, and what `submit` raises.
    """
    check_store(store)
    submission = find_submission(store, job)
    if submission.pipeline != pipeline.name:
        logger.warning("job %s: its pipeline was %r, and is %r now", job, submission.pipeline, pipeline.name)
    retention_us = submission.max_watermark_retention_us
    return (cluster or _cluster_as(submission, job)).submit(
        pipeline,
        name=job,
        guarantee=submission.guarantee,
        snapshot_store=store,
        snapshot_interval=timedelta(microseconds=submission.snapshot_interval_us),
        max_restarts=submission.max_restarts,
        suspend_on_failure=submission.suspend_on_failure,
        memory_limit=f"{submission.memory_limit_bytes}B",
        progress=progress,
        accept_loss=accept_loss,
        two_stage=submission.two_stage,
        max_watermark_retention=None if retention_us is None else timedelta(microseconds=retention_us),
    )


def find_submission(store: SnapshotStore, job: str) -> SubmissionRecord:
    """Return how a job was submitted. Raises JobDefinitionError when the store knows none, or it is completed."""
    found = store.read_record(job)
    if found is None or found.record.submission is None:
        raise JobDefinitionError(f"{store.name} knows no job named {job!r}: submit it")
    if found.record.completed and found.record.settled:
        raise refuse_completed(job)
    return found.record.submission


def _cluster_as(submission: SubmissionRecord, job: str) -> Cluster:
    for kind in (LocalCluster, ProcessCluster):
        if kind.kind == submission.cluster:
            return kind(submission.members, submission.workers, partition_count=submission.partition_count)
    raise JobDefinitionError(
        f"job {job!r} ran on a cluster of kind {submission.cluster!r}: give cluster=, where it is to go on"
    )
